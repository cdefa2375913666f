//! Random clusters, and random changes to them.

use super::making::{addresses, cluster_ip, settings};
use super::rng::Rng;
use model::object::{
    Conditions, Kind, Node, Object, ObjectRef, Service, ServiceKind, Slice, SliceEndpoint, SliceName,
    SlicePort,
};
use model::snapshot::{Change, Snapshot};
use model::{Affinity, Balancing, Family, NodeFacts, PerFamily, Policy, ServiceName, Settings};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The node the proxy runs on.
pub const NODE: &str = "node-a";

/// How often each thing worth covering was generated.
pub type Coverage = BTreeMap<&'static str, usize>;

/// What the objects are, kept apart from anything under test.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub services: BTreeMap<ServiceName, Service>,
    pub slices: BTreeMap<SliceName, Slice>,
    pub node: Node,
    pub facts: NodeFacts,
    pub settings: Settings,
    pub coverage: Coverage,
    pub(super) rng: Rng,
    pub(super) made: u16,
}

/// A change, as the proxy hears of it.
#[derive(Clone, Debug)]
pub enum Heard {
    Objects(Change),
    Facts(NodeFacts),
}

impl Cluster {
    pub fn new(seed: u64) -> Cluster {
        let mut rng = Rng::new(seed);
        let settings = settings(&mut rng);
        let facts = NodeFacts {
            name: NODE.into(),
            zone: Some("zone-a".into()),
            node_ips: PerFamily {
                v4: Some("192.168.0.2".parse().unwrap()),
                v6: Some("fd00:1::2".parse().unwrap()),
            },
            pod_cidrs: Vec::new(),
            interface_addresses: addresses(&["127.0.0.1", "192.168.0.2", "::1", "fd00:1::2"]),
        };
        let mut cluster = Cluster {
            services: BTreeMap::new(),
            slices: BTreeMap::new(),
            node: Node {
                name: NODE.into(),
                zone: facts.zone.clone(),
                addresses: Box::default(),
                pod_cidrs: Box::default(),
                eligibility: model::object::Eligibility::Eligible,
            },
            facts,
            settings,
            coverage: Coverage::new(),
            rng,
            made: 0,
        };
        cluster.add_api_server();
        for _ in 0..cluster.rng.below(6) {
            cluster.add_service();
            cluster.add_slice();
        }
        cluster
    }

    /// A cluster of objects that somebody else made.
    pub fn of(snapshot: &Snapshot, facts: &NodeFacts, settings: &Settings) -> Cluster {
        let mut cluster = Cluster::new(0);
        cluster.services = snapshot.services().map(|s| (s.name.clone(), s.clone())).collect();
        cluster.slices = snapshot.slices().map(|s| (s.name.clone(), s.clone())).collect();
        if let Some(node) = snapshot.node(&facts.name) {
            cluster.node = node.clone();
        } else {
            cluster.node.name = "nobody".into();
        }
        cluster.facts = facts.clone();
        cluster.settings = settings.clone();
        cluster
    }

