//! The expressions of one rule.

use super::encode::{WORD, address_length, length_of};
use crate::nft::family;
use ipnet::IpNet;
use model::{Family, Mark, balance};
use netlink::nft::{
    BitwiseOp, CmpOp, CtKey, DynsetOp, Expr, FibResult, MetaKey, NatType, NumgenType, PayloadBase, Register,
    RejectType, Verdict,
};
use nftables::ast::{Action, InterfaceName, Match, Name, Part};
use nftables::wire;

/// Template of the name of a map that goes with its rule.
pub(super) const ANONYMOUS_MAP: &str = "__map%d";

/// The first of the registers of one word (`NFT_REG32_00`).
const FIRST_WORD: u32 = 8;
const R1: Register = Register::R1;

/// The register for what begins so many bytes into a key. At multiples of 16 the wide registers are the same space.
pub(super) fn register(offset: u32) -> Register {
    if offset.is_multiple_of(16) {
        Register(1 + offset / 16)
    } else {
        Register(FIRST_WORD + offset / WORD)
    }
}

/// The bytes that a rule's expressions borrow, in the order in which they need them.
pub(super) struct Words {
    pub(super) of: Family,
    pub(super) bytes: Vec<Vec<u8>>,
}

pub(super) const RTN_LOCAL: u32 = 2;
pub(super) const STATE_NEW: u32 = 8;
pub(super) const STATUS_DNAT: u32 = 0x20;

impl Words {
    pub(super) fn of_match(&mut self, part: &Match) {
        match part {
            Match::In(..) | Match::NotIn(..) => {}
            Match::SourceIn(net)
            | Match::SourceNotIn(net)
            | Match::DestinationIn(net)
            | Match::DestinationNotIn(net) => self.of_network(net),
            Match::Interface(name) | Match::NotInterface(name) => self.bytes.push(match name {
                InterfaceName::BeginsWith(start) => start.as_bytes().to_vec(),
                InterfaceName::Is(name) => {
                    let mut bytes = name.as_bytes().to_vec();
                    bytes.resize(16, 0);
                    bytes
                }
            }),
            Match::SourceIsLocal | Match::DestinationIsLocal => self.number(RTN_LOCAL),
            Match::StateNew => self.bits(STATE_NEW),
            Match::StatusDnat => self.bits(STATUS_DNAT),
            Match::Marked(mark) => self.bits(mark.value()),
        }
    }

    pub(super) fn of_action(&mut self, action: &Action) {
        match action {
            Action::SetMark(mark) => self.mask(!mark.value(), *mark),
            Action::FlipMark(mark) => self.mask(u32::MAX, *mark),
            _ => {}
        }
    }

    fn number(&mut self, number: u32) {
        self.bytes.push(number.to_ne_bytes().to_vec());
    }

    /// A mask, no bits flipped, compared with zero.
    fn bits(&mut self, mask: u32) {
        for number in [mask, 0, 0] {
            self.number(number);
        }
    }

    fn mask(&mut self, kept: u32, mark: Mark) {
        self.number(kept);
        self.number(mark.value());
    }

    fn of_network(&mut self, net: &IpNet) {
        if net.prefix_len() < net.max_prefix_len() {
            self.bytes.push(wire::octets(net.netmask()));
            self.bytes.push(vec![0; address_length(self.of) as usize]);
        }
        self.bytes.push(wire::octets(net.network()));
    }
}

/// A rule's expressions, as far as they are made.
pub(super) struct Expressions<'a, I> {
    pub(super) of: Family,
    pub(super) bytes: I,
    pub(super) all: Vec<Expr<'a>>,
}

