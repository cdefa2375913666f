//! A step of the tour: what is done, what the reader was told would be seen, and what was seen.

use lab::ProbeOutcome;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

/// One thing to look at.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// In a few words.
    pub title: String,
    /// What is done, and why it comes out as it does.
    pub told: String,
    /// What was run, as a reader can type it, with what it printed.
    pub commands: Vec<Command>,
    /// What was to be seen, and was or was not.
    pub facts: Vec<Fact>,
    /// What to look at.
    pub look: String,
}

/// Something that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Command {
    /// As a reader can type it.
    pub typed: String,
    /// What it printed; of many requests, how often each answer came.
    pub printed: Vec<String>,
}

/// One fact on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Fact {
    /// What it is about.
    pub what: String,
    /// What was to be seen, in words.
    pub told: String,
    /// What was seen.
    pub seen: String,
    /// Whether that is what was told.
    pub as_told: bool,
}

impl Step {
    /// A step in which nothing has been done yet.
    pub fn new(title: &str, told: &str) -> Step {
        Step {
            title: title.to_owned(),
            told: told.to_owned(),
            commands: Vec::new(),
            facts: Vec::new(),
            look: String::new(),
        }
    }

    /// Whether all was seen that was told.
    pub fn as_told(&self) -> bool {
        self.facts.iter().all(|fact| fact.as_told)
    }

    /// Notes a command and what it printed.
    pub fn ran(&mut self, typed: &str, printed: Vec<String>) {
        let typed = typed.to_owned();
        self.commands.push(Command { typed, printed });
    }

    /// Notes a fact whose words differ on both sides.
    pub fn fact(&mut self, what: &str, told: impl Display, seen: impl Display, as_told: bool) {
        self.facts.push(Fact {
            what: what.to_owned(),
            told: told.to_string(),
            seen: seen.to_string(),
            as_told,
        });
    }

    /// A fact that is told in the very words in which it is to be seen.
    pub fn same(&mut self, what: &str, told: impl Display, seen: impl Display) {
        let (told, seen) = (told.to_string(), seen.to_string());
        let as_told = told == seen;
        self.fact(what, told, seen, as_told);
    }

    /// Says what to look at.
    pub fn look_at(&mut self, text: &str) {
        text.clone_into(&mut self.look);
    }
}

/// Lines of a text.
pub fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// What came of requests.
pub struct Heard(pub Vec<ProbeOutcome>);

impl Heard {
    /// Each answer in the lab's words without the client's port, and how often it came.
    pub fn lines(&self) -> Vec<String> {
        let mut counts = BTreeMap::new();
        for outcome in &self.0 {
            let text = match outcome {
                ProbeOutcome::Answered { name, .. } => {
                    let client = outcome.seen_client().map(|ip| ip.to_string()).unwrap_or_default();
                    format!("answered by {name}, which saw {client}")
                }
                other => lab::cli::outcome_text(other),
            };
            *counts.entry(text).or_insert(0_usize) += 1;
        }
        counts
            .into_iter()
            .map(|(text, count)| format!("{count} x {text}"))
            .collect()
    }

    /// How often each pod answered; whoever says nothing, or no, is `nobody`.
    pub fn by(&self) -> BTreeMap<&str, usize> {
        let mut counts = BTreeMap::new();
        for outcome in &self.0 {
            *counts
                .entry(outcome.answered_by().unwrap_or("nobody"))
                .or_insert(0) += 1;
        }
        counts
    }

    /// Who answered, in words.
    pub fn who(&self) -> String {
        joined(self.by().keys())
    }

    /// Which client the pods saw that are called so.
    pub fn clients_at(&self, pods: impl Fn(&str) -> bool) -> String {
        let of = |outcome: &&ProbeOutcome| outcome.answered_by().is_some_and(&pods);
        let clients: BTreeSet<String> = self
            .0
            .iter()
            .filter(of)
            .filter_map(|outcome| outcome.seen_client().map(|ip| ip.to_string()))
            .collect();
        joined(clients)
    }
}

/// Words with commas; `nothing` if there are none.
pub fn joined(words: impl IntoIterator<Item = impl Display>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    if words.is_empty() {
        return "nothing".to_owned();
    }
    words.join(", ")
}
