//! A drawing as a picture that needs nothing else: no script, no font and no style from elsewhere.

use super::layout::{
    self, BETWEEN_RULES, Course, Frame, GAP, GUTTER, LINE, Layout, MARGIN, PAD, Placed, TITLE, TextKind,
};
use super::stops::EndKind;
use super::{Card, CardKind, Drawing, plain};
use std::io::{self, Write};

/// Colours by day, and by night where the reader's browser asks for them.
const STYLE: &str = "
text { font: 12px 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, monospace; fill: #1f2328; white-space: pre }
.page { fill: #ffffff }
.heading { font-weight: bold }
.frame { fill: #f6f8fa; stroke: #d0d7de }
.hook { fill: #57606a; font-weight: bold; letter-spacing: 1px }
.card { fill: #ffffff; stroke: #8c959f }
.chain { font-weight: bold }
.rule { stroke: #d8dee4 }
.number { fill: #6e7781 }
.comment, .note { fill: #57606a; font-style: italic }
.change { fill: #0550ae; font-weight: bold }
.packet { fill: #ddf4ff; stroke: #0969da }
.routing { fill: #f6f8fa; stroke: #8c959f; stroke-dasharray: 4 3 }
.through { fill: #dafbe1; stroke: #1a7f37; stroke-width: 2 }
.stopped { fill: #ffebe9; stroke: #cf222e; stroke-width: 2 }
.open { fill: #fff8c5; stroke: #9a6700; stroke-width: 2 }
.arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
.point { fill: #57606a }
.label { fill: #8250df }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.page { fill: #0d1117 }
.frame { fill: #161b22; stroke: #30363d }
.hook { fill: #9198a1 }
.card { fill: #0d1117; stroke: #6e7681 }
.rule { stroke: #30363d }
.number { fill: #8b949e }
.comment, .note { fill: #9198a1 }
.change { fill: #79c0ff }
.packet { fill: #0c2d6b; stroke: #58a6ff }
.routing { fill: #161b22; stroke: #6e7681 }
.through { fill: #04260f; stroke: #3fb950 }
.stopped { fill: #3c0d10; stroke: #f85149 }
.open { fill: #341a00; stroke: #d29922 }
.arrow { stroke: #9198a1 }
.point { fill: #9198a1 }
.label { fill: #d2a8ff }
}
";

/// Writes it.
pub(super) fn write(out: &mut dyn Write, drawing: &Drawing) -> io::Result<()> {
    let layout = layout::of(drawing);
    let Layout { width, height, .. } = layout;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" height=\"{height:.0}\" role=\"img\">"
    )?;
    let title = drawing
        .heading
        .first()
        .map(|line| escaped(line))
        .unwrap_or_default();
    writeln!(out, "<title>{title}</title>")?;
    writeln!(out, "<desc>{}</desc>", escaped(&drawing.heading.join(". ")))?;
    writeln!(out, "<style>{STYLE}</style>")?;
    writeln!(out, "<rect class=\"page\" width=\"100%\" height=\"100%\"/>")?;
    for (number, line) in layout.heading.iter().enumerate() {
        let y = MARGIN + LINE + layout::count(number) * (LINE + 4.0);
        write_text(out, "heading", (MARGIN, y), line)?;
    }
    layout
        .frames
        .iter()
        .try_for_each(|frame| write_frame(out, frame))?;
    layout
        .lines
        .iter()
        .try_for_each(|course| write_course(out, course))?;
    for (card, place) in drawing.cards.iter().zip(&layout.cards) {
        write_card(out, card, place)?;
    }
    layout
        .lines
        .iter()
        .try_for_each(|course| write_labels(out, course))?;
    writeln!(out, "</svg>")
}

fn write_frame(out: &mut dyn Write, frame: &Frame) -> io::Result<()> {
    let Frame {
        x,
        y,
        width,
        height,
        hook,
    } = frame;
    writeln!(
        out,
        "<rect class=\"frame\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"10\"/>"
    )?;
    write_text(out, "hook", (x + PAD, y + LINE + 4.0), hook.as_str())
}

fn write_card(out: &mut dyn Write, card: &Card, place: &Placed) -> io::Result<()> {
    let class = match card.kind {
        CardKind::Packet => "packet",
        CardKind::Chain => "card",
        CardKind::Routing => "routing",
        CardKind::End(EndKind::Through) => "through",
        CardKind::End(EndKind::Stopped) => "stopped",
        CardKind::End(EndKind::Open) => "open",
    };
    let left = place.x - place.width / 2.0;
    let round = if card.kind == CardKind::Chain {
        5.0
    } else {
        place.height / 2.0
    };
    writeln!(
        out,
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{round:.1}\"/>",
        place.y, place.width, place.height
    )?;
    if card.kind == CardKind::Chain {
        write_text(out, "chain", (left + PAD, place.y + LINE + 2.0), &card.title)?;
        return write_rules(out, place, left);
    }
    let rows = place.rules.iter().flat_map(|(_, rows)| rows);
    let mut y = place.y + PAD + LINE - 4.0;
    for row in rows {
        let x = place.x - layout::text_width(&row.words) / 2.0;
        write_text(out, "", (x, y), &row.words)?;
        y += LINE;
    }
    Ok(())
}

fn write_rules(out: &mut dyn Write, place: &Placed, left: f64) -> io::Result<()> {
    let mut y = place.y + TITLE + 6.0;
    for (number, rows) in &place.rules {
        writeln!(
            out,
            "<line class=\"rule\" x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
            left + place.width
        )?;
        let mut base = y + LINE - 1.0;
        if let Some(number) = number {
            write_text(out, "number", (left + PAD, base), &number.to_string())?;
        }
        for row in rows {
            let class = match row.kind {
                TextKind::Words => "",
                TextKind::Comment => "comment",
                TextKind::Note => "note",
                TextKind::Change => "change",
            };
            write_text(out, class, (left + PAD + GUTTER, base), &row.words)?;
            base += LINE;
        }
        y += layout::count(rows.len()) * LINE + BETWEEN_RULES;
    }
    Ok(())
}

/// Down, aside, down in its lane, aside again, and to the point.
fn write_course(out: &mut dyn Write, course: &Course) -> io::Result<()> {
    let Course {
        from: (x1, y1),
        lane,
        to: (x2, y2),
        ..
    } = course;
    let (out_of, into, tip) = (y1 + GAP, y2 - GAP, y2 - 6.0);
    let bend = |from: (f64, f64), to: (f64, f64)| {
        let middle = f64::midpoint(from.1, to.1);
        format!(
            "C {:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}",
            from.0, to.0, to.0, to.1
        )
    };
    let line = |x: f64, y: f64| format!(" L {x:.1} {y:.1} ");
    let mut path = format!("M {x1:.1} {y1:.1} ");
    if (lane - x1).abs() > 0.5 {
        path += &bend((*x1, *y1), (*lane, out_of));
    }
    if (lane - x2).abs() > 0.5 {
        path += &line(*lane, into);
        path += &bend((*lane, into), (*x2, tip));
    }
    path += &line(*x2, tip);
    writeln!(out, "<path class=\"arrow\" d=\"{}\"/>", path.trim_end())?;
    let (left, right, top) = (x2 - 4.5, x2 + 4.5, y2 - 8.0);
    writeln!(
        out,
        "<path class=\"point\" d=\"M {left:.1} {top:.1} L {right:.1} {top:.1} L {x2:.1} {y2:.1} Z\"/>"
    )
}

fn write_labels(out: &mut dyn Write, course: &Course) -> io::Result<()> {
    let mut y = course.from.1 + GAP;
    for label in &course.labels {
        let width = layout::text_width(label);
        let left = course.lane - width / 2.0;
        writeln!(
            out,
            "<rect class=\"page\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{LINE}\" rx=\"3\"/>",
            left - 4.0,
            width + 8.0
        )?;
        write_text(out, "label", (left, y + LINE - 4.0), label)?;
        y += LINE;
    }
    Ok(())
}

fn write_text(out: &mut dyn Write, class: &str, (x, y): (f64, f64), text: &str) -> io::Result<()> {
    let class = match class {
        "" => String::new(),
        class => format!(" class=\"{class}\""),
    };
    writeln!(
        out,
        "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
        escaped(text)
    )
}

/// Text as XML has it.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in plain(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
