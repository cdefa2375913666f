//! Who wins, and who is told.

#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` values are made in the call"
)]

use super::*;
use crate::object::decode;
use crate::snapshot::{Change, Snapshot};
use crate::{NodeFacts, NoteKind, Settings};
use serde_json::{Value, json};

fn service(name: &str, created: &str, spec: Value) -> Change {
    let mut document =
        json!({"kind": "Service", "metadata": {"name": name, "namespace": "ns"}, "spec": spec});
    if !created.is_empty() {
        document["metadata"]["creationTimestamp"] = created.into();
    }
    let decoded = decode(document);
    assert_eq!(decoded.notes, []);
    Change::Apply(decoded.objects.into_iter().next().unwrap())
}

fn external(name: &str, created: &str, cluster_ip: &str, external_ip: &str) -> Change {
    service(
        name,
        created,
        json!({"clusterIP": cluster_ip, "externalIPs": [external_ip], "ports": [{"port": 80}]}),
    )
}

fn delete(name: &str) -> Change {
    Change::Delete(crate::object::ObjectRef::Service(ServiceName::new("ns", name)))
}

fn address(ip: &str, port: u16) -> ClaimKey {
    ClaimKey::Address(ip.parse().unwrap(), port, Protocol::Tcp)
}

fn winner(snapshot: &Snapshot, key: ClaimKey) -> Option<String> {
    let winner = snapshot.claims().winner(key, &ExternalIps::Allowed);
    winner.map(|winner| winner.name.to_string())
}

fn names(touched: &BTreeSet<ServiceName>) -> Vec<&str> {
    touched.iter().map(|service| &*service.name).collect()
}

const OLD: &str = "2026-01-01T00:00:00Z";
const NEW: &str = "2026-01-02T00:00:00Z";

#[test]
fn the_older_service_wins_then_the_first_by_name() {
    let key = address("192.0.2.1", 80);
    let mut snapshot = Snapshot::new();
    snapshot.apply(external("c", "", "10.0.0.3", "192.0.2.1"));
    snapshot.apply(external("b", NEW, "10.0.0.2", "192.0.2.1"));
    assert_eq!(
        winner(&snapshot, key).as_deref(),
        Some("b"),
        "an unknown age is the youngest"
    );
    snapshot.apply(external("a", NEW, "10.0.0.1", "192.0.2.1"));
    assert_eq!(
        winner(&snapshot, key).as_deref(),
        Some("a"),
        "of the same age, by name"
    );
    snapshot.apply(external("z", OLD, "10.0.0.4", "192.0.2.1"));
    assert_eq!(winner(&snapshot, key).as_deref(), Some("z"), "the oldest");
}

#[test]
fn when_the_winner_goes_the_others_are_named_and_the_next_has_it() {
    let mut snapshot = Snapshot::new();
    let first = snapshot.apply(external("a", OLD, "10.0.0.1", "192.0.2.1"));
    assert_eq!(names(&first.services), ["a"]);
    let second = snapshot.apply(external("b", NEW, "10.0.0.2", "192.0.2.1"));
    assert_eq!(names(&second.services), ["b"], "a has it as before");
    let unrelated = snapshot.apply(external("c", NEW, "10.0.0.3", "192.0.2.2"));
    assert_eq!(names(&unrelated.services), ["c"]);
    let gone = snapshot.apply(delete("a"));
    assert_eq!(names(&gone.services), ["a", "b"]);
    assert_eq!(winner(&snapshot, address("192.0.2.1", 80)).as_deref(), Some("b"));
    snapshot.apply(delete("b"));
    snapshot.apply(delete("c"));
    assert!(snapshot.claims().is_empty());
}

/// However many go without: 5,000 services with one address would else be 12,500,000 names, each resolved again.
#[test]
fn one_more_that_goes_without_touches_nobody_else() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(external("a", OLD, "10.0.0.1", "192.0.2.1"));
    for name in ["b", "c", "d"] {
        let touched = snapshot.apply(external(name, NEW, "10.0.0.2", "192.0.2.1"));
        assert!(!names(&touched.services).contains(&"a"), "{touched:?}");
    }
    let gone = snapshot.apply(delete("c"));
    assert_eq!(names(&gone.services), ["c"]);
    let older = snapshot.apply(external("d", OLD, "10.0.0.2", "192.0.2.1"));
    assert_eq!(names(&older.services), ["b", "d"], "d has the cluster IP now");
}

