//! Random Services and `EndpointSlices` over the pods of a [`site`](super::site).

use super::Random;
use super::site::{HOST_POD, NODE, OTHER, PODS, Place, RANGES, SERVICES, TCP, UDP};
use crate::manifests::node;
use lab::Proto;
use model::Family;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Services of a cluster.
const SERVICES_AT_ONCE: u64 = 8;
/// Addresses and numbers that each service has to itself, one of which it takes.
const EACH: u64 = 4;

/// What clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A cluster IP.
    ClusterIp,
    /// An external IP.
    ExternalIp,
    /// A load balancer's IP.
    LoadBalancer,
    /// A port of the node.
    NodePort,
}

/// An address that clients use.
#[derive(Clone, Copy, Debug)]
pub struct Frontend {
    /// What it is.
    pub kind: Kind,
    /// Address and port; of a node port the port alone is meant.
    pub to: SocketAddr,
    /// Its protocol.
    pub proto: Proto,
}

/// The objects of a cluster, and what clients use of it.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// All objects.
    pub objects: Vec<Value>,
    /// All frontends.
    pub frontends: Vec<Frontend>,
}

impl Cluster {
    /// A random one.
    pub fn new(random: &mut Random) -> Cluster {
        let mut cluster = Cluster::default();
        cluster.objects.extend([
            node(NODE, &[HOST_POD.addresses.v4, HOST_POD.addresses.v6]),
            node(OTHER, &["192.168.70.2", "fd70::2"]),
            json!({
                "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": [SERVICES.v4, SERVICES.v6]},
            }),
        ]);
        // Its maps are many, and take long to be listed.
        let hashing = if random.percent(40) {
            Hashing::OfSome
        } else {
            Hashing::OfNone
        };
        for number in 0..SERVICES_AT_ONCE {
            cluster.add_service(random, number, hashing);
        }
        cluster
    }

    fn add_service(&mut self, random: &mut Random, number: u64, hashing: Hashing) {
        let drawn = Drawn::new(random, number);
        self.objects.push(drawn.service(random, hashing));
        let percent = random.one_of(&[0, 30, 60, 90]);
        for family in drawn.families {
            let pods = random.some_of(&PODS, percent);
            self.objects.push(slice(random, &drawn.name, *family, &pods));
        }
        self.frontends.extend(drawn.frontends());
    }
}

/// Which services of a cluster are balanced by the client's address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hashing {
    OfSome,
    OfNone,
}

/// A service before it is written down.
struct Drawn {
    name: String,
    kind: &'static str,
    families: &'static [Family],
    /// Its addresses of each kind.
    cluster_ips: Vec<IpAddr>,
    external: Vec<IpAddr>,
    balanced: Vec<IpAddr>,
    node_ports: Option<[u16; 2]>,
}

impl Drawn {
    fn new(random: &mut Random, number: u64) -> Drawn {
        let own = u16::try_from(number * EACH + random.below(EACH)).expect("few services") + 1;
        let families = random.one_of(&[&Family::ALL[..], &Family::ALL[..], &[Family::V4], &[Family::V6]]);
        let kind = random.one_of(&["ClusterIP", "NodePort", "LoadBalancer", "LoadBalancer"]);
        let at = |kind| {
            families
                .iter()
                .map(|family| address(kind, *family, own))
                .collect()
        };
        let if_true = |is_true, kind| if is_true { at(kind) } else { vec![] };
        Drawn {
            name: format!("svc-{number}"),
            kind,
            families,
            cluster_ips: at(Kind::ClusterIp),
            external: if_true(random.percent(30), Kind::ExternalIp),
            balanced: if_true(kind == "LoadBalancer", Kind::LoadBalancer),
            node_ports: (kind != "ClusterIP").then(|| [30_100 + 2 * own, 30_101 + 2 * own]),
        }
    }

