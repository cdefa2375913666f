//! `kube-proxy explain` at an API server that has Pods and policies of the network, which the proxy itself does not read.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// What is answered by path: a status and a document. Every other path is not found.
type Answers = BTreeMap<&'static str, (u16, Value)>;

/// A server of these answers; it ends with the test's process.
fn serve(answers: Answers) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = Arc::new(answers);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let answers = answers.clone();
            std::thread::spawn(move || talk(&stream.unwrap(), &answers));
        }
    });
    url
}

fn talk(stream: &TcpStream, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line);
        }
        let asked = lines[0].split([' ', '?']).nth(1).unwrap_or_default();
        let missing = (
            404,
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}),
        );
        let (status, body) = answers.get(asked).unwrap_or(&missing);
        let body = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut out = stream;
        if out.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

fn list(items: &[Value]) -> (u16, Value) {
    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
}

/// A Service of one pod, another of its name elsewhere, and a client.
fn cluster() -> Answers {
    let service = |namespace: &str, ip: &str| {
        json!({"metadata": {"name": "cart", "namespace": namespace}, "spec": {"type": "ClusterIP", "clusterIP": ip,
            "clusterIPs": [ip], "selector": {"app": "cart"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]}})
    };
    let slice = json!({"metadata": {"name": "cart-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"}},
        "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": ["10.42.1.5"], "conditions": {"ready": true}, "nodeName": "node-a"}]});
    let node = json!({"metadata": {"name": "node-a"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}});
    let pod = |name: &str, app: &str, ip: &str| {
        json!({"metadata": {"name": name, "namespace": "shop", "labels": {"app": app}}, "spec": {"nodeName": "node-a"},
            "status": {"podIP": ip, "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}})
    };
    let policy = json!({"metadata": {"name": "deny-all", "namespace": "shop"}, "spec": {"podSelector": {"matchLabels": {"app": "cart"}}}});
    BTreeMap::from([
        (
            "/api/v1/services",
            list(&[service("shop", "10.96.8.10"), service("prod", "10.96.8.11")]),
        ),
        ("/apis/discovery.k8s.io/v1/endpointslices", list(&[slice])),
        ("/api/v1/nodes", list(&[node])),
        (
            "/api/v1/namespaces/shop/pods",
            list(&[
                pod("web", "web", "10.42.1.77"),
                pod("cart-1", "cart", "10.42.1.5"),
            ]),
        ),
        (POLICIES, list(&[policy])),
    ])
}

const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies";

/// The answer of `explain` in JSON, its status, and what it says beside.
fn explain(answers: Answers, from: &str, to: &str) -> (Option<i32>, Value, String) {
    let url = serve(answers);
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args([
            "explain", "--master", &url, "--from", from, "--to", to, "--output", "json",
        ])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    let answer = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}{told}"));
    (output.status.code(), answer, told)
}

fn policies(answer: &Value) -> Vec<&str> {
    let remarks = answer["remarks"].as_array().unwrap().iter();
    let of_policies = remarks.filter(|remark| remark["id"] == "network-policy");
    of_policies
        .map(|remark| remark["what"].as_str().unwrap())
        .collect()
}

/// Of the namespace that a name without one is looked for in.
#[test]
fn pods_and_policies_of_the_service_that_a_bare_name_means_are_read() {
    let (code, answer, told) = explain(cluster(), "shop/web", "cart");
    assert_eq!((code, told.as_str()), (Some(0), ""), "{answer:#}");
    assert_eq!(answer["service"], "shop/cart");
    let told = policies(&answer);
    assert_eq!(told.len(), 1, "{answer:#}");
    assert!(
        told[0].starts_with("NetworkPolicy shop/deny-all selects 1 of the endpoints' pods"),
        "{told:?}"
    );
}

#[test]
fn policies_that_may_not_be_read_are_done_without() {
    let mut answers = cluster();
    let refused =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no"});
    answers.insert(POLICIES, (403, refused));
    let (code, answer, told) = explain(answers, "shop/web", "cart");
    assert_eq!(code, Some(0), "{answer:#}{told}");
    assert_eq!(policies(&answer), [""; 0]);
    assert!(
        told.contains(&format!("not allowed to read {POLICIES}")),
        "{told}"
    );
    let mut answers = cluster();
    answers.remove(POLICIES);
    let (code, answer, told) = explain(answers, "shop/web", "cart");
    assert_eq!((code, told.as_str()), (Some(0), ""), "{answer:#}");
}
