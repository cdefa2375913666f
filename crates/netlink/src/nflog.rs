//! Packets that the kernel logs to a program: those of the target `NFLOG`, and the traces of iptables-legacy.
//!
//! The target `TRACE` of legacy has its steps logged in the way that `net.netfilter.nf_log.2` (10 for IPv6) says. With
//! `nfnetlink_log` there, they come to group 0, of which one socket of a network namespace can be the listener.

use crate::attr::{Fields, until_nul};
use crate::error::{DecodeError, EncodeError};
use crate::message::{Message, flags};
use crate::nfnl::{Body, Family, Subsystem, begin_for};

mod msg {
    pub(super) const PACKET: u8 = 0;
    pub(super) const CONFIG: u8 = 1;
}

/// `NFULA_CFG_*`.
mod config {
    pub(super) const COMMAND: u16 = 1;
    pub(super) const MODE: u16 = 2;
    pub(super) const BIND: u8 = 1;
    pub(super) const COPY_PACKET: u8 = 2;
}

/// `NFULA_*`.
mod at {
    pub(super) const HEADER: u16 = 1;
    pub(super) const MARK: u16 = 2;
    pub(super) const IN_DEVICE: u16 = 4;
    pub(super) const OUT_DEVICE: u16 = 5;
    pub(super) const PAYLOAD: u16 = 9;
    pub(super) const PREFIX: u16 = 10;
    pub(super) const COUNT: usize = 24;
}

/// The group to which the kernel logs what no rule gives a group.
pub const DEFAULT_GROUP: u16 = 0;

/// Listens to a group from now on: an acknowledgement, or `EPERM` when another socket does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The group.
    pub group: u16,
    /// So much of each packet is wanted, in bytes.
    pub bytes: u32,
}

impl Listen {
    /// Writes the request at the end of `buffer`.
    ///
    /// # Errors
    /// Never; the signature is that of all requests.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let kind = Subsystem::Logging.kind(msg::CONFIG);
        let head = (kind, flags::REQUEST | flags::ACK);
        let mut writer = begin_for(buffer, head, sequence, Family::Unspecified, self.group);
        writer.u8(config::COMMAND, config::BIND);
        let [b0, b1, b2, b3] = self.bytes.to_be_bytes();
        writer.bytes(config::MODE, &[b0, b1, b2, b3, config::COPY_PACKET, 0]);
        writer.finish()
    }
}

/// A packet that was logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged<'a> {
    /// Its family.
    pub family: Family,
    /// The hook, as netfilter numbers them: 0 is prerouting, 1 input, 2 forward, 3 output, 4 postrouting.
    pub hook: u8,
    /// Its mark.
    pub mark: u32,
    /// Index of the incoming interface.
    pub iif: Option<u32>,
    /// Index of the outgoing interface.
    pub oif: Option<u32>,
    /// What the rule has to say; empty when that is not UTF-8.
    pub prefix: &'a str,
    /// The packet from its network header on, as much as was asked for.
    pub payload: &'a [u8],
}

impl<'a> Logged<'a> {
    /// Reads a message; `None` when it is none of a packet.
    ///
    /// # Errors
    /// If the message is malformed.
    pub fn read(message: Message<'a>) -> Result<Option<Self>, DecodeError> {
        if message.header.kind != Subsystem::Logging.kind(msg::PACKET) {
            return Ok(None);
        }
        let body = Body::read(message, Subsystem::Logging)?;
        let fields = Fields::<{ at::COUNT }>::read(body.attrs("logged packet"))?;
        let header = fields.need(at::HEADER, fields.array::<4>(at::HEADER)?)?;
        let prefix = until_nul(fields.bytes(at::PREFIX).unwrap_or_default());
        Ok(Some(Self {
            family: body.family,
            hook: header[2],
            mark: fields.u32(at::MARK)?.unwrap_or_default(),
            iif: fields.u32(at::IN_DEVICE)?,
            oif: fields.u32(at::OUT_DEVICE)?,
            prefix: std::str::from_utf8(prefix).unwrap_or_default(),
            payload: fields.bytes(at::PAYLOAD).unwrap_or_default(),
        }))
    }
}

/// What a step of a trace of legacy is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepKind {
    /// The packet matched a rule.
    Rule,
    /// The packet came to a chain's end, or to a rule without any match, the target of which is a verdict or `RETURN`.
    Return,
    /// The same in a built-in chain: its policy, or such a rule.
    Policy,
}

/// One step of a packet through the rules of legacy: it is told **before** the rule's target does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LegacyStep<'a> {
    /// The table.
    pub table: &'a str,
    /// The chain. It may have any character but a NUL, colons among them.
    pub chain: &'a str,
    /// What it is.
    pub kind: StepKind,
    /// The rule's number, from 1; that of a chain's end is one more than it has rules.
    pub number: u32,
}

impl<'a> LegacyStep<'a> {
    /// Reads `TRACE: table:chain:kind:number `; `None` when a prefix is not of this form.
    pub fn read(prefix: &'a str) -> Option<Self> {
        let (table, rest) = prefix
            .strip_prefix("TRACE: ")?
            .strip_suffix(' ')?
            .split_once(':')?;
        let (rest, number) = rest.rsplit_once(':')?;
        let (chain, kind) = rest.rsplit_once(':')?;
        let kind = match kind {
            "rule" => StepKind::Rule,
            "return" => StepKind::Return,
            "policy" => StepKind::Policy,
            _ => return None,
        };
        if table.is_empty() || chain.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = number.parse().ok().filter(|number| *number > 0)?;
        Some(Self {
            table,
            chain,
            kind,
            number,
        })
    }
}

#[cfg(test)]
mod tests;
