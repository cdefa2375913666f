use super::*;
use crate::message::Messages;
use crate::write::MessageWriter;

fn step<'a>(table: &'a str, chain: &'a str, kind: StepKind, number: u32) -> LegacyStep<'a> {
    LegacyStep {
        table,
        chain,
        kind,
        number,
    }
}

#[test]
fn a_prefix_is_table_chain_kind_and_number() {
    for (prefix, want) in [
        (
            "TRACE: nat:KUBE-SERVICES:rule:12 ",
            step("nat", "KUBE-SERVICES", StepKind::Rule, 12),
        ),
        (
            "TRACE: raw:PREROUTING:policy:2 ",
            step("raw", "PREROUTING", StepKind::Policy, 2),
        ),
        (
            "TRACE: filter:Y:return:1 ",
            step("filter", "Y", StepKind::Return, 1),
        ),
    ] {
        assert_eq!(LegacyStep::read(prefix), Some(want), "{prefix}");
    }
}

#[test]
fn a_chain_may_be_called_like_a_prefix() {
    for chain in [
        "a:b",
        ":",
        "x:rule:7",
        "x:rule:7 ",
        "TRACE: nat:y:policy:1 ",
        "ü",
        "rule",
        "-j DROP",
    ] {
        let prefix = format!("TRACE: filter:{chain}:return:3 ");
        let want = step("filter", chain, StepKind::Return, 3);
        assert_eq!(LegacyStep::read(&prefix), Some(want), "{prefix}");
    }
}

#[test]
fn what_is_no_prefix_of_a_trace_is_none() {
    for prefix in [
        "",
        "TRACE: ",
        "TRACE: nat",
        "TRACE: nat:A:rule:1",
        "trace: nat:A:rule:1 ",
        " TRACE: nat:A:rule:1 ",
        "TRACE: nat:A:rule: ",
        "TRACE: nat:A:rule:0 ",
        "TRACE: nat:A:rule:-1 ",
        "TRACE: nat:A:rule:+1 ",
        "TRACE: nat:A:rule:1  ",
        "TRACE: nat:A:rule:99999999999 ",
        "TRACE: nat:A:jump:1 ",
        "TRACE: nat:rule:1 ",
        "TRACE: :A:rule:1 ",
        "TRACE: nat::rule:1 ",
        "dropped by the firewall: ",
    ] {
        assert_eq!(LegacyStep::read(prefix), None, "{prefix:?}");
    }
}

fn packet(prefix: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = MessageWriter::begin(&mut bytes, 4 << 8, 0, 0);
    writer.fixed(&[2, 0, 0, 0]);
    writer.bytes(at::HEADER, &[8, 0, 3, 0]);
    writer.u32(at::OUT_DEVICE, 4);
    writer.u32(at::MARK, 0x4000);
    writer.bytes(at::PREFIX, prefix);
    writer.bytes(at::PAYLOAD, &[0x45; 24]);
    writer.finish().unwrap();
    bytes
}

#[test]
fn a_packet_is_read_with_its_hook_its_mark_and_its_interfaces() {
    let bytes = packet(b"TRACE: raw:OUTPUT:policy:2 \0");
    let message = Messages::new(&bytes).next().unwrap().unwrap();
    let logged = Logged::read(message).unwrap().unwrap();
    assert_eq!(
        (logged.family, logged.hook, logged.mark, logged.iif, logged.oif),
        (Family::Ipv4, 3, 0x4000, None, Some(4))
    );
    assert_eq!(
        (logged.prefix, logged.payload.len()),
        ("TRACE: raw:OUTPUT:policy:2 ", 24)
    );
}

#[test]
fn a_prefix_that_is_not_text_harms_nobody() {
    let bytes = packet(b"\xff\xfe\0");
    let message = Messages::new(&bytes).next().unwrap().unwrap();
    assert_eq!(Logged::read(message).unwrap().unwrap().prefix, "");
}

#[test]
fn listening_is_asked_for_as_the_kernel_takes_it() {
    let mut bytes = Vec::new();
    Listen { group: 5, bytes: 128 }.encode(9, &mut bytes).unwrap();
    let message = Messages::new(&bytes).next().unwrap().unwrap();
    assert_eq!(
        (message.header.kind, message.header.flags, message.header.sequence),
        (0x401, 5, 9)
    );
    assert_eq!(message.payload[..4], [0, 0, 0, 5]);
    assert_eq!(message.payload[4..12], [5, 0, 1, 0, 1, 0, 0, 0]);
    assert_eq!(message.payload[12..22], [10, 0, 2, 0, 0, 0, 0, 128, 2, 0]);
}
