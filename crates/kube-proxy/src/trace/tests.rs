//! What the tool prints, over rules that upstream wrote.

use super::*;
use clap::Parser;
use serde_json::Value;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    trace: TraceArgs,
}

fn dump(case: &str) -> String {
    scenario::root()
        .join("golden")
        .join(case)
        .join("iptables.txt")
        .display()
        .to_string()
}

fn asked(words: &[&str]) -> anyhow::Result<String> {
    let cli = Cli::try_parse_from(["trace"].iter().chain(words))?;
    let mut out = Vec::new();
    answer_into(
        &cli.trace,
        |_| anyhow::bail!("no other source in this test"),
        &mut out,
    )?;
    Ok(String::from_utf8(out)?)
}

fn print(words: &[&str]) -> String {
    asked(words).unwrap_or_else(|err| panic!("{err:#}"))
}

/// A client from outside to a node port without session affinity and with two endpoints.
fn node_port(more: &[&str]) -> String {
    let dump = dump("seed-nodeport");
    let mut words = vec![
        "--from",
        "192.168.50.1",
        "--in-interface",
        "eth0",
        "--dump",
        &dump,
    ];
    words.extend(more);
    print(&words)
}

fn lines_with<'a>(text: &'a str, part: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains(part)).collect()
}

#[test]
fn text_tells_packet_outcome_and_each_rule_with_its_number() {
    let dump = dump("policy");
    let text = print(&[
        "--from",
        "192.168.1.5",
        "--to",
        "192.168.50.238:30283",
        "--local-address",
        "192.168.50.238",
        "--width",
        "220",
        "--dump",
        &dump,
    ]);
    let mut lines = text.lines();
    assert_eq!(
        lines.next(),
        Some("tcp 192.168.1.5:40000 -> 192.168.50.238:30283")
    );
    assert_eq!(
        lines.next(),
        Some("Outcome: 10.244.1.15:8080 (masqueraded), 10.244.2.15:8080 (masqueraded)")
    );
    assert_eq!(
        lines_with(&text, "Way 1 of 4, chance 1, if 192.168.1.5 was seen in list").len(),
        1
    );
    assert_eq!(
        lines_with(&text, "Way 3 of 4, chance 1/2 (0.500000), if not:").len(),
        1
    );
    // As `iptables -t nat -L KUBE-NODEPORTS --line-numbers` counts.
    let rule = lines_with(&text, "--dport 30283 -j KUBE-EXT-62VJTKG3X7V2KWVP")[0];
    let words: Vec<&str> = rule.split_whitespace().take(4).collect();
    assert_eq!(words, ["PREROUTING", "nat", "KUBE-NODEPORTS", "4"]);
    assert_eq!(lines_with(&text, "to 192.168.50.238:30283 → 10.244.").len(), 4);
    assert_eq!(lines_with(&text, "mark 0x0 → 0x4000").len(), 4);
    assert_eq!(
        lines_with(&text, "=> leaves this host; to 10.244.1.15:8080").len(),
        2
    );
}

#[test]
fn text_fits_the_width_it_is_given() {
    let text = node_port(&[
        "--to",
        "192.168.50.238:80",
        "--local-address",
        "192.168.50.238",
        "--width",
        "110",
    ]);
    let table = text.lines().filter(|line| line.starts_with(' '));
    let longest = table.map(|line| line.chars().count()).max();
    assert!(longest <= Some(110), "{longest:?}\n{text}");
}

#[test]
fn a_word_of_any_length_is_cut_in_the_table_of_ways() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.txt");
    let word = "(".repeat(9_000);
    let rules =
        format!("\ttype filter hook forward priority 0; policy accept;\n\tmeta mark and {word} == 1 drop\n");
    std::fs::write(&path, format!("table ip t {{\nchain c {{\n{rules}}}\n}}\n")).unwrap();
    let dump = path.display().to_string();
    let text = print(&[
        "--from",
        "10.0.0.1",
        "--to",
        "10.0.0.2:80",
        "--in-interface",
        "eth0",
        "--dump",
        &dump,
    ]);
    let table = text
        .split_once("\nWay 1 of")
        .unwrap()
        .0
        .split_once(" WAY ")
        .unwrap()
        .1;
    let ways = text.matches("\nWay ").count();
    assert!(table.matches('(').count() <= ways * 2 * 2_000, "{ways}");
}

