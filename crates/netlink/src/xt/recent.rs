//! The recent match: iptables mode's session affinity.

use std::net::IpAddr;

use super::read::{Struct, text};
use crate::nfnl::Family;

/// What is done with the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecentCheck {
    /// `--rcheck`: is the address in the list?
    Check,
    /// `--set`: put it there, or refresh it.
    Set,
    /// `--update`: is it there? If so, refresh it.
    Update,
    /// `--remove`: is it there? If so, take it out.
    Remove,
}

/// Whose address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecentSide {
    /// The packet's source.
    Source,
    /// The packet's destination.
    Destination,
}

/// `struct xt_recent_mtinfo` and `xt_recent_mtinfo_v1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recent<'a> {
    /// Name of the list.
    pub name: &'a str,
    /// What is done.
    pub check: RecentCheck,
    /// Only if the address was seen within so many seconds; 0 is no condition.
    pub seconds: u32,
    /// Only if it was seen so many times; 0 is no condition.
    pub hit_count: u32,
    /// `--reap`: throw out addresses older than `seconds`.
    pub reap: bool,
    /// `--rttl`: only if the TTL is that of the packet that made the entry.
    pub same_ttl: bool,
    /// Whether it matches otherwise.
    pub inverted: bool,
    /// Whose address.
    pub side: RecentSide,
    /// Mask on the address (revision 1).
    pub mask: Option<IpAddr>,
}

impl<'a> Recent<'a> {
    /// `XT_RECENT_NAME_LEN`.
    const NAME_LENGTH: usize = 200;

    pub(super) fn read(family: Family, revision: u32, info: &'a [u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let (seconds, hit_count) = (bytes.u32()?, bytes.u32()?);
        let [flags, invert] = bytes.array()?;
        let name = text(bytes.bytes(Self::NAME_LENGTH)?)?;
        let side = match bytes.u8()? {
            0 => RecentSide::Source,
            1 => RecentSide::Destination,
            _ => return None,
        };
        let mask = if revision == 0 {
            None
        } else {
            // The address is aligned to four bytes.
            bytes.bytes(1)?;
            Some(bytes.address(family)?)
        };
        let check = match flags & 0xf {
            1 => RecentCheck::Check,
            2 => RecentCheck::Set,
            4 => RecentCheck::Update,
            8 => RecentCheck::Remove,
            _ => return None,
        };
        let (same_ttl, reap) = (flags & 0x10 != 0, flags & 0x20 != 0);
        Some(Self {
            name,
            check,
            seconds,
            hit_count,
            reap,
            same_ttl,
            inverted: invert != 0,
            side,
            mask,
        })
    }
}
