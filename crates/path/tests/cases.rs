//! Broken setups out of public reports: where packets go on them. `scenarios/cases/` holds the dumps; the answers were
//! seen with real packets on kernel 6.18.

use iptables::parse;
use model::{Family, Origin, Packet, Protocol};
use path::{
    Answer, Detail, End, Host, HostInterface, Listener, LocalAddresses, Route, Socket, Source, Way, trace,
};
use std::net::{IpAddr, SocketAddr};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("a good address")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("a good address")
}

/// The node of all these cases: node-a, with a pod bridge, and a route to the other node's pods.
fn node(case: &str, dump: &str) -> Host {
    let path = scenario::root().join("cases").join(case).join(dump);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let saved = parse::save(&text, Family::V4);
    assert_eq!(saved.opaque, [], "{}", path.display());
    let interface = |name: &str, address: &str| HostInterface {
        name: name.into(),
        addresses: vec![address.parse().expect("a good address")],
    };
    let route = |to: &str, via: &str| Route {
        to: to.parse().expect("a good address"),
        via: Some(ip(via)),
        interface: "eth0".into(),
    };
    let mut host = Host {
        rules: model::PerFamily::default(),
        native: nftables::listed::Ruleset::default(),
        addresses: LocalAddresses::Unknown,
        interfaces: vec![
            interface("eth0", "192.0.2.11/24"),
            interface("cni0", "10.244.1.1/24"),
        ],
        routes: Some(vec![
            route("0.0.0.0/0", "192.0.2.1"),
            route("10.244.2.0/24", "192.0.2.12"),
        ]),
        sockets: None,
        sets: path::IpSets::default(),
    };
    host.rules.v4 = saved.ruleset;
    host
}

fn from_pod(pod: &str, to: &str, protocol: Protocol) -> Packet {
    Packet::new(ip(pod), at(to), protocol, Origin::Interface("cni0".into()))
}

fn from_outside(to: &str) -> Packet {
    Packet::new(
        ip("198.51.100.7"),
        at(to),
        Protocol::Tcp,
        Origin::Interface("eth0".into()),
    )
}

fn from_node(to: &str, protocol: Protocol) -> Packet {
    Packet::new(ip("192.0.2.11"), at(to), protocol, Origin::Host)
}

fn go(host: &Host, packet: &Packet) -> Answer {
    trace(host, packet, Detail::Met)
}

/// The endpoints that an answer's ways lead to.
fn endpoints(answer: &Answer) -> Vec<String> {
    let to = |way: &Way| {
        way.translated
            .map_or_else(|| "unchanged".to_owned(), |to| to.to_string())
    };
    answer.ways.iter().map(to).collect()
}

fn all(answer: &Answer, is_so: impl Fn(&Way) -> bool) -> bool {
    answer.ways.iter().all(is_so)
}

fn masqueraded(way: &Way) -> bool {
    way.source != Source::Kept
}

/// The chain of the last rule that a way met.
fn last_chain(answer: &Answer, way: usize) -> (String, String) {
    let met = answer.met(&answer.ways[way]);
    let (table, chain, _) = met.last().expect("it met a rule");
    (table.to_string(), chain.to_string())
}

#[test]
fn endpoints_that_are_another_services_address_are_not_translated_again() {
    let mut host = node("10-endpoint-is-another-service", "iptables-save.txt");
    host.sockets = Some(vec![]);
    let answer = go(&host, &from_pod("10.244.1.5", "10.96.45.1:9090", Protocol::Tcp));
    assert_eq!(endpoints(&answer), ["192.0.2.11:30912", "192.0.2.12:30912"]);
    assert_eq!(answer.ways[0].end, End::Local(Listener::Absent));
    assert!(
        matches!(&answer.ways[1].end, End::Left { next_hop: Some(next), .. } if *next == ip("192.0.2.12"))
    );
    assert!(all(&answer, |way| (way.state.chance - 0.5).abs() < 1e-9));
    let answer = go(&host, &from_pod("10.244.1.5", "10.96.46.1:9090", Protocol::Tcp));
    assert_eq!(endpoints(&answer), ["10.96.44.1:9090"]);
    assert!(
        matches!(&answer.ways[0].end, End::Left { next_hop: Some(next), .. } if *next == ip("192.0.2.1"))
    );
    let answer = go(&host, &from_outside("192.0.2.11:30912"));
    assert_eq!(endpoints(&answer), ["10.244.2.90:9090"]);
    assert!(all(&answer, masqueraded));
}