#[test]
fn ways_beyond_the_wanted_number_are_listed_and_not_told() {
    let dump = dump("policy");
    let of_two = |full: &str| {
        print(&[
            "--from",
            "10.244.1.5",
            "--to",
            "10.96.40.7:80",
            "--local-address",
            "192.168.50.238",
            "--full",
            full,
            "--dump",
            &dump,
        ])
    };
    let some = of_two("1");
    assert_eq!(lines_with(&some, "HOOK ").len(), 1);
    assert_eq!(
        lines_with(&some, "3 more ways without their rules; --full 0 prints them.").len(),
        1
    );
    assert_eq!(lines_with(&of_two("0"), "HOOK ").len(), 4);
}

/// Rules that cannot be decided, in a row: each doubles the ways. JSON has no more of them than there is room for.
#[test]
fn json_of_very_many_ways_is_bounded_and_says_what_it_leaves_out() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let rule = |bit: u32| {
        let mark = 1 << bit;
        format!("-A PREROUTING -m set --match-set s{bit} src -j MARK --set-xmark {mark:#x}/{mark:#x}")
    };
    let marks: Vec<String> = (0..20).map(rule).collect();
    let marks = marks.join("\n");
    let text = format!("*mangle\n:PREROUTING ACCEPT [0:0]\n{marks}\nCOMMIT\n");
    let path = folder.path().join("rules");
    std::fs::write(&path, text).expect("the scratch folder can be written to");
    let dump = path.display().to_string();
    let packet = [
        "--from",
        "10.244.1.7",
        "--to",
        "192.0.2.9:80",
        "--local-address",
        "192.0.2.11",
    ];
    let ask = |more: &[&str]| print(&[&packet[..], &["--dump", &dump, "--output", "json"], more].concat());
    let usual = ask(&[]);
    assert!(usual.len() < 30 << 20, "{} bytes", usual.len());
    let value = |text: &str| -> Value { serde_json::from_str(text).expect("JSON") };
    let answer = value(&usual);
    let told = answer["ways"].as_array().expect("ways").len() as u64;
    let (total, left_out) = (answer["ways_total"].as_u64(), answer["ways_left_out"].as_u64());
    assert!(total.is_some_and(|total| total > 5_000), "{total:?}");
    assert_eq!(left_out.map(|left_out| left_out + told), total);
    assert!((2..=1000).contains(&told), "{told}");
    let three = value(&ask(&["--full", "3"]));
    assert_eq!(three["ways"].as_array().map(Vec::len), Some(3));
    // Many packets share the room.
    let packets = folder.path().join("packets");
    let line = format!("{} {} {} {}\n", packet[0], packet[1], packet[2], packet[3]);
    std::fs::write(&packets, line.repeat(2)).expect("the scratch folder can be written to");
    let packets = packets.display().to_string();
    let list = [
        "--packets",
        &packets,
        "--dump",
        &dump,
        "--output",
        "json",
        "--local-address",
        "192.0.2.11",
    ];
    let list = print(&list);
    assert!(list.len() < 100 << 20, "{} bytes", list.len());
    let told = value(&list);
    let told = told
        .as_array()
        .expect("answers")
        .iter()
        .map(|one| one["answer"]["ways"].as_array().map_or(0, Vec::len));
    assert!(
        told.clone().all(|ways| ways > 0),
        "{:?}",
        told.collect::<Vec<_>>()
    );
}

#[test]
fn evaluated_rules_say_what_was_not_so() {
    let text = node_port(&[
        "--to",
        "10.96.0.10:9",
        "--local-address",
        "192.168.50.238",
        "--evaluated",
    ]);
    assert!(!lines_with(&text, "[no: destination]").is_empty(), "{text}");
    let text = node_port(&["--to", "10.96.0.10:9", "--local-address", "192.168.50.238"]);
    assert!(lines_with(&text, "[no:").is_empty());
}

