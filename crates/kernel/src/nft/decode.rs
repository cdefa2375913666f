//! From a rule of `nf_tables` to what `iptables-save` would print of it.
//!
//! Only what can be said exactly is said. Everything else is [`Undecodable`], and the caller asks the tool: an
//! almost right reading would make us write or delete rules that are not ours to touch.

use super::{matches, target};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use iptables::ast::{Is, Match, Proto, Rule, Target};
use model::Protocol;
use netlink::attr::until_nul;
use netlink::nfnl::Family;
use netlink::nft::{self, BitwiseOp, CmpOp, Expr, MetaKey, PayloadBase, RangeOp, Register, Value, Verdict};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// This crate has no exact words for the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Undecodable;

pub(super) type Decoded<T> = Result<T, Undecodable>;

/// What a register holds.
#[derive(Clone, Copy)]
enum Loaded<'a> {
    Meta(MetaKey),
    Payload {
        base: PayloadBase,
        offset: u32,
        len: usize,
    },
    Masked {
        of: Source,
        mask: &'a [u8],
    },
}

/// What a mask was laid over.
#[derive(Clone, Copy)]
enum Source {
    Mark,
    Payload {
        base: PayloadBase,
        offset: u32,
        len: usize,
    },
}

/// A rule under construction.
pub(super) struct Draft<'a> {
    pub(super) family: Family,
    pub(super) rule: Rule,
    decided: bool,
    registers: Vec<(Register, Loaded<'a>)>,
}

/// Reads a rule.
pub(crate) fn rule(found: &nft::Rule<'_>) -> Result<Rule, Undecodable> {
    let mut draft = Draft {
        family: found.family,
        rule: Rule::new(Target::None),
        decided: false,
        registers: Vec::new(),
    };
    for expression in &found.expressions {
        draft.expression(expression)?;
    }
    Ok(draft.rule)
}

impl<'a> Draft<'a> {
    fn expression(&mut self, expression: &Expr<'a>) -> Decoded<()> {
        match *expression {
            Expr::Counter(_) => Ok(()),
            Expr::Meta { dreg, key } => {
                self.load(dreg, Loaded::Meta(key));
                Ok(())
            }
            Expr::Payload {
                dreg,
                base,
                offset,
                len,
            } => {
                let len = usize::try_from(len).map_err(|_| Undecodable)?;
                self.load(dreg, Loaded::Payload { base, offset, len });
                Ok(())
            }
            Expr::Bitwise { sreg, dreg, op, .. } => self.bitwise(sreg, dreg, op),
            Expr::Cmp { sreg, op, data } => self.compare(sreg, op, data),
            Expr::Range { sreg, op, from, to } => self.range(sreg, op, from, to),
            Expr::XtMatch { name, revision, info } => {
                let found = netlink::xt::Match::read(self.family, name, revision, info);
                let decoded = matches::decode(self, &found)?;
                self.rule.matches.push(decoded);
                Ok(())
            }
            Expr::XtTarget { name, revision, info } => {
                let found = netlink::xt::Target::read(self.family, name, revision, info);
                let decoded = target::decode(&found)?;
                self.decide(decoded)
            }
            Expr::Immediate {
                value: Value::Verdict(verdict),
                ..
            } => {
                let decoded = verdict_target(verdict)?;
                self.decide(decoded)
            }
            _ => Err(Undecodable),
        }
    }

    fn load(&mut self, register: Register, loaded: Loaded<'a>) {
        self.registers.retain(|(have, _)| *have != register);
        self.registers.push((register, loaded));
    }

