//! docs/explain.md lists every kind of finding, says of each what the code says, and names the fields that advice names.

mod support;

use explain::finding::Shown;
use explain::{Cause, Severity, explain};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use support::{cases, words};

/// What the page says: id, meaning, what to change.
fn listed() -> Vec<(String, String, String)> {
    let path = scenario::root().join("../docs/explain.md");
    let text = fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    let section = text.split("## Findings").nth(1).expect("a section of findings");
    let section = section.split("\n## ").next().expect("a text");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, meaning, field] = cells.as_slice() else {
            panic!("three cells: {row}");
        };
        (
            id.trim_matches('`').to_owned(),
            (*meaning).to_owned(),
            (*field).to_owned(),
        )
    })
    .collect()
}

#[test]
fn the_page_lists_every_finding_and_says_what_it_means() {
    let told: Vec<(String, String)> = listed()
        .into_iter()
        .map(|(id, meaning, _)| (id, meaning))
        .collect();
    let wanted: Vec<(String, String)> = Cause::ALL
        .iter()
        .map(|cause| (cause.as_str().to_owned(), cause.meaning().to_owned()))
        .collect();
    assert_eq!(told, wanted);
    for (id, _, field) in listed() {
        assert!(!field.is_empty(), "{id}: what is to be changed?");
    }
}

/// A field as the page has it: labels and numbers in brackets differ from object to object.
fn plain(field: &str) -> String {
    field.split('[').next().unwrap_or_default().to_owned()
}

#[test]
fn the_page_names_the_fields_that_advice_names() {
    let fields: BTreeMap<String, String> = listed().into_iter().map(|(id, _, field)| (id, field)).collect();
    let mut seen = BTreeSet::new();
    let mut wrong = BTreeSet::new();
    for folder in ["cases", "explain"] {
        for case in cases(folder) {
            for entry in case.entries.iter().filter(|entry| entry.command == "explain") {
                let question = words::question(&entry.ask, &[]);
                let answer = explain(&support::world(&case.on(entry), &question), &question);
                for finding in &answer.findings {
                    let id = finding.cause.as_str();
                    for field in finding.advice.iter().filter_map(|advice| advice.field.as_deref()) {
                        seen.insert(id);
                        let row = &fields[id];
                        if !row.contains(&plain(field)) {
                            wrong.insert(format!("{id} changes {field}, the page says {row}"));
                        }
                    }
                }
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new());
    assert!(seen.len() >= 20, "only {seen:?} were looked at");
}

/// Whoever is told that slices are the matter is told how to look at them.
#[test]
fn what_slices_show_is_looked_at_in_slices() {
    let mut seen = BTreeSet::new();
    for case in cases("explain") {
        for entry in case.entries.iter().filter(|entry| entry.command == "explain") {
            let question = words::question(&entry.ask, &[]);
            let answer = explain(&support::world(&case.on(entry), &question), &question);
            let first = answer
                .findings
                .first()
                .filter(|first| first.severity > Severity::Remark);
            let Some(cause) = first
                .map(|first| first.cause)
                .filter(|cause| cause.shown() == Shown::Slices)
            else {
                continue;
            };
            seen.insert(cause.as_str());
            let next = answer.next.join("\n");
            assert!(
                next.contains("kubectl get endpointslices"),
                "{}: {}: {next}",
                case.name,
                cause.as_str()
            );
        }
    }
    assert!(seen.len() >= 8, "only {seen:?} were looked at");
}
