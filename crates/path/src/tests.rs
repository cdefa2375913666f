//! Hand-written hosts, and where packets go on them.

use super::*;
use iptables::parse;
use model::{Delivery, Family, Origin, Outcome, Packet, Protocol};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

const NODE: &str = "192.0.2.11";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn host(rules: &str) -> Host {
    let saved = parse::save(rules, Family::V4);
    assert_eq!(saved.opaque, [], "the test's own rules must be understood");
    let mut host = Host {
        addresses: LocalAddresses::Known(BTreeSet::from([ip(NODE), ip("10.244.1.1")])),
        ..Host::default()
    };
    host.rules.v4 = saved.ruleset;
    host
}

/// The same with interfaces and routes, as a node with a pod bridge has them.
fn routed(rules: &str) -> Host {
    let interface = |name: &str, address: &str| HostInterface {
        name: name.into(),
        addresses: vec![address.parse().unwrap()],
    };
    let route = |to: &str, via: &str| Route {
        to: to.parse().unwrap(),
        via: Some(ip(via)),
        interface: "eth0".into(),
    };
    Host {
        interfaces: vec![
            interface("eth0", "192.0.2.11/24"),
            interface("cni0", "10.244.1.1/24"),
        ],
        routes: Some(vec![
            route("0.0.0.0/0", "192.0.2.1"),
            route("10.244.2.0/24", "192.0.2.12"),
        ]),
        ..host(rules)
    }
}

fn from_pod(to: &str) -> Packet {
    Packet::new(
        ip("10.244.1.6"),
        at(to),
        Protocol::Tcp,
        Origin::Interface("cni0".into()),
    )
}

fn from_outside(to: &str) -> Packet {
    Packet::new(
        ip("198.51.100.7"),
        at(to),
        Protocol::Tcp,
        Origin::Interface("eth0".into()),
    )
}

fn from_node(to: &str) -> Packet {
    Packet::new(ip(NODE), at(to), Protocol::Tcp, Origin::Host)
}

fn go(host: &Host, packet: &Packet) -> Answer {
    trace(host, packet, Detail::Met)
}

fn ends(answer: &Answer) -> Vec<End> {
    answer.ways.iter().map(|way| way.end.clone()).collect()
}

fn delivered(endpoints: &[&str], masquerade: bool) -> Outcome {
    let to = |text: &&str| Delivery {
        endpoint: at(text),
        masquerade,
    };
    Outcome::Delivered(endpoints.iter().map(to).collect())
}

/// A cluster IP with two endpoints and a node port with the first, as kube-proxy writes them.
const SERVICE: &str = "\
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
-A FORWARD -j KUBE-FORWARD
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:KUBE-NODEPORTS - [0:0]
:KUBE-MARK-MASQ - [0:0]
:KUBE-POSTROUTING - [0:0]
:SVC - [0:0]
:EXT - [0:0]
:SEP1 - [0:0]
:SEP2 - [0:0]
-A PREROUTING -j KUBE-SERVICES
-A OUTPUT -j KUBE-SERVICES
-A POSTROUTING -j KUBE-POSTROUTING
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j SVC
-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
-A KUBE-NODEPORTS -p tcp -m tcp --dport 30080 -j EXT
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
-A SVC ! -s 10.244.0.0/16 -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ
-A SVC -m statistic --mode random --probability 0.50000000000 -j SEP1
-A SVC -j SEP2
-A EXT -j KUBE-MARK-MASQ
-A EXT -j SEP1
-A SEP1 -s 10.244.2.5/32 -j KUBE-MARK-MASQ
-A SEP1 -p tcp -m tcp -j DNAT --to-destination 10.244.2.5:8080
-A SEP2 -s 192.0.2.11/32 -j KUBE-MARK-MASQ
-A SEP2 -p tcp -m tcp -j DNAT --to-destination 192.0.2.11:30080
COMMIT
";

#[test]
fn pod_reaches_each_endpoint_with_its_source_kept() {
    let answer = go(&routed(SERVICE), &from_pod("10.96.0.10:80"));
    assert_eq!(
        answer.outcome(),
        Ok(delivered(&["10.244.2.5:8080", "192.0.2.11:30080"], false))
    );
    let chances: Vec<f64> = answer.ways.iter().map(|way| way.state.chance).collect();
    assert_eq!(chances, [0.5, 0.5]);
}

#[test]
fn nat_is_asked_once_so_an_endpoint_that_is_a_node_port_here_is_not_translated_again() {
    let answer = go(&routed(SERVICE), &from_pod("10.96.0.10:80"));
    let ends = ends(&answer);
    let by_gateway = End::Left {
        interface: Interface::Named("eth0".into()),
        next_hop: Some(ip("192.0.2.12")),
    };
    assert_eq!(ends, [by_gateway, End::Local(Listener::Unknown)]);
    assert_eq!(answer.ways[1].translated, Some(at("192.0.2.11:30080")));
}

