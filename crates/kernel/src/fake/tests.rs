use super::*;
use crate::FailureKind;
use iptables::ast::{Chain, Ports, Rule, Target};

fn name(text: &str) -> ChainName {
    ChainName::new(text).unwrap()
}

fn jump(to: &str) -> Rule {
    Rule::new(Target::Jump(name(to)))
}

fn accept() -> Rule {
    Rule::new(Target::Accept)
}

/// A step that fills chains of one table and appends rules.
fn step(table: TableName, chains: &[(&str, Vec<Rule>)], append: &[(&str, Rule)]) -> Step {
    let write = TableWrite {
        chains: chains
            .iter()
            .map(|(chain, rules)| (name(chain), rules.clone()))
            .collect(),
        append: append
            .iter()
            .map(|(chain, rule)| (name(chain), rule.clone()))
            .collect(),
        ..TableWrite::default()
    };
    Step {
        write: [(table, write)].into(),
        ..Step::default()
    }
}

fn chains(kernel: &FakeKernel, table: TableName) -> Vec<String> {
    let Some(table) = kernel.ruleset(Family::V4).tables.get(&table) else {
        return Vec::new();
    };
    table
        .chains
        .iter()
        .filter(|(_, chain)| chain.policy.is_none())
        .map(|(name, _)| name.to_string())
        .collect()
}

fn kind(result: Result<(), CommitError>) -> Option<FailureKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn jump_to_an_unknown_chain_is_refused_and_nothing_changes() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let before = kernel.ruleset(Family::V4).clone();
    let result = kernel.commit(
        Family::V4,
        &step(TableName::Filter, &[("A", vec![accept(), jump("NOPE")])], &[]),
    );
    assert_eq!(kind(result), Some(FailureKind::Refused));
    assert_eq!(kernel.ruleset(Family::V4), &before);
}

#[test]
fn loop_is_refused_only_when_a_builtin_chain_enters_it() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let lone = step(
        TableName::Filter,
        &[("A", vec![jump("B")]), ("B", vec![jump("A")])],
        &[],
    );
    assert_eq!(kernel.commit(Family::V4, &lone), Ok(()));
    let entered = step(TableName::Filter, &[], &[("INPUT", jump("A"))]);
    assert_eq!(
        kind(kernel.commit(Family::V4, &entered)),
        Some(FailureKind::Refused)
    );
    assert!(
        kernel.ruleset(Family::V4).tables[&TableName::Filter].chains[&name("INPUT")]
            .rules
            .is_empty()
    );
}

#[test]
fn masquerade_is_refused_where_prerouting_reaches_it() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let masquerade = Rule::new(Target::Masquerade(Ports::Kept));
    let made = step(
        TableName::Nat,
        &[("M", vec![masquerade])],
        &[("POSTROUTING", jump("M"))],
    );
    assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
    let reached = step(TableName::Nat, &[], &[("PREROUTING", jump("M"))]);
    assert_eq!(
        kind(kernel.commit(Family::V4, &reached)),
        Some(FailureKind::Refused)
    );
}

#[test]
fn first_table_stays_when_the_second_is_refused() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let mut both = step(TableName::Filter, &[("A", vec![accept()])], &[]);
    both.write
        .extend(step(TableName::Nat, &[("B", vec![jump("NOPE")])], &[]).write);
    assert_eq!(kind(kernel.commit(Family::V4, &both)), Some(FailureKind::Refused));
    assert_eq!(chains(&kernel, TableName::Filter), ["A"]);
    assert_eq!(chains(&kernel, TableName::Nat), [""; 0]);
}

#[test]
fn retiring_a_chain_that_is_jumped_to_is_refused() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let made = step(
        TableName::Filter,
        &[("A", vec![jump("B")]), ("B", vec![accept()])],
        &[],
    );
    assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
    let retire = |chain| Step {
        retire: vec![(TableName::Filter, name(chain))],
        ..Step::default()
    };
    assert_eq!(
        kind(kernel.commit(Family::V4, &retire("B"))),
        Some(FailureKind::Refused)
    );
    assert_eq!(kernel.commit(Family::V4, &retire("A")), Ok(()));
    assert_eq!(kernel.commit(Family::V4, &retire("B")), Ok(()));
    assert_eq!(kernel.commit(Family::V4, &retire("NOT-THERE")), Ok(()));
    assert_eq!(chains(&kernel, TableName::Filter), [""; 0]);
}

