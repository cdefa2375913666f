//! Somebody else's edits: what is read for them, what is repaired, and how often.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::disturbance::Edit;
use engine::fault::Seeded;
use engine::{Backend, Disturbance, Event, Report};
use iptables::ast::{ChainName, TableName};
use model::Family;
use std::time::Duration;
use support::cluster::Cluster;
use support::rig::Rig;

/// `syncPeriod` of the rig.
const SYNC: Duration = Duration::from_secs(30);

fn loaded(backend: Backend) -> (Rig, Cluster) {
    let mut cluster = Cluster::new(3);
    while cluster.services.len() < 6 {
        cluster.add_service();
        cluster.add_slice();
    }
    let mut rig = Rig::new(&cluster, backend, Seeded::default());
    rig.settle().unwrap();
    rig.compare_both(&cluster).unwrap();
    rig.pass(Duration::from_secs(5));
    rig.reports.clear();
    rig.kernel.clear_journal();
    (rig, cluster)
}

/// Takes the first rule out of the first service chain that has one, as a stranger would.
fn lose_a_rule(rig: &mut Rig) -> ChainName {
    let mut ruleset = rig.kernel.ruleset(Family::V4).clone();
    let nat = ruleset.tables.get_mut(&TableName::Nat).unwrap();
    let (name, chain) = nat
        .chains
        .iter_mut()
        .find(|(name, chain)| name.as_str().starts_with("KUBE-SVC-") && !chain.rules.is_empty())
        .unwrap();
    chain.rules.remove(0);
    let name = name.clone();
    rig.kernel.load(Family::V4, ruleset);
    name
}

fn tell(rig: &mut Rig, chain: &ChainName) {
    let mut disturbance = Disturbance {
        by: Some("vandal (pid 7)".into()),
        ..Disturbance::default()
    };
    disturbance.note(TableName::Nat, chain, Edit::Deleted);
    rig.engine
        .handle(Event::Disturbed(Family::V4, disturbance), rig.now);
}

