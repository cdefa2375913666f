//! A cursor over the bytes of a C structure.

use std::net::IpAddr;

use crate::attr::until_nul;
use crate::nfnl::Family;

/// Takes fields off the front; `None` once the bytes are used up.
#[derive(Debug, Clone, Copy)]
pub(super) struct Struct<'a>(pub(super) &'a [u8]);

impl<'a> Struct<'a> {
    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// In the machine's order.
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    /// In the machine's order.
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A port in network order.
    pub(super) fn port(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// `union nf_inet_addr`: always 16 bytes, IPv4 in the first four.
    pub(super) fn address(&mut self, family: Family) -> Option<IpAddr> {
        let octets = self.array::<16>()?;
        match family {
            Family::Ipv4 => octets.first_chunk::<4>().map(|first| IpAddr::from(*first)),
            Family::Ipv6 => Some(IpAddr::from(octets)),
            _ => None,
        }
    }
}

/// Text up to the first NUL.
pub(super) fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(until_nul(bytes)).ok()
}
