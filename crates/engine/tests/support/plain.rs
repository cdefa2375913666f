//! The simplest objects that serve.

use model::object::{Created, Service, ServiceKind, ServicePort};
use model::{Balancing, PerFamily, Policy, Protocol, ServiceName};
use std::net::Ipv4Addr;

/// A service of IPv4 with one TCP port, `p`, for clients of the cluster.
pub fn service(name: ServiceName, ip: Ipv4Addr, port: u16) -> Service {
    Service {
        name,
        created: Created::at(0),
        skipped: None,
        kind: ServiceKind::ClusterIp,
        cluster_ips: PerFamily {
            v4: Some(ip.into()),
            v6: None,
        },
        external_ips: Box::default(),
        load_balancer_ips: Box::default(),
        source_ranges: Box::default(),
        affinity: None,
        balancing: Balancing::Random,
        internal: Policy::Cluster,
        external: Policy::Cluster,
        health_check_node_port: None,
        publish_not_ready: false,
        ports: Box::new([ServicePort {
            name: "p".into(),
            protocol: Protocol::Tcp,
            port,
            node_port: None,
        }]),
    }
}
