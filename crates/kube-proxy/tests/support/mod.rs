//! What tests of `trace --live` share: a namespace with a node in it, and scripts that run there.

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
