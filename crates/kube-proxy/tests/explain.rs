//! `kube-proxy explain`: what it prints, how it ends, and where objects come from.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use apiserver::{Options, Server};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn scenario(path: &str) -> String {
    scenario::root().join(path).to_string_lossy().into_owned()
}

fn explain(args: &[&str], input: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command.arg("explain").args(args);
    match input {
        Some(path) => command.stdin(fs::File::open(path).unwrap()),
        None => command.stdin(Stdio::null()),
    };
    command.output().unwrap()
}

fn ended(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

const CRASHING: &str = "explain/02-crash-looping-pods/objects.yaml";
const RUNNING: &str = "explain/02-crash-looping-pods/objects-fixed.yaml";

#[test]
fn a_finding_is_status_1_and_the_cause_is_the_first_line() {
    let args = [
        "--manifests",
        &scenario(CRASHING),
        "--to",
        "shop/cart",
        "--from",
        "pod:10.244.1.9",
    ];
    let (code, out, err) = ended(&explain(&args, None));
    assert_eq!((code, err.as_str()), (Some(1), ""), "{out}");
    let first = out.lines().next().unwrap();
    assert_eq!(
        first,
        "NOT REACHABLE: none of the 2 endpoints of Service shop/cart is ready"
    );
    assert!(
        out.contains("CrashLoopBackOff") && out.contains("kubectl describe pod -n shop cart-1"),
        "{out}"
    );
}

#[test]
fn nothing_to_report_is_status_0() {
    let args = [
        "--manifests",
        &scenario(RUNNING),
        "--to",
        "cart.shop.svc:http",
        "--from",
        "pod:10.244.1.9",
    ];
    let (code, out, err) = ended(&explain(&args, None));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("REACHABLE: nothing to report"), "{out}");
}

#[test]
fn no_answer_is_status_2_and_one_line_that_says_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let facts = folder.path().join("facts.yaml");
    fs::write(&facts, "adresses: [192.0.2.11/24]\n").unwrap();
    let facts = facts.to_string_lossy();
    let objects = scenario(RUNNING);
    let questions: [(&[&str], &str); 4] = [
        (&["--to", "shop/cart"], "nothing to look at"),
        (
            &["--manifests", &objects, "--to", "shop/cart", "--facts", &facts],
            "adresses",
        ),
        (
            &["--manifests", "-", "--dump", "-", "--to", "shop/cart"],
            "standard input can be read once",
        ),
        (
            &["--manifests", "/nonexistent", "--to", "shop/cart"],
            "/nonexistent",
        ),
    ];
    for (args, word) in questions {
        let (code, out, err) = ended(&explain(args, None));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.lines().count() == 1 && err.contains(word), "{args:?}: {err}");
    }
}

/// Not a finding: another question would have to be asked.
#[test]
fn what_cannot_be_decided_is_status_2_with_a_screen_that_says_what_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let cart = scenario("explain/13-node-port-addresses/objects.yaml");
    fs::copy(cart, folder.path().join("cart.yaml")).unwrap();
    let node = "{apiVersion: v1, kind: Node, metadata: {name: node-a}, \
                status: {addresses: [{type: InternalIP, address: 192.0.2.11}]}}";
    fs::write(folder.path().join("node.yaml"), node).unwrap();
    let objects = folder.path().to_string_lossy().into_owned();
    let ask = |from: &str, to: &str, more: &[&str]| {
        let args = ["--manifests", &objects, "--from", from, "--to", to];
        ended(&explain(&[&args[..], more].concat(), None))
    };
    let (code, out, _) = ask("outside", "198.51.100.99:30080", &["--node", "node-a"]);
    assert_eq!(code, Some(2), "{out}");
    assert!(
        out.starts_with("NO ANSWER: nobody is known to have 198.51.100.99"),
        "{out}"
    );
    let (code, out, _) = ask(
        "outside",
        "198.51.100.99:30080",
        &["--node", "node-a", "--output", "json"],
    );
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &answer["reachable"]), (Some(2), &json!("unknown")));
    let (code, out, err) = ask("pod", "shop/cart", &["--node", "node-x"]);
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    assert!(
        err.contains("there is no Node node-x; the Nodes are: node-a"),
        "{err}"
    );
}

#[test]
fn the_page_without_sources_says_what_to_give() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    let (code, out, err) = ended(&command.arg("explore").stdin(Stdio::null()).output().unwrap());
    assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
    for word in ["--manifests", "--kubeconfig", "--dump", "kube-proxy explore"] {
        assert!(err.contains(word), "{word}: {err}");
    }
}

#[test]
fn objects_and_dumps_are_read_from_standard_input() {
    let args = [
        "--manifests",
        "-",
        "--to",
        "shop/cart",
        "--from",
        "pod:10.244.1.9",
    ];
    let (code, out, _) = ended(&explain(&args, Some(&scenario(CRASHING))));
    assert_eq!(code, Some(1), "{out}");
    let case = "cases/19-forward-policy-drop-hits-only-unmarked";
    let facts = scenario(&format!("{case}/node.yaml"));
    let args = [
        "--dump",
        "-",
        "--facts",
        &facts,
        "--from",
        "pod:10.244.1.6",
        "--to",
        "10.96.7.50:80",
    ];
    let (code, out, _) = ended(&explain(
        &args,
        Some(&scenario(&format!("{case}/iptables-save.txt"))),
    ));
    assert_eq!(code, Some(1), "{out}");
    assert!(
        out.starts_with("NOT REACHABLE: the policy of filter FORWARD drops the packet"),
        "{out}"
    );
}

