//! The loop's own promises: when it begins, how it paces itself, what goes first, and what it does with what is there.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::fault::Seeded;
use engine::{Backend, Event, Report};
use iptables::ast::{Ruleset, TableName};
use iptables::plan::Step;
use kernel::fake::{FakeKernel, Fault};
use kernel::{FailureKind, RuleKernel};
use model::object::{Kind, Object, ObjectRef};
use model::snapshot::Change;
use model::{Family, ServiceName};
use scenario::{GoldenCase, golden_cases};
use std::collections::BTreeSet;
use std::time::Duration;
use support::cluster::{Cluster, Heard};
use support::rig::Rig;

fn upstreams(case: &GoldenCase, family: Family) -> Ruleset {
    iptables::parse::save(case.saved.get(family), family).ruleset
}

fn golden(case: &GoldenCase) -> Cluster {
    Cluster::of(&case.snapshot, &case.facts, &case.settings)
}

#[test]
fn upstreams_rules_are_adopted_without_a_write() {
    for case in golden_cases() {
        let mut kernel = FakeKernel::new(kernel::Backend::NfTables);
        for family in Family::ALL {
            kernel.load(family, upstreams(&case, family));
        }
        let generation = kernel.generation();
        let mut rig = Rig::on_host(kernel, &golden(&case));
        rig.settle().unwrap();
        rig.pass(Duration::from_secs(4000));
        assert_eq!(rig.steps(), [], "{}", case.name);
        assert_eq!(rig.kernel.generation(), generation, "{}", case.name);
    }
}

#[test]
fn a_first_load_leaves_what_upstream_leaves() {
    for case in golden_cases() {
        for backend in [kernel::Backend::NfTables, kernel::Backend::Legacy] {
            let mut rig = Rig::on_host(FakeKernel::new(backend), &golden(&case));
            rig.settle().unwrap();
            for family in Family::ALL {
                let want = upstreams(&case, family);
                let found = iptables::compare::differences(&want, rig.kernel.ruleset(family));
                let found: Vec<String> = found.iter().map(|d| d.text(family).to_string()).collect();
                assert!(found.is_empty(), "{} {family} {backend:?}: {found:#?}", case.name);
            }
        }
    }
}

/// A cluster of this many services with an endpoint each, `default/kubernetes` and a DNS service among them.
fn crowd(services: usize) -> Cluster {
    let mut cluster = Cluster::new(3);
    while cluster.services.len() < services {
        cluster.add_service();
        cluster.add_slice();
    }
    cluster
}

fn loaded(backend: kernel::Backend, cluster: &Cluster) -> Rig {
    let mut rig = Rig::on_host(FakeKernel::new(backend), cluster);
    rig.settle().unwrap();
    rig.compare_both(cluster).unwrap();
    rig
}

fn steps_of(rig: &Rig, family: Family) -> Vec<&Step> {
    rig.steps()
        .into_iter()
        .filter(|(f, _)| *f == family)
        .map(|(_, step)| step)
        .collect()
}

#[test]
fn a_first_load_on_nf_tables_goes_in_steps_of_two_hundred_services() {
    let cluster = crowd(350);
    let rig = loaded(kernel::Backend::NfTables, &cluster);
    let steps = steps_of(&rig, Family::V4);
    assert!(steps.len() >= 2, "{} steps", steps.len());
    assert!(steps[0].services.len() > 180, "{}", steps[0].services.len());
    for step in steps {
        assert!(
            step.services.len() <= 200,
            "{} services in a step",
            step.services.len()
        );
    }
}

#[test]
fn a_first_load_on_legacy_is_one_restore() {
    let cluster = crowd(350);
    let rig = loaded(kernel::Backend::Legacy, &cluster);
    assert_eq!(steps_of(&rig, Family::V4).len(), 1);
}

