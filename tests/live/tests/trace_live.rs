//! The ways that real packets took, as the kernel tells them, are ways that `trace` gives: for the first round of each
//! truth table, in both modes, and in iptables mode on either backend, chain by chain and rule by rule. With
//! `KPRS_EVERY_ROUND` set, for every round of every situation, which takes minutes.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use live::daemon::{Daemon, PATIENCE, Setup, binary};
use live::rules::saved_by;
use live::truth::judge::{Witness, judge};
use live::truth::rounds::{Round, rounds};
use live::truth::site::Site;
use live::truth::tables;
use live::within_or;
use model::Family;
use scenario::Variant;
use serde_json::{Value, json};
use std::fs;

/// Set where there is time for all rounds.
const EVERY: &str = "KPRS_EVERY_ROUND";

#[test]
fn the_ways_of_real_packets_are_ways_that_trace_gives_in_iptables_mode() {
    if lab::live::available(&["iptables", "nft", "sysctl"]) {
        every_table(Rules::Iptables);
    }
}

#[test]
fn the_ways_of_real_packets_are_ways_that_trace_gives_on_legacy() {
    if lab::live::available(&["iptables-legacy", "ip6tables-legacy", "nft", "sysctl"]) {
        every_table(Rules::Legacy);
    }
}

#[test]
fn the_ways_of_real_packets_are_ways_that_trace_gives_in_nftables_mode() {
    if lab::live::available(&["nft", "sysctl"]) {
        every_table(Rules::Nftables);
    }
}

/// Who keeps the node's rules.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rules {
    Iptables,
    Legacy,
    Nftables,
}

impl Rules {
    fn witness(self) -> Witness {
        match self {
            Rules::Iptables => Witness::Iptables,
            Rules::Legacy | Rules::Nftables => Witness::Packets,
        }
    }
}

fn every_table(rules: Rules) {
    let most = if std::env::var_os(EVERY).is_some() {
        usize::MAX
    } else {
        1
    };
    let (mut compared, mut wrong) = (0, vec![]);
    for (number, table) in tables() {
        let mut packets = vec![];
        for (index, variant) in table.variants.iter().enumerate().take(most) {
            let (variant, stem) = match rules {
                Rules::Iptables => (variant.clone(), "w"),
                Rules::Legacy => (variant.clone(), "u"),
                Rules::Nftables => (variant.in_nftables(), "v"),
            };
            for (round_number, round) in rounds(&variant).iter().enumerate().take(most) {
                let prefix = lab::live::prefix(&format!("{stem}{number}v{index}r{round_number}"));
                packets.extend(follow(&prefix, &variant, round, rules));
            }
        }
        let agree = packets
            .iter()
            .filter(|packet| packet["check"]["result"] == "agrees")
            .count();
        println!("{}: {agree} of {} packets compared", table.name, packets.len());
        compared += agree;
        let differ = packets
            .into_iter()
            .filter(|packet| packet["check"]["result"] == "disagrees");
        wrong.extend(differ.map(|packet| format!("{}: {packet}", table.name)));
    }
    println!("{compared} packets compared, {} disagree", wrong.len());
    assert!(wrong.is_empty(), "{} packets:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 0, "no packet was compared");
}

/// Sends the packets of a round while they are followed on the node.
fn follow(prefix: &str, variant: &Variant, round: &Round<'_>, rules: Rules) -> Vec<Value> {
    let mut site = Site::up(prefix, variant, round).unwrap_or_else(|error| panic!("{}", error.chain()));
    let manifests = site.lab.folder().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": variant.documents});
    fs::write(manifests.join("cluster.json"), objects.to_string()).unwrap();
    let mut setup = Setup::of_folder(&site.lab, &site.node, &manifests);
    setup.config = config(variant, rules);
    let lock = lock(&site);
    setup.environment = vec![("XTABLES_LOCKFILE", lock.clone())];
    let lock = format!("XTABLES_LOCKFILE={lock}");
    if rules == Rules::Legacy {
        let hint = "iptables-legacy -t mangle -N KUBE-IPTABLES-HINT".split(' ');
        let hint: Vec<&str> = ["env", &lock].into_iter().chain(hint).collect();
        let hinted = site.lab.must_exec(&site.node, &hint);
        hinted.unwrap_or_else(|error| panic!("{}", error.chain()));
    }
    let daemon = setup.start();
    let synced = || {
        let all = Family::ALL.iter().all(|family| in_sync(&daemon, *family));
        if all { Ok(()) } else { Err(daemon.log()) }
    };
    within_or(PATIENCE, synced).unwrap();
    let program = binary().to_string_lossy().into_owned();
    let words = "trace --live --check --count 100000 --for 10m --output json";
    let mut argv = vec!["env", &lock, program.as_str()];
    argv.extend(words.split(' '));
    let mut tracer = site
        .lab
        .spawn(&site.node, &argv, "tracer")
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    assert!(
        tracer.wait_for_log("following up to", PATIENCE).unwrap(),
        "{}",
        tracer.log()
    );
    if rules == Rules::Legacy {
        assert_eq!(are_traced(&site), [true; 2], "whose rules are followed");
    }
    let _ = judge(&mut site, round, &variant.facts, rules.witness());
    // The last packets are told of when nothing more came of them for a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let log = tracer.log();
    tracer.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
    // The process that cleans up after it does so now.
    let is_clean = || match are_traced(&site) {
        [false, false] => Ok(()),
        left => Err(format!("rules that ask for traces stay (IPv4, IPv6): {left:?}")),
    };
    if rules == Rules::Legacy {
        within_or(PATIENCE, is_clean).unwrap();
    }
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Legacy's lock is the machine's, and others test there at the same time.
fn lock(site: &Site) -> String {
    let file = site.lab.folder().join("xtables.lock");
    file.to_string_lossy().into_owned()
}

/// Whether rules of legacy ask for traces, by family.
fn are_traced(site: &Site) -> [bool; 2] {
    Family::ALL.map(|family| {
        let saved = saved_by(&site.lab, &site.node, family, Backend::Legacy);
        saved.contains(iptables::live_trace::CHAIN)
    })
}

fn in_sync(daemon: &Daemon, family: Family) -> bool {
    let log = daemon.log();
    let mut lines = log.lines().filter(|line| line.contains("rules are in sync"));
    lines.any(|line| line.contains(&family.to_string()))
}

/// The table's configuration, in the words of the mode.
fn config(variant: &Variant, rules: Rules) -> Value {
    let mut config = serde_json::to_value(&variant.config).unwrap();
    config["iptables"]["minSyncPeriod"] = json!("20ms");
    if rules == Rules::Nftables {
        config["mode"] = json!("nftables");
        config["nftables"]["minSyncPeriod"] = json!("20ms");
        config["nftables"]["masqueradeAll"] = config["iptables"]["masqueradeAll"].clone();
    }
    config
}
