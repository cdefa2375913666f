//! What the kernel refuses again and again in nftables mode: it is tried again with waits, and holds up nothing else.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::Report;
use kernel::fake::FakeTables;
use model::object::Object;
use model::snapshot::Change;
use model::{Affinity, Family, ServiceName};
use nftables::ast::{ElementKey, Value};
use nftables::{build, names};
use std::net::IpAddr;
use std::time::Duration;
use support::cluster::{Cluster, Heard};
use support::own_table::{OwnTableRig, desired};

/// Lets the time go by. Gives the number of effects.
fn go_on(rig: &mut OwnTableRig, how_long: Duration) -> usize {
    let until = rig.now + how_long;
    let mut effects = 0;
    while rig.now < until {
        effects += rig.work();
        rig.now += Duration::from_millis(500);
    }
    effects
}

fn settled(rig: &mut OwnTableRig, cluster: &Cluster) {
    rig.settle().unwrap();
    rig.compare(cluster).unwrap();
}

fn applied(report: &Report, name: &ServiceName) -> bool {
    matches!(report, Report::Applied { services, .. } if services.contains(name))
}

/// The elements of a service of IPv4 that is alone in its table.
fn elements_of(cluster: &Cluster, name: &ServiceName) -> Vec<ElementKey> {
    let desired = desired(cluster, Family::V4);
    let service = &desired.services[name];
    let slots = build::place(&build::ServiceSlots::new(), service);
    build::service(service, &slots).into_keys().collect()
}

fn some_services() -> Cluster {
    let mut cluster = Cluster::new(5);
    while cluster.services.len() < 8 {
        cluster.add_service();
        cluster.add_slice();
    }
    cluster
}

/// Two services of IPv4 that differ in all their elements.
fn two_services(cluster: &Cluster) -> [ServiceName; 2] {
    let desired = desired(cluster, Family::V4);
    let mut names = desired.services.into_keys();
    let mut next = || names.find(|name| &*name.namespace != "default").unwrap();
    [next(), next()]
}

/// For an hour only what is poisoned is tried again, and then a change of another service is in at once.
fn only_the_poisoned_waits(rig: &mut OwnTableRig, cluster: &mut Cluster, other: &ServiceName) {
    let effects = go_on(rig, Duration::from_hours(1));
    // A look each half minute, and no more tries than that; a step and a reading each, of two families.
    assert!((120..2_000).contains(&effects), "{effects} effects in an hour");
    let failed = |report: &Report| matches!(report, Report::Failed { .. });
    let failures = rig.reports.iter().filter(|report| failed(report)).count();
    assert!(failures > 60, "{failures} failures in an hour");

    let begun = rig.now;
    let service = cluster.services.get_mut(other).unwrap();
    service.ports[0].port += 1;
    let changed = Object::Service(Box::new(service.clone()));
    rig.reports.clear();
    rig.hear(Heard::Objects(Change::Apply(changed)));
    while !rig.reports.iter().any(|report| applied(report, other)) {
        rig.work();
        rig.now += Duration::from_millis(100);
        assert!(rig.now < begun + Duration::from_secs(2), "a change waits");
    }

    rig.tables.poisoned.clear();
    settled(rig, cluster);
}

#[test]
fn a_kernel_that_refuses_everything_is_asked_again_with_waits() {
    let cluster = Cluster::new(1);
    let mut tables = FakeTables::default();
    tables.refuse_next = u32::MAX;
    let mut rig = OwnTableRig::new(tables, &cluster);
    let effects = go_on(&mut rig, Duration::from_mins(10));
    // Eight tries at once, then waits that grow to half a minute; each try is a reading and a step of two families.
    assert!((40..200).contains(&effects), "{effects} effects");
    for family in Family::ALL {
        let status = rig.engine.status(family).unwrap();
        assert!(status.failures_in_a_row >= 8, "{status:?}");
        assert!(status.last_full_sync.is_none(), "{status:?}");
    }
    rig.tables.refuse_next = 0;
    settled(&mut rig, &cluster);
    let recovered = |report: &Report| matches!(report, Report::Recovered { after, .. } if *after >= 8);
    assert_eq!(rig.reports.iter().filter(|report| recovered(report)).count(), 2);
}

#[test]
fn a_refused_service_waits_by_itself() {
    let mut cluster = some_services();
    let [refused, other] = two_services(&cluster);
    let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
    rig.tables.poisoned.extend(elements_of(&cluster, &refused));
    only_the_poisoned_waits(&mut rig, &mut cluster, &other);
}

