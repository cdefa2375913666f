//! Results as tables for people, or as JSON lines.

use crate::case::CaseResult;
use crate::micro::MicroResult;
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
