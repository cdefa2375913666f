//! Services and endpoints as `kubectl get` shows them.

use super::report::{EndpointsLine, ServiceLine};
use model::Family;
use model::object::{Service, ServiceKind};
use model::snapshot::Snapshot;
use std::net::SocketAddr;

/// So many endpoints are listed; of the others `kubectl` tells the number.
const LISTED: usize = 3;

/// The cluster's services.
pub fn services(snapshot: &Snapshot) -> Vec<ServiceLine> {
    snapshot.services().map(service).collect()
}

fn service(service: &Service) -> ServiceLine {
    let external = service.load_balancer_ips.iter().chain(&service.external_ips);
    let ports = service.ports.iter().map(|port| match port.node_port {
        Some(node_port) => format!("{}:{node_port}/{}", port.port, port.protocol),
        None => format!("{}/{}", port.port, port.protocol),
    });
    let cluster_ip = Family::ALL
        .into_iter()
        .find_map(|family| *service.cluster_ips.get(family));
    ServiceLine {
        namespace: service.name.namespace.to_string(),
        name: service.name.name.to_string(),
        kind: kind(service.kind).to_owned(),
        cluster_ip: cluster_ip.map_or_else(|| "None".to_owned(), |ip| ip.to_string()),
        external_ip: or_none(&external.map(ToString::to_string).collect::<Vec<_>>()),
        ports: or_none(&ports.collect::<Vec<_>>()),
    }
}

fn kind(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::ClusterIp => "ClusterIP",
        ServiceKind::NodePort => "NodePort",
        ServiceKind::LoadBalancer => "LoadBalancer",
        ServiceKind::ExternalName => "ExternalName",
    }
}

fn or_none(words: &[String]) -> String {
    if words.is_empty() {
        "<none>".to_owned()
    } else {
        words.join(",")
    }
}

/// The ready endpoints of the cluster's services.
pub fn endpoints(snapshot: &Snapshot) -> Vec<EndpointsLine> {
    let line = |service: &Service| {
        let mut all = Vec::new();
        for slice in snapshot.slices_of(&service.name) {
            for port in &slice.ports {
                let ready = slice
                    .endpoints
                    .iter()
                    .filter(|endpoint| endpoint.conditions.ready);
                all.extend(ready.map(|endpoint| SocketAddr::new(endpoint.ip, port.port).to_string()));
            }
        }
        let more = all.len().saturating_sub(LISTED);
        all.truncate(LISTED);
        let listed = or_none(&all);
        EndpointsLine {
            namespace: service.name.namespace.to_string(),
            name: service.name.name.to_string(),
            endpoints: match more {
                0 => listed,
                more => format!("{listed} + {more} more..."),
            },
        }
    };
    snapshot.services().map(line).collect()
}
