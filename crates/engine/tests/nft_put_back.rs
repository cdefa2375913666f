//! What many services lost at once in nftables mode is put back before anything is compared anew, and what was believed
//! wrongly is found out all the same.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::{Event, Foreign, Report};
use kernel::fake::{FakeTable, FakeTables};
use model::object::Object;
use model::snapshot::Change;
use model::{Family, ServiceName};
use nftables::ast::{ElementKey, Name, Value};
use nftables::build;
use nftables::names::{self, Kind};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use support::cluster::{Cluster, Heard};
use support::own_table::{OwnTableRig, desired};

const MANY: usize = 60;

fn many_services() -> (Cluster, OwnTableRig) {
    let mut cluster = Cluster::new(9);
    while cluster.services.len() < MANY {
        cluster.add_service();
        cluster.add_slice();
    }
    let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
    rig.settle().unwrap();
    rig.compare(&cluster).unwrap();
    rig.reports.clear();
    (cluster, rig)
}

fn flush(table: &mut Option<FakeTable>, set: &Name) {
    let elements = &mut table.as_mut().unwrap().elements;
    elements.retain(|key, _| key.set != *set);
}

/// Does what is due, and no more; says how many effects it took until all is as it is wanted.
fn effects_until_whole(rig: &mut OwnTableRig, cluster: &Cluster) -> usize {
    let mut effects = 0;
    while let Err(lack) = rig.compare(cluster) {
        assert!(effects < 200, "{lack}");
        if rig.effects(1) == 0 {
            rig.now += Duration::from_millis(10);
        } else {
            effects += 1;
        }
    }
    effects
}

/// The services that have what they want.
fn told(rig: &OwnTableRig) -> BTreeSet<ServiceName> {
    let of_report = |report: &Report| match report {
        Report::Applied { services, .. } | Report::AsItIs { services, .. } => services.clone(),
        _ => Vec::new(),
    };
    rig.reports.iter().flat_map(of_report).collect()
}

fn damage(rig: &OwnTableRig) -> usize {
    let is_damage = |report: &&Report| matches!(report, Report::Damaged { .. });
    rig.reports.iter().filter(is_damage).count()
}

/// Then everything may be compared, and nothing more is found.
fn all_is_settled(rig: &mut OwnTableRig, cluster: &Cluster) {
    let before = rig.tables.committed.len();
    rig.settle().unwrap();
    rig.compare(cluster).unwrap();
    assert_eq!(rig.tables.committed[before..], []);
    for family in Family::ALL {
        let status = rig.engine.status(family).unwrap();
        assert!(
            status.pending_since.is_none() && status.failures_in_a_row == 0,
            "{status:?}"
        );
    }
}

#[test]
fn a_flushed_set_is_put_back_step_by_step_and_at_once() {
    for set in [
        Kind::Service.slot(0),
        Name::new(names::CLUSTER_IPS),
        Kind::NodePort.slot(0),
    ] {
        let (cluster, mut rig) = many_services();
        let begun = rig.now;
        rig.stranger(Family::V4, |table| flush(table, &set));
        let effects = effects_until_whole(&mut rig, &cluster);
        assert!(effects <= MANY / 3 + 2, "{set}: {effects} effects");
        assert!(
            rig.now < begun + Duration::from_millis(500),
            "{set}: {:?}",
            rig.now.saturating_sub(begun)
        );
        assert!(damage(&rig) <= 1, "{set}");
        all_is_settled(&mut rig, &cluster);
        let told = told(&rig);
        assert!(!told.is_empty(), "{set}: those that were put back are told of");
    }
}

#[test]
fn a_table_that_went_is_filled_with_what_was_held_and_names_services_as_before() {
    let (cluster, mut rig) = many_services();
    let comments = |rig: &OwnTableRig| {
        let elements = &rig.tables.table(Family::V4).unwrap().elements;
        let commented = elements
            .iter()
            .filter_map(|(key, element)| Some((key.clone(), element.comment.clone()?)));
        commented.collect::<Vec<_>>()
    };
    let before = comments(&rig);
    assert!(before.len() > MANY / 2, "{before:?}");
    let begun = rig.now;
    rig.stranger(Family::V4, |table| *table = None);
    // The reading, the table, and all services of the family.
    let effects = effects_until_whole(&mut rig, &cluster);
    assert!(effects <= MANY / 3 + 4, "{effects} effects");
    assert_eq!(comments(&rig), before);
    assert!(
        rig.now < begun + Duration::from_millis(500),
        "{:?}",
        rig.now.saturating_sub(begun)
    );
    all_is_settled(&mut rig, &cluster);
}

