//! What a service no longer needs waits for packets on their way, and goes even if the service changes all the time.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use kernel::fake::FakeTables;
use model::object::{Conditions, Object, Place, Service, ServiceKind, Slice};
use model::object::{SliceEndpoint, SliceName, SlicePort};
use model::snapshot::Change;
use model::{Affinity, Balancing, ClientHashing, Family, Policy, Protocol, ServiceName};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use support::cluster::{Cluster, Heard, NODE};
use support::own_table::OwnTableRig;
use support::plain;

fn name() -> ServiceName {
    ServiceName::new("ns", "svc")
}

/// A service of IPv4 for clients from outside.
fn service() -> Service {
    let mut service = plain::service(name(), Ipv4Addr::new(10, 96, 0, 1), 80);
    service.kind = ServiceKind::NodePort;
    service.ports[0].node_port = Some(30_080);
    service
}

/// Endpoints of these numbers, on this node.
fn slice(endpoints: impl IntoIterator<Item = u8>) -> Slice {
    let endpoint = |number| SliceEndpoint {
        ip: IpAddr::from([10, 180, 0, number]),
        conditions: Conditions {
            ready: true,
            serving: true,
            terminating: false,
        },
        place: Arc::new(Place {
            node: Some(NODE.into()),
            hints: None,
        }),
    };
    Slice {
        name: SliceName::new("ns", "svc-1"),
        service: Some(name()),
        skipped: None,
        family: Some(Family::V4),
        triggered: None,
        ports: Box::new([SlicePort {
            name: "p".into(),
            protocol: Protocol::Tcp,
            port: 8080,
        }]),
        endpoints: endpoints.into_iter().map(endpoint).collect(),
    }
}

struct Case {
    cluster: Cluster,
    rig: OwnTableRig,
}

impl Case {
    fn with(service: Service, slice: Slice) -> Case {
        let mut cluster = Cluster::new(3);
        cluster.settings.client_hashing = ClientHashing::Possible;
        (cluster.services, cluster.slices) = Default::default();
        cluster.services.insert(service.name.clone(), service);
        cluster.slices.insert(slice.name.clone(), slice);
        let mut rig = OwnTableRig::new(FakeTables::default(), &cluster);
        rig.settle().unwrap();
        rig.compare(&cluster).unwrap();
        rig.watch_only(&cluster);
        Case { cluster, rig }
    }

    fn hear(&mut self, object: Object) {
        match object.clone() {
            Object::Service(service) => drop(self.cluster.services.insert(service.name.clone(), *service)),
            Object::Slice(slice) => drop(self.cluster.slices.insert(slice.name.clone(), *slice)),
            other => panic!("{other:?} is not heard of here"),
        }
        self.rig.hear(Heard::Objects(Change::Apply(object)));
        self.rig.watch_also(&self.cluster);
        self.rig.work();
        assert_eq!(self.rig.take_broken(), Vec::<String>::new());
    }

    /// Elements of sets whose name contains this.
    fn elements(&self, part: &str) -> usize {
        let table = self.rig.tables.table(Family::V4).unwrap();
        let keys = table.elements.keys();
        keys.filter(|key| key.set.as_str().contains(part)).count()
    }

    fn settle(&mut self) {
        self.rig.settle().unwrap();
        assert_eq!(self.rig.take_broken(), Vec::<String>::new());
        self.rig.compare(&self.cluster).unwrap();
    }
}

#[test]
fn what_has_waited_goes_though_endpoints_change_all_the_time() {
    let hashed = Service {
        balancing: Balancing::ClientHash,
        ..service()
    };
    let mut case = Case::with(hashed, slice([1, 2]));
    assert!(case.elements("-hashed") > 0);
    case.hear(Object::Service(Box::new(service())));
    assert!(case.elements("-hashed") > 0, "packets may be on their way");
    for second in 0..6 {
        case.rig.now += Duration::from_secs(1);
        case.hear(Object::Slice(Box::new(slice([1, 2, 3 + second]))));
    }
    assert_eq!(case.elements("-hashed"), 0);
    assert_eq!(case.elements("-bucket-"), 0);
    case.settle();
}

#[test]
fn a_policy_local_that_becomes_cluster_loses_no_packet_on_its_way() {
    for balancing in [Balancing::Random, Balancing::ClientHash] {
        let with = |external| Service {
            external,
            balancing,
            ..service()
        };
        let mut case = Case::with(with(Policy::Local), slice([1, 2]));
        assert!(case.elements("nodeport-local-") > 0);
        case.hear(Object::Service(Box::new(with(Policy::Cluster))));
        assert!(
            case.elements("nodeport-local-") > 0,
            "packets may be on their way"
        );
        case.settle();
        assert_eq!(case.elements("nodeport-local-"), 0);
        case.hear(Object::Service(Box::new(with(Policy::Local))));
        case.settle();
    }
}

#[test]
fn a_sticky_list_that_grows_and_loses_its_first_serves_all_the_time() {
    let sticky = Service {
        affinity: Some(Affinity { timeout_seconds: 60 }),
        ..service()
    };
    let mut case = Case::with(sticky, slice([1]));
    case.hear(Object::Slice(Box::new(slice([1, 2]))));
    case.hear(Object::Slice(Box::new(slice([2]))));
    case.settle();
    case.hear(Object::Service(Box::new(service())));
    case.settle();
}
