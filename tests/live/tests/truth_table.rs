//! Every row of the truth tables by real packets: outcome, masquerade, and the set of endpoints.
//!
//! A rejected client gets an ICMP error, a dropped one silence while the rule's counter moves; an untouched packet
//! arrives at a sink (or at the node itself) as it was sent; every endpoint of a set answers, and no other.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::Backend;
use live::daemon::{Daemon, Setup, Want, binary};
use live::truth::judge::{Verdict, Witness, judge};
use live::truth::rounds::{Round, rounds};
use live::truth::site::Site;
use live::truth::tables;
use model::{Family, PerFamily};
use scenario::{Variant, truth_tables};
use serde_json::json;
use std::fs;
use std::process::Command;
use std::time::Instant;

const TABLES: [&str; 15] = [
    "01-traffic-policies",
    "02-external-policy",
    "03-cluster-ip",
    "04-no-endpoints",
    "05-source-ranges",
    "06-node-ports",
    "07-health-check-node-port",
    "08-internal-policy",
    "09-terminating",
    "10-sanity",
    "11-ip-mode",
    "12-detectors",
    "13-restricted-and-refused",
    "14-endpoint-on-this-node",
    "15-sctp",
];

#[test]
fn every_table_is_tried() {
    let names: Vec<String> = truth_tables().into_iter().map(|table| table.name).collect();
    assert_eq!(names, TABLES);
}

/// Runs the tables whose place in the list leaves `rest` when divided by two: one test for each core.
fn run_tables(rest: usize) {
    if !lab::live::available(&["iptables", "ip6tables", "sysctl"]) {
        return;
    }
    let (begun, mut rows, mut packets, mut by_tracer_only, mut wrong) =
        (Instant::now(), 0, 0, vec![], vec![]);
    for (number, table) in tables()
        .iter()
        .map(|(number, table)| (*number, table))
        .filter(|(number, _)| number % 2 == rest)
    {
        for (variant_number, variant) in table.variants.iter().enumerate() {
            for (round_number, round) in rounds(variant).iter().enumerate() {
                let prefix = lab::live::prefix(&format!("t{number}v{variant_number}r{round_number}"));
                let verdict = run(&prefix, variant, round);
                let place = |row: String| format!("{} / {} / {row}", table.name, variant.name);
                rows += verdict.by_packets;
                packets += verdict.packets;
                by_tracer_only.extend(verdict.by_tracer_only.into_iter().map(place));
                wrong.extend(verdict.wrong.into_iter().map(place));
            }
        }
    }
    for row in &by_tracer_only {
        println!("NOT BY PACKETS, no sockets of its protocol here, only by the tracer: {row}");
    }
    println!("{rows} rows by {packets} probes in {:?}", begun.elapsed());
    assert!(
        wrong.is_empty(),
        "{} of {rows} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn run(prefix: &str, variant: &Variant, round: &Round<'_>) -> Verdict {
    let mut site = Site::up(prefix, variant, round).unwrap_or_else(|error| panic!("{}", error.chain()));
    let _daemon = start(&site, variant);
    judge(&mut site, round, &variant.facts, Witness::Iptables)
}

/// Starts the daemon and waits until the kernel holds what `render` prints for the situation.
fn start(site: &Site, variant: &Variant) -> Daemon {
    let manifests = site.lab.folder().join("manifests");
    fs::create_dir(&manifests).unwrap();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": variant.documents});
    fs::write(manifests.join("cluster.json"), objects.to_string()).unwrap();
    let mut config = serde_json::to_value(&variant.config).unwrap();
    config["iptables"]["minSyncPeriod"] = json!("20ms");
    let mut setup = Setup::of_folder(&site.lab, &site.node, &manifests);
    setup.config = config;
    let daemon = setup.start();
    let want = rendered(site, &setup);
    want.reached(&site.lab, &site.node, &Family::ALL, &|| daemon.log());
    daemon
}

/// What `render` prints for the situation: says when the daemon is done, not whether it is right.
fn rendered(site: &Site, setup: &Setup<'_>) -> Want {
    let config = site.lab.folder().join("config");
    fs::write(&config, setup.config.to_string()).unwrap();
    let text = |family: Family| {
        let word = if family == Family::V4 { "ipv4" } else { "ipv6" };
        let mut command = Command::new(binary());
        command.args(["render", "--family", word, "--node", setup.node]);
        command
            .arg("--manifests")
            .arg(&setup.source[1])
            .arg("--config")
            .arg(&config);
        for address in &site.own {
            command.args(["--node-address", &address.to_string()]);
        }
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    Want {
        saved: PerFamily::from_fn(text),
        backend: Backend::NfTables,
    }
}

#[test]
fn even_tables_by_real_packets() {
    run_tables(0);
}

#[test]
fn odd_tables_by_real_packets() {
    run_tables(1);
}
