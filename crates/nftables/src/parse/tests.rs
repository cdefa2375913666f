//! Lists of the real `nft`, and what becomes of them.

use super::{ParseError, form_of, rule, ruleset};
use crate::listed::{Expr, RuleText, Ruleset, Statement};

/// A list of `nft` 1.0.6 with every kind of statement that is known here, and the same as JSON.
const TEXT: &str = include_str!("tests/all.txt");
const JSON: &str = include_str!("tests/all.json");

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn parsed(text: &str) -> Ruleset {
    ruleset(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn unknown(ruleset: &Ruleset) -> Vec<String> {
    let chains = ruleset.tables.iter().flat_map(|table| &table.chains);
    let statements = chains
        .flat_map(|chain| &chain.rules)
        .flat_map(|rule| &rule.statements);
    statements
        .filter_map(|statement| match statement {
            Statement::Unknown(words) => Some(words.to_string()),
            _ => None,
        })
        .collect()
}

#[test]
fn what_nft_lists_is_understood_and_printed_back_word_by_word() {
    let all = parsed(TEXT);
    assert_eq!(unknown(&all), Vec::<String>::new());
    assert_eq!(words(&all.to_string()), words(TEXT));
}

#[test]
fn json_says_what_text_says_but_for_what_nft_leaves_out_of_it() {
    let (text, json) = (parsed(TEXT), parsed(JSON));
    assert_eq!(unknown(&json), Vec::<String>::new());
    for (table, of_json) in text.tables.iter().zip(&json.tables) {
        assert_eq!(table.title(), of_json.title());
        for (chain, of_json) in table.chains.iter().zip(&of_json.chains) {
            assert_eq!(chain.name, of_json.name);
            let kept = |chain: &crate::listed::Chain| {
                let base = chain.base.clone();
                base.map(|base| (base.kind, base.hook, base.priority, base.policy))
            };
            assert_eq!(kept(chain), kept(of_json));
            for (rule, of_json) in chain.rules.iter().zip(&of_json.rules) {
                assert_eq!(RuleText(rule).to_string(), RuleText(of_json).to_string());
                assert_eq!(rule, of_json);
            }
            assert_eq!(chain.rules.len(), of_json.rules.len());
        }
        for (set, of_json) in table.sets.iter().zip(&of_json.sets) {
            assert_eq!(set.name, of_json.name);
            assert_eq!(set.data.is_some(), of_json.data.is_some());
        }
        assert_eq!(table.sets.len(), of_json.sets.len());
    }
    assert_eq!(text.tables.len(), json.tables.len());
}

#[test]
fn what_is_not_known_stays_word_by_word() {
    for text in [
        "ip saddr 10.0.0.1 tproxy to :8080 meta mark set 0x00000001 accept",
        "synproxy mss 1460 wscale 7 timestamp sack-perm",
        "tcp dport 80 frobnicate @x { 1, 2 } now \"with words\"",
    ] {
        let rule = rule(text);
        assert!(
            matches!(rule.statements.last(), Some(Statement::Unknown(_))),
            "{rule:?}"
        );
        assert_eq!(words(&RuleText(&rule).to_string()).concat(), words(text).concat());
    }
}

#[test]
fn tables_of_commands_are_what_they_build() {
    let commands = "flush ruleset\nadd table ip t\nadd map ip t m { type ipv4_addr : verdict ; }\nadd chain ip t c\n\
        add chain ip t b { type nat hook prerouting priority -110 ; }\nadd rule ip t c drop\n\
        add rule ip t b ip daddr vmap @m\nadd element ip t m { 10.0.0.1 comment \"one\" : goto c }\n";
    let listed = "table ip t {\n map m {\n type ipv4_addr : verdict\n\
        elements = { 10.0.0.1 comment \"one\" : goto c }\n }\n chain c {\n drop\n }\n chain b {\n\
        type nat hook prerouting priority dstnat - 10; policy accept;\n ip daddr vmap @m\n }\n}\n";
    assert_eq!(parsed(commands), parsed(listed));
    assert_eq!(words(&parsed(commands).to_string()), words(listed));
}

#[test]
fn a_list_without_its_end_is_refused() {
    let cut = TEXT.len() - 40;
    let error = ruleset(&TEXT[..cut]).expect_err("the end is missing");
    assert!(error.what.contains("the rest of the text is missing"), "{error}");
    let error = ruleset(&JSON[..JSON.len() - 40]).expect_err("the end is missing");
    assert!(error.what.contains("no JSON"), "{error}");
    let nowhere = ParseError {
        line: 1,
        what: "expected a table, or a command that adds something, found \"*filter\"".to_owned(),
    };
    assert_eq!(ruleset("*filter\nCOMMIT\n"), Err(nowhere));
}

#[test]
fn a_chain_at_a_hook_that_is_not_known_is_an_error_in_both_forms() {
    let text = |hook: &str| {
        format!("table ip t {{\n\tchain c {{\n\t\ttype filter hook {hook} priority filter;\n\t}}\n}}\n")
    };
    assert!(ruleset(&text("input")).is_ok());
    let error = ruleset(&text("nowhere")).unwrap_err().to_string();
    assert_eq!(
        error,
        "line 3: expected one of prerouting, input, forward, output, postrouting, ingress, egress, found \"nowhere\""
    );
    let json = |hook: &str| {
        format!(
            r#"{{"nftables": [{{"table": {{"family": "ip", "name": "t"}}}},
            {{"chain": {{"family": "ip", "table": "t", "name": "c", "type": "filter", "hook": "{hook}", "prio": 0}}}}]}}"#
        )
    };
    assert!(ruleset(&json("input")).is_ok());
    let error = ruleset(&json("nowhere")).unwrap_err().to_string();
    assert!(
        error.contains("postrouting") && error.contains("nowhere"),
        "{error}"
    );
}

