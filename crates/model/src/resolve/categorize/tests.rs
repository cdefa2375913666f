//! Iptables.md 18: the vectors of upstream's `topology_test.go`.

use super::*;
use crate::object::{Conditions, Hints};
use std::sync::Arc;

const READY: Conditions = Conditions {
    ready: true,
    serving: true,
    terminating: false,
};
const UNREADY: Conditions = Conditions {
    ready: false,
    serving: false,
    terminating: false,
};
const SERVING: Conditions = Conditions {
    ready: false,
    serving: true,
    terminating: true,
};
const GONE: Conditions = Conditions {
    ready: false,
    serving: false,
    terminating: true,
};

const CLUSTER: Uses = Uses {
    cluster: true,
    local: false,
};
const LOCAL: Uses = Uses {
    cluster: false,
    local: true,
};
const BOTH: Uses = Uses {
    cluster: true,
    local: true,
};

/// Endpoints 10.1.2.1, 10.1.2.2, ...: state, whether here, zones and nodes hinted (separated by commas).
struct World {
    rows: Vec<(Conditions, bool, Option<Hints>)>,
    slice: Arc<str>,
}

fn world(rows: &[(Conditions, bool, &str, &str)]) -> World {
    let names = |text: &str| {
        text.split(',')
            .filter(|name| !name.is_empty())
            .map(Arc::from)
            .collect()
    };
    let row = |(conditions, is_local, zones, nodes): &(Conditions, bool, &str, &str)| {
        let hints = Hints {
            zones: names(zones),
            nodes: names(nodes),
        };
        (
            *conditions,
            *is_local,
            (hints != Hints::default()).then_some(hints),
        )
    };
    World {
        rows: rows.iter().map(row).collect(),
        slice: "slice".into(),
    }
}

impl World {
    fn listed(&self) -> Vec<Listed<'_>> {
        self.rows
            .iter()
            .enumerate()
            .map(|(i, (conditions, is_local, hints))| Listed {
                address: SocketAddr::from(([10, 1, 2, u8::try_from(i + 1).unwrap()], 80)),
                conditions: *conditions,
                is_local: *is_local,
                hints: hints.as_ref(),
                slice: &self.slice,
            })
            .collect()
    }

    /// Numbers of the endpoints in the cluster, local and reachable lists, and whether any is usable.
    fn sorted(&self, uses: Uses, node: &NodeFacts) -> (Vec<u8>, Vec<u8>, Vec<u8>, bool) {
        let numbers = |list: &[SocketAddr]| -> Vec<u8> {
            list.iter()
                .map(|address| match address {
                    SocketAddr::V4(address) => address.ip().octets()[3],
                    SocketAddr::V6(_) => unreachable!(),
                })
                .collect()
        };
        let lists = categorize(&self.listed(), uses, node);
        (
            numbers(&lists.cluster),
            numbers(&lists.local),
            numbers(&lists.reachable),
            lists.has_any,
        )
    }
}

fn node_in(zone: Option<&str>) -> NodeFacts {
    NodeFacts {
        name: "node-a".into(),
        zone: zone.map(Arc::from),
        ..NodeFacts::default()
    }
}

#[test]
fn zone_hints_narrow_to_the_nodes_zone() {
    let hinted = world(&[
        (READY, true, "a", ""),
        (READY, true, "b", ""),
        (READY, true, "c", ""),
        (READY, true, "a", ""),
    ]);
    assert_eq!(
        hinted.sorted(CLUSTER, &node_in(Some("a"))),
        (vec![1, 4], vec![], vec![1, 4], true)
    );
    let all = (vec![1, 2, 3, 4], vec![], vec![1, 2, 3, 4], true);
    assert_eq!(hinted.sorted(CLUSTER, &node_in(None)), all, "no zone label");
    assert_eq!(
        hinted.sorted(CLUSTER, &node_in(Some(""))),
        all,
        "empty zone label"
    );
    assert_eq!(
        hinted.sorted(CLUSTER, &node_in(Some("d"))),
        all,
        "only hints for other zones"
    );
    let one_without = world(&[
        (READY, true, "a", ""),
        (READY, true, "b", ""),
        (READY, true, "", ""),
        (READY, true, "a", ""),
    ]);
    assert_eq!(
        one_without.sorted(CLUSTER, &node_in(Some("a"))),
        all,
        "one ready endpoint has no hint"
    );
}

