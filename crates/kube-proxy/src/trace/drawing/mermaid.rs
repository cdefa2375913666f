//! A drawing as a Mermaid flow chart.

use super::stops::{EndKind, Line};
use super::{Card, CardKind, Drawing, plain};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes it.
pub(super) fn write(out: &mut dyn Write, drawing: &Drawing) -> io::Result<()> {
    writeln!(out, "flowchart TB")?;
    for line in &drawing.heading {
        // A comment ends with its line, and two percent signs in it are no more than that.
        writeln!(out, "  %% {}", plain(line).replace(['{', '}'], " "))?;
    }
    let mut boxed = vec![false; drawing.cards.len()];
    for (number, (hook, cards)) in drawing.hooks().iter().enumerate() {
        writeln!(out, "  subgraph h{number}[\"{hook}\"]")?;
        for card in cards {
            boxed[*card] = true;
            write_card(out, "    ", *card, &drawing.cards[*card])?;
        }
        writeln!(out, "  end")?;
    }
    for (number, card) in drawing.cards.iter().enumerate() {
        if !boxed[number] {
            write_card(out, "  ", number, card)?;
        }
    }
    for arrow in &drawing.arrows {
        let from = drawing.last_node(arrow.from);
        let to = drawing.first_node(arrow.to);
        if arrow.labels.is_empty() {
            writeln!(out, "  {from} --> {to}")?;
        } else {
            let labels: Vec<String> = arrow.labels.iter().map(|label| escaped(label)).collect();
            writeln!(out, "  {from} -->|\"{}\"| {to}", labels.join("<br/>"))?;
        }
    }
    writeln!(out, "  classDef through stroke:#1a7f37,stroke-width:2px")?;
    writeln!(out, "  classDef stopped stroke:#cf222e,stroke-width:2px")?;
    writeln!(
        out,
        "  classDef open stroke:#9a6700,stroke-width:2px,stroke-dasharray:4"
    )
}

/// A chain is a group with a node for each rule; everything else is a node.
fn write_card(out: &mut dyn Write, indent: &str, number: usize, card: &Card) -> io::Result<()> {
    let title = escaped(&card.title);
    match card.kind {
        CardKind::Chain => {
            writeln!(out, "{indent}subgraph c{number}[\"{title}\"]")?;
            for (index, line) in card.lines.iter().enumerate() {
                writeln!(out, "{indent}  c{number}r{index}[\"{}\"]", line_text(line))?;
            }
            for index in 1..card.lines.len() {
                writeln!(out, "{indent}  c{number}r{} --> c{number}r{index}", index - 1)?;
            }
            writeln!(out, "{indent}end")
        }
        CardKind::Packet => writeln!(out, "{indent}c{number}([\"{title}\"])"),
        CardKind::Routing => writeln!(out, "{indent}c{number}{{{{\"{title}\"}}}}"),
        CardKind::End(kind) => {
            let class = match kind {
                EndKind::Through => "through",
                EndKind::Stopped => "stopped",
                EndKind::Open => "open",
            };
            writeln!(out, "{indent}c{number}([\"{title}\"]):::{class}")
        }
    }
}

fn line_text(line: &Line) -> String {
    let number = line
        .number
        .map(|number| format!("{number}: "))
        .unwrap_or_default();
    let mut parts = vec![format!("{}{}", escaped(&number), escaped(&line.words))];
    parts.extend(
        line.comment
            .iter()
            .map(|text| format!("<i>{}</i>", escaped(text))),
    );
    parts.extend(line.notes.iter().map(|text| escaped(&format!("[{text}]"))));
    parts.extend(
        line.changes
            .iter()
            .map(|text| format!("<b>{}</b>", escaped(text))),
    );
    parts.join("<br/>")
}

/// Mermaid's labels are read as HTML and Markdown: everything but letters, digits and a few harmless signs is written by
/// its number.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        if c.is_alphanumeric() || " .,:/=-→".contains(c) {
            out.push(c);
        } else {
            _ = write!(out, "#{};", u32::from(c));
        }
    }
    out
}
