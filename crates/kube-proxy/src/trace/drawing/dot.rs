//! A drawing as a graph for Graphviz.

use super::stops::{EndKind, Line};
use super::{Card, CardKind, Drawing, plain};
use std::io::{self, Write};

/// Writes it.
pub(super) fn write(out: &mut dyn Write, drawing: &Drawing) -> io::Result<()> {
    let heading: String = drawing.heading.iter().map(|line| left(line)).collect();
    writeln!(out, "digraph trace {{")?;
    writeln!(
        out,
        "  graph [label=\"{heading}\", labelloc=t, labeljust=l, fontname=\"sans-serif\"];"
    )?;
    writeln!(
        out,
        "  node [shape=box, style=rounded, fontname=\"monospace\", fontsize=10];"
    )?;
    writeln!(out, "  edge [fontname=\"sans-serif\", fontsize=10];")?;
    let mut boxed = vec![false; drawing.cards.len()];
    for (number, (hook, cards)) in drawing.hooks().iter().enumerate() {
        writeln!(out, "  subgraph cluster_h{number} {{")?;
        writeln!(
            out,
            "    label=\"{hook}\"; style=\"rounded,filled\"; color=\"#8c959f\"; fillcolor=\"#f6f8fa\";"
        )?;
        for card in cards {
            boxed[*card] = true;
            write_card(out, "    ", *card, &drawing.cards[*card])?;
        }
        writeln!(out, "  }}")?;
    }
    for (number, card) in drawing.cards.iter().enumerate() {
        if !boxed[number] {
            write_card(out, "  ", number, card)?;
        }
    }
    for arrow in &drawing.arrows {
        let from = drawing.last_node(arrow.from);
        let to = drawing.first_node(arrow.to);
        let labels: String = arrow.labels.iter().map(|label| left(label)).collect();
        writeln!(out, "  {from} -> {to} [label=\"{labels}\"];")?;
    }
    writeln!(out, "}}")
}

/// A chain is a cluster with a node for each rule; everything else is a node.
fn write_card(out: &mut dyn Write, indent: &str, number: usize, card: &Card) -> io::Result<()> {
    let title = escaped(&card.title);
    let color = match card.kind {
        CardKind::Chain => {
            writeln!(out, "{indent}subgraph cluster_c{number} {{")?;
            writeln!(
                out,
                "{indent}  label=\"{title}\"; style=filled; color=\"#8c959f\"; fillcolor=white;"
            )?;
            for (index, line) in card.lines.iter().enumerate() {
                writeln!(
                    out,
                    "{indent}  c{number}r{index} [label=\"{}\"];",
                    line_text(line)
                )?;
            }
            for index in 1..card.lines.len() {
                writeln!(out, "{indent}  c{number}r{} -> c{number}r{index};", index - 1)?;
            }
            return writeln!(out, "{indent}}}");
        }
        CardKind::Packet | CardKind::Routing => "#57606a",
        CardKind::End(EndKind::Through) => "#1a7f37",
        CardKind::End(EndKind::Stopped) => "#cf222e",
        CardKind::End(EndKind::Open) => "#9a6700",
    };
    writeln!(
        out,
        "{indent}c{number} [label=\"{title}\", color=\"{color}\", penwidth=2];"
    )
}

fn line_text(line: &Line) -> String {
    let number = line
        .number
        .map(|number| format!("{number}: "))
        .unwrap_or_default();
    let mut text = left(&format!("{number}{}", line.words));
    text.extend(line.comment.iter().map(|comment| left(&format!("# {comment}"))));
    text.extend(line.notes.iter().map(|note| left(&format!("[{note}]"))));
    text.extend(line.changes.iter().map(|change| left(&format!("⇒ {change}"))));
    text
}

/// A line that begins at the left.
fn left(text: &str) -> String {
    format!("{}\\l", escaped(text))
}

/// In a quoted label backslashes introduce names of the node, and entities of HTML are read.
fn escaped(text: &str) -> String {
    plain(text)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('&', "&amp;")
}
