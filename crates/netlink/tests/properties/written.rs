//! What is written is read back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink::conntrack::{self, Direction, Filter, Layer4, Tuple};
use netlink::message::Messages;
use netlink::nfnl::{Batch, Family};
use netlink::nft::{Change, Expr, Place, Register, Value};
use netlink::{EncodeError, nfacct, nft};
use proptest::prelude::*;

use super::expression::{expression, parts};
use super::framed;

fn address(v6: bool, number: u128) -> IpAddr {
    if v6 {
        return Ipv6Addr::from(number).into();
    }
    let [.., a, b, c, d] = number.to_be_bytes();
    Ipv4Addr::new(a, b, c, d).into()
}

fn tuple() -> impl Strategy<Value = Tuple> {
    (
        any::<bool>(),
        any::<[u128; 2]>(),
        any::<[u16; 2]>(),
        0..4_u8,
        any::<[u8; 2]>(),
    )
        .prop_map(|(v6, addresses, [first, second], form, [kind, code])| {
            let icmp = if v6 { 58 } else { 1 };
            let ports = Layer4::Ports {
                source: first,
                destination: second,
            };
            let (protocol, layer4) = match form {
                0 => (6, ports),
                1 => (17, ports),
                2 => (
                    icmp,
                    Layer4::Icmp {
                        id: first,
                        kind,
                        code,
                    },
                ),
                _ => (47, Layer4::None),
            };
            let [source, destination] = addresses.map(|number| address(v6, number));
            Tuple {
                source,
                destination,
                protocol,
                layer4,
                zone: (first & 1 == 1).then_some(second),
            }
        })
}

/// `CTA_TUPLE_REPLY` and `CTA_TUPLE_ORIG` are written alike, so an entry can be made of two requests.
fn entry_of(original: Tuple, reply: Tuple) -> conntrack::Entry {
    let mut payload = vec![original.family().code(), 0, 0, 0];
    for (direction, tuple) in [(Direction::Original, original), (Direction::Reply, reply)] {
        let mut request = Vec::new();
        conntrack::Request::Get {
            direction,
            tuple,
            zone: None,
        }
        .encode(1, &mut request)
        .unwrap();
        payload.extend(&request[20..]);
    }
    let bytes = framed(1 << 8, 0, &payload);
    let message = Messages::new(&bytes).next().unwrap().unwrap();
    match conntrack::Message::read(message).unwrap() {
        conntrack::Message::Entry(entry) => entry,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn expressions_are_read_back_as_they_were_written(
        all in prop::collection::vec(parts(), 0..12),
        userdata in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let expressions: Vec<_> = all.iter().map(expression).collect();
        let change = Change::NewRule {
            family: Family::Ipv4,
            table: "nat",
            chain: "KUBE-SERVICES",
            place: Place::Replace(77),
            expressions: &expressions,
            userdata: &userdata,
        };
        let mut batch = Batch::new(5, Some(3));
        batch.push(&change).unwrap();
        let open = batch.clone().rehearsal().unwrap();
        let batch = batch.finish().unwrap();
        // The same, but for the message that makes it count: a header and the family's word.
        assert_eq!(batch.bytes.len(), open.bytes.len() + 20);
        assert!(batch.bytes.starts_with(&open.bytes));
        let message = Messages::new(&batch.bytes).nth(1).unwrap().unwrap();
        let nft::Message::NewRule(rule) = nft::Message::read(message).unwrap() else { panic!("not a rule") };
        prop_assert_eq!(rule.expressions, expressions);
        prop_assert_eq!(rule.userdata, userdata);
        prop_assert_eq!((rule.family, rule.table, rule.chain), (Family::Ipv4, "nat", "KUBE-SERVICES"));
        prop_assert_eq!(rule.handle, 77);
    }

    #[test]
    fn conntrack_tuples_are_read_back_as_they_were_written(original in tuple(), reply in tuple()) {
        let entry = entry_of(original, reply);
        prop_assert_eq!((entry.original, entry.reply), (original, reply));
    }

    #[test]
    fn every_request_is_whole_messages(name in "\\PC{0,40}", sequence in any::<u32>(), tuple in tuple()) {
        let name = name.as_str();
        let family = Family::Ipv6;
        let mut buffer = Vec::new();
        let mut written = 0;
        let nft_requests = [
            nft::Request::Generation,
            nft::Request::Tables { family },
            nft::Request::Chain { family, table: name, name },
            nft::Request::ChainRules { family, table: name, chain: name },
            nft::Request::Rule { family, table: name, chain: name, handle: 1 },
        ];
        for request in nft_requests {
            written += usize::from(request.encode(sequence, &mut buffer).is_ok());
        }
        for request in [nfacct::Request::New { name }, nfacct::Request::Dump] {
            written += usize::from(request.encode(sequence, &mut buffer).is_ok());
        }
        let filter = Filter { protocol: Some(17), destination: Some(tuple.destination), ..Filter::default() };
        let requests = [
            conntrack::Request::Dump { family, filter },
            conntrack::Request::Delete { direction: Direction::Original, tuple, id: Some(4), zone: None },
        ];
        for request in requests {
            written += usize::from(request.encode(sequence, &mut buffer).is_ok());
        }
        let read: Vec<_> = Messages::new(&buffer).map(Result::unwrap).collect();
        prop_assert_eq!(read.len(), written);
        prop_assert!(read.iter().all(|message| message.header.sequence == sequence));
    }
}

#[test]
fn a_value_that_cannot_be_carried_leaves_the_buffer_as_it_was() {
    let mut buffer = vec![1, 2, 3, 4];
    let long = "x".repeat(256);
    let request = nft::Request::TableRules {
        family: Family::Ipv4,
        table: &long,
    };
    assert_eq!(
        request.encode(1, &mut buffer),
        Err(EncodeError::NameTooLong {
            length: 256,
            limit: 255
        })
    );
    let request = nft::Request::TableRules {
        family: Family::Ipv4,
        table: "a\0b",
    };
    assert_eq!(request.encode(1, &mut buffer), Err(EncodeError::NulInText(1)));
    let request = nfacct::Request::New {
        name: "a_name_of_thirty_two_characters_",
    };
    assert_eq!(
        request.encode(1, &mut buffer),
        Err(EncodeError::NameTooLong {
            length: 32,
            limit: 31
        })
    );
    assert_eq!(buffer, [1, 2, 3, 4]);
}

#[test]
fn a_rule_that_is_too_long_is_refused_and_the_batch_goes_on() {
    let data = vec![0; 70_000];
    let expressions = [Expr::Immediate {
        dreg: Register::R1,
        value: Value::Data(&data),
    }];
    let rule = Change::NewRule {
        family: Family::Ipv4,
        table: "t",
        chain: "c",
        place: Place::Last,
        expressions: &expressions,
        userdata: &[],
    };
    let mut batch = Batch::new(1, None);
    assert!(matches!(
        batch.push(&rule),
        Err(EncodeError::AttributeTooLong { .. })
    ));
    assert!(batch.is_empty());
    batch
        .push(&Change::DeleteTable {
            family: Family::Ipv4,
            name: "t",
        })
        .unwrap();
    let batch = batch.finish().unwrap();
    assert_eq!(Messages::new(&batch.bytes).count(), 3);
}

#[test]
fn an_empty_batch_is_nothing_to_send() {
    assert_eq!(Batch::new(1, Some(2)).finish(), None);
}
