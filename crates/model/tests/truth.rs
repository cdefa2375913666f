//! The oracle against the truth tables: expectations are data, typed in from upstream's tests.

use model::{ConnState, Origin, Outcome, Packet, Protocol, oracle};

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

/// Upstream 1.36: with node ports on loopback comes the rule against martians.
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

/// The plain service of table 17.1, asked with a packet that is changed a little.
fn ask(change: impl FnOnce(&mut Packet)) -> Outcome {
    let tables = scenario::truth_tables();
    let variant = &tables[0].variants[0];
    let (pod, plain) = (
        "10.0.0.2".parse().expect("an address"),
        "172.30.1.1:80".parse().expect("an address"),
    );
    let mut packet = Packet::new(pod, plain, Protocol::Tcp, Origin::Interface("".into()));
    change(&mut packet);
    oracle::outcome(&variant.desired.v4, &variant.facts, &packet)
}

fn masqueraded(outcome: &Outcome) -> Option<bool> {
    match outcome {
        Outcome::Delivered(to) => to.first().map(|delivery| delivery.masquerade),
        _ => None,
    }
}

#[test]
fn only_packets_that_open_a_connection_are_sent_elsewhere() {
    assert_eq!(masqueraded(&ask(|_| {})), Some(false));
    assert_eq!(
        ask(|packet| packet.state = ConnState::Established),
        Outcome::Untouched
    );
}

#[test]
fn invalid_packets_are_dropped_where_they_would_be_forwarded() {
    assert_eq!(ask(|packet| packet.state = ConnState::Invalid), Outcome::Dropped);
    let to_node = |packet: &mut Packet| {
        packet.state = ConnState::Invalid;
        packet.dst = "192.168.0.2:80".parse().unwrap();
    };
    assert_eq!(ask(to_node), Outcome::Untouched);
}

#[test]
fn a_packet_that_comes_with_the_mark_is_masqueraded() {
    assert_eq!(masqueraded(&ask(|packet| packet.mark = 0x4000)), Some(true));
    assert_eq!(masqueraded(&ask(|packet| packet.mark = 0x8001)), Some(false));
}

#[test]
fn packets_to_loopback_from_elsewhere_are_dropped_once_node_ports_are_served_there() {
    let martian = |packet: &mut Packet| packet.dst = "127.0.0.1:22".parse().unwrap();
    assert_eq!(ask(martian), Outcome::Dropped);
    let own = |packet: &mut Packet| {
        packet.src = "127.0.0.1".parse().unwrap();
        packet.dst = "127.0.0.1:22".parse().unwrap();
        packet.origin = Origin::Host;
    };
    assert_eq!(ask(own), Outcome::Untouched);
}
