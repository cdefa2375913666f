//! Rules that `nft` wrote (`native.nft`), expression by expression, and the proof that nothing is lost.

use netlink::nfnl::{Batch, Family};
use netlink::nft::{
    Change, CmpOp, Counters, CtKey, Expr, FibResult, LimitType, Message, MetaKey, NatType, NumgenType,
    PayloadBase, Place, RangeOp, Register, RejectType, Rule, Value, Verdict,
};

use super::{data, messages};

fn rules(bytes: &[u8]) -> Vec<Rule<'_>> {
    let read = messages(bytes)
        .into_iter()
        .map(|message| match Message::read(message).unwrap() {
            Message::NewRule(rule) => rule,
            other => panic!("not a rule: {other:?}"),
        });
    read.collect()
}

/// The rules of a chain of the capture.
fn chain<'a>(rules: &'a [Rule<'a>], name: &str) -> Vec<&'a [Expr<'a>]> {
    rules
        .iter()
        .filter(|rule| rule.chain == name)
        .map(|rule| rule.expressions.as_slice())
        .collect()
}

const R1: Register = Register(1);

#[test]
fn nat_expressions_are_read() {
    let bytes = data("native.bin");
    let rules = rules(&bytes);
    let nat = chain(&rules, "nat");
    // masquerade fully-random
    let fully_random = Expr::Masq {
        flags: Some(0x10),
        proto_min: None,
        proto_max: None,
    };
    assert_eq!(nat[0].last(), Some(&fully_random));
    // snat ip to 192.0.2.1
    let source = Expr::Nat {
        kind: NatType::Snat,
        family: 2,
        addr_min: Some(R1),
        addr_max: Some(R1),
        proto_min: None,
        proto_max: None,
        flags: Some(1),
    };
    let address = Expr::Immediate {
        dreg: R1,
        value: Value::Data(&[192, 0, 2, 1]),
    };
    assert_eq!(nat[1][nat[1].len() - 2..], [address, source]);
    // oifname "eth*"
    assert!(nat[1].contains(&Expr::Cmp {
        sreg: R1,
        op: CmpOp::Eq,
        data: b"eth"
    }));
}

#[test]
fn lookups_fib_redirect_and_numgen_are_read() {
    let bytes = data("native.bin");
    let rules = rules(&bytes);
    let pre = chain(&rules, "pre");
    // ip daddr . meta l4proto . th dport vmap @services
    let services = Expr::Lookup {
        set: "services",
        sreg: R1,
        dreg: Some(Register::VERDICT),
        inverted: false,
    };
    assert_eq!(pre[0].last(), Some(&services));
    assert!(pre[0].contains(&Expr::Payload {
        dreg: Register(10),
        base: PayloadBase::Transport,
        offset: 2,
        len: 2
    }));
    // ip saddr != @allowed fib daddr type local goto target
    let allowed = Expr::Lookup {
        set: "allowed",
        sreg: R1,
        dreg: None,
        inverted: true,
    };
    let local = Expr::Fib {
        dreg: R1,
        result: FibResult::AddrType,
        flags: 2,
    };
    assert!(pre[1].contains(&allowed) && pre[1].contains(&local));
    assert_eq!(pre[1].last().unwrap().as_verdict(), Some(Verdict::Goto("target")));
    // redirect to :8080
    let redirect = Expr::Redir {
        flags: Some(2),
        proto_min: Some(R1),
        proto_max: Some(R1),
    };
    assert_eq!(pre[2].last(), Some(&redirect));
    // numgen random mod 2
    assert_eq!(
        pre[3][0],
        Expr::Numgen {
            dreg: R1,
            modulus: 2,
            kind: NumgenType::Random,
            offset: 0
        }
    );
}

#[test]
fn filter_expressions_are_read() {
    let bytes = data("native.bin");
    let rules = rules(&bytes);
    let filter = chain(&rules, "flt");
    assert_eq!(
        filter[0][0],
        Expr::Ct {
            dreg: R1,
            key: CtKey::State,
            direction: None
        }
    );
    assert_eq!(
        filter[1][1],
        Expr::CtSet {
            sreg: R1,
            key: CtKey::Mark,
            direction: None
        }
    );
    assert_eq!(
        filter[2][1],
        Expr::MetaSet {
            sreg: R1,
            key: MetaKey::NfTrace
        }
    );
    // limit rate 10/second burst 5 packets counter packets 3 bytes 180
    let limit = Expr::Limit {
        rate: 10,
        unit: 1,
        burst: Some(5),
        kind: LimitType::Packets,
        flags: Some(0),
    };
    assert_eq!(
        filter[3],
        [
            limit,
            Expr::Counter(Counters {
                packets: 3,
                bytes: 180
            })
        ]
    );
    let log = Expr::Log {
        group: None,
        prefix: Some("nlx: "),
        snaplen: None,
        threshold: None,
        level: Some(6),
        flags: None,
    };
    assert_eq!(filter[4], [log]);
}

#[test]
fn log_groups_rejections_and_ranges_are_read() {
    let bytes = data("native.bin");
    let rules = rules(&bytes);
    let filter = chain(&rules, "flt");
    assert!(matches!(filter[5], [Expr::Log { group: Some(5), .. }]));
    assert_eq!(
        filter[6],
        [Expr::Reject {
            kind: RejectType::IcmpxUnreachable,
            code: Some(1)
        }]
    );
    assert_eq!(
        filter[7].last(),
        Some(&Expr::Reject {
            kind: RejectType::TcpReset,
            code: None
        })
    );
    // tcp dport != 1000-2000
    let outside = Expr::Range {
        sreg: R1,
        op: RangeOp::Neq,
        from: &[3, 232],
        to: &[7, 208],
    };
    assert!(filter[8].contains(&outside));
}

#[test]
fn a_write_into_the_packet_is_kept_as_bytes() {
    let bytes = data("native.bin");
    let rules = rules(&bytes);
    let filter = chain(&rules, "flt");
    let Some(Expr::Other { name: "payload", raw }) = filter[9].last() else {
        panic!("{:?}", filter[9])
    };
    // Seven attributes of one number each.
    assert_eq!(raw.len(), 7 * 8);
}

/// Nested attributes as a tree in the order of their types, without the nest flag, which the kernel leaves away.
/// Whether bytes are a nest is told by whether they read as one.
fn normal(bytes: &[u8], depth: usize) -> String {
    let mut parts = Vec::new();
    let mut rest = bytes;
    while depth > 0 && rest.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let kind = u16::from_ne_bytes([rest[2], rest[3]]) & 0x3fff;
        if length < 4 || length > rest.len() || kind == 0 || kind > 12 {
            break;
        }
        parts.push(format!("{kind}={}", normal(&rest[4..length], depth - 1)));
        rest = &rest[(length.div_ceil(4) * 4).min(rest.len())..];
    }
    if parts.is_empty() || !rest.is_empty() {
        return format!("{bytes:02x?}");
    }
    parts.sort();
    format!("{{{}}}", parts.join(" "))
}