/// What was said of damage: what, and by whom.
fn damage(rig: &Rig) -> Vec<(String, Option<String>)> {
    let told = rig.reports.iter().filter_map(|report| match report {
        Report::Damaged { what, by, .. } => Some((what.to_string(), by.as_deref().map(str::to_owned))),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_rule_lost_in_a_service_chain_is_repaired_within_a_second_of_its_commit() {
    let (mut rig, cluster) = loaded(Backend::NfTables);
    let chain = lose_a_rule(&mut rig);
    tell(&mut rig, &chain);
    rig.pass(Duration::from_secs(1));
    rig.compare_both(&cluster).unwrap();
    let told = damage(&rig);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].0.contains(chain.as_str()) && told[0].0.contains("changed"),
        "{told:?}"
    );
    assert_eq!(told[0].1.as_deref(), Some("vandal (pid 7)"));
}

#[test]
fn only_the_chain_that_was_touched_is_written() {
    let (mut rig, _) = loaded(Backend::NfTables);
    let chain = lose_a_rule(&mut rig);
    tell(&mut rig, &chain);
    rig.pass(Duration::from_secs(1));
    let steps = rig.steps();
    assert_eq!(steps.len(), 1);
    let written: Vec<&ChainName> = steps[0]
        .1
        .write
        .values()
        .flat_map(|write| write.chains.keys())
        .collect();
    assert_eq!(written, [&chain]);
}

#[test]
fn a_commit_that_did_no_harm_is_looked_at_and_nothing_is_written() {
    let (mut rig, _) = loaded(Backend::NfTables);
    let nat = &rig.kernel.ruleset(Family::V4).tables[&TableName::Nat];
    let chain = nat
        .chains
        .keys()
        .find(|name| name.as_str().starts_with("KUBE-SVC-"))
        .unwrap()
        .clone();
    tell(&mut rig, &chain);
    rig.pass(Duration::from_secs(1));
    assert_eq!((rig.steps(), damage(&rig)), (vec![], vec![]));
    assert!(!rig.kernel.journal().is_empty(), "nothing was read");
}

#[test]
fn anything_may_have_happened_means_that_all_is_read_and_named() {
    let (mut rig, cluster) = loaded(Backend::NfTables);
    let chain = lose_a_rule(&mut rig);
    let everything = Event::Disturbed(Family::V4, Disturbance::everything(None));
    rig.engine.handle(everything, rig.now);
    rig.pass(Duration::from_secs(1));
    rig.compare_both(&cluster).unwrap();
    let told = damage(&rig);
    assert!(told.len() == 1 && told[0].0.contains(chain.as_str()), "{told:?}");
}

#[test]
fn legacy_which_tells_nobody_is_repaired_within_the_sync_period() {
    let (mut rig, cluster) = loaded(Backend::Legacy);
    let chain = lose_a_rule(&mut rig);
    rig.pass(SYNC + Duration::from_secs(1));
    rig.compare_both(&cluster).unwrap();
    let told = damage(&rig);
    assert!(told.len() == 1 && told[0].0.contains(chain.as_str()), "{told:?}");
}

/// As the poll of the tables' sizes tells.
fn tell_to_look(rig: &mut Rig) {
    let look = Event::Disturbed(Family::V4, Disturbance::look(None));
    rig.engine.handle(look, rig.now);
}

#[test]
fn legacy_whose_tables_have_another_size_is_repaired_within_a_second() {
    let (mut rig, cluster) = loaded(Backend::Legacy);
    let chain = lose_a_rule(&mut rig);
    tell_to_look(&mut rig);
    rig.pass(Duration::from_secs(1));
    rig.compare_both(&cluster).unwrap();
    let told = damage(&rig);
    assert!(told.len() == 1 && told[0].0.contains(chain.as_str()), "{told:?}");
    let steps = rig.steps();
    let written: Vec<&ChainName> = steps
        .iter()
        .flat_map(|(_, step)| step.write.values().flat_map(|write| write.chains.keys()))
        .collect();
    assert_eq!(written, [&chain]);
}

#[test]
fn legacy_whose_tables_others_made_larger_is_looked_at_and_nothing_is_written() {
    let (mut rig, _) = loaded(Backend::Legacy);
    tell_to_look(&mut rig);
    rig.pass(Duration::from_secs(1));
    assert_eq!((rig.steps(), damage(&rig)), (vec![], vec![]));
    assert!(!rig.kernel.journal().is_empty(), "nothing was read");
}

#[test]
fn others_who_write_all_the_time_cost_a_fifth_of_the_time_in_looks() {
    let (mut rig, _) = loaded(Backend::Legacy);
    rig.effect_takes = Duration::from_secs(2);
    let begun = rig.now;
    while rig.now < begun + Duration::from_secs(100) {
        tell_to_look(&mut rig);
        rig.pass(Duration::from_millis(500));
    }
    // Of each ten seconds two, and the looks of each half minute.
    let scopes_of_a_look = 3;
    let looks = rig.kernel.journal().len() / scopes_of_a_look;
    assert!((5..=18).contains(&looks), "{looks} looks in 100 s");
}

#[test]
fn a_rival_gets_a_bounded_number_of_repairs_a_minute() {
    for backend in [Backend::NfTables, Backend::Legacy] {
        let (mut rig, cluster) = loaded(backend);
        for _ in 0..600 {
            if rig.compare(&cluster, Family::V4).is_ok() {
                let chain = lose_a_rule(&mut rig);
                match backend {
                    Backend::NfTables => tell(&mut rig, &chain),
                    Backend::Legacy | Backend::OwnTable => tell_to_look(&mut rig),
                }
            }
            rig.pass(Duration::from_millis(100));
        }
        // Five at once, then after 1, 2, 4, 8, 16 and 30 seconds; on legacy a look of its own may find it before.
        let repairs = damage(&rig).len();
        assert!(
            (8..=12).contains(&repairs),
            "{backend:?}: {repairs} repairs in a minute"
        );
    }
}