#[test]
fn packet_for_this_host_ends_at_its_socket_if_there_is_one() {
    let mut host = routed(SERVICE);
    host.sockets = Some(vec![Socket {
        protocol: Protocol::Tcp,
        address: at("0.0.0.0:22"),
    }]);
    assert_eq!(
        ends(&go(&host, &from_outside("192.0.2.11:22"))),
        [End::Local(Listener::Present)]
    );
    assert_eq!(
        ends(&go(&host, &from_outside("192.0.2.11:23"))),
        [End::Local(Listener::Absent)]
    );
}

#[test]
fn rules_met_are_listed_as_the_kernel_meets_them() {
    let answer = go(&routed(SERVICE), &from_outside("192.0.2.11:30080"));
    let met: Vec<(String, String, u32)> = answer
        .met(&answer.ways[0])
        .into_iter()
        .map(|(table, chain, rule)| (table.to_string(), chain.to_string(), rule))
        .collect();
    let nat = |chain: &str, rule| ("nat".to_owned(), chain.to_owned(), rule);
    let filter = |chain: &str, rule| ("filter".to_owned(), chain.to_owned(), rule);
    assert_eq!(
        met,
        [
            nat("PREROUTING", 1),
            nat("KUBE-SERVICES", 2),
            nat("KUBE-NODEPORTS", 1),
            nat("EXT", 1),
            nat("KUBE-MARK-MASQ", 1),
            nat("EXT", 2),
            nat("SEP1", 2),
            filter("FORWARD", 1),
            filter("KUBE-FORWARD", 1),
            nat("POSTROUTING", 1),
            nat("KUBE-POSTROUTING", 2),
            nat("KUBE-POSTROUTING", 3),
        ]
    );
    assert_eq!(answer.ways[0].source, Source::Rewritten(Some(ip(NODE))));
    assert_eq!(
        answer.ways[0].state.mark.value(),
        0,
        "the mark is cleared before masquerading"
    );
}

#[test]
fn masquerade_takes_the_address_of_the_interface_towards_the_next_hop() {
    let overlay = "\
*nat
:POSTROUTING ACCEPT [0:0]
-A POSTROUTING ! -s 10.244.0.0/16 -d 10.244.0.0/16 -j MASQUERADE
COMMIT
";
    let answer = go(&routed(overlay), &from_outside("10.244.1.5:80"));
    assert_eq!(answer.ways[0].source, Source::Rewritten(Some(ip("10.244.1.1"))));
    let answer = go(&host(overlay), &from_outside("10.244.1.5:80"));
    assert_eq!(
        answer.ways[0].source,
        Source::Rewritten(None),
        "one of two addresses, not known which"
    );
}

#[test]
fn forward_policy_drops_what_is_not_marked() {
    let rules = SERVICE.replace(":FORWARD ACCEPT", ":FORWARD DROP");
    let host = routed(&rules);
    assert_eq!(
        ends(&go(&host, &from_pod("10.96.0.10:80")))[0],
        End::Dropped,
        "the endpoint on the host itself is not forwarded"
    );
    let answer = go(&host, &from_outside("192.0.2.11:30080"));
    assert_eq!(answer.outcome(), Ok(delivered(&["10.244.2.5:8080"], true)));
    let answer = go(&host, &from_node("192.0.2.11:30080"));
    assert_eq!(answer.outcome(), Ok(delivered(&["10.244.2.5:8080"], true)));
}

#[test]
fn untracked_packets_do_not_meet_nat_and_are_not_new() {
    let rules = format!(
        "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A PREROUTING -d 10.96.0.10/32 -j CT --notrack\nCOMMIT\n{SERVICE}"
    );
    let mut host = routed(&rules);
    let answer = go(&host, &from_pod("10.96.0.10:80"));
    assert_eq!(answer.outcome(), Ok(Outcome::Untouched));
    assert_eq!(answer.met(&answer.ways[0])[0].0, "raw");
    assert_eq!(
        go(&host, &from_node("10.96.0.10:80"))
            .outcome()
            .map(|outcome| outcome == Outcome::Untouched),
        Ok(false),
        "raw OUTPUT has no rule"
    );
    host.addresses = LocalAddresses::Known(BTreeSet::from([ip(NODE), ip("10.96.0.10")]));
    assert_eq!(
        ends(&go(&host, &from_pod("10.96.0.10:80"))),
        [End::Local(Listener::Unknown)]
    );
}