impl<'a, I: Iterator<Item = &'a Vec<u8>>> Expressions<'a, I> {
    fn next(&mut self) -> &'a [u8] {
        self.bytes
            .next()
            .expect("invariant: every expression's bytes were made before")
    }

    pub(super) fn matched(&mut self, part: &'a Match) {
        match part {
            Match::In(key, set) => self.lookup(key, set, None, false),
            Match::NotIn(key, set) => self.lookup(key, set, None, true),
            Match::SourceIn(net) => self.network(Part::Source, net, CmpOp::Eq),
            Match::SourceNotIn(net) => self.network(Part::Source, net, CmpOp::Neq),
            Match::DestinationIn(net) => self.network(Part::Destination, net, CmpOp::Eq),
            Match::DestinationNotIn(net) => self.network(Part::Destination, net, CmpOp::Neq),
            Match::Interface(_) => self.interface(CmpOp::Eq),
            Match::NotInterface(_) => self.interface(CmpOp::Neq),
            Match::SourceIsLocal => self.fib(FIB_SOURCE),
            Match::DestinationIsLocal => self.fib(FIB_DESTINATION),
            Match::StateNew => self.has_bits(ct(CtKey::State)),
            Match::StatusDnat => self.has_bits(ct(CtKey::Status)),
            Match::Marked(_) => self.has_bits(Expr::Meta {
                dreg: R1,
                key: MetaKey::Mark,
            }),
        }
    }

    pub(super) fn acted(&mut self, action: &'a Action) {
        match action {
            Action::Jump(chain) => self.all.push(Expr::verdict(Verdict::Jump(chain.as_str()))),
            Action::Goto(chain) => self.all.push(Expr::verdict(Verdict::Goto(chain.as_str()))),
            // Its map comes before the rule.
            Action::JumpRandom(_) | Action::JumpHashed(_) => {}
            Action::SetMark(_) | Action::FlipMark(_) => self.mark(),
            Action::DnatTo(key, map) => self.dnat(key, map),
            Action::Masquerade => self.all.push(Expr::Masq {
                flags: Some(FULLY_RANDOM),
                proto_min: None,
                proto_max: None,
            }),
            Action::Reject => {
                let code = match self.of {
                    Family::V4 => ICMP_PORT_UNREACHABLE,
                    Family::V6 => ICMPV6_PORT_UNREACHABLE,
                };
                self.all.push(Expr::Reject {
                    kind: RejectType::IcmpUnreachable,
                    code: Some(code),
                });
            }
            Action::Drop => self.all.push(Expr::verdict(Verdict::Drop)),
            Action::Remember { key, set, timeout } => {
                self.dynset(key, set, DynsetOp::Update, Some(u64::from(*timeout) * 1000));
            }
            Action::Forget { key, set } => self.dynset(key, set, DynsetOp::Delete, None),
        }
    }

    pub(super) fn thrown(&mut self, sides: usize, id: u32) {
        self.all.push(Expr::Numgen {
            dreg: R1,
            modulus: number_of(sides),
            kind: NumgenType::Random,
            offset: 0,
        });
        self.goes_by(id);
    }

    /// The address is read from a register of its own, as `nft` does it.
    pub(super) fn hashed(&mut self, sides: usize, id: u32) {
        self.all.push(load(Part::Source, self.of, Register::R2));
        self.all.push(Expr::Hash {
            sreg: Register::R2,
            dreg: R1,
            len: address_length(self.of),
            modulus: number_of(sides),
            seed: Some(balance::SEED),
            offset: 0,
        });
        self.goes_by(id);
    }

    fn goes_by(&mut self, id: u32) {
        self.all.push(Expr::LookupNew {
            set: ANONYMOUS_MAP,
            id,
            sreg: R1,
            dreg: Register::VERDICT,
        });
    }

    /// Loads the parts of a key one behind the other.
    fn load(&mut self, key: &[Part]) {
        let mut offset = 0;
        for part in key {
            self.all.push(load(*part, self.of, register(offset)));
            offset += length_of(*part, self.of).next_multiple_of(WORD);
        }
    }

    fn lookup(&mut self, key: &[Part], set: &'a Name, dreg: Option<Register>, inverted: bool) {
        self.load(key);
        self.all.push(Expr::Lookup {
            set: set.as_str(),
            sreg: R1,
            dreg,
            inverted,
        });
    }

    fn dnat(&mut self, key: &[Part], map: &'a Name) {
        self.lookup(key, map, Some(R1), false);
        self.all.push(Expr::Nat {
            kind: NatType::Dnat,
            family: u32::from(family(self.of).code()),
            addr_min: Some(R1),
            addr_max: None,
            proto_min: Some(register(address_length(self.of))),
            proto_max: None,
            flags: None,
        });
    }

    fn dynset(&mut self, key: &[Part], set: &'a Name, op: DynsetOp, timeout: Option<u64>) {
        self.load(key);
        self.all.push(Expr::Dynset {
            set: set.as_str(),
            op,
            sreg: R1,
            timeout,
        });
    }

    fn network(&mut self, part: Part, net: &IpNet, op: CmpOp) {
        self.all.push(load(part, self.of, R1));
        if net.prefix_len() < net.max_prefix_len() {
            let len = address_length(self.of);
            self.bitwise(len);
        }
        let data = self.next();
        self.all.push(Expr::Cmp { sreg: R1, op, data });
    }

    fn bitwise(&mut self, len: u32) {
        let (mask, xor) = (self.next(), self.next());
        self.all.push(Expr::Bitwise {
            sreg: R1,
            dreg: R1,
            len,
            op: BitwiseOp::MaskXor { mask, xor },
        });
    }

    fn interface(&mut self, op: CmpOp) {
        self.all.push(Expr::Meta {
            dreg: R1,
            key: MetaKey::IifName,
        });
        let data = self.next();
        self.all.push(Expr::Cmp { sreg: R1, op, data });
    }

    fn fib(&mut self, flags: u32) {
        self.all.push(Expr::Fib {
            dreg: R1,
            result: FibResult::AddrType,
            flags,
        });
        let data = self.next();
        self.all.push(Expr::Cmp {
            sreg: R1,
            op: CmpOp::Eq,
            data,
        });
    }

    fn has_bits(&mut self, load: Expr<'a>) {
        self.all.push(load);
        self.bitwise(WORD);
        let data = self.next();
        self.all.push(Expr::Cmp {
            sreg: R1,
            op: CmpOp::Neq,
            data,
        });
    }

    fn mark(&mut self) {
        let key = MetaKey::Mark;
        self.all.push(Expr::Meta { dreg: R1, key });
        self.bitwise(WORD);
        self.all.push(Expr::MetaSet { sreg: R1, key });
    }
}

