//! iptables mode: steps of the daemon, told as differences.

use super::owners::{OfChains, of_comment};
use super::{Difference, Drift, Kind, Line, Owner, Sign, What};
use crate::lines::{Edit, edits};
use engine::rehearsal::{Rehearsed, Write};
use iptables::ast::{ChainName, Match, Ports, Rule, Ruleset, TableName, Target};
use iptables::build::{Capabilities, Nfacct};
use iptables::names::{StaticChain, is_dispatch};
use iptables::plan::Step;
use iptables::render::RuleText;
use model::{Desired, Family};
use std::collections::BTreeMap;

/// What the rules that were found show of the tool and the kernel that wrote them, where nobody can be asked: counters of
/// nfacct, and `--random-fully`. What is not there to show it, is taken to be there.
pub fn capabilities(found: &Ruleset) -> Capabilities {
    let rules = |table, chain: StaticChain| {
        let chain = found.chain(table, chain.as_str());
        chain.map_or(&[][..], |chain| chain.rules.as_slice()).iter()
    };
    let counts = |rule: &Rule| rule.matches.iter().any(|one| matches!(one, Match::Nfacct(_)));
    let drops = rules(TableName::Filter, StaticChain::Forward).filter(|rule| rule.target == Target::Drop);
    let masquerades = rules(TableName::Nat, StaticChain::Postrouting);
    let kept = masquerades
        .filter(|rule| matches!(rule.target, Target::Masquerade(_)))
        .all(|rule| rule.target == Target::Masquerade(Ports::Kept));
    let any = rules(TableName::Nat, StaticChain::Postrouting)
        .any(|rule| matches!(rule.target, Target::Masquerade(_)));
    Capabilities {
        masquerade_ports: if kept && any {
            Ports::Kept
        } else {
            Ports::RandomFully
        },
        nfacct: match drops.map(counts).next() {
            Some(false) => Nfacct::Absent,
            Some(true) | None => Nfacct::Present,
        },
    }
}

/// What the daemon would repair of the chains that were found.
pub fn rules(want: &Desired, found: &Ruleset, steps: &[Rehearsed]) -> Drift {
    let mut changes = Changes {
        found,
        chains: BTreeMap::new(),
    };
    for step in steps {
        if let Write::Iptables(step) = &step.write {
            changes.take(step);
        }
    }
    let mut told = Told {
        family: want.node.family,
        owners: OfChains::new(want),
        differences: Vec::new(),
        remarks: Vec::new(),
    };
    for ((table, name), change) in &changes.chains {
        told.chain(&Place::new(*table, name, found), change);
    }
    Drift::new(want.node.family, told.differences, told.remarks)
}

/// What becomes of the chains in all steps together.
struct Changes<'a> {
    found: &'a Ruleset,
    chains: BTreeMap<(TableName, ChainName), Change>,
}

/// What becomes of one chain.
#[derive(Default)]
struct Change {
    /// The rules that it gets in place of its own.
    whole: Option<Vec<Rule>>,
    /// It is made.
    is_made: bool,
    /// It goes.
    goes: bool,
    put_in: Vec<Rule>,
    taken_out: Vec<Rule>,
}

impl Changes<'_> {
    fn take(&mut self, step: &Step) {
        for (table, write) in &step.write {
            for (chain, rules) in &write.chains {
                self.of(*table, chain).whole = Some(rules.clone());
            }
            for (chain, rule) in write.insert.iter().chain(&write.append) {
                self.of(*table, chain).put_in.push(rule.clone());
            }
            for chain in &write.ensure {
                self.of(*table, chain).is_made |= self.found.chain(*table, chain.as_str()).is_none();
            }
            for chain in &write.remove {
                self.of(*table, chain).goes = true;
            }
        }
        for (table, chain, rule) in &step.delete {
            self.of(*table, chain).taken_out.push(rule.clone());
        }
        for (table, chain) in &step.retire {
            self.of(*table, chain).goes = true;
        }
    }

    fn of(&mut self, table: TableName, chain: &ChainName) -> &mut Change {
        self.chains.entry((table, chain.clone())).or_default()
    }
}

/// A chain and what it holds.
struct Place<'a> {
    table: TableName,
    name: &'a ChainName,
    is_there: bool,
    rules: &'a [Rule],
}

impl<'a> Place<'a> {
    fn new(table: TableName, name: &'a ChainName, found: &'a Ruleset) -> Place<'a> {
        let here = found.chain(table, name.as_str());
        Place {
            table,
            name,
            is_there: here.is_some(),
            rules: here.map_or(&[][..], |chain| chain.rules.as_slice()),
        }
    }

    fn difference(&self, owner: Owner, about: &str, what: What, lines: Vec<Line>) -> Difference {
        Difference {
            owner,
            table: self.table.to_string(),
            kind: Kind::Chain,
            name: self.name.to_string(),
            what,
            about: about.to_owned(),
            lines,
        }
    }
}

/// Turns changes into words.
struct Told {
    family: Family,
    owners: OfChains,
    differences: Vec<Difference>,
    remarks: Vec<String>,
}

