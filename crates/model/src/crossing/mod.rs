//! Everything that crosses services, and who computes it again when what changes.
//!
//! A service is the unit of work: what it wants follows from its own objects, the node and the settings, except for
//! what this table names. Nothing else crosses.
//!
//! | what crosses | kept by | changes when | who computes what again |
//! |---|---|---|---|
//! | claims on one (address, port, protocol) or (family, node port, protocol) | [`Claims`], in the [`Snapshot`](crate::snapshot::Snapshot) | another service comes first | the snapshot names the key's other claimants in [`Touched::services`](crate::snapshot::Touched::services); the caller resolves each |
//! | the large-cluster count, which decides on comments per endpoint | [`ListedEndpoints`], one a family, by the caller | a resolved service lists more or fewer endpoints | the caller keeps the count; when [`ListedEndpoints::is_large`] turns, nobody is built again: rules written from then on have comments or lack them, and a comment is no difference (ADR 6) |
//! | the node part: detectors, mark, node-port addresses | [`resolve_node`](crate::resolve::resolve_node) | interfaces, Node or settings change | the caller resolves the node part; when detector, zone, node name or node addresses change, every service as well |
//! | shared shapes and chains | each backend | the backend builds a service | the backend |
//! | cluster IPs as a whole (nftables: undeclared ports, unallocated addresses) | the backend, from its services' frontends and [`Snapshot::service_cidrs`](crate::snapshot::Snapshot::service_cidrs) | a service or ServiceCIDR changes | the backend |

#[cfg(test)]
mod tests;

use crate::object::{Created, Service};
use crate::settings::ExternalIps;
use crate::{Desired, DesiredService, Family, FrontendKind, Protocol, ServiceName};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// More endpoints than this make a cluster large: comments that name endpoints are left out
/// (upstream's `largeClusterEndpointsThreshold`).
pub const LARGE_CLUSTER_ENDPOINTS: usize = 1000;

/// What two services cannot both have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimKey {
    /// An address and port.
    Address(IpAddr, u16, Protocol),
    /// A node port of one family.
    NodePort(Family, u16, Protocol),
}

/// `203.0.113.9:80/TCP` or `node port 31080/TCP`.
impl fmt::Display for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimKey::Address(ip, port, protocol) => {
                write!(f, "{}/{protocol}", std::net::SocketAddr::new(*ip, *port))
            }
            ClaimKey::NodePort(_, port, protocol) => write!(f, "node port {port}/{protocol}"),
        }
    }
}

impl ClaimKey {
    /// What a frontend of one family claims.
    pub fn of(kind: FrontendKind, port: u16, protocol: Protocol, family: Family) -> Self {
        match kind {
            FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
                ClaimKey::Address(ip, port, protocol)
            }
            FrontendKind::NodePort => ClaimKey::NodePort(family, port, protocol),
        }
    }
}

/// Why a service claims. The order is the order of precedence.
///
/// Addresses that the API server gave out come before those that people and controllers write into objects: an
/// `externalIPs` entry must not take another service's cluster IP, however old its service is (CVE-2020-8554).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimKind {
    Allocated,
    LoadBalancer,
    External,
}

/// One service's claim. The order is the order of precedence: kind, then age, then namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Claimant {
    kind: ClaimKind,
    created: Created,
    service: ServiceName,
}

/// Who claims what.
///
/// Deviation: upstream writes the rules of all claimants in no particular order, so that chance decides. Here one wins
/// (ADR 7):
/// cluster IPs and node ports before load-balancer IPs before external IPs, then the older service, then the first
/// by namespace and name. The others go without until it leaves.
///
/// Ports of one service never compete here, and neither do its own kinds of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    // Nearly every key has one claimant, so a sorted vector of one beats a set.
    claimants: BTreeMap<ClaimKey, Vec<Claimant>>,
}

impl Claims {
    /// Takes a service's claims away (its former state) and adds those of its new one.
    /// Returns the other services that must be resolved again: a frontend follows from who comes first alone, so they
    /// are those that claim what another one now has. However many claim one address, one more that goes without
    /// changes nothing for them.
    pub fn replace(&mut self, before: Option<&Service>, after: Option<&Service>) -> BTreeSet<ServiceName> {
        let before = before.map(claims_of).unwrap_or_default();
        let after = after.map(claims_of).unwrap_or_default();
        let firsts: BTreeMap<ClaimKey, Option<Claimant>> = before
            .symmetric_difference(&after)
            .map(|(key, _)| (*key, self.first(key).cloned()))
            .collect();
        for (key, claimant) in before.difference(&after) {
            self.remove(key, claimant);
        }
        for (key, claimant) in after.difference(&before) {
            self.insert(*key, claimant.clone());
        }
        let own = before
            .iter()
            .chain(&after)
            .map(|(_, claimant)| &claimant.service)
            .next();
        firsts
            .into_iter()
            .filter(|(key, first)| self.first(key) != first.as_ref())
            .flat_map(|(key, _)| self.claimants.get(&key).into_iter().flatten())
            .map(|claimant| &claimant.service)
            .filter(|service| Some(*service) != own)
            .cloned()
            .collect()
    }