#[test]
fn packet_to_this_host_itself_comes_in_again_through_loopback() {
    let rules = "\
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A INPUT -i lo -p tcp -m tcp --dport 80 -m conntrack --ctstate NEW -j DROP
-A OUTPUT -o lo -p tcp -m tcp --dport 81 -j DROP
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -p tcp -m tcp --dport 82 -j DNAT --to-destination 10.244.2.5:82
COMMIT
";
    let host = routed(rules);
    assert_eq!(ends(&go(&host, &from_node("192.0.2.11:80"))), [End::Dropped]);
    assert_eq!(ends(&go(&host, &from_node("192.0.2.11:81"))), [End::Dropped]);
    let answer = go(&host, &from_node("192.0.2.11:82"));
    assert_eq!(
        answer.ways[0].translated, None,
        "its translation was settled in OUTPUT"
    );
}

#[test]
fn output_chains_see_the_interface_of_before_translation_and_postrouting_the_one_after() {
    let rules = "\
*filter
:OUTPUT ACCEPT [0:0]
-A OUTPUT -o eth0 -d 10.244.1.5/32 -j ACCEPT
-A OUTPUT -o cni0 -d 10.244.1.5/32 -j DROP
COMMIT
*nat
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -d 10.96.0.10/32 -p tcp -j DNAT --to-destination 10.244.1.5:80
-A POSTROUTING -o cni0 -j MASQUERADE
COMMIT
";
    let answer = go(&routed(rules), &from_node("10.96.0.10:80"));
    assert_eq!(answer.outcome(), Ok(delivered(&["10.244.1.5:80"], true)));
}

#[test]
fn host_without_a_route_never_shows_its_packet_to_the_rules() {
    let mut host = routed(SERVICE);
    host.routes = Some(vec![]);
    let answer = go(&host, &from_node("10.96.0.10:80"));
    assert_eq!(ends(&answer), [End::NoRoute]);
    assert_eq!(answer.met(&answer.ways[0]), []);
    assert!(answer.outcome().is_err());
    // A pod's packet is translated before it is routed.
    let ends = ends(&go(&host, &from_pod("10.96.0.10:80")));
    assert_eq!(ends, [End::NoRoute, End::Local(Listener::Unknown)]);
}

#[test]
fn unknown_local_addresses_are_forks_answered_once() {
    let mut host = host(SERVICE);
    host.addresses = LocalAddresses::Unknown;
    let answer = go(&host, &from_outside("192.0.2.11:30080"));
    let claims: Vec<Vec<(String, bool)>> = answer
        .ways
        .iter()
        .map(|way| {
            answer
                .claims(way)
                .into_iter()
                .map(|claim| (claim.condition.to_string(), claim.holds))
                .collect()
        })
        .collect();
    let node = |holds| ("192.0.2.11 is an address of this host".to_owned(), holds);
    let endpoint = |holds| ("10.244.2.5 is an address of this host".to_owned(), holds);
    assert_eq!(
        claims,
        [
            vec![node(true), endpoint(false)],
            vec![node(true), endpoint(true)],
            vec![node(false)]
        ]
    );
    assert_eq!(answer.ways[2].translated, None);
}

#[test]
fn mark_the_packet_comes_with_counts() {
    let mut packet = Packet::new(ip(NODE), at("198.51.100.7:51820"), Protocol::Udp, Origin::Host);
    packet.mark = 0xca6c;
    let answer = go(&routed(SERVICE), &packet);
    assert_eq!(answer.ways[0].source, Source::Rewritten(Some(ip(NODE))));
    packet.mark = 0x8a6c;
    let answer = go(&routed(SERVICE), &packet);
    assert_eq!(answer.ways[0].source, Source::Kept);
}

#[test]
fn packets_of_known_connections_are_not_shown_to_nat() {
    let mut packet = from_pod("10.96.0.10:80");
    packet.state = model::ConnState::Established;
    let answer = go(&routed(SERVICE), &packet);
    assert_eq!(answer.ways.len(), 1);
    assert_eq!(answer.ways[0].translated, None);
}

#[test]
fn verdicts_of_ways_may_differ_and_are_then_all_told() {
    let rules = SERVICE.replace(
        "-A FORWARD -j KUBE-FORWARD",
        "-A FORWARD -d 10.244.2.5/32 -j REJECT --reject-with icmp-admin-prohibited",
    );
    let answer = go(&routed(&rules), &from_pod("10.96.0.10:80"));
    assert_eq!(ends(&answer)[0], End::Rejected("icmp-admin-prohibited".into()));
    let several = answer.outcome().unwrap_err();
    assert_eq!(several.outcomes.len(), 2);
    assert!(several.outcomes.contains(&Outcome::Rejected));
}

#[test]
fn routing_decisions_stand_between_the_hooks() {
    let answer = go(&routed(SERVICE), &from_pod("10.96.0.10:80"));
    let routes: Vec<&Routed> = answer
        .steps(&answer.ways[0])
        .into_iter()
        .filter_map(|step| match step {
            Step::Routed(to) => Some(to),
            _ => None,
        })
        .collect();
    assert_eq!(routes, [&Routed::Out(Interface::Named("eth0".into()))]);
}

