//! The addresses of a Service, and where the node sends what comes for them: as the answers beside the table have it.

use explain::sender::{Whose, sender};
use explain::{From, Question, To, World, node_port_addresses};
use model::desired::{FrontendKind, Reason, Route};
use model::object::{Service, ServicePort};
use model::resolve::endpoints::listed;
use model::{Admission, DesiredPort, Family, Frontend};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

pub(crate) fn ports(world: &World, service: &Service) -> Vec<Value> {
    let port_json = |port: &ServicePort| {
        let of = |family: Family| {
            let desired = world.port(family, &service.name, &port.name, port.protocol)?;
            Some(Row {
                world,
                service,
                family,
                port: desired,
            })
        };
        let rows = Family::ALL.into_iter().filter_map(of);
        let frontends: Vec<Value> = rows
            .flat_map(|row| {
                row.port
                    .frontends
                    .iter()
                    .map(move |frontend| row.frontend(frontend))
            })
            .collect();
        json!({
            "name": &*port.name,
            "protocol": port.protocol.to_string(),
            "port": port.port,
            "node_port": port.node_port,
            "frontends": frontends,
        })
    };
    service.ports.iter().map(port_json).collect()
}

/// One port of a Service in a family.
#[derive(Clone, Copy)]
struct Row<'a> {
    world: &'a World,
    service: &'a Service,
    family: Family,
    port: &'a DesiredPort,
}

impl Row<'_> {
    fn frontend(&self, frontend: &Frontend) -> Value {
        let (what, ip) = match frontend.kind {
            FrontendKind::ClusterIp(ip) => ("cluster IP", Some(ip)),
            FrontendKind::ExternalIp(ip) => ("external IP", Some(ip)),
            FrontendKind::LoadBalancerIp(ip) => ("load-balancer IP", Some(ip)),
            FrontendKind::NodePort => ("node port", None),
        };
        let served = match ip {
            Some(_) => None,
            None => self.node_addresses(),
        };
        let at = match (ip, &served) {
            (Some(ip), _) => SocketAddr::new(ip, frontend.port).to_string(),
            (None, None) => frontend.port.to_string(),
            (None, Some(served)) if served.is_empty() => {
                format!("{} on no {} address of this node", frontend.port, self.family)
            }
            (None, Some(served)) => {
                let all: Vec<String> = served.iter().map(ToString::to_string).collect();
                format!("{} on {}", frontend.port, all.join(", "))
            }
        };
        let is_served = served.is_none_or(|served| !served.is_empty());
        let route = |from: From, route: Route| match (is_served, &frontend.admission, ip) {
            (false, ..) => ended(
                "not served",
                &format!(
                    "nodePortAddresses is {}, and holds no {} address of this node",
                    self.world.node_ports.addresses.join(", "),
                    self.family
                ),
            ),
            (true, Some(admission), Some(ip)) => self.admitted(from, ip, admission, route),
            (true, ..) => self.route(route),
        };
        let only_from = frontend.admission.as_ref().map(|admission| {
            let ranges = admission.ranges.iter();
            ranges.map(ToString::to_string).collect::<Vec<_>>()
        });
        json!({
            "what": what,
            "at": at,
            "only_from": only_from,
            "pod": route(From::Pod, frontend.routes.pod),
            "node": route(From::Node, frontend.routes.node),
            "outside": match frontend.kind {
                FrontendKind::ClusterIp(_) => ended(
                    "not routed",
                    "a cluster IP is known on the cluster's nodes only, unless the network sends it to one",
                ),
                _ => route(From::Outside, frontend.routes.outside),
            },
        })
    }

    /// The node's addresses that serve node ports; `None` where nothing is known of its addresses.
    fn node_addresses(&self) -> Option<Vec<IpAddr>> {
        let is_known = !self.world.addresses_are_unknown();
        is_known.then(|| node_port_addresses(self.world, self.family))
    }

    /// A route that only some may take. Whether pods and the node may is asked of the address that `explain` takes for them.
    fn admitted(&self, from: From, ip: IpAddr, admission: &Admission, route: Route) -> Value {
        let mut told = self.route(route);
        if !matches!(route, Route::Endpoints { .. }) {
            return told;
        }
        let ranges: Vec<String> = admission.ranges.iter().map(ToString::to_string).collect();
        let ranges = ranges.join(", ");
        if from == From::Outside {
            told["only_from"] = ranges.into();
            return told;
        }
        let question = Question {
            from,
            to: To::Address(ip, None),
            protocol: None,
            in_interface: None,
        };
        let Ok(sender) = sender(self.world, &question, ip) else {
            return ended("not known", "the address that it would have is not known");
        };
        match (admission.admits(sender.ip), sender.whose) {
            (_, Whose::MadeUp) => ended(
                "depends",
                &format!("loadBalancerSourceRanges lets in {ranges}, and its address is not known"),
            ),
            (true, _) => told,
            (false, _) => ended(
                "dropped",
                &format!(
                    "loadBalancerSourceRanges lets in {ranges} alone, and not {}",
                    sender.ip
                ),
            ),
        }
    }

    fn route(&self, route: Route) -> Value {
        let (count, masquerade, reason) = match route {
            Route::Endpoints {
                list,
                masquerade,
                reason,
            } => (self.port.list(list).len(), masquerade, reason),
            Route::Reject(reason) => return ended("refused", &self.reason(reason)),
            Route::Drop(reason) => return ended("dropped", &self.reason(reason)),
        };
        json!({ "ends": "endpoints", "kind": "endpoints", "endpoints": count, "masquerade": masquerade, "reason": self.reason(reason) })
    }

    fn reason(&self, reason: Reason) -> String {
        let words = match reason {
            Reason::NoEndpoints => "no endpoint is ready, nor serving while it ends",
            Reason::NoLocalEndpoints if self.has_unready_here() => {
                "policy Local, and no endpoint on this node is ready"
            }
            Reason::NoLocalEndpoints => "policy Local, and no endpoint is on this node",
            Reason::ClusterIpFromPod => "cluster IP, from a pod",
            Reason::ClusterIpOffCluster => {
                "cluster IP, not from a pod: replies must come back through this node"
            }
            Reason::ClusterIpUndetected => "cluster IP; pods' traffic cannot be told from other traffic",
            Reason::MasqueradeAll => "masqueradeAll",
            Reason::ExternalCluster => "external traffic, policy Cluster",
            Reason::ExternalLocal => "external traffic, policy Local",
            Reason::ShortCircuitPod => "a pod's traffic to an external address stays inside",
            Reason::ShortCircuitNode => "the node's own traffic to an external address stays inside",
        };
        words.to_owned()
    }

    /// Whether slices list an endpoint of the port on this node, which then is not ready.
    fn has_unready_here(&self) -> bool {
        let name = &self.port.name;
        let mut ports = self.service.ports.iter();
        let Some(port) = ports.find(|port| (&port.name, port.protocol) == (&name.port, name.protocol)) else {
            return false;
        };
        let slices = self.world.snapshot.slices_of(&self.service.name);
        let listed = listed(port, &slices, self.family, &self.world.facts);
        listed.endpoints.iter().any(|endpoint| endpoint.is_local)
    }
}

/// How something ends that no endpoint gets: in words, and in a word for programs.
fn ended(how: &str, reason: &str) -> Value {
    json!({ "ends": how, "kind": how.replace(' ', "-"), "endpoints": null, "masquerade": null, "reason": reason })
}
