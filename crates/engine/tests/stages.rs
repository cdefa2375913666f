//! Golden files of our own stages: what is wanted, the first load, and what a change writes.
//!
//! `cargo xtask bless` writes the texts anew. What must hold of them whatever they say is checked apart: which
//! services a change settles, that no chain of another is written, and how many shared rules come and go.

mod support;

use iptables::ast::ChainName;
use iptables::build::{self, BuildContext, EndpointComments, InvalidPackets};
use iptables::plan::{Plan, Step};
use iptables::render::PlanText;
use kernel::fake::FakeKernel;
use model::object::{Kind, Object};
use model::snapshot::{Change, Snapshot};
use model::text::DesiredText;
use model::{Desired, Family};
use scenario::{GoldenCase, Transition, golden_cases, stage, transitions};
use std::collections::BTreeSet;
use support::cluster::{Cluster, Heard};
use support::rig::{CAPABILITIES, Rig};

/// Golden clusters whose stages are kept.
const STAGES: [&str; 8] = [
    "clusterip",
    "detect-node-cidr",
    "dual-stack",
    "loadbalancer",
    "nodeport-primary",
    "policy",
    "terminating",
    "topology",
];

/// What a transition may do: services settled, chains written, shared rules inserted and deleted, chains gone.
struct Expected {
    name: &'static str,
    services: &'static [&'static str],
    written: usize,
    inserted: usize,
    deleted: usize,
    gone: usize,
}

const fn expected(
    name: &'static str,
    services: &'static [&'static str],
    [written, inserted, deleted, gone]: [usize; 4],
) -> Expected {
    Expected {
        name,
        services,
        written,
        inserted,
        deleted,
        gone,
    }
}

/// The service `shop/web` has a cluster IP and a node port, and so three shared rules with endpoints (one for the
/// cluster IP, two for the node port, of which one is for loopback), two without (reject), and the chains SVC and EXT
/// beside those of its endpoints.
const TRANSITIONS: [Expected; 11] = [
    // SVC alone: it asks the lists of clients that the chains of the endpoints keep.
    expected("affinity-timeout-changed", &["shop/web"], [1, 0, 0, 0]),
    // The external IP's rule and EXT chain, from one to the other. The rule of the younger's cluster IP moves along, since
    // it stands before that of an external IP in what upstream writes.
    expected("claim-handed-over", &["shop/older", "shop/younger"], [1, 2, 2, 1]),
    // SVC, and SEP of the new endpoint.
    expected("endpoint-added", &["shop/web"], [2, 0, 0, 0]),
    expected("endpoint-removed", &["shop/web"], [1, 0, 0, 1]),
    expected("endpoint-replaced", &["shop/web"], [2, 0, 0, 1]),
    // EXT, and SVL, which is new.
    expected("policy-flipped", &["shop/web"], [2, 0, 0, 0]),
    expected("scaled-from-zero", &["shop/web"], [4, 3, 2, 0]),
    expected("scaled-to-zero", &["shop/web"], [0, 2, 3, 4]),
    expected("service-added", &["shop/web"], [4, 3, 0, 0]),
    expected("service-removed", &["shop/web"], [0, 0, 3, 4]),
    // As an endpoint that was added: nobody else is rewritten for comments.
    expected("threshold-crossed", &["shop/web"], [2, 0, 0, 0]),
];

fn case(cases: &[GoldenCase], name: &str) -> GoldenCase {
    let found = cases.iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("no golden case {name}")).clone()
}

