//! The verdict for programs. The field names are an interface: add, do not rename.

use super::Verdict;
use crate::diff::json::{ChangesJson, of_changes};
use difference::drift::{Difference, Drift, Owner};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct VerdictJson<'a> {
    /// Whether nothing differs.
    same: bool,
    /// What was compared with what.
    about: &'a str,
    families: Vec<FamilyJson<'a>>,
    /// Of families whose table is upstream's: what it does otherwise.
    behaviour: Vec<ChangesJson<'a>>,
}

#[derive(Serialize)]
struct FamilyJson<'a> {
    family: String,
    differences: Vec<DifferenceJson<'a>>,
    remarks: &'a [String],
}

#[derive(Serialize)]
pub(crate) struct DifferenceJson<'a> {
    owner: OwnerJson<'a>,
    table: &'a str,
    /// `table`, `chain` or `set`.
    kind: &'static str,
    name: &'a str,
    /// `missing`, `extra` or `changed`.
    what: &'static str,
    about: &'a str,
    lines: Vec<LineJson<'a>>,
}

#[derive(Serialize)]
struct OwnerJson<'a> {
    /// `node`: all Services; `port`: a service port; `nobody`.
    kind: &'static str,
    /// `namespace/name:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<&'a str>,
}

#[derive(Serialize)]
struct LineJson<'a> {
    /// `missing`, `extra` or `moved`.
    sign: &'static str,
    number: Option<usize>,
    text: &'a str,
    comment: Option<&'a str>,
}

/// Writes the verdict.
pub(super) fn write(out: &mut dyn Write, verdict: &Verdict) -> anyhow::Result<()> {
    let json = VerdictJson {
        same: verdict.is_same(),
        about: &verdict.about,
        families: verdict.drifts.iter().map(family).collect(),
        behaviour: verdict.behaviour.iter().map(of_changes).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &json).map_err(std::io::Error::from)?;
    writeln!(out)?;
    Ok(())
}

fn family(drift: &Drift) -> FamilyJson<'_> {
    FamilyJson {
        family: drift.family.to_string(),
        differences: drift.differences.iter().map(of_difference).collect(),
        remarks: &drift.remarks,
    }
}

pub(crate) fn of_difference(of: &Difference) -> DifferenceJson<'_> {
    let (kind, port) = match &of.owner {
        Owner::Node => ("node", None),
        Owner::Port(name) => ("port", Some(name.as_str())),
        Owner::Nobody => ("nobody", None),
    };
    let lines = of.lines.iter().map(|line| LineJson {
        sign: line.sign.as_str(),
        number: line.number,
        text: &line.text,
        comment: line.comment.as_deref(),
    });
    DifferenceJson {
        owner: OwnerJson { kind, port },
        table: &of.table,
        kind: of.kind.as_str(),
        name: &of.name,
        what: of.what.as_str(),
        about: &of.about,
        lines: lines.collect(),
    }
}
