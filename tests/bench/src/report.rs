//! Results as tables for people, or as JSON lines.

use crate::beside::BesideResult;
use crate::case::CaseResult;
use crate::flood::FloodResult;
use crate::micro::MicroResult;
use crate::nftables::NftResult;
use crate::nftables::stages::Stages;
use crate::packets::PacketsResult;
use crate::stats::Spread;
use anyhow::Result;
use comfy_table::{Table, presets::UTF8_BORDERS_ONLY};
use serde::Serialize;

/// One result as a line of JSON.
pub fn line(result: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(result)?);
    Ok(())
}

/// The micro-benchmarks.
pub fn micro(result: &MicroResult, json: bool) -> Result<()> {
    if json {
        return line(result);
    }
    println!(
        "One service of {} x {}, medians of 500:",
        result.services, result.endpoints
    );
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_header(["apply", "resolve", "build", "diff", "render", "together"]);
    let parts = [
        result.apply_us,
        result.resolve_us,
        result.build_us,
        result.diff_us,
        result.render_us,
    ];
    let together: f64 = parts.iter().sum();
    table.add_row(parts.iter().chain([&together]).map(|us| format!("{us:.1} us")));
    println!("{table}\n");
    Ok(())
}

/// A result as soon as it is there, for programs.
pub fn each(options: &crate::Options, result: Option<&impl Serialize>) -> Result<()> {
    match result {
        Some(result) if options.json => line(result),
        _ => Ok(()),
    }
}

/// The sizes in nftables mode.
pub fn nftables(results: &[NftResult]) {
    let mut starts = Table::new();
    starts.load_style(UTF8_BORDERS_ONLY);
    starts.set_header(["services", "cold start", "CPU", "resident"]);
    for result in results {
        let resident = result
            .resident_mib
            .iter()
            .map(|(when, mib)| format!("{mib:.1} MiB {when}"));
        starts.add_row([
            format!("{} x {}", result.services, result.endpoints),
            format!("{:.2} s", result.cold_start_s),
            format!("{:.2} s", result.cold_start_cpu_s),
            resident.collect::<Vec<_>>().join("\n"),
        ]);
    }
    println!("Cold start, from the lists' end to the last commit:\n{starts}\n");
    println!(
        "Changes, from the event going out to the commit, and to the first packet:\n{}\n",
        changes(results)
    );
    println!("One endpoint replaced, stage by stage in one process:");
    for result in results {
        stages(result.services, &result.stages);
    }
}

fn changes(results: &[NftResult]) -> Table {
    let mut changes = Table::new();
    changes.load_style(UTF8_BORDERS_ONLY);
    changes.set_header([
        "services",
        "change",
        "n",
        "commit: median",
        "p90",
        "max",
        "packet: median",
        "p90",
        "CPU",
    ]);
    for result in results {
        for change in &result.changes {
            let packet = |ms: fn(&Spread) -> f64| {
                let spread = change.packet.as_ref();
                spread.map_or("-".to_owned(), |spread| milliseconds(ms(spread)))
            };
            changes.add_row([
                result.services.to_string(),
                change.what.clone(),
                change.commit.count.to_string(),
                milliseconds(change.commit.median_ms),
                milliseconds(change.commit.p90_ms),
                milliseconds(change.commit.max_ms),
                packet(|spread| spread.median_ms),
                packet(|spread| spread.p90_ms),
                milliseconds(change.cpu_ms),
            ]);
        }
    }
    changes
}

/// Two binaries beside each other.
pub fn beside(other: &BesideResult, ours: &BesideResult) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header(["", "n", "the other", "this one", "ratio"]);
    let mut row = |what: &str, n: String, other: f64, ours: f64, unit: &str| {
        table.add_row([
            what.to_owned(),
            n,
            format!("{other:.3} {unit}"),
            format!("{ours:.3} {unit}"),
            format!("{:.1}", other / ours),
        ]);
    };
    let start = (other.cold_start_s, ours.cold_start_s);
    row("cold start", String::new(), start.0, start.1, "s");
    let cpu = (other.cold_start_cpu_s, ours.cold_start_cpu_s);
    row("  its CPU, with tools", String::new(), cpu.0, cpu.1, "s");
    for (theirs, mine) in other.changes.iter().zip(&ours.changes) {
        let n = mine.commit.count.to_string();
        row(
            &mine.what,
            n,
            theirs.commit.median_ms,
            mine.commit.median_ms,
            "ms",
        );
        row(
            "  its CPU, with tools",
            String::new(),
            theirs.cpu_ms,
            mine.cpu_ms,
            "ms",
        );
    }
    row(
        "resident",
        String::new(),
        other.resident_mib,
        ours.resident_mib,
        "MiB",
    );
    println!(
        "{} services x {}, medians, from the event going out to the commit:\n{table}\n",
        ours.services, ours.endpoints
    );
}

