//! From what traffic should do to rules, one service at a time, as upstream `pkg/proxy/iptables/proxier.go` has them.
//!
//! Nothing is decided here again: routes, endpoint lists and admissions come decided in [`model::desired`].
//! What is made is exactly what upstream makes, in its order within each chain.

mod node;
mod ruleset;
mod service;
mod terms;

pub(crate) use node::no_martians;
pub use node::{AtCleanup, Jump, NodeRules, jumps, node};
pub use ruleset::ruleset;
pub use service::service;
pub use terms::{MAX_COMMENT, probability};

use crate::ast::{ChainName, Ports, Rule, TableName};
use model::crossing::ListedEndpoints;
use std::collections::BTreeMap;

/// What the rules' form depends on besides what traffic should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildContext {
    /// What tool and kernel can do.
    pub capabilities: Capabilities,
    /// Whether the rules of endpoints carry comments.
    pub endpoint_comments: EndpointComments,
    /// What becomes of packets that conntrack calls INVALID.
    pub invalid: InvalidPackets,
}

/// What tool and kernel can do, found out once at start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// How MASQUERADE chooses ports: `--random-fully` from iptables 1.6.2 on.
    pub masquerade_ports: Ports,
    /// Whether packets are counted by nfacct objects.
    pub nfacct: Nfacct,
}

/// Whether the nfacct objects of [`crate::names`] exist. A rule that names a missing one is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nfacct {
    /// They exist in this network namespace.
    Present,
    /// No such thing here.
    Absent,
}

/// Whether the rules of endpoints (chains SVC, SVL and SEP) carry comments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointComments {
    /// They do.
    Kept,
    /// Large cluster: they don't.
    Omitted,
}

impl EndpointComments {
    /// What upstream does in a cluster whose services list this many endpoints (its `largeClusterMode`).
    pub fn for_cluster(listed: &ListedEndpoints) -> EndpointComments {
        if listed.is_large() {
            EndpointComments::Omitted
        } else {
            EndpointComments::Kept
        }
    }
}

/// What becomes of packets that conntrack calls INVALID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidPackets {
    /// They are dropped in FORWARD, since they would go out untranslated.
    Dropped,
    /// `nf_conntrack_tcp_be_liberal` is set: conntrack calls nothing INVALID for its window, and no rule is needed.
    Passed,
}

/// One service's rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceRules {
    /// The service's own chains, all of them in nat.
    pub chains: BTreeMap<ChainName, Vec<Rule>>,
    /// Its rules in chains that all services share, in upstream's order.
    pub dispatch: Vec<Dispatch>,
}

/// A rule in a chain that all services share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dispatch {
    /// The table.
    pub table: TableName,
    /// The chain, one of [`crate::names::DISPATCH_CHAINS`].
    pub chain: ChainName,
    /// The rule.
    pub rule: Rule,
}