/// firewalld lets through what a Service translated, and refuses pods' own addresses.
#[test]
fn a_table_of_nftables_that_refuses_is_named_beside_rules_of_iptables() {
    let case = "cases/29-firewall-accepts-only-translated-packets";
    let file = |name: &str| scenario(&format!("{case}/{name}"));
    let (rules, tables, facts) = (
        file("iptables-save.txt"),
        file("nft-ruleset.txt"),
        file("node.yaml"),
    );
    let ask = |to: &str| {
        let from = [
            "--dump",
            &rules,
            "--dump",
            &tables,
            "--facts",
            &facts,
            "--from",
            "pod:10.244.1.6",
        ];
        ended(&explain(&[&from[..], &["--to", to]].concat(), None))
    };
    let (code, out, _) = ask("10.244.2.9:8080");
    assert_eq!(code, Some(1), "{out}");
    let first = out.lines().next().unwrap();
    assert!(
        first.contains("inet firewalld filter_FWD_public rule 2 refuses the packet"),
        "{out}"
    );
    let (code, out, _) = ask("10.96.7.50:80");
    assert_eq!(code, Some(0), "{out}");
}

#[test]
fn a_screen_fits_80_columns_and_has_no_colours_where_no_terminal_is() {
    let folders = fs::read_dir(scenario("explain")).unwrap();
    let mut seen = 0;
    for folder in folders.map(|entry| entry.unwrap().path()) {
        let objects: PathBuf = folder.join("objects.yaml");
        let objects = objects.to_string_lossy();
        let args = [
            "--manifests",
            &objects,
            "--node",
            "node-a",
            "--to",
            "shop/cart",
            "--from",
            "pod:10.244.1.9",
        ];
        let (_, out, _) = ended(&explain(&args, None));
        assert!(!out.contains('\u{1b}'), "{out}");
        // A word that is longer than a line, such as an address in a command, is not broken.
        let is_long = |line: &&str| line.chars().count() > 80 && line.trim_start().contains(' ');
        let long: Vec<&str> = out.lines().filter(is_long).collect();
        assert!(long.is_empty(), "{}: {long:?}", folder.display());
        assert!(out.lines().count() <= 45, "more than a screen:\n{out}");
        seen += 1;
    }
    assert!(seen >= 20, "only {seen} cases were found");
}

#[test]
fn programs_read_json_with_stable_names() {
    let args = [
        "--manifests",
        &scenario(CRASHING),
        "--to",
        "shop/cart:80",
        "--from",
        "pod:10.244.1.9",
        "--output",
        "json",
    ];
    let (code, out, _) = ended(&explain(&args, None));
    assert_eq!(code, Some(1), "{out}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["reachable"], "no");
    assert_eq!(answer["verdict"], "REJECT");
    assert_eq!(answer["service"], "shop/cart");
    let finding = &answer["findings"][0];
    assert_eq!(
        (&finding["id"], &finding["severity"]),
        (&json!("not-ready"), &json!("fault"))
    );
    assert_eq!(
        finding["objects"][1],
        json!({"kind": "Pod", "namespace": "shop", "name": "cart-1"})
    );
    assert_eq!(finding["advice"][0]["field"], "status.conditions[Ready]");
    let keys: Vec<&String> = answer.as_object().unwrap().keys().collect();
    for key in [
        "addresses",
        "client",
        "endpoints",
        "failing",
        "findings",
        "from",
        "headline",
        "mode",
        "next",
        "node",
        "packet",
        "reachable",
        "remarks",
        "rules",
        "rules_are",
        "service",
        "to",
        "verdict",
    ] {
        assert!(keys.iter().any(|has| *has == key), "{key} is missing in {keys:?}");
    }
}

#[test]
fn objects_come_from_the_api_server_those_too_that_the_proxy_does_not_watch() {
    let server = Server::start(Options::default());
    let labelled = json!({"service.kubernetes.io/service-proxy-name": "mesh"});
    let mut other = apiserver::objects::service("other", "10.96.0.7");
    other["metadata"]["labels"] = labelled;
    server.apply(other);
    server.apply(apiserver::objects::service("web", "10.96.0.8"));
    server.apply(apiserver::objects::node("node-a", "192.0.2.11"));
    let ask = |to: &str| {
        ended(&explain(
            &["--master", &server.url, "--from", "node", "--to", to],
            None,
        ))
    };
    let (code, out, err) = ask("other");
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(out.contains("service-proxy-name"), "{out}");
    let (code, out, err) = ask("web");
    assert_eq!(code, Some(1), "{out}{err}");
    assert!(
        out.starts_with("NOT REACHABLE: Service default/web has no selector"),
        "{out}"
    );
    server.close();
    let (code, _, err) = ask("web");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("/api/v1/services"), "{err}");
}
