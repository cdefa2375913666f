use super::*;
use crate::Health;
use model::object::{SliceName, decode};
use model::snapshot::Snapshot;
use model::{Family, ServiceName};
use proptest::prelude::*;
use serde_json::json;

fn service(name: &str, port: u16) -> Object {
    let document = json!({
        "kind": "Service", "metadata": {"namespace": "ns", "name": name},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": port}]},
    });
    decode(document).objects.remove(0)
}

fn slice(name: &str, port: u16) -> Object {
    let document = json!({
        "kind": "EndpointSlice", "metadata": {"namespace": "ns", "name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4", "ports": [{"port": port}], "endpoints": [{"addresses": ["10.0.0.1"]}],
    });
    decode(document).objects.remove(0)
}

fn node() -> Object {
    decode(json!({"kind": "Node", "metadata": {"name": "node-a"}}))
        .objects
        .remove(0)
}

fn apply(object: &Object) -> SourceEvent {
    SourceEvent::Change(Change::Apply(object.clone()))
}

/// What comes out, applied as who listens would: all of an event at once.
#[derive(Default)]
struct Listener {
    snapshot: Snapshot,
    listed: Vec<Kind>,
    said: Vec<&'static str>,
    /// After each event that changed something: the services and slices there are.
    moments: Vec<(Vec<String>, Vec<String>)>,
}

impl Listener {
    fn hear(&mut self, event: SourceEvent) {
        let changes = match event {
            SourceEvent::Change(change) => vec![change],
            SourceEvent::Together(changes) => {
                self.said.push("together");
                changes
            }
            SourceEvent::Remembered(Remembered::InUse { kinds, changes, .. }) => {
                self.said.push("in use");
                self.listed.extend(kinds);
                changes
            }
            SourceEvent::Remembered(Remembered::Over) => {
                self.said.push("over");
                return;
            }
            SourceEvent::Synced(kind) => return self.listed.push(kind),
            _ => return,
        };
        for change in changes {
            self.snapshot.apply(change);
        }
        let services = self.snapshot.services().map(|of| of.name.to_string()).collect();
        let slices = self.snapshot.slices().map(|of| of.name.to_string()).collect();
        self.moments.push((services, slices));
    }
}

fn run(handover: &mut Handover, listener: &mut Listener, events: impl IntoIterator<Item = SourceEvent>) {
    for event in events {
        let mut out = Vec::new();
        handover.take(event, &mut out);
        for event in out {
            listener.hear(event);
        }
    }
}

const OLD: &[&str] = &["old", "stays"];

fn remembered() -> Vec<Object> {
    let services = OLD.iter().map(|name| service(name, 80));
    let slices = OLD.iter().map(|name| slice(name, 8080));
    services.chain(slices).chain([node()]).collect()
}

/// A remembered state, replaced by lists that come in this order.
fn replaced(order: [Kind; 4]) -> Listener {
    let (mut handover, mut listener) = (Handover::new(), Listener::default());
    listener.hear(handover.remember(remembered(), Duration::ZERO));
    for kind in order {
        let objects = match kind {
            Kind::Service => vec![service("stays", 80), service("new", 80)],
            Kind::Slice => vec![slice("stays", 9090), slice("new", 9090)],
            Kind::Node => vec![node()],
            Kind::ServiceCidr => vec![],
        };
        run(&mut handover, &mut listener, objects.iter().map(apply));
        run(&mut handover, &mut listener, [SourceEvent::Synced(kind)]);
    }
    listener
}

#[test]
fn no_moment_has_the_servers_services_with_remembered_slices_or_the_other_way_round() {
    use Kind::{Node, Service, ServiceCidr, Slice};
    for order in [
        [Service, Slice, Node, ServiceCidr],
        [Slice, Service, Node, ServiceCidr],
        [Slice, Node, ServiceCidr, Service],
        [Node, ServiceCidr, Service, Slice],
    ] {
        let listener = replaced(order);
        for (services, slices) in &listener.moments {
            assert_eq!(services, slices, "{order:?}");
        }
        let (services, _) = listener.moments.last().unwrap();
        assert_eq!(services, &["ns/new", "ns/stays"], "{order:?}");
        assert_eq!(listener.said.iter().filter(|said| **said == "over").count(), 1);
        assert_eq!(listener.said.first(), Some(&"in use"));
        let over = listener.said.iter().position(|said| *said == "over").unwrap();
        let lists = listener.said[..over].iter().filter(|said| **said == "together");
        // Services and slices, the Node, and `ServiceCIDRs` if they came before.
        let before = order.iter().position(|kind| *kind == ServiceCidr) < Some(3);
        assert_eq!(lists.count(), 2 + usize::from(before), "{order:?}");
    }
}

#[test]
fn half_a_list_changes_nothing_and_a_list_begun_anew_counts_once() {
    let (mut handover, mut listener) = (Handover::new(), Listener::default());
    listener.hear(handover.remember(remembered(), Duration::ZERO));
    run(
        &mut handover,
        &mut listener,
        [apply(&slice("stays", 1)), SourceEvent::Synced(Kind::Slice)],
    );
    run(&mut handover, &mut listener, [apply(&service("half", 80))]);
    assert_eq!(listener.moments.len(), 1, "only the file's");
    // The list broke off and began anew without the object.
    let gone = Change::Delete(ObjectRef::Service(ServiceName::new("ns", "half")));
    run(
        &mut handover,
        &mut listener,
        [apply(&service("stays", 80)), SourceEvent::Change(gone)],
    );
    // A slice that changes while the other list is waited for.
    run(&mut handover, &mut listener, [apply(&slice("stays", 2))]);
    run(&mut handover, &mut listener, [SourceEvent::Synced(Kind::Service)]);
    assert_eq!(listener.moments.len(), 2);
    let services: Vec<String> = listener
        .snapshot
        .services()
        .map(|of| of.name.to_string())
        .collect();
    assert_eq!(services, ["ns/stays"]);
    let slice = listener.snapshot.slices().next().unwrap();
    assert_eq!((slice.ports[0].port, slice.family), (2, Some(Family::V4)));
}

#[test]
fn what_the_server_has_said_is_not_replaced_by_the_file() {
    let (mut handover, mut listener) = (Handover::new(), Listener::default());
    let lists = [Kind::Service, Kind::Slice].map(SourceEvent::Synced);
    run(&mut handover, &mut listener, [apply(&service("new", 80))]);
    run(&mut handover, &mut listener, lists);
    assert!(handover.wants_memory(), "the Node has not come");
    listener.hear(handover.remember(remembered(), Duration::ZERO));
    let services: Vec<String> = listener
        .snapshot
        .services()
        .map(|of| of.name.to_string())
        .collect();
    assert_eq!(services, ["ns/new"]);
    assert!(listener.snapshot.node("node-a").is_some());
    assert!(!handover.wants_memory());
}

#[test]
fn with_all_that_is_needed_the_file_is_not_wanted() {
    let (mut handover, mut listener) = (Handover::new(), Listener::default());
    for kind in [Kind::Service, Kind::Node, Kind::Slice] {
        assert!(handover.wants_memory());
        run(&mut handover, &mut listener, [SourceEvent::Synced(kind)]);
    }
    assert!(!handover.wants_memory());
    run(
        &mut handover,
        &mut listener,
        [SourceEvent::Health(Kind::ServiceCidr, Health::Absent)],
    );
    run(
        &mut handover,
        &mut listener,
        [SourceEvent::Synced(Kind::ServiceCidr)],
    );
    assert!(!listener.said.contains(&"over"));
}

/// A server's life in small: any changes, lists that end, and the file at any moment.
#[derive(Clone, Debug)]
enum Move {
    Apply(bool, u8, u16),
    Delete(bool, u8),
    Synced(bool),
    Remember,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        4 => (any::<bool>(), 0..4u8, 1..3u16).prop_map(|(is_slice, name, port)| Move::Apply(is_slice, name, port)),
        2 => (any::<bool>(), 0..4u8).prop_map(|(is_slice, name)| Move::Delete(is_slice, name)),
        1 => any::<bool>().prop_map(Move::Synced),
        1 => Just(Move::Remember),
    ];
    prop::collection::vec(one, 0..40)
}

