//! `kube-proxy verify` and `kube-proxy diff`: what they print, how they end, and what they make of broken input.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use apiserver::{Options, Server};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn scenario(path: &str) -> String {
    scenario::root().join(path).to_string_lossy().into_owned()
}

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn ended(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A golden cluster on its node.
fn cluster(name: &str) -> [String; 6] {
    [
        "--manifests".to_owned(),
        scenario(&format!("golden/{name}/cluster.json")),
        "--node".to_owned(),
        "node-a".to_owned(),
        "--cluster-cidr".to_owned(),
        "10.244.0.0/16".to_owned(),
    ]
}

fn verify(name: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let cluster = cluster(name);
    let args: Vec<&str> = ["verify"]
        .into_iter()
        .chain(cluster.iter().map(String::as_str))
        .chain(more.iter().copied())
        .collect();
    ended(&run(&args))
}

fn written(folder: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_string_lossy().into_owned()
}

fn golden_rules(name: &str) -> String {
    fs::read_to_string(scenario(&format!("golden/{name}/iptables.txt"))).unwrap()
}

/// The lines that are wanted, by number from 0 and text.
fn kept(text: &str, wanted: impl Fn(usize, &str) -> bool) -> String {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(number, line)| wanted(*number, line));
    let lines: Vec<&str> = lines.map(|(_, line)| line).collect();
    lines.join("\n") + "\n"
}

/// Without the one rule that translates to an endpoint, with a rule that should not be there.
fn damaged(folder: &Path) -> String {
    let whole = golden_rules("policy");
    let lost = "-A KUBE-SEP-3XXQZGTLXSR5S3XM -p tcp";
    let kept = whole.lines().filter(|line| !line.starts_with(lost));
    let mut text = String::new();
    for line in kept {
        text.push_str(line);
        text.push('\n');
        if line.starts_with("-A KUBE-MARK-MASQ") {
            text.push_str("-A KUBE-MARK-MASQ -s 203.0.113.7/32 -j ACCEPT\n");
        }
    }
    written(folder, "damaged.txt", text)
}

#[test]
fn a_host_as_wanted_is_status_0_and_says_what_was_compared() {
    let [v4, v6] = ["iptables", "ip6tables"].map(|name| scenario(&format!("golden/policy/{name}.txt")));
    let (code, out, _) = verify("policy", &["--dump", &v4, "--dump", &v6]);
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.starts_with("SAME: the rules are what they should be\n"),
        "{out}"
    );
    assert!(
        out.contains("10 Services") && out.contains("node-a (iptables mode)"),
        "{out}"
    );
}

#[test]
fn differences_are_status_1_under_their_service_port_and_fit_the_width() {
    let folder = tempfile::tempdir().unwrap();
    let dump = damaged(folder.path());
    let (code, out, _) = verify("policy", &["--dump", &dump]);
    assert_eq!(code, Some(1), "{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "DIFFERS: 2 differences in the part of all Services and 1 service port (IPv4)",
            "the dump's rules against the objects (10 Services) on node-a (iptables mode)",
            "- should be there and is not, + is there and should not be",
            "",
            "all Services (IPv4)",
            "  nat chain KUBE-MARK-MASQ changed (the mark of what is masqueraded)",
            "    + rule 2: -s 203.0.113.7/32 -j ACCEPT",
            "",
            "default/both-local:http (IPv4)",
            "  nat chain KUBE-SEP-3XXQZGTLXSR5S3XM changed (endpoint 10.244.1.12:8080)",
            "    - -p tcp -m tcp -j DNAT --to-destination 10.244.1.12:8080",
        ]
    );
    let (_, narrow, _) = verify("policy", &["--dump", &dump, "--width", "50"]);
    assert!(narrow.lines().all(|line| line.chars().count() <= 50), "{narrow}");
}

