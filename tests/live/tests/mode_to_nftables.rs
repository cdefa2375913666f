//! From iptables mode to nftables mode and back under traffic: what the other mode left goes after this mode's rules are in,
//! never before; nobody is refused, connections live on, and sources are rewritten by whichever mark they got.

use kernel::Backend;
use lab::Lab;
use lab::live::available;
use live::api::{Api, Writes};
use live::cluster::{self, NODE, shell, web};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::everybody::{Everybody, objects};
use live::manifests::Manifests;
use live::small_server::SmallServer;
use live::{rules, within};
use model::Family;
use serde_json::{Value, json};
use std::time::Duration;

/// Rules of others that stay, on the backend of `TOOL`.
const STRANGERS: &str = "
TOOL -t nat -N CNI-HOSTPORT-DNAT
TOOL -t nat -A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
TOOL -t mangle -N KUBE-IPTABLES-HINT
TOOL -N KUBE-FIREWALL
TOOL -A INPUT -j KUBE-FIREWALL";

/// A change of mode, there and back.
struct Change<'a> {
    lab: &'a Lab,
    backend: Backend,
    /// `nftables.masqueradeBit`; iptables mode has 14.
    bit: u32,
}

impl Change<'_> {
    fn config(&self, mode: &str) -> Value {
        configuration(&json!({
            "mode": mode,
            "iptables": {"minSyncPeriod": "50ms", "syncPeriod": "10m", "masqueradeBit": 14},
            "nftables": {"minSyncPeriod": "50ms", "syncPeriod": "10m", "masqueradeBit": self.bit},
        }))
    }

    fn start(&self, mode: &str, server: &SmallServer) -> Daemon {
        let url = server.url();
        let mut setup = Setup::of_server(self.lab, NODE, &url);
        setup.config = self.config(mode);
        let lock = self
            .lab
            .folder()
            .join("xtables.lock")
            .to_string_lossy()
            .into_owned();
        setup.environment = vec![("XTABLES_LOCKFILE", lock)];
        setup.start()
    }

    /// Chains of iptables mode that are there, on this backend.
    fn chains(&self) -> Vec<String> {
        let saved = Family::ALL.map(|family| rules::saved_by(self.lab, NODE, family, self.backend));
        let chains = saved.iter().flat_map(|saved| saved.lines());
        let chains = chains.filter(|line| line.starts_with(":KUBE-"));
        let chains = chains.filter(|line| !line.contains("HINT") && !line.contains("FIREWALL - "));
        chains.map(str::to_owned).collect()
    }

    /// The tables of nftables mode that are there.
    fn tables(&self) -> Vec<String> {
        let all = shell(self.lab, "nft list tables");
        all.lines()
            .filter(|line| line.ends_with(" kube-proxy"))
            .map(str::to_owned)
            .collect()
    }
}

fn waits(what: &str, daemon: &Daemon, is_true: impl FnMut() -> bool) {
    let reached = within(PATIENCE * 2, is_true);
    assert!(reached.is_some(), "{what}; log of the daemon:\n{}", daemon.log());
}

fn there_and_back(stem: &str, backend: Backend, bit: u32) {
    let lab = cluster::up(stem);
    let change = Change {
        lab: &lab,
        backend,
        bit,
    };
    let tool = match backend {
        Backend::NfTables => "iptables-nft",
        Backend::Legacy => "iptables-legacy",
    };
    shell(&lab, &STRANGERS.replace("TOOL", tool));
    let mut server = SmallServer::away(&lab, NODE, 8001, &objects(2));
    server.comes();
    let first = change.start("iptables", &server);
    let mut everybody = Everybody::start(&lab, &|| first.log());
    first.kill();

    // There, with nothing to write at first: what serves stays.
    server.goes();
    let daemon = change.start("nftables", &server);
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        change.chains().len() > 20,
        "rules went too early:\n{}",
        daemon.log()
    );
    server.comes();
    waits("rules of iptables mode stay", &daemon, || {
        change.chains().is_empty()
    });
    assert_eq!(change.tables().len(), 2, "{}", daemon.log());
    let saved = rules::saved_by(&lab, NODE, Family::V4, backend);
    for kept in [
        "-j CNI-HOSTPORT-DNAT",
        ":KUBE-IPTABLES-HINT",
        "-A INPUT -j KUBE-FIREWALL",
    ] {
        assert!(saved.contains(kept), "{kept} is not in:\n{saved}");
    }
    waits("nothing is said of it", &daemon, || {
        daemon
            .log()
            .contains("removed what another mode of kube-proxy left")
    });
    everybody.goes_on("the change to nftables mode");
    std::thread::sleep(Duration::from_secs(1));
    daemon.kill();

    // And back.
    server.goes();
    let daemon = change.start("iptables", &server);
    std::thread::sleep(Duration::from_secs(2));
    assert!(
        !change.tables().is_empty(),
        "the table went too early:\n{}",
        daemon.log()
    );
    server.comes();
    waits("the table stays", &daemon, || change.tables().is_empty());
    assert!(change.chains().len() > 20, "{}", daemon.log());
    std::thread::sleep(Duration::from_secs(1));
    everybody.stop(&|| daemon.log());
}

