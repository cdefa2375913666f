//! The Services that rules name, by their addresses: chains of iptables mode, our table, and upstream's.

use explain::known;
use ipnet::IpNet;
use iptables::ast::{Is, Match, Rule, Ruleset, TableName, Target};
use iptables::names::{OwnChain, StaticChain};
use model::{Family, Protocol, ServiceName, ServicePortName};
use nftables::listed::{self, Contents, Element, Expr, Op, Statement, Table, TableFamily, Value, Verdict};
use nftables::names::{self, Role, TABLE};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A frontend that rules name.
#[derive(Clone, Debug)]
pub(super) struct Served {
    /// Whose it is.
    pub(super) owner: ServicePortName,
    /// Its address; `None` for a node port.
    pub(super) ip: Option<IpAddr>,
    pub(super) port: u16,
    /// Seconds that clients stay, where the table says.
    pub(super) affinity: Option<u32>,
    /// Who may use it, where the table says.
    pub(super) admitted: Option<BTreeSet<IpNet>>,
}

impl Served {
    /// Its title by its address. Rules do not tell what kind of address one is that nobody serves.
    pub(super) fn title(&self) -> String {
        let protocol = self.owner.protocol;
        match self.ip {
            Some(ip) => format!("{}/{protocol}", SocketAddr::new(ip, self.port)),
            None => format!("node port {}/{protocol}", self.port),
        }
    }
}

/// Where pods are, by the rules.
pub(crate) enum Where {
    Net(IpNet),
    Interface(Arc<str>),
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Net(net) => write!(f, "what comes from {net}"),
            Where::Interface(name) if name.ends_with(['+', '*']) => {
                let prefix = name.trim_end_matches(['+', '*']);
                write!(f, "what comes in through interfaces {prefix}*")
            }
            Where::Interface(name) => write!(f, "what comes in through interface {name}"),
        }
    }
}

/// By the chains of iptables mode.
pub(super) fn of_rules(rules: &Ruleset) -> Vec<Served> {
    let known = known::of_rules(rules).into_iter();
    known
        .map(|known| Served {
            owner: ServicePortName {
                service: known.service,
                port: known.port_name.into(),
                protocol: known.protocol,
            },
            ip: known.ip,
            port: known.port,
            affinity: None,
            admitted: None,
        })
        .collect()
}

/// By kube-proxy's table of a family, of either layout.
pub(super) fn of_tables(native: &listed::Ruleset, family: Family) -> Vec<Served> {
    let Some(table) = native.table(TableFamily::of(family), TABLE) else {
        return Vec::new();
    };
    let mut all = of_own(table);
    all.extend(of_upstreams(table));
    all
}

fn elements<'a>(table: &'a Table, set: &str) -> &'a [Element] {
    match table.set(set).map(|set| &set.elements) {
        Some(Contents::Listed(all)) => all,
        _ => &[],
    }
}

/// Each frontend of ours lies in a set whose elements say whose it is.
fn of_own(table: &Table) -> Vec<Served> {
    let mut all: Vec<Served> = Vec::new();
    for set in &table.sets {
        let Some(form) = names::form_of(&set.name) else {
            continue;
        };
        let affinity = match form.role {
            Role::Within(_, sticky) => sticky,
            Role::Refused => None,
            _ => continue,
        };
        for element in elements(table, &set.name) {
            let Some((ip, protocol, port)) = frontend(&element.key) else {
                continue;
            };
            let owner = element.comment.as_deref().and_then(|text| owner(text, protocol));
            let Some(owner) = owner else { continue };
            match all
                .iter_mut()
                .find(|has| has.owner == owner && has.ip == ip && has.port == port)
            {
                Some(has) => has.affinity = has.affinity.or(affinity),
                None => all.push(Served {
                    admitted: ip.and_then(|_| admitted(table, &element.key)),
                    owner,
                    ip,
                    port,
                    affinity,
                }),
            }
        }
    }
    all
}

/// `namespace/name:port`, which may be cut.
fn owner(text: &str, protocol: Protocol) -> Option<ServicePortName> {
    let (service, port, _) = known::service_of(text)?;
    Some(ServicePortName {
        service,
        port: port.into(),
        protocol,
    })
}

/// Address, protocol and port of a key; a node port's has no address.
fn frontend(key: &Expr) -> Option<(Option<IpAddr>, Protocol, u16)> {
    let Expr::Concat(parts) = key else {
        return None;
    };
    let (ip, rest) = match parts.as_slice() {
        [Expr::Value(Value::Address(ip)), rest @ ..] => (Some(*ip), rest),
        rest => (None, rest),
    };
    let [
        Expr::Value(Value::Word(protocol)),
        Expr::Value(Value::Number(port)),
    ] = rest
    else {
        return None;
    };
    let protocol = Protocol::ALL
        .into_iter()
        .find(|known| known.as_lower() == &**protocol)?;
    Some((ip, protocol, u16::try_from(*port).ok()?))
}

/// The sources that may use an address; `None` for all.
fn admitted(table: &Table, key: &Expr) -> Option<BTreeSet<IpNet>> {
    let guarded = elements(table, names::GUARDED)
        .iter()
        .any(|element| element.key == *key);
    guarded.then(|| {
        let Expr::Concat(wanted) = key else {
            return BTreeSet::new();
        };
        let allowed = elements(table, names::ALLOWED).iter();
        let own = allowed.filter_map(|element| match &element.key {
            Expr::Concat(parts) if parts.get(1..) == Some(wanted) => parts.first(),
            _ => None,
        });
        own.filter_map(network).collect()
    })
}

