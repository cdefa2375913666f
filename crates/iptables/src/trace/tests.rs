//! Hand-written rules and what the kernel does with them.

use super::*;
use crate::ast::{
    Chain, ChainName, CtState, Is, Match, Policy, PortRange, Ports, Proto, Recent, RecentAction, Rule, Table,
    TableName, Target,
};
use model::{Origin, Packet, Protocol};
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

fn name(text: &str) -> ChainName {
    ChainName::new(text).unwrap()
}

fn jump(to: &str) -> Target {
    Target::Jump(name(to))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn table(chains: Vec<(&str, Option<Policy>, Vec<Rule>)>) -> Table {
    let chains = chains
        .into_iter()
        .map(|(chain, policy, rules)| (name(chain), Chain { policy, rules }))
        .collect();
    Table { chains }
}

fn packet() -> Packet {
    Packet::new(
        ip("10.0.0.2"),
        at("10.96.0.10:80"),
        Protocol::Tcp,
        Origin::Interface("cali1".into()),
    )
}

fn new_connection(packet: &Packet) -> State {
    let mut state = State::new(packet);
    state.connection.track = Track::New;
    state
}

fn known() -> LocalAddresses {
    LocalAddresses::Known(BTreeSet::from([ip("192.168.0.2")]))
}

fn site(local: &LocalAddresses) -> Site<'_> {
    Site {
        hook: Hook::Prerouting,
        table: TableName::Nat,
        in_interface: Interface::Named("cali1".into()),
        out_interface: Interface::Absent,
        sender: Sender::Elsewhere,
        local,
        networks: &[],
        masquerade_as: None,
        redirect_to: None,
    }
}

struct Walked {
    ways: Vec<(State, Verdict)>,
    history: History,
}

fn walked(table: &Table, state: State, site: &Site<'_>) -> Walked {
    let mut history = History::new(Detail::Met);
    let ways = walk(table, state, site, Limits::default(), &mut history);
    Walked { ways, history }
}

fn go(table: &Table) -> Walked {
    let local = known();
    walked(table, new_connection(&packet()), &site(&local))
}

impl Walked {
    fn verdicts(&self) -> Vec<Verdict> {
        self.ways.iter().map(|(_, verdict)| verdict.clone()).collect()
    }

    fn met(&self, way: usize) -> Vec<(String, u32)> {
        self.history
            .between(None, self.ways[way].0.last)
            .into_iter()
            .filter_map(|event| match event {
                Event::Met { place, .. } => Some((place.chain.to_string(), place.rule)),
                _ => None,
            })
            .collect()
    }

    fn assumed(&self, way: usize) -> Vec<(String, bool)> {
        self.history
            .between(None, self.ways[way].0.last)
            .into_iter()
            .filter_map(|event| match event {
                Event::Assumed { condition, holds } => Some((condition.to_string(), *holds)),
                _ => None,
            })
            .collect()
    }
}

fn matching(one: Match, target: Target) -> Rule {
    let mut rule = Rule::new(target);
    rule.matches.push(one);
    rule
}

fn other(module: &str, words: &str) -> Match {
    Match::Other {
        module: module.into(),
        words: words.split_whitespace().map(Arc::from).collect(),
    }
}

fn other_target(target: &str, words: &str) -> Target {
    Target::Other {
        name: target.into(),
        words: words.split_whitespace().map(Arc::from).collect(),
    }
}

/// Whether a one-rule chain drops the packet: `None` when it forks.
fn drops(one: Match) -> Option<bool> {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![matching(one, Target::Drop)],
    )]);
    match go(&rules).verdicts()[..] {
        [Verdict::Drop] => Some(true),
        [Verdict::Accept] => Some(false),
        _ => None,
    }
}

#[test]
fn policy_decides_what_no_rule_decided() {
    let rules = table(vec![("PREROUTING", Some(Policy::Drop), vec![])]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Drop]);
}

#[test]
fn table_without_the_chain_accepts() {
    assert_eq!(go(&Table::default()).verdicts(), [Verdict::Accept]);
}

