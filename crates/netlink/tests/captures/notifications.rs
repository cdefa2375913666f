//! Captured notifications: changes by other programs, and the trace of a packet through kube-proxy's rules.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{data, messages};
use netlink::nflog::{LegacyStep, Logged, StepKind};
use netlink::nfnl::Family;
use netlink::nft::{Expr, Message, Policy, TraceEvent, TraceStep, Verdict};
use netlink::packet::{Fingerprint, PacketView};

#[test]
fn each_commit_ends_with_its_generation_and_names_its_writer() {
    let bytes = data("events.bin");
    let mut seen = Vec::new();
    let mut ports = Vec::new();
    let mut last_generation = None;
    for message in messages(&bytes) {
        ports.push(message.header.port);
        seen.push(match Message::read(message).unwrap() {
            Message::NewChain(chain) => format!("+chain {}", chain.name),
            Message::DeletedChain(chain) => format!("-chain {}", chain.name),
            Message::NewRule(rule) => format!("+rule {}", rule.chain),
            Message::DeletedRule(rule) => format!("-rule {}", rule.chain),
            Message::NewTable(table) => format!("+table {}", table.name),
            Message::DeletedTable(table) => format!("-table {}", table.name),
            Message::Generation(generation) => {
                assert!(last_generation.is_none_or(|last| last + 1 == generation.id));
                last_generation = Some(generation.id);
                format!("commit by {}", generation.process_name.unwrap())
            }
            other => panic!("{other:?}"),
        });
    }
    let want = [
        "+chain NLX-ONE",
        "commit by iptables",
        "+rule NLX-ONE",
        "commit by iptables",
        "-rule NLX-ONE",
        "commit by iptables",
        "-chain NLX-ONE",
        "commit by iptables",
        "+table nlx-trace",
        "commit by nft",
        "-table nlx-trace",
        "commit by nft",
    ];
    assert_eq!(seen, want);
    // A change and the generation it ends in come from one socket; six processes wrote.
    assert!(ports.chunks(2).all(|pair| pair[0] == pair[1] && pair[0] != 0));
    ports.dedup();
    assert_eq!(ports.len(), 6);
}

fn trace(bytes: &[u8]) -> Vec<TraceEvent<'_>> {
    let read = messages(bytes)
        .into_iter()
        .map(|message| match Message::read(message).unwrap() {
            Message::Trace(event) => event,
            other => panic!("{other:?}"),
        });
    read.collect()
}

/// Chain and verdict of kube-proxy's rules by table and handle, from the dump made in the same namespace.
fn rules(bytes: &[u8]) -> BTreeMap<(&str, u64), (&str, Option<Verdict<'_>>)> {
    let mut rules = BTreeMap::new();
    for message in messages(bytes) {
        let Message::NewRule(rule) = Message::read(message).unwrap() else {
            panic!("not a rule")
        };
        let verdict = rule.expressions.iter().find_map(Expr::as_verdict);
        rules.insert((rule.table, rule.handle), (rule.chain, verdict));
    }
    rules
}

#[test]
fn a_trace_leads_from_the_service_to_an_endpoint() {
    let bytes = data("trace.bin");
    let events = trace(&bytes);
    let first = events[0];
    let of_packet: Vec<_> = events
        .iter()
        .filter(|event| event.id == first.id && event.table == "nat")
        .collect();
    let chains: Vec<_> = of_packet
        .iter()
        .map(|event| (event.chain, event.step().unwrap()))
        .collect();
    assert!(matches!(
        chains[0],
        (
            "OUTPUT",
            TraceStep::Rule {
                verdict: Verdict::Jump("KUBE-SERVICES"),
                ..
            }
        )
    ));
    let dns = "KUBE-SVC-TCOU7JCQXEZGVUNU";
    assert!(
        matches!(chains[1], ("KUBE-SERVICES", TraceStep::Rule { verdict: Verdict::Jump(to), .. }) if to == dns)
    );
    let (
        "KUBE-SVC-TCOU7JCQXEZGVUNU",
        TraceStep::Rule {
            verdict: Verdict::Jump(endpoint),
            ..
        },
    ) = chains[2]
    else {
        panic!("{:?}", chains[2])
    };
    assert!(endpoint.starts_with("KUBE-SEP-"));
    // The DNAT target accepts.
    let (
        chain,
        TraceStep::Rule {
            verdict: Verdict::Accept,
            ..
        },
    ) = chains[3]
    else {
        panic!("{:?}", chains[3])
    };
    assert_eq!(chain, endpoint);
    assert_eq!(
        chains.last().unwrap(),
        &("POSTROUTING", TraceStep::Policy(Policy::Accept))
    );
}

#[test]
fn a_traces_rule_handles_are_those_of_the_rules() {
    let (bytes, dump) = (data("trace.bin"), data("kube.v4.bin"));
    let rules = rules(&dump);
    let mut checked = 0;
    for event in trace(&bytes)
        .into_iter()
        .filter(|event| event.family == Family::Ipv4)
    {
        let Some(TraceStep::Rule { handle, verdict }) = event.step() else {
            continue;
        };
        let Some((chain, want)) = rules.get(&(event.table, handle)) else {
            assert_eq!(event.table, "mangle", "a rule made after the dump");
            continue;
        };
        assert_eq!(event.chain, *chain);
        // A rule that ends in a target has no verdict of its own.
        if let Some(want) = want {
            assert_eq!(verdict, *want);
        }
        checked += 1;
    }
    assert!(checked >= 8, "{checked}");
}

