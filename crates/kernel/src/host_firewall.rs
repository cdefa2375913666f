//! Chains of others on the way of forwarded and incoming packets that drop what none of their rules accepts.
//!
//! iptables mode accepts packets of services in FORWARD, and those of health-check node ports in INPUT; nftables mode
//! does not, as upstream's does not: a verdict `accept` in one table does not keep another table from dropping.

use crate::nft;
use crate::probe::{Choice, Probe, Tools, has_legacy_tables};
use crate::socket::{Socket, SocketError};
use crate::{Backend, LiveKernel, RuleKernel, Scope};
use iptables::ast::{Chain, ChainName, Policy, Rule, TableName, Target};
use model::Family;
use netlink::nfnl::Family as NetlinkFamily;
use netlink::nft::{self as wire, Expr, Message, Request, Verdict};
use std::fmt;

/// A way through this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Packets for others.
    Forward,
    /// Packets for this host.
    Input,
}

/// The hook's name.
impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Forward => "forward",
            Way::Input => "input",
        })
    }
}

/// A chain that drops or rejects what reaches its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Barrier {
    /// Where packets meet it.
    pub way: Way,
    /// The chain, as `nft` or `iptables-save` would name it, and how it ends.
    pub chain: String,
}

/// The barriers that packets of a family meet now. What cannot be read of legacy counts as none.
///
/// # Errors
/// When the kernel would not say.
pub fn barriers(of: Family) -> Result<Vec<Barrier>, SocketError> {
    let mut found = Vec::new();
    let mut socket = Socket::netfilter()?;
    for family in [nft::family(of), NetlinkFamily::Inet] {
        of_tables(&mut socket, family, &mut found)?;
    }
    if has_legacy_tables(of) {
        found.extend(of_legacy(of));
    }
    found.sort();
    Ok(found)
}

/// A base chain of `nf_tables`.
struct Head {
    way: Way,
    table: String,
    name: String,
    drops: bool,
}

fn of_tables(
    socket: &mut Socket,
    family: NetlinkFamily,
    found: &mut Vec<Barrier>,
) -> Result<(), SocketError> {
    let heads = socket.dump(
        |sequence, bytes| Request::Chains { family }.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewChain(chain) if chain.family == family => Ok(head(&chain)),
            _ => Ok(None),
        },
    )?;
    for head in heads {
        let how = if head.drops {
            "policy drop"
        } else if last_rule_stops(socket, family, &head)? {
            "its last rule stops everything"
        } else {
            continue;
        };
        let word = match family {
            NetlinkFamily::Ipv4 => "ip",
            NetlinkFamily::Ipv6 => "ip6",
            _ => "inet",
        };
        let chain = format!("table {word} {}, chain {} ({how})", head.table, head.name);
        found.push(Barrier { way: head.way, chain });
    }
    Ok(())
}

/// `None` for chains elsewhere, and for tables of kube-proxy itself.
fn head(chain: &wire::Chain<'_>) -> Option<Head> {
    let base = chain.base?;
    let way = match wire::Hook::from_code(base.hook) {
        Some(wire::Hook::Forward) => Way::Forward,
        Some(wire::Hook::Input) => Way::Input,
        _ => return None,
    };
    (chain.table != nftables::names::TABLE).then(|| Head {
        way,
        table: chain.table.to_owned(),
        name: chain.name.to_owned(),
        drops: base.policy == wire::Policy::Drop,
    })
}

fn last_rule_stops(socket: &mut Socket, family: NetlinkFamily, head: &Head) -> Result<bool, SocketError> {
    let question = Request::ChainRules {
        family,
        table: &head.table,
        chain: &head.name,
    };
    let rules = socket.dump(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewRule(rule) => Ok(Some(stops(&rule.expressions))),
            _ => Ok(None),
        },
    )?;
    Ok(rules.last().copied().unwrap_or(false))
}

/// Whether a rule asks nothing, and drops or rejects.
fn stops(expressions: &[Expr<'_>]) -> bool {
    let Some((last, before)) = expressions.split_last() else {
        return false;
    };
    let asks_nothing = |one: &Expr<'_>| match one {
        Expr::Counter(_) | Expr::Log { .. } => true,
        Expr::XtMatch { name, .. } => *name == "comment",
        _ => false,
    };
    let ends = match last {
        Expr::Reject { .. } => true,
        Expr::XtTarget { name, .. } => *name == "REJECT",
        other => other.as_verdict() == Some(Verdict::Drop),
    };
    ends && before.iter().all(asks_nothing)
}

/// Built-in chains of legacy, by its tools.
fn of_legacy(of: Family) -> Vec<Barrier> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let Ok(probe) = Probe::new(&tools, Choice::Use(Backend::Legacy)) else {
        return Vec::new();
    };
    let mut kernel = LiveKernel::new(probe);
    let mut found = Vec::new();
    let chains = ["FORWARD", "INPUT"].map(|name| ChainName::new(name).expect("invariant: a good name"));
    let scope = Scope::Chains(TableName::Filter, chains.into());
    let mut look = |_, name: ChainName, chain: Chain| {
        let way = match name.as_str() {
            "FORWARD" => Way::Forward,
            _ => Way::Input,
        };
        if let Some(how) = end_of(&chain) {
            let chain = format!("legacy iptables, chain {name} ({how})");
            found.push(Barrier { way, chain });
        }
    };
    // A reading that fails has seen what it has seen.
    let _ = kernel.observe(of, &scope, &mut look);
    found
}

fn end_of(chain: &Chain) -> Option<&'static str> {
    if chain.policy == Some(Policy::Drop) {
        return Some("policy DROP");
    }
    let last = chain.rules.last()?;
    let stops = matches!(last.target, Target::Drop | Target::Reject(_));
    let mut bare = last.clone();
    bare.matches.clear();
    let asks_nothing = bare == Rule::new(last.target.clone()) && last.matches.is_empty();
    (stops && asks_nothing).then_some("its last rule stops everything")
}