#[test]
fn the_first_step_brings_the_jumps_the_api_server_and_dns() {
    let cluster = crowd(350);
    let rig = loaded(kernel::Backend::NfTables, &cluster);
    let first = steps_of(&rig, Family::V4)[0];
    for name in [
        ServiceName::new("default", "kubernetes"),
        ServiceName::new("kube-system", "kube-dns"),
    ] {
        let wants_v4 = cluster.services[&name].cluster_ips.v4.is_some();
        assert_eq!(first.services.contains(&name), wants_v4, "{name}");
    }
    assert!(
        first.write[&TableName::Nat]
            .insert
            .iter()
            .any(|(chain, _)| chain.as_str() == "PREROUTING")
    );
}

#[test]
fn each_step_ends_with_the_dispatch_of_its_own_services() {
    let cluster = crowd(350);
    let rig = loaded(kernel::Backend::NfTables, &cluster);
    for step in steps_of(&rig, Family::V4) {
        let nat = &step.write[&TableName::Nat];
        let dispatched = nat
            .insert
            .iter()
            .filter(|(chain, _)| chain.as_str().starts_with("KUBE-"));
        for (_, rule) in dispatched {
            let comment = rule.comment().unwrap();
            let own = step
                .services
                .iter()
                .any(|name| comment.starts_with(&name.to_string()));
            assert!(own, "{comment} in the step of {:?}", step.services);
        }
    }
}

#[test]
fn nothing_is_done_before_both_lists_have_come() {
    let cluster = crowd(5);
    let mut rig = Rig::unlisted(FakeKernel::new(kernel::Backend::NfTables), &cluster);
    rig.engine.handle(Event::Listed(Kind::Service), rig.now);
    rig.pass(Duration::from_mins(2));
    assert!(rig.kernel.journal().is_empty());
    rig.engine.handle(Event::Listed(Kind::Slice), rig.now);
    rig.settle().unwrap();
    assert!(!rig.steps().is_empty());
}

/// Changes come every 100 ms for 20 s; `minSyncPeriod` is 1 s.
#[test]
fn runs_are_a_min_sync_period_apart() {
    let mut cluster = crowd(20);
    let mut rig = loaded(kernel::Backend::NfTables, &cluster);
    rig.pass(Duration::from_secs(5));
    let mut times = Vec::new();
    for _ in 0..200 {
        for heard in cluster.change() {
            rig.hear(heard);
        }
        rig.kernel.clear_journal();
        rig.pass(Duration::from_millis(100));
        if !steps_of(&rig, Family::V4).is_empty() {
            times.push(rig.now);
        }
    }
    assert!(times.len() >= 10, "only {} runs in 20 s", times.len());
    // A run is seen up to 100 ms after it began, and may take a few steps of 20 ms.
    for pair in times
        .windows(2)
        .filter(|pair| pair[1].saturating_sub(pair[0]) > Duration::from_millis(250))
    {
        assert!(
            pair[1].saturating_sub(pair[0]) >= Duration::from_millis(800),
            "runs at {pair:?}"
        );
    }
}

/// The slices of a Service may come just before it; its rules do not wait for a second because of them.
#[test]
fn a_run_that_writes_nothing_delays_no_other() {
    let mut cluster = crowd(20);
    let name = cluster
        .services
        .values()
        .find(|service| service.cluster_ips.v4.is_some())
        .unwrap()
        .name
        .clone();
    let service = cluster.services.remove(&name).unwrap();
    let mut rig = loaded(kernel::Backend::NfTables, &cluster);
    rig.pass(Duration::from_secs(5));
    rig.kernel.clear_journal();
    let slices: Vec<Object> = cluster
        .objects()
        .into_iter()
        .filter(|object| object.kind() == Kind::Slice)
        .collect();
    for slice in slices {
        rig.hear(Heard::Objects(Change::Apply(slice)));
        rig.pass(Duration::from_millis(1));
    }
    assert!(steps_of(&rig, Family::V4).is_empty(), "nothing is to be written");
    let service = Object::Service(Box::new(service));
    rig.hear(Heard::Objects(Change::Apply(service)));
    rig.pass(Duration::from_millis(1));
    let step = steps_of(&rig, Family::V4).remove(0);
    assert!(step.services.contains(&name));
}

