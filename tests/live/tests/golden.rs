//! For every golden cluster the daemon writes what upstream wrote, as `iptables-save` and `ip6tables-save` print it:
//! our chains, the jumps of the built-in ones, and their policies.

use kernel::Backend;
use lab::{Interface, Lab, Node, Topology};
use live::daemon::{Setup, Want};
use model::Family;
use scenario::{GoldenCase, golden_cases};
use serde_json::json;
use std::time::{Duration, Instant};

const NODE: &str = "node-a";

/// These are tried on legacy as well: every kind of frontend, both families, and the largest.
const ON_LEGACY: [&str; 4] = ["dual-stack", "large-cluster", "loadbalancer", "nodeport"];

/// A lone node with the addresses of the case.
fn host(prefix: &str, case: &GoldenCase) -> Lab {
    let mut topology = Topology::new(prefix);
    topology.nodes = vec![Node {
        name: NODE.to_owned(),
        addresses: case.addresses.clone(),
        pod_cidrs: vec![],
        interfaces: case
            .interfaces
            .iter()
            .map(|(name, address)| Interface {
                name: name.clone(),
                addresses: vec![*address],
            })
            .collect(),
    }];
    Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// Starts the daemon on the case and waits until the kernel holds upstream's rules.
fn hold(prefix: &str, case: &GoldenCase, backend: Backend) -> Duration {
    let lab = host(prefix, case);
    let manifests = scenario::root()
        .join("golden")
        .join(&case.name)
        .join("cluster.json");
    let mut config = serde_json::to_value(&case.config).expect("a configuration is plain data");
    config["iptables"]["minSyncPeriod"] = json!("50ms");
    let mut setup = Setup::of_folder(&lab, NODE, &manifests);
    setup.config = config;
    // The lock of legacy is one for the whole machine, unless told otherwise.
    let lock = lab.folder().join("xtables.lock").to_string_lossy().into_owned();
    let hint = |verb: &str| {
        let lock = format!("XTABLES_LOCKFILE={lock}");
        let argv = [
            "env",
            &lock,
            "iptables-legacy",
            "-t",
            "mangle",
            verb,
            "KUBE-IPTABLES-HINT",
        ];
        lab.must_exec(NODE, &argv)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
    };
    setup.environment.push(("XTABLES_LOCKFILE", lock.clone()));
    if backend == Backend::Legacy {
        // kubelet says which backend it uses.
        hint("-N");
    }
    let daemon = setup.start();
    if backend == Backend::Legacy {
        let chosen = live::within(live::daemon::PATIENCE, || {
            live::rules::saved_by(&lab, NODE, Family::V4, Backend::Legacy).contains("KUBE-SERVICES")
        });
        assert!(
            chosen.is_some(),
            "nothing on legacy; log of the daemon:\n{}",
            daemon.log()
        );
        hint("-X");
    }
    let want = Want {
        saved: case.saved.clone(),
        backend,
    };
    let log = || format!("{}: {}", case.name, daemon.log());
    let took = want.reached(&lab, NODE, &Family::ALL, &log);
    // It stays so.
    std::thread::sleep(Duration::from_millis(200));
    let again = want.reached(&lab, NODE, &Family::ALL, &log);
    assert!(
        again < took.max(Duration::from_secs(1)),
        "the rules moved: {}",
        log()
    );
    took
}

/// The cases whose place in the list leaves `rest` when divided by two: one test for each core.
fn run_cases(rest: usize) {
    if !lab::live::available(&["iptables-nft", "ip6tables-nft"]) {
        return;
    }
    let begun = Instant::now();
    let cases: Vec<GoldenCase> = golden_cases();
    for (number, case) in cases.iter().enumerate().filter(|(number, _)| number % 2 == rest) {
        let took = hold(
            &lab::live::prefix(&format!("gold{number}")),
            case,
            Backend::NfTables,
        );
        println!("{}: {took:?}", case.name);
    }
    println!("all in {:?}", begun.elapsed());
}

#[test]
fn even_golden_clusters_get_upstreams_rules_in_the_kernel() {
    run_cases(0);
}

#[test]
fn odd_golden_clusters_get_upstreams_rules_in_the_kernel() {
    run_cases(1);
}

#[test]
fn golden_clusters_get_upstreams_rules_in_a_legacy_kernel() {
    if !lab::live::available(&["iptables-legacy", "ip6tables-legacy"]) {
        return;
    }
    let cases = golden_cases().into_iter().enumerate();
    for (number, case) in cases.filter(|(_, case)| ON_LEGACY.contains(&case.name.as_str())) {
        let took = hold(
            &lab::live::prefix(&format!("old{number}")),
            &case,
            Backend::Legacy,
        );
        println!("{} on legacy: {took:?}", case.name);
    }
}