#[test]
fn a_trace_shows_the_packet_before_and_after_translation() {
    let bytes = data("trace.bin");
    let events = trace(&bytes);
    let packets: Vec<_> = events
        .iter()
        .filter(|e| e.id == events[0].id)
        .filter_map(TraceEvent::packet)
        .collect();
    let (first, last) = (packets[0], *packets.last().unwrap());
    assert_eq!(first.source, IpAddr::V4(Ipv4Addr::new(10, 244, 9, 1)));
    assert_eq!(first.destination, IpAddr::V4(Ipv4Addr::new(10, 1, 0, 10)));
    assert_eq!((first.protocol, first.destination_port), (17, Some(53)));
    // 20 bytes of IPv4, 8 of UDP, 1 of data.
    assert_eq!((first.ttl, first.length), (64, 29));
    assert!(matches!(last.destination, IpAddr::V4(address) if address.octets()[..2] == [10, 244]));
    assert_eq!(last.source_port, first.source_port);
}

#[test]
fn a_trace_carries_mark_interface_and_connection() {
    let bytes = data("trace.bin");
    let events = trace(&bytes);
    assert_eq!((events[0].mark, events[0].iif), (None, None));
    assert!(events[0].oif.is_some());
    let marked = events.iter().find(|event| event.table == "nat").unwrap();
    assert_eq!(marked.mark, Some(1), "set by the mangle table before");
    let connection = marked.connection.unwrap();
    assert_eq!(
        (connection.state, connection.status),
        (Some(8), None),
        "new, not yet translated"
    );
    assert!(events.iter().all(|event| event.nfproto.is_some()));
}

#[test]
fn the_end_of_a_chain_is_not_a_rule() {
    let bytes = data("trace.bin");
    let events = trace(&bytes);
    let ends: Vec<_> = events
        .iter()
        .filter(|event| event.step() == Some(TraceStep::EndOfChain))
        .collect();
    assert!(ends.iter().any(|event| event.chain == "KUBE-FIREWALL"));
    assert!(ends.iter().all(|event| event.rule_handle.is_none()));
    assert!(events.iter().all(|event| event.step().is_some()));
}

#[test]
fn a_trace_of_ipv6_in_an_inet_table_is_ipv6() {
    let bytes = data("trace.bin");
    let events = trace(&bytes);
    let event = events
        .iter()
        .find(|event| event.nfproto == Some(Family::Ipv6))
        .unwrap();
    assert_eq!(event.family, Family::Inet);
    let packet = event.packet().unwrap();
    let localhost = IpAddr::V6(Ipv6Addr::LOCALHOST);
    assert_eq!((packet.source, packet.destination), (localhost, localhost));
    assert_eq!((packet.protocol, packet.destination_port), (6, Some(4444)));
}

/// `-A Y -j RETURN` and `-A INPUT -j ACCEPT` have no match: the kernel calls them ends of their chains, with their numbers.
#[test]
fn legacy_tells_a_packet_step_by_step_and_calls_rules_without_a_match_ends() {
    let bytes = data("legacy-trace.bin");
    let logged: Vec<Logged<'_>> = messages(&bytes)
        .into_iter()
        .map(|message| Logged::read(message).unwrap().unwrap())
        .collect();
    let steps: Vec<LegacyStep<'_>> = logged
        .iter()
        .map(|logged| LegacyStep::read(logged.prefix).unwrap())
        .collect();
    assert_eq!(steps.len(), 18);
    let ends: Vec<(&str, StepKind, u32)> = steps
        .iter()
        .filter(|step| step.table == "filter")
        .map(|step| (step.chain, step.kind, step.number))
        .collect();
    let want = [
        ("OUTPUT", StepKind::Rule, 1),
        ("Y", StepKind::Return, 1),
        ("OUTPUT", StepKind::Policy, 2),
        ("INPUT", StepKind::Policy, 1),
    ];
    assert_eq!(ends, want);
    // Whatever NAT makes of it, it is the same packet.
    let prints: Vec<Option<Fingerprint>> = logged
        .iter()
        .map(|logged| Fingerprint::of(logged.payload))
        .collect();
    assert!(prints.iter().all(|print| print.is_some() && *print == prints[0]));
    let to = |at: usize| PacketView::of(logged[at].payload).unwrap().destination;
    assert_eq!(to(0), IpAddr::V4(Ipv4Addr::new(10, 9, 9, 9)));
    assert_eq!(to(17), IpAddr::V4(Ipv4Addr::LOCALHOST));
    // A step is told before the rule does anything: the mark of `X` 1 is seen in the next one.
    assert_eq!((logged[4].mark, logged[5].mark), (0, 5));
    assert_eq!((logged[0].hook, logged[0].iif, logged[0].oif), (3, None, Some(1)));
    assert_eq!(
        (logged[17].hook, logged[17].iif, logged[17].oif),
        (1, Some(1), None)
    );
}
