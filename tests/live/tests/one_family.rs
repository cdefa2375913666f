//! Nodes with one family: IPv6 alone, and a host that has no tools for IPv6.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::{available, prefix, put_program};
use lab::{Lab, Node, Outside, Pod, PodNetwork, Port, Route, Sink, Topology};
use live::cluster::{self, CLIENT, NODE, tcp, web};
use live::daemon::{PATIENCE, Setup, binary, configuration};
use live::manifests::{Manifests, node, slice};
use live::{rules, within};
use model::Family;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

const NODE_V6: &str = "fd00:50::238";
const POD: &str = "fd00:10:244:1::3";

/// Nothing here has an IPv4 address, but for the loopback device.
fn ipv6_only() -> Lab {
    let net = |text: &str| text.parse().unwrap();
    let topology = Topology {
        nodes: vec![Node {
            name: NODE.to_owned(),
            addresses: vec![net(&format!("{NODE_V6}/64"))],
            pod_cidrs: vec![net("fd00:10:244:1::/64")],
            interfaces: vec![],
        }],
        pods: vec![Pod {
            name: "web-six".to_owned(),
            node: NODE.to_owned(),
            addresses: vec![POD.parse().unwrap()],
            network: PodNetwork::Own,
            ports: vec![Port::tcp(8080)],
            answers_as: None,
        }],
        outside: vec![Outside {
            name: CLIENT.to_owned(),
            addresses: vec![net("fd00:50::10/64")],
            routes: vec![Route {
                to: net("fd00:10:96::/112"),
                via: NODE.to_owned(),
            }],
            ports: vec![],
        }],
        sink: Some(Sink::default()),
        ..Topology::new(&prefix("sixonly"))
    };
    Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// A service of all kinds of frontend, whose load balancer is to ask this node for local endpoints.
fn six() -> Vec<Value> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "web"},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "fd00:10:96::80", "clusterIPs": ["fd00:10:96::80"],
            "ipFamilies": ["IPv6"], "externalTrafficPolicy": "Local", "healthCheckNodePort": 30256,
            "ports": [{"name": "p", "protocol": "TCP", "port": 80, "targetPort": 8080, "nodePort": 30080}],
        },
    });
    let mut slice = slice("web", 8080, &[(POD, NODE)]);
    slice["addressType"] = json!("IPv6");
    vec![node(NODE, &[NODE_V6]), service, slice]
}

#[test]
fn a_node_with_ipv6_alone_serves_cluster_ips_node_ports_and_health_ports() {
    if !available(&["ip6tables"]) {
        return;
    }
    let (lab, manifests) = (ipv6_only(), Manifests::new());
    manifests.put("web.json", &six());
    let mut setup = Setup::new(&lab, NODE, &manifests);
    // `primary` is the address that the Node has; without one of IPv4, nothing of IPv4 is meant by it.
    setup.config = configuration(&json!({
        "clusterCIDR": "fd00:10:244::/56",
        "nodePortAddresses": ["primary"],
    }));
    let daemon = setup.start();
    for to in ["[fd00:10:96::80]:80", "[fd00:50::238]:30080"] {
        let answered = within(PATIENCE, || {
            let outcome = lab.probe(CLIENT, tcp(to));
            outcome.is_ok_and(|outcome| outcome.answered_by() == Some("web-six"))
        });
        assert!(
            answered.is_some(),
            "{to} does not answer\n{}\nlog of the daemon:\n{}",
            rules::saved(&lab, NODE, Family::V6),
            daemon.log()
        );
    }
    // Without the source rewritten, as policy Local has it.
    let outcome = lab.probe(CLIENT, tcp("[fd00:50::238]:30080")).unwrap();
    assert_eq!(
        outcome.seen_client(),
        Some("fd00:50::10".parse().unwrap()),
        "{outcome:?}"
    );
    let answers = |from: &str, to: &str, path: &str, word: &str| {
        let mut last = String::new();
        let answered = within(PATIENCE, || {
            let answer = lab.http_get(from, to.parse().unwrap(), path, Duration::from_secs(3));
            last = format!("{answer:?}");
            answer.is_ok_and(|answer| answer.status == 200 && answer.body.contains(word))
        });
        assert!(answered.is_some(), "{to}{path}: {last}\n{}", daemon.log());
    };
    answers(CLIENT, "[fd00:50::238]:30256", "/", "\"localEndpoints\": 1");
    answers(CLIENT, "[fd00:50::238]:10256", "/healthz", "");
    answers(NODE, "127.0.0.1:10249", "/proxyMode", "iptables");
    let (four, six) = (
        rules::saved(&lab, NODE, Family::V4),
        rules::saved(&lab, NODE, Family::V6),
    );
    assert!(!four.contains("default/web"), "{four}");
    // The primary family's address, and no other, serves node ports.
    assert!(
        six.contains("-d fd00:50::238/128") && !six.contains("--dst-type LOCAL"),
        "{six}"
    );
    assert!(
        !daemon.log().contains("rules stay as they were"),
        "{}",
        daemon.log()
    );
}

