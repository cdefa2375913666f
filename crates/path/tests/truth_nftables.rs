//! Packets whose fate is written down as data, through tables of nftables mode: ours and upstream's.

mod support;

use model::Outcome;
use path::{Detail, trace};
use support::native::{self, LAYOUTS};

#[test]
fn every_flow_of_the_truth_tables_has_its_outcome_in_both_layouts_of_nftables_mode() {
    let mut wrong = Vec::new();
    let mut flows = 0;
    for table in scenario::truth_tables() {
        for variant in &table.variants {
            let variant = &variant.in_nftables();
            let cidrs = native::service_cidrs(&variant.snapshot);
            for flow in &variant.flows {
                let desired = variant.desired.get(flow.packet.family());
                for layout in LAYOUTS {
                    let (rules, _) = native::table(layout, desired, &cidrs, variant.settings.masquerade_all);
                    let host = native::host(&variant.facts, rules);
                    let answer = trace(&host, &flow.packet, Detail::Met);
                    flows += 1;
                    // Nothing accepts packets for health-check node ports in this mode: they arrive as they were sent.
                    let expect = match &flow.expect {
                        Outcome::Accepted => &Outcome::Untouched,
                        other => other,
                    };
                    if answer.outcome().as_ref() != Ok(expect) {
                        let place = format!("{layout:?}: {} / {} / {}", table.name, variant.name, flow.name);
                        wrong.push(format!(
                            "{place}: expected {expect}, got {:?}\n{}",
                            answer.outcome(),
                            support::told(&answer)
                        ));
                    }
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
    assert!(flows > 500, "only {flows} flows");
}
