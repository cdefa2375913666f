//! The tour for people, printed as it goes. What we say fits into [`WIDTH`] columns; what commands print is folded.

use super::step::{Command, Fact, Step};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use std::io::Write;

/// Columns.
const WIDTH: usize = 80;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Whether a person is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pauses {
    /// No.
    None,
    /// Behind each step.
    BehindEachStep,
}

/// What is printed onto.
pub struct Page<'a> {
    out: &'a mut dyn Write,
    pauses: Pauses,
}

impl<'a> Page<'a> {
    /// Prints onto `out`, with colours.
    pub fn new(out: &'a mut dyn Write, pauses: Pauses) -> Page<'a> {
        Page { out, pauses }
    }

    /// What is going to happen.
    ///
    /// # Errors
    /// When nobody takes the text.
    pub fn opening(&mut self) -> Result<()> {
        writeln!(self.out, "{BOLD}kube-proxy tour: what a Service is{BOLD:#}\n")?;
        self.paragraph(
            "On this machine, a small cluster is built out of network namespaces (nothing outside them is touched). This \
             very program runs on both nodes as kube-proxy, and DNS servers run in three pods.",
        )?;
        writeln!(self.out)?;
        for (name, address, what) in [
            (
                "node-a",
                "192.168.50.238",
                "pods 10.244.1.x: spring-test-a, sender-a, kube-dns",
            ),
            (
                "node-b",
                "192.168.50.239",
                "pods 10.244.2.x: spring-test-b, sender-b, kube-dns",
            ),
            ("client", "192.168.50.10", "a machine outside the cluster"),
        ] {
            writeln!(self.out, "  {BOLD}{name}{BOLD:#}  {address:<15} {what}")?;
        }
        writeln!(self.out)?;
        self.out.flush()?;
        Ok(())
    }

    /// A step, and the pause behind it.
    ///
    /// # Errors
    /// When nobody takes the text.
    pub fn step(&mut self, number: usize, step: &Step) -> Result<()> {
        writeln!(self.out, "{BOLD}{number}. {}{BOLD:#}\n", step.title)?;
        self.paragraph(&step.told)?;
        writeln!(self.out)?;
        for command in &step.commands {
            self.command(command)?;
        }
        writeln!(self.out)?;
        for fact in &step.facts {
            self.fact(fact)?;
        }
        writeln!(self.out)?;
        self.lead("Look at: ", &step.look)?;
        writeln!(self.out)?;
        self.out.flush()?;
        if self.pauses == Pauses::BehindEachStep {
            write!(self.out, "{DIM}[Enter] for the next step {DIM:#}")?;
            self.out.flush()?;
            std::io::stdin().read_line(&mut String::new())?;
            writeln!(self.out)?;
        }
        Ok(())
    }

    /// What has been seen, and what not.
    ///
    /// # Errors
    /// When nobody takes the text.
    pub fn closing(&mut self, steps: &[Step]) -> Result<()> {
        let wrong: Vec<_> = steps
            .iter()
            .zip(1..)
            .filter(|(step, _)| !step.as_told())
            .collect();
        if wrong.is_empty() {
            let facts: usize = steps.iter().map(|step| step.facts.len()).sum();
            return self.paragraph(&format!(
                "{} steps, and all {facts} facts were seen as told. The lab is gone again. Next: kube-proxy lab demo shows \
                 every rule that a packet meets; kube-proxy lab up builds a cluster that stays, without a proxy.",
                steps.len()
            ));
        }
        writeln!(self.out, "{BAD}Not everything was seen as told:{BAD:#}\n")?;
        for (step, number) in wrong {
            self.lead(&format!("  step {number}: "), &step.title)?;
        }
        Ok(())
    }

    fn command(&mut self, command: &Command) -> Result<()> {
        for (line, first) in folded(&command.typed, WIDTH - 4, 4)
            .iter()
            .zip(std::iter::once(true).chain(std::iter::repeat(false)))
        {
            let prompt = if first { "$ " } else { "  " };
            writeln!(self.out, "  {prompt}{BOLD}{line}{BOLD:#}")?;
        }
        for line in &command.printed {
            for line in folded(&line.replace('\t', "    "), WIDTH - 4, 6) {
                writeln!(self.out, "    {}", line.trim_end())?;
            }
        }
        Ok(())
    }

    fn fact(&mut self, fact: &Fact) -> Result<()> {
        let (style, mark) = if fact.as_told { (GOOD, '✓') } else { (BAD, '✗') };
        let Fact { what, told, seen, .. } = fact;
        let text = match (fact.as_told, told == seen) {
            (true, true) => format!("{what}: {seen}"),
            (true, false) => format!("{what}: {seen} (told: {told})"),
            (false, _) => format!("{what}: {seen}; told was: {told}"),
        };
        for (index, line) in folded(&text, WIDTH - 4, 2).iter().enumerate() {
            let mark = if index == 0 { mark } else { ' ' };
            writeln!(self.out, "  {style}{mark}{style:#} {line}")?;
        }
        Ok(())
    }

    fn paragraph(&mut self, text: &str) -> Result<()> {
        self.lead("", text)
    }

    /// A text behind a bold word.
    fn lead(&mut self, word: &str, text: &str) -> Result<()> {
        let whole = folded(&format!("{word}{text}"), WIDTH, 0).join("\n");
        let rest = whole.strip_prefix(word).unwrap_or(&whole);
        let word = if whole.starts_with(word) { word } else { "" };
        if word.is_empty() {
            return Ok(writeln!(self.out, "{rest}")?);
        }
        Ok(writeln!(self.out, "{BOLD}{word}{BOLD:#}{rest}")?)
    }
}

/// A line in lines of at most `width` columns, folded at blanks; `hang` blanks before all but the first. A word that is
/// longer stays whole. Blanks within a line are kept: columns of tables are made of them.
fn folded(text: &str, width: usize, hang: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for piece in text.split_inclusive(' ') {
        let fits = line.chars().count() + piece.trim_end().chars().count() <= width;
        if !fits && !line.trim().is_empty() {
            lines.push(line.trim_end().to_owned());
            line = " ".repeat(hang);
        }
        // What was folded at a wide gap does not begin with the rest of the gap.
        if !(lines.is_empty() || line.trim().is_empty()) || lines.is_empty() || !piece.trim().is_empty() {
            line.push_str(piece);
        }
    }
    lines.push(line.trim_end().to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn lines_are_folded_at_blanks_and_keep_their_columns() {
        assert_eq!(folded("a short one", 20, 4), ["a short one"]);
        assert_eq!(
            folded("KUBE-SVC  6    --  0.0.0.0/0    10.1.68.7", 30, 4),
            ["KUBE-SVC  6    --  0.0.0.0/0", "    10.1.68.7"]
        );
        assert_eq!(folded("", 10, 2), [""]);
        assert_eq!(folded("  indented", 30, 2), ["  indented"]);
        assert_eq!(
            folded("a-word-that-is-too-long b", 10, 2),
            ["a-word-that-is-too-long", "  b"]
        );
    }
}
