//! Values of options.

use crate::ast::{CtState, PortRange};
use ipnet::IpNet;
use model::Family;
use std::net::IpAddr;

/// What `-s` or `-d` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Network {
    /// This network, host bits cleared.
    Net(IpNet),
    /// A host's name, a list, a mask with holes, or another family: not for our types.
    Unclear,
}

/// A network: an address, with a prefix length or a netmask, or without.
pub(super) fn network(text: &str, family: Family) -> Network {
    parse_network(text)
        .filter(|net| Family::of(net.addr()) == family)
        .map_or(Network::Unclear, |net| Network::Net(net.trunc()))
}

fn parse_network(text: &str) -> Option<IpNet> {
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let address: IpAddr = address.parse().ok()?;
    if let Some(prefix) = decimal(mask) {
        return IpNet::new(address, u8::try_from(prefix).ok()?).ok();
    }
    IpNet::with_netmask(address, mask.parse().ok()?).ok()
}

/// A number of plain digits.
pub(super) fn decimal(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// A number as C's `strtoul` with base 0 takes it.
fn number(text: &str) -> Option<u32> {
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let plain = hex.bytes().all(|b| b.is_ascii_hexdigit());
        plain.then(|| u32::from_str_radix(hex, 16).ok()).flatten()
    } else if text.len() > 1 && text.starts_with('0') && decimal(text).is_some() {
        u32::from_str_radix(text, 8).ok()
    } else {
        decimal(text)
    }
}

/// `VALUE` or `VALUE/MASK`; without a mask, all bits.
pub(super) fn masked(text: &str) -> Option<(u32, u32)> {
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

/// `PORT` or `FIRST:LAST`, numbers only, either end of a range left out at will.
pub(super) fn ports(text: &str) -> Option<PortRange> {
    let port = |text: &str, open: u16| match text {
        "" => Some(open),
        digits => u16::try_from(decimal(digits)?).ok(),
    };
    let (first, last) = match text.split_once(':') {
        Some((first, last)) => (port(first, 0)?, port(last, u16::MAX)?),
        None if text.is_empty() => return None,
        None => (port(text, 0)?, port(text, 0)?),
    };
    (first <= last).then_some(PortRange { first, last })
}

/// `NEW,ESTABLISHED`: sorted, without doubles.
pub(super) fn states(text: &str) -> Option<Vec<CtState>> {
    let mut states: Vec<CtState> = text.split(',').map(CtState::from_word).collect::<Option<_>>()?;
    states.sort_unstable();
    states.dedup();
    Some(states)
}

/// A chance as decimal digits, in units of 2^-31, rounded as iptables does it.
pub(super) fn probability(text: &str) -> Option<u32> {
    /// More digits than these don't move the 31 bits.
    const DIGITS: usize = 18;
    const ONE: u128 = 1_000_000_000_000_000_000;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let whole = decimal(whole)?;
    let plain = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    let digits = plain.then(|| format!("{fraction:0<DIGITS$}"))?;
    let value = u128::from(whole) * ONE + digits[..DIGITS].parse::<u128>().ok()?;
    if value > ONE {
        return None;
    }
    u32::try_from(((value << 31) + ONE / 2) / ONE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_come_in_many_forms() {
        let net = |text: &str| Network::Net(text.parse().unwrap());
        assert_eq!(network("10.0.0.1", Family::V4), net("10.0.0.1/32"));
        assert_eq!(network("10.1.2.3/8", Family::V4), net("10.0.0.0/8"));
        assert_eq!(network("10.0.0.0/255.255.0.0", Family::V4), net("10.0.0.0/16"));
        assert_eq!(network("fd00::1", Family::V6), net("fd00::1/128"));
        for unclear in [
            "10.0.0.0/255.0.255.0",
            "example",
            "10.0.0.1,10.0.0.2",
            "10.0.0.0/33",
            "::1",
            "/8",
            "",
        ] {
            assert_eq!(network(unclear, Family::V4), Network::Unclear, "{unclear}");
        }
    }

    #[test]
    fn marks_come_with_and_without_a_mask() {
        assert_eq!(masked("0x4000/0x4000"), Some((0x4000, 0x4000)));
        assert_eq!(masked("0x00004000"), Some((0x4000, u32::MAX)));
        assert_eq!(masked("010"), Some((8, u32::MAX)));
        assert_eq!(masked("+1"), None);
        assert_eq!(masked("0x+1"), None);
        assert_eq!(masked("0x1ffffffff"), None);
    }

    #[test]
    fn port_ranges_may_be_open() {
        let range = |first, last| Some(PortRange { first, last });
        assert_eq!(ports("80"), range(80, 80));
        assert_eq!(ports("80:"), range(80, 65535));
        assert_eq!(ports(":80"), range(0, 80));
        assert_eq!(ports("9:8"), None);
        assert_eq!(ports("http"), None);
        assert_eq!(ports(""), None);
    }

    #[test]
    fn chances_are_rounded_as_iptables_rounds_them() {
        assert_eq!(probability("0.3333333333"), Some(715_827_883));
        assert_eq!(probability("0.33333333349"), Some(715_827_883));
        assert_eq!(probability("1.0000000000"), Some(1 << 31));
        assert_eq!(probability("0.5"), Some(1 << 30));
        for bad in ["1.1", "2", "", ".", "-0.5", "0.5e1", "0."] {
            assert_eq!(probability(bad), None, "{bad}");
        }
    }
}
