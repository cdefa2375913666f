//! Properties of printing and reading.

use ipnet::IpNet;
use iptables::ast::{
    AddrType, ChainName, CtState, Is, Match, PortRange, Ports, Proto, Recent, RecentAction, Rule, Target,
};
use iptables::parse;
use iptables::render::{RuleText, SaveText};
use model::{Family, Protocol};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::sync::Arc;

fn is<T: std::fmt::Debug + Clone>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Is<T>> {
    (any::<bool>(), value).prop_map(|(not, v)| if not { Is::Not(v) } else { Is::Equal(v) })
}

fn networks(family: Family) -> impl Strategy<Value = Is<IpNet>> {
    is((any::<u128>(), 1..=128u8).prop_map(move |(bits, prefix)| {
        let net = match family {
            Family::V4 => IpNet::new(
                Ipv4Addr::from_bits(u32::try_from(bits >> 96).expect("32 bits are left")).into(),
                1 + (prefix - 1) % 32,
            ),
            Family::V6 => IpNet::new(Ipv6Addr::from_bits(bits).into(), prefix),
        };
        net.expect("prefixes fit the family").trunc()
    }))
}

fn arc(pattern: &'static str) -> impl Strategy<Value = Arc<str>> {
    pattern.prop_map(Arc::from)
}

fn chain_names() -> impl Strategy<Value = ChainName> {
    "[a-z][A-Za-z0-9:_.-]{0,27}".prop_map(|name| ChainName::new(&name).expect("a good name"))
}

fn port_matches() -> impl Strategy<Value = Match> {
    let range = || {
        (any::<u16>(), any::<u16>()).prop_map(|(a, b)| PortRange {
            first: a.min(b),
            last: a.max(b),
        })
    };
    let module = prop::sample::select(Protocol::ALL.to_vec());
    (
        module,
        prop::option::of(is(range())),
        prop::option::of(is(range())),
    )
        .prop_map(|(module, src, dst)| Match::Ports { module, src, dst })
}

fn address_types() -> impl Strategy<Value = Match> {
    let kind = || {
        is(prop_oneof![
            Just(AddrType::Local),
            Just(AddrType::Other("BROADCAST".into()))
        ])
    };
    (prop::option::of(kind()), prop::option::of(kind())).prop_map(|(src, dst)| Match::AddrType { src, dst })
}

fn recents() -> impl Strategy<Value = Match> {
    let action = prop_oneof![
        Just(RecentAction::Set),
        any::<u32>().prop_map(|seconds| RecentAction::RcheckReap { seconds })
    ];
    (arc("[A-Z][A-Z0-9-]{0,23}"), action).prop_map(|(name, action)| Match::Recent(Recent { name, action }))
}

fn other_matches() -> impl Strategy<Value = Match> {
    let words = prop::collection::vec(arc("--[a-z]{3,8}-x|[0-9a-z,:/]{1,9}|[ \"'a\\\\]{1,5}"), 0..4);
    (arc("z[a-z]{2,8}"), words).prop_map(|(module, words)| Match::Other { module, words })
}

fn matches() -> impl Strategy<Value = Match> {
    let states = prop::sample::subsequence(CtState::ALL.to_vec(), 1..=7);
    prop_oneof![
        "[^\\p{C}]{0,60}".prop_map(|text| Match::Comment(text.into())),
        port_matches(),
        is(states).prop_map(Match::CtState),
        address_types(),
        is(any::<(u32, u32)>()).prop_map(|is| Match::Mark { is }),
        (0..=1u32 << 31).prop_map(Match::Probability),
        recents(),
        arc("[a-z_ \"]{1,31}").prop_map(Match::Nfacct),
        other_matches(),
    ]
}

