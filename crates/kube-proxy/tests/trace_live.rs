//! `trace --live`: real packets of a namespace, in both modes; what is broken by hand is found, and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use serde_json::Value;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// A node with an uplink whose neighbour is known, and rules of the cluster `clusterip`. `$0` is the binary under test.
const NODE: &str = r#"
mount -t tmpfs none /run
ip link set lo up
ip link add up0 type veth peer name wire
ip addr add 192.168.50.238/24 dev up0
ip link set up0 up
ip link set wire up
ip route add default via 192.168.50.1 dev up0
ip neigh add 192.168.50.1 lladdr 02:00:00:00:00:01 dev up0
cd "$(mktemp -d)"
trap 'rm -rf "$PWD"' EXIT
render() {
    "$0" render --manifests "$CASE/cluster.json" --node node-a --node-address 192.168.50.238/24 \
        --cluster-cidr 10.244.0.0/16 "$@" 2>/dev/null
}
iptables_mode() {
    # Accounting objects are the daemon's to make.
    render --family ipv4 | grep -v nfacct > rules
    iptables-nft-restore < rules
}
nftables_mode() {
    render --proxy-mode nftables > rules
    nft -f rules
}
# Waits until our own table is there.
followed() {
    for _ in $(seq 200); do
        nft list tables | grep -q kube-proxy-trace && return 0
        sleep 0.05
    done
    return 1
}
ask() {
    echo hi | socat -u - "UDP:10.96.0.10:53,sourceport=$1"
}
# Follows three packets to the DNS service while they are sent.
three() {
    "$0" trace --live --to 10.96.0.10:53 --proto udp --count 3 --for 20s --output json --check "$@" > told 2> said &
    tracer=$!
    followed
    for port in 5001 5002 5003; do ask "$port"; done
    status=0
    wait "$tracer" || status=$?
    cat told
    echo "$status"
    cat said >&2
}
"#;

fn sh(script: &str) -> Output {
    let root = rustix::process::geteuid().is_root();
    Command::new("unshare")
        .args([
            if root { "-nm" } else { "-Urnm" },
            "bash",
            "-euc",
            &format!("{NODE}{script}"),
        ])
        .arg(env!("CARGO_BIN_EXE_kube-proxy"))
        .env("CASE", scenario::root().join("golden/clusterip"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn said(script: &str) -> String {
    let output = sh(script);
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{script}: {error}\n{text}");
    text
}

/// Whether all this can be done here. With `KPRS_REQUIRE_LIVE` set it must.
fn available() -> bool {
    let output = sh("nft list ruleset; iptables-nft -S; socat -V >/dev/null");
    let works = output.status.success();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        works || std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
        "{error}"
    );
    if !works {
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(
            std::io::stderr(),
            "SKIPPED: packets cannot be followed here: {error}"
        );
    }
    works
}

/// The packets, and the exit status.
fn followed(script: &str) -> (Vec<Value>, String) {
    let text = said(script);
    let (packets, status): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    let packets = packets.iter().map(|line| serde_json::from_str(line).unwrap());
    (packets.collect(), status.concat())
}

fn words<'a>(packet: &'a Value, field: &str) -> Vec<&'a str> {
    let steps = packet["steps"].as_array().unwrap().iter();
    steps.filter_map(|step| step[field].as_str()).collect()
}

