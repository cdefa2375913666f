//! One contract for the live and the fake kernel: the same verdict on every step, and the same rules afterwards.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use iptables::ast::{ChainName, Rule, Ruleset, TableName, Target};
use iptables::plan::{Step, TableWrite};
use iptables::render::{SaveText, StepText, Tool};
use kernel::nfacct::{Accounting, ensure_counters};
use kernel::{Backend, FailureKind, FakeKernel, RuleKernel, Scope};
use model::Family;
use std::collections::BTreeMap;
use support::random::{self, Random};
use support::{in_namespace, live, observed, own_run, tool};

/// Steps between two clean beginnings: enough for chains to grow tangled.
const STEPS_PER_WORLD: u64 = 40;

/// What a run has shown.
#[derive(Default)]
struct Tally {
    taken: usize,
    refused: usize,
}

/// Empties the namespace.
fn clean(backend: Backend) {
    match backend {
        Backend::NfTables => drop(tool(&["nft", "flush", "ruleset"], "")),
        Backend::Legacy => {
            for name in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
                tool(&[name], "*mangle\nCOMMIT\n*filter\nCOMMIT\n*nat\nCOMMIT\n");
            }
        }
    }
}

fn text(ruleset: &Ruleset, family: Family) -> String {
    SaveText::new(ruleset, family).to_string()
}

/// Gives one step to both and compares.
fn compare(
    context: &str,
    live: &mut dyn RuleKernel,
    fake: &mut FakeKernel,
    family: Family,
    step: &Step,
) -> bool {
    let before = observed(fake, family, &Scope::Everything).unwrap();
    let real = live.commit(family, step);
    let faked = fake.commit(family, step);
    let kind = |result: &Result<(), kernel::CommitError>| result.as_ref().err().map(|error| error.kind);
    let explain = || {
        let tool = match live.backend() {
            Backend::NfTables => Tool::NfTables,
            Backend::Legacy => Tool::Legacy,
        };
        format!(
            "{context} {family}\nstep:\n{}delete: {:?}\nretire: {:?}\nlive: {real:?}\nfake: {faked:?}\nbefore:\n{}",
            StepText { step, family, tool },
            step.delete,
            step.retire,
            text(&before, family),
        )
    };
    assert_eq!(kind(&real), kind(&faked), "verdicts differ: {}", explain());
    let explained = explain();
    let have = observed(live, family, &Scope::Everything).unwrap();
    let want = observed(fake, family, &Scope::Everything).unwrap();
    assert_eq!(
        text(&have, family),
        text(&want, family),
        "states differ (left is live): {explained}"
    );
    assert_eq!(have, want, "states print the same and differ: {explained}");
    real.is_ok()
}

