//! What changes touch, and that snapshots are functions of their objects. The generator makes small clusters in which
//! everything collides: names, addresses, node ports, slices that move between services.

use super::*;
use crate::object::decode;
use crate::settings::ExternalIps;
use crate::{Desired, DesiredService, Family, NodeFacts, Note, Settings, resolve};
use proptest::prelude::*;
use serde_json::{Value, json};

fn object(document: Value) -> Object {
    let decoded = decode(document);
    assert_eq!(decoded.notes, []);
    decoded.objects.into_iter().next().expect("one object")
}

fn plain_service(name: &str) -> Object {
    let spec = json!({"clusterIP": "10.96.0.1", "ports": [{"port": 80}]});
    object(json!({"kind": "Service", "metadata": {"name": name}, "spec": spec}))
}

fn slice(name: &str, owner: &str, address: &str) -> Object {
    object(
        json!({"kind": "EndpointSlice", "addressType": "IPv4", "ports": [{"port": 80}],
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": owner}},
        "endpoints": [{"addresses": [address], "nodeName": "node-a"}]}),
    )
}

fn names(touched: &Touched) -> Vec<&str> {
    touched.services.iter().map(|name| &*name.name).collect()
}

#[test]
fn the_same_object_again_touches_nothing() {
    let mut snapshot = Snapshot::new();
    for object in [plain_service("a"), slice("a-1", "a", "10.0.0.1")] {
        assert_eq!(names(&snapshot.apply(Change::Apply(object.clone()))), ["a"]);
        assert!(snapshot.apply(Change::Apply(object)).is_empty());
    }
    let unknown = ObjectRef::Service(ServiceName::new("default", "unknown"));
    assert!(snapshot.apply(Change::Delete(unknown)).is_empty());
}

#[test]
fn metadata_that_is_not_read_touches_nothing() {
    let version = |version: &str| {
        object(
            json!({"kind": "Service", "metadata": {"name": "a", "resourceVersion": version, "annotations": {"x": version}},
            "spec": {"clusterIP": "10.96.0.1"}}),
        )
    };
    let mut snapshot = Snapshot::new();
    snapshot.apply(Change::Apply(version("1")));
    assert!(snapshot.apply(Change::Apply(version("2"))).is_empty());
}

#[test]
fn a_slice_that_moves_touches_both_services() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(Change::Apply(slice("s", "a", "10.0.0.1")));
    assert_eq!(
        names(&snapshot.apply(Change::Apply(slice("s", "b", "10.0.0.1")))),
        ["a", "b"]
    );
    assert!(snapshot.slices_of(&ServiceName::new("default", "a")).is_empty());
    assert_eq!(snapshot.slices_of(&ServiceName::new("default", "b")).len(), 1);
}

#[test]
fn an_emptied_snapshot_equals_a_new_one() {
    let mut snapshot = Snapshot::new();
    for object in [
        plain_service("a"),
        slice("a-1", "a", "10.0.0.1"),
        slice("a-2", "a", "10.0.0.2"),
    ] {
        snapshot.apply(Change::Apply(object));
    }
    for kind in [Kind::Service, Kind::Slice] {
        let touched = snapshot.apply(Change::ReplaceAll {
            kind,
            objects: vec![],
        });
        assert_eq!(names(&touched), ["a"]);
    }
    assert_eq!(snapshot, Snapshot::new());
    assert!(snapshot.slices_of.is_empty() && snapshot.claims.is_empty());
}

#[test]
fn replacing_all_touches_only_what_differs() {
    let mut snapshot = Snapshot::new();
    for object in [
        plain_service("same"),
        plain_service("gone"),
        slice("x", "other", "10.0.0.1"),
    ] {
        snapshot.apply(Change::Apply(object));
    }
    // All three claim one cluster IP, so `same` has to be looked at again as well; `other` has not.
    let objects = vec![
        plain_service("same"),
        plain_service("new"),
        slice("ignored", "z", "10.0.0.1"),
    ];
    let touched = snapshot.apply(Change::ReplaceAll {
        kind: Kind::Service,
        objects,
    });
    assert_eq!(names(&touched), ["gone", "new", "same"]);
    assert_eq!(snapshot.services().count(), 2);
    assert_eq!(snapshot.slices().count(), 1);
}

