//! The connection table follows the rules: flows whose endpoint has gone are deleted (ADR 10).
//!
//! One thread per family sweeps, and nothing that writes rules waits for it: the loop in `control` notes what the
//! kernel took, and the thread takes the notes when a sweep is due.

mod prove;
mod sweeper;
mod trying;

pub(crate) use prove::Proved;

use crate::serve::Serving;
use conntrack::{Expectation, NodeAddresses, ServiceFlows, TcpOption};
use engine::{Engine, Item, Report};
use model::resolve::{Context, resolve_node};
use model::{Family, PerFamily, ServiceName, Settings};
use std::collections::BTreeSet;
use std::time::Duration;
use sweeper::{Hold, Sweeper};
use trying::Trying;

/// What each family's flows should be, brought up to date with each report of the engine.
pub(crate) struct Flows {
    tcp: TcpOption,
    settings: Settings,
    families: PerFamily<OfFamily>,
    serving: Serving,
    /// While objects are not the API server's own, nothing is deleted on the strength of them (ADR 38).
    hold: Hold,
}

#[derive(Default)]
struct OfFamily {
    proved: Proved,
    /// From the first time that all rules were in the kernel.
    sweeper: Option<Sweeper>,
    thread: Trying,
    /// Services that were noted while more changes waited: what was noted may be ahead of the rules, which then come
    /// later and say the same, and flows that the older rules made in between must be looked for once more.
    ahead: BTreeSet<ServiceName>,
}

impl Flows {
    pub(crate) fn new(tcp: TcpOption, settings: Settings, serving: Serving) -> Flows {
        Flows {
            tcp,
            settings,
            families: PerFamily::default(),
            serving,
            hold: Hold::Free,
        }
    }

    /// The objects are what an earlier process was told: no sweeps until [`Flows::release`].
    pub(crate) fn hold(&mut self) {
        self.hold = Hold::Held;
    }

    /// The objects are the API server's own again. A family whose rules do not say so yet sweeps once they do.
    pub(crate) fn release(&mut self, engine: &Engine) {
        self.hold = Hold::Free;
        for family in Family::ALL {
            let waits = engine
                .status(family)
                .is_none_or(|status| status.pending_since.is_some());
            if let (false, Some(sweeper)) = (waits, &self.families.get(family).sweeper) {
                sweeper.release();
            }
        }
    }

    /// Where the rules found at start are to leave what they prove.
    pub(crate) fn proved(&self, family: Family) -> Proved {
        self.families.get(family).proved.clone()
    }

    /// Takes in what the engine told; `engine` is what told it.
    pub(crate) fn report(&mut self, report: &Report, engine: &Engine) {
        match report {
            Report::InSync { family, .. } => self.in_sync(*family),
            // An endpoint that no rule leads to may have flows all the same: one that is terminating, with others ready.
            Report::Applied { family, services, .. } | Report::AsItIs { family, services } => {
                self.applied(*family, services, engine);
            }
            _ => {}
        }
    }

    /// Begins to watch the flows of a family whose rules are in for the first time, but for what the kernel refuses.
    ///
    /// A service that is refused does not hold the others' flows back; its own are let be until its rules are in.
    pub(crate) fn look(&mut self, engine: &Engine, now: Duration) {
        for family in Family::ALL {
            let is_in = engine
                .status(family)
                .is_some_and(|status| status.last_full_sync.is_some());
            if is_in && self.families.get(family).sweeper.is_none() {
                self.begin(family, engine);
            }
            let OfFamily { sweeper, thread, .. } = self.families.get_mut(family);
            if let Some(sweeper) = sweeper {
                thread.look(now, family, || sweeper.start());
            }
        }
    }

    /// The settings are others now.
    pub(crate) fn settings(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// The node's addresses may be others now.
    pub(crate) fn node(&self, engine: &Engine) {
        for family in Family::ALL {
            if let Some(sweeper) = &self.families.get(family).sweeper {
                sweeper.note_node(self.addresses(family, engine));
            }
        }
    }

    fn in_sync(&mut self, family: Family) {
        self.families.get_mut(family).ahead.clear();
        if let (Hold::Free, Some(sweeper)) = (self.hold, &self.families.get(family).sweeper) {
            sweeper.release();
        }
    }

    fn begin(&mut self, family: Family, engine: &Engine) {
        let refused: BTreeSet<&ServiceName> = engine.refused(family).filter_map(Item::service).collect();
        let mut expectation = Expectation::new(family, self.addresses(family, engine));
        let mut let_be = BTreeSet::new();
        for service in engine.snapshot().services() {
            let flows = self.service(family, &service.name, engine);
            if refused.contains(&service.name) {
                let_be.extend(flows.frontends.into_keys());
            } else {
                expectation.update(&service.name, flows);
            }
        }
        let proved = self.families.get(family).proved.take();
        tracing::debug!(%family, frontends = expectation.len(), proved = proved.len(), refused = refused.len(), "flows are watched");
        for (frontend, endpoint) in proved {
            if !let_be.contains(&frontend) {
                expectation.remember_gone(frontend, endpoint);
            }
        }
        let sweeper = Sweeper::new(expectation, self.tcp, self.serving.clone(), self.hold);
        self.families.get_mut(family).sweeper = Some(sweeper);
    }

    fn applied(&mut self, family: Family, services: &[ServiceName], engine: &Engine) {
        // Before the first time in sync there is nothing to bring up to date: it takes the whole state.
        if self.families.get(family).sweeper.is_none() {
            return;
        }
        let noted: Vec<(ServiceName, ServiceFlows)> = services
            .iter()
            .map(|name| (name.clone(), self.service(family, name, engine)))
            .collect();
        let status = engine.status(family);
        let more_waits = status.is_some_and(|status| status.pending_since.is_some());
        let OfFamily { sweeper, ahead, .. } = self.families.get_mut(family);
        let again = noted
            .iter()
            .any(|(name, flows)| !flows.frontends.is_empty() && ahead.contains(name));
        if more_waits {
            ahead.extend(services.iter().cloned());
        }
        let sweeper = sweeper.as_ref().expect("invariant: it was there a moment ago");
        sweeper.note_services(noted, again);
    }

    fn service(&self, family: Family, name: &ServiceName, engine: &Engine) -> ServiceFlows {
        let snapshot = engine.snapshot();
        let Some(service) = snapshot.service(name) else {
            return ServiceFlows::default();
        };
        let context = Context {
            family,
            node: engine.facts(),
            settings: &self.settings,
            claims: snapshot.claims(),
        };
        ServiceFlows::of(service, &snapshot.slices_of(name), &context, self.tcp)
    }

    fn addresses(&self, family: Family, engine: &Engine) -> NodeAddresses {
        let facts = engine.facts();
        NodeAddresses::of(&resolve_node(family, facts, &self.settings), facts)
    }
}

/// Between two sweeps when nothing changes.
const PERIOD: Duration = Duration::from_mins(1);
/// Between two sweeps at least.
const GAP: Duration = Duration::from_secs(1);
