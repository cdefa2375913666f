//! `trace` over the rules of every scenario, in both modes: the ways of each packet part exactly where rules throw dice,
//! with the chances that these have, and sum to one. No kernel is asked: what real packets do is in `trace_live.rs` and
//! `trace_live_random.rs`.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use live::daemon::{binary, configuration};
use live::forks::forks;
use model::{Desired, Family, FrontendKind, NodeFacts, Origin, Packet, PerFamily};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};

/// A cluster, a node, and packets.
struct Situation {
    name: String,
    node: String,
    objects: Value,
    config: Value,
    addresses: Vec<IpAddr>,
    packets: Vec<Packet>,
}

/// What was found.
#[derive(Debug, Default)]
struct Found {
    situations: usize,
    packets: usize,
    forks: usize,
    remembered: usize,
    kinds: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

#[test]
fn golden_clusters_fork_at_random_choices_alone() {
    let found = every(scenario::golden_cases().into_iter().map(golden));
    found.is_right(1_500, &["delivered", "rejected", "dropped", "untouched"]);
}

#[test]
fn clusters_before_and_after_a_change_fork_at_random_choices_alone() {
    let both = scenario::transitions().into_iter().flat_map(|transition| {
        ["before", "after"].map(|side| {
            let folder = scenario::root().join("transitions").join(&transition.name);
            let text = fs::read_to_string(folder.join(format!("{side}.yaml"))).unwrap();
            let snapshot = if side == "before" {
                &transition.before
            } else {
                &transition.after
            };
            let desired = PerFamily::from_fn(|family| {
                Desired::from_snapshot(snapshot, family, &transition.facts, &transition.settings).0
            });
            Situation {
                name: format!("{} {side}", transition.name),
                node: transition.facts.name.to_string(),
                objects: Value::String(text),
                config: configuration(&json!({"clusterCIDR": "10.244.0.0/16"})),
                addresses: transition.facts.interface_addresses.clone(),
                packets: probes(&desired, &transition.facts),
            }
        })
    });
    let found = every(both);
    found.is_right(150, &["delivered", "rejected"]);
}

#[test]
fn truth_tables_fork_at_random_choices_alone() {
    let tables = scenario::truth_tables().into_iter().flat_map(|table| {
        let name = table.name;
        table.variants.into_iter().map(move |variant| Situation {
            name: format!("{name} / {}", variant.name),
            node: variant.facts.name.to_string(),
            objects: list(&variant.documents),
            config: serde_json::to_value(&variant.config).unwrap(),
            addresses: variant.facts.interface_addresses.clone(),
            packets: variant.flows.into_iter().map(|flow| flow.packet).collect(),
        })
    });
    let found = every(tables);
    found.is_right(
        500,
        &["delivered", "rejected", "dropped", "untouched", "accepted"],
    );
}

fn golden(case: scenario::GoldenCase) -> Situation {
    Situation {
        packets: probes(&case.desired, &case.facts),
        node: case.facts.name.to_string(),
        objects: case.cluster,
        config: serde_json::to_value(&case.config).unwrap(),
        addresses: case.facts.interface_addresses,
        name: case.name,
    }
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

/// To each frontend, in turns from a pod, from outside, from an endpoint of its own, and from the node.
fn probes(desired: &PerFamily<Desired>, facts: &NodeFacts) -> Vec<Packet> {
    let mut all = vec![];
    for family in Family::ALL {
        let [pod, outside] = match family {
            Family::V4 => ["10.244.0.77", "198.51.100.7"],
            Family::V6 => ["fd00:10:244::77", "2001:db8:ffff::7"],
        };
        let desired = desired.get(family);
        let is_own = |ip: &&IpAddr| Family::of(**ip) == family && !ip.is_loopback();
        let own: Vec<IpAddr> = facts.interface_addresses.iter().filter(is_own).copied().collect();
        for port in desired.services.values().flat_map(|service| &service.ports) {
            for frontend in &port.frontends {
                let to = match frontend.kind {
                    FrontendKind::ClusterIp(ip)
                    | FrontendKind::ExternalIp(ip)
                    | FrontendKind::LoadBalancerIp(ip) => Some(ip),
                    FrontendKind::NodePort => own.first().copied(),
                };
                let Some(to) = to else { continue };
                let arriving = |from: IpAddr, interface: &str| (from, Origin::Interface(interface.into()));
                let mut sources = vec![
                    arriving(pod.parse().unwrap(), "cni0"),
                    arriving(outside.parse().unwrap(), "eth0"),
                ];
                let endpoint = port.reachable.first().map(SocketAddr::ip);
                let endpoint = endpoint.filter(|ip| !facts.is_local_address(*ip));
                sources.extend(endpoint.map(|ip| arriving(ip, "cni0")));
                sources.extend(own.first().map(|ip| (*ip, Origin::Host)));
                let to = SocketAddr::new(to, frontend.port);
                let packet = |(from, origin)| Packet::new(from, to, port.name.protocol, origin);
                // One after the other: all of them take a minute, and each kind is there many times.
                let turn = all.len() % sources.len();
                all.push(packet(sources.swap_remove(turn)));
            }
        }
    }
    all
}

fn every(situations: impl Iterator<Item = Situation>) -> Found {
    let mut found = Found::default();
    for situation in situations {
        found.situations += 1;
        for mode in ["iptables", "nftables"] {
            let name = situation.name.clone();
            let place = |what: &str| format!("{mode} {name}: {what}");
            for answer in answers(&situation, mode) {
                found.packets += 1;
                match forks(&answer) {
                    Ok(forks) => {
                        found.forks += forks.random;
                        found.remembered += forks.remembered;
                    }
                    Err(why) => found.wrong.push(place(&format!("{}: {why}", answer["packet"]))),
                }
                match answer["outcome"]["kind"].as_str() {
                    Some(kind) => *found.kinds.entry(kind.to_owned()).or_default() += 1,
                    None => found
                        .wrong
                        .push(place(&format!("no single outcome: {}", answer["packet"]))),
                }
            }
        }
    }
    println!(
        "{} packets in {} situations: {} random forks, {} by what lists of clients remember; {:?}",
        found.packets, found.situations, found.forks, found.remembered, found.kinds
    );
    found
}

impl Found {
    fn is_right(&self, least: usize, kinds: &[&str]) {
        let some = self.wrong[..self.wrong.len().min(10)].join("\n");
        assert!(self.wrong.is_empty(), "{} packets:\n{some}", self.wrong.len());
        assert!(self.packets >= least && self.forks > 0, "{self:?}");
        for kind in kinds {
            assert!(self.kinds.contains_key(*kind), "no packet was {kind}: {self:?}");
        }
    }
}

/// What `trace` says of a situation's packets.
fn answers(situation: &Situation, mode: &str) -> Vec<Value> {
    if situation.packets.is_empty() {
        return vec![];
    }
    let folder = tempfile::tempdir().unwrap();
    let [objects, config] = ["objects.yaml", "config.json"].map(|name| folder.path().join(name));
    let text = match &situation.objects {
        Value::String(text) => text.clone(),
        objects => objects.to_string(),
    };
    fs::write(&objects, text).unwrap();
    fs::write(&config, situation.config.to_string()).unwrap();
    let mut command = Command::new(binary());
    command.args([
        "trace",
        "--packets",
        "-",
        "--output",
        "json",
        "--proxy-mode",
        mode,
    ]);
    command.args(["--node", &situation.node]);
    command
        .arg("--manifests")
        .arg(&objects)
        .arg("--config")
        .arg(&config);
    for address in &situation.addresses {
        command.args(["--local-address", &address.to_string()]);
    }
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines(&situation.packets).as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {mode}: {said}", situation.name);
    let answers: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answers.len(), situation.packets.len());
    answers.into_iter().map(|mut one| one["answer"].take()).collect()
}

/// Packets in the words of `trace`.
fn lines(packets: &[Packet]) -> String {
    let mut lines = String::new();
    for packet in packets {
        let came = match &packet.origin {
            Origin::Host => "--sent-here".to_owned(),
            Origin::Interface(name) if name.is_empty() => String::new(),
            Origin::Interface(name) => format!("--in-interface {name}"),
        };
        let (from, to, proto) = (packet.src, packet.dst, packet.protocol.as_lower());
        writeln!(lines, "--from {from} --to {to} --proto {proto} {came}").unwrap();
    }
    lines
}