#[test]
fn jump_comes_back_behind_the_rule_and_goto_does_not() {
    let rules = table(vec![
        (
            "PREROUTING",
            Some(Policy::Drop),
            vec![Rule::new(jump("A")), Rule::new(Target::Accept)],
        ),
        (
            "A",
            None,
            vec![Rule::new(Target::Goto(name("B"))), Rule::new(Target::Drop)],
        ),
        ("B", None, vec![Rule::new(Target::None)]),
    ]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Accept]);
    let met = [("PREROUTING", 1), ("A", 1), ("B", 1), ("PREROUTING", 2)];
    assert_eq!(walked.met(0), met.map(|(chain, rule)| (chain.to_owned(), rule)));
}

#[test]
fn goto_from_a_built_in_chain_ends_with_its_policy() {
    let rules = table(vec![
        (
            "PREROUTING",
            Some(Policy::Drop),
            vec![Rule::new(Target::Goto(name("A"))), Rule::new(Target::Accept)],
        ),
        ("A", None, vec![Rule::new(Target::Return)]),
    ]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Drop]);
}

#[test]
fn return_in_a_built_in_chain_means_its_policy() {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![Rule::new(Target::Return), Rule::new(Target::Drop)],
    )]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Accept]);
}

#[test]
fn chain_that_leads_to_itself_is_not_followed_for_ever() {
    for target in [jump("A"), Target::Goto(name("A"))] {
        let rules = table(vec![
            ("PREROUTING", Some(Policy::Accept), vec![Rule::new(jump("A"))]),
            ("A", None, vec![Rule::new(target)]),
        ]);
        assert!(
            matches!(&go(&rules).verdicts()[..], [Verdict::Undecided(why)] if why.contains("leads to itself"))
        );
    }
}

#[test]
fn chain_may_be_visited_twice() {
    let rules = table(vec![
        (
            "PREROUTING",
            Some(Policy::Drop),
            vec![
                Rule::new(jump("A")),
                Rule::new(jump("A")),
                Rule::new(Target::Accept),
            ],
        ),
        ("A", None, vec![Rule::new(Target::None)]),
    ]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Accept]);
}

#[test]
fn chain_that_is_missing_is_said_to_be_missing() {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![Rule::new(jump("GONE"))],
    )]);
    assert!(matches!(&go(&rules).verdicts()[..], [Verdict::Undecided(why)] if why.contains("GONE")));
}

/// A service chain as kube-proxy writes it: each rule's chance is one in the endpoints that are left.
fn service(endpoints: u32, affinity: bool) -> Table {
    let mut chains = vec![(
        "PREROUTING".to_owned(),
        Some(Policy::Accept),
        vec![Rule::new(jump("SVC"))],
    )];
    let mut svc = Vec::new();
    if affinity {
        for i in 0..endpoints {
            let recent = Recent {
                name: format!("SEP{i}").into(),
                action: RecentAction::RcheckReap { seconds: 10 },
            };
            svc.push(matching(Match::Recent(recent), jump(&format!("SEP{i}"))));
        }
    }
    for i in 0..endpoints {
        let left = endpoints - i;
        let units = ((f64::from(1_u32 << 31)) / f64::from(left)).round();
        let target = jump(&format!("SEP{i}"));
        // The test's own arithmetic stays below 2^31.
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "0 < units <= 2^31"
        )]
        let rule = match left {
            1 => Rule::new(target),
            _ => matching(Match::Probability(units as u32), target),
        };
        svc.push(rule);
        let to = SocketAddr::new(ip("10.1.0.1"), u16::try_from(i).unwrap() + 1);
        chains.push((format!("SEP{i}"), None, vec![Rule::new(Target::Dnat(to))]));
    }
    chains.push(("SVC".to_owned(), None, svc));
    table(
        chains
            .iter()
            .map(|(n, p, r)| (n.as_str(), *p, r.clone()))
            .collect(),
    )
}

#[test]
fn every_endpoint_has_an_equal_chance_and_chances_sum_to_one() {
    for endpoints in [1, 2, 3, 7, 100, 1000] {
        let walked = go(&service(endpoints, false));
        assert_eq!(walked.ways.len(), endpoints as usize);
        for (i, (state, verdict)) in walked.ways.iter().enumerate() {
            assert_eq!(*verdict, Verdict::Accept);
            assert_eq!(
                usize::from(state.dst.port()),
                i + 1,
                "ways come in the order of the rules"
            );
            assert!(
                (state.chance - 1.0 / f64::from(endpoints)).abs() < 1e-6,
                "{}",
                state.chance
            );
        }
        let sum: f64 = walked.ways.iter().map(|(state, _)| state.chance).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }
}

