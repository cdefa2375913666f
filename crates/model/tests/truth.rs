//! The oracle against the truth tables: expectations are data, typed in from upstream's tests.

use model::oracle;

#[test]
fn the_oracle_agrees_with_every_row_of_the_truth_tables() {
    let (mut rows, mut wrong) = (0, Vec::new());
    for table in scenario::truth_tables() {
        for variant in &table.variants {
            for flow in &variant.flows {
                let desired = variant.desired.get(flow.packet.family());
                let got = oracle::outcome(desired, &variant.facts, &flow.packet);
                rows += 1;
                if got != flow.expect {
                    wrong.push(format!(
                        "{} / {} / {}\n  want {}\n  got  {got}",
                        table.name, variant.name, flow.name, flow.expect
                    ));
                }
            }
        }
    }
    assert!(rows > 250, "{rows} rows");
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn the_objects_of_the_truth_tables_need_no_notes() {
    for table in scenario::truth_tables() {
        for variant in &table.variants {
            assert_eq!(variant.notes, [], "{} / {}", table.name, variant.name);
        }
    }
}

/// The last column of iptables.md 17.6: with node ports on loopback comes the rule against martians.
#[test]
fn loopback_node_ports_are_effective_only_for_ipv4_and_where_they_are_wanted() {
    let tables = scenario::truth_tables();
    let table = tables
        .iter()
        .find(|table| table.name == "06-node-ports")
        .expect("table 17.6");
    let effective = |index: usize| {
        let desired = &table.variants[index].desired;
        (
            desired.v4.node.localhost_node_ports,
            desired.v6.node.localhost_node_ports,
        )
    };
    assert_eq!(effective(0), (true, false));
    assert_eq!(effective(1), (false, false));
    assert_eq!(effective(2), (false, false));
    assert_eq!(effective(3), (false, false));
}