/// Notifications were lost: everything is read.
#[test]
fn what_a_reading_lacks_is_put_back_and_what_is_too_much_goes() {
    let (cluster, mut rig) = many_services();
    let table = rig.tables.table_mut(Family::V4);
    flush(table, &Kind::Service.slot(0));
    let elements = &mut table.as_mut().unwrap().elements;
    let (key, element) = elements
        .iter()
        .find(|(key, _)| key.set == Kind::Service.slot(1))
        .unwrap();
    let stray = ElementKey {
        set: Kind::Service.slot(7),
        key: key.key.clone(),
    };
    let element = element.clone();
    elements.insert(stray.clone(), element);
    let everything = Event::NftDisturbed(Family::V4, Foreign::everything(None));
    rig.engine.handle(everything, rig.now);
    rig.settle().unwrap();
    rig.compare(&cluster).unwrap();
    let table = rig.tables.table(Family::V4).unwrap();
    assert!(!table.elements.contains_key(&stray));
    all_is_settled(&mut rig, &cluster);
}

/// A service changes while all are put back as they were: it is told of when what it wants now is in.
#[test]
fn a_change_meanwhile_is_in_soon_after_and_told_of_then() {
    let (mut cluster, mut rig) = many_services();
    rig.stranger(Family::V4, |table| flush(table, &Kind::Service.slot(0)));
    rig.effects(1);
    let name = desired(&cluster, Family::V4).services.into_keys().last().unwrap();
    let service = cluster.services.get_mut(&name).unwrap();
    service.ports[0].port += 1;
    let changed = Object::Service(Box::new(service.clone()));
    rig.hear(Heard::Objects(Change::Apply(changed)));
    let wanted = build::frontends(&desired(&cluster, Family::V4).services[&name]);
    let is_in = |rig: &OwnTableRig| {
        let table = rig.tables.table(Family::V4).unwrap();
        let has = |key: &Arc<[Value]>| table.elements.keys().any(|there| there.key == *key);
        wanted.iter().all(|(_, key)| has(key))
    };
    while !told(&rig).contains(&name) {
        assert!(rig.now < Duration::from_mins(1), "never told of");
        if rig.effects(1) == 0 {
            rig.now += Duration::from_millis(10);
        }
    }
    assert!(is_in(&rig), "told of before it is in");
    rig.settle().unwrap();
    rig.compare(&cluster).unwrap();
    all_is_settled(&mut rig, &cluster);
}

/// Whatever is done meanwhile, and whichever step is refused, what is held is not relied on for ever.
#[test]
fn a_refused_step_has_everything_read() {
    for undone in 0..12 {
        let (cluster, mut rig) = many_services();
        rig.stranger(Family::V4, |table| flush(table, &Kind::Service.slot(0)));
        rig.effects(undone);
        rig.tables.refuse_next = 1;
        rig.effects(3);
        // Somebody flushes more of it, and nobody is told.
        flush(rig.tables.table_mut(Family::V4), &Kind::Service.slot(1));
        let everything = Event::NftDisturbed(Family::V4, Foreign::everything(None));
        rig.engine.handle(everything, rig.now);
        rig.settle().unwrap();
        rig.compare(&cluster)
            .unwrap_or_else(|lack| panic!("refused after {undone} effects: {lack}"));
        rig.tables.refuse_next = 0;
        all_is_settled(&mut rig, &cluster);
    }
}

#[test]
fn a_table_that_goes_again_in_the_middle_is_filled_again() {
    for between in 0..12 {
        let (cluster, mut rig) = many_services();
        rig.stranger(Family::V4, |table| *table = None);
        rig.effects(between);
        rig.stranger(Family::V4, |table| *table = None);
        rig.settle().unwrap();
        rig.compare(&cluster)
            .unwrap_or_else(|lack| panic!("gone again after {between} effects: {lack}"));
        all_is_settled(&mut rig, &cluster);
    }
}
