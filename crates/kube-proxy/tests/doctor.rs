//! `kube-proxy doctor` on files that somebody mailed: what it prints, how it ends, and what damaged files do to it.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use apiserver::{Options, Server};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

fn doctor(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .arg("doctor")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn scenario(path: &str) -> String {
    scenario::root().join(path).to_string_lossy().into_owned()
}

/// A folder with the files of a case, of which the mended twins are left out.
fn mailed(case: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for file in fs::read_dir(scenario(case)).unwrap() {
        let path: PathBuf = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.contains("-fixed") && !name.starts_with("expect") {
            fs::copy(&path, folder.path().join(name)).unwrap();
        }
    }
    folder
}

fn from(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let path = folder.to_string_lossy();
    let mut args = vec!["--from", &*path];
    args.extend(more);
    doctor(&args)
}

#[test]
fn a_finding_is_status_1_with_what_why_and_what_to_do() {
    let folder = mailed("cases/19-forward-policy-drop-hits-only-unmarked");
    let (code, out, err) = from(folder.path(), &[]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert_eq!(out.lines().next(), Some("1 FAULT on node-a"), "{out}");
    for word in [
        "FAULT   pod traffic to services is dropped by the FORWARD policy",
        "\nwhy     ",
        "\ndo      ",
        "\nseen    ",
    ] {
        assert!(out.contains(word), "{out}");
    }
    assert!(!out.contains('\u{1b}'), "no terminal, no colours");
}

#[test]
fn nothing_to_report_is_status_0_and_healthy_only_if_all_was_seen() {
    let folder = mailed("doctor/healthy-kubeadm-flannel");
    let (code, out, err) = from(folder.path(), &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(
        out.starts_with("HEALTHY AS FAR AS SEEN: nothing to report of node-a"),
        "{out}"
    );
    assert!(
        out.contains("unseen  tables of nftables: what nft list ruleset"),
        "{out}"
    );
    fs::write(folder.path().join("nft-ruleset.txt"), "table inet mine {\n}\n").unwrap();
    let (code, out, _) = from(folder.path(), &[]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.starts_with("HEALTHY: nothing to report of node-a"), "{out}");
    assert!(!out.contains("unseen"), "{out}");
}

/// Each part that something is looked for in is missed when it is not there, and its absence is no health.
#[test]
fn a_part_that_was_not_given_is_told_and_the_host_is_not_plainly_healthy() {
    let whole = mailed("doctor/healthy-kubeadm-flannel");
    let rules = fs::read_to_string(whole.path().join("iptables-save.txt")).unwrap();
    let facts = fs::read_to_string(whole.path().join("node.yaml")).unwrap();
    let without_table = |table: &str| -> String {
        let mut tables = rules.split_inclusive("COMMIT\n");
        let kept = tables
            .by_ref()
            .filter(|text| !text.contains(&format!("*{table}\n")));
        kept.collect()
    };
    let without_facts = |key: &str| -> String {
        let mut is_in = false;
        let lines = facts.lines().filter(|line| {
            if !line.starts_with([' ', '-']) {
                is_in = line.starts_with(key);
            }
            !is_in
        });
        lines.collect::<Vec<_>>().join("\n") + "\n"
    };
    for (rules, facts, told, wanted) in [
        (without_table("filter"), facts.clone(), "table filter of IPv4", 2),
        (without_table("nat"), facts.clone(), "table nat of IPv4", 2),
        (rules.clone(), without_facts("interfaces"), "interfaces", 0),
        (rules.clone(), without_facts("routes"), "routes", 0),
        (rules.clone(), without_facts("sysctl"), "sysctls", 0),
        (
            rules.clone(),
            "hostname: node-a\n".to_owned(),
            "interfaces, routes, sysctls",
            0,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("iptables-save.txt"), rules).unwrap();
        fs::write(folder.path().join("node.yaml"), facts).unwrap();
        let (code, out, _) = from(folder.path(), &[]);
        assert_eq!(code, Some(wanted), "{told}: {out}");
        assert!(out.contains(&format!("unseen  {told}:")), "{told}: {out}");
        assert!(!out.starts_with("HEALTHY:"), "{told}: {out}");
    }
}

#[test]
fn nothing_to_look_at_is_status_2_and_one_line_that_says_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    for (folder, word) in [
        (empty.path(), "--save DIR"),
        (Path::new("/no/such/folder"), "/no/such/folder"),
    ] {
        let (code, out, err) = from(folder, &[]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.lines().count() == 1 && err.contains(word), "{err}");
    }
}

#[test]
fn every_case_fits_80_columns_and_ends_as_its_findings_say() {
    let mut seen = 0;
    for case in fs::read_dir(scenario("doctor")).unwrap() {
        let name = case.unwrap().file_name().to_string_lossy().into_owned();
        let folder = mailed(&format!("doctor/{name}"));
        let (code, out, err) = from(folder.path(), &[]);
        let wanted = i32::from(!name.starts_with("healthy-"));
        assert_eq!((code, err.as_str()), (Some(wanted), ""), "{name}: {out}");
        let is_long = |line: &&str| line.chars().count() > 80 && line.trim_start().contains(' ');
        let long: Vec<&str> = out.lines().filter(is_long).collect();
        assert!(long.is_empty(), "{name}: {long:?}");
        seen += 1;
    }
    assert!(seen >= 36, "only {seen} cases were found");
}

#[test]
fn programs_read_json_with_stable_names() {
    let folder = mailed("doctor/08-node-port-of-the-api-server");
    let (code, out, _) = from(folder.path(), &["--output", "json"]);
    assert_eq!(code, Some(1), "{out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let finding = &report["findings"][0];
    assert_eq!(
        (&finding["id"], &finding["severity"]),
        (&json!("socket-shadowed"), &json!("warning"))
    );
    assert_eq!(finding["advice"][0]["field"], "spec.ports[].nodePort");
    assert_eq!(
        finding["objects"][0],
        json!({"kind": "Service", "namespace": "shop", "name": "cart"})
    );
    assert_eq!(report["examined"], true);
    let mut keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "examined", "findings", "headline", "host", "not_seen", "remarks", "seen"
        ]
    );
}

#[test]
fn objects_come_from_manifests_too_and_the_mode_from_a_flag() {
    let folder = mailed("doctor/healthy-kubeadm-flannel");
    let objects = scenario("doctor/09-node-has-another-name/objects.yaml");
    let (code, out, _) = from(folder.path(), &["--manifests", &objects]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("no Node is called node-a"), "{out}");
    let (code, out, _) = from(
        folder.path(),
        &["--manifests", &objects, "--node", "node-a.example.com"],
    );
    assert_eq!(code, Some(0), "{out}");
    let folder = mailed("doctor/10-two-modes-at-once");
    let (_, out, _) = from(folder.path(), &["--proxy-mode", "nftables"]);
    assert!(
        out.contains("mode iptables left its rules on this host, where mode nftables serves"),
        "{out}"
    );
}

/// What is damaged is told, what is whole still counts, and nothing steers the terminal.
#[test]
fn damaged_files_are_told_and_the_rest_is_examined() {
    let folder = mailed("cases/19-forward-policy-drop-hits-only-unmarked");
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("nft-ruleset.json", b"{\"nftables\": [{\"chain\": ");
    put(
        "ip6tables-save.txt",
        b"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j \xff\xfe\x1b[2J\x00\n",
    );
    put("iptables-legacy-save.txt", &[0; 4096]);
    put(
        "sysctl.txt",
        b"\x1b]0;owned\x07 = \x1b[31m\nnet.ipv4.ip_forward=0\n",
    );
    put("ip-route.txt", b"default via nowhere\n");
    put("facts\x1b[2J.yaml", b"hostname: [");
    let (code, out, err) = from(folder.path(), &[]);
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    assert!(out.contains("dropped by the FORWARD policy"), "{out}");
    assert!(out.contains("net.ipv4.ip_forward is 0"), "{out}");
    for word in [
        "nft-ruleset.json",
        "the end of ip6tables-save.txt",
        "ip-route.txt",
        "yaml",
    ] {
        assert!(out.lines().any(|line| line.contains(word)), "{word}: {out}");
    }
    assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
}

/// What nobody could read is no healthy host.
#[test]
fn rubbish_in_place_of_a_dump_is_not_called_healthy() {
    let noise: Vec<u8> = (0..20_000_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    for bytes in [
        noise.as_slice(),
        b"*filter\n:FORWARD ACC",
        b"<html>\n<body>502</body>\n",
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("iptables-save.txt"), bytes).unwrap();
        fs::write(folder.path().join("sysctl.txt"), &noise).unwrap();
        let (code, out, _) = from(folder.path(), &[]);
        assert_eq!(code, Some(2), "{out}");
        assert!(out.contains("NOT EXAMINED") && out.contains("COMMIT"), "{out}");
        assert!(out.contains("sysctl.txt"), "{out}");
    }
}

/// `iptables-save` ends well when it leaves out a table that it has no words for.
#[test]
fn a_table_that_iptables_leaves_out_is_told_unless_nft_lists_it() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    put(
        "iptables-save.txt",
        "# Table `filter' is incompatible, use 'nft' tool.\n*nat\n:PREROUTING ACCEPT [0:0]\nCOMMIT\n",
    );
    let told = "table filter of iptables-save.txt";
    let (_, out, _) = from(folder.path(), &[]);
    assert!(out.contains(told), "{out}");
    put("nft-ruleset.txt", "table ip filter {\n}\n");
    let (_, out, _) = from(folder.path(), &[]);
    assert!(!out.contains(told), "{out}");
}