#[test]
fn what_is_not_known_is_a_condition_in_text_and_json() {
    let text = node_port(&["--to", "192.168.50.238:9"]);
    assert_eq!(
        lines_with(&text, "if not: 192.168.50.238 is an address of this host").len(),
        1,
        "{text}"
    );
    let json = node_port(&["--to", "192.168.50.238:9", "--output", "json"]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    let condition = &answer["ways"][0]["conditions"][0];
    assert_eq!(
        condition["condition"],
        "192.168.50.238 is an address of this host"
    );
    assert_eq!(condition["holds"], true);
}

#[test]
fn json_has_packet_outcome_ways_and_steps() {
    let dump = dump("policy");
    let json = print(&[
        "--from",
        "10.244.1.5:5000",
        "--to",
        "10.96.40.7:80",
        "--local-address",
        "192.168.50.238",
        "--dump",
        &dump,
        "-o",
        "json",
    ]);
    let answer: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(answer["packet"]["from"], "10.244.1.5:5000");
    assert_eq!(answer["outcome"]["kind"], "delivered");
    assert_eq!(answer["outcome"]["endpoints"][0]["endpoint"], "10.244.1.15:8080");
    assert_eq!(answer["outcome"]["endpoints"][0]["masquerade"], false);
    let ways = answer["ways"].as_array().unwrap();
    assert_eq!(ways.len(), 4);
    assert_eq!(ways[2]["probability"], 0.5);
    assert_eq!(ways[2]["translated"], "10.244.1.15:8080");
    assert_eq!(ways[2]["end"]["kind"], "left");
    let steps = ways[2]["steps"].as_array().unwrap();
    let dnat = steps.iter().find(|step| step["did"] == "dnat").unwrap();
    assert_eq!(dnat["step"], "rule");
    assert_eq!(dnat["table"], "nat");
    assert_eq!(dnat["number"], 2);
    assert_eq!(dnat["after"], "10.244.1.15:8080");
}

#[test]
fn source_of_the_host_itself_goes_through_output() {
    let words = [
        "--to",
        "10.96.40.7:80",
        "--local-address",
        "192.168.50.238",
        "--dump",
    ];
    let dump = dump("policy");
    let ask = |from: &[&str]| print(&[from, &words, &[&dump]].concat());
    let hook = |text: &str| {
        lines_with(text, " nat ")[0]
            .split_whitespace()
            .next()
            .map(str::to_owned)
    };
    assert_eq!(
        hook(&ask(&["--from", "192.168.50.238"])).as_deref(),
        Some("OUTPUT")
    );
    assert_eq!(
        hook(&ask(&["--from", "10.244.1.5"])).as_deref(),
        Some("PREROUTING")
    );
    assert_eq!(
        hook(&ask(&["--from", "10.244.1.5", "--sent-here"])).as_deref(),
        Some("OUTPUT")
    );
    let arrives = ["--from", "192.168.50.238", "--in-interface", "lo"];
    assert_eq!(hook(&ask(&arrives)).as_deref(), Some("PREROUTING"));
}

#[test]
fn interfaces_and_routes_on_the_command_line_say_where_it_leaves() {
    let text = node_port(&[
        "--to",
        "10.244.1.9:80",
        "--interface",
        "eth0=192.168.50.238/24",
        "--route",
        "10.244.1.0/24 via 192.168.50.239 dev eth0",
    ]);
    assert_eq!(
        lines_with(&text, "=> leaves through eth0 by 192.168.50.239;").len(),
        1,
        "{text}"
    );
    let text = node_port(&[
        "--to",
        "10.9.9.9:80",
        "--interface",
        "eth0=192.168.50.238/24",
        "--route",
        "10.244.1.0/24 dev cni0",
    ]);
    assert_eq!(lines_with(&text, "=> no route: goes nowhere").len(), 1, "{text}");
}

#[test]
fn questions_that_cannot_be_answered_are_refused_with_the_reason() {
    let refused = |words: &[&str]| format!("{:#}", asked(words).unwrap_err());
    let two_families = refused(&["--from", "10.0.0.1", "--to", "[fd00::1]:80", "--dump", "-"]);
    assert!(two_families.contains("different families"), "{two_families}");
    let missing = refused(&[
        "--from",
        "10.0.0.1",
        "--to",
        "10.0.0.2:80",
        "--dump",
        "/no/such/file",
    ]);
    assert!(missing.contains("reading rules from /no/such/file"), "{missing}");
    let folder = tempfile::tempdir().unwrap();
    let write = |text: &str| {
        let path = folder.path().join("rules");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ask = |file: &str| refused(&["--from", "10.0.0.1", "--to", "10.0.0.2:80", "--dump", file]);
    assert!(ask(&write("hello\n")).contains("holds no table"));
    let broken = ask(&write("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT \"\nCOMMIT\n"));
    assert!(broken.contains("line 3"), "{broken}");
    assert!(refused(&["--from", "10.0.0.1", "--to", "10.0.0.2"]).contains("--to"));
}

#[test]
fn a_file_of_packets_is_answered_in_one_table_with_the_numbers_of_its_lines() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("packets");
    let packets = "# who asks DNS\n\n--from 10.244.1.7 --to 10.96.0.10:53 --proto udp\n\
                   --from 10.244.1.7:5000 --to 10.96.10.3:80 --sent-here\n";
    std::fs::write(&file, packets).expect("the scratch folder can be written to");
    let file = file.display().to_string();
    let dump = dump("clusterip");
    let words = ["--packets", &file, "--dump", &dump, "--width", "400"];
    let text = print(&words);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let dns = [
        "3",
        "udp 10.244.1.7:40000 -> 10.96.0.10:53",
        "10.244.1.2:53, 10.244.2.2:53",
        "1/2",
    ];
    assert!(dns.iter().all(|part| lines[1].contains(part)), "{text}");
    let empty = [
        "4",
        "tcp 10.244.1.7:5000 -> 10.96.10.3:80 from this host",
        "REJECT",
    ];
    assert!(empty.iter().all(|part| lines[2].contains(part)), "{text}");
    let answers: Value =
        serde_json::from_str(&print(&[&words[..], &["--output", "json"]].concat())).expect("JSON");
    assert_eq!(answers[1]["line"], 4);
    assert_eq!(answers[0]["answer"]["outcome"]["kind"], "delivered");
}

#[test]
fn what_is_no_packet_is_named_by_file_and_line_and_nothing_is_answered() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("packets");
    let packets = "--from 10.0.0.1 --to 10.96.0.10:53\n--from 10.0.0.1 --to 10.96.0.10\n\
                   --to 10.96.0.10:53\n--from fd00::1 --to 10.96.0.10:53\n--proto icmp\nnonsense\n";
    std::fs::write(&file, packets).expect("the scratch folder can be written to");
    let file = file.display().to_string();
    let error = asked(&["--packets", &file, "--dump", &dump("clusterip")]).expect_err("no packets");
    let error = error.to_string();
    let wrong = [
        "line 2: --to: the port is missing",
        "line 3: --from IP[:PORT] is missing",
        "line 4: --from fd00::1 and --to 10.96.0.10:53 are of different families",
        "line 5: invalid value 'icmp'",
        "line 6: unexpected argument 'nonsense'",
    ];
    for (line, words) in error.split("; ").zip(wrong) {
        assert!(line.starts_with(&file) && line.contains(words), "{line}");
    }
    assert_eq!(error.split("; ").count(), wrong.len(), "{error}");
}

#[test]
fn each_drawing_has_hooks_chains_rules_chances_and_what_nat_does() {
    let dump = dump("clusterip");
    for form in ["svg", "dot", "mermaid"] {
        let drawing = print(&[
            "--from",
            "10.244.1.7",
            "--to",
            "10.96.0.10:53",
            "--proto",
            "udp",
            "--in-interface",
            "cni0",
            "--local-address",
            "192.168.50.238",
            "--dump",
            &dump,
            "--output",
            form,
        ]);
        let parts = [
            "PREROUTING",
            "nat KUBE-SVC-2KKYJRIGYGQNRODB",
            "kubernetes service portals",
            "chance 1/2",
            "to 10.96.0.10:53 → 10.244.1.2:53",
            "to 10.96.0.10:53 → 10.244.2.2:53",
            "POSTROUTING",
            "leaves this host",
        ];
        for part in parts {
            assert!(drawing.contains(part), "{form} without {part}:\n{drawing}");
        }
        // What both ways have in common is drawn once.
        assert_eq!(
            drawing.matches("nat KUBE-POSTROUTING").count(),
            1,
            "{form}:\n{drawing}"
        );
    }
}
