//! The rows of the truth tables by real packets, in nftables mode.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use live::daemon::{Daemon, PATIENCE, Setup};
use live::truth::judge::{Verdict, Witness, judge};
use live::truth::rounds::{Round, rounds};
use live::truth::site::Site;
use live::truth::tables;
use live::within_or;
use model::Family;
use scenario::Variant;
use serde_json::{Value, json};
use std::fs;

#[test]
fn tables_by_real_packets() {
    if !lab::live::available(&["nft", "sysctl"]) {
        return;
    }
    let (mut rows, mut packets, mut by_nobody, mut wrong) = (0, 0, vec![], vec![]);
    for (number, table) in tables() {
        for (variant_number, variant) in table.variants.iter().enumerate() {
            let variant = &variant.in_nftables();
            for (round_number, round) in rounds(variant).iter().enumerate() {
                let prefix = lab::live::prefix(&format!("n{number}v{variant_number}r{round_number}"));
                let verdict = run(&prefix, variant, round);
                rows += verdict.by_packets;
                packets += verdict.packets;
                let place = |row: String| format!("{} / {} / {row}", table.name, variant.name);
                by_nobody.extend(verdict.by_tracer_only.into_iter().map(&place));
                wrong.extend(verdict.wrong.into_iter().map(place));
            }
        }
    }
    for row in &by_nobody {
        println!("NOT BY PACKETS, no sockets of its protocol on this kernel: {row}");
    }
    println!("{rows} rows by {packets} probes");
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Whatever is in the tables, `nft` can list it, and load what it listed, beside it, which changes nothing.
const LISTED_AND_LOADED: &str = "nft -j list ruleset >/dev/null; nft list ruleset | nft --check -f -";

fn run(prefix: &str, variant: &Variant, round: &Round<'_>) -> Verdict {
    let mut site = Site::up(prefix, variant, round).unwrap_or_else(|error| panic!("{}", error.chain()));
    let manifests = site.lab.folder().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": variant.documents});
    fs::write(manifests.join("cluster.json"), objects.to_string()).unwrap();
    let mut setup = Setup::of_folder(&site.lab, &site.node, &manifests);
    setup.config = config(variant);
    let daemon = setup.start();
    let synced = || {
        let all = Family::ALL.iter().all(|family| in_sync(&daemon, *family));
        if all { Ok(()) } else { Err(daemon.log()) }
    };
    within_or(PATIENCE, synced).unwrap();
    site.lab
        .must_exec(&site.node, &["sh", "-e", "-c", LISTED_AND_LOADED])
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    judge(&mut site, round, &variant.facts, Witness::Packets)
}

fn in_sync(daemon: &Daemon, family: Family) -> bool {
    let log = daemon.log();
    let mut lines = log.lines().filter(|line| line.contains("rules are in sync"));
    lines.any(|line| line.contains(&family.to_string()))
}

/// The table's configuration in the words of this mode. Where it says nothing, this mode serves node ports on fewer
/// addresses; the rows are about all of them.
fn config(variant: &Variant) -> Value {
    let mut config = serde_json::to_value(&variant.config).unwrap();
    config["mode"] = json!("nftables");
    config["nftables"]["minSyncPeriod"] = json!("20ms");
    config["nftables"]["masqueradeAll"] = config["iptables"]["masqueradeAll"].clone();
    if config["nodePortAddresses"].is_null() {
        config["nodePortAddresses"] = json!(["0.0.0.0/0", "::/0"]);
    }
    config
}