/// Of a step that is longer than the kernel takes at once, sets and chains are there when the rest is refused. They are
/// ours, whoever looks, and not in the way.
#[test]
fn what_a_refused_step_has_left_is_not_taken_for_damage() {
    let mut cluster = some_services();
    let [refused, other] = two_services(&cluster);
    // A shape that no other service has.
    cluster.services.get_mut(&refused).unwrap().affinity = Some(Affinity { timeout_seconds: 7 });
    let is_unexpected = |report: &Report| matches!(report, Report::Damaged { .. });
    for poisoned in elements_of(&cluster, &refused) {
        let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
        rig.tables.room = Some(4);
        rig.tables.poisoned.insert(poisoned.clone());
        go_on(&mut rig, Duration::from_mins(10));
        let failed = |report: &Report| matches!(report, Report::Failed { .. });
        assert!(rig.reports.iter().any(failed), "{poisoned:?} was not refused");
        let damaged: Vec<_> = rig
            .reports
            .iter()
            .filter(|report| is_unexpected(report))
            .collect();
        assert!(damaged.is_empty(), "{poisoned:?}: {damaged:?}");
        rig.tables.poisoned.clear();
        settled(&mut rig, &cluster);
    }
    let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
    rig.tables.room = Some(4);
    rig.tables.poisoned.extend(elements_of(&cluster, &refused));
    only_the_poisoned_waits(&mut rig, &mut cluster, &other);
}

#[test]
fn a_refused_node_part_waits_by_itself() {
    let mut cluster = some_services();
    let [_, other] = two_services(&cluster);
    let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
    settled(&mut rig, &cluster);
    let of_the_node = |key: &ElementKey| key.set.as_str() == names::NODEPORT_IPS;
    let table = rig.tables.table_mut(Family::V4).as_mut().unwrap();
    let (lost, left) = std::mem::take(&mut table.elements)
        .into_iter()
        .partition(|(key, _)| of_the_node(key));
    table.elements = left;
    rig.tables.poisoned = std::collections::BTreeMap::into_keys(lost).collect();
    assert!(!rig.tables.poisoned.is_empty());
    // The hourly reading finds it.
    rig.now += Duration::from_mins(61);
    only_the_poisoned_waits(&mut rig, &mut cluster, &other);
}

/// What a service gives up stays for the one that takes it over, which may be refused, and then not want it any more.
#[test]
fn what_was_kept_for_another_goes_when_the_other_does_not_take_it() {
    let mut cluster = some_services();
    let [giver, taker] = two_services(&cluster);
    let kept: IpAddr = "203.0.113.77".parse().unwrap();
    let unwanted: IpAddr = "203.0.113.78".parse().unwrap();
    cluster.services.get_mut(&giver).unwrap().external_ips = [kept].into();
    let port = cluster.services[&giver].ports[0].clone();
    let ports = &mut cluster.services.get_mut(&taker).unwrap().ports;
    (ports[0].port, ports[0].protocol) = (port.port, port.protocol);
    let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
    settled(&mut rig, &cluster);
    let lies_there = |rig: &OwnTableRig, ip| {
        let table = rig.tables.table(Family::V4).unwrap();
        table
            .elements
            .keys()
            .any(|key| key.key.contains(&Value::Address(ip)))
    };
    assert!(lies_there(&rig, kept));

    say(&mut rig, &mut cluster, &taker, &[kept, unwanted]);
    say(&mut rig, &mut cluster, &giver, &[]);
    let of_refused = |key: &ElementKey| key.key.contains(&Value::Address(unwanted));
    rig.tables.poisoned = elements_of(&cluster, &taker)
        .into_iter()
        .filter(of_refused)
        .collect();
    go_on(&mut rig, Duration::from_secs(5));
    assert!(lies_there(&rig, kept), "it is kept");
    assert!(!lies_there(&rig, unwanted), "nothing was refused");

    say(&mut rig, &mut cluster, &taker, &[]);
    settled(&mut rig, &cluster);
}

fn say(rig: &mut OwnTableRig, cluster: &mut Cluster, name: &ServiceName, external_ips: &[IpAddr]) {
    let service = cluster.services.get_mut(name).unwrap();
    service.external_ips = external_ips.into();
    let changed = Object::Service(Box::new(service.clone()));
    rig.hear(Heard::Objects(Change::Apply(changed)));
}