#[test]
fn forms_are_known_by_their_beginning() {
    use super::Form;
    assert_eq!(form_of(TEXT), Some(Form::Text));
    assert_eq!(form_of(JSON), Some(Form::Json));
    assert_eq!(
        form_of("# Warning: table ip nat is managed by iptables-nft\ntable ip nat {\n}"),
        Some(Form::Text)
    );
    assert_eq!(form_of("# Generated by iptables-save\n*nat\nCOMMIT\n"), None);
    assert_eq!(form_of(""), None);
}

#[test]
fn expressions_are_read_as_nft_reads_them() {
    let only = |text: &str| match &rule(text).statements[..] {
        [one] => one.clone(),
        other => panic!("{text}: {other:?}"),
    };
    let Statement::Match { left, right, .. } = only("tcp flags & (fin | syn) == syn") else {
        panic!("no match");
    };
    assert!(matches!(left, Expr::Binary(..)), "{left:?}");
    assert_eq!(right.to_string(), "syn");
    let Statement::Nat(nat) = only("dnat ip6 to [fd00::1]:80") else {
        panic!("no nat");
    };
    assert_eq!(nat.to_string(), "dnat ip6 to [fd00::1]:80");
    let Statement::Nat(nat) = only("dnat to fd00::1") else {
        panic!("no nat");
    };
    assert_eq!(nat.port, None);
}

/// The base chain of a table of this family, and its priority printed back.
fn priority(family: &str, hook: &str, priority: &str) -> (i32, String) {
    let list = format!("table {family} t {{ chain c {{ type filter hook {hook} priority {priority}; }} }}");
    let read = parsed(&list);
    let printed = read.to_string();
    assert_eq!(parsed(&printed), read, "{list}");
    let base = read.tables[0].chains[0].base.as_ref().expect("a base chain");
    let (_, behind) = printed.split_once("priority ").expect("it is printed");
    let (printed, _) = behind.split_once(';').expect("it ends");
    (base.priority, printed.to_owned())
}

/// `nft` 1.0.7 and later name `dstnat` at output, which versions before refuse: it is printed as a number.
#[test]
fn names_of_priorities_are_those_of_the_family_at_any_hook() {
    for (family, hook, named, number, printed) in [
        ("ip", "output", "dstnat", -100, "-100"),
        ("inet", "output", "dstnat - 10", -110, "-110"),
        ("ip6", "input", "srcnat", 100, "100"),
        ("ip", "prerouting", "dstnat", -100, "dstnat"),
        ("bridge", "forward", "filter", -200, "filter"),
        ("bridge", "prerouting", "dstnat + 1", -299, "dstnat + 1"),
        ("bridge", "forward", "0", 0, "0"),
    ] {
        let expected = (number, printed.to_owned());
        assert_eq!(priority(family, hook, named), expected, "{family} {hook} {named}");
    }
    assert!(ruleset("table ip t { chain c { type filter hook forward priority out; } }").is_err());
}

#[test]
fn a_module_behind_a_sign_is_no_comment() {
    let all = rule("meta l4proto tcp # xt_tcp counter packets 5 bytes 300 drop # handle 7");
    assert_eq!(
        RuleText(&all).to_string(),
        "meta l4proto tcp # xt_tcp counter packets 5 bytes 300 drop"
    );
    let [_, Statement::Open(module), _, Statement::Verdict(_)] = &all.statements[..] else {
        panic!("{all:?}");
    };
    assert_eq!(&**module, "# xt_tcp");
    let target = rule("counter packets 1 bytes 2 # xt_REJECT");
    assert!(matches!(target.statements.last(), Some(Statement::Unknown(_))));
}

