//! The report for programs. The field names are an interface: add, do not rename.

use crate::finding_json::{FindingJson, finding, write_pretty};
use explain::Severity;
use explain::doctor::{NotSeen, Report, Weight, screen};
use serde::Serialize;
use std::io::Write;

#[derive(Serialize)]
struct ReportJson<'a> {
    /// The first line of the text.
    headline: String,
    host: &'a str,
    /// Whether what was looked at is enough to call a host without findings healthy.
    examined: bool,
    /// What matters most first.
    findings: Vec<FindingJson<'a>>,
    remarks: Vec<FindingJson<'a>>,
    seen: &'a [String],
    not_seen: Vec<NotSeenJson<'a>>,
}

#[derive(Serialize)]
struct NotSeenJson<'a> {
    what: &'a str,
    why: &'a str,
    essential: bool,
}

/// Writes the report.
pub(super) fn write(out: &mut dyn Write, report: &Report) -> anyhow::Result<()> {
    let of = |is_remark: bool| {
        let findings = report.findings.iter();
        findings
            .filter(move |finding| (finding.severity == Severity::Remark) == is_remark)
            .map(finding)
            .collect()
    };
    let not_seen = |of: &'_ NotSeen| of.weight == Weight::Essential;
    let form = ReportJson {
        headline: screen::headline(report),
        host: &report.host,
        examined: !report.is_blind(),
        findings: of(false),
        remarks: of(true),
        seen: &report.looked_at,
        not_seen: report
            .not_seen
            .iter()
            .map(|of| NotSeenJson {
                what: &of.what,
                why: &of.why,
                essential: not_seen(of),
            })
            .collect(),
    };
    write_pretty(out, &form)?;
    writeln!(out)?;
    Ok(())
}
