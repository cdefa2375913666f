//! A report as text: what matters most first.

use super::Report;
use crate::finding::{Finding, Severity};
use crate::page::{Page, wrapped};
use anstyle::{AnsiColor, Style};

/// A report, fitted into so many columns (40 at least).
pub fn text(report: &Report, width: usize) -> String {
    let mut page = Page::new(width);
    page.title(report);
    for finding in of(report, Severity::Fault) {
        page.told("FAULT", finding, AnsiColor::Red);
    }
    for finding in of(report, Severity::Warning) {
        page.told("WARNING", finding, AnsiColor::Yellow);
    }
    for finding in of(report, Severity::Remark) {
        page.remark(finding);
    }
    if !report.looked_at.is_empty() {
        page.field("seen", &report.looked_at.join(", "));
    }
    for missing in &report.not_seen {
        page.field("unseen", &format!("{}: {}", missing.what, missing.why));
    }
    page.out
}

fn of(report: &Report, severity: Severity) -> impl Iterator<Item = &Finding> {
    report
        .findings
        .iter()
        .filter(move |finding| finding.severity == severity)
}

/// The first line: how many, and on which host.
pub fn headline(report: &Report) -> String {
    let number = |severity| of(report, severity).count();
    let mut words = Vec::new();
    for (severity, thing) in [(Severity::Fault, "FAULT"), (Severity::Warning, "WARNING")] {
        let found = number(severity);
        if found > 0 {
            let plural = if found == 1 { "" } else { "S" };
            words.push(format!("{found} {thing}{plural}"));
        }
    }
    if words.is_empty() && report.is_blind() {
        return format!("NOT EXAMINED: {}, too little could be looked at", report.host);
    }
    if words.is_empty() && !report.not_seen.is_empty() {
        return format!(
            "HEALTHY AS FAR AS SEEN: nothing to report of {}; what could not be seen is below",
            report.host
        );
    }
    if words.is_empty() {
        return format!("HEALTHY: nothing to report of {}", report.host);
    }
    format!("{} on {}", words.join(" and "), report.host)
}

impl Page {
    fn title(&mut self, report: &Report) {
        let worst = report.findings.iter().map(|finding| finding.severity).max();
        let colour = match worst {
            Some(Severity::Fault) => AnsiColor::Red,
            Some(Severity::Warning) => AnsiColor::Yellow,
            _ if report.is_blind() => AnsiColor::Yellow,
            _ => AnsiColor::Green,
        };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        for line in wrapped(&headline(report), self.width) {
            self.styled(&line, style);
        }
        self.out.push('\n');
    }

    fn told(&mut self, word: &str, finding: &Finding, colour: AnsiColor) {
        let style = Style::new().bold().fg_color(Some(colour.into()));
        self.styled_field(word, &finding.what, style);
        self.reasons(finding);
        self.out.push('\n');
    }
}