#[test]
fn a_change_during_a_first_load_does_not_wait_for_its_end() {
    let cluster = crowd(100);
    let mut rig = Rig::new(&cluster, Backend::NfTables, Seeded::default());
    rig.effect_takes = Duration::from_millis(400);
    let last = cluster
        .services
        .values()
        .rev()
        .find(|s| s.cluster_ips.v4.is_some())
        .unwrap()
        .clone();
    let mut changed = last.clone();
    changed.affinity = Some(model::Affinity { timeout_seconds: 77 });
    // It comes when the readings are done and the first step is on its way.
    rig.meanwhile.extend([
        Heard::Facts(cluster.facts.clone()),
        Heard::Facts(cluster.facts.clone()),
    ]);
    rig.meanwhile
        .push_back(Heard::Objects(Change::Apply(Object::Service(Box::new(changed)))));
    rig.work();
    let steps = steps_of(&rig, Family::V4);
    let at = steps
        .iter()
        .position(|step| step.services.contains(&last.name))
        .unwrap();
    assert!(
        at < 6 && at + 10 < steps.len(),
        "it came with step {at} of {}",
        steps.len()
    );
}

/// The waits between six tries, the first five of which fail so.
fn waits_after(kind: FailureKind) -> Vec<Duration> {
    let cluster = crowd(5);
    let mut rig = Rig::on_host(FakeKernel::new(kernel::Backend::NfTables), &cluster);
    rig.kernel.inject(Fault::FailUntil {
        family: Family::V4,
        nth: 6,
        kind,
    });
    let mut tried = Vec::new();
    while rig.engine.status(Family::V4).unwrap().pending_since.is_some() || tried.is_empty() {
        let before = steps_of(&rig, Family::V4).len();
        rig.work();
        if steps_of(&rig, Family::V4).len() > before {
            tried.push(rig.now);
        }
        let wake = Family::ALL
            .iter()
            .filter_map(|f| rig.engine.wake_at(*f))
            .min()
            .unwrap();
        rig.now = rig.now.max(wake);
    }
    let waits: Vec<Duration> = tried
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    assert_eq!(waits.len(), 5, "{waits:?}");
    assert_eq!(rig.engine.status(Family::V4).unwrap().failures_in_a_row, 0);
    waits
}

#[test]
fn a_failed_step_is_tried_again_with_growing_waits() {
    let waits = waits_after(FailureKind::TimedOut);
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(
        waits[4] >= Duration::from_secs(10) && waits[4] <= Duration::from_secs(31),
        "{waits:?}"
    );
}

#[test]
fn a_lock_that_another_holds_is_asked_for_again_without_growing_waits() {
    let waits = waits_after(FailureKind::Busy);
    let about_a_second = Duration::from_millis(500)..=Duration::from_secs(2);
    assert!(
        waits.iter().all(|wait| about_a_second.contains(wait)),
        "{waits:?}"
    );
}

/// Without root, a restore is limited by a socket's buffer (`FailureKind::TooLarge`).
#[test]
fn a_step_that_is_too_large_is_halved_for_good() {
    let cluster = crowd(350);
    let mut rig = Rig::on_host(FakeKernel::new(kernel::Backend::NfTables), &cluster);
    rig.kernel.inject(Fault::FailUntil {
        family: Family::V4,
        nth: 3,
        kind: FailureKind::TooLarge,
    });
    rig.settle().unwrap();
    rig.compare_both(&cluster).unwrap();
    let sizes: Vec<usize> = steps_of(&rig, Family::V4)
        .iter()
        .map(|step| step.services.len())
        .collect();
    assert!(sizes[0] > 180, "{sizes:?}");
    // Halved twice from 200, and never more again.
    assert!(sizes.len() > 4, "{sizes:?}");
    assert!(sizes[2..].iter().all(|size| *size <= 50), "{sizes:?}");
}

