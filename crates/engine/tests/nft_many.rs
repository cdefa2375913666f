//! A start of nftables mode where many services are as they are wanted.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::Report;
use kernel::fake::FakeTables;
use model::Family;
use nftables::build;
use support::cluster::Cluster;
use support::own_table::{OwnTableRig, desired};

/// More services than are compared in one go, many of which share endpoints; all of them in.
fn many_services() -> (Cluster, OwnTableRig) {
    let mut cluster = Cluster::new(3);
    while cluster.services.len() < 700 {
        cluster.add_service();
        cluster.add_slice();
    }
    let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
    rig.settle().unwrap();
    rig.compare(&cluster).unwrap();
    (cluster, rig)
}

#[test]
fn nothing_is_written_for_what_services_share() {
    let (cluster, rig) = many_services();
    let before = rig.tables.committed.len();
    let mut rig = rig.restart(&cluster);
    rig.settle().unwrap();
    rig.compare(&cluster).unwrap();
    assert_eq!(rig.tables.committed[before..], []);
}

#[test]
fn in_sync_is_said_when_the_last_one_is() {
    let (cluster, mut rig) = many_services();
    let mut desired = desired(&cluster, Family::V4);
    let (last, service) = desired.services.pop_last().unwrap();
    let slots = build::place(&build::ServiceSlots::new(), &service);
    let gone = build::service(&service, &slots);
    let table = rig.tables.table_mut(Family::V4).as_mut().unwrap();
    table.elements.retain(|key, _| !gone.contains_key(key));

    let mut rig = rig.restart(&cluster);
    rig.settle().unwrap();
    rig.compare(&cluster).unwrap();
    let position = |is: &dyn Fn(&Report) -> bool| rig.reports.iter().position(is);
    let written =
        position(&|report| matches!(report, Report::Applied { services, .. } if services.contains(&last)));
    let in_sync = position(&|report| {
        matches!(
            report,
            Report::InSync {
                family: Family::V4,
                ..
            }
        )
    });
    assert!(written.is_some() && written < in_sync, "{written:?} {in_sync:?}");
}
