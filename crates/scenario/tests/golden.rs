//! The golden cases load, and what `model` makes of them agrees with what upstream wrote.
//!
//! Upstream's rules are read here as plain text, so that no backend of ours is asked.

use model::{Desired, DesiredPort, Family, FrontendKind, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

#[test]
fn every_golden_case_loads_with_rules_of_both_families() {
    let cases = scenario::golden_cases();
    assert!(cases.len() >= 21, "{} cases", cases.len());
    for case in &cases {
        assert!(!case.title.is_empty(), "{}: no title", case.name);
        assert!(case.saved.v4.contains("*nat"), "{}: no IPv4 rules", case.name);
        assert!(!case.desired.v4.services.is_empty(), "{}: no services", case.name);
        assert_eq!(
            case.notes,
            [],
            "{}: a real API server's objects need no notes",
            case.name
        );
    }
}

/// One thing that a rule says about traffic: service port, protocol, address (if any), port, what becomes of it.
type Fact = (String, String, String, String, &'static str);

#[test]
fn frontends_are_those_upstream_wrote() {
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let ours: BTreeSet<Fact> = ports(case.desired.get(family)).flat_map(facts_of_port).collect();
            let upstream: BTreeSet<Fact> = rules(case.saved.get(family))
                .filter_map(|rule| fact_of_rule(&rule))
                .collect();
            assert_same(&case.name, family, &ours, &upstream);
        }
    }
}

#[test]
fn endpoints_that_may_be_reached_are_those_upstream_wrote() {
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let mut ours = BTreeSet::new();
            for port in ports(case.desired.get(family)) {
                let protocol = port.name.protocol.as_lower().to_owned();
                let reachable = port.reachable.iter();
                ours.extend(reachable.map(|ep| (port.name.to_string(), protocol.clone(), ep.to_string())));
            }
            let mut upstream = BTreeSet::new();
            for rule in rules(case.saved.get(family)) {
                if let Some(to) = rule.after("--to-destination") {
                    // Large clusters have no comments here: chain names tell services apart, not compared then.
                    let Some(comment) = rule.comment else { continue };
                    upstream.insert((comment.to_owned(), rule.need("-p"), to.to_owned()));
                }
            }
            if case.name == "large-cluster" {
                assert!(upstream.is_empty());
                continue;
            }
            assert_same(&case.name, family, &ours, &upstream);
        }
    }
}

#[test]
fn endpoint_lists_and_their_order_are_those_upstream_wrote() {
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let mut ours = BTreeSet::new();
            for port in ports(case.desired.get(family)) {
                for (kind, list) in [("KUBE-SVC", &port.cluster), ("KUBE-SVL", &port.local)] {
                    let list: Vec<String> = list.iter().map(SocketAddr::to_string).collect();
                    if !list.is_empty() && case.name != "large-cluster" {
                        ours.insert((kind, port.name.to_string(), list));
                    }
                }
            }
            let upstream = lists(case.saved.get(family));
            assert_same(&case.name, family, &ours, &upstream);
        }
    }
}

/// What rules say about masquerading and admission, beside the frontends: service port, and a phrase.
#[test]
fn masquerading_and_admission_are_those_upstream_wrote() {
    let mut seen = BTreeSet::new();
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let ours: BTreeSet<(String, String)> = ports(case.desired.get(family))
                .flat_map(phrases_of_port)
                .collect();
            let upstream: BTreeSet<(String, String)> = rules(case.saved.get(family))
                .filter_map(|rule| phrase_of_rule(&rule))
                .collect();
            seen.extend(
                upstream
                    .iter()
                    .map(|(_, phrase)| phrase.split(' ').next().unwrap().to_owned()),
            );
            assert_same(&case.name, family, &ours, &upstream);
        }
    }
    let all = [
        "admits",
        "cluster-ip-masquerade",
        "external-masquerade",
        "short-cut",
    ];
    assert_eq!(seen, all.map(str::to_owned).into(), "the cases show all of it");
}

