//! Follows a source, prints what it says, and what it costs: `follow kubeconfig FILE` or `follow manifests PATH`.
//!
//! For developers: `cargo run --release -p cluster --example follow -- manifests scenarios/`.

use cluster::SourceEvent;
use cluster::api::{self, Address, ApiOptions};
use cluster::manifests::{self, ManifestOptions};
use model::snapshot::Snapshot;
use std::collections::BTreeSet;
use std::time::Instant;
use tokio::sync::mpsc;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (out, events) = mpsc::channel(256);
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["kubeconfig", path] => {
            let address = Address {
                kubeconfig: Some(path.into()),
                master: None,
            };
            tokio::spawn(
                api::Source::new(ApiOptions::new(address, "node-a"))
                    .await?
                    .run(out),
            );
        }
        ["manifests", path] => {
            tokio::spawn(manifests::Source::new(ManifestOptions::new(*path, "node-a"))?.run(out));
        }
        _ => return Err("say: kubeconfig FILE, or manifests PATH".into()),
    }
    follow(events).await;
    Ok(())
}

async fn follow(mut events: mpsc::Receiver<SourceEvent>) {
    let begun = Instant::now();
    let mut snapshot = Snapshot::new();
    let mut synced = BTreeSet::new();
    let mut changes = 0;
    while let Some(event) = events.recv().await {
        let at = begun.elapsed().as_secs_f32();
        match event {
            SourceEvent::Change(change) => {
                changes += 1;
                if synced.len() == 4 {
                    println!(
                        "{at:9.3} {}",
                        format!("{change:?}").chars().take(120).collect::<String>()
                    );
                }
                snapshot.apply(change);
            }
            SourceEvent::Synced(kind) => {
                synced.insert(kind);
                let (services, slices) = (snapshot.services().count(), snapshot.slices().count());
                println!(
                    "{at:9.3} {kind:?} synced: {changes} changes, {services} services, {slices} slices, {}",
                    memory()
                );
            }
            SourceEvent::NotRead(objects) => println!("{at:9.3} {} objects of other kinds", objects.len()),
            other => println!("{at:9.3} {other:?}"),
        }
    }
}

/// Resident memory now and at most.
fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status
        .lines()
        .filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM"));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join(", ")
}
