//! The properties. Each takes a seed and says what is wrong, so that a run with a seeded fault can ask for a failure.

use super::cluster::{Cluster, Coverage, Heard};
use super::rewriting::{Port, no_rewriting, port_rules};
use super::rig::Rig;
use super::rng::Rng;
use super::strangers::{name, same_but_for_stuck, stranger_rule, strangers, strangers_step};
use engine::fault::Seeded;
use engine::{Backend, Report};
use iptables::ast::{ChainName, TableName, Target};
use iptables::plan::Step;
use kernel::FailureKind;
use kernel::fake::{Edit, Fault, Journal};
use model::object::ObjectRef;
use model::snapshot::Change;
use model::{Family, ServiceName};
use std::collections::BTreeSet;
use std::time::Duration;

/// A property: what it is called, and how it is asked.
pub struct Property {
    pub name: &'static str,
    pub check: fn(u64, Seeded) -> Result<Coverage, String>,
}

/// All of them.
pub const ALL: [Property; 10] = [
    Property {
        name: "incremental_equals_from_scratch",
        check: incremental_equals_from_scratch,
    },
    Property {
        name: "a_settled_state_needs_nothing",
        check: a_settled_state_needs_nothing,
    },
    Property {
        name: "a_restart_adopts_what_is_there",
        check: a_restart_adopts_what_is_there,
    },
    Property {
        name: "failures_are_overcome",
        check: failures_are_overcome,
    },
    Property {
        name: "a_broken_family_harms_itself_only",
        check: a_broken_family_harms_itself_only,
    },
    Property {
        name: "a_strangers_rules_survive",
        check: a_strangers_rules_survive,
    },
    Property {
        name: "a_flushed_table_is_repaired_within_the_sync_period",
        check: a_flushed_table_is_repaired,
    },
    Property {
        name: "the_way_to_a_state_does_not_matter",
        check: the_way_does_not_matter,
    },
    Property {
        name: "a_change_writes_only_its_own_service",
        check: a_change_writes_only_its_own_service,
    },
    Property {
        name: "a_refused_service_holds_up_no_other",
        check: a_refused_service_holds_up_no_other,
    },
];

fn backend(rng: &mut Rng) -> Backend {
    if rng.percent(25) {
        Backend::Legacy
    } else {
        Backend::NfTables
    }
}

/// Ok when nothing was unanswered on the way, in whatever mode.
pub(super) fn unbroken(broken: &[String]) -> Result<(), String> {
    if broken.is_empty() {
        Ok(())
    } else {
        Err(broken.join("\n"))
    }
}

/// Settled, compared, and answered at every moment.
fn settled(rig: &mut Rig, cluster: &Cluster) -> Result<(), String> {
    rig.settle()?;
    unbroken(&rig.take_broken())?;
    rig.compare_both(cluster)?;
    rig.watch_only(cluster);
    Ok(())
}

/// Some changes, told at once, one by one, or while steps are on their way.
fn some_changes(rig: &mut Rig, cluster: &mut Cluster, rng: &mut Rng) {
    let meanwhile = rng.percent(30);
    for _ in 0..=rng.below(4) {
        for heard in cluster.change() {
            if let Heard::Objects(Change::Delete(ObjectRef::Service(name))) = &heard {
                // It may be there again in a moment, but not in between.
                let mut without = cluster.clone();
                without.services.remove(name);
                rig.watch_also(&without);
            }
            if meanwhile {
                rig.meanwhile.push_back(heard);
            } else {
                rig.hear(heard);
            }
        }
        rig.watch_also(cluster);
        if rng.percent(30) {
            rig.work();
        }
    }
}

fn incremental_equals_from_scratch(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..5 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
    }
    Ok(cluster.coverage)
}

fn a_settled_state_needs_nothing(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    for _ in 0..3 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        rig.settle()?;
    }
    rig.kernel.clear_journal();
    rig.pass(Duration::from_mins(121));
    if let Some((family, step)) = rig.steps().first() {
        return Err(format!("{family}: a step for nothing: {step:#?}"));
    }
    let full = rig.kernel.journal().iter().filter(|entry| {
        matches!(
            entry,
            Journal::Observe {
                scope: kernel::Scope::Everything,
                ..
            }
        )
    });
    if full.count() < 2 {
        return Err("there was no full sync in two hours".to_owned());
    }
    Ok(cluster.coverage)
}

fn a_restart_adopts_what_is_there(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    settled(&mut rig, &cluster)?;
    rig.kernel.clear_journal();
    rig = rig.restart(&cluster);
    rig.watch_only(&cluster);
    settled(&mut rig, &cluster)?;
    if let Some((family, step)) = rig.steps().first() {
        return Err(format!("{family}: a restart in sync wrote {step:#?}"));
    }
    for _ in 0..3 {
        // What happens while no proxy runs.
        for _ in 0..=rng.below(6) {
            cluster.change();
            rig.watch_also(&cluster);
        }
        let watched = rng.percent(50);
        rig = rig.restart(&cluster);
        if watched {
            some_changes(&mut rig, &mut cluster, &mut rng);
        }
        settled(&mut rig, &cluster)?;
    }
    Ok(cluster.coverage)
}

