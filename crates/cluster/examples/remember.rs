//! What the memory on disk costs: `remember SERVICES ENDPOINTS`, in a scratch folder.
//!
//! For developers: `cargo run --release -p cluster --example remember -- 10000 10`.

use cluster::state::{Identity, Keeper, KernelRules, StateOptions, StateTiming};
use cluster::{Health, Kind, Remembered, SourceEvent};
use model::object::{Object, decode};
use model::snapshot::Change;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{Receiver, Sender, channel};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|word| word.parse())
        .collect::<Result<_, _>>()?;
    let &[services, endpoints] = numbers.as_slice() else {
        return Err("say: SERVICES ENDPOINTS".into());
    };
    let folder = tempfile::tempdir()?;
    let objects = cluster(services, endpoints);
    println!("{} objects; {}", objects.len(), memory());

    let (server, mut out) = start(folder.path());
    let taken = Cost::of(async {
        for kind in [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr] {
            for object in objects.iter().filter(|object| object.kind() == kind) {
                server
                    .send(SourceEvent::Change(Change::Apply(object.clone())))
                    .await?;
            }
            server.send(SourceEvent::Synced(kind)).await?;
        }
        told(&mut out, |what| matches!(what, Remembered::Written(_))).await;
        Ok::<(), Box<dyn std::error::Error>>(())
    });
    println!("lists taken in and written: {}", taken.await?);
    let file = folder.path().join("objects");
    println!("file: {} bytes; {}", std::fs::metadata(&file)?.len(), memory());

    let changed = std::fs::metadata(&file)?.modified()?;
    let object = decode(json!({"kind": "Service", "metadata": {"namespace": "x", "name": "x"}, "spec": {"clusterIP": "10.255.0.1"}}))
        .objects
        .remove(0);
    let written = Cost::of(async {
        server.send(SourceEvent::Change(Change::Apply(object))).await?;
        while std::fs::metadata(&file)?.modified()? == changed {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    });
    println!("one change written: {}; {}", written.await?, memory());
    drop((server, out, objects));

    let (server, mut out) = start(folder.path());
    let read = Cost::of(async {
        let health = Health::Failing {
            error: String::new(),
            failures: 1,
            since: Duration::ZERO,
        };
        server.send(SourceEvent::Health(Kind::Service, health)).await?;
        told(&mut out, |what| matches!(what, Remembered::InUse { .. })).await;
        Ok::<(), Box<dyn std::error::Error>>(())
    });
    println!("read: {}; {}", read.await?, memory());
    Ok(())
}

fn start(folder: &Path) -> (Sender<SourceEvent>, Receiver<SourceEvent>) {
    let options = StateOptions {
        folder: folder.to_owned(),
        max_age: Duration::from_hours(24),
        node_name: "node-a".into(),
        identity: Identity::default(),
        timing: StateTiming {
            after_failure: Duration::ZERO,
            settle: Duration::ZERO,
            interval: Duration::ZERO,
            ..StateTiming::default()
        },
    };
    let (server, said) = channel(64);
    let (listened, out) = channel(1 << 16);
    tokio::spawn(Keeper::new(options, || KernelRules::Absent).run(said, listened));
    (server, out)
}

async fn told(out: &mut Receiver<SourceEvent>, is_it: impl Fn(&Remembered) -> bool) {
    while let Some(event) = out.recv().await {
        if matches!(&event, SourceEvent::Remembered(what) if is_it(what)) {
            return;
        }
    }
}

fn cluster(services: usize, endpoints: usize) -> Vec<Object> {
    let mut objects = decode(json!({"kind": "Node", "metadata": {"name": "node-a"}})).objects;
    for index in 0..services {
        let name = format!("service-{index:05}");
        let ip = format!("10.{}.{}.{}", 96 + (index >> 16), index >> 8 & 255, index & 255);
        let endpoints: Vec<_> = (0..endpoints)
            .map(|endpoint| {
                let number = index * 10 + endpoint;
                let ip = format!("10.{}.{}.{}", 128 + (number >> 16 & 63), number >> 8 & 255, number & 255);
                json!({"addresses": [ip], "nodeName": format!("node-{:04}.example.com", number % 1000), "conditions": {"ready": true, "serving": true, "terminating": false}})
            })
            .collect();
        for document in [
            json!({
                "kind": "Service", "metadata": {"namespace": "production", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
                "spec": {"clusterIP": ip, "ports": [{"name": "http", "port": 80}]},
            }),
            json!({
                "kind": "EndpointSlice", "metadata": {"namespace": "production", "name": format!("{name}-x7k2p"), "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": endpoints,
            }),
        ] {
            objects.extend(decode(document).objects);
        }
    }
    objects
}

struct Cost {
    cpu: Duration,
    wall: Duration,
}

impl Cost {
    async fn of<E>(work: impl Future<Output = Result<(), E>>) -> Result<Cost, E> {
        let (cpu, wall) = (cpu(), Instant::now());
        work.await?;
        Ok(Cost {
            cpu: self::cpu().saturating_sub(cpu),
            wall: wall.elapsed(),
        })
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of CPU, {:?}", self.cpu, self.wall)
    }
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    line.unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}