fn all_well(failures: &[String]) {
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn golden_clusters_want_what_is_written_down() {
    let cases = golden_cases();
    let mut failures = Vec::new();
    for name in STAGES {
        let case = case(&cases, name);
        for (file, desired) in [
            ("desired.v4.txt", &case.desired.v4),
            ("desired.v6.txt", &case.desired.v6),
        ] {
            let text = DesiredText(desired).to_string();
            failures.extend(stage::check(&format!("stages/{name}/{file}"), &text).err());
        }
    }
    all_well(&failures);
}

#[test]
fn first_loads_are_as_written_down() {
    let cases = golden_cases();
    let mut failures = Vec::new();
    for name in STAGES {
        let case = case(&cases, name);
        let rig = settled(
            &case.snapshot,
            &Cluster::of(&case.snapshot, &case.facts, &case.settings),
        );
        let text = text(&steps(&rig));
        failures.extend(stage::check(&format!("stages/{name}/first-plan.txt"), &text).err());
    }
    all_well(&failures);
}

#[test]
fn transitions_write_what_is_written_down() {
    let mut failures = Vec::new();
    for transition in transitions() {
        let text = text(&change(&transition));
        failures.extend(stage::check(&format!("transitions/{}/plan.txt", transition.name), &text).err());
    }
    all_well(&failures);
}

#[test]
fn every_transition_is_expected_to_do_something() {
    let there: Vec<String> = transitions()
        .into_iter()
        .map(|transition| transition.name)
        .collect();
    let named: Vec<&str> = TRANSITIONS.iter().map(|expected| expected.name).collect();
    assert_eq!(there, named);
}

#[test]
fn a_transition_writes_only_chains_of_the_services_that_change() {
    for (transition, expected) in transitions().iter().zip(&TRANSITIONS) {
        let what = &transition.name;
        let own = chains_of(transition, expected.services);
        for step in &change(transition) {
            for service in &step.services {
                assert!(
                    expected.services.contains(&service.to_string().as_str()),
                    "{what}: {service} is settled"
                );
            }
            let written = step
                .write
                .values()
                .flat_map(|write| write.chains.keys().chain(&write.remove));
            let retired = step.retire.iter().map(|(_, chain)| chain);
            for chain in written.chain(retired) {
                assert!(own.contains(chain), "{what}: {chain} is touched");
            }
        }
    }
}

#[test]
fn a_transition_touches_shared_chains_by_single_rules() {
    for (transition, expected) in transitions().iter().zip(&TRANSITIONS) {
        let steps = change(transition);
        let writes = || steps.iter().flat_map(|step| step.write.values());
        let counted = [
            writes().map(|write| write.chains.len()).sum(),
            writes().map(|write| write.insert.len()).sum(),
            steps.iter().map(|step| step.delete.len()).sum(),
            writes().map(|write| write.remove.len()).sum::<usize>()
                + steps.iter().map(|step| step.retire.len()).sum::<usize>(),
        ];
        let Expected {
            name,
            written,
            inserted,
            deleted,
            gone,
            ..
        } = *expected;
        assert_eq!(
            counted,
            [written, inserted, deleted, gone],
            "{name}:\n{}",
            text(&steps)
        );
        assert!(
            writes().all(|write| write.append.is_empty() && write.ensure.is_empty()),
            "{name}: the node's part is written"
        );
    }
}

/// Chains that these services have before or after.
fn chains_of(transition: &Transition, services: &[&str]) -> BTreeSet<ChainName> {
    let context = BuildContext {
        capabilities: CAPABILITIES,
        endpoint_comments: EndpointComments::Kept,
        invalid: InvalidPackets::Dropped,
    };
    let mut chains = BTreeSet::new();
    for snapshot in [&transition.before, &transition.after] {
        let (desired, _) =
            Desired::from_snapshot(snapshot, Family::V4, &transition.facts, &transition.settings);
        for (name, service) in &desired.services {
            if services.contains(&name.to_string().as_str()) {
                chains.extend(
                    build::service(service, &desired.node, &context)
                        .chains
                        .into_keys(),
                );
            }
        }
    }
    chains
}

/// An engine that has brought these objects into an empty kernel of `nf_tables`.
fn settled(snapshot: &Snapshot, cluster: &Cluster) -> Rig {
    let kernel = FakeKernel::new(kernel::Backend::NfTables);
    let mut rig = Rig::on_host(kernel, cluster);
    assert_eq!(
        rig.engine.snapshot().services().count(),
        snapshot.services().count()
    );
    rig.settle().expect("nothing fails here");
    rig
}

/// The steps of IPv4 since the journal was cleared.
fn steps(rig: &Rig) -> Vec<Step> {
    let all = rig.steps().into_iter();
    all.filter(|(family, _)| *family == Family::V4)
        .map(|(_, step)| step.clone())
        .collect()
}

fn text(steps: &[Step]) -> String {
    let plan = Plan {
        steps: steps.to_vec(),
    };
    PlanText {
        plan: &plan,
        family: Family::V4,
    }
    .to_string()
}

/// The steps of the change.
fn change(transition: &Transition) -> Vec<Step> {
    let cluster = Cluster::of(&transition.before, &transition.facts, &transition.settings);
    let mut rig = settled(&transition.before, &cluster);
    rig.kernel.clear_journal();
    for kind in [Kind::Node, Kind::Service, Kind::Slice] {
        let of_kind = |object: &Object| object.kind() == kind;
        let objects = transition.after.clone().into_objects().filter(of_kind).collect();
        rig.hear(Heard::Objects(Change::ReplaceAll { kind, objects }));
    }
    rig.settle().expect("nothing fails here");
    steps(&rig)
}
