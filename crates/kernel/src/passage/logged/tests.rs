//! Steps as the kernel logs them, put together.

use super::*;
use netlink::nfnl::Family;

const OWN: &str = "OURS";

/// A datagram: its identification, whence and whither.
fn datagram(id: u8, source: [u8; 4], from: u16, destination: [u8; 4], to: u16) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 32, 0, id, 0, 0, 64, 17, 0, 0];
    bytes.extend(source);
    bytes.extend(destination);
    bytes.extend(from.to_be_bytes());
    bytes.extend(to.to_be_bytes());
    bytes.extend([0, 12, 0, 0, b'a', b'b', b'c', b'd']);
    bytes
}

const CLIENT: [u8; 4] = [10, 0, 0, 1];
const SERVICE: [u8; 4] = [10, 96, 0, 1];
const ENDPOINT: [u8; 4] = [10, 0, 0, 9];

fn asked(id: u8) -> Vec<u8> {
    datagram(id, CLIENT, 4000, SERVICE, 53)
}

fn translated(id: u8) -> Vec<u8> {
    datagram(id, CLIENT, 4000, ENDPOINT, 5353)
}

fn all() -> LoggedPassages {
    LoggedPassages::new(OWN, &[Traced::default()])
}

fn logged<'a>(prefix: &'a str, hook: u8, payload: &'a [u8]) -> Logged<'a> {
    let (iif, oif) = match hook {
        PREROUTING => (Some(2), None),
        OUTPUT | POSTROUTING => (None, Some(3)),
        _ => (Some(2), Some(3)),
    };
    Logged {
        family: Family::Ipv4,
        hook,
        mark: 0,
        iif,
        oif,
        prefix,
        payload,
    }
}

fn begin(all: &mut LoggedPassages, hook: u8, payload: &[u8], now: Instant) {
    all.take(&logged("TRACE: raw:OURS:return:2 ", hook, payload), now);
}

fn with_one_at_its_last_hook(now: Instant) -> LoggedPassages {
    let mut all = all();
    begin(&mut all, PREROUTING, &asked(1), now);
    let last = "TRACE: mangle:POSTROUTING:policy:1 ";
    all.take(&logged(last, POSTROUTING, &translated(1)), now);
    all
}

fn places(passage: &Passage) -> Vec<String> {
    let of = |met: &Met| match met.what {
        What::Step { number, .. } => format!("{}:{}:{number}", met.table, met.chain),
        _ => String::new(),
    };
    passage.met.iter().map(of).collect()
}

#[test]
fn what_nat_and_marks_make_of_a_packet_is_told_of_the_rule_before() {
    let now = Instant::now();
    let mut all = all();
    begin(&mut all, PREROUTING, &asked(1), now);
    let (before, after) = (asked(1), translated(1));
    all.take(&logged("TRACE: nat:MARK:rule:1 ", PREROUTING, &before), now);
    let marked = |prefix, hook, payload| Logged {
        mark: 0x4000,
        ..logged(prefix, hook, payload)
    };
    all.take(&marked("TRACE: nat:SEP:rule:2 ", PREROUTING, &before), now);
    all.take(&marked("TRACE: filter:FORWARD:policy:1 ", 2, &after), now);
    all.take(
        &marked("TRACE: nat:POSTROUTING:rule:3 ", POSTROUTING, &after),
        now,
    );
    assert!(all.finished(now).is_empty());
    let [passage] = &all.finished(now + LINGER)[..] else {
        panic!("one packet")
    };
    assert_eq!(
        places(passage),
        ["nat:MARK:1", "nat:SEP:2", "filter:FORWARD:1", "nat:POSTROUTING:3"]
    );
    assert_eq!(passage.met[0].mark, 0x4000);
    let became: Vec<bool> = passage.met.iter().map(|met| met.became.is_some()).collect();
    assert_eq!(became, [false, true, false, false]);
    assert_eq!((passage.seen, passage.is_first), (Seen::Through, Some(true)));
    assert_eq!((passage.in_interface, passage.out_interface), (Some(2), Some(3)));
    // Behind source NAT there is no step: conntrack tells.
    let mut passage = passage.clone();
    let view = PacketView::of(&datagram(1, [192, 0, 2, 1], 999, ENDPOINT, 5353)).unwrap();
    passage.leaves_as(view);
    assert_eq!((passage.after, passage.met[3].became), (view, Some(view)));
}

#[test]
fn packets_that_are_on_their_way_when_steps_are_lost_may_have_gaps() {
    let now = Instant::now();
    let mut all = all();
    begin(&mut all, PREROUTING, &asked(1), now);
    all.lose();
    begin(&mut all, PREROUTING, &asked(2), now);
    let gaps: Vec<bool> = all.rest().iter().map(|passage| passage.has_gaps).collect();
    assert_eq!(gaps, [true, false]);
}