    fn loaded(&self, register: Register) -> Decoded<Loaded<'a>> {
        let found = self.registers.iter().find(|(have, _)| *have == register);
        found.map(|(_, loaded)| *loaded).ok_or(Undecodable)
    }

    fn decide(&mut self, target: Target) -> Decoded<()> {
        if self.decided {
            return Err(Undecodable);
        }
        self.decided = true;
        self.rule.target = target;
        Ok(())
    }

    fn bitwise(&mut self, sreg: Register, dreg: Register, op: BitwiseOp<'a>) -> Decoded<()> {
        let BitwiseOp::MaskXor { mask, xor } = op else {
            return Err(Undecodable);
        };
        if xor.iter().any(|byte| *byte != 0) {
            return Err(Undecodable);
        }
        let of = match self.loaded(sreg)? {
            Loaded::Meta(MetaKey::Mark) => Source::Mark,
            Loaded::Payload { base, offset, len } => Source::Payload { base, offset, len },
            _ => return Err(Undecodable),
        };
        self.load(dreg, Loaded::Masked { of, mask });
        Ok(())
    }

    fn compare(&mut self, sreg: Register, op: CmpOp, data: &[u8]) -> Decoded<()> {
        let loaded = self.loaded(sreg)?;
        match loaded {
            Loaded::Meta(MetaKey::L4Proto) => self.protocol(op, data),
            Loaded::Meta(MetaKey::IifName) => set(&mut self.rule.in_interface, is(op, interface(data)?)?),
            Loaded::Meta(MetaKey::OifName) => set(&mut self.rule.out_interface, is(op, interface(data)?)?),
            Loaded::Meta(MetaKey::Mark) => self.mark(op, data, u32::MAX),
            Loaded::Masked {
                of: Source::Mark,
                mask,
            } => self.mark(op, data, number(mask)?),
            Loaded::Payload {
                base: PayloadBase::Network,
                offset,
                len,
            } => self.address(op, offset, data, &vec![0xff; len]),
            Loaded::Masked {
                of:
                    Source::Payload {
                        base: PayloadBase::Network,
                        offset,
                        len,
                    },
                mask,
            } if mask.len() == len => self.address(op, offset, data, mask),
            Loaded::Payload {
                base: PayloadBase::Transport,
                offset,
                len: 2,
            } => {
                let port = port(data)?;
                self.ports(
                    offset,
                    is(
                        op,
                        iptables::ast::PortRange {
                            first: port,
                            last: port,
                        },
                    )?,
                )
            }
            _ => Err(Undecodable),
        }
    }

    fn range(&mut self, sreg: Register, op: RangeOp, from: &[u8], to: &[u8]) -> Decoded<()> {
        let Loaded::Payload {
            base: PayloadBase::Transport,
            offset,
            len: 2,
        } = self.loaded(sreg)?
        else {
            return Err(Undecodable);
        };
        let range = iptables::ast::PortRange {
            first: port(from)?,
            last: port(to)?,
        };
        self.ports(
            offset,
            match op {
                RangeOp::Eq => Is::Equal(range),
                RangeOp::Neq => Is::Not(range),
            },
        )
    }

    /// Names of other protocols come from files of the host, so the tool is asked.
    fn protocol(&mut self, op: CmpOp, data: &[u8]) -> Decoded<()> {
        let protocol = match data {
            [6] => Proto::Tcp,
            [17] => Proto::Udp,
            [132] => Proto::Sctp,
            _ => return Err(Undecodable),
        };
        set(&mut self.rule.protocol, is(op, protocol)?)
    }

    fn mark(&mut self, op: CmpOp, data: &[u8], mask: u32) -> Decoded<()> {
        let is = is(op, (number(data)?, mask))?;
        self.rule.matches.push(Match::Mark { is });
        Ok(())
    }

    fn address(&mut self, op: CmpOp, offset: u32, data: &[u8], mask: &[u8]) -> Decoded<()> {
        let (src, dst) = match self.family {
            Family::Ipv4 => (12, 16),
            Family::Ipv6 => (8, 24),
            _ => return Err(Undecodable),
        };
        let net = network(self.family, data, mask)?;
        if offset == src {
            set(&mut self.rule.src, is(op, net)?)
        } else if offset == dst {
            set(&mut self.rule.dst, is(op, net)?)
        } else {
            Err(Undecodable)
        }
    }

    /// Ports of both sides are one `-m tcp`, standing where the first of them stood.
    fn ports(&mut self, offset: u32, is: Is<iptables::ast::PortRange>) -> Decoded<()> {
        let wanted = self.transport()?;
        if !self
            .rule
            .matches
            .iter()
            .any(|m| matches!(m, Match::Ports { module, .. } if *module == wanted))
        {
            self.rule.matches.push(Match::Ports {
                module: wanted,
                src: None,
                dst: None,
            });
        }
        let found = self.rule.matches.iter_mut().find_map(|m| match m {
            Match::Ports { module, src, dst } if *module == wanted => Some((src, dst)),
            _ => None,
        });
        match (found, offset) {
            (Some((src, _)), 0) => set(src, is),
            (Some((_, dst)), 2) => set(dst, is),
            _ => Err(Undecodable),
        }
    }

    /// The transport protocol that the rule asks for.
    pub(super) fn transport(&self) -> Decoded<Protocol> {
        match &self.rule.protocol {
            Some(Is::Equal(Proto::Tcp)) => Ok(Protocol::Tcp),
            Some(Is::Equal(Proto::Udp)) => Ok(Protocol::Udp),
            Some(Is::Equal(Proto::Sctp)) => Ok(Protocol::Sctp),
            _ => Err(Undecodable),
        }
    }
}

