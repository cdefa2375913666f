//! What another mode of kube-proxy left goes after our rules are in, never before, and new connections do not notice.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, CLIENT, NFTABLES_MODE, NODE, WEB, shell, tcp, web};
use live::daemon::{Daemon, PATIENCE, Setup};
use live::manifests::Manifests;
use live::stubs::{Misbehaviour, Stubs};
use live::traffic::{all_answered, on_web, rules_say, web_answers};
use live::{rules, within};
use model::Family;
use std::time::Duration;

/// What ipvs mode leaves of what this kernel has: chains of its own, jumps, and sets that rules name.
const IPVS_MODE: &str = "
ipset create KUBE-CLUSTER-IP hash:ip,port
ipset add KUBE-CLUSTER-IP 10.1.0.80,tcp:80
ipset create KUBE-IPVS-IPS hash:ip
ipset create KUBE-NODE-PORT-TCP bitmap:port range 0-65535
ipset create KUBE-6-CLUSTER-IP hash:ip,port family inet6
ipset create STRANGERS hash:ip
iptables-nft -t nat -N KUBE-SERVICES
iptables-nft -t nat -N KUBE-NODE-PORT
iptables-nft -t nat -N KUBE-LOAD-BALANCER
iptables-nft -t nat -N KUBE-MARK-MASQ
iptables-nft -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES
iptables-nft -t nat -A KUBE-SERVICES -s 127.0.0.0/8 -j RETURN
iptables-nft -t nat -A KUBE-SERVICES -m set --match-set KUBE-CLUSTER-IP dst,dst -j KUBE-LOAD-BALANCER
iptables-nft -t nat -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODE-PORT
iptables-nft -t nat -A KUBE-NODE-PORT -p tcp -m set --match-set KUBE-NODE-PORT-TCP dst -j KUBE-MARK-MASQ
iptables-nft -t nat -A KUBE-LOAD-BALANCER -j KUBE-MARK-MASQ
iptables-nft -N KUBE-IPVS-FILTER
iptables-nft -N KUBE-IPVS-OUT-FILTER
iptables-nft -N KUBE-NODE-PORT
iptables-nft -A INPUT -m comment --comment 'kubernetes ipvs access filter' -j KUBE-IPVS-FILTER
iptables-nft -A OUTPUT -m comment --comment 'kubernetes ipvs access filter' -j KUBE-IPVS-OUT-FILTER
iptables-nft -A INPUT -m comment --comment 'kubernetes health check rules' -j KUBE-NODE-PORT
iptables-nft -A KUBE-IPVS-FILTER -m set --match-set KUBE-CLUSTER-IP dst,dst -j RETURN
iptables-nft -A KUBE-IPVS-FILTER -m conntrack --ctstate NEW -m set --match-set KUBE-IPVS-IPS dst -j REJECT
iptables-nft -A INPUT -m set --match-set STRANGERS src -j DROP
";

fn nft(lab: &Lab, text: &str) {
    shell(lab, &format!("nft -f - <<'EOF'\n{text}\nEOF"));
}

fn tables(lab: &Lab) -> Vec<String> {
    let all = shell(lab, "nft list tables");
    all.lines().map(str::to_owned).collect()
}

fn waits(what: &str, daemon: &Daemon, is_true: impl FnMut() -> bool) {
    let reached = within(PATIENCE * 2, is_true);
    assert!(reached.is_some(), "{what}; log of the daemon:\n{}", daemon.log());
}

const OURS: &str = "table ip kube-proxy";

#[test]
fn the_table_of_nftables_mode_goes_after_our_rules_are_in_and_no_connection_is_refused() {
    if !available(&["iptables-nft", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("tomode"), Manifests::new());
    nft(&lab, NFTABLES_MODE);
    assert!(tables(&lab).iter().any(|table| table == OURS));
    let probe = || lab.probe(CLIENT, tcp(WEB).within(Duration::from_secs(1)));
    let served = within(PATIENCE, || {
        probe().is_ok_and(|outcome| outcome.answered_by().is_some())
    });
    assert!(served.is_some(), "nftables mode does not serve in this lab");
    let prober = on_web(&lab);

    manifests.put("web.json", &web(2));
    // Nothing can be written yet.
    let stubs = Stubs::new(&["iptables-nft-restore"], Misbehaviour::Fails);
    stubs.on("iptables-nft-restore");
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment.push(("PATH", stubs.path()));
    let daemon = setup.start();
    waits("nothing was tried", &daemon, || {
        stubs.calls("iptables-nft-restore") > 1
    });
    assert!(
        tables(&lab).iter().any(|table| table == OURS),
        "the table went too early"
    );

    stubs.off("iptables-nft-restore");
    rules_say(&lab, "default/web", &daemon);
    waits("the table stays", &daemon, || {
        let left = tables(&lab);
        !left.iter().any(|table| table.ends_with(" kube-proxy"))
    });
    assert!(rules::saved(&lab, NODE, Family::V4).contains("default/web"));
    assert!(tables(&lab).contains(&"table inet strangers".to_owned()));
    std::thread::sleep(Duration::from_secs(1));
    all_answered(prober, 200);
}

#[test]
fn what_ipvs_mode_left_goes_and_a_strangers_set_stays() {
    if !available(&["iptables-nft", "nft", "ipset"]) {
        return;
    }
    for mode in ["iptables", "nftables"] {
        what_ipvs_mode_left_goes_in(mode);
    }
}

fn what_ipvs_mode_left_goes_in(mode: &str) {
    let (lab, manifests) = (cluster::up("ipvs"), Manifests::new());
    shell(&lab, IPVS_MODE);
    manifests.put("web.json", &web(2));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config["mode"] = mode.into();
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    waits("sets stay", &daemon, || {
        shell(&lab, "ipset list -n").trim() == "STRANGERS"
    });
    let saved = rules::saved(&lab, NODE, Family::V4);
    for gone in [
        "KUBE-IPVS",
        "KUBE-NODE-PORT ",
        "KUBE-LOAD-BALANCER",
        "KUBE-CLUSTER-IP",
    ] {
        assert!(!saved.contains(gone), "{gone} in:\n{saved}");
    }
    assert!(saved.contains("--match-set STRANGERS src -j DROP"), "{saved}");
    // Nobody takes the removal for somebody else's damage.
    assert!(
        !daemon.log().contains("changed by somebody else"),
        "{}",
        daemon.log()
    );
}