    fn first(&self, key: &ClaimKey) -> Option<&Claimant> {
        self.claimants.get(key)?.first()
    }

    fn remove(&mut self, key: &ClaimKey, claimant: &Claimant) {
        let Some(claimants) = self.claimants.get_mut(key) else {
            return;
        };
        if let Ok(at) = claimants.binary_search(claimant) {
            claimants.remove(at);
        }
        if claimants.is_empty() {
            self.claimants.remove(key);
        }
    }

    fn insert(&mut self, key: ClaimKey, claimant: Claimant) {
        let claimants = self.claimants.entry(key).or_default();
        let at = claimants.partition_point(|other| *other < claimant);
        claimants.insert(at, claimant);
        claimants.shrink_to_fit();
    }

    /// Gives back the room that claims, each put in after the one before, take too much.
    pub fn compact(&mut self) {
        self.claimants = std::mem::take(&mut self.claimants).into_iter().collect();
    }

    /// Who has it. `None` when nobody claims it.
    pub fn winner(&self, key: ClaimKey, external_ips: &ExternalIps) -> Option<&ServiceName> {
        let is_honoured = match key {
            ClaimKey::Address(ip, ..) => external_ips.honours(ip),
            // No external IP claims one.
            ClaimKey::NodePort(..) => true,
        };
        let counts = |claimant: &&Claimant| claimant.kind != ClaimKind::External || is_honoured;
        self.claimants
            .get(&key)?
            .iter()
            .find(counts)
            .map(|claimant| &claimant.service)
    }

    /// How many keys are claimed.
    pub fn len(&self) -> usize {
        self.claimants.len()
    }

    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.claimants.is_empty()
    }
}

/// All that a service claims, of both families.
fn claims_of(service: &Service) -> BTreeSet<(ClaimKey, Claimant)> {
    let mut claims = BTreeSet::new();
    if service.skipped.is_some() {
        return claims;
    }
    for family in Family::ALL {
        let Some(cluster_ip) = *service.cluster_ips.get(family) else {
            continue;
        };
        let of_family = |ips: &[IpAddr]| -> Vec<IpAddr> {
            ips.iter()
                .copied()
                .filter(|ip| Family::of(*ip) == family)
                .collect()
        };
        let groups = [
            (ClaimKind::Allocated, vec![cluster_ip]),
            (ClaimKind::LoadBalancer, of_family(&service.load_balancer_ips)),
            (ClaimKind::External, of_family(&service.external_ips)),
        ];
        for port in &service.ports {
            for (kind, ips) in &groups {
                for ip in ips {
                    let key = ClaimKey::Address(*ip, port.port, port.protocol);
                    claims.insert((key, claimant(*kind, service)));
                }
            }
            if let Some(node_port) = port.node_port {
                let key = ClaimKey::NodePort(family, node_port, port.protocol);
                claims.insert((key, claimant(ClaimKind::Allocated, service)));
            }
        }
    }
    claims
}

fn claimant(kind: ClaimKind, service: &Service) -> Claimant {
    Claimant {
        kind,
        created: service.created,
        service: service.name.clone(),
    }
}

/// How many endpoints the services of one family list, ready or not: upstream's large-cluster count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedEndpoints {
    total: usize,
}

impl ListedEndpoints {
    /// The count of a whole cluster.
    pub fn of(desired: &Desired) -> Self {
        ListedEndpoints {
            total: desired.services.values().map(listed_by).sum(),
        }
    }

    /// Replaces one service's part: what [`listed_by`] said before, by what it says now.
    pub fn replace(&mut self, before: usize, after: usize) {
        self.total = self.total - before + after;
    }

    /// The count.
    pub fn total(&self) -> usize {
        self.total
    }

    /// Whether comments that name endpoints are left out.
    pub fn is_large(&self) -> bool {
        self.total > LARGE_CLUSTER_ENDPOINTS
    }
}

/// How many endpoints one service lists: its part of the count.
pub fn listed_by(service: &DesiredService) -> usize {
    service.ports.iter().map(|port| port.listed_endpoints).sum()
}
