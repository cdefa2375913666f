//! The steps of a plan as restore text.

use iptables::ast::{ChainName, Rule, TableName, Target};
use iptables::plan::{Plan, Step, TableWrite};
use iptables::render::{PlanText, RetireText, StepText, Tool};
use model::{Family, ServiceName};
use std::collections::BTreeMap;

fn chain(name: &str) -> ChainName {
    ChainName::new(name).expect("a good name")
}

fn jump(to: &str) -> Rule {
    Rule::new(Target::Jump(chain(to)))
}

fn full_step() -> Step {
    let nat = TableWrite {
        chains: BTreeMap::from([
            (
                chain("KUBE-SVC-B"),
                vec![jump("KUBE-SEP-A"), Rule::new(Target::Return)],
            ),
            (chain("KUBE-SEP-A"), vec![]),
        ]),
        insert: vec![
            (chain("KUBE-SERVICES"), jump("KUBE-SVC-B")),
            (chain("KUBE-SERVICES"), jump("KUBE-EXT-B")),
        ],
        append: vec![(chain("KUBE-NODEPORTS"), jump("KUBE-EXT-B"))],
        remove: vec![chain("KUBE-SEP-Z"), chain("KUBE-FW-B")],
        ensure: vec![chain("KUBE-PROXY-CANARY")],
    };
    let filter = TableWrite {
        ensure: vec![chain("KUBE-FIREWALL")],
        ..TableWrite::default()
    };
    Step {
        write: BTreeMap::from([(TableName::Nat, nat), (TableName::Filter, filter)]),
        delete: vec![(TableName::Nat, chain("KUBE-SERVICES"), jump("KUBE-SVC-OLD"))],
        retire: vec![
            (TableName::Nat, chain("KUBE-SVC-OLD")),
            (TableName::Nat, chain("KUBE-EXT-OLD")),
        ],
        ..Step::default()
    }
}

fn text(step: &Step, tool: Tool) -> String {
    let family = Family::V4;
    StepText { step, family, tool }.to_string()
}

#[test]
fn chain_lines_are_sorted_and_the_first_insertion_ends_topmost() {
    assert_eq!(
        text(&full_step(), Tool::NfTables),
        "\
*nat
:KUBE-FW-B - [0:0]
:KUBE-PROXY-CANARY - [0:0]
:KUBE-SEP-A - [0:0]
:KUBE-SEP-Z - [0:0]
:KUBE-SVC-B - [0:0]
-A KUBE-SVC-B -j KUBE-SEP-A
-A KUBE-SVC-B -j RETURN
-I KUBE-SERVICES -j KUBE-EXT-B
-I KUBE-SERVICES -j KUBE-SVC-B
-A KUBE-NODEPORTS -j KUBE-EXT-B
-X KUBE-FW-B
-X KUBE-SEP-Z
COMMIT
"
    );
}

#[test]
fn on_nf_tables_retirements_are_a_text_of_their_own() {
    assert_eq!(
        RetireText { step: &full_step() }.to_string(),
        "\
*nat
:KUBE-EXT-OLD - [0:0]
:KUBE-SVC-OLD - [0:0]
-X KUBE-EXT-OLD
-X KUBE-SVC-OLD
COMMIT
"
    );
}

#[test]
fn on_legacy_one_restore_does_all_of_a_step() {
    let text = text(&full_step(), Tool::Legacy);
    let nat = text.split_once("*nat\n").expect("there is a nat table").1;
    let lines: Vec<&str> = nat.lines().collect();
    let at = |line: &str| {
        lines
            .iter()
            .position(|l| *l == line)
            .unwrap_or_else(|| panic!("no {line}:\n{text}"))
    };
    assert!(at(":KUBE-SVC-OLD - [0:0]") < at("-D KUBE-SERVICES -j KUBE-SVC-OLD"));
    assert!(at("-D KUBE-SERVICES -j KUBE-SVC-OLD") < at("-X KUBE-SVC-OLD"));
    assert!(at("-A KUBE-NODEPORTS -j KUBE-EXT-B") < at("-X KUBE-SEP-Z"));
}

#[test]
fn chains_with_rules_of_others_are_to_be_made_first() {
    let step = full_step();
    let text = StepText {
        step: &step,
        family: Family::V4,
        tool: Tool::NfTables,
    };
    let first: Vec<_> = text.chains_to_make_first().collect();
    assert_eq!(first, [(TableName::Filter, &chain("KUBE-FIREWALL"))]);
}

#[test]
fn a_step_with_nothing_to_restore_is_no_text() {
    let step = Step {
        retire: vec![(TableName::Nat, chain("KUBE-SVC-OLD"))],
        ..Step::default()
    };
    assert_eq!(text(&step, Tool::NfTables), "");
    assert_ne!(text(&step, Tool::Legacy), "");
}

#[test]
fn for_people_a_plan_reads_like_a_diff() {
    let mut first = full_step();
    first.services = vec![ServiceName::new("ns", "a"), ServiceName::new("ns", "b")];
    let second = Step {
        delete: vec![(TableName::Filter, chain("KUBE-SERVICES"), jump("KUBE-OLD"))],
        ..Step::default()
    };
    let plan = Plan {
        steps: vec![first, second],
    };
    let family = Family::V4;
    assert_eq!(
        PlanText { plan: &plan, family }.to_string(),
        "\
step 1: ns/a, ns/b
+ ensure filter KUBE-FIREWALL
+ ensure nat KUBE-PROXY-CANARY
+ write nat KUBE-SEP-A
+ write nat KUBE-SVC-B
+     -j KUBE-SEP-A
+     -j RETURN
+ insert nat KUBE-SERVICES -j KUBE-SVC-B
+ insert nat KUBE-SERVICES -j KUBE-EXT-B
+ append nat KUBE-NODEPORTS -j KUBE-EXT-B
- remove nat KUBE-SEP-Z
- remove nat KUBE-FW-B
- delete nat KUBE-SERVICES -j KUBE-SVC-OLD
- retire nat KUBE-SVC-OLD
- retire nat KUBE-EXT-OLD
step 2:
- delete filter KUBE-SERVICES -j KUBE-OLD
"
    );
}
