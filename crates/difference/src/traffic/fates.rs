//! What becomes of packets to each frontend, and that of what the objects ask for.

use ipnet::IpNet;
use model::{Desired, DesiredPort, Family, Frontend, FrontendKind, LocalDetector, NodePortTargets, Route};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Who sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sender {
    /// A pod of this node.
    Pod,
    /// This node itself.
    Node,
    /// Somebody else.
    Outside,
}

impl Sender {
    /// All of them.
    pub const ALL: [Sender; 3] = [Sender::Pod, Sender::Node, Sender::Outside];

    /// In words, after "from".
    pub fn words(self) -> &'static str {
        match self {
            Sender::Pod => "pods",
            Sender::Node => "the node",
            Sender::Outside => "outside",
        }
    }
}

/// What becomes of a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It goes to one of these.
    Endpoints {
        /// Where it can go.
        to: BTreeSet<SocketAddr>,
        /// Whether it comes with the node's address.
        masqueraded: bool,
    },
    /// The client is told at once.
    Refused,
    /// The client waits.
    Dropped,
    /// No rule changes it.
    Untouched,
    /// Several things, or nobody can say: in words.
    Open(String),
}

/// What becomes of packets to Services, of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// The family.
    pub family: Family,
    /// What holds for all Services: a name and what it is.
    pub node: BTreeMap<&'static str, String>,
    /// By service port, as `namespace/name:port`.
    pub ports: BTreeMap<String, PortBehaviour>,
}

/// What becomes of packets to one service port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortBehaviour {
    /// Seconds that a client stays with its endpoint.
    pub affinity: Option<u32>,
    /// The health-check node port that is let in.
    pub health_check: Option<u16>,
    /// By frontend in words: `cluster IP 10.96.0.10:53/UDP`.
    pub frontends: BTreeMap<String, FrontendBehaviour>,
}

/// What becomes of packets to one frontend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontendBehaviour {
    /// By sender; one is missing where it cannot be told.
    pub fates: BTreeMap<Sender, Fate>,
    /// Who may use it; `None` for everybody.
    pub admitted: Option<BTreeSet<IpNet>>,
}

impl Behaviour {
    /// The same as rules can tell it: frontends by address alone, since rules do not always say what kind of address one is,
    /// and names cut as the comments of nftables are.
    #[must_use]
    pub fn by_address(self) -> Behaviour {
        let mut ports: BTreeMap<String, PortBehaviour> = BTreeMap::new();
        for (name, port) in self.ports {
            let known = ports.entry(cut(&name)).or_default();
            known.affinity = known.affinity.or(port.affinity);
            known.health_check = known.health_check.or(port.health_check);
            for (title, mut of) in port.frontends {
                // Whether a pod or the node is let in hangs on the very address.
                let is_guarded = of.admitted.is_some();
                of.fates
                    .retain(|sender, _| !is_guarded || *sender == Sender::Outside);
                let address = title.rsplit_once(" IP ").map(|(_, address)| address.to_owned());
                known.frontends.insert(address.unwrap_or(title), of);
            }
        }
        Behaviour { ports, ..self }
    }
}

/// As much of a name as a comment of nftables holds.
fn cut(name: &str) -> String {
    let mut end = name.len().min(nftables::ast::COMMENT_LIMIT);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned()
}

/// Where a frontend without endpoints refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusing {
    /// Not the node's own packets to addresses outside of the cluster: iptables mode ([`model::oracle`]).
    OnMostWays,
    /// Everywhere: nftables mode.
    OnAllWays,
}

/// What the objects ask for.
pub fn of_desired(desired: &Desired, refusing: Refusing) -> Behaviour {
    let mut ports: BTreeMap<String, PortBehaviour> = BTreeMap::new();
    for port in desired.services.values().flat_map(|service| &service.ports) {
        // Two ports of one name differ in protocol, which each frontend says.
        let behaviour = ports.entry(port.name.to_string()).or_default();
        behaviour.affinity = port.affinity.map(|affinity| affinity.timeout_seconds);
        behaviour.health_check = port.health_check_node_port;
        for frontend in &port.frontends {
            behaviour
                .frontends
                .insert(title(port, frontend), of_frontend(port, frontend, refusing));
        }
    }
    Behaviour {
        family: desired.node.family,
        node: of_node(desired),
        ports,
    }
}

fn title(port: &DesiredPort, frontend: &Frontend) -> String {
    let protocol = port.name.protocol;
    let address = |kind: &str, ip| format!("{kind} {}/{protocol}", SocketAddr::new(ip, frontend.port));
    match frontend.kind {
        FrontendKind::ClusterIp(ip) => address("cluster IP", ip),
        FrontendKind::ExternalIp(ip) => address("external IP", ip),
        FrontendKind::LoadBalancerIp(ip) => address("load-balancer IP", ip),
        FrontendKind::NodePort => format!("node port {}/{protocol}", frontend.port),
    }
}

fn of_frontend(port: &DesiredPort, frontend: &Frontend, refusing: Refusing) -> FrontendBehaviour {
    let routes = &frontend.routes;
    let fates = [
        (Sender::Pod, routes.pod),
        (Sender::Node, routes.node),
        (Sender::Outside, routes.outside),
    ];
    let admitted = frontend.admission.as_ref().map(|admission| {
        let own = admission.self_sources.iter().map(|ip| IpNet::from(*ip));
        admission.ranges.iter().copied().chain(own).collect()
    });
    FrontendBehaviour {
        fates: fates
            .into_iter()
            .map(|(sender, route)| {
                let passes =
                    sender == Sender::Node && is_outside(frontend.kind) && refusing == Refusing::OnMostWays;
                match of_route(port, route) {
                    Fate::Refused | Fate::Dropped if passes => (sender, Fate::Untouched),
                    fate => (sender, fate),
                }
            })
            .collect(),
        admitted,
    }
}

fn is_outside(kind: FrontendKind) -> bool {
    matches!(
        kind,
        FrontendKind::ExternalIp(_) | FrontendKind::LoadBalancerIp(_)
    )
}

fn of_route(port: &DesiredPort, route: Route) -> Fate {
    match route {
        Route::Endpoints { list, masquerade, .. } => Fate::Endpoints {
            to: port.list(list).iter().copied().collect(),
            masqueraded: masquerade,
        },
        Route::Reject(_) => Fate::Refused,
        Route::Drop(_) => Fate::Dropped,
    }
}

fn of_node(desired: &Desired) -> BTreeMap<&'static str, String> {
    let node = &desired.node;
    let pods = match &node.detector {
        None => "nobody: pods cannot be told from others".to_owned(),
        Some(LocalDetector::Cidr(net)) => format!("what comes from {net}"),
        Some(LocalDetector::Bridge(name)) => format!("what comes in through interface {name}"),
        Some(LocalDetector::InterfacePrefix(prefix)) => format!("what comes in through interfaces {prefix}*"),
    };
    let node_ports = match &node.node_ports {
        NodePortTargets::AllLocal if node.localhost_node_ports => {
            "all addresses of the node, loopback too".to_owned()
        }
        NodePortTargets::AllLocal => "all addresses of the node but loopback".to_owned(),
        NodePortTargets::Only(addresses) if addresses.is_empty() => "no address".to_owned(),
        NodePortTargets::Only(addresses) => {
            let words: Vec<String> = addresses.iter().map(ToString::to_string).collect();
            words.join(", ")
        }
    };
    BTreeMap::from([
        ("the masquerade mark", format!("{:#x}", node.mark.value())),
        ("who counts as a pod", pods),
        ("where node ports are served", node_ports),
    ])
}
