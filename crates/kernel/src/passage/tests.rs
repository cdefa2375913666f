//! Events as the kernel tells them, put together.

use super::*;
use netlink::nft::{TraceConnection, TraceKind};

const OWN: &str = "ours";

/// IPv4 and UDP headers.
fn headers(source: [u8; 4], destination: [u8; 4], port: u16) -> ([u8; 20], [u8; 4]) {
    let mut network = [0; 20];
    network[0] = 0x45;
    network[9] = 17;
    network[12..16].copy_from_slice(&source);
    network[16..].copy_from_slice(&destination);
    let [high, low] = port.to_be_bytes();
    (network, [0x9c, 0x40, high, low])
}

fn event<'a>(id: u32, table: &'a str, chain: &'a str, kind: TraceKind) -> TraceEvent<'a> {
    TraceEvent {
        id,
        kind,
        family: NetlinkFamily::Ipv4,
        table,
        chain,
        rule_handle: (kind == TraceKind::Rule).then_some(7),
        verdict: (kind == TraceKind::Rule).then_some(Verdict::Accept),
        policy: (kind == TraceKind::Policy).then_some(Policy::Accept),
        mark: None,
        iif: None,
        oif: None,
        nfproto: None,
        connection: None,
        link_header: &[],
        network_header: &[],
        transport_header: &[],
    }
}

#[test]
fn what_nat_made_of_a_packet_is_told_of_the_rule_before() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    let (after, after_transport) = headers([10, 0, 0, 1], [10, 0, 0, 9], 5353);
    let begin = TraceEvent {
        network_header: &network,
        transport_header: &transport,
        ..event(1, OWN, "prerouting", TraceKind::Rule)
    };
    all.take(&begin, now);
    all.take(&event(1, "nat", "KUBE-SEP", TraceKind::Rule), now);
    let late = TraceEvent {
        network_header: &after,
        transport_header: &after_transport,
        ..event(1, OWN, "postrouting", TraceKind::Policy)
    };
    all.take(&late, now);
    assert!(all.finished(now).is_empty());
    let [passage] = &all.finished(now + LINGER)[..] else {
        panic!()
    };
    assert_eq!(passage.seen, Seen::Through);
    assert_eq!(passage.before.destination_port, Some(53));
    let became = passage.met[0].became.unwrap();
    assert_eq!((became, became.destination_port), (passage.after, Some(5353)));
}

#[test]
fn a_number_that_comes_again_is_another_packet() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    let begin = TraceEvent {
        network_header: &network,
        transport_header: &transport,
        ..event(1, OWN, "output", TraceKind::Rule)
    };
    all.take(&begin, now);
    all.take(&event(1, "nat", "OUTPUT", TraceKind::Rule), now);
    all.take(&begin, now);
    all.take(&event(1, "filter", "OUTPUT", TraceKind::Policy), now);
    let ends = all.rest();
    let tables: Vec<&str> = ends.iter().map(|passage| passage.met[0].table.as_str()).collect();
    assert_eq!(tables, ["nat", "filter"]);
}

#[test]
fn what_others_do_to_follow_packets_is_no_step_of_a_way() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    let others = format!("{TRACE_TABLES}1");
    let begin = TraceEvent {
        network_header: &network,
        transport_header: &transport,
        ..event(1, OWN, "output", TraceKind::Rule)
    };
    all.take(&event(1, &others, "output", TraceKind::Rule), now);
    all.take(&begin, now);
    all.take(&event(1, &others, "output", TraceKind::Policy), now);
    all.take(&event(1, "filter", "OUTPUT", TraceKind::Policy), now);
    all.take(&event(1, &others, "postrouting", TraceKind::Policy), now);
    assert_eq!(all.strangers(), 0);
    let [passage] = &all.rest()[..] else { panic!() };
    let tables: Vec<&str> = passage.met.iter().map(|met| met.table.as_str()).collect();
    assert_eq!(tables, ["filter"]);
}

#[test]
fn packets_that_are_on_their_way_when_events_are_lost_may_have_gaps() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    let begin = |id| TraceEvent {
        network_header: &network,
        transport_header: &transport,
        ..event(id, OWN, "output", TraceKind::Rule)
    };
    all.take(&begin(1), now);
    all.lose();
    all.take(&begin(2), now);
    let gaps: Vec<bool> = all.rest().iter().map(|passage| passage.has_gaps).collect();
    assert_eq!(gaps, [true, false]);
}

