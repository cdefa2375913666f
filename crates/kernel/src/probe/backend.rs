//! Which backend: legacy or `nf_tables`.
//!
//! As upstream's image decides: kubelet's hint chains, first those of `nf_tables`; then the larger ruleset; then
//! `nf_tables`. Two backends on one host do not see each other's rules, so being on the host's side matters.

use super::{NoTools, SMALL_CALL, Tools, Wanted};
use crate::socket::{Socket, SocketError};
use crate::{Backend, FailureKind, LineSplitter, ObserveError};
use iptables::ast::TableName;
use model::Family;
use netlink::nft::{Message, Request};
use std::{fmt, io};

/// What the operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Choice {
    /// What the host uses.
    #[default]
    Detect,
    /// This one.
    Use(Backend),
}

/// Why a backend was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The operator said so.
    AskedFor,
    /// Only its tools are there.
    OnlyTools,
    /// kubelet keeps its hint chain there.
    KubeletHint,
    /// It has more rules than the other.
    MoreRules {
        /// Rules of `nf_tables`, both families.
        nf_tables: usize,
        /// Rules of legacy, both families.
        legacy: usize,
    },
    /// Nothing speaks for the other.
    Default,
    /// There are tables of legacy, but they cannot be read.
    LegacyUnread,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::AskedFor => f.write_str("asked for"),
            Reason::OnlyTools => f.write_str("only its tools are installed"),
            Reason::KubeletHint => f.write_str("kubelet keeps its hint chain there"),
            Reason::MoreRules { nf_tables, legacy } => {
                write!(
                    f,
                    "it has more rules ({nf_tables} in nf_tables, {legacy} in legacy)"
                )
            }
            Reason::Default => f.write_str("nothing speaks for legacy"),
            Reason::LegacyUnread => f.write_str("the tables of legacy cannot be read"),
        }
    }
}

/// Chains of table mangle by which kubelet says which backend it uses.
const HINTS: [&str; 2] = ["KUBE-IPTABLES-HINT", "KUBE-KUBELET-CANARY"];

pub(super) fn choose(tools: &Tools, choice: Choice) -> Result<(Backend, Reason), NoTools> {
    let none = |wanted| NoTools {
        wanted: Wanted(wanted),
    };
    if let Choice::Use(backend) = choice {
        return if tools.has(backend) {
            Ok((backend, Reason::AskedFor))
        } else {
            Err(none(Some(backend)))
        };
    }
    match (tools.has(Backend::NfTables), tools.has(Backend::Legacy)) {
        (false, false) => Err(none(None)),
        (true, false) => Ok((Backend::NfTables, Reason::OnlyTools)),
        (false, true) => Ok((Backend::Legacy, Reason::OnlyTools)),
        (true, true) => Ok(decide(&Signs::of_host(tools))),
    }
}

/// What a host shows of its use.
struct Signs<'a> {
    nf_tables_hint: bool,
    legacy_hint: bool,
    /// `None` where there are tables that cannot be read: legacy's tools need `CAP_NET_RAW` as well.
    legacy_rules: Option<usize>,
    /// Counted only when legacy has rules: it can take seconds.
    nf_tables_rules: Box<dyn Fn() -> usize + 'a>,
}

fn decide(signs: &Signs<'_>) -> (Backend, Reason) {
    if signs.nf_tables_hint {
        return (Backend::NfTables, Reason::KubeletHint);
    }
    if signs.legacy_hint {
        return (Backend::Legacy, Reason::KubeletHint);
    }
    let legacy = match signs.legacy_rules {
        None => return (Backend::NfTables, Reason::LegacyUnread),
        Some(0) => return (Backend::NfTables, Reason::Default),
        Some(legacy) => legacy,
    };
    let nf_tables = (signs.nf_tables_rules)();
    let backend = if legacy > nf_tables {
        Backend::Legacy
    } else {
        Backend::NfTables
    };
    (backend, Reason::MoreRules { nf_tables, legacy })
}

impl Signs<'_> {
    fn of_host(tools: &Tools) -> Signs<'_> {
        let legacy: Vec<Option<Counted>> = Family::ALL
            .into_iter()
            .map(|family| count_legacy(tools, family))
            .collect();
        Signs {
            nf_tables_hint: Family::ALL
                .into_iter()
                .any(|family| has_nft_hint(family).unwrap_or(false)),
            legacy_hint: legacy.iter().flatten().any(|counted| counted.hint),
            legacy_rules: legacy
                .iter()
                .map(|counted| counted.as_ref().map(|counted| counted.rules))
                .sum(),
            nf_tables_rules: Box::new(|| {
                Family::ALL
                    .into_iter()
                    .map(|family| count_nft_rules(family).unwrap_or(0))
                    .sum()
            }),
        }
    }
}