#[test]
fn external_policy_does_not_govern_a_cluster_ip_reached_from_outside() {
    let host = node("14-clusterip-routed-from-outside", "iptables-save.txt");
    let answer = go(&host, &from_outside("10.96.7.140:80"));
    assert_eq!(endpoints(&answer), ["10.244.1.140:8080", "10.244.2.140:8080"]);
    assert!(all(&answer, masqueraded));
    let answer = go(&host, &from_outside("192.0.2.11:30140"));
    assert_eq!(endpoints(&answer), ["10.244.1.140:8080"]);
    assert!(!all(&answer, masqueraded));
}

#[test]
fn forward_policy_drop_hits_only_what_is_not_marked() {
    let host = node("19-forward-policy-drop-hits-only-unmarked", "iptables-save.txt");
    let both = ["10.244.1.5:8080", "10.244.2.9:8080"];
    let answer = go(&host, &from_pod("10.244.1.6", "10.96.7.50:80", Protocol::Tcp));
    assert_eq!(endpoints(&answer), both);
    assert!(all(&answer, |way| way.end == End::Dropped));
    let answer = go(&host, &from_outside("192.0.2.11:30050"));
    assert_eq!(endpoints(&answer), both);
    assert!(all(&answer, |way| way.got_through() && masqueraded(way)));
    let answer = go(&host, &from_node("10.96.7.50:80", Protocol::Tcp));
    assert_eq!(endpoints(&answer), both);
    assert!(all(&answer, |way| way.got_through() && masqueraded(way)));
}

#[test]
fn untracked_packets_never_meet_nat() {
    let case = "22-notrack-hides-packets-from-nat";
    let cache = || HostInterface {
        name: "nodelocaldns".into(),
        addresses: vec![
            "169.254.20.10/32".parse().expect("a good address"),
            "10.96.0.10/32".parse().expect("a good address"),
        ],
    };
    let mut before_only = node(case, "iptables-save-pre-only.txt");
    before_only.interfaces.push(cache());
    before_only.sockets = Some(vec![Socket {
        protocol: Protocol::Udp,
        address: at("10.96.0.10:53"),
    }]);
    let from_pod = from_pod("10.244.1.6", "10.96.0.10:53", Protocol::Udp);
    let answer = go(&before_only, &from_pod);
    assert_eq!(answer.ways[0].end, End::Local(Listener::Present));
    assert_eq!(endpoints(&answer), ["unchanged"]);
    let answer = go(&before_only, &from_node("10.96.0.10:53", Protocol::Udp));
    assert_eq!(endpoints(&answer), ["10.244.2.53:53"]);
    assert!(all(&answer, masqueraded));

    let mut both = node(case, "iptables-save-both.txt");
    let answer = go(&both, &from_pod);
    assert_eq!(endpoints(&answer), ["unchanged"]);
    assert!(
        matches!(&answer.ways[0].end, End::Left { next_hop: Some(next), .. } if *next == ip("192.0.2.1"))
    );
    let first = &answer.met(&answer.ways[0])[0];
    assert_eq!((first.0.as_str(), first.1.as_str()), ("raw", "PREROUTING"));
    both.interfaces.push(cache());
    let answer = go(&both, &from_node("10.96.0.10:53", Protocol::Udp));
    assert_eq!(answer.ways[0].end, End::Local(Listener::Unknown));
    assert_eq!(endpoints(&answer), ["unchanged"]);
}

