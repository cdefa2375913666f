//! What holds for any text and any rules.

use model::{Origin, Packet, Protocol};
use nftables::listed::{RuleText, Ruleset};
use nftables::parse;
use nftables::trace::{Indexed, walk};
use proptest::prelude::*;
use traced::{
    Detail, Event, History, Hook, Interface, Limits, LocalAddresses, Sender, Site, State, Track, Verdict,
};

/// Statements of every kind, good ones and others.
const STATEMENTS: &[&str] = &[
    "ip saddr 10.0.0.0/8",
    "ip daddr != { 10.96.0.1, 10.96.0.0/24 }",
    "ip daddr . meta l4proto . th dport @s",
    "iifname \"eth*\"",
    "ct state established,related",
    "ct status dnat",
    "meta mark & 0x00004000 != 0x00000000",
    "meta mark set meta mark ^ 0x00004000",
    "ct mark set meta mark",
    "meta skuid 1000",
    "limit rate over 10/second burst 5 packets",
    "counter packets 1 bytes 2",
    "log prefix \"a b\"",
    "numgen random mod 4 < 1",
    "numgen random mod 4 vmap { 0 : jump c1, 1 : jump c2, 2 : drop }",
    "numgen inc mod 2 vmap { 0 : goto c1, 1 : continue }",
    "jhash ip saddr mod 3 seed 0x1 vmap { 0 : jump c1, 1 : jump c2 }",
    "ip saddr @clients",
    "update @clients { ip saddr timeout 1h }",
    "delete @clients { ip saddr }",
    "dnat ip to numgen random mod 3 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 80 }",
    "ip daddr vmap @v",
    "masquerade fully-random",
    "jump c1",
    "jump c2",
    "goto c2",
    "return",
    "accept",
    "drop",
    "reject with tcp reset",
    "notrack",
    "xt match \"string\"",
    "frobnicate { 1 }",
    "queue to 3",
];

const SETS: &str = "set s {\ntype ipv4_addr . inet_proto . inet_service\nelements = { 10.96.0.10 . tcp . 80 }\n}\n\
    set clients {\ntype ipv4_addr\nflags dynamic,timeout\n}\n\
    map v {\ntype ipv4_addr : verdict\nelements = { 10.96.0.10 : jump c2, 10.96.0.11 : drop }\n}\n";

fn any_rule() -> impl Strategy<Value = String> {
    let statement = prop::sample::select(STATEMENTS);
    prop::collection::vec(statement, 1..4).prop_map(|all| all.join(" "))
}

fn any_table() -> impl Strategy<Value = String> {
    let rules = || prop::collection::vec(any_rule(), 0..5).prop_map(|rules| rules.join("\n"));
    (rules(), rules(), rules()).prop_map(|(base, first, second)| {
        format!(
            "table ip t {{\n{SETS}chain b {{\ntype nat hook prerouting priority dstnat; policy accept;\n{base}\n}}\n\
             chain c1 {{\n{first}\n}}\nchain c2 {{\n{second}\n}}\n}}\n"
        )
    })
}

fn site(local: &LocalAddresses) -> Site<'_> {
    Site {
        hook: Hook::Prerouting,
        table: "ip t".into(),
        in_interface: Interface::Unknown,
        out_interface: Interface::Absent,
        sender: Sender::Elsewhere,
        local,
        networks: &[],
        masquerade_as: None,
        redirect_to: None,
        sets: &traced::NO_SETS,
    }
}

fn walked(ruleset: &Ruleset, history: &mut History) -> Vec<(State, Verdict)> {
    let table = &ruleset.tables[0];
    let to = "10.96.0.10:80".parse().expect("an address");
    let from = "10.0.0.2".parse().expect("an address");
    let packet = Packet::new(from, to, Protocol::Tcp, Origin::Interface("".into()));
    let mut state = State::new(&packet);
    state.connection.track = Track::New;
    let base = table.chain("b").expect("a base chain");
    let local = LocalAddresses::Unknown;
    walk(
        (&Indexed::of(table), base),
        state,
        &site(&local),
        Limits::default(),
        history,
    )
}

/// The chances of the ways that a packet has when every condition is answered by one rule: those that stand on nothing
/// else. Conditions are answered by whether their text has an even length.
fn agrees(history: &History, state: &State) -> bool {
    history.between(None, state.last).iter().all(|event| match event {
        Event::Assumed { condition, holds } => (condition.to_string().len() % 2 == 0) == *holds,
        _ => true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_rules_of_nftables_are_walked_to_an_end_and_every_fork_sums_to_one(text in any_table()) {
        let ruleset = parse::ruleset(&text).expect("a table");
        let mut history = History::new(Detail::Met);
        let ways = walked(&ruleset, &mut history);
        prop_assert!(!ways.is_empty());
        // What is asked anew each time, as a rate is, has answers of its own each time.
        let fickle = ["limit", "numgen inc", "xt match", "has room", "lets it go on", "mark"];
        if !fickle.iter().any(|word| text.contains(word)) && !text.contains("queue") {
            let sum: f64 = ways.iter().filter(|(state, _)| agrees(&history, state)).map(|(state, _)| state.chance).sum();
            prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}\n{text}");
        }
    }

    #[test]
    fn what_is_printed_of_any_table_reads_back_as_itself(text in any_table()) {
        let first = parse::ruleset(&text).expect("a table");
        let again = parse::ruleset(&first.to_string()).expect("a printed table");
        prop_assert_eq!(again, first);
    }

    #[test]
    fn arbitrary_text_never_panics_the_parser(text in any::<String>(), json in any::<bool>()) {
        let text = if json { format!("{{\"nftables\": [{text}") } else { format!("table {text}") };
        let _ = parse::form_of(&text);
        let _ = parse::ruleset(&text);
        let _ = RuleText(&parse::rule(&text)).to_string();
    }

    /// Words that mean something in every order.
    #[test]
    fn words_in_any_order_never_panic_the_parser(words in prop::collection::vec(prop::sample::select(&[
        "table", "ip", "t", "{", "}", "set", "map", "chain", "type", "elements", "=", ",", ":", ";", "\n", "\"", "\\",
        "hook", "priority", "-", "1", "10.0.0.1", "::", "@x", "@th", "ct", "meta", "mark", "fib", "numgen", "mod", "jhash",
        "(", ")", ".", "&", "|", "vmap", "dnat", "to", "[", "[::1]:80", "limit", "rate", "add", "rule", "element", "comment",
    ][..]), 0..60)) {
        let text = words.join(" ");
        let _ = parse::ruleset(&text);
        let _ = RuleText(&parse::rule(&text)).to_string();
    }
}
