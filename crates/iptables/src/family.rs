//! Words that differ by family.

use model::Family;

/// The mask of a whole address, as `-m recent` prints it.
pub(crate) fn full_mask(family: Family) -> &'static str {
    match family {
        Family::V4 => "255.255.255.255",
        Family::V6 => "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    }
}

/// What REJECT answers when it isn't told, as `iptables-save` prints it.
pub(crate) fn reject_with(family: Family) -> &'static str {
    match family {
        Family::V4 => "icmp-port-unreachable",
        Family::V6 => "icmp6-port-unreachable",
    }
}
