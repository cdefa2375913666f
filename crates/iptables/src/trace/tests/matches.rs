//! What matches ask, and what targets change.

use super::*;

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

#[test]
fn one_interface_pattern_may_settle_another() {
    // (assumed, holds, asked later, answer)
    for (assumed, holds, asked, answer) in [
        ("cali1", true, "cali+", Some(true)),
        ("cali1", true, "eth0", Some(false)),
        ("cali+", true, "eth+", Some(false)),
        ("cali+", true, "cali1", None),
        ("cali+", false, "cali1", Some(false)),
        ("cali1", false, "cali+", None),
    ] {
        let mut first = Rule::new(if holds { Target::Accept } else { Target::Drop });
        first.in_interface = Some(if holds {
            Is::Not(assumed.into())
        } else {
            Is::Equal(assumed.into())
        });
        let mut second = Rule::new(other_target("CONNMARK", "--set-xmark 0x1/0x1"));
        second.in_interface = Some(Is::Equal(asked.into()));
        let rules = table(vec![("PREROUTING", Some(Policy::Accept), vec![first, second])]);
        let local = known();
        let mut here = site(&local);
        here.in_interface = Interface::Unknown;
        let walked = walked(&rules, new_connection(&packet()), &here);
        // The ways behind the first rule, and whether they met the second.
        let met: Vec<bool> = (0..walked.ways.len())
            .filter(|way| walked.assumed(*way)[0].1 == holds)
            .map(|way| walked.met(way).contains(&("PREROUTING".to_owned(), 2)))
            .collect();
        let expected = match answer {
            Some(answer) => vec![answer],
            None => vec![true, false],
        };
        assert_eq!(met, expected, "{assumed} {holds} {asked}");
    }
}

#[test]
fn addresses_under_masks_that_are_no_prefix_are_decided() {
    // The packet goes from 10.0.0.2 to 10.96.0.10.
    for (words, answer) in [
        ("-s 10.9.9.2/255.0.0.255", Some(true)),
        ("-s 10.0.0.3/255.0.0.255", Some(false)),
        ("! -d 10.1.1.10/255.0.0.255", Some(false)),
        ("! -d 10.1.1.11/255.0.0.255", Some(true)),
        ("-s 10.0.0.2/255.0.0.255 -d 10.0.0.11/255.0.0.255", Some(false)),
        ("-d 10.0.0.10/255.0.0.255 ! -f", Some(true)),
        ("-d 10.0.0.10/255.0.0.255 -f", Some(false)),
        ("-f", Some(false)),
        ("! -f", Some(true)),
        ("-s fd00::1/ffff::ffff", None),
        ("--ipv4", None),
    ] {
        assert_eq!(drops(other("", words)), answer, "{words}");
    }
}
