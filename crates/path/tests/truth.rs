//! Packets whose fate is written down as data, through the rules that we build.

mod support;

use iptables::build::ruleset;
use path::{Detail, trace};

#[test]
fn every_flow_of_the_truth_tables_has_the_outcome_that_is_written_there() {
    let mut wrong = Vec::new();
    let mut flows = 0;
    for table in scenario::truth_tables() {
        for variant in &table.variants {
            for flow in &variant.flows {
                let family = flow.packet.family();
                let rules = ruleset(variant.desired.get(family), &support::context());
                let host = support::host(&variant.facts, family, rules);
                let answer = trace(&host, &flow.packet, Detail::Met);
                flows += 1;
                if answer.outcome().as_ref() != Ok(&flow.expect) {
                    let place = format!("{} / {} / {}", table.name, variant.name, flow.name);
                    wrong.push(format!(
                        "{place}: expected {}, got {:?}\n{}",
                        flow.expect,
                        answer.outcome(),
                        support::told(&answer)
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {flows} flows:\n{}",
        wrong.len(),
        wrong.join("\n\n")
    );
    assert!(flows > 250, "only {flows} flows");
}