#[test]
fn step_that_empties_a_builtin_chain_is_refused() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let empties = step(TableName::Filter, &[("INPUT", vec![])], &[]);
    assert_eq!(
        kind(kernel.commit(Family::V4, &empties)),
        Some(FailureKind::Refused)
    );
}

#[test]
fn crash_leaves_what_was_written_before_it() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    kernel.inject(Fault::CrashAfter { writes: 1 });
    let mut both = step(TableName::Filter, &[("A", vec![accept()])], &[]);
    both.write
        .extend(step(TableName::Nat, &[("B", vec![])], &[]).write);
    assert_eq!(kind(kernel.commit(Family::V4, &both)), Some(FailureKind::Other));
    assert_eq!(
        (
            chains(&kernel, TableName::Filter),
            chains(&kernel, TableName::Nat)
        ),
        (vec!["A".into()], vec![])
    );
    assert_eq!(kind(kernel.commit(Family::V4, &both)), Some(FailureKind::Other));
    kernel.inject(Fault::Restart);
    assert_eq!(kernel.commit(Family::V4, &both), Ok(()));
}

#[test]
fn lock_is_held_for_both_families() {
    let mut kernel = FakeKernel::new(Backend::Legacy);
    kernel.inject(Fault::LockHeld { commits: 2 });
    let made = step(TableName::Filter, &[("A", vec![])], &[]);
    assert_eq!(kind(kernel.commit(Family::V4, &made)), Some(FailureKind::Busy));
    assert_eq!(kind(kernel.commit(Family::V6, &made)), Some(FailureKind::Busy));
    assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
}

#[test]
fn broken_family_leaves_the_other_alone() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    kernel.inject(Fault::FailUntil {
        family: Family::V6,
        nth: 3,
        kind: FailureKind::ToolMissing,
    });
    let made = step(TableName::Filter, &[("A", vec![])], &[]);
    let kinds: Vec<_> = (0..3).map(|_| kind(kernel.commit(Family::V6, &made))).collect();
    assert_eq!(
        kinds,
        [
            Some(FailureKind::ToolMissing),
            Some(FailureKind::ToolMissing),
            None
        ]
    );
    assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
}

#[test]
fn stranger_edits_between_observation_and_commit() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let made = step(TableName::Nat, &[("A", vec![accept()])], &[]);
    assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
    kernel.inject(Fault::Stranger {
        family: Family::V4,
        nth: 1,
        edit: Edit::Wipe(TableName::Nat),
    });
    let before = kernel.generation().unwrap();
    let appended = step(TableName::Nat, &[], &[("A", accept())]);
    assert_eq!(
        kind(kernel.commit(Family::V4, &appended)),
        Some(FailureKind::Refused)
    );
    assert_ne!(kernel.generation().unwrap(), before);
}

#[test]
fn builtin_chains_are_observed_in_an_unused_table() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let mut seen: Vec<(TableName, String, Chain)> = Vec::new();
    kernel
        .observe(Family::V4, &Scope::Everything, &mut |table, name, chain| {
            seen.push((table, name.to_string(), chain));
        })
        .unwrap();
    assert_eq!(seen.len(), 5 + 3 + 4);
    assert!(seen.iter().all(|(_, _, chain)| *chain == crate::empty_builtin()));
}

#[test]
fn inserted_rules_stand_topmost_in_their_order() {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    let mut made = step(
        TableName::Filter,
        &[("A", vec![]), ("B", vec![])],
        &[("INPUT", accept())],
    );
    let write = made.write.get_mut(&TableName::Filter).unwrap();
    write.insert = vec![(name("INPUT"), jump("A")), (name("INPUT"), jump("B"))];
    assert_eq!(kernel.commit(Family::V4, &made), Ok(()));
    let input = &kernel.ruleset(Family::V4).tables[&TableName::Filter].chains[&name("INPUT")];
    assert_eq!(input.rules, [jump("A"), jump("B"), accept()]);
}
