//! Random packets over random clusters, really sent: the way that each took, as the kernel tells it, is one that `trace`
//! gives; ways part at random choices alone, and their chances sum to one; and its sender meets what `trace` says.
//!
//! One daemon and one `trace --live --check` live through all clusters of a mode. `KPRS_RANDOM_PACKETS` is how many packets
//! are compared in each mode, `KPRS_RANDOM_SEED` the first cluster's seed.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::{Lab, LabProcess, Probe, ProbeOutcome, Proto};
use live::daemon::{Daemon, PATIENCE, Setup, binary};
use live::forks::{Forks, forks};
use live::manifests::Manifests;
use live::random::Random;
use live::random::cluster::{Cluster, Kind};
use live::random::compare::{fate, is_one_of, met, of};
use live::random::packets::{Aim, Asked};
use live::random::site::{self, CLUSTER_CIDR, HOST_POD, NODE};
use live::{within, within_or};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

/// Packets of a mode, unless `KPRS_RANDOM_PACKETS` says otherwise: 500 together.
const PACKETS: usize = 250;
/// Packets of a cluster.
const EACH: usize = 35;
/// How often a packet is sent that was not traced: the tool follows at most 100 a second of a kind.
const TRIES: usize = 5;
/// A dropped packet's client waits this long; every answer in a lab comes in a tenth of it.
const SILENCE: Duration = Duration::from_millis(300);
/// The tool reads the node's rules anew when they have changed, which takes seconds on a busy machine.
const TOLD: Duration = Duration::from_secs(10);
/// An answer may take this long on a busy machine.
const ANSWER: Duration = Duration::from_secs(4);

#[test]
fn random_packets_take_ways_that_trace_gives_in_iptables_mode() {
    if lab::live::available(&["iptables", "ip6tables", "nft", "sysctl"]) {
        follow("iptables");
    }
}

#[test]
fn random_packets_take_ways_that_trace_gives_in_nftables_mode() {
    if lab::live::available(&["nft", "sysctl"]) {
        follow("nftables");
    }
}

fn number(name: &str, usual: usize) -> usize {
    let given = std::env::var(name).ok();
    given.map_or(usual, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name}: {text:?} is no number"))
    })
}

fn follow(mode: &'static str) {
    let (begun, seed) = (Instant::now(), number("KPRS_RANDOM_SEED", 1));
    let packets = number("KPRS_RANDOM_PACKETS", PACKETS);
    println!("{mode}: seed {seed}, {packets} packets (KPRS_RANDOM_SEED, KPRS_RANDOM_PACKETS)");
    let mut rig = Rig::up(mode);
    let mut clusters = 0;
    while rig.found.compared < packets && rig.found.wrong.is_empty() {
        let seed = seed + clusters;
        let mut random = Random::new(u64::try_from(seed).unwrap());
        let cluster = Cluster::new(&mut random);
        let count = EACH.min(packets - rig.found.compared);
        let asked: Vec<Asked> = (0..count).map(|_| Asked::new(&mut random, &cluster)).collect();
        rig.ask(&cluster, &asked, seed);
        clusters += 1;
    }
    println!(
        "{mode}: {clusters} clusters in {:?}\n{}",
        begun.elapsed(),
        rig.found
    );
    rig.found.is_right(mode);
}

/// A node with a daemon and a tracer.
struct Rig {
    mode: &'static str,
    lab: Lab,
    manifests: Manifests,
    daemon: Option<Daemon>,
    tracer: Option<LabProcess>,
    source_ports: std::ops::RangeFrom<u16>,
    found: Found,
}

impl Rig {
    fn up(mode: &'static str) -> Rig {
        Rig {
            mode,
            lab: site::up(&format!("rnd{}", &mode[..1])),
            manifests: Manifests::new(),
            daemon: None,
            tracer: None,
            source_ports: 33_000..,
            found: Found::default(),
        }
    }

