//! What tests of `trace --live` share: a namespace with a node in it, and scripts that run there.

use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// An uplink whose neighbour is known, and a folder to write in. `$0` is the binary under test, `$CASE` the cluster `clusterip`.
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
# Rules of iptables. Accounting objects are the daemon's to make.
rules() {
    render --family ipv4 | grep -v nfacct > rules
}
# Whoever sends what is dropped is told so.
ask() {
    echo hi | socat -u - "UDP:10.96.0.10:53,sourceport=$1" || true
}
"#;

/// Runs a script in namespaces of its own; `unshared` says which, as options of `unshare`.
pub fn sh(unshared: &str, script: &str) -> Output {
    Command::new("unshare")
        .args([unshared, "bash", "-euc", &format!("{NODE}{script}")])
        .arg(env!("CARGO_BIN_EXE_kube-proxy"))
        .env("CASE", scenario::root().join("golden/clusterip"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// What is told of the packet from `port` to the DNS service, whoever translated it: it goes to one of two endpoints as the
/// rules say, and both ends of it are rewritten.
pub fn is_told_of_dns(packet: &Value, port: &str) {
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
    // The port is the masquerade's choice: conntrack knows it or source NAT shows it, or nothing does.
    assert_ne!(packet["from"], packet["from_after"], "{packet}");
}
