//! What the tools refuse about one line, as seen with iptables 1.8.9 on kernel 6.18.

use crate::Backend;
use crate::guard::is_builtin;
use ipnet::IpNet;
use iptables::ast::{ChainName, Is, Match, Proto, Rule, Table, TableName, Target};
use model::{Family, Protocol};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where a line is read.
pub(super) struct Host<'a> {
    pub(super) backend: Backend,
    pub(super) family: Family,
    pub(super) table: TableName,
    pub(super) counters: &'a BTreeSet<Arc<str>>,
}

/// Bytes of a comment that the kernel keeps (`XT_MAX_COMMENT_LEN` less its end). The tools cut a longer one without a
/// word, and it would differ from what was wanted for ever: here alone it is refused, since to write one is a bug.
const COMMENT: usize = 255;
/// Bytes of an interface name (`IFNAMSIZ` - 1).
const INTERFACE: usize = 15;

/// Refuses a name that is a verdict's.
pub(super) fn check_chain_name(name: &ChainName) -> Result<(), String> {
    match name.as_str() {
        "ACCEPT" | "DROP" | "RETURN" | "QUEUE" => Err("chain name may not clash with target name".to_owned()),
        _ => Ok(()),
    }
}

/// Refuses what the tool's parser or the kernel's check of a single rule refuses.
pub(super) fn check_rule(
    host: &Host<'_>,
    table: &Table,
    chain: &ChainName,
    rule: &Rule,
) -> Result<(), String> {
    check_address(host.family, rule.src.as_ref())?;
    check_address(host.family, rule.dst.as_ref())?;
    check_interfaces(chain, rule)?;
    for found in &rule.matches {
        check_match(host, rule, found)?;
    }
    check_target(host, table, rule)
}

fn check_address(family: Family, net: Option<&Is<IpNet>>) -> Result<(), String> {
    match net {
        Some(net) if Family::of(net.value().addr()) != family => {
            Err(format!("host/network `{}' not found", net.value().addr()))
        }
        _ => Ok(()),
    }
}

fn check_interfaces(chain: &ChainName, rule: &Rule) -> Result<(), String> {
    for name in [&rule.in_interface, &rule.out_interface].into_iter().flatten() {
        if name.value().len() > INTERFACE {
            return Err(format!(
                "interface name `{}' must be shorter than 16 characters",
                name.value()
            ));
        }
    }
    match chain.as_str() {
        name @ ("INPUT" | "PREROUTING") if rule.out_interface.is_some() => {
            Err(format!("Can't use -o with {name}"))
        }
        name @ ("OUTPUT" | "POSTROUTING") if rule.in_interface.is_some() => {
            Err(format!("Can't use -i with {name}"))
        }
        _ => Ok(()),
    }
}

fn check_match(host: &Host<'_>, rule: &Rule, found: &Match) -> Result<(), String> {
    match found {
        Match::Comment(text) if text.len() > COMMENT => Err("Comment must be shorter".to_owned()),
        Match::Ports { module, src, dst }
            if !ports_fit(host, rule, *module, src.is_some() || dst.is_some()) =>
        {
            Err(format!("{module} match requires '-p {}'", module.as_lower()))
        }
        Match::Nfacct(name) if !host.counters.contains(name) => Err(format!(
            "RULE_APPEND failed (No such file or directory): nfacct {name}"
        )),
        _ => Ok(()),
    }
}

/// What iptables-nft writes without the structure of xtables, it does not hold to the rule that `! -p` does not do.
fn ports_fit(host: &Host<'_>, rule: &Rule, module: Protocol, has_ports: bool) -> bool {
    let is_native = host.backend == Backend::NfTables && module != Protocol::Sctp && has_ports;
    let inverted = Rule {
        protocol: rule.protocol.as_ref().map(|p| Is::Equal(p.value().clone())),
        ..rule.clone()
    };
    has_protocol(rule, module) || (is_native && has_protocol(&inverted, module))
}

fn has_protocol(rule: &Rule, wanted: Protocol) -> bool {
    matches!(
        (&rule.protocol, wanted),
        (Some(Is::Equal(Proto::Tcp)), Protocol::Tcp)
            | (Some(Is::Equal(Proto::Udp)), Protocol::Udp)
            | (Some(Is::Equal(Proto::Sctp)), Protocol::Sctp)
    )
}

/// For the target's ports the tool looks at the protocol's number and not at the `!` before it.
fn names_protocol_with_ports(rule: &Rule) -> bool {
    let named = rule.protocol.as_ref().map(Is::value);
    matches!(named, Some(Proto::Tcp | Proto::Udp | Proto::Sctp))
}

fn check_target(host: &Host<'_>, table: &Table, rule: &Rule) -> Result<(), String> {
    match &rule.target {
        Target::Jump(name) | Target::Goto(name)
            if !table.chains.contains_key(name) && !is_builtin(host.table, name.as_str()) =>
        {
            Err(format!("Chain '{name}' does not exist"))
        }
        Target::Drop if host.table == TableName::Nat => Err(
            "The \"nat\" table is not intended for filtering, the use of DROP is therefore inhibited."
                .to_owned(),
        ),
        Target::Dnat(to) if Family::of(to.ip()) != host.family => {
            Err(format!("Bad IP address \"{}\"", to.ip()))
        }
        Target::Dnat(_) if !names_protocol_with_ports(rule) => {
            Err("Need TCP, UDP, SCTP or DCCP with port specification".to_owned())
        }
        Target::Reject(with) if !reject_words(host.family).contains(&&**with) => {
            Err(format!("unknown reject type \"{with}\""))
        }
        Target::Reject(with) if &**with == "tcp-reset" && !has_protocol(rule, Protocol::Tcp) => {
            Err("RULE_APPEND failed (Invalid argument): tcp-reset without tcp".to_owned())
        }
        _ => Ok(()),
    }
}

/// The words of `--reject-with` (iptables-extensions(8)), as `iptables-save` prints them.
fn reject_words(family: Family) -> &'static [&'static str] {
    match family {
        Family::V4 => &[
            "icmp-net-unreachable",
            "icmp-host-unreachable",
            "icmp-port-unreachable",
            "icmp-proto-unreachable",
            "icmp-net-prohibited",
            "icmp-host-prohibited",
            "icmp-admin-prohibited",
            "tcp-reset",
        ],
        Family::V6 => &[
            "icmp6-no-route",
            "icmp6-adm-prohibited",
            "icmp6-addr-unreachable",
            "icmp6-port-unreachable",
            "icmp6-policy-fail",
            "icmp6-reject-route",
            "tcp-reset",
        ],
    }
}