#[test]
fn packets_between_each_others_steps_are_told_apart() {
    let now = Instant::now();
    let mut all = all();
    // The same connection, and another one.
    let packets = [asked(1), asked(2), datagram(3, CLIENT, 4001, SERVICE, 53)];
    for packet in &packets {
        begin(&mut all, PREROUTING, packet, now);
    }
    for (packet, prefix) in packets.iter().zip(["A", "B", "C"]) {
        let prefix = format!("TRACE: nat:{prefix}:rule:1 ");
        all.take(&logged(&prefix, PREROUTING, packet), now);
    }
    for (id, prefix) in [(2, "E"), (1, "D")] {
        let prefix = format!("TRACE: filter:{prefix}:rule:1 ");
        all.take(&logged(&prefix, 2, &translated(id)), now);
    }
    let told: Vec<Vec<String>> = all.rest().iter().map(places).collect();
    assert_eq!(
        told,
        [
            vec!["nat:A:1", "filter:D:1"],
            vec!["nat:B:1", "filter:E:1"],
            vec!["nat:C:1"]
        ]
    );
    assert_eq!(all.strangers(), 0);
}

#[test]
fn a_repetition_that_looks_the_same_is_another_packet() {
    let now = Instant::now();
    let mut all = with_one_at_its_last_hook(now);
    // The first is at its last hook: what is at an earlier one is of the second.
    begin(&mut all, PREROUTING, &asked(1), now);
    all.take(&logged("TRACE: nat:A:rule:1 ", PREROUTING, &asked(1)), now);
    let told: Vec<Vec<String>> = all.rest().iter().map(places).collect();
    assert_eq!(told, [vec!["mangle:POSTROUTING:1"], vec!["nat:A:1"]]);
}

#[test]
fn a_packet_to_this_very_host_comes_in_again_and_is_one() {
    let now = Instant::now();
    let mut all = all();
    let (before, after) = (asked(1), translated(1));
    let through_lo = |prefix, hook, payload| Logged {
        iif: (hook < OUTPUT).then_some(1),
        oif: (hook >= OUTPUT).then_some(1),
        ..logged(prefix, hook, payload)
    };
    all.take(&through_lo("TRACE: raw:OURS:return:2 ", OUTPUT, &before), now);
    all.take(&through_lo("TRACE: nat:OUTPUT:rule:1 ", OUTPUT, &before), now);
    all.take(
        &through_lo("TRACE: nat:POSTROUTING:rule:1 ", POSTROUTING, &after),
        now,
    );
    // NAT has changed source and destination.
    let back = datagram(1, [127, 0, 0, 1], 7, ENDPOINT, 5353);
    all.take(
        &through_lo("TRACE: raw:PREROUTING:rule:1 ", PREROUTING, &back),
        now,
    );
    all.take(&through_lo("TRACE: raw:OURS:rule:1 ", PREROUTING, &back), now);
    all.take(&through_lo("TRACE: raw:OURS:return:2 ", PREROUTING, &back), now);
    all.take(&through_lo("TRACE: filter:INPUT:policy:1 ", INPUT, &back), now);
    let [passage] = &all.finished(now + LINGER)[..] else {
        panic!("one packet")
    };
    assert_eq!(
        places(passage),
        [
            "nat:OUTPUT:1",
            "nat:POSTROUTING:1",
            "raw:PREROUTING:1",
            "filter:INPUT:1"
        ]
    );
    assert!(passage.sent_here);
    assert_eq!(passage.met[1].became, PacketView::of(&back));
    assert_eq!(all.strangers(), 0);
}

#[test]
fn what_others_log_and_trace_is_counted_and_left_out() {
    let now = Instant::now();
    let only = Traced {
        port: Some(53),
        ..Traced::default()
    };
    let mut all = LoggedPassages::new(OWN, &[only]);
    // Somebody else's rule has this packet traced: it comes by our chain, and is not what was asked for.
    begin(&mut all, PREROUTING, &datagram(1, CLIENT, 1, SERVICE, 80), now);
    all.take(
        &logged(
            "TRACE: nat:A:rule:1 ",
            PREROUTING,
            &datagram(1, CLIENT, 1, SERVICE, 80),
        ),
        now,
    );
    all.take(&logged("dropped: ", PREROUTING, &asked(2)), now);
    all.take(&logged("TRACE: nat:A:rule:1 ", PREROUTING, &[0x45, 1, 2]), now);
    assert_eq!(all.strangers(), 4);
    assert!(all.rest().is_empty());
}

#[test]
fn a_packet_of_which_nothing_more_is_told_ends_after_a_while_and_many_are_bounded() {
    let now = Instant::now();
    let mut all = all();
    begin(&mut all, PREROUTING, &asked(1), now);
    assert!(all.finished(now + LINGER).is_empty());
    let ended = all.finished(now + SILENCE);
    assert_eq!((ended.len(), ended[0].seen), (1, Seen::NoMore));
    for from in 0..2_000 {
        begin(&mut all, PREROUTING, &datagram(1, CLIENT, from, SERVICE, 53), now);
    }
    assert_eq!(all.rest().len(), MOST);
}

#[test]
fn a_later_packet_of_a_translated_connection_is_known_as_one() {
    let now = Instant::now();
    let mut all = with_one_at_its_last_hook(now);
    let mut passage = all.rest().remove(0);
    assert_eq!(passage.is_first, None);
    passage.leaves_as(PacketView::of(&translated(1)).unwrap());
    assert_eq!(passage.is_first, Some(false));
    assert_eq!(passage.met[0].became, None);
}