/// `KPRS_CONTRACT_WORLDS` asks for so many more worlds, for a long look.
fn more_worlds() -> u64 {
    std::env::var("KPRS_CONTRACT_WORLDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn random_steps(backend: Backend, worlds: std::ops::Range<u64>) -> Tally {
    let worlds = worlds.start..worlds.end + more_worlds();
    assert_eq!(ensure_counters(), Accounting::Present);
    let mut kernel = live(backend);
    let mut tally = Tally::default();
    for world in worlds {
        clean(backend);
        let mut fake = FakeKernel::new(backend);
        let mut random = Random(world);
        for number in 0..STEPS_PER_WORLD {
            let family = if random.percent(70) {
                Family::V4
            } else {
                Family::V6
            };
            let step = random::step(&mut random, family, fake.ruleset(family));
            let context = format!("{backend} world {world} step {number}");
            if compare(&context, &mut kernel, &mut fake, family, &step) {
                tally.taken += 1;
            } else {
                tally.refused += 1;
            }
        }
    }
    println!(
        "{backend}: {} steps taken, {} refused",
        tally.taken, tally.refused
    );
    tally
}

#[test]
fn live_and_fake_nf_tables_agree_on_random_steps() {
    in_namespace("live_and_fake_nf_tables_agree_on_random_steps", || {
        let tally = random_steps(Backend::NfTables, 0..30);
        assert!(
            tally.taken >= 500 && tally.refused >= 150,
            "{} {}",
            tally.taken,
            tally.refused
        );
        assert!(tally.taken + tally.refused >= 1_000);
    });
}

#[test]
fn live_and_fake_legacy_agree_on_random_steps() {
    in_namespace("live_and_fake_legacy_agree_on_random_steps", || {
        own_run();
        let tally = random_steps(Backend::Legacy, 100..110);
        assert!(
            tally.taken >= 150 && tally.refused >= 50,
            "{} {}",
            tally.taken,
            tally.refused
        );
    });
}

fn chain(name: &str) -> ChainName {
    ChainName::new(name).unwrap()
}

fn jump(to: &str) -> Rule {
    Rule::new(Target::Jump(chain(to)))
}

/// One table's write as a step.
fn write(table: TableName, write: TableWrite) -> Step {
    Step {
        write: BTreeMap::from([(table, write)]),
        ..Step::default()
    }
}

/// A chain of so many jumps, entered from INPUT.
fn ladder(length: usize) -> Step {
    let name = |n: usize| format!("L{n}");
    let chains = (0..length)
        .map(|n| {
            let rules = if n + 1 < length {
                vec![jump(&name(n + 1))]
            } else {
                Vec::new()
            };
            (chain(&name(n)), rules)
        })
        .collect();
    let append = vec![(chain("INPUT"), jump("L0"))];
    write(
        TableName::Filter,
        TableWrite {
            chains,
            append,
            ..TableWrite::default()
        },
    )
}

#[test]
fn live_and_fake_agree_on_how_deep_jumps_may_go() {
    in_namespace("live_and_fake_agree_on_how_deep_jumps_may_go", || {
        let mut verdicts = Vec::new();
        for length in 13..19 {
            clean(Backend::NfTables);
            let mut fake = FakeKernel::new(Backend::NfTables);
            let mut kernel = live(Backend::NfTables);
            let context = format!("ladder of {length}");
            verdicts.push(compare(
                &context,
                &mut kernel,
                &mut fake,
                Family::V4,
                &ladder(length),
            ));
        }
        assert!(
            verdicts.first() == Some(&true) && verdicts.last() == Some(&false),
            "{verdicts:?}"
        );
    });
}

#[test]
fn live_and_fake_agree_on_loops_and_who_enters_them() {
    in_namespace("live_and_fake_agree_on_loops_and_who_enters_them", || {
        for backend in [Backend::NfTables, Backend::Legacy] {
            own_run();
            clean(backend);
            let mut fake = FakeKernel::new(backend);
            let mut kernel = live(backend);
            let mut give = |step: &Step| compare("loops", &mut kernel, &mut fake, Family::V4, step);
            let lone = TableWrite {
                chains: [(chain("A"), vec![jump("B")]), (chain("B"), vec![jump("A")])].into(),
                ..TableWrite::default()
            };
            assert!(
                give(&write(TableName::Filter, lone)),
                "a loop that nobody enters is taken"
            );
            let enter = TableWrite {
                append: vec![(chain("INPUT"), jump("A"))],
                ..TableWrite::default()
            };
            assert!(
                !give(&write(TableName::Filter, enter.clone())),
                "entering it is refused"
            );
            let open = TableWrite {
                chains: [(chain("B"), Vec::new())].into(),
                ..TableWrite::default()
            };
            assert!(give(&write(TableName::Filter, open)));
            assert!(give(&write(TableName::Filter, enter)));
            let close = TableWrite {
                append: vec![(chain("B"), jump("A"))],
                ..TableWrite::default()
            };
            assert!(
                !give(&write(TableName::Filter, close)),
                "closing it under INPUT is refused"
            );
        }
    });
}

#[test]
fn retired_chains_may_jump_to_each_other() {
    in_namespace("retired_chains_may_jump_to_each_other", || {
        for backend in [Backend::NfTables, Backend::Legacy] {
            own_run();
            clean(backend);
            let mut fake = FakeKernel::new(backend);
            let mut kernel = live(backend);
            let mut give = |step: &Step| compare("retire", &mut kernel, &mut fake, Family::V6, step);
            let made = TableWrite {
                chains: [
                    (chain("A"), vec![jump("B")]),
                    (chain("B"), vec![jump("C")]),
                    (chain("C"), vec![]),
                ]
                .into(),
                ..TableWrite::default()
            };
            assert!(give(&write(TableName::Nat, made)));
            let retire = |names: &[&str]| Step {
                retire: names.iter().map(|name| (TableName::Nat, chain(name))).collect(),
                ..Step::default()
            };
            assert!(!give(&retire(&["B", "C"])), "A still jumps to B");
            assert!(give(&retire(&["C", "B", "A", "B", "NOT-THERE"])));
        }
    });
}

#[test]
fn broken_family_is_told_and_the_other_works() {
    in_namespace("broken_family_is_told_and_the_other_works", || {
        let mut kernel = live(Backend::NfTables);
        let mut probe = kernel.probe().clone();
        probe.families.v6 = Err(kernel::probe::Unavailable::NoIpv6("switched off for a test"));
        kernel = kernel::LiveKernel::new(probe);
        let made = write(
            TableName::Nat,
            TableWrite {
                ensure: vec![chain("A")],
                ..TableWrite::default()
            },
        );
        let error = kernel.commit(Family::V6, &made).unwrap_err();
        assert_eq!(error.kind, FailureKind::ToolMissing);
        let error = observed(&mut kernel, Family::V6, &Scope::Everything).unwrap_err();
        assert_eq!(error.kind, FailureKind::ToolMissing);
        assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
    });
}

#[test]
fn contract_notices_a_fake_that_takes_too_much() {
    in_namespace("contract_notices_a_fake_that_takes_too_much", || {
        assert_eq!(ensure_counters(), Accounting::Present);
        let mut kernel = live(Backend::NfTables);
        let mut fake = FakeKernel::new(Backend::NfTables);
        fake.set_counters(["only_in_the_fake".into()]);
        let counting = Rule {
            matches: vec![iptables::ast::Match::Nfacct("only_in_the_fake".into())],
            ..Rule::new(Target::Accept)
        };
        let step = write(
            TableName::Filter,
            TableWrite {
                append: vec![(chain("INPUT"), counting)],
                ..TableWrite::default()
            },
        );
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            compare("too much", &mut kernel, &mut fake, Family::V4, &step)
        }));
        assert!(
            outcome.is_err(),
            "the fake took what the kernel refused, and nobody noticed"
        );
    });
}