/// Each mode has a mark of its own here.
#[test]
fn from_iptables_nft_to_nftables_mode_and_back_nobody_is_refused() {
    if available(&["iptables-nft", "nft"]) {
        there_and_back("tonft", Backend::NfTables, 15);
    }
}

#[test]
fn from_iptables_legacy_to_nftables_mode_and_back_nobody_is_refused() {
    if available(&["iptables-legacy", "nft"]) {
        there_and_back("tonftl", Backend::Legacy, 14);
    }
}

/// What a host's own firewall has, in the tables of three who write such things.
const FIREWALL: &str = "
iptables-nft -P FORWARD DROP
nft add table inet fw
nft add chain inet fw forward '{ type filter hook forward priority 10 ; }'
nft add rule inet fw forward ct state established accept
nft add rule inet fw forward counter reject with icmpx type admin-prohibited
nft add table inet harmless
nft add chain inet harmless forward '{ type filter hook forward priority 20 ; }'
nft add rule inet harmless forward ct state invalid drop
iptables-legacy -A INPUT -p tcp --dport 22 -j ACCEPT
iptables-legacy -A INPUT -j DROP";

#[test]
fn a_firewall_that_drops_what_it_does_not_accept_is_named_before_nftables_mode_serves() {
    if !available(&["iptables-nft", "iptables-legacy", "nft"]) {
        return;
    }
    let lab = cluster::up("nftwall");
    shell(&lab, FIREWALL);
    // Requests of the daemon go by loopback.
    shell(&lab, "iptables-legacy -I INPUT -i lo -j ACCEPT");
    let api = Api::start(&lab, NODE, &web(2), Writes::Taken);
    let url = api.url();
    let mut setup = Setup::of_server(&lab, NODE, &url);
    setup.config = configuration(&json!({"mode": "nftables"}));
    let daemon = setup.start();
    waits("not in sync", &daemon, || {
        daemon.log().contains("rules are in sync")
    });
    let log = daemon.log();
    let at = |words: &str| {
        log.find(words)
            .unwrap_or_else(|| panic!("{words} is not in:\n{log}"))
    };
    for chain in [
        "table ip filter, chain FORWARD (policy drop)",
        "table inet fw, chain forward (its last rule stops everything)",
        "legacy iptables, chain INPUT (its last rule stops everything)",
    ] {
        assert!(at(chain) < at("rules are in sync"), "{log}");
    }
    assert!(!log.contains("harmless"), "{log}");
    for (reason, words) in [
        ("HostDropsForwarded", "accept the pods' networks"),
        ("HostDropsIncoming", "health-check node ports"),
    ] {
        waits(reason, &daemon, || {
            let told = api.events(reason);
            told.iter()
                .any(|event| event["note"].as_str().is_some_and(|note| note.contains(words)))
        });
    }
    let count = |hook: &str| live::health::metric(&lab, "kubeproxy_rs_host_firewall_chains", &[hook, "IPv4"]);
    assert_eq!((count("forward"), count("input")), (Some(2.0), Some(1.0)));
}

/// Upstream's families of nftables mode after a start and a change, and no other of its own.
const FAMILIES: [&str; 13] = [
    "kubeproxy_conntrack_reconciler_deleted_entries_total",
    "kubeproxy_conntrack_reconciler_sync_duration_seconds",
    "kubeproxy_network_programming_duration_seconds",
    "kubeproxy_sync_full_proxy_rules_duration_seconds",
    "kubeproxy_sync_partial_proxy_rules_duration_seconds",
    "kubeproxy_sync_proxy_rules_duration_seconds",
    "kubeproxy_sync_proxy_rules_endpoint_changes_pending",
    "kubeproxy_sync_proxy_rules_endpoint_changes_total",
    "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
    "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
    "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
    "kubeproxy_sync_proxy_rules_service_changes_pending",
    "kubeproxy_sync_proxy_rules_service_changes_total",
];

#[test]
fn nftables_mode_exposes_upstreams_metrics_of_that_mode_alone() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftmet"), Manifests::new());
    manifests.put("web.json", &web(1));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config = configuration(&json!({"mode": "nftables", "nftables": {"minSyncPeriod": "50ms"}}));
    let daemon = setup.start();
    waits("not in sync", &daemon, || {
        daemon.log().contains("rules are in sync")
    });
    let mut changed = web(2);
    changed[2]["metadata"]["annotations"] =
        json!({"endpoints.kubernetes.io/last-change-trigger-time": jiff::Timestamp::now().to_string()});
    manifests.put("web.json", &changed);
    let address = "127.0.0.1:10249".parse().expect("an address");
    let mut seen = Vec::new();
    let all = within(PATIENCE, || {
        let page = lab.http_get(NODE, address, "/metrics", Duration::from_secs(5));
        let page = page.unwrap_or_else(|error| panic!("{}", error.chain()));
        let names = page
            .body
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE kubeproxy_"));
        let names = names.filter(|line| !line.starts_with("rs_"));
        seen = names
            .map(|line| format!("kubeproxy_{}", line.split(' ').next().unwrap_or_default()))
            .collect();
        seen == FAMILIES
    });
    assert!(all.is_some(), "{seen:#?}\n{}", daemon.log());
}
