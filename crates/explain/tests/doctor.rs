//! What `doctor` says of a host: every case that asks it is answered as its `expect.yaml` says, each fault of our own is
//! named first and has a healthy twin, and healthy hosts have nothing to report. A new folder needs nothing here.

mod support;

use explain::doctor::{Backend, Patient, Report, Saved, examine, main_rules, screen};
use explain::{Finding, HostFacts, Parts, Severity, assemble_host};
use iptables::parse;
use model::Family;
use nftables::listed;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use support::{Case, Entry, cases, yaml};

/// The files that an entry is about: of `either + ...` each dump for itself.
fn variants(case: &Case, entry: &Entry) -> Vec<Vec<String>> {
    let parts: Vec<String> = entry.on.split('+').map(|part| part.trim().to_owned()).collect();
    if parts.first().is_none_or(|first| first != "either") {
        return vec![parts];
    }
    let files = fs::read_dir(&case.folder).expect("a readable folder");
    let mut dumps: Vec<String> = files
        .map(|file| file.expect("a file").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("iptables-save"))
        .collect();
    dumps.sort();
    let with = |dump: String| [vec![dump], parts[1..].to_vec()].concat();
    dumps.into_iter().map(with).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

fn saved(path: &Path) -> Saved {
    let name = path.file_name().expect("a name").to_string_lossy();
    let family = if name.starts_with("ip6") {
        Family::V6
    } else {
        Family::V4
    };
    let text = read(path);
    let parsed = parse::save(&text, family);
    assert_eq!(parsed.opaque, [], "{}", path.display());
    Saved {
        backend: if name.contains("legacy") {
            Backend::Legacy
        } else {
            Backend::NfTables
        },
        family,
        rules: parsed.ruleset,
        unsupported: text.matches("[unsupported revision]").count(),
    }
}

fn patient(folder: &Path, files: &[String]) -> Patient {
    let mut host = json!({});
    let mut documents = Vec::new();
    let mut dumps = Vec::new();
    let mut native: Option<listed::Ruleset> = None;
    for file in files {
        let path: PathBuf = folder.join(file);
        match file.as_str() {
            // What a person reads off by hand.
            file if file.starts_with("`wg fwmark ") => {
                let mark = file.trim_matches('`').rsplit(' ').next().expect("a mark");
                host["wireguard"] = json!({"wg0": mark});
            }
            file if file.starts_with("node") => host = yaml(&path).remove(0),
            file if file.starts_with("objects") => documents.extend(yaml(&path)),
            file if file.starts_with("nft") => {
                let read = nftables::parse::ruleset(&read(&path))
                    .unwrap_or_else(|err| panic!("{}: {err}", path.display()));
                native.get_or_insert_default().tables.extend(read.tables);
            }
            _ => dumps.push(saved(&path)),
        }
    }
    let parts = Parts {
        documents,
        facts: HostFacts::read(&host).unwrap_or_else(|err| panic!("{}: {err}", folder.display())),
        saved: main_rules(&dumps),
        native,
        ..Parts::default()
    };
    let world = assemble_host(parts).unwrap_or_else(|err| panic!("{err}"));
    Patient::new(world, dumps, Vec::new())
}

fn strings(value: &Value) -> Vec<&str> {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).collect()
}

fn real(report: &Report) -> Vec<&Finding> {
    let all = report.findings.iter();
    all.filter(|finding| finding.severity > Severity::Remark)
        .collect()
}

/// Without the sequences that make colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.split_once('m').map_or("", |(_, rest)| rest)
    })
}

/// What is wrong with a report, a line each.
fn check(expect: &Value, report: &Report) -> Vec<String> {
    let mut wrong = Vec::new();
    let findings = real(report);
    let told: Vec<&str> = findings.iter().map(|finding| finding.what.as_str()).collect();
    if expect
        .get("findings")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty)
        && report.has_findings()
    {
        wrong.push(format!("there are findings: {told:?}"));
    }
    if let Some(words) = expect.get("finding").and_then(Value::as_str)
        && !told.iter().any(|what| what.contains(words))
    {
        wrong.push(format!("{words:?} is not among {told:?}"));
    }
    if let Some(first) = expect.get("first").and_then(Value::as_str)
        && findings.first().map(|finding| finding.cause.as_str()) != Some(first)
    {
        wrong.push(format!("the first is not {first}: {told:?}"));
    }
    let page = plain(&screen::text(report, 80));
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for name in strings(&expect["must_name"]) {
        if !flat.contains(name) {
            wrong.push(format!("{name:?} is not named"));
        }
    }
    for finding in &report.findings {
        if finding.severity > Severity::Remark && (finding.why.is_empty() || finding.advice.is_empty()) {
            wrong.push(format!("{:?} has no reason, or nothing to do", finding.what));
        }
    }
    // A word that is longer than a line, such as an address in a command, is not broken.
    let is_long = |line: &&str| line.chars().count() > 80 && line.trim_start().contains(' ');
    wrong.extend(page.lines().find(is_long).map(|line| format!("too long: {line}")));
    wrong
}