/// More chains than one batch of netlink holds.
fn many_chains_are_retired() {
    let names: Vec<ChainName> = (0..2_500).map(|n| chain(&format!("MANY-{n}"))).collect();
    let mut kernel = live(Backend::NfTables);
    let mut fake = FakeKernel::new(Backend::NfTables);
    let mut give = |step: &Step| compare("many", &mut kernel, &mut fake, Family::V4, step);
    // Each jumps to the one made before it.
    for part in names.chunks(500) {
        let jumps = part.iter().enumerate().map(|(n, name)| {
            let rule = n
                .checked_sub(1)
                .filter(|_| n % 10 != 0)
                .map(|before| jump(part[before].as_str()));
            (name.clone(), rule.into_iter().collect())
        });
        let chains = jumps.collect();
        assert!(give(&write(
            TableName::Nat,
            TableWrite {
                chains,
                ..TableWrite::default()
            }
        )));
    }
    let retire = names.iter().map(|name| (TableName::Nat, name.clone())).collect();
    assert!(give(&Step {
        retire,
        ..Step::default()
    }));
}

#[test]
fn more_chains_are_retired_than_one_batch_holds() {
    in_namespace(
        "more_chains_are_retired_than_one_batch_holds",
        many_chains_are_retired,
    );
}

#[test]
fn more_chains_are_retired_than_one_batch_holds_without_root() {
    support::in_namespace_with(
        "more_chains_are_retired_than_one_batch_holds_without_root",
        &["--user", "--map-root-user"],
        many_chains_are_retired,
    );
}

#[test]
fn step_that_no_socket_can_send_is_told_as_too_large() {
    let name = "step_that_no_socket_can_send_is_told_as_too_large";
    support::in_namespace_with(name, &["--user", "--map-root-user"], || {
        let chains = (0..5_000)
            .map(|n| (chain(&format!("MANY-{n}")), Vec::new()))
            .collect();
        let step = write(
            TableName::Nat,
            TableWrite {
                chains,
                ..TableWrite::default()
            },
        );
        let mut kernel = live(Backend::NfTables);
        let error = kernel.commit(Family::V4, &step).unwrap_err();
        assert_eq!(error.kind, FailureKind::TooLarge, "{error}");
    });
}