    /// Gives the node a cluster, sends packets, and compares.
    fn ask(&mut self, cluster: &Cluster, asked: &[Asked], seed: usize) {
        self.manifests.put("cluster.json", &cluster.objects);
        self.start();
        within_or(PATIENCE, || self.is_in_sync()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        let answers = self.answers(asked);
        let mut open: Vec<(Asked, Value)> = vec![];
        for (asked, answer) in asked.iter().zip(answers) {
            match self.found.take_answer(asked, &answer) {
                Ok(()) => open.push((*asked, answer)),
                Err(why) => self.found.wrong.push(format!("seed {seed}: {asked}: {why}")),
            }
        }
        for _ in 0..TRIES {
            open = self.send(&open, seed);
        }
        for (asked, _) in open {
            let never = format!("seed {seed}: {asked}: sent {TRIES} times and never compared");
            self.found.wrong.push(never);
        }
    }

    /// Starts daemon and tracer with the first cluster.
    fn start(&mut self) {
        if self.daemon.is_some() {
            return;
        }
        let mut setup = Setup::new(&self.lab, NODE, &self.manifests);
        setup.config = self.configuration();
        self.daemon = Some(setup.start());
        within_or(PATIENCE, || self.is_in_sync()).unwrap();
        let program = binary().to_string_lossy().into_owned();
        let mut argv = vec![program.as_str()];
        argv.extend("trace --live --check --count 10000000 --for 10h --output json".split(' '));
        let tracer = self.lab.spawn(NODE, &argv, "tracer");
        let mut tracer = tracer.unwrap_or_else(|error| panic!("{}", error.chain()));
        let is_there = tracer.wait_for_log("following up to", PATIENCE).unwrap();
        assert!(is_there, "{}", tracer.log());
        self.tracer = Some(tracer);
    }

    fn configuration(&self) -> Value {
        live::daemon::configuration(&json!({
            "mode": self.mode, "clusterCIDR": CLUSTER_CIDR,
            "iptables": {"minSyncPeriod": "20ms", "syncPeriod": "30s"},
            "nftables": {"minSyncPeriod": "20ms", "syncPeriod": "30s"},
        }))
    }

    /// Whether the node has the rules that its cluster asks for.
    fn is_in_sync(&self) -> Result<(), String> {
        let argv = [
            &*binary().to_string_lossy(),
            "verify",
            "--manifests",
            &*self.manifests.path().to_string_lossy(),
            "--node",
            NODE,
            "--proxy-mode",
            self.mode,
            "--cluster-cidr",
            CLUSTER_CIDR,
        ];
        let said = self.lab.exec(NODE, &argv).map_err(|error| error.chain())?;
        let log = || self.daemon.as_ref().map(Daemon::log).unwrap_or_default();
        if said.status.success() {
            Ok(())
        } else {
            Err(format!("{}\n{}\n{}", said.stdout, said.stderr, log()))
        }
    }

    /// What `trace` says over the node's own rules.
    fn answers(&self, asked: &[Asked]) -> Vec<Value> {
        let mut lines = String::new();
        for one in asked {
            writeln!(lines, "{}", one.words()).unwrap();
        }
        let file = self.lab.folder().join("packets");
        fs::write(&file, lines).unwrap();
        let argv = [
            &*binary().to_string_lossy(),
            "trace",
            "--output",
            "json",
            "--packets",
            &*file.to_string_lossy(),
        ];
        let said = self.lab.must_exec(NODE, &argv);
        let said = said.unwrap_or_else(|error| panic!("{}", error.chain()));
        let all: Vec<Value> = serde_json::from_str(&said).unwrap();
        assert_eq!(all.len(), asked.len());
        all.into_iter().map(|mut one| one["answer"].take()).collect()
    }

    /// Sends packets, compares those that were traced, and gives back those that were not.
    fn send(&mut self, open: &[(Asked, Value)], seed: usize) -> Vec<(Asked, Value)> {
        if open.is_empty() {
            return vec![];
        }
        let told = self.tracer.as_ref().unwrap().log().len();
        let mut by_place: BTreeMap<&str, Vec<(usize, Probe)>> = BTreeMap::new();
        let mut keys: Vec<(String, String, String)> = vec![];
        for (index, (asked, answer)) in open.iter().enumerate() {
            let port = self.source_ports.next().unwrap();
            let patience = match fate(answer) {
                "dropped" => SILENCE,
                _ => ANSWER,
            };
            let probe = asked.probe(port).within(lab::live::patience(patience));
            by_place.entry(asked.place()).or_default().push((index, probe));
            let from = SocketAddr::new(asked.from, port);
            keys.push((asked.proto.to_string(), from.to_string(), asked.to.to_string()));
        }
        let outcomes = self.probe(&by_place);
        let mut passages: Vec<Value> = vec![];
        _ = within(TOLD, || {
            let log = self.tracer.as_ref().unwrap().log();
            passages = log[told..]
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect();
            keys.iter().all(|key| of(&passages, key).is_some())
        });
        let mut rest = vec![];
        for (index, ((asked, answer), key)) in open.iter().zip(&keys).enumerate() {
            let result = match of(&passages, key) {
                None => {
                    rest.push((*asked, answer.clone()));
                    continue;
                }
                Some(passage) => {
                    is_one_of(answer, passage).and_then(|()| met(answer, passage, &outcomes[&index]))
                }
            };
            self.found.compared += 1;
            if let Err(why) = result {
                self.found.wrong.push(format!("seed {seed}: {asked}: {why}"));
            }
        }
        let differ = passages
            .iter()
            .filter(|passage| passage["check"]["result"] == "disagrees");
        self.found
            .wrong
            .extend(differ.map(|passage| format!("seed {seed}: {passage}")));
        self.found.sent += open.len();
        rest
    }

    /// Sends from all places at once.
    fn probe(&self, by_place: &BTreeMap<&str, Vec<(usize, Probe)>>) -> BTreeMap<usize, ProbeOutcome> {
        thread::scope(|scope| {
            let threads = by_place.iter().map(|(place, probes)| {
                scope.spawn(move || {
                    let only: Vec<Probe> = probes.iter().map(|(_, probe)| *probe).collect();
                    let outcomes = self.lab.probe_each(place, &only);
                    let outcomes = outcomes.unwrap_or_else(|error| panic!("{}", error.chain()));
                    probes
                        .iter()
                        .map(|(index, _)| *index)
                        .zip(outcomes)
                        .collect::<Vec<_>>()
                })
            });
            let threads: Vec<_> = threads.collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().unwrap())
                .collect()
        })
    }
}