#[test]
fn nodes_and_service_cidrs_are_told_by_name() {
    let node = || object(json!({"kind": "Node", "metadata": {"name": "node-a"}}));
    let cidr = || {
        object(json!({"kind": "ServiceCIDR", "metadata": {"name": "k"}, "spec": {"cidrs": ["10.96.0.0/12"]}}))
    };
    let mut snapshot = Snapshot::new();
    let touched = snapshot.apply(Change::Apply(node()));
    assert_eq!((touched.nodes.len(), touched.services.len()), (1, 0));
    assert!(snapshot.apply(Change::Apply(node())).is_empty());
    assert_eq!(snapshot.apply(Change::Apply(cidr())).service_cidrs.len(), 1);
    assert!(snapshot.node("node-a").is_some());
    let gone = snapshot.apply(Change::Delete(ObjectRef::Node("node-a".into())));
    assert_eq!((gone.nodes.len(), snapshot.nodes().count()), (1, 0));
}

#[test]
fn equal_texts_of_different_objects_are_held_once() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(Change::Apply(slice("a-1", "a", "10.0.0.1")));
    snapshot.apply(Change::Apply(slice("b-1", "b", "10.0.0.1")));
    let nodes: Vec<Arc<str>> = snapshot
        .slices()
        .map(|slice| slice.endpoints[0].node.clone().expect("on a node"))
        .collect();
    assert!(Arc::ptr_eq(&nodes[0], &nodes[1]));
}