/// A comment on a rule decides nothing, and no rule hangs on it.
#[test]
fn what_is_in_every_rule_of_iptables_asks_nothing() {
    for text in ["xt match comment", "xt match \"comment\"", "# xt_comment"] {
        assert!(
            matches!(rule(text).statements[..], [Statement::Inert(_)]),
            "{text}"
        );
    }
    assert!(matches!(
        rule("xt match \"set\"").statements[..],
        [Statement::Open(_)]
    ));
}

#[test]
fn modules_and_what_is_not_known_have_the_same_words_out_of_both_forms() {
    let json = |statement: &str| {
        let list = format!(
            r#"{{"nftables": [{{"chain": {{"family": "ip", "table": "t", "name": "c"}}}},
            {{"rule": {{"family": "ip", "table": "t", "chain": "c", "expr": [{statement}]}}}}]}}"#
        );
        let rule = parsed(&list).tables[0].chains[0].rules[0].clone();
        assert_eq!(super::rule(&RuleText(&rule).to_string()), rule, "{statement}");
        rule
    };
    let module = json(r#"{"xt": {"type": "match", "name": "set"}}"#);
    assert_eq!(module, rule("xt match \"set\""));
    let target = json(r#"{"xt": {"type": "target", "name": "REJECT"}}"#);
    assert_eq!(target, rule("xt target \"REJECT\""));
    let unknown = json(r#"{"tproxy": {"family": "ip", "addr": "127.0.0.1", "port": 8080}}"#);
    assert!(matches!(unknown.statements[..], [Statement::Unknown(_)]));
    assert!(matches!(
        json(r#"{"xt": null}"#).statements[..],
        [Statement::Unknown(_)]
    ));
    // An element that nobody can read is none that packets are put in by.
    let update = r#"{"set": {"op": "add", "elem": {"payload": {"protocol": "ip", "field": "saddr"}}, "set": "@s", "stmt": [S]}}"#;
    let limited = json(&update.replace('S', r#"{"limit": {"rate": 9, "burst": 7, "per": "minute"}}"#));
    assert_eq!(
        limited,
        rule("add @s { ip saddr limit rate 9/minute burst 7 packets }")
    );
    let odd = json(&update.replace('S', r#"{"frobnicate": 1}"#));
    assert!(matches!(odd.statements[..], [Statement::Unknown(_)]));
}

/// `nft` does not escape what stands in quotes.
#[test]
fn quotes_within_quotes_end_nothing() {
    let text = "log prefix \"it's \"me\": \" level debug drop";
    let read = rule(text);
    assert_eq!(RuleText(&read).to_string(), text);
    assert!(
        matches!(read.statements.last(), Some(Statement::Verdict(_))),
        "{read:?}"
    );
    let range = "meta hour \"10:00\"-\"23:59\" drop";
    assert_eq!(RuleText(&rule(range)).to_string(), range);
}

#[test]
fn rules_of_older_lists_are_understood_as_those_of_newer_ones() {
    for (older, newer) in [
        (
            "tcp flags & (fin|syn|rst) == syn drop",
            "tcp flags & (fin | syn | rst) == syn drop",
        ),
        ("mark and 0x20 == 0x20 accept", "meta mark & 0x20 == 0x20 accept"),
        ("ct mark set mark or 0x1", "ct mark set meta mark | 0x1"),
        // What is written for `nft -f`, and what it lists then.
        (
            "update @clients { ip saddr . tcp dport timeout 10800s }",
            "update @clients { ip saddr . tcp dport timeout 3h }",
        ),
        (
            "update @clients { ip saddr timeout 5461s : 10.0.0.1 }",
            "update @clients { ip saddr timeout 1h31m1s : 10.0.0.1 }",
        ),
    ] {
        assert_eq!(rule(older), rule(newer));
    }
    for text in [
        "meter m { ip saddr limit rate 1/second } accept",
        "meter m size 128 { ip saddr timeout 1m limit rate over 1/second } drop",
        "pkttype broadcast drop",
        "cpu 1 accept",
    ] {
        let read = rule(text);
        assert!(
            matches!(read.statements[..], [_, Statement::Verdict(_)]),
            "{read:?}"
        );
        assert_eq!(RuleText(&read).to_string(), text);
    }
}