#[test]
fn packets_are_told_rule_by_rule_with_what_nat_made_of_them_and_trace_gives_their_ways() {
    if !available() {
        return;
    }
    for (mode, masquerade) in [
        ("iptables_mode", "-j MASQUERADE --random-fully"),
        ("nftables_mode", "masquerade fully-random"),
    ] {
        let (packets, status) = followed(&format!(
            "{mode}\nthree --manifests \"$CASE/cluster.json\"\n! nft list tables | grep kube-proxy-trace"
        ));
        assert_eq!((packets.len(), status.as_str()), (3, "0"), "{mode}");
        for (packet, port) in packets.iter().zip(["5001", "5002", "5003"]) {
            assert_eq!(packet["check"]["result"], "agrees", "{packet}");
            assert_eq!(packet["check"]["probability"], 0.5, "{packet}");
            assert_eq!(packet["from"], format!("192.168.50.238:{port}"), "{packet}");
            assert_eq!(packet["service"], "kube-system/dns:dns", "{packet}");
            assert_eq!(
                packet["endpoint"], "an endpoint of kube-system/dns:dns",
                "{packet}"
            );
            let to = packet["to_after"].as_str().unwrap();
            assert!(["10.244.1.2:53", "10.244.2.2:53"].contains(&to), "{packet}");
            assert_eq!(packet["out_interface"], "up0", "{packet}");
            // The port is the masquerade's choice: it is seen behind source NAT, or not at all.
            assert_ne!(packet["from"], packet["from_after"], "{packet}");
            let texts = words(packet, "text");
            assert!(texts.iter().any(|text| text.contains(masquerade)), "{packet}");
            // What NAT made of it is told of the rule that did it.
            let steps = packet["steps"].as_array().unwrap();
            let dnat = steps
                .iter()
                .find(|step| step["to_after"] == packet["to_after"])
                .unwrap();
            assert!(
                dnat["text"].as_str().unwrap().to_lowercase().contains("dnat"),
                "{packet}"
            );
        }
    }
}

#[test]
fn a_rule_that_was_broken_by_hand_after_the_dump_is_a_disagreement() {
    if !available() {
        return;
    }
    let broken = [
        // Of both endpoints, one gets another port.
        "iptables_mode\niptables-nft-save > dump\n\
         sed '/udp.*DNAT --to-destination 10.244..*:53$/ s/:53$/:54/' dump > other\n\
         iptables-nft-restore < other",
        "nftables_mode\nnft list ruleset > dump\n\
         sed 's/: 10.244.1.2 . 53/: 10.244.1.2 . 54/; s/: 10.244.2.2 . 53/: 10.244.2.2 . 54/' dump > other\n\
         nft flush ruleset\nnft -f other",
    ];
    for script in broken {
        let (packets, status) = followed(&format!("{script}\nthree --dump dump"));
        assert_eq!((packets.len(), status.as_str()), (3, "1"), "{script}");
        for packet in &packets {
            assert_eq!(packet["check"]["result"], "disagrees", "{packet}");
            let why = packet["check"]["why"].as_str().unwrap();
            assert!(why.contains("54") && why.contains("trace expects"), "{why}");
        }
        // Over the rules as they are, nothing is strange.
        let (packets, status) = followed(&format!("{script}\nthree"));
        assert_eq!((packets.len(), status.as_str()), (3, "0"), "{script}");
    }
}

#[test]
fn killed_it_leaves_nothing_behind() {
    if !available() {
        return;
    }
    let text = said(
        "iptables_mode\n\"$0\" trace --live --for 60s &\ntracer=$!\nfollowed\nnft list tables\n\
         kill -9 $tracer\nwait $tracer || true\nfor _ in $(seq 100); do\n\
         nft list tables | grep -q kube-proxy-trace || exit 0\nsleep 0.05\ndone\nexit 1",
    );
    assert!(text.contains("table ip kube-proxy-trace"), "{text}");
    assert!(text.contains("table ip6 kube-proxy-trace"), "{text}");
}

#[test]
fn it_ends_in_time_and_says_that_nothing_came_by() {
    if !available() {
        return;
    }
    let output = sh("nftables_mode\nexec timeout 20 \"$0\" trace --live --to 10.96.0.10 --for 300ms");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("no packet came by"), "{error}");
}

#[test]
fn rules_that_iptables_legacy_keeps_are_refused_and_why() {
    if !available() {
        return;
    }
    let output = sh(
        "iptables-legacy -t nat -N KUBE-MARK-MASQ\niptables-legacy -t nat -A OUTPUT -j KUBE-MARK-MASQ\n\
         iptables-legacy -t mangle -N KUBE-IPTABLES-HINT\nexec \"$0\" trace --live --to 10.96.0.10:53 --for 1s",
    );
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("kept by iptables-legacy"), "{error}");
}