fn any_service() -> impl Strategy<Value = Object> {
    let lists = || proptest::sample::subsequence(vec!["192.0.2.1", "192.0.2.2", "10.96.0.2"], 0..=2);
    let policy = || proptest::sample::select(vec!["Cluster", "Local"]);
    let created = proptest::sample::select(vec!["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]);
    let cluster_ip = proptest::sample::select(vec!["10.96.0.1", "10.96.0.2", "None"]);
    let node_port = proptest::sample::select(vec![0, 30_001, 30_002]);
    (0..4u8, created, cluster_ip, node_port, lists(), lists(), policy(), policy()).prop_map(
        |(name, created, cluster_ip, node_port, external, ingress, internal, outer)| {
            let ingress: Vec<Value> = ingress.iter().map(|ip| json!({"ip": ip})).collect();
            object(json!({
                "kind": "Service", "metadata": {"name": format!("s{name}"), "creationTimestamp": created},
                "spec": {"type": "LoadBalancer", "clusterIP": cluster_ip, "externalIPs": external,
                    "internalTrafficPolicy": internal, "externalTrafficPolicy": outer, "healthCheckNodePort": 31_000,
                    "ports": [{"port": 80, "nodePort": node_port}]},
                "status": {"loadBalancer": {"ingress": ingress}},
            }))
        },
    )
}

fn any_slice() -> impl Strategy<Value = Object> {
    let endpoint = (1..4u8, any::<bool>(), any::<bool>(), any::<bool>(), 0..3u8).prop_map(
        |(address, ready, serving, terminating, node)| {
            let conditions = json!({"ready": ready, "serving": serving, "terminating": terminating});
            json!({"addresses": [format!("10.0.0.{address}")], "nodeName": format!("node-{node}"), "conditions": conditions})
        },
    );
    (0..5u8, 0..4u8, proptest::collection::vec(endpoint, 0..4)).prop_map(|(name, owner, endpoints)| {
        let labels = json!({"kubernetes.io/service-name": format!("s{owner}")});
        object(
            json!({"kind": "EndpointSlice", "addressType": "IPv4", "ports": [{"port": 80}],
            "metadata": {"name": format!("l{name}"), "labels": labels}, "endpoints": endpoints}),
        )
    })
}

fn any_external_ips() -> impl Strategy<Value = ExternalIps> {
    let one = ["192.0.2.1/32".parse().expect("a network")];
    proptest::sample::select(vec![
        ExternalIps::Allowed,
        ExternalIps::Within(one.into()),
        ExternalIps::Ignored,
    ])
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => any_service().prop_map(Change::Apply),
        6 => any_slice().prop_map(Change::Apply),
        2 => any_service().prop_map(|object| Change::Delete(object.reference())),
        2 => any_slice().prop_map(|object| Change::Delete(object.reference())),
        1 => proptest::collection::vec(any_service(), 0..4)
            .prop_map(|objects| Change::ReplaceAll { kind: Kind::Service, objects }),
        1 => proptest::collection::vec(any_slice(), 0..4)
            .prop_map(|objects| Change::ReplaceAll { kind: Kind::Slice, objects }),
    ]
}

fn objects_of(snapshot: &Snapshot) -> Vec<Object> {
    let services = snapshot
        .services()
        .cloned()
        .map(|service| Object::Service(Box::new(service)));
    let slices = snapshot
        .slices()
        .cloned()
        .map(|slice| Object::Slice(Box::new(slice)));
    services.chain(slices).collect()
}

fn node() -> NodeFacts {
    NodeFacts {
        name: "node-0".into(),
        ..NodeFacts::default()
    }
}

proptest! {
    #[test]
    fn the_order_of_changes_cannot_be_told(
        changes in proptest::collection::vec(any_change(), 0..30),
        seed in any::<u64>(),
    ) {
        let mut lived = Snapshot::new();
        for change in changes {
            lived.apply(change);
        }
        let mut objects = objects_of(&lived);
        // A cheap shuffle, told by the seed.
        objects.sort_by_cached_key(|object| {
            let key = format!("{seed}{:?}", object.reference());
            key.bytes().fold(seed, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
        });
        let mut fresh = Snapshot::new();
        for object in objects {
            fresh.apply(Change::Apply(object));
        }
        prop_assert_eq!(&lived, &fresh);
        let resolved = |snapshot: &Snapshot| Desired::from_snapshot(snapshot, Family::V4, &node(), &Settings::default());
        prop_assert_eq!(resolved(&lived), resolved(&fresh));
    }

    /// Beam 3: resolving only what was touched gives what resolving everything gives, down to what is said of it.
    #[test]
    fn resolving_what_is_touched_is_enough(
        changes in proptest::collection::vec(any_change(), 0..30),
        external_ips in any_external_ips(),
    ) {
        let (node, settings) = (node(), Settings { external_ips, ..Settings::default() });
        let mut snapshot = Snapshot::new();
        let mut kept: BTreeMap<ServiceName, (Option<DesiredService>, Vec<Note>)> = BTreeMap::new();
        for change in changes {
            let touched = snapshot.apply(change);
            let context = resolve::Context { family: Family::V4, node: &node, settings: &settings, claims: snapshot.claims() };
            for name in touched.services {
                match snapshot.service(&name) {
                    Some(service) => {
                        let resolved = resolve::resolve(service, &snapshot.slices_of(&name), &context);
                        kept.insert(name, resolved)
                    }
                    None => kept.remove(&name),
                };
            }
            let (whole, notes) = Desired::from_snapshot(&snapshot, Family::V4, &node, &settings);
            let services = kept.iter().filter_map(|(name, (service, _))| Some((name, service.as_ref()?)));
            prop_assert!(services.eq(&whole.services), "{:?}\nis not\n{:?}", kept, whole.services);
            prop_assert_eq!(kept.values().flat_map(|(_, notes)| notes).cloned().collect::<Vec<_>>(), notes);
        }
    }
}