/// CVE-2020-8554 within the cluster: an old service must not take a new service's cluster IP.
#[test]
fn nobody_takes_a_cluster_ip_by_writing_it_into_external_ips() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(external("old-thief", OLD, "10.0.0.9", "10.0.0.1"));
    snapshot.apply(service(
        "dns",
        NEW,
        json!({"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}),
    ));
    assert_eq!(winner(&snapshot, address("10.0.0.1", 80)).as_deref(), Some("dns"));
}

#[test]
fn one_service_may_have_one_address_in_several_roles_and_under_several_protocols() {
    let mut snapshot = Snapshot::new();
    let mut document = json!({"kind": "Service", "metadata": {"name": "a"}, "spec": {
        "type": "LoadBalancer", "clusterIP": "10.0.0.1", "externalIPs": ["192.0.2.1"],
        "ports": [{"name": "tcp", "port": 53, "nodePort": 30053}, {"name": "udp", "port": 53, "protocol": "UDP", "nodePort": 30053}]}});
    document["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    snapshot.apply(Change::Apply(decode(document).objects.remove(0)));
    let (desired, notes) = resolve(&snapshot, &Settings::default());
    assert_eq!(notes, []);
    let service = &desired.services[&ServiceName::new("default", "a")];
    assert!(
        service.ports.iter().all(|port| port.frontends.len() == 4),
        "{service:?}"
    );
}

#[test]
fn the_loser_goes_without_and_says_to_whom() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(service(
        "a",
        OLD,
        json!({"clusterIP": "10.0.0.1", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}),
    ));
    snapshot.apply(service(
        "b",
        NEW,
        json!({"clusterIP": "10.0.0.2", "type": "NodePort", "ports": [{"port": 80, "nodePort": 30080}]}),
    ));
    let (desired, notes) = resolve(&snapshot, &Settings::default());
    let frontends = |name: &str| {
        desired.services[&ServiceName::new("ns", name)].ports[0]
            .frontends
            .len()
    };
    assert_eq!((frontends("a"), frontends("b")), (2, 1));
    let [note] = notes.as_slice() else {
        panic!("{notes:?}")
    };
    let claimed = NoteKind::Claimed {
        frontend: "node port 30080/TCP".to_owned(),
        winner: ServiceName::new("ns", "a"),
    };
    assert_eq!(note.kind, claimed);
    assert_eq!(
        note.to_string(),
        "Service ns/b: node port 30080/TCP left out: it belongs to Service ns/a"
    );
    // A node port of one family says nothing about the other.
    let key = ClaimKey::NodePort(Family::V6, 30_080, Protocol::Tcp);
    assert_eq!(winner(&snapshot, key), None);
}

#[test]
fn external_ips_that_are_ignored_claim_nothing() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(external("a", OLD, "10.0.0.1", "192.0.2.1"));
    let key = address("192.0.2.1", 80);
    assert_eq!(snapshot.claims().winner(key, &ExternalIps::Ignored), None);
    let settings = Settings {
        external_ips: ExternalIps::Ignored,
        ..Settings::default()
    };
    let (desired, _) = resolve(&snapshot, &settings);
    assert_eq!(
        desired.services[&ServiceName::new("ns", "a")].ports[0]
            .frontends
            .len(),
        1
    );
}

#[test]
fn external_ips_that_are_not_allowed_claim_nothing_and_others_do() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(external("a", OLD, "10.0.0.1", "192.0.2.1"));
    snapshot.apply(external("b", OLD, "10.0.0.2", "192.0.2.130"));
    let within = ExternalIps::Within(["192.0.2.128/25".parse().unwrap()].into());
    let winner = |key| snapshot.claims().winner(key, &within).map(ToString::to_string);
    assert_eq!(winner(address("192.0.2.1", 80)), None);
    assert_eq!(winner(address("192.0.2.130", 80)).as_deref(), Some("ns/b"));
    assert_eq!(winner(address("10.0.0.1", 80)).as_deref(), Some("ns/a"));
}

#[test]
fn skipped_services_claim_nothing() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(service(
        "a",
        OLD,
        json!({"clusterIP": "None", "externalIPs": ["192.0.2.1"], "ports": [{"port": 80}]}),
    ));
    assert!(snapshot.claims().is_empty());
}

#[test]
fn more_than_a_thousand_listed_endpoints_are_many() {
    let mut count = ListedEndpoints::default();
    count.replace(0, 1000);
    assert!(!count.is_large());
    count.replace(1000, 1001);
    assert_eq!((count.total(), count.is_large()), (1001, true));
    count.replace(1001, 0);
    assert_eq!(count, ListedEndpoints::default());
}

#[test]
fn every_listed_endpoint_of_every_port_counts_ready_or_not() {
    let mut snapshot = Snapshot::new();
    snapshot.apply(external("a", OLD, "10.0.0.1", "192.0.2.1"));
    let (mut desired, _) = resolve(&snapshot, &Settings::default());
    let service = desired.services.values_mut().next().unwrap();
    service.ports.push(service.ports[0].clone());
    service.ports[0].listed_endpoints = 3;
    service.ports[1].listed_endpoints = 4;
    assert_eq!(listed_by(service), 7);
    assert_eq!(ListedEndpoints::of(&desired).total(), 7);
}

fn resolve(snapshot: &Snapshot, settings: &Settings) -> (Desired, Vec<crate::Note>) {
    Desired::from_snapshot(snapshot, Family::V4, &NodeFacts::default(), settings)
}