    fn service(&self, random: &mut Random, hashing: Hashing) -> Value {
        let mut ports = vec![
            json!({"name": "web", "protocol": "TCP", "port": 80, "targetPort": TCP}),
            json!({"name": "dns", "protocol": "UDP", "port": 53, "targetPort": UDP}),
        ];
        for (port, node_port) in ports.iter_mut().zip(self.node_ports.into_iter().flatten()) {
            port["nodePort"] = json!(node_port);
        }
        let ingress: Vec<Value> = self.balanced.iter().map(|ip| json!({"ip": ip})).collect();
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": self.name},
            "spec": {
                "type": self.kind, "ports": ports, "externalIPs": self.external,
                "clusterIP": self.cluster_ips[0], "clusterIPs": self.cluster_ips,
                "ipFamilies": self.families.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "internalTrafficPolicy": random.one_of(&["Cluster", "Cluster", "Local"]),
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        });
        let spec = &mut service["spec"];
        if self.kind != "ClusterIP" || !self.external.is_empty() {
            spec["externalTrafficPolicy"] = json!(random.one_of(&["Cluster", "Local"]));
        }
        if self.kind == "LoadBalancer" && random.percent(40) {
            spec["loadBalancerSourceRanges"] = json!(RANGES);
        }
        match random.below(10) {
            0..=1 => spec["sessionAffinity"] = json!("ClientIP"),
            2..=4 if hashing == Hashing::OfSome => {
                service["metadata"]["annotations"] = json!({"kube-proxy-rs.io/balancing": "client-hash"});
            }
            _ => {}
        }
        service
    }

    fn frontends(&self) -> Vec<Frontend> {
        let mut all = vec![];
        for (index, (proto, port)) in [(Proto::Tcp, 80), (Proto::Udp, 53)].into_iter().enumerate() {
            let mut add = |kind, ips: &[IpAddr], port| {
                let frontend = |ip: &IpAddr| Frontend {
                    kind,
                    to: SocketAddr::new(*ip, port),
                    proto,
                };
                all.extend(ips.iter().map(frontend));
            };
            add(Kind::ClusterIp, &self.cluster_ips, port);
            add(Kind::ExternalIp, &self.external, port);
            add(Kind::LoadBalancer, &self.balanced, port);
            if let Some(node_ports) = self.node_ports {
                let own: Vec<IpAddr> = self
                    .families
                    .iter()
                    .map(|family| HOST_POD.address(*family))
                    .collect();
                add(Kind::NodePort, &own, node_ports[index]);
            }
        }
        all
    }
}

/// A service's address of a kind: numbers from 1.
fn address(kind: Kind, family: Family, number: u16) -> IpAddr {
    let low = u8::try_from(number).expect("few services");
    match (kind, family) {
        (Kind::ClusterIp, Family::V4) => Ipv4Addr::new(10, 96, 0, low).into(),
        (Kind::ClusterIp, Family::V6) => Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, number).into(),
        (Kind::ExternalIp, Family::V4) => Ipv4Addr::new(203, 0, 113, low).into(),
        (Kind::ExternalIp, Family::V6) => Ipv6Addr::new(0x2001, 0xdb8, 0x203, 0, 0, 0, 0, number).into(),
        (Kind::LoadBalancer, Family::V4) => Ipv4Addr::new(203, 0, 113, 100 + low).into(),
        (Kind::LoadBalancer, Family::V6) => Ipv6Addr::new(0x2001, 0xdb8, 0x203, 0, 0, 0, 1, number).into(),
        (Kind::NodePort, family) => HOST_POD.address(family),
    }
}

fn slice(random: &mut Random, service: &str, family: Family, pods: &[Place]) -> Value {
    let endpoints = pods.iter().map(|pod| {
        let conditions = match random.one_of(&[0, 0, 0, 0, 1, 2]) {
            1 => json!({"ready": false, "serving": true, "terminating": true}),
            2 => json!({"ready": false, "serving": false}),
            _ => json!({"ready": true}),
        };
        json!({"addresses": [pod.address(family)], "nodeName": pod.node, "conditions": conditions})
    });
    let endpoints: Vec<Value> = endpoints.collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "default", "name": format!("{service}-{family}").to_lowercase(),
                     "labels": {"kubernetes.io/service-name": service}},
        "addressType": family.to_string(), "endpoints": endpoints,
        "ports": [{"name": "web", "protocol": "TCP", "port": TCP}, {"name": "dns", "protocol": "UDP", "port": UDP}],
    })
}