#[test]
fn overlays_own_masquerade_hides_the_client_that_policy_local_kept() {
    let host = node("24-overlay-masquerade-hides-the-client", "iptables-save.txt");
    let answer = go(&host, &from_outside("192.0.2.11:30050"));
    assert_eq!(endpoints(&answer), ["10.244.1.5:8080"]);
    assert_eq!(answer.ways[0].source, Source::Rewritten(Some(ip("10.244.1.1"))));
    let met = answer.met(&answer.ways[0]);
    assert!(met.iter().all(|(_, chain, _)| chain.as_str() != "KUBE-MARK-MASQ"));
    let (_, chain, rule) = met.last().expect("it met a rule");
    assert_eq!(
        (chain.as_str(), *rule),
        ("POSTROUTING", 4),
        "the overlay's third rule, behind kube-proxy's jump"
    );
}

#[test]
fn foreign_marks_that_hold_our_bit_are_masqueraded() {
    let case = "26-wireguard-fwmark-holds-both-kube-bits";
    let mut packet = from_node("198.51.100.7:51820", Protocol::Udp);
    packet.src_port = 51_820;
    packet.mark = 0xca6c;
    let answer = go(&node(case, "iptables-save-old-kubelet.txt"), &packet);
    assert_eq!(answer.ways[0].end, End::Dropped);
    assert_eq!(
        last_chain(&answer, 0),
        ("filter".to_owned(), "KUBE-FIREWALL".to_owned())
    );
    let answer = go(&node(case, "iptables-save-new-kubelet.txt"), &packet);
    assert!(all(&answer, |way| way.got_through() && masqueraded(way)));
    assert_eq!(answer.ways[0].state.src_port, None, "--random-fully");
    assert_eq!(
        last_chain(&answer, 0),
        ("nat".to_owned(), "KUBE-POSTROUTING".to_owned())
    );
    packet.mark = 0x8a6d;
    let answer = go(&node(case, "iptables-save-new-kubelet.txt"), &packet);
    assert!(all(&answer, |way| way.got_through() && !masqueraded(way)));
}

#[test]
fn node_ports_answer_on_every_local_address_unless_they_are_limited() {
    let case = "32-nodeport-answers-on-a-foreign-vip";
    let with_vip = |dump| {
        let mut host = node(case, dump);
        host.interfaces[0]
            .addresses
            .push("203.0.113.30/32".parse().expect("a good address"));
        host
    };
    let answer = go(
        &with_vip("iptables-save.txt"),
        &from_outside("203.0.113.30:30777"),
    );
    assert_eq!(endpoints(&answer), ["10.244.2.71:8080"]);
    assert!(all(&answer, masqueraded));
    let answer = go(
        &with_vip("iptables-save-primary.txt"),
        &from_outside("203.0.113.30:30777"),
    );
    assert_eq!(answer.ways[0].end, End::Local(Listener::Unknown));
    assert_eq!(endpoints(&answer), ["unchanged"]);
}

#[test]
fn a_firewall_of_nftables_beside_iptables_accepts_only_what_was_translated() {
    let case = "29-firewall-accepts-only-translated-packets";
    let mut host = node(case, "iptables-save.txt");
    let list = scenario::root().join("cases").join(case).join("nft-ruleset.txt");
    let list = std::fs::read_to_string(list).expect("the list is there");
    host.native = nftables::parse::ruleset(&list).expect("a list");
    let answer = go(&host, &from_pod("10.244.1.6", "10.96.7.50:80", Protocol::Tcp));
    assert_eq!(endpoints(&answer), ["10.244.2.9:8080"]);
    assert!(all(&answer, Way::got_through));
    let answer = go(&host, &from_pod("10.244.1.6", "10.244.2.9:8080", Protocol::Tcp));
    assert_eq!(answer.ways[0].end, End::Rejected("icmpx admin-prohibited".into()));
    let by = ("inet firewalld".to_owned(), "filter_FWD_public".to_owned());
    assert_eq!(last_chain(&answer, 0), by);
    let answer = go(&host, &from_outside("192.0.2.11:30050"));
    assert!(all(&answer, |way| way.got_through() && masqueraded(way)));
}
