//! A way as a row of stops: rules met, routing decisions, the end; each with what its arrow stands on.

use crate::trace::describe;
use path::{Answer, End, Host, Step, Way};
use traced::{Did, Event, Hook, Name, Place, Policy};

/// How many conditions an arrow names.
const CLAIMS: usize = 3;

/// A stop of a way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stop {
    /// On the arrow that leads to it: conditions and chances.
    pub(super) labels: Vec<String>,
    pub(super) what: What,
}

/// What a stop is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// A rule, or the policy at a chain's end.
    Rule {
        hook: Hook,
        table: Name,
        chain: Name,
        line: Line,
    },
    /// A routing decision.
    Routing(String),
    /// What became of the packet.
    End(EndKind, String),
}

/// Whether an end is good for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndKind {
    Through,
    Stopped,
    Open,
}

/// A rule as it is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Its number in its chain; none for a policy.
    pub(super) number: Option<u32>,
    /// Its words, without its comment.
    pub(super) words: String,
    /// Its comment.
    pub(super) comment: Option<String>,
    /// What it found in sets, and whether it matches at all.
    pub(super) notes: Vec<String>,
    /// What it did to the packet.
    pub(super) changes: Vec<String>,
}

impl What {
    /// Whether both are rules of one chain, met at one hook.
    pub(super) fn is_of_one_chain(&self, other: &What) -> bool {
        let place = |what: &What| match what {
            What::Rule {
                hook, table, chain, ..
            } => Some((*hook, table.clone(), chain.clone())),
            _ => None,
        };
        place(self).is_some_and(|own| place(other) == Some(own))
    }
}

/// The stops of a way.
pub(super) fn of(host: &Host, answer: &Answer, way: &Way) -> Vec<Stop> {
    let steps = answer.steps(way);
    let mut row = Row {
        host,
        answer,
        stops: Vec::new(),
        labels: Vec::new(),
        claims: 0,
        notes: Vec::new(),
    };
    // A die that is thrown until it shows an endpoint: the way stands for all throws, and so does its last choice.
    let others = way.state.chance / answer.chance_of_steps(way);
    let last_choice = steps.iter().rposition(|step| matches!(step, Step::Chance { .. }));
    let mut last: Option<&Place> = None;
    for (index, step) in steps.iter().enumerate() {
        match step {
            Step::Chance { probability, .. } => {
                let of_all = if Some(index) == last_choice { others } else { 1.0 };
                let chance = describe::chance((probability * of_all).min(1.0));
                let short = chance.split(' ').next().unwrap_or_default();
                row.labels.push(format!("chance {short}"));
            }
            Step::Claim(claim) => row.claim(&describe::claim(claim)),
            Step::Routed(to) => row.stop(What::Routing(describe::routed(to))),
            Step::Rules(Event::Met { place, did }) => {
                row.met(place, did, last == Some(place));
                last = Some(place);
                continue;
            }
            Step::Rules(event) => row.event(event),
        }
        last = None;
    }
    row.stop(What::End(kind(&way.end), describe::end(&way.end)));
    row.stops
}

fn kind(end: &End) -> EndKind {
    match end {
        End::Local(path::Listener::Absent) | End::Rejected(_) | End::Dropped | End::NoRoute => {
            EndKind::Stopped
        }
        End::Local(_) | End::Left { .. } => EndKind::Through,
        End::Undecided(_) => EndKind::Open,
    }
}

/// The stops so far, and what is to be said at the next one.
struct Row<'a> {
    host: &'a Host,
    answer: &'a Answer,
    stops: Vec<Stop>,
    labels: Vec<String>,
    claims: usize,
    notes: Vec<String>,
}

impl Row<'_> {
    fn stop(&mut self, what: What) {
        let mut labels = std::mem::take(&mut self.labels);
        if let Some(more) = self.claims.checked_sub(CLAIMS).filter(|more| *more > 0) {
            labels.push(format!("and {more} more conditions"));
        }
        self.claims = 0;
        self.stops.push(Stop { labels, what });
    }

    fn claim(&mut self, words: &str) {
        self.claims += 1;
        if self.claims <= CLAIMS {
            self.labels.push(format!("if {words}"));
        }
    }

    /// A rule of nftables may do several things, each of which is an event.
    fn met(&mut self, place: &Place, did: &Did, is_same: bool) {
        let change = describe::change(did);
        if let (true, Some(Stop { what, .. })) = (is_same, self.stops.last_mut())
            && let What::Rule { line, .. } = what
        {
            line.changes.extend(change);
            return;
        }
        self.rule(place, None, change);
        if let (Did::Jumped(to) | Did::WentTo(to), Some(Stop { what, .. })) = (did, self.stops.last_mut())
            && let What::Rule { line, .. } = what
            && line.words.contains(" vmap ")
        {
            // One rule sends packets to many chains: what parts them is not in its words.
            line.changes.push(format!("{} {to}", describe::verb(did)));
        }
    }

    fn rule(&mut self, place: &Place, note: Option<String>, change: Option<String>) {
        let family = self.answer.packet.family();
        let (words, comment) = describe::rule_parts(self.host, family, place);
        let mut notes = std::mem::take(&mut self.notes);
        notes.extend(note);
        let line = Line {
            number: Some(place.rule),
            words: words.trim_start().to_owned(),
            comment,
            notes,
            changes: change.into_iter().collect(),
        };
        self.stop(What::Rule {
            hook: place.hook,
            table: place.table.clone(),
            chain: place.chain.clone(),
            line,
        });
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Found { set, element, .. } => self.notes.push(format!("@{set} has {element}")),
            Event::MayHaveMet { place, .. } => self.rule(place, Some("perhaps".to_owned()), None),
            Event::Passed { place, failed } => self.rule(place, Some(format!("no: {failed}")), None),
            Event::Policy {
                hook,
                table,
                chain,
                policy,
            } => {
                let family = self.answer.packet.family();
                if *policy == Policy::Accept && describe::is_empty(self.host, family, table, chain) {
                    return;
                }
                let line = Line {
                    words: format!("policy {}", policy.as_str()),
                    ..Line::default()
                };
                self.stop(What::Rule {
                    hook: *hook,
                    table: table.clone(),
                    chain: chain.clone(),
                    line,
                });
            }
            // Steps hold these as rules, claims and chances.
            Event::Met { .. } | Event::Assumed { .. } | Event::Chance { .. } => {}
        }
    }
}