#[test]
fn unready_endpoints_have_no_say_in_topology() {
    let unready_without = world(&[
        (READY, true, "a", ""),
        (READY, true, "b", ""),
        (UNREADY, true, "", ""),
    ]);
    assert_eq!(unready_without.sorted(CLUSTER, &node_in(Some("a"))).0, [1]);
    let same_zone_unready = world(&[
        (UNREADY, true, "a", ""),
        (READY, true, "b", ""),
        (READY, true, "c", ""),
    ]);
    assert_eq!(same_zone_unready.sorted(CLUSTER, &node_in(Some("a"))).0, [2, 3]);
}

#[test]
fn several_zones_in_one_hint_match_any() {
    let world = world(&[
        (READY, true, "a,b,c", ""),
        (READY, true, "b,c", ""),
        (READY, true, "b,d", ""),
        (READY, true, "c", ""),
    ]);
    assert_eq!(world.sorted(CLUSTER, &node_in(Some("a"))).0, [1]);
    assert_eq!(world.sorted(CLUSTER, &node_in(Some("b"))).0, [1, 2, 3]);
    assert_eq!(world.sorted(CLUSTER, &node_in(Some("c"))).0, [1, 2, 4]);
    assert_eq!(world.sorted(CLUSTER, &node_in(Some("d"))).0, [3]);
}

#[test]
fn node_hints_go_before_zone_hints() {
    let node = node_in(Some("z"));
    let mine = world(&[(READY, true, "z", "node-a"), (READY, false, "z", "node-b")]);
    assert_eq!(
        (topology(&mine.listed(), &node), mine.sorted(CLUSTER, &node).0),
        (Topology::SameNode, vec![1])
    );
    let others = world(&[(READY, false, "z", "node-c"), (READY, false, "y", "node-b")]);
    assert_eq!(
        (topology(&others.listed(), &node), others.sorted(CLUSTER, &node).0),
        (Topology::SameZone, vec![1])
    );
    let one_without_node = world(&[(READY, true, "z", "node-a"), (READY, false, "y", "")]);
    assert_eq!(topology(&one_without_node.listed(), &node), Topology::SameZone);
    let unhinted = world(&[(READY, true, "", "node-a"), (READY, false, "", "")]);
    assert_eq!(
        (
            topology(&unhinted.listed(), &node),
            unhinted.sorted(CLUSTER, &node).0
        ),
        (Topology::Everywhere, vec![1, 2])
    );
}

#[test]
fn topology_never_applies_to_the_local_list() {
    let world = world(&[
        (READY, true, "a", ""),
        (READY, true, "b", ""),
        (READY, false, "c", ""),
        (READY, false, "a", ""),
    ]);
    let node = node_in(Some("a"));
    assert_eq!(
        world.sorted(BOTH, &node),
        (vec![1, 4], vec![1, 2], vec![1, 2, 4], true)
    );
}

#[test]
fn internal_policy_local_alone_uses_no_cluster_list() {
    let node = node_in(None);
    let mixed = world(&[(READY, true, "", ""), (READY, false, "", "")]);
    assert_eq!(mixed.sorted(LOCAL, &node), (vec![], vec![1], vec![1], true));
    let remote = world(&[(READY, false, "", ""), (READY, false, "", "")]);
    assert_eq!(
        remote.sorted(LOCAL, &node),
        (vec![], vec![], vec![], true),
        "DROP, not REJECT"
    );
    assert_eq!(world(&[]).sorted(BOTH, &node), (vec![], vec![], vec![], false));
}

#[test]
fn terminating_endpoints_serve_only_when_nothing_is_ready() {
    let node = node_in(Some("a"));
    let unusable = world(&[(UNREADY, true, "", ""), (GONE, false, "", "")]);
    assert_eq!(unusable.sorted(BOTH, &node), (vec![], vec![], vec![], false));
    let serving = world(&[(SERVING, true, "b", ""), (SERVING, false, "b", "")]);
    assert_eq!(
        serving.sorted(BOTH, &node),
        (vec![1, 2], vec![1], vec![1, 2], true),
        "topology is ignored"
    );
    // Ready remote, unready local, serving local, serving remote: each list falls back on its own.
    let mixed = world(&[
        (READY, false, "", ""),
        (UNREADY, true, "", ""),
        (SERVING, true, "", ""),
        (SERVING, false, "", ""),
    ]);
    assert_eq!(mixed.sorted(BOTH, &node), (vec![1], vec![3], vec![1, 3], true));
    let not_terminating = Conditions {
        ready: false,
        serving: true,
        terminating: false,
    };
    assert!(
        !world(&[(not_terminating, true, "", "")]).sorted(BOTH, &node).3,
        "serving alone is not enough"
    );
}
