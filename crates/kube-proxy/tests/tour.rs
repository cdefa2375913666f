//! The tour, with real packets: everything is seen as told in both modes, and what stands in the way is noticed where it
//! stands. The drawings of its chapter in the book are those of these rules.

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The drawings in the book, and what the tour calls them.
const DRAWINGS: [(&str, &str); 2] = [
    ("tour-cluster-ip.svg", "cluster-ip.svg"),
    ("tour-node-port.svg", "node-port.svg"),
];

/// What `kube-proxy lab tour` with more words says, and its exit status. `stem` names the lab.
fn tour(stem: &str, words: &[&str]) -> (Value, i32) {
    let prefix = lab::live::prefix(stem);
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["lab", "tour", "--output", "json", "--prefix", &prefix])
        .args(words)
        .output()
        .expect("the binary is built");
    let left = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with(&format!("{prefix}-")))
        .collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert!(!Path::new("/run/kube-proxy-lab").join(&prefix).exists());
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|error| panic!("{error}; it said {said}"));
    (report, output.status.code().expect("not killed"))
}

fn can_run() -> bool {
    lab::live::available(&["iptables", "nft", "unshare", lab::dns::PROGRAM])
}

fn steps(report: &Value) -> &Vec<Value> {
    report["steps"].as_array().expect("steps")
}

/// The facts that were not seen as told: the step's title and what it was about.
fn surprises(report: &Value) -> Vec<(&str, &str)> {
    let mut found = vec![];
    for step in steps(report) {
        let title = step["title"].as_str().expect("a title");
        for fact in step["facts"].as_array().expect("facts") {
            if fact["as_told"] != true {
                found.push((title, fact["what"].as_str().expect("what")));
            }
        }
    }
    found
}

/// What was seen of a fact, in the first step that has one which begins so.
fn seen<'a>(report: &'a Value, what: &str) -> &'a str {
    let facts = steps(report)
        .iter()
        .filter_map(|step| step["facts"].as_array())
        .flatten();
    let begins = |fact: &&Value| fact["what"].as_str().is_some_and(|text| text.starts_with(what));
    let mut found = facts.filter(begins);
    let fact = found.next().unwrap_or_else(|| panic!("no {what} in {report:#}"));
    fact["seen"].as_str().expect("seen")
}

/// The chains of a drawing, card by card.
fn cards(path: &Path) -> Vec<String> {
    let drawn = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let titles = drawn
        .lines()
        .filter(|line| line.starts_with("<text class=\"chain\""));
    let text = |line: &str| {
        let (_, rest) = line.split_once('>')?;
        Some(rest.strip_suffix("</text>")?.to_owned())
    };
    titles.filter_map(text).collect()
}

#[test]
fn everything_on_the_tour_is_seen_as_told() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder can be made");
    let path = folder.path().to_string_lossy();
    let (report, status) = tour("tour", &["--drawings", &path]);
    assert_eq!((surprises(&report), status), (vec![], 0), "{report:#}");
    assert_eq!(steps(&report).len(), 12);
    // By the known experiment, and not by what the tour tells itself.
    assert_eq!(seen(&report, "address of spring-test.default.svc"), "10.1.68.7");
    assert_eq!(seen(&report, "client that they saw"), "10.244.1.7");
    assert_eq!(seen(&report, "client that spring-test-a saw"), "192.168.50.10");
    assert_eq!(
        seen(&report, "who answers at 192.168.50.239:31080"),
        "spring-test-b"
    );
    let resets: u32 = seen(&report, "of these, refused").parse().expect("a number");
    assert!(resets > 0);
    for step in steps(&report) {
        let title = step["title"].as_str().expect("a title");
        let commands = step["commands"].as_array().expect("commands");
        assert!(!commands.is_empty() && step["look"] != "", "{title}");
    }
    // The book's drawings are of rules that look like these; the numbers of rules alone are free.
    let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drawings");
    for (in_the_book, here) in DRAWINGS {
        let drawn = cards(&folder.path().join(here));
        assert!(drawn.len() > 10, "{drawn:?}");
        assert_eq!(drawn, cards(&book.join(in_the_book)), "{in_the_book}");
    }
}

#[test]
fn everything_on_the_tour_is_seen_as_told_in_nftables_mode() {
    if !can_run() {
        return;
    }
    let (report, status) = tour("tourn", &["--proxy-mode", "nftables"]);
    assert_eq!((surprises(&report), status), (vec![], 0), "{report:#}");
    assert_eq!(report["mode"], "nftables");
    assert_eq!(seen(&report, "client that they saw"), "10.244.1.7");
    assert_eq!(seen(&report, "client that spring-test-a saw"), "192.168.50.10");
}

#[test]
fn endpoint_that_gets_more_than_its_share_is_noticed() {
    if !can_run() {
        return;
    }
    // Every fifth connection to app is taken to app-0, behind kube-proxy's back; all pods still answer.
    let command = "iptables -t nat -I PREROUTING -d 10.1.33.10 -p tcp -m statistic --mode nth --every 5 --packet 0 \
                   -j DNAT --to-destination 10.244.1.20:8080";
    let (report, status) = tour("tours", &["--tamper", command]);
    assert_eq!(status, 1, "{report:#}");
    let title = "Two, three and ten replicas share the connections evenly";
    let found = surprises(&report);
    assert!(found.contains(&(title, "10 replicas: chi-square")), "{found:?}");
    assert!(found.iter().all(|(of, _)| *of == title), "{found:?}");
}

#[test]
fn firewall_before_tcp_53_is_noticed_where_names_are_asked_for_by_tcp() {
    if !can_run() {
        return;
    }
    let command = "iptables -I FORWARD -p tcp --dport 53 -j REJECT --reject-with tcp-reset";
    let (report, status) = tour("tourd", &["--tamper", command]);
    assert_eq!(status, 1, "{report:#}");
    let found = surprises(&report);
    let by_tcp = |(_, what): &(&str, &str)| what.contains("TCP");
    assert!(!found.is_empty() && found.iter().all(by_tcp), "{found:?}");
}

#[test]
fn source_that_is_rewritten_by_somebody_else_is_noticed() {
    if !can_run() {
        return;
    }
    let command = "iptables -t nat -A POSTROUTING -d 10.244.0.0/16 -j MASQUERADE";
    let (report, status) = tour("tourm", &["--tamper", command]);
    assert_eq!(status, 1, "{report:#}");
    let found = surprises(&report);
    let pod = (
        "A pod asks the cluster IP: only the destination is translated",
        "client that they saw",
    );
    let snat = "Why SNAT? Without it the client refuses the answer";
    assert!(found.contains(&pod), "{found:?}");
    assert!(found.contains(&(snat, "who answers")), "{found:?}");
    assert!(
        found
            .iter()
            .any(|(title, _)| title.starts_with("externalTrafficPolicy")),
        "{found:?}"
    );
}

#[test]
fn tour_that_cannot_be_done_says_why_and_ends_with_2() {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["lab", "tour", "--drawings", "/nowhere/at/all"])
        .output()
        .expect("the binary is built");
    let said = String::from_utf8_lossy(&output.stderr);
    if lab::live::available(&[]) {
        assert_eq!(output.status.code(), Some(2));
        assert!(said.contains("--drawings /nowhere/at/all"), "{said}");
    }
}
