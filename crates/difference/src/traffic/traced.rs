//! What a host's rules do with packets to the Services that they name: asked of the tracer, one packet for each frontend and
//! sender.

mod served;

use super::fates::{Behaviour, Fate, FrontendBehaviour, PortBehaviour, Sender};
use ipnet::IpNet;
use iptables::ast::{Is, Match, RecentAction, Rule, Ruleset, TableName, Target};
use iptables::names::{PortChains, StaticChain};
use model::{Family, Origin, Outcome, Packet, ServicePortName};
use path::{Detail, Host, LocalAddresses};
use served::Served;
pub(crate) use served::{Where, pods};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Rules without a single Service in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotServedHere;

impl fmt::Display for NotServedHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("kube-proxy serves nothing by these rules")
    }
}

impl std::error::Error for NotServedHere {}

/// What a host's rules do, of one family.
///
/// Where the rules name no address of the node, and `host` has none, one of the networks for documentation stands for it.
///
/// # Errors
/// When the rules name no Service.
pub fn of_host(host: &Host, family: Family) -> Result<Behaviour, NotServedHere> {
    let rules = host.rules.get(family);
    let mut served = served::of_rules(rules);
    served.extend(served::of_tables(&host.native, family));
    if served.is_empty() {
        return Err(NotServedHere);
    }
    let senders = Senders::of(host, family);
    let mut known = host.clone();
    if known.addresses == LocalAddresses::Unknown && known.interfaces.is_empty() {
        let own = [senders.node, loopback(family)]
            .into_iter()
            .chain(senders.serving.iter().copied());
        known.addresses = LocalAddresses::Known(own.collect());
    }
    let mut ports: BTreeMap<String, PortBehaviour> = BTreeMap::new();
    for of in &served {
        let port = ports.entry(of.owner.to_string()).or_default();
        port.affinity = port
            .affinity
            .or(of.affinity)
            .or_else(|| affinity(rules, &of.owner));
        port.health_check = health_check(rules, &of.owner.to_string());
        let behaviour = port.frontends.entry(of.title()).or_default();
        *behaviour = frontend(&known, &senders, of, rules);
    }
    Ok(Behaviour {
        family,
        node: of_node(rules, &senders),
        ports,
    })
}

fn frontend(host: &Host, senders: &Senders, served: &Served, rules: &Ruleset) -> FrontendBehaviour {
    let admitted = served.admitted.clone().or_else(|| source_ranges(rules, served));
    let fate = |sender| {
        let packet = senders.packet(sender, served, admitted.as_ref());
        (sender, fate(host, &packet))
    };
    let asked = Sender::ALL
        .into_iter()
        .filter(|sender| admitted.is_none() || *sender == Sender::Outside);
    FrontendBehaviour {
        fates: asked.map(fate).collect(),
        admitted,
    }
}

fn fate(host: &Host, packet: &Packet) -> Fate {
    match path::trace(host, packet, Detail::Met).outcome() {
        Ok(Outcome::Delivered(to)) => {
            let masqueraded: BTreeSet<bool> = to.iter().map(|delivery| delivery.masquerade).collect();
            let endpoints = to.iter().map(|delivery| delivery.endpoint).collect();
            match masqueraded.len() {
                1 => Fate::Endpoints {
                    to: endpoints,
                    masqueraded: masqueraded.contains(&true),
                },
                _ => Fate::Open(words(&Outcome::Delivered(to))),
            }
        }
        Ok(Outcome::Rejected) => Fate::Refused,
        Ok(Outcome::Dropped) => Fate::Dropped,
        Ok(Outcome::Accepted | Outcome::Untouched) => Fate::Untouched,
        Err(several) => {
            let outcomes = several.outcomes.iter().map(words);
            let words: Vec<String> = outcomes.chain(several.open).collect();
            Fate::Open(words.join(", or "))
        }
    }
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Delivered(_) => format!("to {outcome}"),
        Outcome::Rejected => "refused at once".to_owned(),
        Outcome::Dropped => "dropped".to_owned(),
        Outcome::Accepted | Outcome::Untouched => "not translated".to_owned(),
    }
}

/// Who sends the packets that are asked about.
struct Senders {
    pod: IpAddr,
    /// The interface that pods' packets come in through, where the rules tell pods by it.
    pod_interface: Arc<str>,
    pods: Option<String>,
    node: IpAddr,
    outside: IpAddr,
    /// Addresses that node ports are restricted to.
    serving: Vec<IpAddr>,
    /// The host's addresses, as far as they are known.
    own: BTreeSet<IpAddr>,
}

impl Senders {
    fn of(host: &Host, family: Family) -> Senders {
        let rules = host.rules.get(family);
        let told = pods(rules, &host.native, family);
        let (net, pod_interface) = match &told {
            Some(Where::Net(net)) => (*net, "".into()),
            Some(Where::Interface(name)) => (usual_pods(family), name.trim_end_matches(['+', '*']).into()),
            None => (usual_pods(family), "".into()),
        };
        let serving = served::node_port_addresses(rules, &host.native, family);
        Senders {
            pod: last_but_one(net),
            pod_interface,
            pods: told.map(|told| told.to_string()),
            node: serving
                .iter()
                .copied()
                .find(|ip| !ip.is_loopback())
                .or_else(|| own_address(host, family))
                .unwrap_or(documentation(family, 1)),
            outside: documentation(family, 77),
            serving,
            own: match &host.addresses {
                LocalAddresses::Known(all) => all.clone(),
                LocalAddresses::Unknown => BTreeSet::new(),
            },
        }
    }

