//! The rules of two states line by line: what differs in text, whatever it means.

use crate::drift::{Difference, Kind, Line, Owner, Sign, What};
use crate::lines::{Edit, edits};
use iptables::ast::{Match, Rule, Ruleset};
use iptables::render::RuleText;
use model::Family;
use nftables::listed::{self, Contents, Element};
use std::collections::{BTreeMap, BTreeSet};

/// Chains of iptables, of kube-proxy or not. Comments are no difference.
pub fn of_iptables(before: &Ruleset, after: &Ruleset, family: Family) -> Vec<Difference> {
    let mut differences = Vec::new();
    let tables: BTreeSet<_> = before.tables.keys().chain(after.tables.keys()).collect();
    for table in tables {
        let chains = |of: &Ruleset| -> BTreeMap<String, Vec<Rule>> {
            let table = of.tables.get(table).into_iter();
            let chains = table.flat_map(|table| &table.chains);
            chains
                .map(|(name, chain)| (name.to_string(), chain.rules.clone()))
                .collect()
        };
        let words = |rule: &Rule| {
            RuleText {
                rule: &bare(rule),
                family,
            }
            .to_string()
        };
        differences.extend(of_chains(
            &table.to_string(),
            &chains(before),
            &chains(after),
            words,
            |rules| {
                let named = rules.iter().find_map(|rule| rule.comment()?.split(' ').next());
                match named.filter(|word| word.contains('/')) {
                    Some(name) => Owner::Port(name.to_owned()),
                    None => Owner::Node,
                }
            },
        ));
    }
    differences
}

fn bare(rule: &Rule) -> Rule {
    let mut rule = rule.clone();
    rule.matches.retain(|one| !matches!(one, Match::Comment(_)));
    rule
}

/// Tables of nftables. Elements that packets put into sets are no difference.
pub fn of_tables(before: &listed::Ruleset, after: &listed::Ruleset) -> Vec<Difference> {
    let mut differences = Vec::new();
    let titles: BTreeSet<String> = before
        .tables
        .iter()
        .chain(&after.tables)
        .map(listed::Table::title)
        .collect();
    for title in titles {
        let of = |all: &listed::Ruleset| all.tables.iter().find(|table| table.title() == title).cloned();
        let (old, new) = (of(before), of(after));
        let chains = |table: &Option<listed::Table>| -> BTreeMap<String, Vec<listed::Rule>> {
            let chains = table.iter().flat_map(|table| &table.chains);
            chains
                .map(|chain| (chain.name.to_string(), chain.rules.clone()))
                .collect()
        };
        let words = |rule: &listed::Rule| {
            let bare = listed::Rule {
                comment: None,
                ..rule.clone()
            };
            listed::RuleText(&bare).to_string()
        };
        differences.extend(of_chains(&title, &chains(&old), &chains(&new), words, |_| {
            Owner::Node
        }));
        differences.extend(of_sets(&title, old.as_ref(), new.as_ref()));
    }
    differences
}

fn of_chains<R>(
    table: &str,
    before: &BTreeMap<String, Vec<R>>,
    after: &BTreeMap<String, Vec<R>>,
    words: impl Fn(&R) -> String,
    owner: impl Fn(&[R]) -> Owner,
) -> Vec<Difference> {
    let mut differences = Vec::new();
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    for name in names {
        let texts = |of: Option<&Vec<R>>| -> Vec<String> { of.into_iter().flatten().map(&words).collect() };
        let (old, new) = (before.get(name), after.get(name));
        let (old_texts, new_texts) = (texts(old), texts(new));
        let lines = edits(&old_texts, &new_texts, |one, other| one == other).into_iter();
        let lines: Vec<Line> = lines
            .map(|edit| match edit {
                Edit::Missing(at, text) => line(Sign::Missing, Some(at + 1), text),
                Edit::Extra(at, text) => line(Sign::Extra, Some(at + 1), text),
            })
            .collect();
        let what = match (old, new) {
            (None, _) => What::Extra,
            (_, None) => What::Missing,
            _ if lines.is_empty() => continue,
            _ => What::Changed,
        };
        differences.push(Difference {
            owner: owner(new.or(old).map_or(&[], Vec::as_slice)),
            table: table.to_owned(),
            kind: Kind::Chain,
            name: name.clone(),
            what,
            about: String::new(),
            lines,
        });
    }
    differences
}

fn of_sets(table: &str, before: Option<&listed::Table>, after: Option<&listed::Table>) -> Vec<Difference> {
    let sets = |of: Option<&listed::Table>| -> BTreeMap<String, BTreeSet<String>> {
        let sets = of
            .into_iter()
            .flat_map(|table| &table.sets)
            .filter(|set| !is_filled_by_packets(set));
        sets.map(|set| (set.name.to_string(), elements(&set.elements)))
            .collect()
    };
    let (old, new) = (sets(before), sets(after));
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let none = BTreeSet::new();
    let differences = names.into_iter().filter_map(|name| {
        let (was, is) = (old.get(name).unwrap_or(&none), new.get(name).unwrap_or(&none));
        let gone = was.difference(is).map(|text| line(Sign::Missing, None, text));
        let come = is.difference(was).map(|text| line(Sign::Extra, None, text));
        let lines: Vec<Line> = gone.chain(come).collect();
        let what = match (old.contains_key(name), new.contains_key(name)) {
            (false, _) => What::Extra,
            (_, false) => What::Missing,
            _ if lines.is_empty() => return None,
            _ => What::Changed,
        };
        Some(Difference {
            owner: Owner::Node,
            table: table.to_owned(),
            kind: Kind::Set,
            name: name.clone(),
            what,
            about: String::new(),
            lines,
        })
    });
    differences.collect()
}

/// The JSON of nft 1.0 leaves `dynamic` out.
fn is_filled_by_packets(set: &listed::Set) -> bool {
    set.is_dynamic() || set.flags.iter().any(|flag| &**flag == "timeout")
}

fn elements(contents: &Contents) -> BTreeSet<String> {
    let Contents::Listed(all) = contents else {
        return BTreeSet::new();
    };
    let words = |element: &Element| {
        let data = element.data.as_ref().map(|data| format!(" : {data}"));
        format!("{}{}", element.key, data.unwrap_or_default())
    };
    all.iter().map(words).collect()
}

fn line(sign: Sign, number: Option<usize>, text: &str) -> Line {
    Line {
        sign,
        number,
        text: text.to_owned(),
        comment: None,
    }
}