/// What each stage costs, by kind of change.
pub fn stages(services: usize, stages: &Stages) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "change, medians",
        "n",
        "decode",
        "apply",
        "plan",
        "commit",
        "remember",
    ]);
    for kind in &stages.kinds {
        let count = kind.stages.first().map_or(0, |(_, spread)| spread.count);
        let medians = kind
            .stages
            .iter()
            .map(|(_, spread)| milliseconds(spread.median_ms));
        table.add_row([kind.what.clone(), count.to_string()].into_iter().chain(medians));
    }
    println!(
        "{services} services, loaded in {:.2} s, {:.2} s of it commits (plan: resolve, build and diff)",
        stages.load_s, stages.load_commits_s
    );
    println!("{table}");
}

/// Connections.
pub fn packets(results: &[PacketsResult]) {
    let mut table = Table::new();
    table.load_style(UTF8_BORDERS_ONLY);
    table.set_header([
        "mode",
        "services",
        "to",
        "first packet: median",
        "p90",
        "connections a second",
    ]);
    for result in results {
        for (to, spread, rate) in &result.to {
            table.add_row([
                format!("{:?}", result.mode),
                result.services.to_string(),
                to.clone(),
                format!("{:.1} us", spread.median_ms * 1e3),
                format!("{:.1} us", spread.p90_ms * 1e3),
                format!("{rate:.0}"),
            ]);
        }
    }
    println!("{table}");
}

/// A flood.
pub fn flood(result: &FloodResult) {
    println!(
        "{} changes beside {} services in {:.0} s: {} new connections, {} lost",
        result.changes, result.services, result.seconds, result.connections, result.lost
    );
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.3} ms")
}

/// The cases.
pub fn tables(results: &[CaseResult]) {
    let mut starts = Table::new();
    starts.load_style(UTF8_BORDERS_ONLY);
    starts.set_header([
        "backend",
        "services",
        "cold start",
        "tools alone",
        "ratio",
        "CPU daemon / tools",
        "resident",
    ]);
    let mut changes = Table::new();
    changes.load_style(UTF8_BORDERS_ONLY);
    changes.set_header([
        "backend",
        "services",
        "change",
        "n",
        "median",
        "p90",
        "max",
        "CPU daemon / tools",
    ]);
    for result in results {
        let size = format!("{} x {}", result.services, result.endpoints);
        let backend = format!("{:?}", result.backend);
        let resident: Vec<String> = result
            .resident_mib
            .iter()
            .map(|(when, mib)| format!("{mib:.1} MiB {when}"))
            .collect();
        starts.add_row([
            backend.clone(),
            size.clone(),
            format!("{:.2} s", result.cold_start_s),
            format!("{:.2} s", result.tools_s),
            format!("{:.2}", result.cold_start_s / result.tools_s),
            format!(
                "{:.2} s / {:.2} s",
                result.cold_start_cpu_s.0, result.cold_start_cpu_s.1
            ),
            resident.join("\n"),
        ]);
        for change in &result.changes {
            changes.add_row([
                backend.clone(),
                size.clone(),
                change.what.clone(),
                change.latency.count.to_string(),
                format!("{:.1} ms", change.latency.median_ms),
                format!("{:.1} ms", change.latency.p90_ms),
                format!("{:.1} ms", change.latency.max_ms),
                format!("{:.1} / {:.1} ms", change.cpu_ms.0, change.cpu_ms.1),
            ]);
        }
    }
    println!("Cold start, from the lists' end to the last commit:\n{starts}\n");
    println!("Changes, from the event going out to the last commit for it:\n{changes}");
}
