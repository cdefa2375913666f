//! What holds for a walk through any rules at all.

use iptables::ast::{Chain, ChainName, Policy, Ports};
use iptables::ast::{Is, Match, Recent, RecentAction, Rule, Table, TableName, Target};
use iptables::trace::{
    Detail, Event, History, Hook, Interface, Limits, LocalAddresses, Sender, Site, State, Track, Verdict,
    walk,
};
use model::{Origin, Packet, Protocol};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

const CHAINS: [&str; 5] = ["PREROUTING", "A", "B", "C", "D"];

fn words(text: &str) -> Vec<Arc<str>> {
    text.split_whitespace().map(Arc::from).collect()
}

fn any_match() -> impl Strategy<Value = Match> {
    let probability = prop_oneof![
        Just(0),
        Just(1 << 30),
        Just(1 << 31),
        any::<u32>().prop_map(|p| p >> 1)
    ];
    let known = prop::sample::select(vec![
        ("set", "--match-set x src"),
        ("set", "! --match-set x src"),
        ("limit", "--limit 3/min"),
        ("multiport", "--dports 80,443"),
        ("conntrack", "--ctstate NEW,UNTRACKED --ctorigdst 10.0.0.0/8"),
        ("tcp", "--tcp-flags SYN,ACK SYN"),
        ("statistic", "--mode random ! --probability 0.25"),
        ("mark", "--mark zzz"),
        ("", "-f"),
    ])
    .prop_map(|(module, text)| Match::Other {
        module: module.into(),
        words: words(text),
    });
    let garbage = ("[a-z]{0,9}", "[-!a-z0-9:/, ]{0,30}").prop_map(|(module, text)| Match::Other {
        module: module.into(),
        words: words(&text),
    });
    prop_oneof![
        4 => probability.prop_map(Match::Probability),
        2 => known,
        1 => garbage,
        1 => any::<(u32, u32)>().prop_map(|pair| Match::Mark { is: Is::Equal(pair) }),
        1 => Just(Match::Recent(Recent { name: "r".into(), action: RecentAction::RcheckReap { seconds: 1 } })),
    ]
}

fn any_target() -> impl Strategy<Value = Target> {
    let chain = (0..CHAINS.len()).prop_map(|i| ChainName::new(CHAINS[i]).expect("a good name"));
    let other = prop::sample::select(vec![
        ("CONNMARK", "--restore-mark --nfmask 0xff --ctmask 0xff"),
        ("CONNMARK", "--save-mark --nfmask 0xff --ctmask 0xff"),
        ("DNAT", "--to-destination 10.0.0.1-10.0.0.9:80"),
        ("SNAT", "--to-source 10.0.0.9"),
        ("REDIRECT", "--to-ports 80"),
        ("CT", "--notrack"),
        ("NFQUEUE", "--queue-num 1"),
        ("LOG", ""),
        ("XYZZY", "--plugh"),
    ])
    .prop_map(|(name, text)| Target::Other {
        name: name.into(),
        words: words(text),
    });
    prop_oneof![
        5 => chain.clone().prop_map(Target::Jump),
        2 => chain.prop_map(Target::Goto),
        2 => Just(Target::Return),
        1 => Just(Target::Accept),
        1 => Just(Target::Drop),
        2 => Just(Target::None),
        1 => Just(Target::Masquerade(Ports::Kept)),
        1 => any::<(u32, u32)>().prop_map(|(value, mask)| Target::Mark { value, mask }),
        2 => other,
    ]
}

fn any_rule() -> impl Strategy<Value = Rule> {
    (
        any_target(),
        prop::collection::vec(any_match(), 0..3),
        any::<u8>(),
    )
        .prop_map(|(target, matches, bits)| {
            let mut rule = Rule::new(target);
            rule.matches = matches;
            if bits & 0x1 == 0x1 {
                let interface: Arc<str> = if bits & 0x2 == 0x2 {
                    "cali+".into()
                } else {
                    "eth0".into()
                };
                rule.in_interface = Some(if bits & 0x4 == 0x4 {
                    Is::Not(interface)
                } else {
                    Is::Equal(interface)
                });
            }
            if bits & 0x18 == 0x18 {
                rule.src = Some(Is::Not("10.0.0.0/24".parse().expect("a network")));
            }
            rule
        })
}

fn any_table() -> impl Strategy<Value = Table> {
    prop::collection::vec(prop::collection::vec(any_rule(), 0..7), CHAINS.len()).prop_map(|chains| {
        let chains = CHAINS.iter().zip(chains).map(|(name, rules)| {
            let policy = (*name == "PREROUTING").then_some(Policy::Accept);
            (
                ChainName::new(name).expect("a good name"),
                Chain { policy, rules },
            )
        });
        Table {
            chains: chains.collect(),
        }
    })
}

fn walked(table: &Table, branches: usize) -> (Vec<(State, Verdict)>, History) {
    let packet = Packet::new(
        IpAddr::from([10, 0, 0, 2]),
        "10.96.0.10:80".parse().expect("an address"),
        Protocol::Tcp,
        Origin::Interface("".into()),
    );
    let mut state = State::new(&packet);
    state.connection.track = Track::New;
    let site = Site {
        hook: Hook::Prerouting,
        table: TableName::Nat.as_str().into(),
        in_interface: Interface::Unknown,
        out_interface: Interface::Absent,
        sender: Sender::Elsewhere,
        local: &LocalAddresses::Unknown,
        networks: &[],
        masquerade_as: None,
        redirect_to: None,
        sets: &traced::NO_SETS,
    };
    let mut history = History::new(Detail::Met);
    let ways = walk(table, state, &site, Limits { branches }, &mut history);
    (ways, history)
}

/// The weight of a way when each condition that is assumed has a chance of one half: over all ways these sum to one,
/// since each fork's branches do.
fn weight(state: &State, history: &History) -> f64 {
    let conditions = history
        .between(None, state.last)
        .into_iter()
        .filter(|event| matches!(event, Event::Assumed { .. }))
        .count();
    state.chance * 0.5_f64.powi(i32::try_from(conditions).expect("few conditions"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_rules_are_walked_to_an_end_and_every_fork_sums_to_one(table in any_table()) {
        let (ways, history) = walked(&table, 2_000);
        prop_assert!(!ways.is_empty() && ways.len() <= 2_000 + 1);
        let sum: f64 = ways.iter().map(|(state, _)| weight(state, &history)).sum();
        prop_assert!((sum - 1.0).abs() < 1e-9, "{}", sum);
    }

    #[test]
    fn no_way_stands_on_a_contradiction(table in any_table()) {
        let (ways, history) = walked(&table, 500);
        for (state, _) in &ways {
            let mut interfaces = BTreeMap::new();
            for event in history.between(None, state.last) {
                if let Event::Assumed { condition, holds } = event
                    && condition.to_string().starts_with("it came in")
                {
                    let before = interfaces.insert(condition.clone(), *holds);
                    prop_assert_eq!(before, None, "asked twice: {}", condition);
                }
            }
        }
    }
}