#[test]
fn a_packet_that_gets_another_number_on_a_bridge_is_known_by_its_connection_or_its_looks() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    let begin = TraceEvent {
        network_header: &network,
        transport_header: &transport,
        ..event(1, OWN, "prerouting", TraceKind::Rule)
    };
    all.take(&begin, now);
    let looks = TraceEvent {
        network_header: &network,
        transport_header: &transport,
        connection: Some(TraceConnection {
            id: 99,
            direction: None,
            status: None,
            state: Some(NEW),
        }),
        ..event(2, "filter", "FORWARD", TraceKind::Policy)
    };
    all.take(&looks, now);
    let connection = TraceEvent {
        connection: looks.connection,
        ..event(3, "nat", "POSTROUTING", TraceKind::Policy)
    };
    all.take(&connection, now);
    all.take(&event(4, "nat", "POSTROUTING", TraceKind::Policy), now);
    assert_eq!(all.strangers(), 1);
    let [passage] = &all.rest()[..] else { panic!() };
    assert_eq!(passage.met.len(), 2);
    assert_eq!(passage.is_first, Some(true));
}

#[test]
fn an_answer_is_not_taken_for_the_packet_that_it_answers() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let of = |direction| {
        Some(TraceConnection {
            id: 99,
            direction: Some(direction),
            status: None,
            state: Some(NEW),
        })
    };
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    let (answer, answer_transport) = headers([10, 0, 0, 9], [10, 0, 0, 1], 40000);
    let (turned, turned_transport) = headers([10, 0, 0, 9], [10, 0, 0, 2], 40000);
    let begin = |id, network, transport| TraceEvent {
        network_header: network,
        transport_header: transport,
        ..event(id, OWN, "prerouting", TraceKind::Rule)
    };
    all.take(&begin(1, &network, &transport), now);
    let asked = TraceEvent {
        connection: of(CtDirection::Original),
        ..event(1, "nat", "PREROUTING", TraceKind::Policy)
    };
    all.take(&asked, now);
    all.take(&begin(2, &answer, &answer_transport), now);
    // Behind a bridge it has another number, and its destination is the client's again.
    let answered = TraceEvent {
        network_header: &turned,
        transport_header: &turned_transport,
        connection: of(CtDirection::Reply),
        ..event(3, "filter", "FORWARD", TraceKind::Policy)
    };
    all.take(&answered, now);
    let rest = all.rest();
    let tables: Vec<&str> = rest.iter().map(|passage| passage.met[0].table.as_str()).collect();
    assert_eq!(tables, ["nat", "filter"]);
}

#[test]
fn the_next_packet_of_a_connection_is_not_taken_for_the_one_before() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 0, 0, 9], 53);
    for id in [1, 3] {
        let with = |event| TraceEvent {
            network_header: &network,
            transport_header: &transport,
            ..event
        };
        all.take(&with(event(id, OWN, "prerouting", TraceKind::Rule)), now);
        // On a bridge each has another number from here on.
        let forward = TraceEvent {
            connection: Some(TraceConnection {
                id: 99,
                direction: Some(CtDirection::Original),
                status: None,
                state: Some(NEW),
            }),
            ..with(event(id + 1, "filter", "FORWARD", TraceKind::Policy))
        };
        all.take(&forward, now);
        all.take(&event(id + 1, OWN, "postrouting", TraceKind::Policy), now);
    }
    let met: Vec<usize> = all.rest().iter().map(|passage| passage.met.len()).collect();
    assert_eq!(met, [1, 1]);
}

#[test]
fn a_packet_to_this_host_itself_is_one_though_it_comes_in_again() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 0, 0, 1], 53);
    let with = |event| TraceEvent {
        network_header: &network,
        transport_header: &transport,
        ..event
    };
    all.take(&with(event(1, OWN, "output", TraceKind::Rule)), now);
    let out = TraceEvent {
        oif: Some(1),
        ..event(1, OWN, "postrouting", TraceKind::Policy)
    };
    all.take(&out, now);
    let back = TraceEvent {
        iif: Some(1),
        ..with(event(7, OWN, "prerouting", TraceKind::Rule))
    };
    all.take(&back, now);
    all.take(&event(7, "filter", "INPUT", TraceKind::Policy), now);
    let [passage] = &all.rest()[..] else { panic!() };
    assert_eq!(passage.met[0].chain, "INPUT");
}

#[test]
fn however_many_packets_are_on_their_way_they_are_bounded_and_none_is_forgotten() {
    let now = Instant::now();
    let mut all = Passages::new(OWN);
    let (network, transport) = headers([10, 0, 0, 1], [10, 96, 0, 1], 53);
    for id in 0..5000 {
        let begin = TraceEvent {
            network_header: &network,
            transport_header: &transport,
            ..event(id, OWN, "output", TraceKind::Rule)
        };
        all.take(&begin, now);
        assert!(all.open.len() <= MOST);
    }
    assert_eq!(all.finished(now).len() + all.rest().len(), 5000);
}
