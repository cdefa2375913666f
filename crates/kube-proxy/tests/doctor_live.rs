//! `kube-proxy doctor` on hosts made of network namespaces: each harm that can be done there is found, and nothing is
//! changed by looking.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn available() -> bool {
    lab::live::available(&["iptables-nft", "iptables-legacy", "nft", "socat"])
}

/// A node: an uplink, a bridge with a pod's port, routes, settings, and the rules of a healthy node on `nf_tables`.
const NODE: &str = r#"
mount -t tmpfs none /run
hostname node-a
ip link set lo up
ip link add eth0 type veth peer name eth0-far
ip addr add 192.0.2.11/24 dev eth0
ip link add cni0 type bridge
ip addr add 10.244.1.1/24 dev cni0
ip link add veth1 type veth peer name veth1-pod
ip link set veth1 master cni0
ip link set veth1 type bridge_slave hairpin on
for link in eth0 eth0-far cni0 veth1 veth1-pod; do ip link set $link up; done
ip route add default via 192.0.2.1 dev eth0
ip route add 10.244.2.0/24 via 192.0.2.12 dev eth0
put() { if [ -e /proc/sys/$1 ]; then echo $2 > /proc/sys/$1; fi; }
put net/ipv4/ip_forward 1
put net/ipv4/conf/all/rp_filter 0
put net/ipv4/conf/all/route_localnet 1
put net/bridge/bridge-nf-call-iptables 1
put net/bridge/bridge-nf-call-ip6tables 1
iptables-nft-restore < "$RULES"
"#;

fn run(script: &str) -> Output {
    let rules = scenario::root().join("doctor/healthy-kubeadm-flannel/iptables-save.txt");
    Command::new("unshare")
        .args(["--net", "--mount", "--uts", "sh", "-ec", script])
        .arg(env!("CARGO_BIN_EXE_kube-proxy"))
        .env("RULES", rules)
        .output()
        .unwrap()
}

/// What a script prints at its end; its status is that of doctor.
fn said(script: &str) -> (Option<i32>, String) {
    let output = run(script);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code().is_some_and(|code| code < 2),
        "{script}\n{text}{errors}"
    );
    (output.status.code(), text)
}

/// The findings of a node to which something was done.
fn findings(harm: &str) -> (Option<i32>, Value) {
    let (code, text) = said(&format!("{NODE}\n{harm}\n\"$0\" doctor --output json"));
    (
        code,
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{err}: {text}")),
    )
}

fn ids(report: &Value) -> Vec<&str> {
    let all = report["findings"].as_array().unwrap();
    all.iter()
        .map(|finding| finding["id"].as_str().unwrap())
        .collect()
}

