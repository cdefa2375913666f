//! Targets of xtables inside a rule of `nf_tables`.

use super::decode::{Decoded, Undecodable};
use iptables::ast::{Ports, Target};
use netlink::xt::{self, NatRange};
use std::net::SocketAddr;

pub(super) fn decode(found: &xt::Target<'_>) -> Decoded<Target> {
    match found {
        xt::Target::Mark(mark) => Ok(Target::Mark {
            value: mark.value,
            mask: mark.mask,
        }),
        xt::Target::Reject(with) => Ok(Target::Reject(with.name().into())),
        xt::Target::Masquerade(range) => masquerade(range),
        xt::Target::Dnat(range) => destination(range),
        _ => Err(Undecodable),
    }
}

fn masquerade(range: &NatRange) -> Decoded<Target> {
    match range.flags {
        0 => Ok(Target::Masquerade(Ports::Kept)),
        NatRange::PROTO_RANDOM_FULLY => Ok(Target::Masquerade(Ports::RandomFully)),
        _ => Err(Undecodable),
    }
}

/// One address and one port.
fn destination(range: &NatRange) -> Decoded<Target> {
    match (range.flags, range.addresses, range.ports) {
        (flags, Some((address, last)), Some((port, last_port)))
            if flags == NatRange::MAP_IPS | NatRange::PROTO_SPECIFIED
                && address == last
                && port == last_port =>
        {
            Ok(Target::Dnat(SocketAddr::new(address, port)))
        }
        _ => Err(Undecodable),
    }
}