fn targets() -> impl Strategy<Value = Target> {
    let words = prop::collection::vec(arc("--[a-z]{3,8}-x|[0-9a-z,:/]{1,9}"), 0..3);
    prop_oneof![
        Just(Target::None),
        chain_names().prop_map(Target::Jump),
        chain_names().prop_map(Target::Goto),
        Just(Target::Accept),
        Just(Target::Drop),
        Just(Target::Return),
        arc("[a-z][a-z0-9-]{0,19}").prop_map(Target::Reject),
        any::<SocketAddrV4>().prop_map(|a| Target::Dnat(a.into())),
        (any::<Ipv6Addr>(), any::<u16>()).prop_map(|(ip, port)| Target::Dnat((ip, port).into())),
        prop_oneof![Just(Ports::Kept), Just(Ports::RandomFully)].prop_map(Target::Masquerade),
        any::<(u32, u32)>().prop_map(|(value, mask)| Target::Mark { value, mask }),
        words.prop_map(|words| Target::Other {
            name: "LOG".into(),
            words
        }),
    ]
}

fn rules(family: Family) -> impl Strategy<Value = Rule> {
    let interface = || prop::option::of(is(arc("[a-z][a-z0-9.]{0,13}[+]?")));
    let protocol = is(prop_oneof![
        Just(Proto::Tcp),
        Just(Proto::Udp),
        Just(Proto::Sctp),
        Just(Proto::Other("gre".into()))
    ]);
    (
        (
            prop::option::of(networks(family)),
            prop::option::of(networks(family)),
        ),
        (interface(), interface(), prop::option::of(protocol)),
        prop::collection::vec(matches(), 0..4),
        targets(),
    )
        .prop_map(
            |((src, dst), (in_interface, out_interface, protocol), matches, target)| Rule {
                src,
                dst,
                in_interface,
                out_interface,
                protocol,
                matches,
                target,
            },
        )
}

fn families() -> impl Strategy<Value = Family> {
    prop::sample::select(Family::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_printed_rule_reads_as_itself((family, rule) in families().prop_flat_map(|f| (Just(f), rules(f)))) {
        let text = RuleText { rule: &rule, family }.to_string();
        prop_assert_eq!(parse::rule(&text, family), Some(rule), "{}", text);
    }

    #[test]
    fn any_text_is_read_and_then_stays_the_same(text in "(\\PC|\\n){0,200}", family in families()) {
        reads_and_stays(&text, family)?;
    }

    #[test]
    fn any_words_are_read_and_then_stay_the_same(
        lines in prop::collection::vec(prop::collection::vec(word(), 0..9), 0..9),
        family in families(),
    ) {
        let lines: Vec<String> = lines.iter().map(|words| format!("-A X {}", words.join(" "))).collect();
        reads_and_stays(&format!("*filter\n:X - [0:0]\n{}\nCOMMIT\n", lines.join("\n")), family)?;
    }
}

/// A word that a rule might have, where it might not.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "!",
        "-s",
        "-d",
        "-p",
        "-i",
        "-m",
        "-j",
        "-g",
        "-c",
        "-f",
        "tcp",
        "udp",
        "comment",
        "recent",
        "mark",
        "10.0.0.0/8",
        "10.1.2.3",
        "fd00::/7",
        "--comment",
        "--dport",
        "80",
        "80:90",
        "--mark",
        "0x1/0x3",
        "MARK",
        "--or-mark",
        "DNAT",
        "--to-destination",
        "1.2.3.4:5",
        "REJECT",
        "--set",
        "--name",
        "conntrack",
        "--ctstate",
        "NEW,NEW",
        "\"a b\"",
        "\"\"",
        "LOG",
        "--log-prefix",
        "\"-m\"",
        "*nat",
        "COMMIT",
    ];
    prop::sample::select(known.to_vec()).prop_map(str::to_owned)
}

fn reads_and_stays(text: &str, family: Family) -> Result<(), TestCaseError> {
    let once = parse::save(text, family);
    let printed = SaveText {
        ruleset: &once.ruleset,
        opaque: &once.opaque,
        family,
    }
    .to_string();
    let twice = parse::save(&printed, family);
    prop_assert_eq!(&once.ruleset, &twice.ruleset, "{}", printed);
    let texts = |save: &parse::Save| {
        let mut texts: Vec<String> = save.opaque.iter().map(|o| o.text.clone()).collect();
        texts.sort();
        texts
    };
    prop_assert_eq!(texts(&once), texts(&twice), "{}", printed);
    Ok(())
}