fn number_of(sides: usize) -> u32 {
    u32::try_from(sides).expect("invariant: a die has few sides")
}

/// `NFTA_FIB_F_SADDR`, `NFTA_FIB_F_DADDR`.
pub(super) const FIB_SOURCE: u32 = 1;
pub(super) const FIB_DESTINATION: u32 = 2;
/// `NF_NAT_RANGE_PROTO_RANDOM_FULLY`.
pub(super) const FULLY_RANDOM: u32 = 0x10;
const ICMP_PORT_UNREACHABLE: u8 = 3;
const ICMPV6_PORT_UNREACHABLE: u8 = 4;

const fn ct<'a>(key: CtKey) -> Expr<'a> {
    Expr::Ct {
        dreg: R1,
        key,
        direction: None,
    }
}

/// Where TCP, UDP and SCTP have their destination port.
const DESTINATION_PORT: u32 = 2;

pub(super) fn load<'a>(part: Part, of: Family, dreg: Register) -> Expr<'a> {
    let payload = |base, offset, len| Expr::Payload {
        dreg,
        base,
        offset,
        len,
    };
    let len = length_of(part, of);
    match (part, of) {
        (Part::Source, Family::V4) => payload(PayloadBase::Network, 12, len),
        (Part::Destination, Family::V4) => payload(PayloadBase::Network, 16, len),
        (Part::Source, Family::V6) => payload(PayloadBase::Network, 8, len),
        (Part::Destination, Family::V6) => payload(PayloadBase::Network, 24, len),
        (Part::Protocol, _) => Expr::Meta {
            dreg,
            key: MetaKey::L4Proto,
        },
        (Part::Port, _) => payload(PayloadBase::Transport, DESTINATION_PORT, len),
    }
}