fn failures_are_overcome(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    if rng.percent(70) {
        settled(&mut rig, &cluster)?;
    }
    for _ in 0..4 {
        inject(&mut rig, &mut rng);
        some_changes(&mut rig, &mut cluster, &mut rng);
        if rng.percent(30) {
            let writes = u32::try_from(rng.below(4)).unwrap();
            rig.kernel.inject(Fault::CrashAfter { writes });
            rig.work();
            rig.kernel.inject(Fault::Restart);
        }
        if rng.percent(20) {
            rig = rig.restart(&cluster);
        }
        rig.settle()?;
        if rig
            .reports
            .iter()
            .any(|report| matches!(report, Report::Stuck { .. }))
        {
            // What was refused when it was swept is let be until everything is read again.
            rig.pass(Duration::from_mins(61));
            rig.reports.clear();
        }
        settled(&mut rig, &cluster)?;
        rig.pass(Duration::from_mins(5));
        let failures = Family::ALL.map(|family| rig.engine.status(family).unwrap().failures_in_a_row);
        if failures != [0, 0] {
            return Err(format!("traces of failures after a success: {failures:?}"));
        }
    }
    Ok(cluster.coverage)
}

fn inject(rig: &mut Rig, rng: &mut Rng) {
    let kinds = [
        FailureKind::Refused,
        FailureKind::Busy,
        FailureKind::TimedOut,
        FailureKind::Other,
        FailureKind::Garbled,
    ];
    for _ in 0..=rng.below(3) {
        let family = *rng.pick(&Family::ALL);
        let kind = *rng.pick(&kinds);
        let nth = 1 + u32::try_from(rng.below(4)).unwrap();
        rig.kernel.inject(match rng.below(4) {
            0 => Fault::FailCommit { family, nth, kind },
            1 => Fault::FailUntil { family, nth, kind },
            2 => Fault::FailObserve { family, nth, kind },
            _ => Fault::LockHeld { commits: nth },
        });
    }
}

fn a_broken_family_harms_itself_only(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    let (broken, whole) = *rng.pick(&[(Family::V6, Family::V4), (Family::V4, Family::V6)]);
    rig.kernel.inject(Fault::FailUntil {
        family: broken,
        nth: 12,
        kind: *rng.pick(&[FailureKind::ToolMissing, FailureKind::Refused]),
    });
    for _ in 0..3 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        rig.settle_within(&[whole], Duration::from_secs(30))?;
        rig.compare(&cluster, whole)?;
    }
    // Nothing more changes; what is pending is tried again until it works.
    rig.settle_within(&Family::ALL, Duration::from_hours(1))?;
    rig.compare_both(&cluster)?;
    Ok(cluster.coverage)
}

fn a_strangers_rules_survive(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    let edit = |rig: &mut Rig, at| {
        for family in Family::ALL {
            rig.kernel
                .edit(family, &Edit::Step(Box::new(strangers_step(at))))
                .unwrap();
        }
    };
    if rng.percent(50) {
        edit(&mut rig, 0);
    }
    settled(&mut rig, &cluster)?;
    edit(&mut rig, 1);
    let before = Family::ALL.map(|family| strangers(&rig, family));
    for _ in 0..3 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
        if rng.percent(30) {
            inject(&mut rig, &mut rng);
        }
        if rng.percent(30) {
            rig = rig.restart(&cluster);
        }
        rig.pass(Duration::from_secs(3700));
    }
    settled(&mut rig, &cluster)?;
    let after = Family::ALL.map(|family| strangers(&rig, family));
    if before == after {
        Ok(cluster.coverage)
    } else {
        Err(format!("strangers had {before:#?} and have {after:#?}"))
    }
}

fn a_flushed_table_is_repaired(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    some_changes(&mut rig, &mut cluster, &mut rng);
    settled(&mut rig, &cluster)?;
    for _ in 0..2 {
        rig.pass(Duration::from_secs(u64::try_from(rng.below(100)).unwrap()));
        rig.watch_nothing();
        let table = *rng.pick(&[TableName::Nat, TableName::Filter]);
        let family = *rng.pick(&Family::ALL);
        let edit = if rng.percent(50) {
            Edit::Flush(table)
        } else {
            Edit::Wipe(table)
        };
        rig.kernel.edit(family, &edit).unwrap();
        rig.pass(Duration::from_secs(31));
        rig.compare_both(&cluster)
            .map_err(|text| format!("after {edit:?}: {text}"))?;
        rig.watch_only(&cluster);
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
    }
    Ok(cluster.coverage)
}