/// kube-proxy never has chains in nat alone.
#[test]
fn a_table_filter_that_was_not_given_is_told_where_kube_proxy_has_chains_in_nat() {
    let folder = tempfile::tempdir().unwrap();
    let nat = |chain: &str| format!("*nat\n:PREROUTING ACCEPT [0:0]\n:{chain} - [0:0]\nCOMMIT\n");
    let told = "table filter of IPv4";
    for (text, is_told) in [
        (nat("KUBE-SERVICES"), true),
        (nat("CNI-HOSTPORT-DNAT"), false),
        (
            format!("{}*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n", nat("KUBE-SERVICES")),
            false,
        ),
    ] {
        fs::write(folder.path().join("iptables-save.txt"), &text).unwrap();
        let (_, out, _) = from(folder.path(), &[]);
        assert_eq!(out.contains(told), is_told, "{text}{out}");
    }
}

#[test]
fn names_of_others_never_reach_a_terminal_raw() {
    let folder = tempfile::tempdir().unwrap();
    let facts = json!({
        "hostname": "node\u{1b}[2Ja",
        "kernel": "6.1\u{7}.0",
        "broken": {"iptables-nft": "\u{1b}[31mtable `nat' is incompatible\nFAULT   forged"},
        "listening": [{"port": 30050, "process": "\u{1b}]0;x\u{7}\nevil"}],
        "sysctl": {"net.ipv4.ip_forward": 0},
    });
    fs::write(folder.path().join("facts.yaml"), facts.to_string()).unwrap();
    let dump = scenario("doctor/healthy-kubeadm-flannel/iptables-save.txt");
    fs::copy(dump, folder.path().join("iptables-save.txt")).unwrap();
    for width in ["40", "80", "0"] {
        let (code, out, _) = from(folder.path(), &["--width", width]);
        assert_eq!(code, Some(1), "{out}");
        assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
        assert!(
            !out.lines().any(|line| line.starts_with("FAULT   forged")),
            "{out}"
        );
    }
}

