//! What iptables-nft keeps in `nf_tables`, read by netlink.

mod decode;
mod matches;
mod target;

pub(crate) use decode::{Undecodable, rule};

use crate::socket::{Socket, SocketError};
use iptables::ast::{Chain, ChainName, Policy, Rule, TableName};
use model::Family;
use netlink::message::Message as Raw;
use netlink::nfnl::Family as NetlinkFamily;
use netlink::nft::{self, Message, Request};

/// The family by netfilter's number.
pub(crate) fn family(family: Family) -> NetlinkFamily {
    match family {
        Family::V4 => NetlinkFamily::Ipv4,
        Family::V6 => NetlinkFamily::Ipv6,
    }
}

/// A chain without its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChainHead {
    pub table: TableName,
    pub name: ChainName,
    pub policy: Option<Policy>,
    /// Rules and jumps to it: none means that it is empty.
    pub use_count: u32,
}

impl ChainHead {
    /// `None` for chains of other tables, and for names that iptables could not have given.
    fn read(message: Raw<'_>) -> Result<Option<ChainHead>, SocketError> {
        let Message::NewChain(chain) = Message::read(message)? else {
            return Ok(None);
        };
        let table = TableName::from_word(chain.table);
        let name = ChainName::new(chain.name).ok();
        Ok(table.zip(name).map(|(table, name)| ChainHead {
            table,
            name,
            policy: chain.base.map(|base| match base.policy {
                nft::Policy::Accept => Policy::Accept,
                nft::Policy::Drop => Policy::Drop,
            }),
            use_count: chain.use_count,
        }))
    }
}

/// All chains of iptables-nft's tables of a family.
pub(crate) fn chains(socket: &mut Socket, of: Family) -> Result<Vec<ChainHead>, SocketError> {
    let question = Request::Chains { family: family(of) };
    socket.dump(
        |sequence, bytes| question.encode(sequence, bytes),
        ChainHead::read,
    )
}

/// One chain; `None` if there is none of this name.
pub(crate) fn chain(
    socket: &mut Socket,
    of: Family,
    table: TableName,
    name: &ChainName,
) -> Result<Option<ChainHead>, SocketError> {
    let question = Request::Chain {
        family: family(of),
        table: table.as_str(),
        name: name.as_str(),
    };
    match socket.ask(
        |sequence, bytes| question.encode(sequence, bytes),
        ChainHead::read,
    ) {
        Ok(answer) => Ok(answer.flatten()),
        Err(error) if error.errno() == Some(netlink::Errno::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A rule, or the fact that there is one whose form is not known here.
pub(crate) struct Listed {
    pub handle: u64,
    pub rule: Result<Rule, Undecodable>,
    pub words: Words,
}

/// Whose words a rule can be told in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Words {
    /// Those of iptables, as far as one can see.
    Iptables,
    /// Those of nftables alone. The tools of iptables leave a look at a set out of what they print, and end well: a rule for
    /// some packets becomes one for all.
    Nftables,
}

fn words_of(found: &nft::Rule<'_>) -> Words {
    let looks_up = |expression: &nft::Expr<'_>| matches!(expression, nft::Expr::Lookup { .. });
    if found.expressions.iter().any(looks_up) {
        Words::Nftables
    } else {
        Words::Iptables
    }
}

/// The rules of a chain, in order.
pub(crate) fn rules(
    socket: &mut Socket,
    of: Family,
    table: TableName,
    name: &ChainName,
) -> Result<Vec<Listed>, SocketError> {
    let question = Request::ChainRules {
        family: family(of),
        table: table.as_str(),
        chain: name.as_str(),
    };
    socket.dump(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| {
            let Message::NewRule(found) = Message::read(message)? else {
                return Ok(None);
            };
            Ok(Some(Listed {
                handle: found.handle,
                rule: rule(&found),
                words: words_of(&found),
            }))
        },
    )
}

/// A rule with its counter, as far as both are known here.
pub(crate) struct CountedRule {
    pub handle: u64,
    pub packets: u64,
    pub rule: Rule,
}

/// The counters of a chain's rules; rules whose form is not known here are left out.
pub(crate) fn counted(
    socket: &mut Socket,
    of: Family,
    table: TableName,
    name: &str,
) -> Result<Vec<CountedRule>, SocketError> {
    let question = Request::ChainRules {
        family: family(of),
        table: table.as_str(),
        chain: name,
    };
    socket.dump(
        |sequence, bytes| question.encode(sequence, bytes),
        |message| {
            let Message::NewRule(found) = Message::read(message)? else {
                return Ok(None);
            };
            let packets = found.expressions.iter().find_map(|expression| match expression {
                nft::Expr::Counter(counters) => Some(counters.packets),
                _ => None,
            });
            Ok(packets.zip(rule(&found).ok()).map(|(packets, rule)| CountedRule {
                handle: found.handle,
                packets,
                rule,
            }))
        },
    )
}

/// A chain's rules.
pub(crate) enum Content {
    /// All of them, told here.
    Told(Chain),
    /// One of them cannot be told here; the tool may have words for it.
    OnlyByTool,
    /// One of them has words in nftables alone.
    WithoutWords,
}

/// The rules of a chain, as far as they can be told here.
pub(crate) fn content(socket: &mut Socket, of: Family, head: &ChainHead) -> Result<Content, SocketError> {
    let listed = match head.use_count {
        0 => Vec::new(),
        _ => rules(socket, of, head.table, &head.name)?,
    };
    if listed.iter().any(|listed| listed.words == Words::Nftables) {
        return Ok(Content::WithoutWords);
    }
    let rules: Result<Vec<Rule>, Undecodable> = listed.into_iter().map(|listed| listed.rule).collect();
    Ok(rules.map_or(Content::OnlyByTool, |rules| {
        Content::Told(Chain {
            policy: head.policy,
            rules,
        })
    }))
}

/// The generation of all rules.
pub(crate) fn generation(socket: &mut Socket) -> Result<u32, SocketError> {
    let answer = socket.ask(
        |sequence, bytes| Request::Generation.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::Generation(generation) => Ok(Some(generation.id)),
            _ => Ok(None),
        },
    )?;
    answer.flatten().ok_or(SocketError::Silent)
}
