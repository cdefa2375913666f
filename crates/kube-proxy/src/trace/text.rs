//! The answer for people: a list of all ways, then each way rule by rule.

use super::args::TraceArgs;
use super::describe;
use comfy_table::{ContentArrangement, Row, Table, presets};
use path::{Answer, Claim, Host, Step, Way};
use std::io::{self, Write};
use traced::{Did, Event, Place, Policy};

/// How many ways the list of ways has at most. What is more is for programs to read.
const LISTED: usize = 1000;
/// How many steps of a way are printed at most.
const STEPS: usize = 2000;
/// How many claims of a way are printed at most.
const CLAIMS: usize = 20;

/// Writes the answer.
pub(super) fn write(out: &mut dyn Write, host: &Host, answer: &Answer, args: &TraceArgs) -> io::Result<()> {
    let page = Page { host, answer, args };
    let mark = match answer.packet.mark {
        0 => String::new(),
        mark => format!(" mark {mark:#x}"),
    };
    writeln!(out, "{}{mark}", answer.packet)?;
    writeln!(out, "{}", describe::outcome(answer))?;
    let all = answer.ways.len();
    if all > 1 {
        writeln!(out)?;
        write_table(out, &page.list_of_ways())?;
        if all > LISTED {
            writeln!(
                out,
                "{} more ways: --output json --full 0 has them all.",
                all - LISTED
            )?;
        }
    }
    let full = match args.full() {
        0 => all,
        limit => limit.min(all),
    };
    for (number, way) in answer.ways.iter().enumerate().take(full) {
        writeln!(out)?;
        page.write_way(out, number + 1, way)?;
    }
    if full < all {
        writeln!(out)?;
        writeln!(
            out,
            "{} more ways without their rules; --full 0 prints them.",
            all - full
        )?;
    }
    Ok(())
}

/// What is printed, and how.
struct Page<'a> {
    host: &'a Host,
    answer: &'a Answer,
    args: &'a TraceArgs,
}

impl Page<'_> {
    fn list_of_ways(&self) -> Table {
        let mut table = self.table(["WAY", "CHANCE", "IF", "TO", "SOURCE", "END"]);
        for (number, way) in self.answer.ways.iter().enumerate().take(LISTED) {
            table.add_row([
                (number + 1).to_string(),
                describe::chance(way.state.chance),
                describe::shortened(claims(&self.answer.claims(way))),
                way.translated
                    .map_or_else(|| "unchanged".to_owned(), |to| to.to_string()),
                describe::source_change(&way.source),
                describe::shortened(describe::end(&way.end)),
            ]);
        }
        table
    }

    fn write_way(&self, out: &mut dyn Write, number: usize, way: &Way) -> io::Result<()> {
        let claims = claims(&self.answer.claims(way));
        let when = if claims.is_empty() {
            String::new()
        } else {
            format!(", if {claims}")
        };
        let all = self.answer.ways.len();
        let chance = describe::chance(way.state.chance);
        writeln!(out, "Way {number} of {all}, chance {chance}{when}")?;
        let own = self.answer.chance_of_steps(way);
        if own < way.state.chance * (1.0 - 1e-9) {
            let own = describe::chance(own);
            writeln!(
                out,
                "(these steps: {own}; the rest of its chance is of other throws that end alike)"
            )?;
        }
        write_table(out, &self.steps(way))?;
        let to = way.translated.unwrap_or(self.answer.packet.dst);
        let source = describe::source_change(&way.source);
        writeln!(out, "=> {}; to {to}, {source}", describe::end(&way.end))
    }

    fn steps(&self, way: &Way) -> Table {
        let mut table = self.table(["HOOK", "TABLE", "CHAIN", "RULE", "WHAT", "PACKET"]);
        let steps = self.answer.steps(way);
        // What a rule found is recorded before the rule itself, and printed under it.
        let mut found = Vec::new();
        let mut last = None;
        for step in steps.iter().take(STEPS) {
            let place = place(step);
            if let Step::Rules(Event::Found { set, element, .. }) = step {
                found.push(bracketed_row(&format!("@{set} has {element}")));
            } else if let (Step::Rules(Event::Met { did, .. }), true) = (step, place == last) {
                table.add_row(further_row(did));
            } else if let Some(row) = self.row(step) {
                table.add_row(row);
                table.add_rows(found.drain(..));
                last = place;
            }
        }
        if let Some(more) = steps.len().checked_sub(STEPS).filter(|more| *more > 0) {
            table.add_row(bracketed_row(&format!(
                "{more} more steps: --output json --full 0 has them all"
            )));
        }
        table
    }

    fn row(&self, step: &Step<'_>) -> Option<Row> {
        let event = match step {
            Step::Routed(to) => return Some(bracketed_row(&format!("routing: {}", describe::routed(to)))),
            // Told in the heading: what the way stands on.
            Step::Claim(_) | Step::Chance { .. } => return None,
            Step::Rules(event) => event,
        };
        match event {
            Event::Met { place, did } => {
                Some(self.rule_row(place, "", describe::change(did).unwrap_or_default()))
            }
            Event::MayHaveMet { place, .. } => Some(self.rule_row(place, "[perhaps] ", String::new())),
            Event::Passed { place, failed } => {
                Some(self.rule_row(place, &format!("[no: {failed}] "), String::new()))
            }
            Event::Policy {
                hook,
                table,
                chain,
                policy,
            } => {
                // An empty chain that accepts is not worth a line.
                let boring = *policy == Policy::Accept
                    && describe::is_empty(self.host, self.answer.packet.family(), table, chain);
                (!boring).then(|| {
                    Row::from([
                        hook.to_string(),
                        table.to_string(),
                        chain.to_string(),
                        String::new(),
                        format!("policy {}", policy.as_str()),
                        String::new(),
                    ])
                })
            }
            Event::Found { .. } | Event::Assumed { .. } | Event::Chance { .. } => None,
        }
    }

    fn rule_row(&self, place: &Place, note: &str, packet: String) -> Row {
        let family = self.answer.packet.family();
        Row::from([
            place.hook.to_string(),
            place.table.to_string(),
            place.chain.to_string(),
            place.rule.to_string(),
            format!("{note}{}", describe::short_rule_text(self.host, family, place)),
            packet,
        ])
    }

    fn table(&self, header: [&str; 6]) -> Table {
        table(self.args.width, header)
    }
}

/// A table without lines that fits into so many columns.
pub(super) fn table(width: u16, header: [&str; 6]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width);
    table.set_header(header);
    table
}

/// The rule that a step is about.
fn place<'a>(step: &Step<'a>) -> Option<&'a Place> {
    match step {
        Step::Rules(
            Event::Met { place, .. } | Event::MayHaveMet { place, .. } | Event::Passed { place, .. },
        ) => Some(place),
        _ => None,
    }
}

/// What else the rule of the row above did.
fn further_row(did: &Did) -> Row {
    let mut row = Row::from([
        String::new(),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ]);
    row.add_cell(describe::change(did).unwrap_or_default().into());
    row
}

fn bracketed_row(what: &str) -> Row {
    let none = String::new;
    Row::from([none(), none(), none(), none(), format!("[{what}]"), none()])
}

/// Claims in a line.
fn claims(all: &[Claim<'_>]) -> String {
    let mut words: Vec<String> = all.iter().take(CLAIMS).map(describe::claim).collect();
    if let Some(more) = all.len().checked_sub(CLAIMS).filter(|more| *more > 0) {
        words.push(format!("and {more} more"));
    }
    words.join("; ")
}

pub(super) fn write_table(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    table
        .lines()
        .try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}