/// By netlink: `iptables-nft-save` of a large table takes the better part of a minute.
fn has_nft_hint(family: Family) -> Result<bool, SocketError> {
    let mut socket = Socket::netfilter()?;
    for hint in HINTS {
        let table = TableName::Mangle.as_str();
        let question = Request::Chain {
            family: crate::nft::family(family),
            table,
            name: hint,
        };
        match socket.ask(|sequence, bytes| question.encode(sequence, bytes), |_| Ok(())) {
            Ok(_) => return Ok(true),
            Err(SocketError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Rules in the tables of iptables-nft.
fn count_nft_rules(family: Family) -> Result<usize, SocketError> {
    let mut socket = Socket::netfilter()?;
    let family = crate::nft::family(family);
    let chains = socket.dump(
        |sequence, bytes| Request::Chains { family }.encode(sequence, bytes),
        |message| {
            Ok(match Message::read(message)? {
                Message::NewChain(chain)
                    if TableName::from_word(chain.table).is_some() && chain.use_count > 0 =>
                {
                    Some((chain.table.to_owned(), chain.name.to_owned()))
                }
                _ => None,
            })
        },
    )?;
    let mut count = 0;
    for (table, chain) in &chains {
        let question = Request::ChainRules { family, table, chain };
        count += socket
            .dump(
                |sequence, bytes| question.encode(sequence, bytes),
                |_| Ok(Some(())),
            )?
            .len();
    }
    Ok(count)
}

/// What `iptables-legacy-save` shows.
#[derive(Default)]
struct Counted {
    hint: bool,
    rules: usize,
}

impl Counted {
    fn line(&mut self, line: &str) {
        self.rules += usize::from(line.starts_with('-'));
        if let Some(chain) = line.strip_prefix(':').and_then(|rest| rest.split(' ').next()) {
            self.hint |= HINTS.contains(&chain);
        }
    }
}

/// `None` where there is something that cannot be read.
///
/// Saving without `-t` reads only tables that exist; with it, it would make the table and leave a legacy one behind.
fn count_legacy(tools: &Tools, family: Family) -> Option<Counted> {
    let mut counted = Counted::default();
    let Ok(found) = tools.of(Backend::Legacy, family) else {
        return Some(counted);
    };
    let mut lines = LineSplitter::default();
    let saved = found
        .save
        .invocation(&[], b"", &tools.environment, SMALL_CALL)
        .run(&mut |bytes| lines.feed(bytes, &mut |line| counted.line(line)));
    lines.end(&mut |line| counted.line(line));
    // A kernel without legacy tables has no rules in them: its complaint is the same answer as silence.
    let is_read = saved.is_ok_and(|finished| finished.succeeded());
    (is_read || !has_legacy_tables(family)).then_some(counted)
}

/// Whether this network namespace has tables of legacy, or may have them: the kernel names them to those who have rights.
/// No tool is asked, which would make them.
pub fn has_legacy_tables(family: Family) -> bool {
    legacy_tables(family).map_or(true, |all| !all.is_empty())
}

/// The tables of legacy that this network namespace has.
///
/// # Errors
/// When the kernel does not name them to this process.
pub fn legacy_tables(family: Family) -> Result<Vec<TableName>, ObserveError> {
    let file = match family {
        Family::V4 => "/proc/net/ip_tables_names",
        Family::V6 => "/proc/net/ip6_tables_names",
    };
    match std::fs::read_to_string(file) {
        Ok(names) => Ok(names.lines().filter_map(TableName::from_word).collect()),
        // Its module was never loaded.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(ObserveError {
            attempted: format!("reading {file}"),
            kind: if error.kind() == io::ErrorKind::PermissionDenied {
                FailureKind::Denied
            } else {
                FailureKind::Other
            },
            detail: error.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(nf_tables_hint: bool, legacy_hint: bool, nf_tables: usize, legacy: usize) -> Signs<'static> {
        Signs {
            nf_tables_hint,
            legacy_hint,
            legacy_rules: Some(legacy),
            nf_tables_rules: Box::new(move || nf_tables),
        }
    }

    #[test]
    fn hint_of_kubelet_decides_before_any_count() {
        assert_eq!(
            decide(&signs(true, true, 0, 900)),
            (Backend::NfTables, Reason::KubeletHint)
        );
        assert_eq!(
            decide(&signs(false, true, 900, 1)),
            (Backend::Legacy, Reason::KubeletHint)
        );
    }

    #[test]
    fn larger_ruleset_decides_and_a_tie_is_for_nf_tables() {
        let more = Reason::MoreRules {
            nf_tables: 3,
            legacy: 4,
        };
        assert_eq!(decide(&signs(false, false, 3, 4)), (Backend::Legacy, more));
        let tie = Reason::MoreRules {
            nf_tables: 4,
            legacy: 4,
        };
        assert_eq!(decide(&signs(false, false, 4, 4)), (Backend::NfTables, tie));
        assert_eq!(
            decide(&signs(false, false, 0, 0)),
            (Backend::NfTables, Reason::Default)
        );
    }

    #[test]
    fn legacy_tables_that_cannot_be_read_are_not_taken_for_none() {
        let mut unread = signs(false, false, 3, 0);
        unread.legacy_rules = None;
        assert_eq!(decide(&unread), (Backend::NfTables, Reason::LegacyUnread));
        unread.nf_tables_hint = true;
        assert_eq!(decide(&unread), (Backend::NfTables, Reason::KubeletHint));
    }

    #[test]
    fn legacy_save_is_counted_by_its_rule_lines() {
        let mut counted = Counted::default();
        for line in [
            "*mangle",
            ":KUBE-KUBELET-CANARY - [0:0]",
            "-A INPUT -j ACCEPT",
            "COMMIT",
            "# end",
        ] {
            counted.line(line);
        }
        assert_eq!((counted.hint, counted.rules), (true, 1));
        let mut other = Counted::default();
        other.line(":KUBE-KUBELET-CANARY-2 - [0:0]");
        assert!(!other.hint);
    }
}