/// What was found in one mode.
#[derive(Debug, Default)]
struct Found {
    /// Packets whose way was compared.
    compared: usize,
    /// Packets sent for them.
    sent: usize,
    forks: Forks,
    /// How many packets were of each kind.
    kinds: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Found {
    fn count(&mut self, kind: impl Into<String>) {
        *self.kinds.entry(kind.into()).or_default() += 1;
    }

    /// Counts what an answer covers.
    fn take_answer(&mut self, asked: &Asked, answer: &Value) -> Result<(), String> {
        let found = forks(answer).map_err(|why| format!("{why}: {answer}"))?;
        self.forks.random += found.random;
        self.forks.remembered += found.remembered;
        if answer["outcome"].is_null() {
            return Err(format!(
                "no single outcome: {} {}",
                answer["outcomes"], answer["open"]
            ));
        }
        let ways = answer["ways"].as_array().unwrap();
        self.count(fate(answer));
        let masqueraded: BTreeSet<bool> = ways
            .iter()
            .filter_map(|way| way["masquerade"].as_bool())
            .collect();
        match (fate(answer), masqueraded.contains(&true)) {
            ("delivered", true) => self.count("masqueraded"),
            ("delivered", false) => self.count("source kept"),
            _ => {}
        }
        if masqueraded.len() > 1 {
            self.count("masqueraded to itself alone");
        }
        if found.random > 0 {
            self.count("with a choice");
        }
        if found.remembered > 0 {
            self.count("with affinity");
        }
        let to = match asked.aim {
            Aim::Frontend(kind) => name(kind).to_owned(),
            Aim::WrongPort(kind) => format!("wrong port at {}", name(kind)),
            Aim::Unknown => "unknown address".to_owned(),
            Aim::Pod => "pod".to_owned(),
            Aim::Loopback => "node port on loopback".to_owned(),
        };
        self.count(format!("to {to}"));
        let by = match asked.by {
            by if by.name == HOST_POD.name => "node",
            by if by.node.is_empty() => "outside",
            _ => "pod",
        };
        self.count(format!("by {by}"));
        self.count(if asked.to.is_ipv4() { "IPv4" } else { "IPv6" });
        self.count(if asked.proto == Proto::Udp { "UDP" } else { "TCP" });
        Ok(())
    }

    fn is_right(&self, mode: &str) {
        let some = self.wrong[..self.wrong.len().min(10)].join("\n");
        assert!(
            self.wrong.is_empty(),
            "{mode}: {} packets:\n{some}",
            self.wrong.len()
        );
        let never: Vec<&&str> = KINDS
            .iter()
            .filter(|kind| !self.kinds.contains_key(**kind))
            .collect();
        assert!(
            never.is_empty(),
            "{mode}: no packet was {never:?}: {:?}",
            self.kinds
        );
    }
}

/// What must be among the packets of each mode.
const KINDS: [&str; 25] = [
    "delivered",
    "rejected",
    "dropped",
    "untouched",
    "masqueraded",
    "masqueraded to itself alone",
    "source kept",
    "with a choice",
    "with affinity",
    "to cluster IP",
    "to external IP",
    "to load balancer",
    "to node port",
    "to wrong port at cluster IP",
    "to wrong port at node port",
    "to unknown address",
    "to pod",
    "to node port on loopback",
    "by pod",
    "by node",
    "by outside",
    "IPv4",
    "IPv6",
    "UDP",
    "TCP",
];

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::ClusterIp => "cluster IP",
        Kind::ExternalIp => "external IP",
        Kind::LoadBalancer => "load balancer",
        Kind::NodePort => "node port",
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "  {} packets compared ({} sent), {} wrong; {} random forks, {} by what lists of clients remember",
            self.compared,
            self.sent,
            self.wrong.len(),
            self.forks.random,
            self.forks.remembered
        )?;
        let kinds: Vec<String> = self
            .kinds
            .iter()
            .map(|(kind, count)| format!("{kind} {count}"))
            .collect();
        write!(f, "  {}", kinds.join(", "))
    }
}