#[test]
fn programs_read_json_with_stable_names() {
    let folder = tempfile::tempdir().unwrap();
    let dump = damaged(folder.path());
    let (code, out, _) = verify("policy", &["--dump", &dump, "--output", "json"]);
    assert_eq!(code, Some(1), "{out}");
    let verdict: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(verdict["same"], false);
    let difference = &verdict["families"][0]["differences"][1];
    assert_eq!(
        difference["owner"],
        json!({"kind": "port", "port": "default/both-local:http"})
    );
    assert_eq!(
        (
            &difference["table"],
            &difference["kind"],
            &difference["name"],
            &difference["what"]
        ),
        (
            &json!("nat"),
            &json!("chain"),
            &json!("KUBE-SEP-3XXQZGTLXSR5S3XM"),
            &json!("changed")
        )
    );
    assert_eq!(difference["lines"][0]["sign"], "missing");
    assert_eq!(
        verdict["families"][0]["differences"][0]["owner"],
        json!({"kind": "node"})
    );
}

#[test]
fn a_large_drift_is_cut_unless_all_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let whole = golden_rules("policy");
    let cut = kept(&whole, |_, line| !line.starts_with("-A KUBE-"));
    let dump = written(folder.path(), "cut.txt", cut);
    let (code, out, _) = verify("policy", &["--dump", &dump]);
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("--all prints them") && out.lines().count() < 100,
        "{out}"
    );
    let (_, all, _) = verify("policy", &["--dump", &dump, "--all"]);
    assert!(
        !all.contains("--all prints them") && all.lines().count() > out.lines().count(),
        "{all}"
    );
}

#[test]
fn what_cannot_be_compared_is_status_2_and_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, text: &[u8]| written(folder.path(), name, text);
    let broken = golden_rules("policy").replace("-A KUBE-MARK-MASQ", "-Z KUBE-MARK-MASQ");
    let number = broken.lines().position(|line| line.starts_with("-Z")).unwrap() + 1;
    let broken = of("broken.txt", broken.as_bytes());
    let cut = kept(&golden_rules("policy"), |number, _| number < 30);
    let cut = of("cut.txt", cut.as_bytes());
    let empty = of("empty.txt", b"");
    let binary = of("binary.bin", &(0..=255).cycle().take(20_000).collect::<Vec<u8>>());
    let steering = of(
        "steer.txt",
        b"*nat\n:\x1b]0;owned\x07 - [0:0]\n-A \x1b[2J -j ACCEPT\nCOMMIT\n",
    );
    let table = of(
        "table.txt",
        b"table ip kube-proxy {\n\tchain services {\n\t\tjump\n",
    );
    let json = of("table.json", b"{\"nftables\": [{\"metainfo\": {}}, {\"table\": ");
    for (dump, words) in [
        (
            &broken,
            format!("broken.txt, line {number}: not a rule of iptables-save"),
        ),
        (&cut, "cut.txt does not end with COMMIT".to_owned()),
        (&empty, "empty.txt holds no table".to_owned()),
        (&binary, "binary.bin".to_owned()),
        (&steering, "steer.txt, line 2".to_owned()),
        (
            &table,
            "table.txt is not what nft list ruleset prints: line".to_owned(),
        ),
        (&json, "table.json is not what nft list ruleset prints".to_owned()),
        (&"/nonexistent".to_owned(), "/nonexistent".to_owned()),
    ] {
        let (code, out, err) = verify("policy", &["--dump", dump]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{dump}: {err}");
        let last = err.lines().last().unwrap();
        assert!(
            last.starts_with("kube-proxy: ") && last.contains(&words),
            "{dump}: {err}"
        );
        assert!(
            !err.chars().any(|c| c.is_control() && c != '\n'),
            "{dump}: {err:?}"
        );
        assert!(last.chars().count() < 600, "{last}");
    }
}

#[test]
fn the_kind_of_dump_and_the_mode_have_to_fit() {
    let rules = scenario("golden/policy/iptables.txt");
    let (code, _, err) = verify("policy", &["--dump", &rules, "--proxy-mode", "nftables"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("give what nft list ruleset prints"), "{err}");
    let (code, _, err) = ended(&run(&["verify", "--dump", "-", "--manifests", "-"]));
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("standard input can be read once"), "{err}");
}