/// A dump of 20,000 Services is examined in seconds; how many is for the bench.
#[test]
fn a_large_dump_is_read_to_its_end() {
    let folder = mailed("cases/19-forward-policy-drop-hits-only-unmarked");
    let path = folder.path().join("iptables-save.txt");
    let small = fs::read_to_string(&path).unwrap();
    let rule = |i: usize| {
        format!(
            "-A KUBE-SERVICES -d 10.{}.{}.{}/32 -p tcp -m comment --comment \"ns/s{i}:http cluster IP\" -m tcp --dport 80 -j \
             KUBE-SVC-I5LIAMPLWKMBJ54B\n",
            97 + i / 65_536,
            i / 256 % 256,
            i % 256
        )
    };
    let more: String = (0..20_000).map(rule).collect();
    let at = small.find("-A KUBE-SERVICES -m comment").unwrap();
    fs::write(&path, format!("{}{more}{}", &small[..at], &small[at..])).unwrap();
    let begun = Instant::now();
    let (code, out, _) = from(folder.path(), &[]);
    assert_eq!(code, Some(1), "{out}");
    assert!(out.contains("20025 rules of IPv4"), "{out}");
    println!("{:?} for 20,000 Services", begun.elapsed());
}

#[test]
fn objects_come_from_the_api_server() {
    let server = Server::start(Options::default());
    server.apply(apiserver::objects::node("node-a.example.com", "192.0.2.11"));
    let folder = mailed("doctor/healthy-kubeadm-flannel");
    let (code, out, err) = from(folder.path(), &["--master", &server.url]);
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("hostname-override=node-a.example.com"), "{out}");
    server.close();
    let (code, out, err) = from(folder.path(), &["--master", &server.url]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(err.contains("/api/v1/services"), "{err}");
}
