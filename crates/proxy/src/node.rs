//! The node: its facts, out of the Node object, the configuration and the host's addresses; and what follows when the
//! Node changes.

mod nobody;
pub(crate) mod wait;

use crate::{ProxyError, ProxyOptions};
use ipnet::IpNet;
use model::snapshot::Snapshot;
use model::{Family, NodeFacts, PerFamily, Settings};
use std::net::IpAddr;

/// The facts as they are now. Without a Node object, the configuration and the host's addresses have to do.
pub(crate) fn facts(options: &ProxyOptions, snapshot: &Snapshot, addresses: Vec<IpAddr>) -> NodeFacts {
    config::facts(&options.config, &options.node_name, snapshot, addresses)
}

/// What is still missing of the Node before rules can be right; `None` when nothing is.
pub(crate) fn missing(options: &ProxyOptions, snapshot: &Snapshot) -> Option<Missing> {
    let Some(node) = snapshot.node(&options.node_name) else {
        return Some(Missing::Node);
    };
    if needs_pod_cidr(options) && node.pod_cidrs.is_empty() {
        return Some(Missing::PodCidr);
    }
    node.addresses.is_empty().then_some(Missing::Addresses)
}

fn needs_pod_cidr(options: &ProxyOptions) -> bool {
    options.config.detect_local_mode == "NodeCIDR"
}

/// What a Node can lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The object itself.
    Node,
    /// `spec.podCIDRs`.
    PodCidr,
    /// Addresses of its own.
    Addresses,
}

/// Whether there is a Node of our name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// There has never been one.
    Awaited,
    /// There is.
    There,
    /// There was.
    Deleted,
}

/// What was last known of the Node, and what follows from it.
pub(crate) struct Node {
    presence: Presence,
    /// `spec.podCIDRs` as they were at start.
    pod_cidrs: Box<[IpNet]>,
    ips: PerFamily<Option<IpAddr>>,
    settings: Settings,
}

impl Node {
    /// At the start of serving.
    pub(crate) fn new(options: &ProxyOptions, snapshot: &Snapshot, facts: &NodeFacts) -> Node {
        let node = snapshot.node(&options.node_name);
        Node {
            presence: node.map_or(Presence::Awaited, |_| Presence::There),
            pod_cidrs: node.map(|node| node.pod_cidrs.clone()).unwrap_or_default(),
            ips: facts.node_ips,
            settings: config::settings(&options.config, facts),
        }
    }

    /// The settings as they are now; some of them follow from the Node.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Objects of kind Node changed.
    ///
    /// # Errors
    /// When local traffic is told by the Node's pod CIDRs and these are others now. As upstream has it, the process ends
    /// then, and whoever supervises it starts it anew.
    pub(crate) fn look(&mut self, options: &ProxyOptions, snapshot: &Snapshot) -> Result<(), ProxyError> {
        let name = &options.node_name;
        let Some(node) = snapshot.node(name) else {
            if self.presence == Presence::There {
                self.presence = Presence::Deleted;
                tracing::warn!(node = %name, "the Node was deleted; what it last said stays in force");
            }
            return Ok(());
        };
        if self.presence != Presence::There {
            tracing::info!(node = %name, addresses = node.addresses.len(), "the Node is there now, and is taken in");
            self.presence = Presence::There;
        }
        if needs_pod_cidr(options) && node.pod_cidrs != self.pod_cidrs {
            return Err(ProxyError::PodCidrChanged {
                node: name.to_string(),
                from: words(&self.pod_cidrs),
                to: words(&node.pod_cidrs),
            });
        }
        Ok(())
    }

    /// The facts are these now; the settings, when they are others.
    ///
    /// Deviation: ADR 41. Upstream keeps the node's addresses as they were at start.
    pub(crate) fn follow(&mut self, options: &ProxyOptions, facts: &NodeFacts) -> Option<Settings> {
        if facts.node_ips != self.ips {
            for family in Family::ALL {
                let (from, to) = (self.ips.get(family), facts.node_ips.get(family));
                if from != to {
                    let word = |ip: &Option<IpAddr>| ip.map_or("none".to_owned(), |ip| ip.to_string());
                    tracing::info!(%family, from = %word(from), to = %word(to), "the node's address changed, and is followed");
                }
            }
            self.ips = facts.node_ips;
        }
        let settings = config::settings(&options.config, facts);
        if settings == self.settings {
            return None;
        }
        self.settings = settings.clone();
        Some(settings)
    }
}

fn words(nets: &[IpNet]) -> String {
    let words: Vec<String> = nets.iter().map(ToString::to_string).collect();
    if words.is_empty() {
        "none".to_owned()
    } else {
        words.join(",")
    }
}
