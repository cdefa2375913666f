//! The ways that real packets took, as the kernel tells them, are ways that `trace` gives: for the first round of each
//! truth table, in both modes, chain by chain and rule by rule.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use live::daemon::{Daemon, PATIENCE, Setup, binary};
use live::truth::judge::{Witness, judge};
use live::truth::rounds::rounds;
use live::truth::site::Site;
use live::truth::tables;
use live::within_or;
use model::Family;
use scenario::Variant;
use serde_json::{Value, json};
use std::fs;

#[test]
fn the_ways_of_real_packets_are_ways_that_trace_gives_in_iptables_mode() {
    if lab::live::available(&["iptables", "nft", "sysctl"]) {
        every_table(Witness::Iptables);
    }
}

#[test]
fn the_ways_of_real_packets_are_ways_that_trace_gives_in_nftables_mode() {
    if lab::live::available(&["nft", "sysctl"]) {
        every_table(Witness::Packets);
    }
}

fn every_table(witness: Witness) {
    let (mut compared, mut wrong) = (0, vec![]);
    for (number, table) in tables() {
        let Some(variant) = table.variants.first() else {
            continue;
        };
        let variant = match witness {
            Witness::Iptables => variant.clone(),
            Witness::Packets => variant.in_nftables(),
        };
        let stem = if witness == Witness::Iptables { "w" } else { "v" };
        let prefix = lab::live::prefix(&format!("{stem}{number}"));
        let packets = follow(&prefix, &variant, witness);
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
    assert!(wrong.is_empty(), "{} packets:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 0, "no packet was compared");
}

/// Sends the packets of a variant's first round while they are followed on the node.
fn follow(prefix: &str, variant: &Variant, witness: Witness) -> Vec<Value> {
    let rounds = rounds(variant);
    let round = rounds.first().expect("a variant has rows");
    let mut site = Site::up(prefix, variant, round).unwrap_or_else(|error| panic!("{}", error.chain()));
    let manifests = site.lab.folder().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": variant.documents});
    fs::write(manifests.join("cluster.json"), objects.to_string()).unwrap();
    let mut setup = Setup::of_folder(&site.lab, &site.node, &manifests);
    setup.config = config(variant, witness);
    let daemon = setup.start();
    let synced = || {
        let all = Family::ALL.iter().all(|family| in_sync(&daemon, *family));
        if all { Ok(()) } else { Err(daemon.log()) }
    };
    within_or(PATIENCE, synced).unwrap();
    let program = binary().to_string_lossy().into_owned();
    let words = "trace --live --check --count 100000 --for 10m --output json";
    let mut argv = vec![program.as_str()];
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
    let _ = judge(&mut site, round, &variant.facts, witness);
    // The last packets are told of when nothing more came of them for a second.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let log = tracer.log();
    tracer.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
    let lines = log.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn in_sync(daemon: &Daemon, family: Family) -> bool {
    let log = daemon.log();
    let mut lines = log.lines().filter(|line| line.contains("rules are in sync"));
    lines.any(|line| line.contains(&family.to_string()))
}

/// The table's configuration, in the words of the mode.
fn config(variant: &Variant, witness: Witness) -> Value {
    let mut config = serde_json::to_value(&variant.config).unwrap();
    config["iptables"]["minSyncPeriod"] = json!("20ms");
    if witness == Witness::Packets {
        config["mode"] = json!("nftables");
        config["nftables"]["minSyncPeriod"] = json!("20ms");
        config["nftables"]["masqueradeAll"] = config["iptables"]["masqueradeAll"].clone();
    }
    config
}
