//! Changes for programs. The field names are an interface: add, do not rename.

use super::Outcome;
use crate::verify::json::{DifferenceJson, of_difference};
use difference::traffic::{Changes, Detail, Fate, Sender};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct OutcomeJson<'a> {
    /// Whether nothing becomes otherwise for traffic.
    same: bool,
    about: &'a str,
    families: Vec<ChangesJson<'a>>,
    /// With `--rules`: `missing` is what was there, `extra` what is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<DifferenceJson<'a>>>,
}

/// What becomes otherwise in one family.
#[derive(Serialize)]
pub struct ChangesJson<'a> {
    family: String,
    changes: Vec<ChangeJson<'a>>,
    remarks: &'a [String],
}

#[derive(Serialize)]
struct ChangeJson<'a> {
    /// `namespace/name:port`, or `all Services`.
    owner: &'a str,
    /// For people.
    sentences: &'a [String],
    details: Vec<DetailJson<'a>>,
}

#[derive(Serialize)]
struct DetailJson<'a> {
    frontend: &'a str,
    /// `pod`, `node` or `outside`.
    sender: &'static str,
    before: Option<FateJson<'a>>,
    after: Option<FateJson<'a>>,
}

#[derive(Serialize)]
struct FateJson<'a> {
    /// `endpoints`, `refused`, `dropped`, `untouched` or `open`.
    fate: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoints: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    masqueraded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    words: Option<&'a str>,
}

/// Writes the outcome.
pub(super) fn write(out: &mut dyn Write, outcome: &Outcome) -> anyhow::Result<()> {
    let json = OutcomeJson {
        same: outcome.is_same(),
        about: &outcome.about,
        families: outcome.changes.iter().map(of_changes).collect(),
        rules: outcome
            .rules
            .as_ref()
            .map(|rules| rules.iter().map(of_difference).collect()),
    };
    serde_json::to_writer_pretty(&mut *out, &json).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

/// One family's changes.
pub fn of_changes(of: &Changes) -> ChangesJson<'_> {
    let changes = of.changes.iter().map(|change| ChangeJson {
        owner: &change.owner,
        sentences: &change.sentences,
        details: change.details.iter().map(detail).collect(),
    });
    ChangesJson {
        family: of.family.to_string(),
        changes: changes.collect(),
        remarks: &of.remarks,
    }
}

fn detail(of: &Detail) -> DetailJson<'_> {
    DetailJson {
        frontend: &of.frontend,
        sender: match of.sender {
            Sender::Pod => "pod",
            Sender::Node => "node",
            Sender::Outside => "outside",
        },
        before: of.before.as_ref().map(fate),
        after: of.after.as_ref().map(fate),
    }
}

fn fate(of: &Fate) -> FateJson<'_> {
    let alone = |fate| FateJson {
        fate,
        endpoints: None,
        masqueraded: None,
        words: None,
    };
    match of {
        Fate::Endpoints { to, masqueraded } => FateJson {
            endpoints: Some(to.iter().map(ToString::to_string).collect()),
            masqueraded: Some(*masqueraded),
            ..alone("endpoints")
        },
        Fate::Refused => alone("refused"),
        Fate::Dropped => alone("dropped"),
        Fate::Untouched => alone("untouched"),
        Fate::Open(words) => FateJson {
            words: Some(words),
            ..alone("open")
        },
    }
}