    fn packet(&self, sender: Sender, served: &Served, admitted: Option<&BTreeSet<IpNet>>) -> Packet {
        let to = SocketAddr::new(served.ip.unwrap_or(self.node), served.port);
        let (from, origin) = match sender {
            Sender::Pod => (self.pod, Origin::Interface(self.pod_interface.clone())),
            Sender::Node => (self.node, Origin::Host),
            Sender::Outside => {
                // One that is let in, and is neither the node nor the balancer as which the node may come.
                let own = |ip: &IpAddr| Some(*ip) == served.ip || self.own.contains(ip);
                let mut let_in = admitted.into_iter().flatten().map(IpNet::network);
                let from = let_in.find(|ip| !own(ip));
                (from.unwrap_or(self.outside), Origin::Interface("eth0".into()))
            }
        };
        Packet::new(from, to, served.owner.protocol, origin)
    }
}

/// Where the rules do not say where pods are.
fn usual_pods(family: Family) -> IpNet {
    match family {
        Family::V4 => "10.244.0.0/16".parse(),
        Family::V6 => "fd00:10:244::/56".parse(),
    }
    .expect("invariant: literal networks")
}

/// An address of a network that no pod has as a rule.
fn last_but_one(net: IpNet) -> IpAddr {
    match net.broadcast() {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits().saturating_sub(1)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits().saturating_sub(1)).into(),
    }
}

/// Addresses that nobody has (RFC 5737, RFC 3849).
fn documentation(family: Family, last: u8) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from([192, 0, 2, last]),
        Family::V6 => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(last)]),
    }
}

fn loopback(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::LOCALHOST.into(),
        Family::V6 => Ipv6Addr::LOCALHOST.into(),
    }
}

fn own_address(host: &Host, family: Family) -> Option<IpAddr> {
    let known = match &host.addresses {
        LocalAddresses::Known(all) => all.iter().copied().collect(),
        LocalAddresses::Unknown => Vec::new(),
    };
    let mut usable = known
        .into_iter()
        .filter(|ip| Family::of(*ip) == family && !ip.is_loopback());
    usable.next()
}

/// Seconds that clients stay with their endpoint, by the lists of `-m recent` that the port's chains ask.
fn affinity(rules: &Ruleset, owner: &ServicePortName) -> Option<u32> {
    let chains = PortChains::of(owner);
    let all = [chains.svc, chains.svl].into_iter();
    let rules = all.filter_map(|chain| rules.chain(TableName::Nat, chain.as_str()));
    let mut matches = rules
        .flat_map(|chain| &chain.rules)
        .flat_map(|rule| &rule.matches);
    matches.find_map(|one| match one {
        Match::Recent(recent) => match recent.action {
            RecentAction::RcheckReap { seconds } => Some(seconds),
            RecentAction::Set => None,
        },
        _ => None,
    })
}

/// The sources that a port's firewall chain lets in; `None` when the frontend does not go there.
fn source_ranges(rules: &Ruleset, served: &Served) -> Option<BTreeSet<IpNet>> {
    let fw = PortChains::of(&served.owner).fw;
    let dispatch = rules.chain(TableName::Nat, StaticChain::Services.as_str())?;
    let leads_there = |rule: &&Rule| {
        rule.target == Target::Jump(fw.clone())
            && matches!(&rule.dst, Some(Is::Equal(net)) if Some(net.addr()) == served.ip)
    };
    dispatch.rules.iter().find(leads_there)?;
    let chain = rules.chain(TableName::Nat, fw.as_str())?;
    let sources = chain.rules.iter().filter(|rule| rule.target != Target::None);
    Some(
        sources
            .map(|rule| match &rule.src {
                Some(Is::Equal(net)) => *net,
                _ => match served.ip {
                    Some(IpAddr::V6(_)) => IpNet::V6(ipnet::Ipv6Net::default()),
                    _ => IpNet::V4(ipnet::Ipv4Net::default()),
                },
            })
            .collect(),
    )
}

fn health_check(rules: &Ruleset, owner: &str) -> Option<u16> {
    let chain = rules.chain(TableName::Filter, StaticChain::NodePorts.as_str())?;
    let wanted = format!("{owner} health check node port");
    let mut own = chain.rules.iter().filter(|rule| rule.comment() == Some(&*wanted));
    own.find_map(served::destination_port)
}

fn of_node(rules: &Ruleset, senders: &Senders) -> BTreeMap<&'static str, String> {
    let mut node = BTreeMap::new();
    let marking = rules.chain(TableName::Nat, StaticChain::MarkMasq.as_str());
    let marks = marking.into_iter().flat_map(|chain| &chain.rules);
    for rule in marks {
        if let Target::Mark { value, .. } = rule.target {
            node.insert("the masquerade mark", format!("{value:#x}"));
        }
    }
    if let Some(pods) = &senders.pods {
        node.insert("who counts as a pod", pods.clone());
    }
    node
}