fn network(part: &Expr) -> Option<IpNet> {
    match part {
        Expr::Value(Value::Network(net)) => Some(*net),
        Expr::Value(Value::Address(ip)) => Some(IpNet::from(*ip)),
        _ => None,
    }
}

/// Maps of upstream's layout that lead from an address, or a node port, to a chain with the service port's name.
const UPSTREAMS: [&str; 2] = ["service-ips", "service-nodeports"];
/// Its maps of what nobody serves, whose elements' comments name the service port.
const UPSTREAMS_REFUSED: [&str; 2] = ["no-endpoint-services", "no-endpoint-nodeports"];

fn of_upstreams(table: &Table) -> Vec<Served> {
    let mut all = Vec::new();
    for map in UPSTREAMS.into_iter().chain(UPSTREAMS_REFUSED) {
        for element in elements(table, map) {
            let Some((ip, protocol, port)) = frontend(&element.key) else {
                continue;
            };
            let by_comment = element.comment.as_deref().and_then(|text| owner(text, protocol));
            let by_chain = || match &element.data {
                Some(Expr::Verdict(Verdict::Goto(chain) | Verdict::Jump(chain))) => of_chain(chain, protocol),
                _ => None,
            };
            if let Some(owner) = by_comment.or_else(by_chain) {
                all.push(Served {
                    owner,
                    ip,
                    port,
                    affinity: None,
                    admitted: None,
                });
            }
        }
    }
    all
}

/// `external-HASH-namespace/name/tcp/port` and the like (upstream `servicePortChainNameBase` in `pkg/proxy/nftables`).
fn of_chain(chain: &str, protocol: Protocol) -> Option<ServicePortName> {
    let (_, rest) = chain.split_once('-')?;
    let (_, rest) = rest.split_once('-')?;
    let mut parts = rest.split('/');
    let (namespace, name) = (parts.next()?, parts.next()?);
    let port = parts.nth(1).unwrap_or_default();
    Some(ServicePortName {
        service: ServiceName::new(namespace, name),
        port: port.into(),
        protocol,
    })
}

/// How the rules tell pods from others.
pub(crate) fn pods(rules: &Ruleset, native: &listed::Ruleset, family: Family) -> Option<Where> {
    let marking = Target::Jump(StaticChain::MarkMasq.name());
    let nat = rules.tables.get(&TableName::Nat);
    let chains = nat.into_iter().flat_map(|nat| &nat.chains);
    let own = chains.filter(|(name, _)| name.as_str().starts_with("KUBE-SV"));
    let mut marks = own
        .flat_map(|(_, chain)| &chain.rules)
        .filter(|rule| rule.target == marking);
    let of_marks = marks.find_map(|rule| match (&rule.src, &rule.in_interface) {
        (Some(Is::Not(net)), _) => Some(Where::Net(*net)),
        (_, Some(Is::Not(name))) => Some(Where::Interface(name.clone())),
        _ => None,
    });
    of_marks.or_else(|| short_circuit(rules)).or_else(|| {
        let table = native.table(TableFamily::of(family), TABLE)?;
        let statements = table
            .chains
            .iter()
            .flat_map(|chain| &chain.rules)
            .flat_map(|rule| &rule.statements);
        let mut told = statements.filter_map(of_statement);
        told.next()
    })
}

/// Under policy Local, pods are told from others on their way to external addresses.
fn short_circuit(rules: &Ruleset) -> Option<Where> {
    let nat = rules.tables.get(&TableName::Nat).into_iter();
    let chains = nat.flat_map(|nat| &nat.chains);
    let external = chains.filter(|(name, _)| name.as_str().starts_with(OwnChain::Ext.prefix()));
    let mut rules = external.flat_map(|(_, chain)| &chain.rules);
    rules.find_map(|rule| match (&rule.src, &rule.in_interface) {
        (Some(Is::Equal(net)), _) => Some(Where::Net(*net)),
        (_, Some(Is::Equal(name))) => Some(Where::Interface(name.clone())),
        _ => None,
    })
}

fn of_statement(statement: &Statement) -> Option<Where> {
    let Statement::Match {
        left: Expr::Field(words),
        op: Op::Not,
        right: Expr::Value(value),
    } = statement
    else {
        return None;
    };
    match (words.last()?.as_ref(), value) {
        ("saddr", Value::Network(net)) => Some(Where::Net(*net)),
        ("iifname", Value::Quoted(name)) => Some(Where::Interface(name.clone())),
        _ => None,
    }
}

/// The addresses that node ports are restricted to, if they are.
pub(super) fn node_port_addresses(rules: &Ruleset, native: &listed::Ruleset, family: Family) -> Vec<IpAddr> {
    let tail = Target::Jump(StaticChain::NodePorts.name());
    let dispatch = rules.chain(TableName::Nat, StaticChain::Services.as_str());
    let rules = dispatch.into_iter().flat_map(|chain| &chain.rules);
    let of_rules = rules
        .filter(|rule| rule.target == tail)
        .filter_map(|rule| match &rule.dst {
            Some(Is::Equal(net)) if net.prefix_len() == net.max_prefix_len() => Some(net.addr()),
            _ => None,
        });
    let table = native.table(TableFamily::of(family), TABLE).into_iter();
    let of_table = table
        .flat_map(|table| elements(table, names::NODEPORT_IPS))
        .filter_map(|element| match &element.key {
            Expr::Value(Value::Address(ip)) => Some(*ip),
            _ => None,
        });
    of_rules.chain(of_table).collect()
}

/// The only destination port that a rule is about.
pub(super) fn destination_port(rule: &Rule) -> Option<u16> {
    rule.matches.iter().find_map(|one| match one {
        Match::Ports {
            dst: Some(Is::Equal(range)),
            ..
        } if range.first == range.last => Some(range.first),
        _ => None,
    })
}