impl Told {
    fn chain(&mut self, place: &Place<'_>, change: &Change) {
        let named = change.whole.as_deref().unwrap_or(place.rules);
        let (owner, about) = self.owners.of(place.table, place.name, named);
        if change.goes {
            if place.is_there {
                let all = (0..).zip(place.rules);
                let lines = all
                    .map(|(at, rule)| self.line(Sign::Extra, Some(at), rule))
                    .collect();
                self.differences
                    .push(place.difference(owner, &about, What::Extra, lines));
            }
        } else if let Some(want) = &change.whole {
            let lines = self.lines(want, place.rules);
            match place.is_there {
                true if lines.is_empty() => self.remarks.push(only_comments(place)),
                true => self
                    .differences
                    .push(place.difference(owner, &about, What::Changed, lines)),
                false => self
                    .differences
                    .push(place.difference(owner, &about, What::Missing, lines)),
            }
        } else {
            self.single(place, change, &owner, &about);
        }
    }

    /// A chain of which single rules come and go, each under the service port that it names.
    fn single(&mut self, place: &Place<'_>, change: &Change, owner: &Owner, about: &str) {
        let is_dispatch = is_dispatch(place.table, place.name);
        let lines = self.single_lines(is_dispatch, change, place.rules);
        let is_missing = change.is_made && !place.is_there;
        if lines.is_empty() && !is_missing && !(change.put_in.is_empty() && change.taken_out.is_empty()) {
            self.remarks.push(only_comments(place));
        }
        let mut by_owner: BTreeMap<Owner, Vec<Line>> = BTreeMap::new();
        for (rule, line) in lines {
            let of_rule = if is_dispatch {
                of_comment(&rule).unwrap_or_else(|| nobody_or_node(&rule))
            } else {
                owner.clone()
            };
            by_owner.entry(of_rule).or_default().push(line);
        }
        if is_missing {
            by_owner.entry(owner.clone()).or_default();
        }
        for (of, mut lines) in by_owner {
            // What is put in goes to the head of the chain, and what belongs before it follows: that is not out of place.
            if lines.iter().any(|line| line.sign == Sign::Missing) {
                lines.retain(|line| line.sign != Sign::Moved);
            }
            let what = if is_missing && of == *owner {
                What::Missing
            } else {
                What::Changed
            };
            self.differences.push(place.difference(of, about, what, lines));
        }
    }

    fn lines(&self, want: &[Rule], have: &[Rule]) -> Vec<Line> {
        let same = |one: &Rule, other: &Rule| bare(one) == bare(other);
        edits(want, have, same)
            .into_iter()
            .map(|edit| match edit {
                Edit::Missing(at, rule) => self.line(Sign::Missing, Some(at), rule),
                Edit::Extra(at, rule) => self.line(Sign::Extra, Some(at), rule),
            })
            .collect()
    }

    /// Single rules that come and go. What comes and goes stands in the wrong place, or has another comment; so has what comes
    /// beside its like into a chain whose order is free.
    fn single_lines(&self, is_dispatch: bool, change: &Change, rules: &[Rule]) -> Vec<(Rule, Line)> {
        let mut gone = change.taken_out.clone();
        let mut lines = Vec::new();
        for rule in &change.put_in {
            if let Some(at) = gone.iter().position(|old| old == rule) {
                gone.remove(at);
                lines.push((rule.clone(), self.line(Sign::Moved, number(rules, rule), rule)));
            } else if let Some(at) = gone.iter().position(|old| bare(old) == bare(rule)) {
                gone.remove(at);
            } else if is_dispatch || !rules.iter().any(|other| bare(other) == bare(rule)) {
                lines.push((rule.clone(), self.line(Sign::Missing, None, rule)));
            }
        }
        for rule in gone {
            let line = self.line(Sign::Extra, number(rules, &rule), &rule);
            lines.push((rule, line));
        }
        lines
    }

    fn line(&self, sign: Sign, at: Option<usize>, rule: &Rule) -> Line {
        let family = self.family;
        Line {
            sign,
            number: at.map(|at| at + 1),
            text: RuleText {
                rule: &bare(rule),
                family,
            }
            .to_string(),
            comment: rule.comment().map(str::to_owned),
        }
    }
}

/// A rule of a dispatch chain that names no service port: one of the node's, or a stranger's.
fn nobody_or_node(rule: &Rule) -> Owner {
    match &rule.target {
        Target::Jump(to) if to.as_str() == StaticChain::NodePorts.as_str() => Owner::Node,
        _ => Owner::Nobody,
    }
}

/// Comments decide nothing.
fn bare(rule: &Rule) -> Rule {
    let mut rule = rule.clone();
    rule.matches.retain(|one| !matches!(one, Match::Comment(_)));
    rule
}

/// Where a rule stands, from 0.
fn number(rules: &[Rule], rule: &Rule) -> Option<usize> {
    rules.iter().position(|one| one == rule)
}

fn only_comments(place: &Place<'_>) -> String {
    format!(
        "only comments differ in {} {}: packets go where they should, and kube-proxy will write it anew",
        place.table, place.name
    )
}
