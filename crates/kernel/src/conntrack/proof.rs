//! What rules prove about flows: where they have been sending them.
//!
//! A proxy that has just started does not know which services were deleted while nobody watched. The rules that it
//! finds in the kernel do: they name each frontend and its endpoints.

use conntrack::FrontendKey;
use ipnet::IpNet;
use iptables::ast::{Chain, ChainName, Is, Match, Proto, Rule, Table, Target};
use iptables::names::StaticChain;
use model::{Family, Protocol};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// The UDP frontends that the rules of a `nat` table translate, each with the endpoints it may be translated to.
///
/// To be asked of what is found at start, before the first step is written, and to be handed to
/// `Expectation::remember_gone` pair by pair: of frontends that the cluster still has, it changes nothing.
pub fn translated(nat: &Table, family: Family) -> BTreeSet<(FrontendKey, SocketAddr)> {
    let mut found = BTreeSet::new();
    for entrance in [StaticChain::Services, StaticChain::NodePorts] {
        let rules = nat
            .chains
            .get(&entrance.name())
            .map_or(&[][..], |chain| &chain.rules);
        for rule in rules {
            let (Some(key), Target::Jump(chain)) = (frontend(rule, entrance, family), &rule.target) else {
                continue;
            };
            let endpoints = endpoints(nat, chain);
            found.extend(endpoints.into_iter().map(|endpoint| (key, endpoint)));
        }
    }
    found
}

/// What a dispatching rule is about, if it is about one frontend of UDP.
fn frontend(rule: &Rule, entrance: StaticChain, family: Family) -> Option<FrontendKey> {
    if rule.protocol != Some(Is::Equal(Proto::Udp)) {
        return None;
    }
    let port = rule.matches.iter().find_map(|found| match found {
        Match::Ports {
            module: Protocol::Udp,
            src: None,
            dst: Some(Is::Equal(range)),
        } if range.first == range.last => Some(range.first),
        _ => None,
    })?;
    match (entrance, &rule.dst) {
        (StaticChain::NodePorts, None) => Some(FrontendKey::NodePort(family, port, Protocol::Udp)),
        (StaticChain::Services, Some(Is::Equal(net))) => {
            single(net).map(|ip| FrontendKey::Address(ip, port, Protocol::Udp))
        }
        _ => None,
    }
}

fn single(net: &IpNet) -> Option<IpAddr> {
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}

/// All destinations that packets in this chain may be translated to.
fn endpoints(nat: &Table, entrance: &ChainName) -> BTreeSet<SocketAddr> {
    let mut found = BTreeSet::new();
    let mut visited = BTreeSet::new();
    let mut open = vec![entrance];
    while let Some(name) = open.pop() {
        let Some(Chain { rules, .. }) = nat.chains.get(name).filter(|_| visited.insert(name)) else {
            continue;
        };
        for rule in rules {
            match &rule.target {
                Target::Jump(chain) | Target::Goto(chain) => open.push(chain),
                Target::Dnat(endpoint) => {
                    found.insert(*endpoint);
                }
                _ => {}
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use iptables::ast::TableName;
    use iptables::parse;
    use model::{FrontendKind, Route};

    fn nat(text: &str, family: Family) -> Table {
        let mut saved = parse::save(text, family);
        saved.ruleset.tables.remove(&TableName::Nat).expect("a nat table")
    }

    /// What a family's frontends of UDP may be translated to, by what traffic should do.
    fn meant(desired: &model::Desired) -> BTreeSet<(FrontendKey, SocketAddr)> {
        let mut meant = BTreeSet::new();
        let ports = desired.services.values().flat_map(|service| &service.ports);
        for port in ports.filter(|port| port.name.protocol == Protocol::Udp) {
            for frontend in &port.frontends {
                let key = FrontendKey::of(frontend.kind, frontend.port, Protocol::Udp, desired.node.family);
                for route in [frontend.routes.pod, frontend.routes.node, frontend.routes.outside] {
                    let endpoints = match route {
                        Route::Endpoints { list, .. } => port.list(list),
                        Route::Reject(_) | Route::Drop(_) => continue,
                    };
                    meant.extend(endpoints.iter().map(|endpoint| (key, *endpoint)));
                }
            }
        }
        meant
    }

    #[test]
    fn upstreams_rules_prove_each_frontend_and_where_it_leads() {
        let mut proved = 0;
        for case in scenario::golden_cases() {
            for family in Family::ALL {
                let found = translated(&nat(case.saved.get(family), family), family);
                assert_eq!(found, meant(case.desired.get(family)), "{} {family}", case.name);
                proved += found.len();
            }
        }
        assert!(proved > 20, "only {proved} pairs");
    }

    #[test]
    fn rules_about_more_than_one_frontend_and_strangers_chains_prove_nothing() {
        let text = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-X - [0:0]\n:CNI-DN-1 - [0:0]\n\
            -A PREROUTING -d 192.0.2.1/32 -p udp -m udp --dport 5 -j CNI-DN-1\n\
            -A CNI-DN-1 -p udp -m udp -j DNAT --to-destination 10.0.0.1:5\n\
            -A KUBE-SERVICES -d 10.96.0.0/16 -p udp -m udp --dport 53 -j KUBE-SVC-X\n\
            -A KUBE-SERVICES -d 10.96.0.1/32 -p udp -m udp --dport 53:54 -j KUBE-SVC-X\n\
            -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 53 -j KUBE-SVC-X\n\
            -A KUBE-SVC-X -p udp -m udp -j DNAT --to-destination 10.0.0.2:5353\nCOMMIT\n";
        assert_eq!(translated(&nat(text, Family::V4), Family::V4), BTreeSet::new());
    }

    #[test]
    fn a_node_port_is_named_by_its_number() {
        let text = "*nat\n:KUBE-NODEPORTS - [0:0]\n:KUBE-EXT-X - [0:0]\n\
            -A KUBE-NODEPORTS -p udp -m udp --dport 30053 -j KUBE-EXT-X\n\
            -A KUBE-EXT-X -p udp -m udp -j DNAT --to-destination 10.0.0.2:5353\nCOMMIT\n";
        let key = FrontendKey::of(FrontendKind::NodePort, 30053, Protocol::Udp, Family::V4);
        let want = [(key, "10.0.0.2:5353".parse().unwrap())].into();
        assert_eq!(translated(&nat(text, Family::V4), Family::V4), want);
    }
}
