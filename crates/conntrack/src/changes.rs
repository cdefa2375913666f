//! Changes on their way to an expectation that a sweep is using just now.

use crate::{Expectation, NodeAddresses, ServiceFlows, Urgency};
use model::ServiceName;
use std::collections::BTreeMap;

/// Changes that wait. However long a sweep takes, one service waits once.
///
/// Invariant: the rules that say the same are in the kernel when a change comes in; what failed to be written never
/// gets here, and comes when it was written (`Report::Applied` of the engine).
#[derive(Clone, Debug, Default)]
pub struct Changes {
    services: BTreeMap<ServiceName, Vec<ServiceFlows>>,
    node: Option<NodeAddresses>,
}

impl Changes {
    /// A service has other flows now; none when it was deleted.
    ///
    /// The two latest states are kept: the older one's endpoints have had flows, and the expectation must remember
    /// them if the service goes.
    pub fn note_service(&mut self, service: ServiceName, flows: ServiceFlows) {
        let waiting = self.services.entry(service).or_default();
        if waiting.last() == Some(&flows) {
            return;
        }
        if waiting.len() > 1 {
            waiting.remove(0);
        }
        waiting.push(flows);
    }

    /// The node's addresses are others now.
    pub fn note_node(&mut self, node: NodeAddresses) {
        self.node = Some(node);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && self.node.is_none()
    }

    /// Brings everything in.
    pub fn apply(self, expectation: &mut Expectation) -> Urgency {
        let mut urgency = Urgency::None;
        for (service, states) in self.services {
            for flows in states {
                urgency = urgency.max(expectation.update(&service, flows));
            }
        }
        if let Some(node) = self.node {
            urgency = urgency.max(expectation.update_node(node));
        }
        urgency
    }
}