#[test]
fn endpoint_that_is_this_host_sees_the_client_since_nothing_leaves() {
    // SVC marks the packet, but it goes to INPUT, and only POSTROUTING masquerades.
    let answer = go(&routed(SERVICE), &from_outside("10.96.0.10:80"));
    let here = &answer.ways[1];
    assert_eq!(
        (here.translated, here.source),
        (Some(at("192.0.2.11:30080")), Source::Kept)
    );
    assert_eq!(here.state.mark.value(), 0x4000);
    assert_eq!(answer.ways[0].source, Source::Rewritten(Some(ip(NODE))));
}

/// Every built-in chain of every table, with a rule that counts.
fn counting_everywhere() -> String {
    let chains = [
        ("raw", "PREROUTING OUTPUT"),
        ("mangle", "PREROUTING INPUT FORWARD OUTPUT POSTROUTING"),
        ("nat", "PREROUTING INPUT OUTPUT POSTROUTING"),
        ("filter", "INPUT FORWARD OUTPUT"),
        ("security", "INPUT FORWARD OUTPUT"),
    ];
    let counting = |name: &str| format!(":{name} ACCEPT [0:0]\n-A {name}\n");
    let table = |(table, names): (&str, &str)| {
        let chains: String = names.split(' ').map(counting).collect();
        format!("*{table}\n{chains}COMMIT\n")
    };
    chains.into_iter().map(table).collect()
}

fn chains_met(packet: &Packet) -> String {
    let answer = go(&routed(&counting_everywhere()), packet);
    let met = answer.met(&answer.ways[0]);
    let words: Vec<String> = met
        .iter()
        .map(|(table, chain, _)| format!("{table}:{chain}"))
        .collect();
    words.join(" ")
}

#[test]
fn hooks_call_their_tables_in_the_order_of_the_kernels_priorities() {
    assert_eq!(
        chains_met(&from_outside("10.244.1.5:80")),
        "raw:PREROUTING mangle:PREROUTING nat:PREROUTING mangle:FORWARD filter:FORWARD security:FORWARD \
         mangle:POSTROUTING nat:POSTROUTING"
    );
    assert_eq!(
        chains_met(&from_outside("192.0.2.11:80")),
        "raw:PREROUTING mangle:PREROUTING nat:PREROUTING mangle:INPUT filter:INPUT security:INPUT nat:INPUT"
    );
    assert_eq!(
        chains_met(&from_node("10.244.1.5:80")),
        "raw:OUTPUT mangle:OUTPUT nat:OUTPUT filter:OUTPUT security:OUTPUT mangle:POSTROUTING nat:POSTROUTING"
    );
}

#[test]
fn nat_is_not_asked_again_behind_loopback() {
    assert_eq!(
        chains_met(&from_node("192.0.2.11:80")),
        "raw:OUTPUT mangle:OUTPUT nat:OUTPUT filter:OUTPUT security:OUTPUT mangle:POSTROUTING nat:POSTROUTING \
         raw:PREROUTING mangle:PREROUTING mangle:INPUT filter:INPUT security:INPUT"
    );
}

#[test]
fn rows_of_choices_and_of_lists_that_do_not_know_the_client_are_one_step() {
    let rules = "\
*nat
:PREROUTING ACCEPT [0:0]
-A PREROUTING -m recent --rcheck --seconds 10 --reap --name A --mask 255.255.255.255 --rsource -j ACCEPT
-A PREROUTING -m recent --rcheck --seconds 10 --reap --name B --mask 255.255.255.255 --rsource -j ACCEPT
-A PREROUTING -m recent --rcheck --seconds 10 --reap --name C --mask 255.255.255.255 --rsource -j ACCEPT
-A PREROUTING -m statistic --mode random --probability 0.25000000000 -j ACCEPT
-A PREROUTING -m statistic --mode random --probability 0.50000000000 -j ACCEPT
COMMIT
";
    let answer = go(&host(rules), &from_pod("10.96.0.10:80"));
    let claims = |way: usize| -> Vec<(bool, usize)> {
        let claims = answer.claims(&answer.ways[way]);
        claims.iter().map(|claim| (claim.holds, claim.others)).collect()
    };
    assert_eq!(claims(0), [(true, 0)]);
    assert_eq!(claims(2), [(false, 1), (true, 0)]);
    assert_eq!(claims(5), [(false, 2)]);
    let steps = answer.steps(&answer.ways[5]);
    let chances: Vec<&Step<'_>> = steps
        .iter()
        .filter(|step| matches!(step, Step::Chance { .. }))
        .collect();
    assert_eq!(
        chances,
        [&Step::Chance {
            probability: 0.375,
            choices: 2
        }]
    );
}
