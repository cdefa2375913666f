//! The demonstration for people, printed as it goes. At most [`WIDTH`] columns.

use super::Audience;
use super::report::{Asked, EndpointsLine, Report, Row, ServiceLine, Side, Step};
use super::stage::Stage;
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use std::io::Write;

/// Columns that everything fits into, but for the texts of rules that differ.
const WIDTH: usize = 110;

/// Columns of a rule's place: `nat:KUBE-SVC-HKCWQRYAXFH7ZPX3 1`.
const PLACE: usize = 34;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// What is printed onto.
pub struct Page<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Page<'a> {
    /// Prints onto `out`, with colours.
    pub fn new(out: &'a mut dyn Write) -> Page<'a> {
        Page { out }
    }

    /// What is going to happen, and what is shown of each request.
    ///
    /// # Errors
    /// When nobody takes the text.
    pub fn opening(&mut self, two_sides: &str) -> Result<()> {
        self.heading("kube-proxy demo: real packets through a Service")?;
        self.paragraph(
            "On this machine, a small cluster is built out of network namespaces (nothing outside them is touched), \
             and this very program runs on its first node as kube-proxy:",
        )?;
        writeln!(self.out)?;
        for (name, address, what) in [
            (
                "node-a",
                "192.168.50.238",
                "pods 10.244.1.x; kube-proxy runs here",
            ),
            ("node-b", "192.168.50.239", "pods 10.244.2.x"),
            ("client", "192.168.50.10", "a machine outside the cluster"),
        ] {
            writeln!(self.out, "    {BOLD}{name}{BOLD:#}  {address:<14}  {what}")?;
        }
        writeln!(self.out)?;
        self.paragraph(&format!(
            "Then three requests are sent to the Service spring-test. For each you see {two_sides}"
        ))?;
        writeln!(self.out)?;
        self.out.flush()?;
        Ok(())
    }

    /// What has been seen.
    ///
    /// # Errors
    /// When nobody takes the text.
    pub fn closing(&mut self, report: &Report, tampered: bool) -> Result<()> {
        self.heading("Summary")?;
        for (index, asked) in report.requests.iter().enumerate() {
            let same = asked.steps.iter().filter(|row| row.agrees()).count();
            let (all, (style, mark)) = (asked.steps.len(), mark(asked.agrees()));
            writeln!(
                self.out,
                "  {style}{mark}{style:#} request {}: {same} of {all} steps as predicted, {}",
                index + 1,
                asked.outcome
            )?;
        }
        writeln!(self.out)?;
        if report.agrees {
            self.paragraph("Every packet did exactly what was predicted. The lab is gone again.")?;
            writeln!(self.out)?;
            self.paragraph("Next, break a rule by hand and watch the sides differ:")?;
            writeln!(
                self.out,
                "    kube-proxy lab demo --tamper 'iptables -t nat -F KUBE-MARK-MASQ'"
            )?;
            self.paragraph(
                "or look around yourself while the same cluster serves: kube-proxy lab tour --pause",
            )?;
            return Ok(());
        }
        let why = match (
            tampered,
            report
                .requests
                .iter()
                .all(|asked| asked.trace_of_live_rules_agrees),
        ) {
            (true, true) => {
                "The kernel did not do what the cluster's objects ask for, since a rule was broken by hand. `trace` \
                 over the rules as they are now in the kernel says the same as the kernel does."
            }
            (false, true) => {
                "The kernel did not do what was predicted, since it holds other rules than those that the objects \
                 ask for; `trace` over the kernel's own rules says what it did."
            }
            (_, false) => {
                "The kernel did not do what was predicted, not even by `trace` over the kernel's own rules. Please \
                 report this with the output of `kube-proxy lab demo --output json`."
            }
        };
        self.paragraph(why)
    }

    pub(super) fn heading(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "{BOLD}{text}{BOLD:#}\n")?)
    }

    /// Somebody broke something.
    pub(super) fn broken_by_hand(&mut self, command: &str) -> Result<()> {
        self.paragraph(
            "kube-proxy is paused, so that it repairs nothing, and somebody does this on node-a:",
        )?;
        Ok(writeln!(self.out, "    {BAD}{command}{BAD:#}\n")?)
    }

    /// A line of its own.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Filled lines.
    pub(super) fn paragraph(&mut self, text: &str) -> Result<()> {
        for line in filled(text, WIDTH) {
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn table<const N: usize>(&mut self, header: [&str; N], rows: &[[&str; N]]) -> Result<()> {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| row[column]);
            cells
                .chain([header[column]])
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        });
        let line = |cells: &[&str; N]| {
            let cells = cells.iter().zip(widths);
            let padded = cells.map(|(cell, width)| format!("{cell:<width$}   "));
            padded.collect::<String>().trim_end().to_owned()
        };
        writeln!(self.out, "  {DIM}{}{DIM:#}", line(&header))?;
        for row in rows {
            writeln!(self.out, "  {}", line(row))?;
        }
        Ok(writeln!(self.out)?)
    }

    pub(super) fn listings(&mut self, services: &[ServiceLine], endpoints: &[EndpointsLine]) -> Result<()> {
        writeln!(self.out, "{BOLD}kubectl get services -A{BOLD:#}")?;
        let rows: Vec<_> = services
            .iter()
            .map(|one| {
                let cells = [
                    &one.namespace,
                    &one.name,
                    &one.kind,
                    &one.cluster_ip,
                    &one.external_ip,
                    &one.ports,
                ];
                cells.map(String::as_str)
            })
            .collect();
        self.table(
            [
                "NAMESPACE",
                "NAME",
                "TYPE",
                "CLUSTER-IP",
                "EXTERNAL-IP",
                "PORT(S)",
            ],
            &rows,
        )?;
        writeln!(self.out, "{BOLD}kubectl get endpoints -A{BOLD:#}")?;
        let rows: Vec<_> = endpoints
            .iter()
            .map(|one| [&one.namespace, &one.name, &one.endpoints].map(String::as_str))
            .collect();
        self.table(["NAMESPACE", "NAME", "ENDPOINTS"], &rows)
    }

    fn row(&mut self, row: &Row) -> Result<()> {
        let place = |step: &Option<Step>| step.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string);
        let (style, mark) = mark(row.agrees());
        let (predicted, observed) = (place(&row.predicted), place(&row.observed));
        let step = row.predicted.as_ref().or(row.observed.as_ref());
        let what = step.map_or("", |step| &step.what);
        writeln!(
            self.out,
            "  {style}{mark}{style:#} {predicted:<PLACE$}{observed:<PLACE$}{what}"
        )?;
        if row.agrees() {
            return Ok(());
        }
        // What was never met needs no more words than the place it would have been met at.
        let Some(observed) = &row.observed else {
            return Ok(());
        };
        if let Some(predicted) = &row.predicted {
            if predicted.text == observed.text {
                let note = "the same rule, but not at the same place of its chain";
                return Ok(writeln!(self.out, "    {BAD}{note}{BAD:#}")?);
            }
            self.rule("predicted", predicted)?;
        }
        self.rule("in the kernel", observed)
    }

    fn rule(&mut self, side: &str, step: &Step) -> Result<()> {
        const INDENT: usize = 19;
        let text = format!("-A {} {}", step.chain, step.text);
        for (index, line) in filled(&text, WIDTH - INDENT).into_iter().enumerate() {
            let side = if index == 0 { side } else { "" };
            writeln!(self.out, "    {BAD}{side:<15}{BAD:#}{line}")?;
        }
        Ok(())
    }

    /// A line below the steps: one fact on both sides.
    fn fact(&mut self, name: &str, predicted: Option<&String>, observed: Option<&String>) -> Result<()> {
        let words = |side: Option<&String>| side.map_or_else(|| "no connection".to_owned(), Clone::clone);
        self.two_sides(name, &words(predicted), &words(observed), predicted == observed)
    }

    /// The heads of two sides.
    pub(super) fn sides(&mut self, predicted: &str, what: &str) -> Result<()> {
        Ok(writeln!(
            self.out,
            "    {DIM}{predicted:<PLACE$}{:<PLACE$}{what}{DIM:#}",
            "observed in the kernel"
        )?)
    }

    /// A fact as both sides have it, and whether they are the same.
    pub(super) fn two_sides(
        &mut self,
        name: &str,
        predicted: &str,
        observed: &str,
        agrees: bool,
    ) -> Result<()> {
        let (style, mark) = mark(agrees);
        Ok(writeln!(
            self.out,
            "  {style}{mark}{style:#} {predicted:<PLACE$}{observed:<PLACE$}{name}"
        )?)
    }

    fn facts(&mut self, asked: &Asked) -> Result<()> {
        let Asked {
            predicted, observed, ..
        } = asked;
        let nobody = |side: &Side| side.answered_by.clone().unwrap_or_else(|| "nobody".to_owned());
        let source = format!("source: {}", asked.predicted_source);
        writeln!(self.out)?;
        self.fact(&source, predicted.source.as_ref(), observed.source.as_ref())?;
        let destination = format!("destination: was {}", asked.to);
        self.fact(
            &destination,
            predicted.destination.as_ref(),
            observed.destination.as_ref(),
        )?;
        self.fact("who answers", Some(&nobody(predicted)), Some(&nobody(observed)))?;
        writeln!(self.out)?;
        let after = asked
            .translation
            .as_deref()
            .unwrap_or("the kernel has no such connection");
        self.labelled("packet", &format!("{} → {}", asked.from, asked.to))?;
        self.labelled("behind NAT", after)?;
        self.labelled("outcome", &asked.outcome)?;
        self.labelled("chance", &chance(asked))?;
        self.labelled("why", &asked.why)?;
        Ok(writeln!(self.out)?)
    }

    pub(super) fn labelled(&mut self, label: &str, text: &str) -> Result<()> {
        const INDENT: usize = 17;
        for (index, line) in filled(text, WIDTH - INDENT).into_iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            writeln!(self.out, "    {label:<13}{line}")?;
        }
        Ok(())
    }
}