/// Case 22, and the same rules with a hole.
#[test]
fn without_objects_a_dump_is_held_against_what_it_says_itself() {
    let dump = scenario("cases/22-notrack-hides-packets-from-nat/iptables-save-both.txt");
    let (code, out, err) = ended(&run(&["verify", "--dump", &dump]));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.starts_with("SAME") && out.contains("notrack") && out.contains("10.96.0.10:53/udp"),
        "{out}"
    );
    let folder = tempfile::tempdir().unwrap();
    let text = fs::read_to_string(&dump).unwrap();
    let holed = text.replace("-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0\n", "");
    assert_ne!(holed, text);
    let holed = written(folder.path(), "holed.txt", holed);
    let (code, out, _) = ended(&run(&["verify", "--dump", &holed]));
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.contains("nat chain KUBE-POSTROUTING changed (masquerading)"),
        "{out}"
    );
}

#[test]
fn objects_come_from_the_api_server() {
    let server = Server::start(Options::default());
    server.apply(apiserver::objects::service("web", "10.96.0.8"));
    server.apply(apiserver::objects::node("node-a", "192.0.2.11"));
    let rules = scenario("golden/seed-frontend/iptables.txt");
    let ask = || {
        ended(&run(&[
            "verify",
            "--master",
            &server.url,
            "--node",
            "node-a",
            "--dump",
            &rules,
            "--all",
        ]))
    };
    let (code, out, err) = ask();
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(
        out.contains("default/web") && out.contains("10.96.0.8/32"),
        "{out}"
    );
    server.close();
    let (code, out, err) = ask();
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
}

fn transition(name: &str, file: &str) -> String {
    scenario(&format!("transitions/{name}/{file}.yaml"))
}

fn diff(args: &[&str]) -> (Option<i32>, String, String) {
    let args: Vec<&str> = ["diff"].into_iter().chain(args.iter().copied()).collect();
    ended(&run(&args))
}

