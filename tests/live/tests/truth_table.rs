//! Every row of the truth tables by real packets: outcome, masquerade, and the set of endpoints.
//!
//! A rejected client gets an ICMP error, a dropped one silence while the rule's counter moves; an untouched packet
//! arrives at a sink (or at the node itself) as it was sent; every endpoint of a set answers, and no other.


use live::manifests::Manifests;
use live::truth::judge::{Verdict, judge};
use live::truth::rounds::{Round, rounds};
use live::truth::site::Site;
use live::daemon;
use model::Family;
use scenario::{TruthTable, Variant, truth_tables};
use std::time::Instant;

const TABLES: [&str; 13] = [
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
    let (begun, mut rows, mut packets, mut by_tracer_only, mut wrong) = (Instant::now(), 0, 0, vec![], vec![]);
    for (number, table) in truth_tables().iter().enumerate().filter(|(number, _)| number % 2 == rest) {
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
    assert!(wrong.is_empty(), "{} of {rows} rows:\n{}", wrong.len(), wrong.join("\n"));
}

fn run(prefix: &str, variant: &Variant, round: &Round<'_>) -> Verdict {
    let mut site = Site::up(prefix, variant, round).unwrap_or_else(|error| panic!("{}", error.chain()));
    load(&site, variant);
    judge(&mut site, round, &variant.facts)
}

/// Loads what `render` prints, without the daemon.
fn load(site: &Site, variant: &Variant) {
    let manifests = Manifests::new();
    manifests.put("cluster.json", &variant.documents);
    let config = manifests.file("config");
    std::fs::write(&config, serde_json::to_string(&variant.config).unwrap()).unwrap();
    for (family, word, tool) in [
        (Family::V4, "ipv4", "iptables-nft-restore"),
        (Family::V6, "ipv6", "ip6tables-nft-restore"),
    ] {
        let mut command = std::process::Command::new(daemon::binary());
        command.args(["render", "--form", "restore", "--without-nfacct", "--family", word, "--node", &site.node]);
        command.arg("--manifests").arg(manifests.path()).arg("--config").arg(&config);
        for address in &site.own {
            command.args(["--node-address", &address.to_string()]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let file = manifests.file("restore");
        std::fs::write(&file, output.stdout).unwrap();
        site.lab.must_exec(&site.node, &[tool, "--noflush", &file.to_string_lossy()]).unwrap();
        let _ = family;
    }
    let _ = site.lab.must_exec(&site.node, &["sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1"]);
}

#[test]
fn even_tables_by_real_packets() {
    run_tables(0);
}

#[test]
fn odd_tables_by_real_packets() {
    run_tables(1);
}