#[test]
fn affinity_is_a_fork_for_each_endpoint_and_a_choice_for_unknown_clients() {
    let walked = go(&service(3, true));
    assert_eq!(walked.ways.len(), 6);
    assert_eq!(
        walked.assumed(1),
        [
            ("10.0.0.2 was seen in list SEP0 within 10 s".to_owned(), false),
            ("10.0.0.2 was seen in list SEP1 within 10 s".to_owned(), true)
        ]
    );
    let remembered = walked.ways[..3]
        .iter()
        .all(|(state, _)| state.chance.to_bits() == 1.0_f64.to_bits());
    assert!(remembered, "a remembered client has no choice");
    let sum: f64 = walked.ways[3..].iter().map(|(state, _)| state.chance).sum();
    assert!((sum - 1.0).abs() < 1e-9);
}

#[test]
fn affinity_of_a_thousand_endpoints_stays_linear() {
    let walked = go(&service(1000, true));
    assert_eq!(walked.ways.len(), 2000);
}

#[test]
fn undecidable_matches_are_forks_and_decided_the_same_way_later() {
    let set = || other("set", "--match-set blocked src");
    let not_set = || other("set", "! --match-set blocked src");
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![
            matching(set(), other_target("CONNMARK", "--set-xmark 0x1/0x1")),
            matching(not_set(), Target::Accept),
            matching(set(), Target::Drop),
        ],
    )]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Drop, Verdict::Accept]);
    let claim = "-m set --match-set blocked src matches".to_owned();
    assert_eq!(walked.assumed(0), [(claim.clone(), true)]);
    assert_eq!(walked.assumed(1), [(claim, false)]);
}

#[test]
fn limits_may_be_answered_otherwise_the_next_time() {
    let limit = || other("limit", "--limit 3/min");
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![matching(limit(), Target::Accept), matching(limit(), Target::Drop)],
    )]);
    assert_eq!(
        go(&rules).verdicts(),
        [Verdict::Accept, Verdict::Drop, Verdict::Accept]
    );
}

#[test]
fn forks_that_change_nothing_are_not_forks() {
    let log = matching(
        other("limit", "--limit 3/min"),
        other_target("LOG", "--log-prefix x"),
    );
    let rules = table(vec![("PREROUTING", Some(Policy::Accept), vec![log; 64])]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Accept]);
    assert_eq!(walked.met(0), []);
}

#[test]
fn ways_beyond_the_limit_say_that_they_were_not_followed() {
    let limit = matching(other("limit", "--limit 3/min"), jump("A"));
    let rules = table(vec![
        ("PREROUTING", Some(Policy::Accept), vec![limit; 64]),
        ("A", None, vec![]),
    ]);
    let local = known();
    let mut history = History::new(Detail::Met);
    let limits = Limits { branches: 100 };
    let ways = walk(
        &rules,
        new_connection(&packet()),
        &site(&local),
        limits,
        &mut history,
    );
    assert!(ways.len() <= 100);
    assert!(
        ways.iter()
            .any(|(_, verdict)| matches!(verdict, Verdict::Undecided(why) if why.contains("100 ways")))
    );
}

#[test]
fn pods_are_told_by_interface_and_twice_the_same() {
    let mut pod = Rule::new(other_target("CONNMARK", "--set-xmark 0x1/0x1"));
    pod.in_interface = Some(Is::Equal("cali+".into()));
    let mut other_pod = Rule::new(Target::Drop);
    other_pod.in_interface = Some(Is::Not("cali+".into()));
    let mut node = Rule::new(Target::Accept);
    node.in_interface = Some(Is::Equal("eth0".into()));
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![pod, node, other_pod],
    )]);
    let local = known();
    let mut here = site(&local);
    assert_eq!(
        walked(&rules, new_connection(&packet()), &here).verdicts(),
        [Verdict::Accept]
    );
    here.in_interface = Interface::Named("eth1".into());
    assert_eq!(
        walked(&rules, new_connection(&packet()), &here).verdicts(),
        [Verdict::Drop]
    );
    here.in_interface = Interface::Unknown;
    // cali+: not eth0, accepted by policy. Else eth0: accepted. Else dropped.
    let unknown = walked(&rules, new_connection(&packet()), &here);
    assert_eq!(
        unknown.verdicts(),
        [Verdict::Accept, Verdict::Accept, Verdict::Drop]
    );
    assert_eq!(unknown.assumed(0).len(), 1);
}

