//! Node ports on which something on this host listens.
//!
//! A node port's rules come before any socket: whoever listens there hears nothing any more, be it sshd or the API
//! server (upstream issues 76892 and 100643). Nobody but the proxy knows both sides, so it says so: an Event on the Service, a
//! line in the log, and a metric. Ports are compared when rules have changed and every half minute, beside the loop that writes rules.

use crate::events::Fact;
use crate::serve::Serving;
use engine::{Engine, Report};
use kernel::listening::{Listening, Owner, Reach, listening_sockets, own_sockets, owners};
use model::crossing::ClaimKey;
use model::resolve::resolve_node;
use model::{DesiredNode, Family, NodePortTargets, PerFamily, Protocol, ServiceName, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Between two looks when nothing changes.
const PERIOD: Duration = Duration::from_secs(30);

/// The node ports that rules serve, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodePorts {
    ports: BTreeMap<(Protocol, u16), PerFamily<Option<ServiceName>>>,
    targets: PerFamily<Option<Targets>>,
}

/// Where node ports of one family are served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Targets {
    addresses: NodePortTargets,
    loopback: bool,
}

/// A socket that hears nothing, since its port is a node port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conflict {
    /// Whose node port it is.
    pub(crate) service: ServiceName,
    /// The protocol.
    pub(crate) protocol: Protocol,
    /// Where the socket is.
    pub(crate) address: SocketAddr,
    /// The socket.
    inode: u32,
    /// Who has it open, if that can be seen.
    pub(crate) owner: Option<Owner>,
}

impl Conflict {
    /// The port, as one word.
    pub(crate) fn port_key(&self) -> String {
        format!("{}/{}", self.address.port(), self.protocol)
    }

    fn who(&self) -> String {
        self.owner.as_ref().map_or_else(
            || "a process that cannot be seen from here".to_owned(),
            Owner::to_string,
        )
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} listens on {}/{} and is not reached there, since the port is a node port of Service {}; move one of the two to another port",
            self.who(),
            self.address,
            self.protocol,
            self.service
        )
    }
}

impl NodePorts {
    /// Of a whole cluster.
    pub(crate) fn of(engine: &Engine, settings: &Settings) -> NodePorts {
        let snapshot = engine.snapshot();
        let mut node_ports = NodePorts::default();
        for family in Family::ALL
            .into_iter()
            .filter(|family| engine.status(*family).is_some())
        {
            let node = resolve_node(family, engine.facts(), settings);
            *node_ports.targets.get_mut(family) = Some(Targets::of(node));
            for service in snapshot.services() {
                let is_served = service.skipped.is_none() && service.cluster_ips.get(family).is_some();
                for port in service.ports.iter().filter(|_| is_served) {
                    let Some(number) = port.node_port else { continue };
                    let key = ClaimKey::NodePort(family, number, port.protocol);
                    if snapshot.claims().winner(key, &settings.external_ips) == Some(&service.name) {
                        node_ports.serve(family, port.protocol, number, &service.name);
                    }
                }
            }
        }
        node_ports
    }

    fn serve(&mut self, family: Family, protocol: Protocol, number: u16, service: &ServiceName) {
        let of_families = self.ports.entry((protocol, number)).or_default();
        *of_families.get_mut(family) = Some(service.clone());
    }

    /// What of these sockets is not reached. A bound UDP socket may be that of a client that waits for one answer, so
    /// only those count that were there at the look before.
    fn conflicts(&self, listening: &[Listening], before: &BTreeSet<u32>) -> BTreeSet<Conflict> {
        let mut conflicts = BTreeSet::new();
        for socket in listening {
            let Some(of_families) = self.ports.get(&(socket.protocol, socket.address.port())) else {
                continue;
            };
            if socket.protocol == Protocol::Udp && !before.contains(&socket.inode) {
                continue;
            }
            let service = Family::ALL.into_iter().find_map(|family| {
                let service = of_families.get(family).as_ref()?;
                let targets = self.targets.get(family).as_ref()?;
                targets.take_from(family, socket).then_some(service)
            });
            conflicts.extend(service.map(|service| Conflict {
                service: service.clone(),
                protocol: socket.protocol,
                address: socket.address,
                inode: socket.inode,
                owner: None,
            }));
        }
        conflicts
    }
}

impl Targets {
    fn of(node: DesiredNode) -> Targets {
        Targets {
            addresses: node.node_ports,
            loopback: node.localhost_node_ports,
        }
    }

