//! A change of the node or the settings concerns every service, and delays none that changes itself.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use engine::Event;
use kernel::fake::FakeKernel;
use model::object::{Conditions, Hints, Object, Place, Service, Slice, SliceEndpoint, SliceName, SlicePort};
use model::{Family, Protocol, ServiceName};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use support::cluster::{Cluster, Heard, apply};
use support::plain;
use support::rig::Rig;

fn name(number: u16) -> ServiceName {
    ServiceName::new("crowd", format!("svc-{number:05}"))
}

fn service(number: u16, port: u16) -> Service {
    let ip = Ipv4Addr::from(0x0a60_0000 + u32::from(number));
    plain::service(name(number), ip, port)
}

/// An endpoint in each of two zones, each meant for its zone.
fn slice(number: u16) -> Slice {
    let endpoint = |zone: &str, third: u8| SliceEndpoint {
        ip: IpAddr::from([
            10,
            third,
            u8::try_from(number >> 8).unwrap(),
            u8::try_from(number & 255).unwrap(),
        ]),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        place: Arc::new(Place {
            node: None,
            hints: Some(Arc::new(Hints {
                zones: Box::new([zone.into()]),
                nodes: Box::default(),
            })),
        }),
    };
    Slice {
        name: SliceName::new("crowd", format!("svc-{number:05}-1")),
        service: Some(name(number)),
        skipped: None,
        family: Some(Family::V4),
        triggered: None,
        ports: Box::new([SlicePort {
            name: "p".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }]),
        endpoints: Box::new([endpoint("zone-a", 181), endpoint("zone-b", 182)]),
    }
}

/// This many services that each have an endpoint in each of two zones, in the kernel.
fn loaded(services: u16) -> (Cluster, Rig) {
    let mut cluster = Cluster::new(3);
    (cluster.services, cluster.slices) = Default::default();
    for number in 0..services {
        cluster.services.insert(name(number), service(number, 80));
        let slice = slice(number);
        cluster.slices.insert(slice.name.clone(), slice);
    }
    let mut rig = Rig::on_host(FakeKernel::new(kernel::Backend::NfTables), &cluster);
    rig.settle().unwrap();
    rig.kernel.clear_journal();
    rig.pass(Duration::from_secs(5));
    // So that each step is longer than the least time between two runs.
    rig.effect_takes = Duration::from_secs(2);
    (cluster, rig)
}

/// The services of each step that was carried out.
fn steps(rig: &Rig) -> Vec<BTreeSet<ServiceName>> {
    let services = |step: &iptables::plan::Step| step.services.iter().cloned().collect();
    rig.steps().into_iter().map(|(_, step)| services(step)).collect()
}

/// The last service by name changes while the first step is on its way: it comes with the step after that.
fn is_not_behind_the_others(cluster: &mut Cluster, rig: &mut Rig, services: u16) {
    let last = service(services - 1, 81);
    cluster.services.insert(last.name.clone(), last.clone());
    rig.meanwhile
        .push_back(apply(Object::Service(Box::new(last.clone()))));
    rig.settle().unwrap();
    let steps = steps(rig);
    let settled: BTreeSet<&ServiceName> = steps.iter().flatten().collect();
    assert_eq!(settled.len(), usize::from(services), "every service is concerned");
    assert!(steps.len() > usize::from(services) / 250, "{} steps", steps.len());
    let at = steps.iter().position(|step| step.contains(&last.name));
    assert_eq!(at, Some(1), "of {} steps", steps.len());
}

#[test]
fn a_service_that_changes_is_not_behind_the_thousands_that_a_zone_concerns() {
    let (mut cluster, mut rig) = loaded(5_000);
    cluster.node.zone = Some("zone-b".into());
    cluster.facts.zone.clone_from(&cluster.node.zone);
    rig.hear(apply(Object::Node(cluster.node.clone())));
    is_not_behind_the_others(&mut cluster, &mut rig, 5_000);
}

#[test]
fn a_service_that_changes_is_not_behind_those_that_a_setting_concerns() {
    let (mut cluster, mut rig) = loaded(1_000);
    cluster.settings.masquerade_all = !cluster.settings.masquerade_all;
    let settings = Event::Settings(cluster.settings.clone());
    rig.engine.handle(settings, rig.now);
    is_not_behind_the_others(&mut cluster, &mut rig, 1_000);
    rig.compare_both(&cluster).unwrap();
}

#[test]
fn an_address_that_comes_concerns_no_service() {
    let (mut cluster, mut rig) = loaded(200);
    cluster
        .facts
        .interface_addresses
        .push(IpAddr::from([192, 168, 0, 3]));
    rig.hear(Heard::Facts(cluster.facts.clone()));
    rig.settle().unwrap();
    let services: BTreeSet<ServiceName> = steps(&rig).into_iter().flatten().collect();
    assert_eq!(services, BTreeSet::new());
    rig.compare_both(&cluster).unwrap();
}
