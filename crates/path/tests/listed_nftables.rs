//! What the real `nft` lists of a table, as text and as JSON, is traced as the table that was loaded.

mod support;

use model::Family;
use nftables::{listed, parse};
use path::{Detail, trace};
use std::io::Write;
use std::process::{Command, Stdio};
use support::native::{self, LAYOUTS, Layout};

/// What separates the two lists.
const BETWEEN: &str = "=== as JSON ===\n";

fn unshare() -> Command {
    let root = rustix::process::geteuid().is_root();
    let mut command = Command::new("unshare");
    command.arg(if root { "-n" } else { "-Urn" });
    command
}

/// Loads a file in a namespace of its own, and lists it as text and as JSON.
fn listed(file: &str) -> [listed::Ruleset; 2] {
    let script = format!(
        "nft -f /dev/stdin && nft list ruleset && printf '{}' && nft -j list ruleset",
        BETWEEN.trim()
    );
    let mut child = unshare()
        .args(["sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare runs");
    let mut stdin = child.stdin.take().expect("invariant: piped");
    stdin.write_all(file.as_bytes()).expect("nft reads");
    drop(stdin);
    let output = child.wait_with_output().expect("nft ends");
    assert!(output.status.success(), "nft refused:\n{file}");
    let both = String::from_utf8(output.stdout).expect("text");
    let (text, json) = both.split_once(BETWEEN.trim()).expect("both lists");
    let read = parse::ruleset(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        words(&read.to_string()),
        words(text),
        "it is printed back word by word"
    );
    [
        read,
        parse::ruleset(json).unwrap_or_else(|error| panic!("{error}\n{json}")),
    ]
}

/// Whether `nft` can be run in a namespace here. With `KPRS_REQUIRE_LIVE` set it must.
fn available() -> bool {
    let tried = unshare().args(["nft", "list", "ruleset"]).output();
    if tried.is_ok_and(|output| output.status.success()) {
        return true;
    }
    assert!(
        std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
        "nft cannot be run in a namespace"
    );
    // Past the capture of the test harness: a skip has to be seen.
    _ = writeln!(std::io::stderr(), "SKIPPED: nft cannot be run in a namespace");
    false
}

/// A table without what makes no difference: the order of elements, which the kernel chooses, and whether no clients are
/// listed or none are known.
fn sorted(mut table: listed::Table) -> listed::Table {
    table.comment = None;
    for set in &mut table.sets {
        let elements = match &mut set.elements {
            listed::Contents::Listed(elements) => std::mem::take(elements),
            listed::Contents::NotListed => Vec::new(),
        };
        let mut elements = elements;
        elements.sort_by_key(ToString::to_string);
        set.elements = listed::Contents::Listed(elements);
    }
    table
}

#[test]
fn what_nft_lists_as_text_and_as_json_is_traced_as_what_was_built() {
    if !available() {
        return;
    }
    let mut asked = 0;
    for case in scenario::golden_cases() {
        for (family, layout) in Family::ALL
            .into_iter()
            .flat_map(|family| LAYOUTS.map(|layout| (family, layout)))
        {
            let desired = case.desired.get(family);
            let cidrs = native::service_cidrs(&case.snapshot);
            let (built, file) = native::table(layout, desired, &cidrs, case.settings.masquerade_all);
            let [text, json] = listed(&file);
            if layout == Layout::Ours {
                assert_eq!(
                    sorted(text.tables[0].clone()),
                    sorted(built.clone()),
                    "{}",
                    case.name
                );
            }
            let hosts = [
                native::host(&case.facts, built),
                native::hosting(&case.facts, text),
                native::hosting(&case.facts, json),
            ];
            // Every packet would be asked three times; what differs between lists does for many.
            for packet in support::probes(desired, &case.facts).iter().step_by(9) {
                let [built, text, json] = hosts.each_ref().map(|host| {
                    let mut lines: Vec<String> = support::told(&trace(host, packet, Detail::Met))
                        .lines()
                        .map(str::to_owned)
                        .collect();
                    lines.sort();
                    lines
                });
                assert_eq!(text, built, "{layout:?} {} {family} as text", case.name);
                assert_eq!(json, built, "{layout:?} {} {family} as JSON", case.name);
                asked += 1;
            }
        }
    }
    assert!(asked > 500, "only {asked} packets were asked about");
}
