//! Decoded dumps of iptables-nft's rules say what iptables-save says of the same rules.

use std::collections::BTreeMap;

use super::{data, messages, render};
use netlink::nft::{self, Expr};

/// Lines of an iptables-save text by table.
fn saved(name: &str) -> BTreeMap<String, Vec<String>> {
    let text = String::from_utf8(data(name)).unwrap();
    let mut tables = BTreeMap::<String, Vec<String>>::new();
    let mut table = String::new();
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            name.clone_into(&mut table);
        } else if line.starts_with("-A") {
            // These three are kept as bytes.
            let line = line
                .replace("--physdev-is-bridged", "?")
                .replace("--save-mark --nfmask 0xffffffff --ctmask 0xffffffff", "?")
                .replace("--log-prefix \"nlx \"", "?");
            tables.entry(table.clone()).or_default().push(line);
        }
    }
    tables
}

fn decoded(name: &str) -> BTreeMap<String, Vec<String>> {
    let bytes = data(name);
    let mut tables = BTreeMap::<String, Vec<String>>::new();
    for message in messages(&bytes) {
        let nft::Message::NewRule(rule) = nft::Message::read(message).unwrap() else {
            panic!("not a rule")
        };
        tables
            .entry(rule.table.to_owned())
            .or_default()
            .push(render::line(&rule));
    }
    tables
}

/// The order of chains is not the same in both; that of a chain's rules is.
fn by_chain(mut tables: BTreeMap<String, Vec<String>>) -> BTreeMap<String, Vec<String>> {
    for lines in tables.values_mut() {
        lines.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
    }
    tables
}

fn check(name: &str, rule_count: usize) {
    let want = by_chain(saved(&format!("{name}.rules")));
    let have = by_chain(decoded(&format!("{name}.bin")));
    assert_eq!(
        want.values().map(Vec::len).sum::<usize>(),
        rule_count,
        "rules in {name}.rules"
    );
    assert_eq!(
        have.keys().collect::<Vec<_>>(),
        want.keys().collect::<Vec<_>>(),
        "tables of {name}"
    );
    for (have, want) in have.values().flatten().zip(want.values().flatten()) {
        assert_eq!(have, want, "{name}");
    }
    assert_eq!(have, want, "{name}");
}

#[test]
fn a_dump_of_kube_proxys_ipv4_rules_says_what_iptables_save_says() {
    check("kube.v4", 81);
}

#[test]
fn a_dump_of_kube_proxys_ipv6_rules_says_what_ip6tables_save_says() {
    check("kube.v6", 22);
}

#[test]
fn every_form_of_ipv4_rule_is_read_as_it_was_written() {
    check("forms.v4", 54);
}

#[test]
fn every_form_of_ipv6_rule_is_read_as_it_was_written() {
    check("forms.v6", 52);
}

#[test]
fn iptables_nft_uses_no_expression_that_is_kept_as_bytes() {
    for name in ["kube.v4.bin", "kube.v6.bin", "forms.v4.bin", "forms.v6.bin"] {
        let bytes = data(name);
        for message in messages(&bytes) {
            let nft::Message::NewRule(rule) = nft::Message::read(message).unwrap() else {
                panic!("not a rule")
            };
            for expression in rule.expressions {
                assert!(
                    !matches!(expression, Expr::Other { .. }),
                    "{name}: {expression:?}"
                );
            }
        }
    }
}
