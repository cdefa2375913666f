//! The small number spaces of expressions.

use crate::codes::codes;

codes! {
    /// How a comparison compares.
    pub enum CmpOp: u32 {
        /// Equal.
        Eq = 0,
        /// Not equal.
        Neq = 1,
        /// Less.
        Lt = 2,
        /// Less or equal.
        Lte = 3,
        /// Greater.
        Gt = 4,
        /// Greater or equal.
        Gte = 5,
    }
}

codes! {
    /// What a rule does to a set.
    pub enum DynsetOp: u32 {
        /// Puts an element in.
        Add = 0,
        /// Puts an element in, or its time anew.
        Update = 1,
        /// Takes an element out.
        Delete = 2,
    }
}

codes! {
    /// Inside or outside a range.
    pub enum RangeOp: u32 {
        /// Inside.
        Eq = 0,
        /// Outside.
        Neq = 1,
    }
}

/// What a bitwise expression does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitwiseOp<'a> {
    /// `(value & mask) ^ xor`.
    MaskXor {
        /// Bits kept.
        mask: &'a [u8],
        /// Bits flipped afterwards.
        xor: &'a [u8],
    },
    /// Shift left by a 32-bit number in the machine's order.
    ShiftLeft(&'a [u8]),
    /// Shift right by a 32-bit number in the machine's order.
    ShiftRight(&'a [u8]),
}

codes! {
    /// The header that a payload's offset counts from.
    pub enum PayloadBase: u32 {
        /// Link layer.
        LinkLayer = 0,
        /// IPv4 or IPv6.
        Network = 1,
        /// TCP, UDP, ...
        Transport = 2,
        /// Behind the transport header.
        Inner = 3,
    }
}

codes! {
    /// What meta knows about a packet.
    pub enum MetaKey: u32 {
        /// Length.
        Len = 0,
        /// Ethertype, network order.
        Protocol = 1,
        /// Priority.
        Priority = 2,
        /// Firewall mark.
        Mark = 3,
        /// Incoming interface's index.
        Iif = 4,
        /// Outgoing interface's index.
        Oif = 5,
        /// Incoming interface's name.
        IifName = 6,
        /// Outgoing interface's name.
        OifName = 7,
        /// Incoming interface's type.
        IifType = 8,
        /// Outgoing interface's type.
        OifType = 9,
        /// User of the sending socket.
        SkUid = 10,
        /// Group of the sending socket.
        SkGid = 11,
        /// Trace the packet.
        NfTrace = 12,
        /// Routing realm.
        RtClassId = 13,
        /// Security mark.
        SecMark = 14,
        /// Protocol family, one byte.
        NfProto = 15,
        /// Transport protocol, one byte.
        L4Proto = 16,
        /// Bridge of the incoming port.
        BriIifName = 17,
        /// Bridge of the outgoing port.
        BriOifName = 18,
        /// Unicast, broadcast, multicast.
        PktType = 19,
        /// Processor.
        Cpu = 20,
        /// Incoming interface's group.
        IifGroup = 21,
        /// Outgoing interface's group.
        OifGroup = 22,
        /// Control group class.
        Cgroup = 23,
        /// Random number.
        Prandom = 24,
    }
}

codes! {
    /// What is known about a packet's connection.
    pub enum CtKey: u32 {
        /// New, established, ...: a bit mask.
        State = 0,
        /// Original or reply.
        Direction = 1,
        /// `IPS_*` bits.
        Status = 2,
        /// Connection mark.
        Mark = 3,
        /// Security mark.
        SecMark = 4,
        /// Time left, milliseconds.
        Expiration = 5,
        /// Helper's name.
        Helper = 6,
        /// Family.
        L3Protocol = 7,
        /// Source, of the table's family.
        Src = 8,
        /// Destination, of the table's family.
        Dst = 9,
        /// Transport protocol.
        Protocol = 10,
        /// Source port.
        ProtoSrc = 11,
        /// Destination port.
        ProtoDst = 12,
        /// Labels.
        Labels = 13,
        /// Packets.
        Packets = 14,
        /// Bytes.
        Bytes = 15,
        /// Bytes per packet.
        AvgPacket = 16,
        /// Zone.
        Zone = 17,
        /// Events wanted.
        EventMask = 18,
        /// IPv4 source.
        SrcIp = 19,
        /// IPv4 destination.
        DstIp = 20,
        /// IPv6 source.
        SrcIp6 = 21,
        /// IPv6 destination.
        DstIp6 = 22,
        /// Identifier.
        Id = 23,
    }
}

codes! {
    /// A direction of a connection.
    pub enum CtDirection: u8 {
        /// As first seen.
        Original = 0,
        /// The answers.
        Reply = 1,
    }
}

codes! {
    /// What the routing table is asked for.
    pub enum FibResult: u32 {
        /// Interface index.
        Oif = 1,
        /// Interface name.
        OifName = 2,
        /// Type of the address: local, unicast, ...
        AddrType = 3,
    }
}

codes! {
    /// Which address NAT changes.
    pub enum NatType: u32 {
        /// Source.
        Snat = 0,
        /// Destination.
        Dnat = 1,
    }
}

codes! {
    /// What a rejection answers with.
    pub enum RejectType: u32 {
        /// ICMP unreachable of the packet's family.
        IcmpUnreachable = 0,
        /// TCP reset.
        TcpReset = 1,
        /// ICMP unreachable with a code that means the same in both families.
        IcmpxUnreachable = 2,
    }
}

codes! {
    /// What a limit counts.
    pub enum LimitType: u32 {
        /// Packets.
        Packets = 0,
        /// Bytes.
        Bytes = 1,
    }
}

codes! {
    /// How numbers are made.
    pub enum NumgenType: u32 {
        /// Counting.
        Incremental = 0,
        /// Random.
        Random = 1,
    }
}