/// A folder with iptables as the only tool. The one program behind all of them goes by their names alone.
fn only_iptables(folder: &Path) {
    let behind = fs::read("/usr/sbin/xtables-nft-multi").unwrap();
    put_program(&folder.join("iptables"), &behind);
    for tool in [
        "iptables-save",
        "iptables-restore",
        "iptables-nft",
        "iptables-nft-save",
        "iptables-nft-restore",
    ] {
        symlink("iptables", folder.join(tool)).unwrap();
    }
}

#[test]
fn without_ip6tables_ipv4_is_served_and_the_other_family_is_said_to_be_left_alone() {
    if !available(&["iptables", "unshare"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nosixt"), Manifests::new());
    manifests.put("web.json", &web(4));
    let tools = tempfile::tempdir().unwrap();
    only_iptables(tools.path());
    let config = manifests.file("config");
    fs::write(&config, configuration(&json!({})).to_string()).unwrap();
    let hide = format!(
        "mount --bind {} /usr/sbin && mount -t tmpfs none /usr/local/sbin && exec \"$@\"",
        tools.path().display()
    );
    let (program, folder, config) = (
        binary().to_string_lossy(),
        manifests.path().to_string_lossy(),
        config.to_string_lossy(),
    );
    let argv = [
        &["unshare", "--mount", "sh", "-c", &hide, "sh", "env", "NO_COLOR=1"][..],
        &[
            &*program,
            "--manifests",
            &*folder,
            "--config",
            &*config,
            "--hostname-override",
            NODE,
        ],
    ]
    .concat();
    let daemon = lab
        .spawn(NODE, &argv, "nosixt")
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let answered = within(PATIENCE, || {
        let outcome = lab.probe(CLIENT, tcp(cluster::WEB));
        outcome.is_ok_and(|outcome| outcome.answered_by().is_some_and(|name| name != "sink"))
    });
    assert!(
        answered.is_some(),
        "web does not answer; log of the daemon:\n{}",
        daemon.log()
    );
    let log = daemon.log();
    let said = log
        .lines()
        .any(|line| line.contains("left alone") && line.contains("IPv6") && line.contains("ip6tables"));
    assert!(said, "{log}");
    let healthy = within(PATIENCE, || {
        let answer = lab.http_get(
            NODE,
            "127.0.0.1:10256".parse().unwrap(),
            "/healthz",
            Duration::from_secs(3),
        );
        answer.is_ok_and(|answer| answer.status == 200)
    });
    assert!(healthy.is_some(), "{}", daemon.log());
    nothing_was_tried(&lab, Family::V6, &log);
}

#[track_caller]
fn nothing_was_tried(lab: &Lab, family: Family, log: &str) {
    let saved = rules::saved(lab, NODE, family);
    assert!(!saved.contains("KUBE-"), "{saved}");
    assert!(!log.contains("rules stay as they were"), "{log}");
}
