//! What is read is printed back: line by line for iptables, word by word for nftables.
//!
//! What may differ: counters, lines of comments, the order of chains, spaces between words, and what a folder's
//! `normalised` says.

use crate::{native, saved};
use iptables::ast::{Match, Rule, Ruleset, Target};
use iptables::render::SaveText;
use model::Family;
use nftables::listed::{self, Statement};
use scenario::Dump;
use std::collections::BTreeMap;

/// Lines of a dump behind table, chain and place in it, so that the order of chains makes no difference.
pub(crate) fn lines(text: &str) -> Vec<String> {
    let mut table = "";
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if line.starts_with('*') {
            table = line;
        }
        let line = match line.strip_prefix('[') {
            Some(counted) => counted.split_once("] ").expect("a counter ends").1.to_owned(),
            None if line.starts_with(':') => format!("{} [0:0]", line.rsplit_once(' ').expect("a counter").0),
            None => line.to_owned(),
        };
        let chain = line.split(' ').nth(1).unwrap_or_default();
        let place = places.entry(format!("{table} {chain}")).or_default();
        *place += usize::from(line.starts_with("-A"));
        lines.push(format!("{table} {place:04} {line}"));
    }
    lines.sort();
    lines
}

fn normalised(dump: &Dump, text: &str) -> String {
    let all = dump.expect.normalised.iter();
    all.fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A rule whose words made no sense is kept word by word and does nothing: no program's rule is one.
fn is_kept_as_nonsense(rule: &Rule) -> bool {
    let other = |one: &Match| matches!(one, Match::Other { module, .. } if module.is_empty());
    let jumps =
        |one: &Match| matches!(one, Match::Other { words, .. } if words.iter().any(|word| &**word == "-j"));
    rule.target == Target::None && rule.matches.iter().any(|one| other(one) && jumps(one))
}

fn assert_all_make_sense(name: &str, ruleset: &Ruleset) {
    let tables = ruleset.tables.values();
    for rule in tables.flat_map(|table| table.chains.values().flat_map(|chain| &chain.rules)) {
        assert!(!is_kept_as_nonsense(rule), "{name}: {rule:?}");
    }
}

#[test]
fn what_iptables_saves_is_printed_back_line_by_line() {
    for dump in scenario::dumps() {
        for family in Family::ALL {
            let Some(text) = dump.saved.get(family) else {
                continue;
            };
            let ruleset = saved(&dump.name, text, family);
            assert_all_make_sense(&dump.name, &ruleset);
            let printed = SaveText::new(&ruleset, family).to_string();
            assert_eq!(
                lines(&printed),
                lines(&normalised(&dump, text)),
                "{} {family}",
                dump.name
            );
            assert_eq!(saved(&dump.name, &printed, family), ruleset, "{}", dump.name);
        }
    }
}

/// The words of a list but for its comments.
pub(crate) fn words(text: &str) -> Vec<String> {
    let code = text.lines().map(|line| match line.split_once('#') {
        Some((code, comment)) if !comment.starts_with(" xt_") => code,
        _ => line,
    });
    let words = code.flat_map(|line| line.split([' ', '\t']).filter(|word| !word.is_empty()));
    words.map(str::to_owned).collect()
}

#[test]
fn what_nft_lists_is_printed_back_word_by_word() {
    for dump in scenario::dumps() {
        let Some(text) = &dump.text else { continue };
        let ruleset = native(&dump.name, text);
        let printed = ruleset.to_string();
        assert_eq!(native(&dump.name, &printed), ruleset, "{}", dump.name);
        let (printed, text) = (
            words(&printed).join(" "),
            words(&normalised(&dump, text)).join(" "),
        );
        assert_eq!(printed, text, "{}", dump.name);
    }
}

#[test]
fn what_nft_lists_as_json_is_printed_and_read_again() {
    let mut read = 0;
    for dump in scenario::dumps() {
        let Some(json) = &dump.json else { continue };
        let ruleset = native(&dump.name, json);
        assert_eq!(native(&dump.name, &ruleset.to_string()), ruleset, "{}", dump.name);
        if let Some(text) = &dump.text {
            assert_same_rules(&dump.name, &native(&dump.name, text), &ruleset);
        }
        read += 1;
    }
    assert!(read > 0, "no dump as JSON is there");
}

/// Without the burst that is the usual one: versions of `nft` and its forms differ in whether they print it.
pub(crate) fn without_usual_burst(text: &str) -> String {
    text.replace(" burst 5 packets", "")
}

/// The rules of the text form and of JSON, which does not tell everything of sets and tables (`nft` 1.0.6).
pub(crate) fn assert_same_rules(name: &str, text: &listed::Ruleset, json: &listed::Ruleset) {
    let rules = |ruleset: &listed::Ruleset| -> Vec<String> {
        let tables = ruleset.tables.iter();
        let chains = tables.flat_map(|table| table.chains.iter().map(move |chain| (table.title(), chain)));
        let rules = chains.flat_map(|(table, chain)| {
            let name = format!("{table} {}", chain.name);
            let rules = chain.rules.iter().map(listed::RuleText);
            rules
                .map(move |rule| without_usual_burst(&format!("{name}: {rule}")))
                .collect::<Vec<_>>()
        });
        rules.collect()
    };
    assert_eq!(rules(text), rules(json), "{name}");
}

/// What is kept word by word and not understood: a new one is worth a look, since a packet that meets it is followed no further.
#[test]
fn statements_that_are_not_understood_are_few_and_named() {
    let mut unknown: Vec<String> = Vec::new();
    for dump in scenario::dumps() {
        let Some(text) = &dump.text else { continue };
        let tables = native(&dump.name, text).tables;
        let rules = tables
            .iter()
            .flat_map(|table| &table.chains)
            .flat_map(|chain| &chain.rules);
        for statement in rules.flat_map(|rule| &rule.statements) {
            if let Statement::Unknown(words) = statement {
                unknown.push(format!("{}: {words}", dump.name));
            }
        }
    }
    let known = [
        r#"iptables-seen-by-nft: xt target "REJECT""#,
        "iptables-seen-by-nft: xt target TPROXY",
        "iptables-seen-by-old-nft: # xt_REJECT",
    ];
    assert_eq!(unknown, known);
}
