//! Comparing rulesets, and asking a ruleset whether an address is answered. Knows nothing of the code under test but
//! the types.

use iptables::ast::{Chain, ChainName, Is, Match, Rule, Ruleset, TableName, Target};
use iptables::diff::count::RuleCount;
use model::{Desired, DesiredPort, Frontend, FrontendKind, Protocol, Route, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// What begins the names of chains, and the comments of rules, that a stranger wrote.
pub const STRANGER: &str = "STRANGER";

const DISPATCH: [(TableName, &str); 6] = [
    (TableName::Nat, "KUBE-SERVICES"),
    (TableName::Nat, "KUBE-NODEPORTS"),
    (TableName::Filter, "KUBE-SERVICES"),
    (TableName::Filter, "KUBE-EXTERNAL-SERVICES"),
    (TableName::Filter, "KUBE-NODEPORTS"),
    (TableName::Filter, "KUBE-PROXY-FIREWALL"),
];

const PREFIXES: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-"];

/// Whether two rulesets are the same but for strangers' rules, the order of services in dispatch chains, and comments
/// of services' own chains.
pub fn same(want: &Ruleset, have: &Ruleset) -> Result<(), String> {
    tail_is_last(have)?;
    let (want, have) = (comparable(want), comparable(have));
    if want == have {
        return Ok(());
    }
    let mut text = String::new();
    for (key, rules) in &want {
        match have.get(key) {
            None => writeln!(text, "missing {key:?} with {rules:#?}").unwrap(),
            Some(other) if other != rules => {
                writeln!(text, "{key:?}: want {rules:#?}\nhave {other:#?}").unwrap();
            }
            Some(_) => {}
        }
    }
    for (key, rules) in have.iter().filter(|(key, _)| !want.contains_key(*key)) {
        writeln!(text, "surplus {key:?} with {} rules", rules.len()).unwrap();
    }
    Err(text)
}

/// How many rules upstream would count as its own.
pub fn rules_owned(ruleset: &Ruleset) -> RuleCount {
    let in_table = |table: TableName| {
        let chains = ruleset.tables.get(&table).map(|content| &content.chains);
        let ours = chains
            .into_iter()
            .flatten()
            .filter(|(name, _)| name.as_str().starts_with("KUBE-"));
        ours.map(|(_, chain)| chain.rules.len()).sum()
    };
    RuleCount {
        filter: in_table(TableName::Filter),
        nat: in_table(TableName::Nat),
    }
}

type Comparable = BTreeMap<(TableName, ChainName), Vec<Rule>>;

fn comparable(ruleset: &Ruleset) -> Comparable {
    let mut all = Comparable::new();
    for (table, content) in &ruleset.tables {
        for (name, chain) in &content.chains {
            if name.as_str().starts_with(STRANGER) {
                continue;
            }
            let rules = comparable_chain(*table, name, chain);
            if chain.policy.is_none() || !rules.is_empty() {
                all.insert((*table, name.clone()), rules);
            }
        }
    }
    all
}

fn comparable_chain(table: TableName, name: &ChainName, chain: &Chain) -> Vec<Rule> {
    let ours = chain.rules.iter().filter(|rule| !is_strangers(rule)).cloned();
    let is_dispatch = DISPATCH.iter().any(|(t, c)| *t == table && *c == name.as_str());
    if is_dispatch {
        let mut rules: Vec<Rule> = ours.collect();
        rules.sort();
        return rules;
    }
    if PREFIXES.iter().any(|prefix| name.as_str().starts_with(prefix)) {
        return ours.map(without_comments).collect();
    }
    ours.collect()
}

fn is_strangers(rule: &Rule) -> bool {
    rule.comment().is_some_and(|text| text.starts_with(STRANGER))
}

fn without_comments(mut rule: Rule) -> Rule {
    rule.matches.retain(|part| !matches!(part, Match::Comment(_)));
    rule
}

fn is_tail(rule: &Rule) -> bool {
    matches!(&rule.target, Target::Jump(chain) if chain.as_str() == "KUBE-NODEPORTS")
}

fn tail_is_last(ruleset: &Ruleset) -> Result<(), String> {
    let Some(chain) = chain_of(ruleset, TableName::Nat, "KUBE-SERVICES") else {
        return Ok(());
    };
    let first = chain.rules.iter().position(is_tail).unwrap_or(chain.rules.len());
    if chain.rules[first..].iter().all(is_tail) {
        Ok(())
    } else {
        Err(format!(
            "the jump to the node ports is not last: {:#?}",
            chain.rules
        ))
    }
}

fn chain_of<'a>(ruleset: &'a Ruleset, table: TableName, name: &str) -> Option<&'a Chain> {
    let name = ChainName::new(name).unwrap();
    ruleset.tables.get(&table)?.chains.get(&name)
}

/// One address that clients use, and the service it is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    service: ServiceName,
    /// None for a node port.
    ip: Option<IpAddr>,
    port: u16,
    protocol: Protocol,
}

