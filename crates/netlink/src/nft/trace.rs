//! Traces: what the kernel says about the way of a packet for which a rule has set `nftrace`.

use super::names::CtDirection;
use super::uapi::trace as at;
use super::verdict::{Policy, Verdict};
use crate::attr::{Attrs, Fields};
use crate::codes::codes;
use crate::error::DecodeError;
use crate::nfnl::Family;
use crate::packet::PacketView;

codes! {
    /// At which point a trace event was made.
    pub enum TraceKind: u32 {
        /// The packet came to the end of a base chain: see `policy`.
        Policy = 1,
        /// The packet came to the end of another chain.
        Return = 2,
        /// A rule matched (or, with verdict `Continue`, was gone through to its end).
        Rule = 3,
    }
}

/// What a trace event says, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceStep<'a> {
    /// A rule matched and decided (or, with `Continue`, set `nftrace` and went on).
    Rule {
        /// Its handle.
        handle: u64,
        /// What it decided.
        verdict: Verdict<'a>,
    },
    /// The packet came to the end of a chain without a decision. In a base chain the policy follows.
    EndOfChain,
    /// A base chain's policy decided.
    Policy(Policy),
}

/// The connection of a traced packet. Kernel 6.18 tells it; 6.1 does not know these attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceConnection {
    /// Identifier, as in [`crate::conntrack::Entry`].
    pub id: u32,
    /// Direction of the packet.
    pub direction: Option<CtDirection>,
    /// `IPS_*` bits; absent when 0.
    pub status: Option<u32>,
    /// State bits, as `ct state` has them (8 is new, 2 established, 4 related).
    pub state: Option<u32>,
}

/// One step of a traced packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEvent<'a> {
    /// Names the packet; the same numbers come again within a second, so bound a trace in time.
    pub id: u32,
    /// What happened.
    pub kind: TraceKind,
    /// Family of the table.
    pub family: Family,
    /// Table.
    pub table: &'a str,
    /// Chain.
    pub chain: &'a str,
    /// The rule, for [`TraceKind::Rule`].
    pub rule_handle: Option<u64>,
    /// What it decided.
    pub verdict: Option<Verdict<'a>>,
    /// The base chain's policy, for [`TraceKind::Policy`].
    pub policy: Option<Policy>,
    /// The packet's mark; absent when it is 0.
    pub mark: Option<u32>,
    /// Index of the incoming interface.
    pub iif: Option<u32>,
    /// Index of the outgoing interface.
    pub oif: Option<u32>,
    /// Family of the packet: tells IPv4 from IPv6 in tables of family inet.
    pub nfproto: Option<Family>,
    /// The packet's connection; in the events that carry headers, once conntrack has seen the packet.
    pub connection: Option<TraceConnection>,
    /// Link-layer header (at most 20 bytes). The headers come once for each base chain, in its first event.
    pub link_header: &'a [u8],
    /// Network header (at most 40 bytes).
    pub network_header: &'a [u8],
    /// Transport header (at most 20 bytes).
    pub transport_header: &'a [u8],
}

impl<'a> TraceEvent<'a> {
    pub(super) fn read(family: Family, attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let kind = fields.need(at::TYPE, fields.u32(at::TYPE)?)?;
        let policy = match fields.u32(at::POLICY)? {
            Some(code) => Some(Policy::from_code(code).ok_or_else(|| fields.unknown(at::POLICY, code))?),
            None => None,
        };
        let nfproto = fields
            .u32(at::NFPROTO)?
            .and_then(|code| u8::try_from(code).ok())
            .map(Family::from_code);
        Ok(Self {
            id: fields.need(at::ID, fields.u32(at::ID)?)?,
            kind: TraceKind::from_code(kind).ok_or_else(|| fields.unknown(at::TYPE, kind))?,
            family,
            table: fields.text(at::TABLE)?.unwrap_or_default(),
            chain: fields.text(at::CHAIN)?.unwrap_or_default(),
            rule_handle: fields.u64(at::RULE_HANDLE)?,
            verdict: fields
                .nest(at::VERDICT, "trace verdict")
                .map(Verdict::read)
                .transpose()?,
            policy,
            mark: fields.u32(at::MARK)?,
            iif: fields.u32(at::IIF)?,
            oif: fields.u32(at::OIF)?,
            nfproto,
            connection: read_connection(&fields)?,
            link_header: fields.bytes(at::LL_HEADER).unwrap_or_default(),
            network_header: fields.bytes(at::NETWORK_HEADER).unwrap_or_default(),
            transport_header: fields.bytes(at::TRANSPORT_HEADER).unwrap_or_default(),
        })
    }

    /// What happened, in one word; nothing if the event is of a form this crate does not know.
    pub const fn step(&self) -> Option<TraceStep<'a>> {
        match (self.kind, self.rule_handle, self.verdict, self.policy) {
            (TraceKind::Policy, _, _, Some(policy)) => Some(TraceStep::Policy(policy)),
            (TraceKind::Rule, Some(handle), Some(verdict), _) => Some(TraceStep::Rule { handle, verdict }),
            (TraceKind::Return, ..) | (TraceKind::Rule, None, Some(Verdict::Continue), _) => {
                Some(TraceStep::EndOfChain)
            }
            _ => None,
        }
    }

    /// Addresses, protocol and ports, in the events that carry headers.
    pub fn packet(&self) -> Option<PacketView> {
        PacketView::read(self.network_header, self.transport_header)
    }
}

fn read_connection(fields: &Fields<'_, { at::COUNT }>) -> Result<Option<TraceConnection>, DecodeError> {
    let Some(id) = fields.u32(at::CT_ID)? else {
        return Ok(None);
    };
    Ok(Some(TraceConnection {
        id,
        direction: fields.u8(at::CT_DIRECTION)?.and_then(CtDirection::from_code),
        status: fields.u32(at::CT_STATUS)?,
        state: fields.u32(at::CT_STATE)?,
    }))
}
