//! The words that rules are made of.

use crate::ast::{Is, Match, PortRange, Proto, Rule, Target};
use crate::names::StaticChain;
use ipnet::IpNet;
use model::{LocalDetector, Protocol};
use std::net::IpAddr;
use std::sync::Arc;

/// The longest comment the kernel keeps, in bytes (`XT_MAX_COMMENT_LEN` of `linux/netfilter/xt_comment.h` is 256, the
/// final NUL included). iptables 1.8.9 takes longer ones and cuts them without a word, in the middle of a character if
/// need be, so that what it prints would differ from what we wrote.
pub const MAX_COMMENT: usize = 255;

/// The longest interface name (`IFNAMSIZ` of `linux/if.h` is 16, the final NUL included); iptables refuses longer ones.
const MAX_INTERFACE: usize = 15;

/// A comment, cut to what the kernel keeps, at the end of a character.
///
/// Control characters, which could end the line of a restore, become `?`.
pub(super) fn comment(text: &str) -> Match {
    let kept = text.floor_char_boundary(MAX_COMMENT);
    let text = &text[..kept];
    if text.contains(char::is_control) {
        Match::Comment(text.replace(char::is_control, "?").into())
    } else {
        Match::Comment(text.into())
    }
}

/// `-m tcp` with nothing else.
pub(super) fn protocol_module(protocol: Protocol) -> Match {
    Match::Ports {
        module: protocol,
        src: None,
        dst: None,
    }
}

/// `-m tcp --dport PORT`.
pub(super) fn to_port(protocol: Protocol, port: u16) -> Match {
    Match::Ports {
        module: protocol,
        src: None,
        dst: Some(Is::Equal(PortRange {
            first: port,
            last: port,
        })),
    }
}

/// `-s` or `-d` of one address.
pub(super) fn host(ip: IpAddr) -> Is<IpNet> {
    Is::Equal(IpNet::from(ip))
}

/// `-s` or `-d` of a network; nothing for `/0`, which asks for nothing and isn't printed.
pub(super) fn network(net: IpNet) -> Option<Is<IpNet>> {
    (net.prefix_len() > 0).then(|| Is::Equal(net.trunc()))
}

/// The rule `-p PROTO -m comment ... -m PROTO --dport PORT -j TARGET`.
pub(super) fn port_rule(protocol: Protocol, port: u16, text: &str, target: Target) -> Rule {
    Rule {
        protocol: Some(Is::Equal(Proto::from(protocol))),
        matches: vec![comment(text), to_port(protocol, port)],
        ..Rule::new(target)
    }
}

/// A rule with a comment and nothing else.
pub(super) fn commented(text: &str, target: Target) -> Rule {
    Rule {
        matches: vec![comment(text)],
        ..Rule::new(target)
    }
}

/// `-j CHAIN` of a static chain.
pub(super) fn jump(chain: StaticChain) -> Target {
    Target::Jump(chain.name())
}

/// Narrows a rule to local pods' traffic.
pub(super) fn if_local(rule: Rule, detector: &LocalDetector) -> Rule {
    match detector {
        LocalDetector::Cidr(net) => Rule {
            src: network(*net),
            ..rule
        },
        LocalDetector::Bridge(name) => came_in(rule, Is::Equal(name.clone())),
        LocalDetector::InterfacePrefix(prefix) => came_in(rule, Is::Equal(any_ending(prefix))),
    }
}

/// Narrows a rule to traffic that is not local pods'; `None` when there can be none.
///
/// A detector of `/0` calls everything local. `! -s 0.0.0.0/0` is refused by iptables-nft 1.8.9, and with it the whole
/// table, so no such rule is made. Deviation: upstream makes it (ADR 8).
pub(super) fn if_not_local(rule: Rule, detector: &LocalDetector) -> Option<Rule> {
    match detector {
        LocalDetector::Cidr(net) if net.prefix_len() == 0 => None,
        LocalDetector::Cidr(net) => Some(Rule {
            src: Some(Is::Not(net.trunc())),
            ..rule
        }),
        LocalDetector::Bridge(name) => Some(came_in(rule, Is::Not(name.clone()))),
        LocalDetector::InterfacePrefix(prefix) => Some(came_in(rule, Is::Not(any_ending(prefix)))),
    }
}

fn came_in(rule: Rule, interface: Is<Arc<str>>) -> Rule {
    Rule {
        in_interface: Some(interface),
        ..rule
    }
}

/// The pattern for names with this beginning. One as long as a whole name leaves no room for another character.
fn any_ending(prefix: &Arc<str>) -> Arc<str> {
    if prefix.len() >= MAX_INTERFACE {
        prefix.clone()
    } else {
        format!("{prefix}+").into()
    }
}

/// The chance 1/n as the kernel keeps it, in units of 2^-31.
///
/// Upstream writes 1/n with ten digits, and iptables rounds that text to a multiple of 2^-31; so do we, in integers.
pub fn probability(n: usize) -> u32 {
    const TEN_DIGITS: u128 = 10_000_000_000;
    let n = u128::try_from(n.max(1)).expect("invariant: usize fits u128");
    let digits = (2 * TEN_DIGITS + n) / (2 * n);
    let units = ((digits << 31) + TEN_DIGITS / 2) / TEN_DIGITS;
    u32::try_from(units).expect("invariant: a chance is at most 2^31 units")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What iptables-save 1.8.9 prints for three and two endpoints, in units of 2^-31.
    #[test]
    fn chances_are_those_that_iptables_keeps() {
        assert_eq!(probability(3), 715_827_883); // 0.33333333349
        assert_eq!(probability(2), 1 << 30);
        assert_eq!(probability(1), 1 << 31);
        assert_eq!(probability(100_000), 21_475); // 0.0000100000
    }

    #[test]
    fn comments_are_cut_at_the_end_of_a_character() {
        let text = "é".repeat(200);
        assert_eq!(comment(&text), Match::Comment("é".repeat(127).into()));
        let text = "x".repeat(256);
        assert_eq!(comment(&text), Match::Comment("x".repeat(255).into()));
        let text = "x".repeat(255);
        assert_eq!(comment(&text), Match::Comment(text.clone().into()));
    }

    #[test]
    fn a_comment_never_ends_the_line() {
        assert_eq!(comment("a\nCOMMIT\0"), Match::Comment("a?COMMIT?".into()));
    }

    #[test]
    fn a_detector_that_calls_everything_local_makes_no_rule_for_the_rest() {
        let all = LocalDetector::Cidr("0.0.0.0/0".parse().unwrap());
        assert_eq!(if_not_local(Rule::new(Target::Accept), &all), None);
        assert_eq!(if_local(Rule::new(Target::Accept), &all).src, None);
    }

    #[test]
    fn interface_patterns_never_outgrow_a_name() {
        let rule = |prefix: &str| {
            if_local(
                Rule::new(Target::Accept),
                &LocalDetector::InterfacePrefix(prefix.into()),
            )
            .in_interface
        };
        assert_eq!(rule("cali"), Some(Is::Equal("cali+".into())));
        assert_eq!(rule("abcdefghijklmno"), Some(Is::Equal("abcdefghijklmno".into())));
    }
}
