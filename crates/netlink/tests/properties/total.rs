//! Any bytes are read without a panic.

use netlink::dump::{Dump, DumpError};
use netlink::message::{Message, Messages, Reply};
use netlink::nflog::{LegacyStep, Logged};
use netlink::nfnl::Family;
use netlink::nft::Expr;
use netlink::packet::{Fingerprint, PacketView};
use netlink::{conntrack, ipset, ipvs, nfacct, nft, sock_diag, xt};
use proptest::prelude::*;

use super::framed;

const CAPTURES: [&[u8]; 13] = [
    include_bytes!("../data/chain-rules.bin"),
    include_bytes!("../data/forms.v4.bin"),
    include_bytes!("../data/forms.v6.bin"),
    include_bytes!("../data/native.bin"),
    include_bytes!("../data/events.bin"),
    include_bytes!("../data/trace.bin"),
    include_bytes!("../data/legacy-trace.bin"),
    include_bytes!("../data/chains.bin"),
    include_bytes!("../data/conntrack.bin"),
    include_bytes!("../data/nfacct.bin"),
    include_bytes!("../data/error-text.bin"),
    include_bytes!("../data/own-table.bin"),
    include_bytes!("../data/own-table.ack.bin"),
];

/// Runs every decoder over a buffer.
fn read_everything(buffer: &[u8]) {
    let _ = Dump::new(1).read(buffer, |_| Ok::<(), DumpError>(()));
    for message in Messages::new(buffer) {
        let Ok(message) = message else { return };
        read_message(message);
        let _ = Reply::read(message);
    }
}

fn read_message(message: Message<'_>) {
    let _ = nft::dump_generation(message);
    for offset in (0..message.header.length.min(400)).step_by(3) {
        let _ = nft::element_at(message, offset);
    }
    let _ = conntrack::Message::read(message);
    let _ = nfacct::Object::read(message);
    if let Ok(Some(logged)) = Logged::read(message) {
        let _ = (
            LegacyStep::read(logged.prefix),
            PacketView::of(logged.payload),
            Fingerprint::of(logged.payload),
        );
    }
    let _ = ipset::read_name(message);
    let _ = sock_diag::Socket::read(message);
    let _ = (ipvs::read_family(message), ipvs::read_server(message));
    match nft::Message::read(message) {
        Ok(nft::Message::NewRule(rule) | nft::Message::DeletedRule(rule)) => {
            for expression in rule.expressions {
                read_xt(rule.family, expression);
            }
        }
        Ok(nft::Message::Trace(event)) => {
            let _ = (event.packet(), event.step());
        }
        _ => {}
    }
}

fn read_xt(family: Family, expression: Expr<'_>) {
    match expression {
        Expr::XtMatch { name, revision, info } => {
            let _ = xt::Match::read(family, name, revision, info);
        }
        Expr::XtTarget { name, revision, info } => {
            let _ = xt::Target::read(family, name, revision, info);
        }
        _ => {}
    }
}

const MATCHES: [&str; 15] = [
    "comment",
    "nfacct",
    "tcp",
    "udp",
    "sctp",
    "icmp",
    "icmp6",
    "multiport",
    "statistic",
    "addrtype",
    "mark",
    "set",
    "recent",
    "conntrack",
    "?",
];
const TARGETS: [&str; 7] = ["DNAT", "SNAT", "MASQUERADE", "REDIRECT", "MARK", "REJECT", "?"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read_everything(&bytes);
        let _ = PacketView::read(&bytes, &bytes);
        let _ = (PacketView::of(&bytes), Fingerprint::of(&bytes));
    }

    #[test]
    fn arbitrary_payloads_never_panic(
        subsystem in prop::sample::select(vec![0_u16, 1, 4, 6, 7, 10]),
        operation in 0_u16..24,
        flags in any::<u16>(),
        payload in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        read_everything(&framed(subsystem << 8 | operation, flags, &payload));
    }

    #[test]
    fn damaged_captures_never_panic(
        which in 0..CAPTURES.len(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = CAPTURES[which].to_vec();
        for (index, value) in damage {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        if is_cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        read_everything(&bytes);
    }

    #[test]
    fn arbitrary_structures_never_panic(
        name in prop::sample::select([&MATCHES[..], &TARGETS[..]].concat()),
        revision in 0_u32..6,
        family in prop::sample::select(vec![Family::Ipv4, Family::Ipv6, Family::Inet]),
        info in prop::collection::vec(any::<u8>(), 0..320),
    ) {
        let _ = xt::Match::read(family, name, revision, &info);
        let _ = xt::Target::read(family, name, revision, &info);
    }
}
