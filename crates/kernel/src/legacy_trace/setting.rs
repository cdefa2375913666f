//! `net.netfilter.nf_log.2` (10 for IPv6): where the kernel hands the traces of legacy.

use crate::sysctl::{self, SysctlError, Written};
use iptables::live_trace;
use model::Family;

/// To programs, by netlink.
pub(super) const TO_PROGRAMS: &str = "nfnetlink_log";

fn path(family: Family) -> String {
    live_trace::setting(family).replace('.', "/")
}

pub(super) fn read(family: Family) -> Result<String, SysctlError> {
    sysctl::read(&path(family))
}

pub(super) fn set(family: Family) -> Result<Written, SysctlError> {
    sysctl::ensure(&path(family), TO_PROGRAMS)
}

/// Puts the value back, unless somebody has set another one since.
pub(super) fn put_back(family: Family, before: &str) -> Result<Written, SysctlError> {
    if before == TO_PROGRAMS || read(family)? != TO_PROGRAMS {
        return Ok(Written::AsItWas);
    }
    sysctl::ensure(&path(family), before)
}