#[test]
fn connection_states_include_translation() {
    let is = |states: &[CtState]| Match::CtState(Is::Equal(states.to_vec()));
    assert_eq!(drops(is(&[CtState::New])), Some(true));
    assert_eq!(drops(is(&[CtState::Related, CtState::Established])), Some(false));
    assert_eq!(drops(is(&[CtState::Dnat])), Some(false));
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![matching(is(&[CtState::Dnat]), Target::Drop)],
    )]);
    let local = known();
    let mut state = new_connection(&packet());
    state.connection.dnat = Nat::Changed;
    assert_eq!(walked(&rules, state, &site(&local)).verdicts(), [Verdict::Drop]);
}

#[test]
fn untracked_packets_are_not_new() {
    let new = Match::CtState(Is::Equal(vec![CtState::New]));
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![
            Rule::new(other_target("CT", "--notrack")),
            matching(new, Target::Drop),
        ],
    )]);
    let local = known();
    let walked = walked(&rules, State::new(&packet()), &site(&local));
    assert_eq!(walked.verdicts(), [Verdict::Accept]);
    assert_eq!(walked.ways[0].0.connection.track, Track::Untracked);
}

#[test]
fn local_addresses_decide_addrtype_and_their_absence_forks() {
    let dst_local = || Match::AddrType {
        src: None,
        dst: Some(Is::Equal(crate::ast::AddrType::Local)),
    };
    assert_eq!(drops(dst_local()), Some(false));
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![matching(dst_local(), Target::Drop)],
    )]);
    let walked = walked(&rules, new_connection(&packet()), &site(&LocalAddresses::Unknown));
    assert_eq!(walked.verdicts(), [Verdict::Drop, Verdict::Accept]);
    assert_eq!(
        walked.assumed(0),
        [("10.96.0.10 is an address of this host".to_owned(), true)]
    );
}

#[test]
fn matches_kept_as_words_are_decided_when_the_packet_says_enough() {
    for (module, words, expected) in [
        ("multiport", "--dports 22,80:90", Some(true)),
        ("multiport", "! --dports 22,80:90", Some(false)),
        ("multiport", "--dports 22,443", Some(false)),
        ("multiport", "--sports 40000", Some(true)),
        ("iprange", "--src-range 10.0.0.1-10.0.0.9", Some(true)),
        ("iprange", "--dst-range 10.0.0.1-10.0.0.9", Some(false)),
        ("tcp", "--tcp-flags FIN,SYN,RST,ACK SYN", Some(true)),
        ("tcp", "--dport 81 --tcp-option 5", Some(false)),
        ("tcp", "--dport 80 --tcp-option 5", None),
        ("udp", "--dport 80", Some(false)),
        ("state", "--state NEW,RELATED", Some(true)),
        ("conntrack", "--ctstate RELATED,ESTABLISHED", Some(false)),
        (
            "conntrack",
            "--ctorigdst 10.96.0.0/12 --ctdir ORIGINAL",
            Some(true),
        ),
        ("conntrack", "--ctstate NEW --ctorigdstport 81", Some(false)),
        ("addrtype", "--dst-type LOCAL,MULTICAST", Some(false)),
        ("addrtype", "--dst-type LOCAL --limit-iface-in", None),
        ("addrtype", "--dst-type ANYCAST", None),
        ("connmark", "--mark 0x1/0x1", Some(false)),
        ("owner", "--uid-owner 0", Some(false)),
        ("owner", "! --uid-owner 0", Some(true)),
        ("statistic", "--mode nth --every 3 --packet 0", None),
        ("set", "--match-set x dst", None),
        ("never-heard-of", "", None),
        (
            "recent",
            "--set --name x --mask 255.255.255.255 --rsource",
            Some(true),
        ),
        ("recent", "--update --seconds 5 --name x", None),
        ("mark", "--mark 0x0/0x4000", Some(true)),
    ] {
        assert_eq!(drops(other(module, words)), expected, "-m {module} {words}");
    }
}

