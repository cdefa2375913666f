//! Many questions out of a file, answered in one table.

use super::args::{Form, PacketArgs, Question, TraceArgs};
use super::{describe, dump, json, packet, text};
use anyhow::{Result, bail, ensure};
use clap::Parser;
use model::Family;
use path::{Answer, Detail, Host};
use serde_json::json;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

/// How many packets a file may have.
const MOST: usize = 10_000;
/// How many wrong lines are named.
const NAMED: usize = 20;
/// How many ends of a packet are told.
const ENDS: usize = 4;

/// A line of the file.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    packet: PacketArgs,
}

/// Answers every line of the file.
///
/// # Errors
/// When the file cannot be read, or names the lines that are no packets.
pub(super) fn answer(
    file: &str,
    args: &TraceArgs,
    load: &dyn Fn(Family) -> Result<Host>,
    out: &mut dyn Write,
) -> Result<()> {
    let is_known = matches!(args.output, Form::Text | Form::Json);
    ensure!(
        is_known,
        "--packets gives one table: --output is text or json then"
    );
    let all = questions(file, &dump::read_dump(file)?)?;
    let mut hosts: BTreeMap<Family, Host> = BTreeMap::new();
    let mut table = text::table(
        args.width,
        ["LINE", "PACKET", "OUTCOME", "WAYS", "CHANCES", "ENDS"],
    );
    let mut values = Vec::new();
    let mut room = json::Room::of_list(args.full);
    for (number, question) in &all {
        let family = question.family();
        let host = match hosts.entry(family) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(missing) => missing.insert(load(family)?),
        };
        let answer = path::trace(host, &packet(question, host), Detail::Met);
        match args.output {
            Form::Json => {
                values.push(json!({"line": number, "answer": json::value(host, &answer, &mut room)?}));
            }
            _ => _ = table.add_row(row(*number, &answer)),
        }
    }
    if args.output == Form::Json {
        serde_json::to_writer_pretty(&mut *out, &values).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        text::write_table(out, &table)?;
    }
    Ok(())
}

fn row(number: usize, answer: &Answer) -> [String; 6] {
    let outcome = describe::outcome(answer);
    let outcome = outcome
        .trim_start_matches("Outcome: ")
        .trim_start_matches("Outcome ");
    let chances: BTreeSet<String> = answer
        .ways
        .iter()
        .map(|way| describe::chance(way.state.chance))
        .map(|chance| chance.split(' ').next().unwrap_or_default().to_owned())
        .collect();
    let ends: BTreeSet<String> = answer.ways.iter().map(|way| describe::end(&way.end)).collect();
    [
        number.to_string(),
        answer.packet.to_string(),
        outcome.to_owned(),
        answer.ways.len().to_string(),
        few(chances),
        few(ends),
    ]
}

fn few(words: BTreeSet<String>) -> String {
    let more = words.len().saturating_sub(ENDS);
    let mut told: Vec<String> = words.into_iter().take(ENDS).collect();
    if more > 0 {
        told.push(format!("{more} more"));
    }
    told.join("; ")
}

/// The packets with the numbers of their lines.
fn questions(file: &str, text: &str) -> Result<Vec<(usize, Question)>> {
    let mut found = Vec::new();
    let mut wrong = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match question(line) {
            Ok(question) => found.push((index + 1, question)),
            Err(error) => wrong.push(format!("{file}, line {}: {error:#}", index + 1)),
        }
    }
    if !wrong.is_empty() {
        let more = wrong.len().saturating_sub(NAMED);
        wrong.truncate(NAMED);
        if more > 0 {
            wrong.push(format!("and {more} more lines"));
        }
        bail!("{}", wrong.join("; "));
    }
    ensure!(!found.is_empty(), "{file} has no packet");
    ensure!(
        found.len() <= MOST,
        "{file} has {} packets; {MOST} are answered at once",
        found.len()
    );
    Ok(found)
}

fn question(line: &str) -> Result<Question> {
    let parsed = Line::try_parse_from(line.split_whitespace()).map_err(|error| {
        let words = error.to_string();
        let first = words.lines().next().unwrap_or_default();
        anyhow::anyhow!("{}", first.trim_start_matches("error: ").to_owned())
    });
    parsed?.packet.question()
}