/// The payload of an `NFTA_RULE_EXPRESSIONS` attribute in a rule's message.
fn expressions(payload: &[u8]) -> &[u8] {
    let attributes = netlink::attr::Attrs::new(&payload[4..], "rule", 0);
    attributes
        .map(Result::unwrap)
        .find(|attr| attr.kind == 4)
        .unwrap()
        .value
}

#[test]
fn what_was_read_is_written_again_as_it_was() {
    let names = [
        "kube.v4",
        "kube.v6",
        "forms.v4",
        "forms.v6",
        "native",
        "own-table",
    ];
    let mut count = 0;
    for name in names {
        let bytes = data(&format!("{name}.bin"));
        for message in messages(&bytes) {
            let Message::NewRule(rule) = Message::read(message).unwrap() else {
                panic!("not a rule")
            };
            let mut batch = Batch::new(0, None);
            let change = Change::NewRule {
                family: Family::Inet,
                table: "t",
                chain: "c",
                place: Place::Last,
                expressions: &rule.expressions,
                userdata: &[],
            };
            batch.push(&change).unwrap();
            let written = batch.finish().unwrap();
            let again = messages(&written.bytes)[1].payload;
            for (have, want) in elements(expressions(again)).zip(elements(expressions(message.payload))) {
                assert_eq!(normal(have, 5), normal(want, 5), "{name} {rule:?}");
                count += 1;
            }
        }
    }
    assert!(count > 800, "{count} expressions");
}

fn elements(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    netlink::attr::Attrs::new(list, "list", 0).map(|attr| attr.unwrap().value)
}