/// How an address may be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    /// By which endpoints, in any of the states there were.
    by: BTreeSet<SocketAddr>,
    /// Whether it may be refused, since it was in one of these states.
    refusal: Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Wrong,
    Right,
}

/// Addresses that have to be answered.
#[derive(Clone, Debug, Default)]
pub struct Addresses(BTreeMap<Address, Answer>);

impl Addresses {
    /// All addresses of a family, each with the answer it gets.
    pub fn answered(desired: &Desired) -> Addresses {
        let mut all = BTreeMap::new();
        for service in desired.services.values() {
            for port in &service.ports {
                for frontend in &port.frontends {
                    let address = Address {
                        service: service.name.clone(),
                        ip: match frontend.kind {
                            FrontendKind::ClusterIp(ip)
                            | FrontendKind::ExternalIp(ip)
                            | FrontendKind::LoadBalancerIp(ip) => Some(ip),
                            FrontendKind::NodePort => None,
                        },
                        port: frontend.port,
                        protocol: port.name.protocol,
                    };
                    all.insert(address, answer(frontend, port));
                }
            }
        }
        Addresses(all)
    }

    /// Keeps what both have; an answer may be either's.
    pub fn keep_common(&mut self, other: &Addresses) {
        self.0.retain(|address, _| other.0.contains_key(address));
        for (address, answer) in &mut self.0 {
            let other = &other.0[address];
            answer.by.extend(&other.by);
            if other.refusal == Refusal::Right {
                answer.refusal = Refusal::Right;
            }
        }
    }
}

fn answer(frontend: &Frontend, port: &DesiredPort) -> Answer {
    let routes = [frontend.routes.pod, frontend.routes.node, frontend.routes.outside];
    let is_delivered = routes
        .iter()
        .any(|route| matches!(route, Route::Endpoints { .. }));
    Answer {
        by: if is_delivered {
            port.reachable.iter().copied().collect()
        } else {
            BTreeSet::new()
        },
        refusal: if is_delivered {
            Refusal::Wrong
        } else {
            Refusal::Right
        },
    }
}

/// The addresses that a ruleset leaves without an answer, or answers otherwise than it may.
pub fn unanswered(ruleset: &Ruleset, must: &Addresses) -> Vec<String> {
    let mut broken = Vec::new();
    for (address, answer) in &must.0 {
        let to = translated(ruleset, address);
        if !to.is_empty() {
            if !to.is_subset(&answer.by) {
                broken.push(format!("{address:?} goes to {to:?}, not to {:?}", answer.by));
            }
        } else if answer.refusal == Refusal::Wrong {
            broken.push(format!("{address:?} is not translated for a moment"));
        } else if !is_refused(ruleset, address) {
            broken.push(format!("{address:?} is not answered at all for a moment"));
        }
    }
    broken
}

/// Where nat may send a packet for an address, whatever its source.
fn translated(ruleset: &Ruleset, address: &Address) -> BTreeSet<SocketAddr> {
    let name = if address.ip.is_some() {
        "KUBE-SERVICES"
    } else {
        "KUBE-NODEPORTS"
    };
    let mut found = BTreeSet::new();
    let Some(chain) = chain_of(ruleset, TableName::Nat, name) else {
        return found;
    };
    for rule in chain
        .rules
        .iter()
        .filter(|rule| !is_tail(rule) && is_for(rule, address))
    {
        if let Target::Jump(next) = &rule.target {
            collect(ruleset, next, &mut found, 0);
        }
        if !found.is_empty() {
            break;
        }
    }
    found
}

fn collect(ruleset: &Ruleset, name: &ChainName, found: &mut BTreeSet<SocketAddr>, depth: usize) {
    assert!(depth < 10, "chains go in circles");
    let Some(chain) = chain_of(ruleset, TableName::Nat, name.as_str()) else {
        return;
    };
    for rule in &chain.rules {
        match &rule.target {
            Target::Jump(next) => collect(ruleset, next, found, depth + 1),
            Target::Dnat(to) => {
                found.insert(*to);
            }
            _ => {}
        }
    }
}

fn is_refused(ruleset: &Ruleset, address: &Address) -> bool {
    ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-PROXY-FIREWALL"]
        .iter()
        .any(|name| {
            let chain = chain_of(ruleset, TableName::Filter, name);
            chain.is_some_and(|chain| {
                chain.rules.iter().any(|rule| {
                    is_for(rule, address) && matches!(rule.target, Target::Reject(_) | Target::Drop)
                })
            })
        })
}

/// Whether a rule is about packets to this address, whatever their source.
fn is_for(rule: &Rule, address: &Address) -> bool {
    let to = match (&rule.dst, address.ip) {
        (Some(Is::Equal(net)), Some(ip)) => net.prefix_len() == net.max_prefix_len() && net.addr() == ip,
        (None, None) => true,
        // The loopback's own rule of a node port is not the node port's.
        _ => false,
    };
    let port = rule.matches.iter().any(|part| match part {
        Match::Ports {
            module,
            dst: Some(Is::Equal(range)),
            ..
        } => *module == address.protocol && range.first == address.port && range.last == address.port,
        _ => false,
    });
    to && port
}