fn phrases_of_port(port: &DesiredPort) -> Vec<(String, String)> {
    let mut phrases = Vec::new();
    let mut say = |phrase: String| phrases.push((port.name.to_string(), phrase));
    let masquerades = |route| matches!(route, Route::Endpoints { masquerade: true, .. });
    for frontend in &port.frontends {
        let routes = &frontend.routes;
        match frontend.kind {
            FrontendKind::ClusterIp(_) if masquerades(routes.outside) && masquerades(routes.pod) => {
                say("cluster-ip-masquerade all".to_owned());
            }
            FrontendKind::ClusterIp(_) if masquerades(routes.outside) => {
                say("cluster-ip-masquerade off-cluster".to_owned());
            }
            FrontendKind::ClusterIp(_) => {}
            _ if masquerades(routes.outside) => say("external-masquerade".to_owned()),
            _ => {
                if matches!(
                    routes.pod,
                    Route::Endpoints {
                        list: model::List::Cluster,
                        ..
                    }
                ) {
                    say("short-cut pod".to_owned());
                }
                if masquerades(routes.node) {
                    say("short-cut node".to_owned());
                }
            }
        }
        if let Some(admission) = &frontend.admission {
            admission
                .ranges
                .iter()
                .for_each(|range| say(format!("admits {range}")));
            let hosts = admission.self_sources.iter().map(|ip| ipnet::IpNet::from(*ip));
            hosts.for_each(|host| say(format!("admits {host}")));
        }
    }
    phrases
}

fn phrase_of_rule(rule: &Rule<'_>) -> Option<(String, String)> {
    let comment = rule.comment?;
    let words: Vec<&str> = comment.split(' ').collect();
    let kind = rule.chain.get(..9)?;
    let (service, phrase) = match (kind, words.as_slice()) {
        ("KUBE-SVC-" | "KUBE-SVL-", [service, "cluster", "IP"]) => {
            let all = rule.after("-s").is_none() && rule.after("-i").is_none();
            let whose = if all { "all" } else { "off-cluster" };
            (service, format!("cluster-ip-masquerade {whose}"))
        }
        ("KUBE-EXT-", ["masquerade", "traffic", "for", service, ..]) => {
            (service, "external-masquerade".to_owned())
        }
        ("KUBE-EXT-", ["pod", "traffic", "for", service, ..]) => (service, "short-cut pod".to_owned()),
        ("KUBE-EXT-", ["masquerade", "LOCAL", "traffic", "for", service, ..]) => {
            (service, "short-cut node".to_owned())
        }
        _ if rule.chain.starts_with("KUBE-FW-") => match words.as_slice() {
            [service, "loadbalancer", "IP"] => (service, format!("admits {}", rule.need("-s"))),
            _ => return None,
        },
        _ => return None,
    };
    Some(((*service).to_owned(), phrase))
}

#[test]
fn the_large_cluster_is_large_and_no_other_is() {
    for case in scenario::golden_cases() {
        let listed = model::crossing::ListedEndpoints::of(&case.desired.v4);
        assert_eq!(listed.is_large(), case.name == "large-cluster", "{}", case.name);
    }
}

fn lists(saved: &str) -> BTreeSet<(&'static str, String, Vec<String>)> {
    let mut chains: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for rule in rules(saved) {
        let Some((service, endpoint)) = rule.comment.and_then(|comment| comment.split_once(" -> ")) else {
            continue;
        };
        if !rule.words.contains(&"recent") {
            chains
                .entry((rule.chain, service.to_owned()))
                .or_default()
                .push(endpoint.to_owned());
        }
    }
    let kind = |chain: &str| {
        if chain.starts_with("KUBE-SVC") {
            "KUBE-SVC"
        } else {
            "KUBE-SVL"
        }
    };
    chains
        .into_iter()
        .map(|((chain, service), list)| (kind(chain), service, list))
        .collect()
}

