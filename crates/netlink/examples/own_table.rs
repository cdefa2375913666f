//! Writes to standard output the batch that makes a table of our own: it sets `nftrace` on packets of TCP to
//! 10.96.0.1 port 443 from the host, and on IPv6 packets with a mark. Sent by a netlink socket, it is carried out
//! whole; its last operation is acknowledged.

use std::io::Write;

use netlink::EncodeError;
use netlink::nfnl::{Batch, BatchBytes, Family};
use netlink::nft::{
    BitwiseOp, Change, CmpOp, Expr, Hook, MetaKey, NewBase, PayloadBase, Place, Policy, Register, Value,
};

/// Name of the table.
pub const TABLE: &str = "nlx-own";
/// Name of its base chain.
pub const CHAIN: &str = "trace-output";

const R1: Register = Register::R1;

const fn is(data: &[u8]) -> Expr<'_> {
    Expr::Cmp {
        sreg: R1,
        op: CmpOp::Eq,
        data,
    }
}

const SET_TRACE: [Expr<'_>; 2] = [
    Expr::Immediate {
        dreg: R1,
        value: Value::Data(&[1]),
    },
    Expr::MetaSet {
        sreg: R1,
        key: MetaKey::NfTrace,
    },
];

/// `meta nfproto ipv4 ip daddr 10.96.0.1 tcp dport 443 meta nftrace set 1`
pub const TO_SERVICE: [Expr<'_>; 10] = [
    Expr::Meta {
        dreg: R1,
        key: MetaKey::NfProto,
    },
    is(&[2]),
    Expr::Payload {
        dreg: R1,
        base: PayloadBase::Network,
        offset: 16,
        len: 4,
    },
    is(&[10, 96, 0, 1]),
    Expr::Meta {
        dreg: R1,
        key: MetaKey::L4Proto,
    },
    is(&[6]),
    Expr::Payload {
        dreg: R1,
        base: PayloadBase::Transport,
        offset: 2,
        len: 2,
    },
    is(&443_u16.to_be_bytes()),
    SET_TRACE[0],
    SET_TRACE[1],
];

/// `meta nfproto ipv6 meta mark and 0x4000 == 0x4000 meta nftrace set 1`
pub const MARKED: [Expr<'_>; 7] = [
    Expr::Meta {
        dreg: R1,
        key: MetaKey::NfProto,
    },
    is(&[10]),
    Expr::Meta {
        dreg: R1,
        key: MetaKey::Mark,
    },
    Expr::Bitwise {
        sreg: R1,
        dreg: R1,
        len: 4,
        op: BitwiseOp::MaskXor {
            mask: &0x4000_u32.to_ne_bytes(),
            xor: &[0; 4],
        },
    },
    is(&0x4000_u32.to_ne_bytes()),
    SET_TRACE[0],
    SET_TRACE[1],
];

/// The batch, without the owner flag, so that the table outlives the sender.
///
/// # Errors
/// Never with these names.
pub fn batch() -> Result<BatchBytes, EncodeError> {
    let family = Family::Inet;
    let base = NewBase {
        hook: Hook::Output,
        priority: -301,
        kind: "filter",
        policy: Policy::Accept,
    };
    let rule = |expressions, userdata| Change::NewRule {
        family,
        table: TABLE,
        chain: CHAIN,
        place: Place::Last,
        expressions,
        userdata,
    };
    let mut batch = Batch::new(10, None);
    batch.push(&Change::NewTable {
        family,
        name: TABLE,
        flags: 0,
    })?;
    batch.push(&Change::NewChain {
        family,
        table: TABLE,
        name: CHAIN,
        base: Some(base),
    })?;
    // nft reads user data of type 0 as a comment.
    batch.push(&rule(&TO_SERVICE, b"\0\x08service\0"))?;
    batch.push(&rule(&MARKED, b""))?;
    Ok(batch.finish().expect("four operations were pushed"))
}

#[allow(dead_code, reason = "a test uses the rest of this file as a module")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    std::io::stdout().write_all(&batch()?.bytes)?;
    Ok(())
}