#[test]
fn diff_tells_what_becomes_of_traffic_between_two_sets_of_manifests() {
    let (before, after) = (
        transition("policy-flipped", "before"),
        transition("policy-flipped", "after"),
    );
    let args = [
        &*before,
        &*after,
        "--cluster-cidr",
        "10.244.0.0/16",
        "--node",
        "node-a",
    ];
    let (code, out, err) = diff(&args);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert!(out.starts_with("DIFFERS: traffic changes in 1 place\n"), "{out}");
    assert!(
        out.contains("shop/web:http\n  node port 30080/TCP from outside: loses 10.244.2.10:8080"),
        "{out}"
    );
    assert!(!out.contains("KUBE-"), "{out}");
    let (_, out, _) = diff(&[&args[..], &["--rules"]].concat());
    assert!(
        out.contains("nat chain KUBE-EXT-") && out.contains("is new"),
        "{out}"
    );
    let (_, out, _) = diff(&[&args[..], &["--output", "json"]].concat());
    let outcome: Value = serde_json::from_str(&out).unwrap();
    let change = &outcome["families"][0]["changes"][0];
    assert_eq!(
        (&outcome["same"], &change["owner"]),
        (&json!(false), &json!("shop/web:http"))
    );
    let detail = &change["details"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["sender"] == "outside")
        .unwrap();
    assert_eq!(detail["before"]["masqueraded"], true);
    assert_eq!(
        detail["after"],
        json!({"fate": "endpoints", "endpoints": ["10.244.1.10:8080"], "masqueraded": false})
    );
    let (code, out, _) = diff(&[&before, &before, "--node", "node-a"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(
        out.starts_with("SAME: nothing becomes otherwise for traffic"),
        "{out}"
    );
}

#[test]
fn diff_compares_two_nodes_on_the_same_objects() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(
        transition("policy-flipped", "after"),
        folder.path().join("all.yaml"),
    )
    .unwrap();
    let other = "{apiVersion: v1, kind: Node, metadata: {name: node-b}, status: {addresses: [{type: InternalIP, address: 192.0.2.12}]}}";
    written(folder.path(), "other.yaml", other);
    let objects = folder.path().to_string_lossy();
    let (code, out, err) = diff(&["--manifests", &objects, "--node", "node-a", "--node", "node-b"]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("from node node-a to node node-b"), "{out}");
    let (code, out, _) = diff(&["--manifests", &objects, "--node", "node-a", "--node", "node-a"]);
    assert_eq!(code, Some(0), "{out}");
    let (code, _, err) = diff(&["--manifests", &objects, "--node", "node-a"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("give --node twice"), "{err}");
}

/// What is left out of objects is told of the side that has them.
#[test]
fn diffs_notes_name_the_side_that_they_are_about() {
    let folder = tempfile::tempdir().unwrap();
    let service = |name: &str, ip: &str, more: &str| {
        format!(
            "---\nkind: Service\napiVersion: v1\nmetadata: {{namespace: shop, name: {name}}}\n\
             spec: {{clusterIP: {ip}, clusterIPs: [{ip}], ports: [{{port: 80}}]{more}}}\n"
        )
    };
    let node = |name: &str| format!("---\nkind: Node\napiVersion: v1\nmetadata: {{name: {name}}}\n");
    let claim = ", externalIPs: [192.0.2.80]";
    let nodes = [node("node-a"), node("node-b")].concat();
    let good = service("cart", "10.96.8.10", claim);
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = write("whole.yaml", &[&*nodes, &*good].concat());
    let bad = write(
        "bad.yaml",
        &[&*nodes, &*service("cart", "10.96.8.300", "")].concat(),
    );
    let both = [&*nodes, &*good, &*service("till", "10.96.8.11", claim)].concat();
    let both = write("both.yaml", &both);
    let starts_of = |args: &[&str]| -> Vec<String> {
        let (_, _, err) = diff(args);
        let starts = err.lines().filter_map(|line| line.split_once("): "));
        let starts: BTreeSet<String> = starts.map(|(start, _)| format!("{start})")).collect();
        let without = err.lines().filter(|line| line.starts_with("note: "));
        starts.into_iter().chain(without.map(str::to_owned)).collect()
    };
    let on = ["--node", "node-a"];
    assert_eq!(
        starts_of(&[&[&*bad, &*whole][..], &on].concat()),
        [format!("note (before: {bad})")]
    );
    assert_eq!(
        starts_of(&[&[&*whole, &*both][..], &on].concat()),
        [format!("note (after: {both})")]
    );
    assert_eq!(
        starts_of(&["--manifests", &both, "--node", "node-a", "--node", "node-b"]),
        ["note (after: node node-b)", "note (before: node node-a)"]
    );
}

#[test]
fn diff_compares_dumps_with_each_other_and_with_objects() {
    let folder = tempfile::tempdir().unwrap();
    let whole = scenario("golden/policy/iptables.txt");
    let text = golden_rules("policy");
    let damaged = kept(&text, |_, line| !line.starts_with("-A KUBE-SEP-3XXQZGTLXSR5S3XM"));
    let damaged = written(folder.path(), "damaged.txt", damaged);
    let (code, out, _) = diff(&[&whole, &whole]);
    assert_eq!(code, Some(0), "{out}");
    let (code, out, err) = diff(&[&whole, &damaged]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert!(
        out.contains("default/both-local:http") && out.contains("10.244.1.12:8080"),
        "{out}"
    );
    assert!(out.contains("traffic changes in 1 place"), "{out}");
    let objects = scenario("golden/policy/cluster.json");
    let cidr = ["--cluster-cidr", "10.244.0.0/16", "--node", "node-a"];
    let (code, out, err) = diff(&[&[&*objects, &*whole][..], &cidr].concat());
    assert_eq!(code, Some(0), "{out}{err}");
    let foreign = written(
        folder.path(),
        "foreign.txt",
        "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n",
    );
    let (code, out, err) = diff(&[&whole, &foreign]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("no rule of it is about a Service"), "{err}");
}
