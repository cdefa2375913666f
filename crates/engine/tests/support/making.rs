//! Random services, endpoints and settings.

use super::cluster::{Cluster, NODE};
use super::rng::Rng;
use model::object::{Conditions, Created, Hints, Place, Service, ServiceKind, ServicePort, SliceEndpoint};
use model::{
    Affinity, Balancing, ClientHashing, Family, LocalDetector, NodePortAddresses, PerFamily, Policy,
    Protocol, ServiceName, Settings,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

impl Cluster {
    /// A random service of this name.
    pub(super) fn service(&mut self, name: ServiceName, purpose: &str) -> Service {
        self.made += 1;
        let kind = *self.rng.pick(&[
            ServiceKind::ClusterIp,
            ServiceKind::NodePort,
            ServiceKind::LoadBalancer,
        ]);
        let (v4, v6) = *self
            .rng
            .pick(&[(true, false), (true, true), (true, true), (false, true)]);
        let policy = |cluster: &mut Cluster, internal, external| {
            let local = cluster.rng.percent(35);
            cluster.count(if local { internal } else { external });
            if local { Policy::Local } else { Policy::Cluster }
        };
        let internal = policy(self, "internal Local", "internal Cluster");
        let external = if kind == ServiceKind::ClusterIp {
            Policy::Cluster
        } else {
            policy(self, "external Local", "external Cluster")
        };
        let mut service = Service {
            name,
            created: Created::at(i64::try_from(self.rng.below(1000)).unwrap()),
            skipped: None,
            kind,
            cluster_ips: PerFamily {
                v4: v4.then(|| cluster_ip(Family::V4, self.made)),
                v6: v6.then(|| cluster_ip(Family::V6, self.made)),
            },
            external_ips: Box::default(),
            load_balancer_ips: Box::default(),
            source_ranges: Box::default(),
            affinity: None,
            balancing: if self.rng.percent(25) {
                Balancing::ClientHash
            } else {
                Balancing::Random
            },
            internal,
            external,
            health_check_node_port: None,
            publish_not_ready: false,
            ports: Box::default(),
        };
        service.ports = self.ports(&service, purpose);
        self.dress(&mut service);
        service
    }

    fn ports(&mut self, service: &Service, purpose: &str) -> Box<[ServicePort]> {
        let node_port = |rng: &mut Rng| {
            let has = service.kind != ServiceKind::ClusterIp && rng.percent(90);
            // Few numbers, so that services claim the same ones.
            has.then(|| 30_000 + u16::try_from(rng.below(12)).unwrap())
        };
        let mut ports = Vec::new();
        if purpose == "dns" {
            ports.push(("dns", Protocol::Udp, 53));
            ports.push(("dns-tcp", Protocol::Tcp, 53));
        } else {
            ports.push(("p80", Protocol::Tcp, 80));
            if self.rng.percent(30) {
                ports.push((
                    "q",
                    *self.rng.pick(&[Protocol::Udp, Protocol::Sctp, Protocol::Tcp]),
                    8080,
                ));
            }
        }
        let mut made: Vec<ServicePort> = Vec::new();
        for (name, protocol, port) in ports {
            let node_port = node_port(&mut self.rng);
            // The API server gives no service the same one twice.
            let taken = made.iter().any(|other| other.node_port == node_port);
            made.push(ServicePort {
                name: name.into(),
                protocol,
                port,
                node_port: node_port.filter(|_| !taken),
            });
        }
        made.into_boxed_slice()
    }

    /// Addresses, ranges and affinity; few addresses, so that services claim the same ones.
    pub(super) fn dress(&mut self, service: &mut Service) {
        let of = |rng: &mut Rng, v4: u8, percent: usize| -> Box<[IpAddr]> {
            let mut ips = Vec::new();
            while rng.percent(percent) && ips.len() < 2 {
                let n = u8::try_from(rng.below(4)).unwrap();
                let ip = if rng.percent(70) {
                    IpAddr::from(Ipv4Addr::new(203, 0, v4, n + 1))
                } else {
                    IpAddr::from(Ipv6Addr::new(
                        0x2001,
                        0xdb8,
                        u16::from(v4),
                        0,
                        0,
                        0,
                        0,
                        u16::from(n) + 1,
                    ))
                };
                if !ips.contains(&ip) {
                    ips.push(ip);
                }
            }
            ips.into_boxed_slice()
        };
        service.external_ips = of(&mut self.rng, 113, 25);
        service.affinity = self.rng.percent(20).then_some(Affinity {
            timeout_seconds: 10_800,
        });
        let is_balanced = service.kind == ServiceKind::LoadBalancer;
        service.load_balancer_ips = if is_balanced {
            of(&mut self.rng, 114, 75)
        } else {
            Box::default()
        };
        service.source_ranges = if is_balanced && self.rng.percent(40) {
            ["192.168.0.0/24", "198.51.100.0/25", "fd00:1::/64"]
                .iter()
                .map(|net| net.parse().unwrap())
                .collect()
        } else {
            Box::default()
        };
        let checked = is_balanced && service.external == Policy::Local;
        service.health_check_node_port =
            checked.then(|| 31_000 + u16::try_from(self.rng.below(200)).unwrap());
        self.count_claims(service);
    }

    fn count_claims(&mut self, service: &Service) {
        let taken = self.services.values().any(|other| {
            let shared = |ours: &[IpAddr], theirs: &[IpAddr]| ours.iter().any(|ip| theirs.contains(ip));
            other.name != service.name
                && (shared(&service.external_ips, &other.external_ips)
                    || shared(&service.load_balancer_ips, &other.load_balancer_ips))
        });
        if taken {
            self.count("duplicate claim");
        }
    }

    pub(super) fn endpoint(&mut self, family: Family) -> SliceEndpoint {
        let n = u8::try_from(self.rng.below(40)).unwrap();
        let ip = match family {
            Family::V4 => IpAddr::from(Ipv4Addr::new(10, 180, 0, n + 1)),
            Family::V6 => IpAddr::from(Ipv6Addr::new(0xfd00, 0x10, 0, 0, 0, 0, 0, u16::from(n) + 1)),
        };
        let conditions = self.conditions();
        let node = self
            .rng
            .pick(&[Some(NODE), Some("node-b"), Some("node-b"), None])
            .map(Arc::from);
        let zones = self
            .rng
            .percent(25)
            .then(|| *self.rng.pick(&["zone-a", "zone-b"]));
        SliceEndpoint {
            ip,
            conditions,
            place: Arc::new(Place {
                node,
                hints: zones.map(|zone| {
                    Arc::new(Hints {
                        zones: Box::new([zone.into()]),
                        nodes: Box::default(),
                    })
                }),
            }),
        }
    }

    pub(super) fn conditions(&mut self) -> Conditions {
        let (what, ready, serving, terminating) = *self.rng.pick(&[
            ("endpoint ready", true, true, false),
            ("endpoint ready", true, true, false),
            ("endpoint ready", true, true, false),
            ("endpoint unready", false, false, false),
            ("endpoint serving while terminating", false, true, true),
            ("endpoint terminating", false, false, true),
        ]);
        self.count(what);
        Conditions {
            ready,
            serving,
            terminating,
        }
    }
}

pub(super) fn cluster_ip(family: Family, n: u16) -> IpAddr {
    match family {
        Family::V4 => IpAddr::from(Ipv4Addr::from(0xac1e_0000 + u32::from(n))),
        Family::V6 => IpAddr::from(Ipv6Addr::new(0xfd00, 0xaaaa, 0, 0, 0, 0, 0, n)),
    }
}

pub(super) fn addresses(list: &[&str]) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = list.iter().map(|ip| ip.parse().unwrap()).collect();
    ips.sort();
    ips
}

pub(super) fn settings(rng: &mut Rng) -> Settings {
    let detectors = match rng.below(3) {
        0 => PerFamily::default(),
        1 => PerFamily::from_fn(|_| Some(LocalDetector::Bridge("cbr0".into()))),
        _ => PerFamily {
            v4: Some(LocalDetector::Cidr("10.180.0.0/16".parse().unwrap())),
            v6: Some(LocalDetector::Cidr("fd00:10::/64".parse().unwrap())),
        },
    };
    let node_ports = if rng.percent(50) {
        PerFamily::default()
    } else {
        PerFamily {
            v4: NodePortAddresses::In(vec!["192.168.0.0/24".parse().unwrap()]),
            v6: NodePortAddresses::In(vec!["fd00:1::/64".parse().unwrap()]),
        }
    };
    Settings {
        masquerade_all: rng.percent(20),
        detectors,
        node_port_addresses: node_ports,
        localhost_node_ports_wanted: rng.percent(70),
        // Rules of iptables are the same either way.
        client_hashing: if rng.percent(30) {
            ClientHashing::Possible
        } else {
            ClientHashing::Impossible
        },
        ..Settings::default()
    }
}
