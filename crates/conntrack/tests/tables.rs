//! The tables of `scenarios/conntrack`: what becomes of flows as a cluster changes.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use conntrack::{Changes, Expectation, NodeAddresses, ServiceFlows, TcpOption, Urgency, Verdict, decide};
use ipnet::IpNet;
use model::resolve::{Context, resolve_node};
use model::{Family, ServiceName};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use support::{World, flow};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    title: String,
    node: Node,
    #[allow(dead_code, reason = "the steps refer to them by alias")]
    services: BTreeMap<String, Value>,
    sequences: Vec<Sequence>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    name: String,
    addresses: Vec<IpAddr>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sequence {
    name: String,
    #[serde(default)]
    tcp: Option<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    objects: Vec<Value>,
    addresses: Option<Vec<IpAddr>>,
    node_port_addresses: Option<Vec<IpNet>>,
    urgency: Option<String>,
    sweep: Option<String>,
    #[serde(default)]
    flows: BTreeMap<String, String>,
}

/// How a step gets into an expectation.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// One service after the other, in the order of their names.
    Forward,
    /// In the other order.
    Backward,
    /// Through [`Changes`], all at once.
    Gathered,
}

fn tables() -> Vec<(String, Table)> {
    let folder = scenario::root().join("conntrack");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        let table = serde_saphyr::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        (path.file_name().unwrap().to_string_lossy().into_owned(), table)
    };
    paths.into_iter().map(read).collect()
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Keep(why) => format!("keep {why:?}"),
        Verdict::Delete(why) => format!("delete {why:?}"),
    }
}

/// Carries a step into an expectation, service by service.
fn carry(expectation: &mut Expectation, before: &World, after: &World, tcp: TcpOption, way: Way) -> Urgency {
    let context = Context {
        family: Family::V4,
        node: &after.facts,
        settings: &after.settings,
        claims: after.snapshot.claims(),
    };
    let names = before.snapshot.services().chain(after.snapshot.services());
    let names: BTreeSet<ServiceName> = names.map(|service| service.name.clone()).collect();
    let mut updates: Vec<_> = names
        .into_iter()
        .map(|name| {
            let flows = after
                .snapshot
                .service(&name)
                .map(|service| ServiceFlows::of(service, &after.snapshot.slices_of(&name), &context, tcp));
            (name, flows.unwrap_or_default())
        })
        .collect();
    let node = resolve_node(Family::V4, &after.facts, &after.settings);
    let node = NodeAddresses::of(&node, &after.facts);
    if way == Way::Gathered {
        let mut changes = Changes::default();
        for (name, flows) in updates {
            changes.note_service(name.clone(), flows.clone());
            changes.note_service(name, flows);
        }
        changes.note_node(node);
        return changes.apply(expectation);
    }
    if way == Way::Backward {
        updates.reverse();
    }
    let mut urgency = expectation.update_node(node);
    for (name, flows) in updates {
        urgency = urgency.max(expectation.update(&name, flows));
    }
    urgency
}

fn play(file: &str, table: &Table, sequence: &Sequence, way: Way, faults: &mut Vec<String>) {
    let tcp = match sequence.tcp.as_deref() {
        None | Some("Never") => TcpOption::Never,
        Some("CutGone") => TcpOption::CutGone,
        Some(other) => panic!("{file}: {other} is no option"),
    };
    assert_eq!(table.node.name, "node-a");
    let mut before = World::new(&table.node.addresses);
    let mut expectation = Expectation::new(Family::V4, NodeAddresses::default());
    carry(&mut expectation, &before, &before, tcp, way);
    for (number, step) in sequence.steps.iter().enumerate() {
        let mut after = before.clone();
        after.set_objects(&step.objects);
        if let Some(addresses) = &step.addresses {
            after.facts.interface_addresses.clone_from(addresses);
        }
        if let Some(nets) = &step.node_port_addresses {
            after.restrict_node_ports(nets.clone());
        }
        let urgency = carry(&mut expectation, &before, &after, tcp, way);
        let place = format!(
            "{file}: {}: {}, step {number}, {way:?}",
            table.title, sequence.name
        );
        let urgency = format!("{urgency:?}");
        if let Some(want) = step.urgency.as_ref().filter(|want| **want != urgency) {
            faults.push(format!("{place}: urgency is {urgency}, not {want}"));
        }
        let sweep = expectation.begin_sweep();
        for (text, want) in &step.flows {
            let found = verdict(decide(&expectation, &flow(text)));
            if found != *want {
                faults.push(format!("{place}: {text}: {found}, not {want}"));
            }
        }
        match step.sweep.as_deref() {
            Some("Completed") => expectation.complete_sweep(sweep),
            None | Some("Failed") => {}
            Some(other) => panic!("{place}: {other}?"),
        }
        before = after;
    }
}

#[test]
fn every_flow_is_kept_or_deleted_for_the_reason_that_the_tables_give() {
    let mut faults = Vec::new();
    let mut flows = 0;
    for (file, table) in tables() {
        for sequence in &table.sequences {
            flows += sequence.steps.iter().map(|step| step.flows.len()).sum::<usize>();
            for way in [Way::Forward, Way::Backward, Way::Gathered] {
                play(&file, &table, sequence, way, &mut faults);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(flows > 80, "only {flows} flows: some table is not read");
}
