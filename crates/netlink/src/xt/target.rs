//! Targets.

use std::net::{IpAddr, Ipv4Addr};

use super::read::Struct;
use crate::codes::codes;
use crate::nfnl::Family;

/// A target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// Changes the destination.
    Dnat(NatRange),
    /// Changes the source.
    Snat(NatRange),
    /// Changes the source to the address of the outgoing interface; the range has no addresses.
    Masquerade(NatRange),
    /// Changes the destination to this host; the range has no addresses.
    Redirect(NatRange),
    /// Changes the mark.
    Mark(MarkTarget),
    /// Answers with an error.
    Reject(RejectWith),
    /// Anything else, and what is not exactly as expected.
    Other {
        /// Name.
        name: &'a str,
        /// Revision.
        revision: u32,
        /// Structure.
        info: &'a [u8],
    },
}

impl<'a> Target<'a> {
    /// Reads the structure of a target, as an expression carries it. `family` is that of the rule's table.
    pub fn read(family: Family, name: &'a str, revision: u32, info: &'a [u8]) -> Self {
        Self::known(family, name, revision, info).unwrap_or(Self::Other { name, revision, info })
    }

    fn known(family: Family, name: &str, revision: u32, info: &[u8]) -> Option<Self> {
        match (name, revision) {
            ("MARK", 2) => MarkTarget::read(info).map(Self::Mark),
            ("REJECT", 0) => RejectWith::read(family, info).map(Self::Reject),
            // Revision 0 is IPv4's old structure, except where IPv6 had none before.
            ("DNAT", _) => NatRange::read(family, revision, info).map(Self::Dnat),
            ("SNAT", _) => NatRange::read(family, revision, info).map(Self::Snat),
            ("MASQUERADE", 0) => NatRange::read(family, 0, info).map(Self::Masquerade),
            ("REDIRECT", 0) => NatRange::read(family, 0, info).map(Self::Redirect),
            _ => None,
        }
    }
}

/// `struct nf_nat_ipv4_multi_range_compat`, `nf_nat_range` or `nf_nat_range2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatRange {
    /// `NF_NAT_RANGE_*` bits: see the constants.
    pub flags: u32,
    /// Lowest and highest address, if addresses are mapped.
    pub addresses: Option<(IpAddr, IpAddr)>,
    /// Lowest and highest port, if ports are mapped.
    pub ports: Option<(u16, u16)>,
    /// Port from which the shift is counted, if ports are shifted (revision 2).
    pub base_port: Option<u16>,
}

impl NatRange {
    /// Addresses are mapped.
    pub const MAP_IPS: u32 = 1;
    /// Ports are mapped.
    pub const PROTO_SPECIFIED: u32 = 1 << 1;
    /// `--random`.
    pub const PROTO_RANDOM: u32 = 1 << 2;
    /// `--persistent`.
    pub const PERSISTENT: u32 = 1 << 3;
    /// `--random-fully`.
    pub const PROTO_RANDOM_FULLY: u32 = 1 << 4;
    /// Ports are shifted.
    pub const PROTO_OFFSET: u32 = 1 << 5;

    /// Whether all of these bits are set.
    pub const fn has(&self, bits: u32) -> bool {
        self.flags & bits == bits
    }

    fn read(family: Family, revision: u32, info: &[u8]) -> Option<Self> {
        match (family, revision) {
            (Family::Ipv4, 0) => Self::read_ipv4_multi(info),
            (Family::Ipv4 | Family::Ipv6, 0..=2) => Self::read_range(family, revision, info),
            _ => None,
        }
    }

    /// The kernel takes exactly one range.
    fn read_ipv4_multi(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        if bytes.u32()? != 1 {
            return None;
        }
        let flags = bytes.u32()?;
        let mut address = || {
            bytes
                .array::<4>()
                .map(|octets| IpAddr::V4(Ipv4Addr::from(octets)))
        };
        let addresses = (address()?, address()?);
        let ports = (bytes.port()?, bytes.port()?);
        Some(Self::new(flags, addresses, ports, None))
    }

    fn read_range(family: Family, revision: u32, info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        let flags = bytes.u32()?;
        let addresses = (bytes.address(family)?, bytes.address(family)?);
        let ports = (bytes.port()?, bytes.port()?);
        let base = if revision == 2 { Some(bytes.port()?) } else { None };
        Some(Self::new(flags, addresses, ports, base))
    }

