//! Requests byte by byte, and bytes at the edge of what can be read.

use netlink::attr::{Attr, Attrs};
use netlink::conntrack::{self, Direction, Layer4, Tuple};
use netlink::message::{Messages, Reply};
use netlink::nfnl::{Batch, Family};
use netlink::nft::{self, Change, Expr, Place};
use netlink::{DecodeError, DecodeErrorKind, Errno, nfacct};

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn a_batch_is_begin_operations_and_end_with_one_ack() {
    let mut batch = Batch::new(0x10, Some(7));
    for handle in [0x2a, 0x2b] {
        let rule = Change::DeleteRule {
            family: Family::Ipv4,
            table: "nat",
            chain: "A",
            handle,
        };
        batch.push(&rule).unwrap();
    }
    let want = hex(
        // Length, type 0x10, flags REQUEST, sequence, port; subsystem 10; generation 7.
        "1c000000 1000 0100 10000000 00000000  0000000a  0800 0100 00000007
         30000000 080a 0100 11000000 00000000  02000000
             0800 0100 6e617400  0600 0200 41000000  0c00 0300 000000000000002a
         30000000 080a 0500 12000000 00000000  02000000
             0800 0100 6e617400  0600 0200 41000000  0c00 0300 000000000000002b
         14000000 1100 0100 13000000 00000000  0000000a",
    );
    let batch = batch.finish().unwrap();
    assert_eq!(batch.bytes, want);
    assert_eq!(
        (batch.begin_sequence, batch.first_operation, batch.last_operation),
        (0x10, 0x11, 0x12)
    );
    assert_eq!(batch.next_sequence(), 0x14);
}

#[test]
fn a_rules_place_is_told_by_flags_and_handle() {
    // REQUEST is 1, ACK 4, REPLACE 0x100, CREATE 0x400, APPEND 0x800; HANDLE is attribute 3, POSITION 6.
    let cases = [
        (Place::Last, 0xc05, None),
        (Place::First, 0x405, None),
        (Place::After(9), 0xc05, Some(6)),
        (Place::Before(9), 0x405, Some(6)),
        (Place::Replace(9), 0x105, Some(3)),
    ];
    for (place, flags, attribute) in cases {
        let mut batch = Batch::new(1, None);
        let family = Family::Ipv4;
        let rule = Change::NewRule {
            family,
            table: "t",
            chain: "c",
            place,
            expressions: &[],
            userdata: &[],
        };
        batch.push(&rule).unwrap();
        let bytes = batch.finish().unwrap().bytes;
        let message = Messages::new(&bytes).nth(1).unwrap().unwrap();
        assert_eq!(message.header.flags, flags, "{place:?}");
        let attributes = Attrs::new(&message.payload[4..], "rule", 20).map(Result::unwrap);
        let handle = attributes
            .filter(|attr| attr.value == 9_u64.to_be_bytes())
            .map(|attr| attr.kind)
            .last();
        assert_eq!(handle, attribute, "{place:?}");
    }
}

#[test]
fn a_dump_of_a_chain_is_a_filtered_dump() {
    let mut have = Vec::new();
    let request = nft::Request::ChainRules {
        family: Family::Ipv6,
        table: "nat",
        chain: "AB",
    };
    request.encode(1, &mut have).unwrap();
    let want = "24000000 070a 0103 01000000 00000000 0a000000 0800 0100 6e617400 0700 0200 41420000";
    assert_eq!(have, hex(want));
}

#[test]
fn a_new_accounting_object_must_not_exist() {
    // Without EXCL the kernel answers EBUSY for an object that is there.
    let mut have = Vec::new();
    nfacct::Request::New { name: "abc" }.encode(1, &mut have).unwrap();
    assert_eq!(
        have,
        hex("1c000000 0007 0506 01000000 00000000 00000000 0800 0100 61626300")
    );
}