    /// Whether node ports of a family take packets that the socket would get.
    fn take_from(&self, family: Family, socket: &Listening) -> bool {
        let ip = socket.address.ip();
        let is_of_family = Family::of(ip) == family || socket.reach == Reach::Both;
        is_of_family && (ip.is_unspecified() && self.are_some() || self.include(ip))
    }

    fn are_some(&self) -> bool {
        match &self.addresses {
            NodePortTargets::AllLocal => true,
            NodePortTargets::Only(addresses) => !addresses.is_empty(),
        }
    }

    fn include(&self, ip: IpAddr) -> bool {
        match &self.addresses {
            NodePortTargets::AllLocal => !ip.is_loopback() || self.loopback,
            NodePortTargets::Only(addresses) => addresses.contains(&ip),
        }
    }
}

/// Tells the task that compares what the rules serve.
pub(crate) struct PortConflicts {
    wanted: watch::Sender<Arc<NodePorts>>,
    /// Rules have changed since it was last told.
    is_due: bool,
}

impl PortConflicts {
    /// Starts the task, which ends with this.
    pub(crate) fn start(serving: Serving) -> PortConflicts {
        let (wanted, ports) = watch::channel(Arc::default());
        tokio::spawn(compare(serving, ports));
        PortConflicts {
            wanted,
            is_due: false,
        }
    }

    /// What the engine reported.
    pub(crate) fn report(&mut self, report: &Report) {
        self.is_due |= matches!(report, Report::InSync { .. });
    }

    /// Now and then.
    pub(crate) fn look(&mut self, engine: &Engine, settings: &Settings) {
        if std::mem::take(&mut self.is_due) {
            let ports = NodePorts::of(engine, settings);
            self.wanted.send_if_modified(|known| {
                let changed = **known != ports;
                *known = Arc::new(ports);
                changed
            });
        }
    }
}

async fn compare(serving: Serving, mut wanted: watch::Receiver<Arc<NodePorts>>) {
    let mut known = Known::default();
    loop {
        let ports = wanted.borrow_and_update().clone();
        if !ports.ports.is_empty() || !known.conflicts.is_empty() {
            // `/proc` and the kernel may take their time.
            let looked = tokio::task::spawn_blocking(move || {
                let new = known.look(&ports);
                (known, new)
            });
            let (looked, new) = looked.await.expect("invariant: looking does not panic");
            known = looked;
            tell(&serving, &known, &new);
        }
        if let Ok(Err(_)) = timeout(PERIOD, wanted.changed()).await {
            return;
        }
    }
}

fn tell(serving: &Serving, known: &Known, new: &[Conflict]) {
    serving.node_port_conflicts(known.conflicts.len());
    for conflict in new {
        let Conflict {
            service,
            protocol,
            address,
            ..
        } = conflict;
        tracing::warn!(%service, port = address.port(), %protocol, %address, process = %conflict.who(), "something listens on a node port, and is not reached there");
        serving.event(Fact::node_port_taken(serving.node(), conflict));
    }
}

/// What is known of sockets on node ports.
#[derive(Default)]
struct Known {
    conflicts: BTreeSet<Conflict>,
    /// The sockets of the last look.
    seen: BTreeSet<u32>,
    is_blind: bool,
}

impl Known {
    /// Looks once; the conflicts that are new.
    fn look(&mut self, ports: &NodePorts) -> Vec<Conflict> {
        let listening = match listening_sockets() {
            Ok(listening) => listening,
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    let reason = cluster::chain(&error);
                    tracing::info!(%reason, "cannot see what listens on this host; node ports are not compared with it");
                }
                return Vec::new();
            }
        };
        let own = own_sockets();
        let others: Vec<Listening> = listening
            .into_iter()
            .filter(|socket| !own.contains(&socket.inode))
            .collect();
        let new = self.take(ports, &others);
        if new.is_empty() {
            return new;
        }
        let owners = owners(&new.iter().map(|conflict| conflict.inode).collect());
        let named = |conflict: Conflict| Conflict {
            owner: owners.get(&conflict.inode).cloned(),
            ..conflict
        };
        new.into_iter().map(named).collect()
    }

    fn take(&mut self, ports: &NodePorts, others: &[Listening]) -> Vec<Conflict> {
        let found = ports.conflicts(others, &self.seen);
        let new = found.difference(&self.conflicts).cloned().collect();
        self.conflicts = found;
        self.seen = others.iter().map(|socket| socket.inode).collect();
        new
    }
}

#[cfg(test)]
mod tests;