/// What is done, the kind that is found, and a word that has to be said.
const HARMS: [(&str, &str, &str); 17] = [
    (
        "sed s/10.244.1.5/10.244.1.77/g \"$RULES\" | iptables-legacy-restore",
        "both-backends",
        "legacy and nf_tables",
    ),
    (
        "iptables-nft -F FLANNEL-FWD; iptables-nft -P FORWARD DROP",
        "pod-traffic-dropped",
        "FORWARD policy",
    ),
    ("iptables-legacy -P FORWARD DROP", "pod-traffic-dropped", "legacy"),
    (
        "nft 'table inet firewall { chain f { type filter hook forward priority 10; policy accept; \
         ct state established,related accept; ct status dnat accept; reject with icmpx admin-prohibited; }; }'",
        "pod-traffic-rejected",
        "inet firewall",
    ),
    (
        "timeout 30 socat TCP-LISTEN:30050,fork /dev/null & sleep 1",
        "socket-shadowed",
        "socat",
    ),
    (
        "iptables-nft -t raw -A PREROUTING -d 10.96.7.50 -j CT --notrack",
        "untracked",
        "10.96.7.50",
    ),
    (
        "nft 'table ip shaper { chain f { type filter hook forward priority -150; tcp dport 443 meta mark set 0x1; }; }'",
        "mark-overlap",
        "table ip shaper",
    ),
    (
        "iptables-nft -t mangle -A PREROUTING -i eth0 -j MARK --set-xmark 0xca6c/0xffffffff",
        "mark-overlap",
        "0x4000",
    ),
    (
        "ip rule add not fwmark 0xca6c table 51820",
        "mark-overlap",
        "0xca6c",
    ),
    (
        "put net/ipv4/ip_forward 0",
        "not-forwarding",
        "net.ipv4.ip_forward",
    ),
    (
        "ip link add eth1 type veth peer name eth1-far; ip addr add 203.0.113.11/24 dev eth1; ip link set eth1 up; \
         put net/ipv4/conf/eth0/rp_filter 1; put net/ipv4/conf/eth1/rp_filter 1",
        "rp-filter",
        "eth1",
    ),
    (
        "ip link set veth1 type bridge_slave hairpin off",
        "hairpin-off",
        "veth1",
    ),
    ("ip route del default", "no-route", "10.96.0.0/12"),
    (
        "nft 'table ip kube-proxy { chain services { }; }'",
        "other-mode",
        "table ip kube-proxy",
    ),
    (
        "iptables-nft -t raw -A PREROUTING -p tcp --dport 80 -j TRACE",
        "trace-left",
        "raw PREROUTING",
    ),
    (
        "iptables-nft -F KUBE-FIREWALL",
        "localnet-exposed",
        "CVE-2020-8558",
    ),
    (
        "put net/ipv4/ip_local_port_range '1024 65535'",
        "local-port-range",
        "30050",
    ),
];

#[test]
fn a_healthy_node_has_nothing_to_report_and_each_harm_is_found() {
    if !available() {
        return;
    }
    let (code, report) = findings(":");
    assert_eq!((code, ids(&report)), (Some(0), vec![]), "{report:#}");
    for (harm, id, word) in HARMS {
        let (code, report) = findings(harm);
        assert_eq!(code, Some(1), "{harm}: {report:#}");
        let first = &report["findings"][0];
        assert_eq!(first["id"], id, "{harm}: {report:#}");
        assert!(first.to_string().contains(word), "{harm}: {first:#}");
    }
}

/// A kernel without `br_netfilter` has no such setting.
#[test]
fn frames_that_go_around_netfilter_are_found_where_the_kernel_can_tell() {
    if !available() {
        return;
    }
    let (_, report) = findings("put net/bridge/bridge-nf-call-iptables 0");
    assert_eq!(ids(&report), ["bridge-not-filtered"], "{report:#}");
}

/// Everything that looking might change. What the kernel does by itself soon after a link came up is left out: link-local
/// addresses, states of a bridge's ports, counters that an IGMP report moves.
const STATE: &str = "state() ( set +e; nft -s list ruleset; ip rule; ip -6 rule; ip -4 route show table all; ip -4 -br addr; \
                     ip -br link | cut -d ' ' -f 1; bridge -d link | grep -o 'hairpin [a-z]*'; \
                     cat /proc/net/ip_tables_names /proc/net/ip6_tables_names 2>/dev/null; sysctl -a 2>/dev/null | grep -e ip_forward \
                     -e rp_filter -e localnet -e bridge-nf -e conntrack_max; ls /run; true )";

#[test]
fn nothing_on_the_host_is_changed_by_looking() {
    if !available() {
        return;
    }
    for host in ["mount -t tmpfs none /run; put() { :; }", NODE] {
        let script = format!(
            "{host}\n{STATE}\nstate > /tmp/before.$$\n\"$0\" doctor > /tmp/out.$$ || true\nstate > /tmp/after.$$\n\
             diff /tmp/before.$$ /tmp/after.$$ > /tmp/diff.$$ && echo same; cat /tmp/diff.$$ /tmp/out.$$; rm -f /tmp/*.$$"
        );
        let output = run(&script);
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(text.starts_with("same\n"), "{text}{errors}");
        assert!(text.contains("seen "), "{text}");
    }
}