    /// The same objects in a snapshot that has seen nothing else.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for object in self.objects() {
            snapshot.apply(Change::Apply(object));
        }
        snapshot
    }

    pub fn objects(&self) -> Vec<Object> {
        let services = self
            .services
            .values()
            .cloned()
            .map(|s| Object::Service(Box::new(s)));
        let slices = self.slices.values().cloned().map(|s| Object::Slice(Box::new(s)));
        let mut all: Vec<Object> = services.chain(slices).collect();
        all.push(Object::Node(self.node.clone()));
        all
    }

    /// A random change, already made here.
    pub fn change(&mut self) -> Vec<Heard> {
        match self.rng.below(100) {
            0..=11 => self.add_service(),
            12..=19 => self.delete_service(),
            20..=36 => self.modify_service(),
            37..=41 => self.flip_family(),
            42..=52 => self.add_slice(),
            53..=58 => self.delete_slice(),
            59..=84 => self.modify_slice(),
            85..=88 => self.cross_threshold(),
            89..=91 => self.change_zone(),
            92..=95 => self.change_interfaces(),
            96..=97 => self.recreate_service(),
            _ => self.list_again(),
        }
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.coverage.entry(what).or_default() += 1;
    }

    fn add_api_server(&mut self) {
        let name = ServiceName::new("default", "kubernetes");
        let service = self.service(name.clone(), "https");
        self.services.insert(name, service);
    }

    pub fn add_service(&mut self) -> Vec<Heard> {
        self.made += 1;
        let dns = self.rng.percent(10);
        let name = if dns {
            ServiceName::new("kube-system", "kube-dns")
        } else {
            ServiceName::new(*self.rng.pick(&["ns1", "ns2"]), format!("svc{}", self.made))
        };
        let service = self.service(name.clone(), if dns { "dns" } else { "" });
        self.services.insert(name, service.clone());
        vec![apply(Object::Service(Box::new(service)))]
    }

    fn delete_service(&mut self) -> Vec<Heard> {
        let Some(name) = self.some_service() else {
            return self.add_service();
        };
        self.services.remove(&name);
        self.count("service deleted");
        vec![Heard::Objects(Change::Delete(ObjectRef::Service(name)))]
    }

    fn modify_service(&mut self) -> Vec<Heard> {
        let Some(name) = self.some_service() else {
            return self.add_service();
        };
        let mut service = self.services[&name].clone();
        match self.rng.below(7) {
            6 => {
                service.balancing = match service.balancing {
                    Balancing::Random => Balancing::ClientHash,
                    Balancing::ClientHash => Balancing::Random,
                };
                self.count("balancing flipped");
            }
            0 => {
                service.internal = flipped(service.internal);
                self.count("internal policy flipped");
            }
            1 if service.kind != ServiceKind::ClusterIp => {
                service.external = flipped(service.external);
                service.health_check_node_port = None;
                self.count("external policy flipped");
            }
            2 => {
                service.affinity = match service.affinity {
                    None => Some(Affinity { timeout_seconds: 600 }),
                    // A shorter time on a live service is another rule with the same list.
                    Some(Affinity { timeout_seconds: 600 }) => Some(Affinity { timeout_seconds: 60 }),
                    Some(_) => None,
                };
                self.count("affinity flipped");
            }
            3 => {
                let mut ports = service.ports.to_vec();
                ports[0].port = if ports[0].port == 80 { 81 } else { 80 };
                service.ports = ports.into_boxed_slice();
                self.count("port changed");
            }
            _ => {
                self.dress(&mut service);
                self.count("addresses changed");
            }
        }
        self.services.insert(name, service.clone());
        vec![apply(Object::Service(Box::new(service)))]
    }

    fn flip_family(&mut self) -> Vec<Heard> {
        let Some(name) = self.some_service() else {
            return self.add_service();
        };
        self.made += 1;
        let mut service = self.services[&name].clone();
        let family = *self.rng.pick(&Family::ALL);
        let ip = service.cluster_ips.get_mut(family);
        *ip = match ip {
            Some(_) => None,
            None => Some(cluster_ip(family, self.made)),
        };
        self.count("family flip");
        self.services.insert(name, service.clone());
        vec![apply(Object::Service(Box::new(service)))]
    }

    /// Deleted and created again under the same name, between two looks of the proxy or one after the other.
    fn recreate_service(&mut self) -> Vec<Heard> {
        let Some(name) = self.some_service() else {
            return self.add_service();
        };
        let service = self.service(name.clone(), "");
        self.services.insert(name.clone(), service.clone());
        self.count("service recreated");
        let created = apply(Object::Service(Box::new(service)));
        if self.rng.percent(50) {
            vec![created]
        } else {
            vec![Heard::Objects(Change::Delete(ObjectRef::Service(name))), created]
        }
    }

    pub fn add_slice(&mut self) -> Vec<Heard> {
        let Some(service) = self.some_service() else {
            return self.add_service();
        };
        let family = *self.rng.pick(&[Family::V4, Family::V4, Family::V6]);
        self.made += 1;
        let name = SliceName::new(
            service.namespace.clone(),
            format!("{}-{}", service.name, self.made),
        );
        let ports = self.services[&service].ports.clone();
        let endpoints = (0..self.rng.below(4)).map(|_| self.endpoint(family)).collect();
        let slice = Slice {
            name: name.clone(),
            service: Some(service),
            skipped: None,
            family: Some(family),
            triggered: None,
            ports: ports
                .iter()
                .map(|port| SlicePort {
                    name: port.name.clone(),
                    protocol: port.protocol,
                    port: port.port + 1000,
                })
                .collect(),
            endpoints,
        };
        self.slices.insert(name, slice.clone());
        vec![apply(Object::Slice(Box::new(slice)))]
    }

    fn delete_slice(&mut self) -> Vec<Heard> {
        let Some(name) = self.some_slice() else {
            return self.add_slice();
        };
        self.slices.remove(&name);
        self.count("slice deleted");
        vec![Heard::Objects(Change::Delete(ObjectRef::Slice(name)))]
    }

    fn modify_slice(&mut self) -> Vec<Heard> {
        let Some(name) = self.some_slice() else {
            return self.add_slice();
        };
        let mut slice = self.slices[&name].clone();
        let family = slice.family.unwrap();
        let mut endpoints = slice.endpoints.to_vec();
        match self.rng.below(3) {
            0 => endpoints.push(self.endpoint(family)),
            1 if !endpoints.is_empty() => {
                let at = self.rng.below(endpoints.len());
                endpoints.remove(at);
                self.count("endpoint removed");
            }
            _ if !endpoints.is_empty() => {
                let at = self.rng.below(endpoints.len());
                let before = endpoints[at].conditions;
                endpoints[at].conditions = self.conditions();
                if before.ready && !endpoints[at].conditions.ready {
                    self.count("endpoint goes unready");
                }
            }
            _ => endpoints.push(self.endpoint(family)),
        }
        slice.endpoints = endpoints.into_boxed_slice();
        self.slices.insert(name, slice.clone());
        vec![apply(Object::Slice(Box::new(slice)))]
    }

    /// More than 1,000 endpoints listed, none of them ready, or these gone again.
    pub fn cross_threshold(&mut self) -> Vec<Heard> {
        let name = SliceName::new("default", "crowd");
        self.count("threshold crossed");
        if self.slices.remove(&name).is_some() {
            return vec![Heard::Objects(Change::Delete(ObjectRef::Slice(name)))];
        }
        let unready = Conditions {
            ready: false,
            serving: false,
            terminating: false,
        };
        let endpoints = (0..1001u16)
            .map(|n| SliceEndpoint {
                ip: IpAddr::from([
                    10,
                    99,
                    u8::try_from(n >> 8).unwrap(),
                    u8::try_from(n & 255).unwrap(),
                ]),
                conditions: unready,
                place: Arc::default(),
            })
            .collect();
        let ports = &self.services[&ServiceName::new("default", "kubernetes")].ports;
        let slice = Slice {
            name: name.clone(),
            service: Some(ServiceName::new("default", "kubernetes")),
            skipped: None,
            family: Some(Family::V4),
            triggered: None,
            ports: Box::new([SlicePort {
                name: ports[0].name.clone(),
                protocol: ports[0].protocol,
                port: 6443,
            }]),
            endpoints,
        };
        self.slices.insert(name, slice.clone());
        vec![apply(Object::Slice(Box::new(slice)))]
    }

    fn change_zone(&mut self) -> Vec<Heard> {
        let zone = *self.rng.pick(&["zone-a", "zone-b"]);
        self.node.zone = self.rng.percent(80).then(|| zone.into());
        self.facts.zone.clone_from(&self.node.zone);
        self.count("zone changed");
        vec![apply(Object::Node(self.node.clone()))]
    }

    fn change_interfaces(&mut self) -> Vec<Heard> {
        let mut all = vec!["127.0.0.1", "192.168.0.2", "::1", "fd00:1::2"];
        for extra in ["192.168.0.77", "192.168.1.2", "fd00:1::77"] {
            if self.rng.percent(50) {
                all.push(extra);
            }
        }
        self.facts.interface_addresses = addresses(&all);
        self.count("interfaces changed");
        vec![Heard::Facts(self.facts.clone())]
    }

    /// The watch broke, and all objects of a kind come again.
    fn list_again(&mut self) -> Vec<Heard> {
        let kind = *self.rng.pick(&[Kind::Service, Kind::Slice]);
        let objects = self
            .objects()
            .into_iter()
            .filter(|object| object.kind() == kind)
            .collect();
        self.count("listed again");
        vec![Heard::Objects(Change::ReplaceAll { kind, objects })]
    }

    /// A service that may be changed at will; the API server's stays.
    fn some_service(&mut self) -> Option<ServiceName> {
        let names: Vec<&ServiceName> = self
            .services
            .keys()
            .filter(|name| &*name.namespace != "default")
            .collect();
        (!names.is_empty()).then(|| (*self.rng.pick(&names)).clone())
    }

    fn some_slice(&mut self) -> Option<SliceName> {
        let names: Vec<&SliceName> = self.slices.keys().filter(|name| &*name.name != "crowd").collect();
        (!names.is_empty()).then(|| (*self.rng.pick(&names)).clone())
    }
}

pub fn apply(object: Object) -> Heard {
    Heard::Objects(Change::Apply(object))
}

fn flipped(policy: Policy) -> Policy {
    match policy {
        Policy::Cluster => Policy::Local,
        Policy::Local => Policy::Cluster,
    }
}
