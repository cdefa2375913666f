//! The answer for people: a list of all ways, then each way rule by rule.

use super::args::TraceArgs;
use super::describe;
use comfy_table::{ContentArrangement, Row, Table, presets};
use iptables::ast::{ChainName, Policy, TableName};
use iptables::trace::{Condition, Event, Place};
use path::{Answer, Host, Step, Way};
use std::io::{self, Write};

/// Writes the answer.
pub(super) fn write(out: &mut dyn Write, host: &Host, answer: &Answer, args: &TraceArgs) -> io::Result<()> {
    let mark = match answer.packet.mark {
        0 => String::new(),
        mark => format!(" mark {mark:#x}"),
    };
    writeln!(out, "{}{mark}", answer.packet)?;
    outcome(out, answer)?;
    let all = answer.ways.len();
    if all > 1 {
        writeln!(out)?;
        write_table(out, &list_of_ways(answer, args))?;
    }
    let full = match args.full {
        0 => all,
        limit => limit.min(all),
    };
    for (number, way) in answer.ways.iter().enumerate().take(full) {
        writeln!(out)?;
        one_way(out, host, answer, way, (number + 1, all), args)?;
    }
    if full < all {
        writeln!(out)?;
        writeln!(
            out,
            "{} more ways, listed above; --full 0 prints their rules.",
            all - full
        )?;
    }
    Ok(())
}

fn outcome(out: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    match answer.outcome() {
        Ok(outcome) => writeln!(out, "Outcome: {outcome}"),
        Err(several) => {
            let outcomes = several.outcomes.iter().map(ToString::to_string);
            let words: Vec<String> = outcomes.chain(several.open.iter().cloned()).collect();
            writeln!(out, "Outcome depends: {}", words.join("; or "))
        }
    }
}

fn list_of_ways(answer: &Answer, args: &TraceArgs) -> Table {
    let mut table = table(args);
    table.set_header(["WAY", "CHANCE", "IF", "TO", "SOURCE", "END"]);
    for (number, way) in answer.ways.iter().enumerate() {
        table.add_row([
            (number + 1).to_string(),
            describe::chance(way.state.chance),
            conditions(&answer.conditions(way)),
            way.translated
                .map_or_else(|| "unchanged".to_owned(), |to| to.to_string()),
            describe::source_change(&way.source),
            describe::end(&way.end),
        ]);
    }
    table
}

/// Conditions in a line. Many of one kind that are not so are told by the first and their number.
fn conditions(all: &[(&Condition, bool)]) -> String {
    let mut words: Vec<String> = Vec::new();
    let is_seen = |condition: &Condition| matches!(condition, Condition::SeenRecently { .. });
    let unseen = all
        .iter()
        .filter(|(condition, holds)| !holds && is_seen(condition))
        .count();
    let mut unseen_told = false;
    for (condition, holds) in all {
        if !holds && is_seen(condition) && unseen > 1 {
            if !std::mem::replace(&mut unseen_told, true) {
                let others = if unseen == 2 {
                    "the other list"
                } else {
                    "any other list"
                };
                words.push(format!("not: {condition}, nor in {others} ({unseen})"));
            }
            continue;
        }
        let not = if *holds { "" } else { "not: " };
        words.push(format!("{not}{condition}"));
    }
    words.join("; ")
}

fn one_way(
    out: &mut dyn Write,
    host: &Host,
    answer: &Answer,
    way: &Way,
    (number, all): (usize, usize),
    args: &TraceArgs,
) -> io::Result<()> {
    let conditions = conditions(&answer.conditions(way));
    let when = if conditions.is_empty() {
        String::new()
    } else {
        format!(", if {conditions}")
    };
    writeln!(
        out,
        "Way {number} of {all}, chance {}{when}",
        describe::chance(way.state.chance)
    )?;
    write_table(out, &steps(host, answer, way, args))?;
    let to = way.translated.unwrap_or(answer.packet.dst);
    let source = describe::source_change(&way.source);
    writeln!(out, "=> {}; to {to}, {source}", describe::end(&way.end))
}

fn steps(host: &Host, answer: &Answer, way: &Way, args: &TraceArgs) -> Table {
    let mut table = table(args);
    table.set_header(["HOOK", "TABLE", "CHAIN", "RULE", "WHAT", "PACKET"]);
    for step in answer.steps(way) {
        if let Some(row) = row(host, answer, &step) {
            table.add_row(row);
        }
    }
    table
}

fn row(host: &Host, answer: &Answer, step: &Step<'_>) -> Option<Row> {
    let family = answer.packet.family();
    let of_rule = |place: &Place, note: &str, packet: String| {
        Row::from([
            place.hook.to_string(),
            place.table.to_string(),
            place.chain.to_string(),
            place.rule.to_string(),
            format!("{note}{}", describe::short_rule_text(host, family, place)),
            packet,
        ])
    };
    let plain = |what: String| {
        let none = String::new;
        Row::from([none(), none(), none(), none(), what, none()])
    };
    match step {
        Step::Routed(to) => Some(plain(format!("[routing: {}]", describe::routed(to)))),
        Step::Rules(Event::Met { place, did }) => {
            Some(of_rule(place, "", describe::change(did).unwrap_or_default()))
        }
        Step::Rules(Event::MayHaveMet { place, .. }) => Some(of_rule(place, "[perhaps] ", String::new())),
        Step::Rules(Event::Passed { place, failed }) => {
            Some(of_rule(place, &format!("[no: {failed}] "), String::new()))
        }
        // An empty chain that accepts is not worth a line.
        Step::Rules(Event::Policy {
            table,
            chain,
            policy: Policy::Accept,
            ..
        }) if is_empty(host, answer, *table, chain) => None,
        Step::Rules(Event::Policy {
            hook,
            table,
            chain,
            policy,
        }) => Some(Row::from([
            hook.to_string(),
            table.to_string(),
            chain.to_string(),
            String::new(),
            format!("policy {}", policy.as_str()),
            String::new(),
        ])),
        // Told in the heading: what the way stands on.
        Step::Rules(Event::Assumed { .. } | Event::Chance { .. }) => None,
    }
}

fn is_empty(host: &Host, answer: &Answer, table: TableName, chain: &ChainName) -> bool {
    let rules = host.rules.get(answer.packet.family());
    rules
        .chain(table, chain.as_str())
        .is_none_or(|chain| chain.rules.is_empty())
}

fn table(args: &TraceArgs) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(args.width);
    table
}

fn write_table(out: &mut dyn Write, table: &Table) -> io::Result<()> {
    table
        .lines()
        .try_for_each(|line| writeln!(out, "{}", line.trim_end()))
}