    fn new(flags: u32, addresses: (IpAddr, IpAddr), ports: (u16, u16), base: Option<u16>) -> Self {
        let wanted = |bit| flags & bit != 0;
        Self {
            flags,
            addresses: wanted(Self::MAP_IPS).then_some(addresses),
            ports: wanted(Self::PROTO_SPECIFIED).then_some(ports),
            base_port: base.filter(|_| wanted(Self::PROTO_OFFSET)),
        }
    }
}

/// `struct xt_mark_tginfo2`: `mark = (mark & ~mask) ^ value`, iptables' `--set-xmark value/mask`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkTarget {
    /// Bits to flip after clearing.
    pub value: u32,
    /// Bits to clear.
    pub mask: u32,
}

impl MarkTarget {
    fn read(info: &[u8]) -> Option<Self> {
        let mut bytes = Struct(info);
        Some(Self {
            value: bytes.u32()?,
            mask: bytes.u32()?,
        })
    }
}

codes! {
    /// `enum ipt_reject_with`.
    pub enum IcmpReject: u32 {
        /// Network unreachable.
        NetUnreachable = 0,
        /// Host unreachable.
        HostUnreachable = 1,
        /// Protocol unreachable.
        ProtoUnreachable = 2,
        /// Port unreachable: what kube-proxy uses.
        PortUnreachable = 3,
        /// Network prohibited.
        NetProhibited = 5,
        /// Host prohibited.
        HostProhibited = 6,
        /// TCP reset.
        TcpReset = 7,
        /// Prohibited by the administrator.
        AdminProhibited = 8,
    }
}

codes! {
    /// `enum ip6t_reject_with`.
    pub enum Icmp6Reject: u32 {
        /// No route.
        NoRoute = 0,
        /// Prohibited by the administrator.
        AdminProhibited = 1,
        /// Beyond scope; iptables has no name for it.
        NotNeighbour = 2,
        /// Address unreachable.
        AddressUnreachable = 3,
        /// Port unreachable: what kube-proxy uses.
        PortUnreachable = 4,
        /// TCP reset.
        TcpReset = 6,
        /// Source address failed policy.
        PolicyFail = 7,
        /// Route rejected.
        RejectRoute = 8,
    }
}

/// What a rejection answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejectWith {
    /// In IPv4.
    Ipv4(IcmpReject),
    /// In IPv6.
    Ipv6(Icmp6Reject),
}

impl RejectWith {
    fn read(family: Family, info: &[u8]) -> Option<Self> {
        let code = Struct(info).u32()?;
        match family {
            Family::Ipv4 => IcmpReject::from_code(code).map(Self::Ipv4),
            Family::Ipv6 => Icmp6Reject::from_code(code).map(Self::Ipv6),
            _ => None,
        }
    }

    /// The word of `iptables --reject-with`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4(with) => match with {
                IcmpReject::NetUnreachable => "icmp-net-unreachable",
                IcmpReject::HostUnreachable => "icmp-host-unreachable",
                IcmpReject::ProtoUnreachable => "icmp-proto-unreachable",
                IcmpReject::PortUnreachable => "icmp-port-unreachable",
                IcmpReject::NetProhibited => "icmp-net-prohibited",
                IcmpReject::HostProhibited => "icmp-host-prohibited",
                IcmpReject::TcpReset => "tcp-reset",
                IcmpReject::AdminProhibited => "icmp-admin-prohibited",
            },
            Self::Ipv6(with) => match with {
                Icmp6Reject::NoRoute => "icmp6-no-route",
                Icmp6Reject::AdminProhibited => "icmp6-adm-prohibited",
                Icmp6Reject::NotNeighbour => "icmp6-not-neighbour",
                Icmp6Reject::AddressUnreachable => "icmp6-addr-unreachable",
                Icmp6Reject::PortUnreachable => "icmp6-port-unreachable",
                Icmp6Reject::TcpReset => "tcp-reset",
                Icmp6Reject::PolicyFail => "icmp6-policy-fail",
                Icmp6Reject::RejectRoute => "icmp6-reject-route",
            },
        }
    }
}