#[test]
fn a_quiet_host_is_looked_at_by_its_generation_only() {
    let cluster = crowd(5);
    let mut rig = loaded(kernel::Backend::NfTables, &cluster);
    rig.pass(Duration::from_secs(61));
    rig.kernel.clear_journal();
    rig.pass(Duration::from_mins(10));
    assert!(rig.kernel.journal().is_empty(), "{:?}", rig.kernel.journal());
}

#[test]
fn a_cluster_of_one_family_leaves_the_other_alone() {
    let cluster = crowd(5);
    let mut rig = Rig::single(FakeKernel::new(kernel::Backend::NfTables), &cluster, Family::V6);
    rig.pass(Duration::from_mins(1));
    assert!(steps_of(&rig, Family::V4).is_empty());
    rig.compare(&cluster, Family::V6).unwrap();
}

#[test]
fn a_failure_after_which_nothing_is_left_to_write_leaves_no_trace() {
    let mut cluster = crowd(5);
    let mut rig = loaded(kernel::Backend::NfTables, &cluster);
    rig.kernel.inject(Fault::FailUntil {
        family: Family::V4,
        nth: 3,
        kind: FailureKind::TimedOut,
    });
    let heard = cluster.add_service();
    let name = cluster
        .services
        .keys()
        .find(|name| heard_of(&heard, name))
        .unwrap()
        .clone();
    for heard in heard {
        rig.hear(heard);
    }
    rig.pass(Duration::from_millis(1500));
    let failures = |rig: &Rig| rig.engine.status(Family::V4).unwrap().failures_in_a_row;
    assert!(failures(&rig) > 0, "nothing failed");
    let gone = Change::Delete(ObjectRef::Service(name));
    rig.hear(Heard::Objects(gone));
    rig.settle().unwrap();
    assert_eq!(failures(&rig), 0);
    let recovered = |report: &Report| {
        matches!(
            report,
            Report::Recovered {
                family: Family::V4,
                ..
            }
        )
    };
    assert!(rig.reports.iter().any(recovered), "{:?}", rig.last_reports());
}

fn heard_of(heard: &[Heard], name: &ServiceName) -> bool {
    heard.iter().any(|heard| {
        matches!(heard, Heard::Objects(Change::Apply(Object::Service(service))) if service.name == *name)
    })
}

/// Not only those whose rules are others now: endpoints may come and go that no rule leads to, and have flows.
#[test]
fn each_service_that_changed_is_told_once_the_kernel_has_what_it_wants() {
    let mut cluster = crowd(30);
    let mut rig = loaded(kernel::Backend::NfTables, &cluster);
    let (mut written, mut as_it_is) = (0, 0);
    for round in 0..400 {
        let before = rig.reports.len();
        let mut snapshot = cluster.snapshot();
        let changes = cluster.change();
        let mut wanted = BTreeSet::new();
        for change in &changes {
            if let Heard::Objects(change) = change {
                wanted.extend(snapshot.apply(change.clone()).services);
            }
        }
        rig.watch_nothing();
        for change in changes {
            rig.hear(change);
        }
        rig.settle().unwrap();
        for family in Family::ALL {
            let mut told = Vec::new();
            for report in &rig.reports[before..] {
                match report {
                    Report::Applied {
                        family: of, services, ..
                    } if *of == family => {
                        written += services.len();
                        told.extend(services);
                    }
                    Report::AsItIs { family: of, services } if *of == family => {
                        as_it_is += services.len();
                        told.extend(services);
                    }
                    _ => {}
                }
            }
            for name in &wanted {
                assert!(
                    told.contains(&name),
                    "round {round}: {family}: {name} is not told of"
                );
            }
        }
    }
    assert!(
        written > 100 && as_it_is > 100,
        "{written} written, {as_it_is} as they were"
    );
}