#[test]
fn ports_are_looked_at_under_the_right_protocol_only() {
    let ports = |module| Match::Ports {
        module,
        src: None,
        dst: Some(Is::Equal(PortRange { first: 80, last: 80 })),
    };
    assert_eq!(drops(ports(Protocol::Tcp)), Some(true));
    assert_eq!(drops(ports(Protocol::Udp)), Some(false));
    let mut rule = Rule::new(Target::Drop);
    rule.protocol = Some(Is::Equal(Proto::Other("icmp".into())));
    let rules = table(vec![("PREROUTING", Some(Policy::Accept), vec![rule])]);
    assert_eq!(go(&rules).verdicts(), [Verdict::Accept]);
}

#[test]
fn mark_is_set_tested_and_cleared() {
    let masked = Match::Mark {
        is: Is::Not((0x4000, 0x4000)),
    };
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![
            Rule::new(Target::Mark {
                value: 0x4000,
                mask: 0x4000,
            }),
            matching(masked, Target::Drop),
            Rule::new(Target::Mark {
                value: 0x4000,
                mask: 0,
            }),
        ],
    )]);
    let walked = go(&rules);
    assert_eq!(walked.verdicts(), [Verdict::Accept]);
    assert_eq!(walked.ways[0].0.mark, Bits::known(0));
    assert_eq!(walked.met(0).len(), 2);
}

#[test]
fn mark_of_an_old_connection_is_not_guessed() {
    let mut packet = packet();
    packet.state = model::ConnState::Established;
    let mut state = State::new(&packet);
    state.connection.track = Track::Established;
    let marked = Match::Mark {
        is: Is::Equal((0x1, 0x1)),
    };
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![
            Rule::new(other_target(
                "CONNMARK",
                "--restore-mark --nfmask 0xff --ctmask 0xff",
            )),
            matching(marked, Target::Drop),
        ],
    )]);
    let local = known();
    let verdicts = walked(&rules, state, &site(&local)).verdicts();
    assert_eq!(verdicts, [Verdict::Drop, Verdict::Accept]);
}

#[test]
fn masquerade_to_an_unknown_address_is_still_local_and_never_guessed() {
    let mut local_source = Rule::new(Target::Drop);
    local_source.src = Some(Is::Equal("192.168.0.0/24".parse().unwrap()));
    let mut foreign = Rule::new(Target::Drop);
    foreign.src = Some(Is::Equal("10.0.0.0/8".parse().unwrap()));
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![foreign, local_source],
    )]);
    let local = known();
    let masqueraded = table(vec![(
        "PREROUTING",
        Some(Policy::Accept),
        vec![Rule::new(Target::Masquerade(Ports::RandomFully))],
    )]);
    let mut after = walked(&masqueraded, new_connection(&packet()), &site(&local)).ways[0].0;
    assert_eq!((after.src, after.connection.snat), (None, Nat::Changed));
    after.last = None;
    let verdicts = walked(&rules, after, &site(&local)).verdicts();
    assert_eq!(
        verdicts,
        [Verdict::Drop, Verdict::Accept],
        "10/8 holds none of the host's addresses"
    );
}

#[test]
fn unknown_target_is_a_fork_whose_other_side_is_undecided() {
    let rules = table(vec![(
        "PREROUTING",
        Some(Policy::Drop),
        vec![
            Rule::new(other_target("XYZZY", "--plugh")),
            Rule::new(Target::Accept),
        ],
    )]);
    let verdicts = go(&rules).verdicts();
    assert_eq!(
        verdicts,
        [Verdict::Undecided("XYZZY --plugh".into()), Verdict::Accept]
    );
}

#[test]
fn rules_that_did_not_match_are_listed_when_everything_is_wanted() {
    let mut not_this = Rule::new(Target::Drop);
    not_this.dst = Some(Is::Equal("10.96.0.11/32".parse().unwrap()));
    let rules = table(vec![("PREROUTING", Some(Policy::Accept), vec![not_this])]);
    let local = known();
    let mut history = History::new(Detail::Everything);
    let ways = walk(
        &rules,
        new_connection(&packet()),
        &site(&local),
        Limits::default(),
        &mut history,
    );
    let events = history.between(None, ways[0].0.last);
    assert!(
        matches!(events[0], Event::Passed { failed: Criterion::Destination, place } if place.rule == 1),
        "{events:?}"
    );
}
