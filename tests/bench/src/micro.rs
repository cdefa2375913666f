//! What one service of a large cluster costs in this process: resolve, build, diff, render.

use crate::Options;
use crate::objects::Objects;
use crate::tools::{CAPABILITIES, changes, node};
use iptables::build::{self, BuildContext, EndpointComments, InvalidPackets};
use iptables::diff::batch::{Batch, StepOrder};
use iptables::diff::have::Have;
use iptables::diff::service::{Difference, GoneChains};
use iptables::render::{StepText, Tool};
use model::object::Object;
use model::resolve::{Context, resolve, resolve_node};
use model::snapshot::{Change, Snapshot};
use model::{Family, ServiceName};
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;

/// Microseconds per service, medians.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MicroResult {
    /// Services in the cluster.
    pub services: usize,
    /// Endpoints of each.
    pub endpoints: usize,
    /// One slice's change into the snapshot.
    pub apply_us: f64,
    /// Snapshot to desired.
    pub resolve_us: f64,
    /// Desired to rules.
    pub build_us: f64,
    /// Rules and what is remembered to a step.
    pub diff_us: f64,
    /// The step to text.
    pub render_us: f64,
}

/// Measures at the largest size asked for.
pub fn run(options: &Options) -> MicroResult {
    let services = options.services.iter().copied().max().unwrap_or(10_000);
    let mut objects = Objects::new(services, options.endpoints);
    let mut snapshot = Snapshot::new();
    for change in changes(&objects) {
        snapshot.apply(change);
    }
    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..500 {
        let i = round * 7919 % services;
        let replaced = model::object::decode(objects.replace_endpoint(i)).objects;
        one_service(&mut snapshot, i, replaced, &mut times);
    }
    let [apply_us, resolve_us, build_us, diff_us, render_us] = times.map(median);
    MicroResult {
        services,
        endpoints: options.endpoints,
        apply_us,
        resolve_us,
        build_us,
        diff_us,
        render_us,
    }
}

/// Takes one changed slice all the way to restore text.
fn one_service(snapshot: &mut Snapshot, i: usize, changed: Vec<Object>, times: &mut [Vec<f64>; 5]) {
    let (settings, facts) = node();
    let desired_node = resolve_node(Family::V4, &facts, &settings);
    let context = BuildContext {
        capabilities: CAPABILITIES,
        endpoint_comments: EndpointComments::Omitted,
        invalid: InvalidPackets::Dropped,
    };
    let have = Have::new(Family::V4);
    timed(&mut times[0], || {
        for object in changed {
            black_box(snapshot.apply(Change::Apply(object)));
        }
    });
    let name = ServiceName::new("bench", format!("svc-{i:06}"));
    let service = snapshot.service(&name).expect("it was applied");
    let cross = Context {
        family: Family::V4,
        node: &facts,
        settings: &settings,
        claims: snapshot.claims(),
    };
    let desired = timed(&mut times[1], || {
        resolve(service, &snapshot.slices_of(&name), &cross).0
    });
    let desired = desired.expect("it has a cluster IP");
    let rules = timed(&mut times[2], || {
        build::service(&desired, &desired_node, &context)
    });
    let step = timed(&mut times[3], || {
        let mut batch = Batch::new();
        batch.add(Difference::new(name, rules, &have, GoneChains::Deleted));
        batch.take_steps(StepOrder::AtOnce).0
    });
    timed(&mut times[4], || {
        StepText {
            step: &step,
            family: Family::V4,
            tool: Tool::NfTables,
        }
        .to_string()
    });
}

fn timed<T>(times: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = black_box(work());
    times.push(start.elapsed().as_secs_f64() * 1e6);
    result
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}