proptest! {
    #[test]
    fn whatever_comes_the_end_is_what_the_server_says(moves in moves()) {
        let (mut handover, mut listener, mut server) = (Handover::new(), Listener::default(), Snapshot::new());
        for step in moves {
            let event = match step {
                Move::Apply(false, name, port) => apply(&service(&format!("s{name}"), port)),
                Move::Apply(true, name, port) => apply(&slice(&format!("s{name}"), port)),
                Move::Delete(is_slice, name) => {
                    let name = format!("s{name}");
                    SourceEvent::Change(Change::Delete(if is_slice {
                        ObjectRef::Slice(SliceName::new("ns", name.as_str()))
                    } else {
                        ObjectRef::Service(ServiceName::new("ns", name))
                    }))
                }
                Move::Synced(is_slice) => SourceEvent::Synced(if is_slice { Kind::Slice } else { Kind::Service }),
                Move::Remember => {
                    if handover.wants_memory() {
                        listener.hear(handover.remember(remembered(), Duration::ZERO));
                    }
                    continue;
                }
            };
            if let SourceEvent::Change(change) = &event {
                server.apply(change.clone());
            }
            run(&mut handover, &mut listener, [event]);
        }
        let last = [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr].map(SourceEvent::Synced);
        run(&mut handover, &mut listener, last);
        prop_assert_eq!(listener.snapshot, server);
    }
}