fn ports(desired: &Desired) -> impl Iterator<Item = &DesiredPort> {
    desired.services.values().flat_map(|service| &service.ports)
}

fn facts_of_port(port: &DesiredPort) -> Vec<Fact> {
    let mut facts = Vec::new();
    let fact = |protocol: &str, address: String, number: u16, what| {
        (
            port.name.to_string(),
            protocol.to_owned(),
            address,
            number.to_string(),
            what,
        )
    };
    let protocol = port.name.protocol.as_lower();
    for frontend in &port.frontends {
        let address = match frontend.kind {
            FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
                ip.to_string()
            }
            FrontendKind::NodePort => String::new(),
        };
        let mut add = |what| facts.push(fact(protocol, address.clone(), frontend.port, what));
        if matches!(frontend.routes.node, Route::Endpoints { .. }) {
            add("dnat");
        }
        match frontend.routes.outside {
            Route::Endpoints { .. } => {}
            Route::Reject(_) => add("REJECT"),
            Route::Drop(_) => add("DROP"),
        }
        if frontend.admission.is_some() {
            add("firewall");
        }
    }
    let health = port.health_check_node_port;
    facts.extend(health.map(|number| fact("tcp", String::new(), number, "ACCEPT")));
    facts
}

fn fact_of_rule(rule: &Rule<'_>) -> Option<Fact> {
    let comment = rule.comment?;
    let target = rule.after("-j")?;
    let what = match rule.chain {
        "KUBE-PROXY-FIREWALL" => "firewall",
        "KUBE-SERVICES" | "KUBE-EXTERNAL-SERVICES" | "KUBE-NODEPORTS" => match target {
            "REJECT" => "REJECT",
            "DROP" => "DROP",
            "ACCEPT" => "ACCEPT",
            _ => "dnat",
        },
        _ => return None,
    };
    let number = rule.after("--dport")?.to_owned();
    let address = rule.after("-d").unwrap_or_default().split('/').next()?.to_owned();
    // The counting twin of a node-port rule.
    let address = if address == "127.0.0.0" {
        String::new()
    } else {
        address
    };
    let service = comment.split(' ').next()?.to_owned();
    Some((service, rule.need("-p"), address, number, what))
}

/// One `-A` line of iptables-save.
struct Rule<'a> {
    chain: &'a str,
    comment: Option<&'a str>,
    words: Vec<&'a str>,
}

impl<'a> Rule<'a> {
    fn after(&self, word: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|found| *found == word)?;
        self.words.get(at + 1).copied()
    }

    fn need(&self, word: &str) -> String {
        self.after(word)
            .unwrap_or_else(|| panic!("no {word} in {:?}", self.words))
            .to_owned()
    }
}

fn rules(saved: &str) -> impl Iterator<Item = Rule<'_>> {
    saved.lines().filter_map(|line| {
        let line = line.strip_prefix("-A ")?;
        let comment = line
            .split_once("--comment ")
            .map(|(_, rest)| match rest.strip_prefix('"') {
                Some(quoted) => quoted.split('"').next().unwrap_or_default(),
                None => rest.split(' ').next().unwrap_or_default(),
            });
        let words: Vec<&str> = line.split(' ').collect();
        Some(Rule {
            chain: words[0],
            comment,
            words,
        })
    })
}

fn assert_same<T: Ord + std::fmt::Debug>(
    case: &str,
    family: Family,
    ours: &BTreeSet<T>,
    theirs: &BTreeSet<T>,
) {
    let extra: Vec<&T> = ours.difference(theirs).collect();
    let missing: Vec<&T> = theirs.difference(ours).collect();
    assert!(
        extra.is_empty() && missing.is_empty(),
        "{case} {family}\nonly ours: {extra:#?}\nonly upstream's: {missing:#?}"
    );
}
