//! What a large cluster costs in memory: 10,000 services with 10 endpoints each on 100 nodes, in 3 zones.
//!
//! Run with `cargo run --release -p model --example memory`. Prints the resident set before and after, from the
//! process's own status file.

use model::object::decode;
use model::snapshot::{Change, Snapshot};
use model::{Desired, Family, NodeFacts, Settings};
use serde_json::{Value, json};

const SERVICES: u32 = 10_000;
const ENDPOINTS: u32 = 10;

fn main() {
    let before = resident_kib();
    let mut snapshot = Snapshot::new();
    for i in 0..SERVICES {
        for document in [service(i), slice(i)] {
            for object in decode(document).objects {
                snapshot.apply(Change::Apply(object));
            }
        }
    }
    let kept = resident_kib();
    println!("snapshot: {} KiB", kept.saturating_sub(before));
    let (desired, _) =
        Desired::from_snapshot(&snapshot, Family::V4, &NodeFacts::default(), &Settings::default());
    println!(
        "desired of {} services: {} KiB more",
        desired.services.len(),
        resident_kib().saturating_sub(kept)
    );
}

fn service(i: u32) -> Value {
    json!({"kind": "Service", "apiVersion": "v1",
        "metadata": {"name": format!("service-{i}"), "namespace": format!("namespace-{}", i % 100), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"type": "ClusterIP", "clusterIP": format!("10.{}.{}.{}", 96 + i / 65536, (i / 256) % 256, i % 256),
            "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

fn slice(i: u32) -> Value {
    let endpoint = |j: u32| {
        let n = i * ENDPOINTS + j;
        json!({"addresses": [format!("10.{}.{}.{}", 128 + n / 65536, (n / 256) % 256, n % 256)],
            "nodeName": format!("node-{}.example.internal", n % 100),
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hints": {"forZones": [{"name": format!("zone-{}", n % 3)}]}})
    };
    let endpoints: Vec<Value> = (0..ENDPOINTS).map(endpoint).collect();
    json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
        "metadata": {"name": format!("service-{i}-abcde"), "namespace": format!("namespace-{}", i % 100),
            "labels": {"kubernetes.io/service-name": format!("service-{i}")}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints})
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}
