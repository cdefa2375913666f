//! What is counted in nftables mode: the addresses and node ports of services, each with what connections to it mean.

use iptables::counted::{CountedPort, Counts};
use model::desired::FrontendKind;
use model::{DesiredNode, DesiredPort, DesiredService, Frontend, NodePortTargets, Route};
use nftables::ast::Value;

/// A place that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// As the table of counters knows it.
    pub(crate) key: Vec<Value>,
    /// Whose it is.
    pub(crate) port: CountedPort,
    /// What becomes of connections to it.
    pub(crate) counts: Counts,
}

/// The places of a service.
pub(crate) fn of(service: &DesiredService, node: &DesiredNode) -> Vec<Place> {
    let of_port = |port: &DesiredPort| {
        let all = port
            .frontends
            .iter()
            .flat_map(|frontend| places(port, frontend, node));
        all.collect::<Vec<_>>()
    };
    service.ports.iter().flat_map(of_port).collect()
}

fn places(port: &DesiredPort, frontend: &Frontend, node: &DesiredNode) -> Vec<Place> {
    let rest = [Value::Protocol(port.name.protocol), Value::Port(frontend.port)];
    let at = |ip| [&[Value::Address(ip)], &rest[..]].concat();
    let keys = match frontend.kind {
        FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
            vec![at(ip)]
        }
        FrontendKind::NodePort => match &node.node_ports {
            NodePortTargets::AllLocal => vec![rest.to_vec()],
            NodePortTargets::Only(ips) => ips
                .iter()
                .copied()
                .filter(|ip| !ip.is_loopback())
                .map(at)
                .collect(),
        },
    };
    let place = |key| Place {
        key,
        port: CountedPort {
            service: port.name.service.clone(),
            port: port.name.port.clone(),
        },
        counts: counts(frontend),
    };
    keys.into_iter().map(place).collect()
}

/// As in iptables mode: who serves anybody counts connections, of others too, whom it refuses.
fn counts(frontend: &Frontend) -> Counts {
    let routes = &frontend.routes;
    let serves = [routes.pod, routes.node, routes.outside]
        .iter()
        .any(|route| matches!(route, Route::Endpoints { .. }));
    match routes.outside {
        _ if serves => Counts::Connections,
        Route::Drop(_) => Counts::Dropped,
        Route::Reject(_) | Route::Endpoints { .. } => Counts::Rejected,
    }
}
