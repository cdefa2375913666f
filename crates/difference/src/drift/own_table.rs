//! nftables mode: steps of the daemon, told as differences.

use super::owners::{OfElements, about_set};
use super::{Difference, Drift, Kind, Line, Owner, Sign, What};
use crate::lines::{Edit, edits};
use engine::rehearsal::{Rehearsed, Write};
use model::{Desired, Family};
use nftables::ast::{Chain, Element, ElementKey, Elements, Frame, Name};
use nftables::diff::Operation;
use nftables::listed::{self, RuleText};
use nftables::names::{self, TABLE, form_of};
use nftables::render;
use nftables::step::{FrameStep, Seen, SeenFrame, SeenSet};
use std::collections::BTreeMap;

/// Whose table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// There is none.
    Absent,
    /// Ours (ADR 50).
    Ours,
    /// Another program's of the same name: upstream kube-proxy's.
    Another,
}

impl Layout {
    /// Of what was found.
    pub fn of(found: Option<&Seen>) -> Layout {
        match found {
            None => Layout::Absent,
            Some(seen) if seen.frame.is_ours() || is_ours_cut_off(&seen.frame) => Layout::Ours,
            Some(_) => Layout::Another,
        }
    }
}

/// Whether chains of ours are there, to which somebody took the way. Where another's sets are as well, it is that one's
/// table, of which a takeover ended halfway.
fn is_ours_cut_off(frame: &SeenFrame) -> bool {
    let has_chains = frame.chains.contains_key(&names::Kind::Service.endpoints());
    has_chains && frame.sets.values().all(|set| *set == SeenSet::Ours)
}

/// What the daemon would repair of the table that was found. `listed` is the same table in `nft`'s words, if there is such a
/// list: it has the words of rules that are not ours.
pub fn own_table(
    want: &Desired,
    found: Option<&Seen>,
    listed: Option<&listed::Table>,
    steps: &[Rehearsed],
) -> Drift {
    let family = want.node.family;
    let mut told = Told {
        family,
        found,
        listed,
        differences: Vec::new(),
        remarks: Vec::new(),
        elements: BTreeMap::new(),
        owners: OfElements::new(want),
        comments: listed.map(comments).unwrap_or_default(),
    };
    for step in steps {
        let Write::OwnTable(step) = &step.write else {
            continue;
        };
        if step
            .frame
            .iter()
            .any(|part| matches!(part, FrameStep::Make(_) | FrameStep::MakeAnew(_)))
        {
            // All else is missing with it.
            let differences = vec![told.table(want.services.len())];
            return Drift::new(family, differences, Vec::new());
        }
        step.frame.iter().for_each(|part| told.frame(part));
        step.elements.iter().for_each(|operation| told.element(operation));
    }
    let elements = std::mem::take(&mut told.elements);
    for ((owner, set), lines) in elements {
        let difference = told.difference(Kind::Set, &set, What::Changed, about_set(&set));
        told.differences.push(Difference {
            owner,
            lines,
            ..difference
        });
    }
    Drift::new(family, told.differences, told.remarks)
}

struct Told<'a> {
    family: Family,
    found: Option<&'a Seen>,
    listed: Option<&'a listed::Table>,
    differences: Vec<Difference>,
    remarks: Vec<String>,
    elements: BTreeMap<(Owner, String), Vec<Line>>,
    owners: OfElements,
    /// The service ports that elements name, by key.
    comments: BTreeMap<String, String>,
}

/// What stands for the words of a rule that is not ours, where nobody listed it.
const STRANGE: &str = "(a rule of no kind that kube-proxy writes)";