impl Audience for Page<'_> {
    fn set(&mut self, stage: &Stage, report: &Report, seconds: f64) -> Result<()> {
        let tables = stage.intent.tables.values();
        let rules: usize = tables
            .flat_map(|table| table.chains.values())
            .map(|chain| chain.rules.len())
            .sum();
        self.paragraph(&format!(
            "The cluster stands, and kube-proxy has written its {rules} rules, {seconds:.1} s after the start."
        ))?;
        for line in &report.differences {
            writeln!(self.out, "  {BAD}not as rendered:{BAD:#} {line}")?;
        }
        writeln!(self.out)?;
        self.listings(&report.services, &report.endpoints)
    }

    fn tampered(&mut self, command: &str) -> Result<()> {
        self.broken_by_hand(command)
    }

    fn asked(&mut self, number: usize, asked: &Asked) -> Result<()> {
        self.heading(&format!("Request {number}: {}", asked.title))?;
        self.sides("predicted by trace", "what the rule does")?;
        for row in &asked.steps {
            self.row(row)?;
        }
        self.facts(asked)?;
        self.out.flush()?;
        Ok(())
    }
}

fn mark(agrees: bool) -> (Style, char) {
    if agrees { (GOOD, '✓') } else { (BAD, '✗') }
}

fn chance(asked: &Asked) -> String {
    match asked.chances.as_slice() {
        [_] => "trace sees one way".to_owned(),
        all => format!(
            "trace sees {} ways; the one that the kernel chose has a chance of {:.2}",
            all.len(),
            asked.chance
        ),
    }
}

/// Words in lines of at most `width` columns.
fn filled(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("invariant: never empty");
        let length = line.chars().count();
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if length > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}