/// Checks the entries that are for doctor; returns how many there were, and what is wrong.
fn check_all(under: &str) -> (usize, Vec<String>) {
    let mut checked = 0;
    let mut wrong = Vec::new();
    for case in cases(under) {
        for (number, entry) in case
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.command == "doctor")
        {
            for files in variants(&case, entry) {
                checked += 1;
                let report = examine(&patient(&case.folder, &files));
                // Shown with a failure, and to whoever asks for it: `cargo test -p explain --test doctor -- --nocapture`.
                println!(
                    "--- {} {}\n{}",
                    case.name,
                    files.join(" + "),
                    plain(&screen::text(&report, 80))
                );
                for what in check(&entry.expect, &report) {
                    wrong.push(format!("{}, entry {}: {what}", case.name, number + 1));
                }
            }
        }
    }
    (checked, wrong)
}

#[test]
fn every_case_that_asks_doctor_is_answered_as_it_says() {
    let (checked, wrong) = check_all("cases");
    assert!(checked >= 7, "only {checked} questions were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_fault_of_a_host_is_named_first_and_mended_there_is_none() {
    let (checked, wrong) = check_all("doctor");
    assert!(checked >= 50, "only {checked} questions were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let none = json!([]);
    for case in cases("doctor") {
        let is_healthy = |entry: &Entry| entry.expect["findings"] == none;
        assert!(
            case.entries.iter().any(is_healthy),
            "{} has no healthy twin",
            case.name
        );
    }
}

#[test]
fn ten_healthy_hosts_and_more_have_nothing_to_report() {
    let healthy = cases("doctor")
        .into_iter()
        .filter(|case| case.name.starts_with("healthy-"));
    let mut seen = 0;
    for case in healthy {
        for entry in &case.entries {
            let files = variants(&case, entry).remove(0);
            let report = examine(&patient(&case.folder, &files));
            let told: Vec<&str> = real(&report)
                .iter()
                .map(|finding| finding.what.as_str())
                .collect();
            assert_eq!(told, Vec::<&str>::new(), "{}", case.name);
            assert!(!report.is_blind(), "{}", case.name);
        }
        seen += 1;
    }
    assert!(seen >= 10, "only {seen} healthy hosts were found");
}

/// Golden clusters are healthy: what upstream wrote for them is no finding, whatever their Services are like.
#[test]
fn what_upstream_wrote_for_golden_clusters_is_no_fault_of_the_host() {
    let mut seen = 0;
    for case in scenario::golden_cases() {
        let folder = scenario::root().join("golden").join(&case.name);
        let dump = |file: &str, family| Saved {
            backend: Backend::NfTables,
            family,
            rules: parse::save(&read(&folder.join(file)), family).ruleset,
            unsupported: 0,
        };
        let dumps = vec![
            dump("iptables.txt", Family::V4),
            dump("ip6tables.txt", Family::V6),
        ];
        let facts = json!({
            "hostname": "node-a",
            "addresses": case.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        let parts = Parts {
            documents: vec![case.cluster.clone()],
            config: Some(case.config.clone()),
            facts: HostFacts::read(&facts).expect("good facts"),
            saved: main_rules(&dumps),
            ..Parts::default()
        };
        let world = assemble_host(parts).expect("good parts");
        let report = examine(&Patient::new(world, dumps, Vec::new()));
        let told: Vec<&str> = real(&report)
            .iter()
            .map(|finding| finding.what.as_str())
            .collect();
        assert_eq!(told, Vec::<&str>::new(), "{}", case.name);
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} golden clusters were found");
}

#[test]
fn nothing_known_is_nothing_said_and_not_healthy() {
    let world = assemble_host(Parts::default()).expect("no parts");
    let report = examine(&Patient::new(world, Vec::new(), Vec::new()));
    assert_eq!(report.findings, []);
    assert!(report.is_blind());
    assert!(screen::headline(&report).starts_with("NOT EXAMINED"));
}

/// Rules alone are what most people have at hand: what they show is found, and what they do not show is no fault.
#[test]
fn without_facts_healthy_hosts_have_nothing_to_report_and_what_drops_pods_is_found() {
    let mut found = 0;
    for case in cases("doctor").into_iter().chain(cases("cases")) {
        let of_doctor = case.entries.iter().filter(|entry| entry.command == "doctor");
        for entry in of_doctor {
            let mut files = variants(&case, entry).remove(0);
            files.retain(|file| !file.starts_with("node") && !file.starts_with('`'));
            if files.is_empty() {
                continue;
            }
            let report = examine(&patient(&case.folder, &files));
            let told: Vec<&str> = real(&report)
                .iter()
                .map(|finding| finding.cause.as_str())
                .collect();
            let expected = entry.expect.to_string();
            // Which addresses pods of this host have, rules alone do not tell.
            if expected.contains("iprange") {
                continue;
            }
            if entry.expect["findings"] == json!([]) {
                assert_eq!(told, Vec::<&str>::new(), "{} {files:?}", case.name);
            } else if entry.command == "doctor" && expected.contains("FORWARD") {
                assert!(
                    told.contains(&"pod-traffic-dropped"),
                    "{} {files:?}: {told:?}",
                    case.name
                );
                found += 1;
            }
        }
    }
    assert!(found >= 2, "only {found} hosts whose FORWARD drops were found");
}