#[test]
fn what_was_saved_is_found_again_on_another_machine() {
    if !available() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node-a");
    let harm =
        "iptables-nft -F FLANNEL-FWD; iptables-nft -P FORWARD DROP; ip rule add fwmark 0x4000/0x4000 table 7";
    let save = format!("--save '{}'", path.display());
    let (code, text) = said(&format!("{NODE}\n{harm}\n\"$0\" doctor {save} --output json"));
    assert_eq!(code, Some(1), "{text}");
    let live: Value = serde_json::from_str(&text).unwrap();
    let from = from(&path);
    assert_eq!(from, live, "{from:#}\n{live:#}");
    assert_eq!(ids(&live), ["pod-traffic-dropped", "mark-overlap"]);
}

/// What a set holds decides what a rule does that asks it; it is read, told, kept for other machines, and as true for a trace.
#[test]
fn what_sets_of_ipset_hold_is_looked_at() {
    if !lab::live::available(&["iptables-nft", "iptables-legacy", "nft", "ipset"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let packet = "--from 10.244.1.254 --to 10.96.7.50:80 --in-interface cni0";
    for (blocked, outcome, found) in [
        (
            "203.0.113.0/24",
            "Outcome: 10.244.1.5:8080, 10.244.2.9:8080",
            &[][..],
        ),
        ("10.244.1.0/24", "Outcome: DROP", &["pod-traffic-dropped"]),
    ] {
        let harm = format!(
            "ipset create blocked hash:net; ipset add blocked {blocked}\n\
             iptables-nft -I FORWARD -m set --match-set blocked src -j DROP"
        );
        let path = folder.path().join(&blocked[..3]);
        let (_, text) = said(&format!(
            "{NODE}\n{harm}\n\"$0\" trace {packet} | sed -n 2p\n\"$0\" doctor --save '{}' --output json || true",
            path.display()
        ));
        let (traced, report) = text.split_once('\n').unwrap();
        assert_eq!(traced, outcome, "{text}");
        let live: Value = serde_json::from_str(report).unwrap();
        assert_eq!(ids(&live), found, "{live:#}");
        assert_eq!(from(&path), live);
    }
    let before = folder.path().join("10.");
    assert!(before.join("ipset-save.txt").exists());
    // A tool that refuses is no reason to say nothing of the rest, and what was kept of an earlier look is none of this one.
    let (_, text) = said(&format!(
        "{NODE}\nipset create blocked hash:net\niptables-nft -I FORWARD -m set --match-set blocked src -j DROP\n\
         mkdir /run/bin\nprintf '#!/bin/sh\\necho no rights >&2; exit 1\\n' > /run/bin/ipset\nchmod +x /run/bin/ipset\n\
         PATH=/run/bin:$PATH\n\"$0\" trace {packet} 2>&1 | head -3\n\"$0\" doctor --save '{}' || true",
        before.display()
    ));
    assert!(!before.join("ipset-save.txt").exists());
    for words in [
        "which could not be read, so that what hangs on them stays open: ipset save failed: no rights",
        "Outcome depends: 10.244.1.5:8080, 10.244.2.9:8080; or DROP",
        "unseen  sets of ipset, which rules ask: ipset save failed: no rights",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

fn from(folder: &Path) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_kube-proxy"))
        .args(["doctor", "--output", "json", "--from"])
        .arg(folder)
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn without_rights_it_says_so_and_does_not_call_the_host_healthy() {
    if !available() {
        return;
    }
    let script = format!(
        "{NODE}\nexec setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all \"$0\" doctor"
    );
    let output = run(&script);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("not allowed: reading rules needs root"), "{text}");
    assert_ne!(output.status.code(), Some(0), "{text}");
}