/// A condition may stand once.
fn set<T>(slot: &mut Option<T>, value: T) -> Decoded<()> {
    if slot.is_some() {
        return Err(Undecodable);
    }
    *slot = Some(value);
    Ok(())
}

fn is<T>(op: CmpOp, value: T) -> Decoded<Is<T>> {
    match op {
        CmpOp::Eq => Ok(Is::Equal(value)),
        CmpOp::Neq => Ok(Is::Not(value)),
        _ => Err(Undecodable),
    }
}

fn verdict_target(verdict: Verdict<'_>) -> Decoded<Target> {
    let chain = |name| iptables::ast::ChainName::new(name).map_err(|_| Undecodable);
    Ok(match verdict {
        Verdict::Accept => Target::Accept,
        Verdict::Drop => Target::Drop,
        Verdict::Return => Target::Return,
        Verdict::Jump(name) => Target::Jump(chain(name)?),
        Verdict::Goto(name) => Target::Goto(chain(name)?),
        _ => return Err(Undecodable),
    })
}

/// With its closing NUL a whole name, without it the beginning of one.
fn interface(data: &[u8]) -> Decoded<Arc<str>> {
    let name = until_nul(data);
    let text = std::str::from_utf8(name).map_err(|_| Undecodable)?;
    if text.is_empty() {
        return Err(Undecodable);
    }
    Ok(if name.len() == data.len() {
        format!("{text}+").into()
    } else {
        text.into()
    })
}

/// A number in the machine's order, as marks are.
fn number(data: &[u8]) -> Decoded<u32> {
    data.try_into().map(u32::from_ne_bytes).map_err(|_| Undecodable)
}

fn port(data: &[u8]) -> Decoded<u16> {
    data.try_into().map(u16::from_be_bytes).map_err(|_| Undecodable)
}

/// iptables-nft loads only as many bytes as the prefix needs; the others are zero.
fn network(family: Family, data: &[u8], mask: &[u8]) -> Decoded<IpNet> {
    if data.len() != mask.len() {
        return Err(Undecodable);
    }
    let prefix = prefix_length(mask)?;
    if family == Family::Ipv4 {
        let mut octets = [0; 4];
        octets
            .get_mut(..data.len())
            .ok_or(Undecodable)?
            .copy_from_slice(data);
        let net = Ipv4Net::new(Ipv4Addr::from(octets), prefix).map_err(|_| Undecodable)?;
        exact(net.trunc() == net, IpNet::V4(net))
    } else {
        let mut octets = [0; 16];
        octets
            .get_mut(..data.len())
            .ok_or(Undecodable)?
            .copy_from_slice(data);
        let net = Ipv6Net::new(Ipv6Addr::from(octets), prefix).map_err(|_| Undecodable)?;
        exact(net.trunc() == net, IpNet::V6(net))
    }
}

fn exact<T>(holds: bool, value: T) -> Decoded<T> {
    if holds { Ok(value) } else { Err(Undecodable) }
}

/// The length of a mask of ones followed by zeros.
fn prefix_length(mask: &[u8]) -> Decoded<u8> {
    let ones: u32 = mask
        .iter()
        .map(|byte| byte.leading_ones())
        .scan(true, |whole, ones| {
            let counted = if *whole { ones } else { 0 };
            *whole &= ones == 8;
            Some(counted)
        })
        .sum();
    let all: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    if ones == all {
        u8::try_from(ones).map_err(|_| Undecodable)
    } else {
        Err(Undecodable)
    }
}
