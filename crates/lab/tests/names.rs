//! Names in a lab: pods resolve them as pods do, and the machine as it always did.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::fs;
use std::net::IpAddr;

use lab::dns::{self, Dns};
use lab::{Lab, live, seed};
use serde_json::{Value, json};

const POD: &str = "sender-a";

fn objects(services: &[(&str, &str)]) -> Value {
    let items: Vec<Value> = services
        .iter()
        .map(|(name, ip)| {
            json!({"kind": "Service", "metadata": {"namespace": "default", "name": name},
                "spec": {"clusterIP": ip, "clusterIPs": [ip]}})
        })
        .collect();
    json!({"items": items})
}

/// The address that a pod's resolver gives a name, if any. Options are `RES_OPTIONS` of resolv.conf(5).
fn resolved(lab: &Lab, name: &str, options: &str) -> Option<String> {
    let options = format!("RES_OPTIONS={options}");
    let finished = lab
        .exec(POD, &["env", &options, "getent", "ahostsv4", name])
        .unwrap();
    let first = finished.stdout.split_whitespace().next();
    first.map(str::to_owned)
}

#[test]
fn pods_resolve_names_by_their_own_resolv_conf_and_follow_the_objects() {
    if !live::available(&[dns::PROGRAM, "unshare"]) {
        return;
    }
    let before = fs::read("/etc/resolv.conf").ok();
    let lab = Lab::up(&seed::topology_for_dns(&live::prefix("names"))).unwrap();
    // Without a proxy there is no Service: the server is asked at its own address.
    let server: IpAddr = "10.244.2.2".parse().unwrap();
    let mut dns = Dns::start(&lab, &["kube-dns-b"], server, &objects(&[("web", "10.1.0.1")])).unwrap();
    let inside = lab.must_exec(POD, &["cat", "/etc/resolv.conf"]).unwrap();
    assert_eq!(inside, dns::resolv_conf(server));
    for name in ["web", "web.default", "web.default.svc.cluster.local"] {
        for options in ["", "use-vc"] {
            assert_eq!(
                resolved(&lab, name, options).as_deref(),
                Some("10.1.0.1"),
                "{name} {options}"
            );
        }
    }
    let asked = dns.new_queries();
    assert!(
        asked.iter().all(|query| query.client.to_string() == "10.244.1.7"),
        "{asked:?}"
    );
    assert!(
        asked
            .iter()
            .any(|query| query.name == "web.default.default.svc.cluster.local"),
        "{asked:?}"
    );

    assert_eq!(dns.new_queries(), []);

    assert_eq!(resolved(&lab, "cart", ""), None);
    dns.publish(&objects(&[("cart", "10.1.0.2")])).unwrap();
    assert_eq!(resolved(&lab, "cart", "").as_deref(), Some("10.1.0.2"));
    assert_eq!(resolved(&lab, "web", ""), None, "it is gone");

    // By the command line too, whose end is the command's.
    let exec = |command: &str| {
        let words = format!("exec --prefix {} {POD} -- {command}", lab.topology().prefix);
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        lab::cli::run(&words, &[])
    };
    assert_eq!(exec("getent hosts cart.default"), 0);
    assert_eq!(exec("getent hosts web"), 2);

    // A node's process has the machine's files, and those are what they were.
    let on_node = lab.exec(seed::NODE_A, &["cat", "/etc/resolv.conf"]).unwrap();
    assert_eq!(Some(on_node.stdout.into_bytes()), before.clone());
    assert_eq!(fs::read("/etc/resolv.conf").ok(), before);
}

#[test]
fn server_that_does_not_start_says_why() {
    if !live::available(&[dns::PROGRAM]) {
        return;
    }
    // The lab's own servers have the port.
    let lab = Lab::up(&seed::topology(&live::prefix("namesbusy"))).unwrap();
    let server: IpAddr = "10.244.2.2".parse().unwrap();
    let Err(error) = Dns::start(&lab, &["kube-dns-b"], server, &objects(&[])) else {
        panic!("two servers at one port");
    };
    assert!(error.chain().contains("in use"), "{}", error.chain());
}