impl Told<'_> {
    /// Of all Services, without lines.
    fn difference(&self, kind: Kind, name: &str, what: What, about: &str) -> Difference {
        Difference {
            owner: Owner::Node,
            table: title(self.family),
            kind,
            name: name.to_owned(),
            what,
            about: about.to_owned(),
            lines: Vec::new(),
        }
    }

    fn table(&self, services: usize) -> Difference {
        let (what, about) = match self.found {
            None if services == 0 => (What::Missing, "no Service needs it yet".to_owned()),
            None => (What::Missing, format!("none of {services} Services is served")),
            Some(_) => (
                What::Changed,
                "a set or a base chain of kube-proxy's name is something else; the table has to be made anew"
                    .to_owned(),
            ),
        };
        self.difference(Kind::Table, "", what, &about)
    }

    fn frame(&mut self, part: &FrameStep) {
        match part {
            // The first is told of as a whole, the others follow when another's table is taken over.
            FrameStep::Make(_)
            | FrameStep::MakeAnew(_)
            | FrameStep::Append(_)
            | FrameStep::DeleteChains(_)
            | FrameStep::DeleteSets(_) => {}
            FrameStep::Extend(frame) => {
                for set in &frame.sets {
                    let name = set.name.as_str();
                    let missing = self.difference(Kind::Set, name, What::Missing, about_set(name));
                    self.differences.push(missing);
                }
                for chain in &frame.chains {
                    let known = self.is_there(chain);
                    let rules = words(self.family, chain);
                    let lines = rules
                        .into_iter()
                        .map(|text| line(Sign::Missing, None, text))
                        .collect();
                    let what = if known { What::Changed } else { What::Missing };
                    self.chain(chain, what, lines);
                }
            }
            FrameStep::Rewrite(chains) => {
                for chain in chains {
                    let (want, have) = (words(self.family, chain), self.found_words(chain));
                    let edits = edits(&want, &have, |one, other| one == other).into_iter();
                    let lines = edits.map(|edit| match edit {
                        Edit::Missing(at, text) => line(Sign::Missing, Some(at + 1), text.clone()),
                        Edit::Extra(at, text) => line(Sign::Extra, Some(at + 1), text.clone()),
                    });
                    let lines: Vec<Line> = lines.collect();
                    if lines.is_empty() {
                        self.remarks.push(other_form(&chain.name));
                    } else {
                        self.chain(chain, What::Changed, lines);
                    }
                }
            }
        }
    }

    fn chain(&mut self, chain: &Chain, what: What, lines: Vec<Line>) {
        let name = chain.name.as_str();
        let difference = self.difference(Kind::Chain, name, what, about_chain(chain));
        self.differences.push(Difference { lines, ..difference });
    }

    fn is_there(&self, chain: &Chain) -> bool {
        self.found
            .is_some_and(|seen| seen.frame.chains.contains_key(&chain.name))
    }

    /// The rules that a chain has, in `nft`'s words without comments.
    fn found_words(&self, chain: &Chain) -> Vec<String> {
        if let Some(chain) = self.listed.and_then(|table| table.chain(chain.name.as_str())) {
            return chain.rules.iter().map(bare).collect();
        }
        let seen = self.found.and_then(|seen| seen.frame.chains.get(&chain.name));
        let rules = seen.map_or(&[][..], |seen| seen.rules.as_slice()).iter();
        rules
            .map(|rule| match rule {
                None => STRANGE.to_owned(),
                Some(rule) => {
                    let alone = Chain {
                        rules: vec![rule.clone()],
                        ..chain.clone()
                    };
                    words(self.family, &alone).concat()
                }
            })
            .collect()
    }

    fn element(&mut self, operation: &Operation) {
        let key = operation.key();
        match operation {
            Operation::Add(_, element) => self.element_line(Sign::Missing, key, element),
            Operation::Delete(_, element) => self.element_line(Sign::Extra, key, element),
            Operation::Replace(_, old, new) => {
                self.element_line(Sign::Missing, key, new);
                self.element_line(Sign::Extra, key, old);
            }
        }
    }

    fn element_line(&mut self, sign: Sign, key: &ElementKey, element: &Element) {
        let comment = self.comments.get(&render::element(key, &Element::default()));
        let owner = self.owners.of(key, comment.map(String::as_str));
        let lines = self.elements.entry((owner, key.set.to_string())).or_default();
        lines.push(line(sign, None, render::element(key, element)));
    }
}

/// The service ports that elements of a list name in their comments, by key: the frontends of every set say whose they are.
fn comments(table: &listed::Table) -> BTreeMap<String, String> {
    let sets = table.sets.iter().filter(|set| form_of(&set.name).is_some());
    let elements = sets.flat_map(|set| match &set.elements {
        listed::Contents::Listed(all) => all.as_slice(),
        listed::Contents::NotListed => &[],
    });
    elements
        .filter_map(|element| Some((element.key.to_string(), element.comment.as_ref()?.to_string())))
        .collect()
}

fn other_form(chain: &Name) -> String {
    format!(
        "chain {chain} says the same in another form than kube-proxy writes (nft -f wrote it?): packets go where they should, \
         and kube-proxy will write it anew"
    )
}

fn line(sign: Sign, number: Option<usize>, text: String) -> Line {
    Line {
        sign,
        number,
        text,
        comment: None,
    }
}

/// A chain's rules as `nft` lists them, without comments.
fn words(family: Family, chain: &Chain) -> Vec<String> {
    let alone = Frame {
        family,
        sets: Vec::new(),
        chains: vec![chain.clone()],
    };
    let listed = listed::of_frame(&alone, &Elements::new());
    let rules = listed.chains.iter().flat_map(|chain| &chain.rules);
    rules.map(bare).collect()
}

fn bare(rule: &listed::Rule) -> String {
    let bare = listed::Rule {
        comment: None,
        ..rule.clone()
    };
    RuleText(&bare).to_string()
}

fn title(family: Family) -> String {
    match family {
        Family::V4 => format!("ip {TABLE}"),
        Family::V6 => format!("ip6 {TABLE}"),
    }
}

fn about_chain(chain: &Chain) -> &'static str {
    match chain.name.as_str() {
        _ if chain.base.is_some() => "where packets enter the table",
        "services" => "addresses of all Services",
        "nodeport/all" => "node ports of all Services",
        "cluster-ips-check" | "service-endpoints-check" | "nodeport-endpoints-check" => {
            "addresses and ports that nobody serves"
        }
        "firewall-check" => "source ranges of all Services",
        "masquerading" => "masquerading",
        name if name.ends_with("/by-source") => "policy Local",
        _ => "the way to an endpoint",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nftables::pool::Pool;
    use nftables::step::SeenChain;

    #[test]
    fn a_table_whose_chains_nothing_leads_to_is_ours_unless_anothers_sets_are_in_it() {
        let mut frame = SeenFrame::default();
        let chain = names::Kind::Service.endpoints();
        frame.chains.insert(chain, SeenChain::default());
        let layout = |frame: &SeenFrame| {
            Layout::of(Some(&Seen {
                frame: frame.clone(),
                elements: Pool::default(),
            }))
        };
        assert_eq!(layout(&frame), Layout::Ours);
        frame.sets.insert(Name::new("service-ips"), SeenSet::Strange);
        assert_eq!(layout(&frame), Layout::Another);
    }
}
