//! Where packets go that meet the rules: every way with its end and what it stands on.

use crate::loss::without_usual_burst;
use crate::{host, native, own_rules};
use iptables::ast::Ruleset;
use model::PerFamily;
use nftables::listed;
use path::{Answer, Condition, Detail, End, Interface, Source, Way, trace};
use scenario::Dump;
use std::collections::{BTreeMap, BTreeSet};

fn interface(interface: &Interface) -> &str {
    match interface {
        Interface::Named(name) => name,
        Interface::Unknown => "?",
        Interface::Absent => "nowhere",
    }
}

/// `END [to DESTINATION] [from SOURCE] | CONDITION | not CONDITION`
fn told(answer: &Answer, way: &Way) -> String {
    let mut text = match &way.end {
        End::Local(_) => "here".to_owned(),
        End::Left { interface: by, .. } => format!("left {}", interface(by)),
        End::Rejected(with) => format!("rejected {with}"),
        End::Dropped => "dropped".to_owned(),
        End::NoRoute => "no route".to_owned(),
        End::Undecided(why) => format!("undecided: {why}"),
    };
    text.extend(way.translated.map(|to| format!(" to {to}")));
    match way.source {
        Source::Kept => {}
        Source::Rewritten(Some(ip)) => text.extend([format!(" from {ip}")]),
        Source::Rewritten(None) => text.push_str(" from ?"),
    }
    for (condition, holds) in answer.assumed(way) {
        let not = if holds { "" } else { "not " };
        text.extend([format!(" | {not}{condition}")]);
    }
    without_usual_burst(&text)
}

/// What a way stands on: each question, and how often it was asked before on the same way, since some answers do not last.
fn stands_on(answer: &Answer, way: &Way) -> Vec<((Condition, usize), bool)> {
    let mut asked: BTreeMap<Condition, usize> = BTreeMap::new();
    let claims = answer.assumed(way).into_iter().map(|(condition, holds)| {
        let before = asked.entry(condition.clone()).or_default();
        *before += 1;
        ((condition.clone(), *before), holds)
    });
    claims.collect()
}

/// So many questions are answered in every way.
const QUESTIONS: usize = 14;

/// Whatever the answers are, the chances of the ways that stand on them sum to one.
fn assert_chances_sum_to_one(name: &str, answer: &Answer) {
    let ways: Vec<_> = answer
        .ways
        .iter()
        .map(|way| (stands_on(answer, way), way))
        .collect();
    let questions: BTreeSet<_> = ways
        .iter()
        .flat_map(|(claims, _)| claims.iter().map(|(asked, _)| asked))
        .collect();
    assert!(questions.len() <= QUESTIONS, "{name}: {questions:?}");
    for answers in 0_u32..1 << questions.len() {
        let says = |asked: &(Condition, usize)| {
            let at = questions
                .iter()
                .position(|known| *known == asked)
                .expect("all are there");
            answers & 1 << at != 0
        };
        let follows = ways
            .iter()
            .filter(|(claims, _)| claims.iter().all(|(asked, holds)| says(asked) == *holds));
        let sum: f64 = follows.map(|(_, way)| way.state.chance).sum();
        assert!(
            (sum - 1.0).abs() < 1e-9,
            "{name}: {} sums to {sum}",
            answer.packet
        );
    }
}

/// What is not as the folder says, a line each.
pub(crate) fn wrong(
    dump: &Dump,
    how: &str,
    own: &PerFamily<Ruleset>,
    native: &listed::Ruleset,
) -> Vec<String> {
    let host = host(dump, own, native);
    let mut wrong = Vec::new();
    for question in &dump.expect.packets {
        let packet = question
            .packet()
            .unwrap_or_else(|error| panic!("{}: {error}", dump.name));
        let answer = trace(&host, &packet, Detail::Met);
        assert_chances_sum_to_one(&dump.name, &answer);
        let found: BTreeSet<String> = answer.ways.iter().map(|way| told(&answer, way)).collect();
        let name = format!("{} ({how}): {packet}", dump.name);
        wrong.extend(
            found
                .difference(&question.expect)
                .map(|way| format!("{name}\n   not expected: {way}")),
        );
        wrong.extend(
            question
                .expect
                .difference(&found)
                .map(|way| format!("{name}\n   not found: {way}")),
        );
    }
    wrong
}

#[test]
fn packets_go_where_the_rules_of_other_software_say() {
    let mut all = Vec::new();
    for dump in scenario::dumps() {
        let own = own_rules(&dump);
        let lists = [("text", &dump.text), ("JSON", &dump.json)];
        let mut found: Vec<_> = lists
            .into_iter()
            .filter_map(|(how, list)| list.as_ref().map(|list| (how, native(&dump.name, list))))
            .collect();
        if found.is_empty() {
            found.push(("iptables", listed::Ruleset::default()));
        }
        for (how, native) in found {
            all.extend(wrong(&dump, how, &own, &native));
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