/// Expanders: the same changes doubled, squashed, and in reverse order of services' and slices' changes.
fn the_way_does_not_matter(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let start = Cluster::new(seed);
    let mut end = start.clone();
    let mut heard: Vec<Heard> = Vec::new();
    for _ in 0..6 {
        heard.extend(end.change());
    }
    let mut rng = Rng::new(seed);
    let backend = backend(&mut rng);
    let mut ways: Vec<(&str, Vec<Heard>, bool)> = vec![
        ("one by one", heard.clone(), true),
        ("squashed", heard.clone(), false),
        (
            "doubled",
            heard
                .iter()
                .flat_map(|heard| [heard.clone(), heard.clone()])
                .collect(),
            true,
        ),
    ];
    // In another order only what objects end up as can be told, so each object's last word is told, last one first.
    let mut last: Vec<Heard> = end
        .objects()
        .into_iter()
        .map(super::cluster::apply)
        .rev()
        .collect();
    last.extend(gone(&start, &end));
    last.push(Heard::Facts(end.facts.clone()));
    ways.push(("reversed", last, false));
    for (name, changes, step_by_step) in ways {
        let mut rig = Rig::new(&start, backend, seeded);
        settled(&mut rig, &start)?;
        rig.watch_nothing();
        for heard in changes {
            rig.hear(heard);
            if step_by_step {
                rig.settle()?;
            }
        }
        rig.settle()?;
        rig.compare_both(&end).map_err(|text| format!("{name}: {text}"))?;
    }
    Ok(end.coverage)
}

fn gone(start: &Cluster, end: &Cluster) -> Vec<Heard> {
    let services = start
        .services
        .keys()
        .filter(|name| !end.services.contains_key(*name));
    let slices = start.slices.keys().filter(|name| !end.slices.contains_key(*name));
    services
        .cloned()
        .map(ObjectRef::Service)
        .chain(slices.cloned().map(ObjectRef::Slice))
        .map(|reference| Heard::Objects(Change::Delete(reference)))
        .collect()
}

/// Crossing the large-cluster threshold writes no service but the one that crossed it; other changes write no service
/// that they do not touch, and dispatch rules only one by one and only of what changed.
fn a_change_writes_only_its_own_service(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    for _ in 0..4 {
        cluster.add_service();
        cluster.add_slice();
    }
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..4 {
        rig.kernel.clear_journal();
        let before = cluster.clone();
        let ports_before = Family::ALL.map(|family| port_rules(&rig, family));
        let heard = if rng.percent(40) {
            cluster.cross_threshold()
        } else {
            cluster.change()
        };
        let touched = touched(&before, &heard);
        for heard in heard {
            rig.hear(heard);
        }
        rig.watch_also(&cluster);
        settled(&mut rig, &cluster)?;
        for (family, before) in Family::ALL.into_iter().zip(ports_before) {
            let after = port_rules(&rig, family);
            let same: BTreeSet<&Port> = after
                .keys()
                .filter(|port| before.get(*port) == after.get(*port))
                .collect();
            for (_, step) in rig.steps().iter().filter(|(of, _)| *of == family) {
                only_touched(step, touched.as_ref()).map_err(|text| format!("{family}: {text}"))?;
                no_rewriting(step, &same).map_err(|text| format!("{family}: {text}"))?;
            }
        }
    }
    Ok(cluster.coverage)
}

/// The services that a change may concern; `None` when any.
fn touched(before: &Cluster, heard: &[Heard]) -> Option<BTreeSet<ServiceName>> {
    let mut snapshot = before.snapshot();
    let mut all = BTreeSet::new();
    for heard in heard {
        match heard {
            Heard::Objects(change) => {
                let touched = snapshot.apply(change.clone());
                if !touched.nodes.is_empty() {
                    return None;
                }
                all.extend(touched.services);
            }
            Heard::Facts(_) => {}
        }
    }
    Some(all)
}

fn only_touched(step: &Step, touched: Option<&BTreeSet<ServiceName>>) -> Result<(), String> {
    let Some(touched) = touched else { return Ok(()) };
    match step.services.iter().find(|name| !touched.contains(*name)) {
        Some(name) => Err(format!("{name} was written for a change to {touched:?}")),
        None => Ok(()),
    }
}

/// A stranger's jump into a service's chain makes the kernel refuse to delete it. Others, and what the service needs
/// itself, go in all the same.
fn a_refused_service_holds_up_no_other(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    for _ in 0..3 {
        cluster.add_service();
        cluster.add_slice();
    }
    let mut rig = Rig::new(&cluster, backend(&mut rng), seeded);
    settled(&mut rig, &cluster)?;
    for family in Family::ALL {
        let chains = &rig.kernel.ruleset(family).tables[&TableName::Nat].chains;
        let own: Vec<ChainName> = chains
            .keys()
            .filter(|name| name.as_str().starts_with("KUBE-SEP-"))
            .cloned()
            .collect();
        if own.is_empty() {
            continue;
        }
        let mut step = Step::default();
        let write = step.write.entry(TableName::Nat).or_default();
        let jump = stranger_rule(Target::Jump(rng.pick(&own).clone()), "to an endpoint");
        write.chains.insert(name("STRANGER-JUMPS"), vec![jump]);
        rig.kernel.edit(family, &Edit::Step(Box::new(step))).unwrap();
    }
    for _ in 0..4 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        rig.settle_within(&Family::ALL, Duration::from_secs(25))?;
        unbroken(&rig.take_broken())?;
        rig.watch_only(&cluster);
        same_but_for_stuck(&rig, &cluster)?;
    }
    Ok(cluster.coverage)
}