#[test]
fn a_deletion_of_a_connection_names_tuple_and_id() {
    let tuple = Tuple {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.96.0.10".parse().unwrap(),
        protocol: 17,
        layer4: Layer4::Ports {
            source: 0x1234,
            destination: 53,
        },
        zone: None,
    };
    let mut have = Vec::new();
    let request = conntrack::Request::Delete {
        direction: Direction::Original,
        tuple,
        id: Some(9),
        zone: None,
    };
    request.encode(1, &mut have).unwrap();
    let want = hex("50000000 0201 0500 01000000 00000000 02000000
         3400 0180  1400 0180 0800 0100 0a000001 0800 0200 0a60000a
                    1c00 0280 0500 0100 11000000 0600 0200 12340000 0600 0300 00350000
         0800 0c00 00000009");
    assert_eq!(have, want);
}

#[test]
fn the_last_attribute_may_lack_its_padding() {
    let bytes = hex("0500 0100 aa");
    let read: Vec<_> = Attrs::new(&bytes, "test", 20).collect();
    assert_eq!(
        read,
        [Ok(Attr {
            kind: 1,
            value: &[0xaa],
            offset: 24
        })]
    );
}

#[test]
fn an_attribute_longer_than_its_nest_is_told_with_its_place() {
    let bytes = hex("0800 0100 00000001 0900 0200 00000002");
    let read: Vec<_> = Attrs::new(&bytes, "test", 20).collect();
    let want = DecodeError {
        what: "test",
        offset: 28,
        kind: DecodeErrorKind::BadLength(9),
    };
    assert_eq!(read.len(), 2);
    assert_eq!(read[1], Err(want));
    assert_eq!(want.to_string(), "test: length field says 9 (at byte 28)");
}

#[test]
fn a_cut_message_is_told_and_ends_the_buffer() {
    let bytes = hex("14000000 0300 0200 01000000 00000000 00000000 ffff0000 0300 0200 01000000 00000000");
    let read: Vec<_> = Messages::new(&bytes).collect();
    assert_eq!(read.len(), 2);
    assert!(read[0].is_ok());
    assert_eq!(
        read[1],
        Err(DecodeError {
            what: "netlink message",
            offset: 20,
            kind: DecodeErrorKind::BadLength(0xffff)
        })
    );
}

/// A rule in a message, with one expression of the given name and data.
fn rule_with(name: &str, data: &str) -> Vec<u8> {
    let attr = |kind: u16, value: &[u8]| {
        let length = u16::try_from(4 + value.len()).unwrap();
        let mut bytes = [length.to_le_bytes(), kind.to_le_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let expression = [attr(1, name.as_bytes()), attr(2, &hex(data))].concat();
    let body = [
        hex("02000000"),
        attr(1, b"t\0"),
        attr(2, b"c\0"),
        attr(3, &[0; 8]),
        attr(4, &attr(1, &expression)),
    ];
    let body = body.concat();
    let length = u32::try_from(16 + body.len()).unwrap();
    [
        length.to_le_bytes().to_vec(),
        hex("060a 0000 00000000 00000000"),
        body,
    ]
    .concat()
}

fn only_expression<'a>(bytes: &'a [u8], check: impl FnOnce(&Expr<'a>)) {
    let message = Messages::new(bytes).next().unwrap().unwrap();
    let nft::Message::NewRule(rule) = nft::Message::read(message).unwrap() else {
        panic!("not a rule")
    };
    assert_eq!(rule.expressions.len(), 1);
    check(&rule.expressions[0]);
}

#[test]
fn an_expression_with_more_than_is_known_is_kept_as_bytes() {
    let load = "0800 0100 00000001  0800 0200 00000001  0800 0300 00000010  0800 0400 00000004";
    only_expression(&rule_with("payload", load), |expression| {
        assert!(
            matches!(
                expression,
                Expr::Payload {
                    offset: 16,
                    len: 4,
                    ..
                }
            ),
            "{expression:?}"
        );
    });
    let cases = [
        (
            "an attribute of a later kernel",
            format!("{load} 0800 0900 00000001"),
        ),
        ("an attribute twice", format!("{load} 0800 0400 00000002")),
        (
            "an unknown base",
            load.replace("0800 0200 00000001", "0800 0200 00000009"),
        ),
        (
            "a number of two bytes",
            load.replace("0800 0300 00000010", "0600 0300 00100000"),
        ),
        ("an attribute that is cut", format!("{load} 0900 0500 00000001")),
        ("no length", load.replace("0800 0400 00000004", "")),
    ];
    for (case, data) in cases {
        let want = hex(&data);
        only_expression(&rule_with("payload", &data), |expression| {
            assert_eq!(
                expression,
                &Expr::Other {
                    name: "payload",
                    raw: &want
                },
                "{case}"
            );
        });
    }
}

#[test]
fn an_expression_of_an_unknown_name_is_kept_as_bytes() {
    only_expression(&rule_with("tunnel", "0800 0100 00000001"), |expression| {
        assert_eq!(
            expression,
            &Expr::Other {
                name: "tunnel",
                raw: &hex("0800 0100 00000001")
            }
        );
    });
}

#[test]
fn a_dumps_end_may_carry_an_error() {
    let bytes = hex("14000000 0300 0200 01000000 00000000 fcffffff");
    let reply = Reply::read(Messages::new(&bytes).next().unwrap().unwrap()).unwrap();
    let Reply::Done(Some(error)) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(error.errno, Errno::EINTR);
}
