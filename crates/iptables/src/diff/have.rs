//! What the kernel is believed to hold of one family's rules.

use super::batch::Batch;
use super::compact::{ChainId, Digest, DispatchRule};
use super::count::{RuleCount, Services};
use super::node::NodeHave;
use super::observe::Observation;
use crate::ast::ChainName;
use model::{Family, ServiceName};
use std::collections::{BTreeMap, BTreeSet};

/// What the kernel said yes to, or was seen to hold.
///
/// Invariant: nothing is in here that was not read or committed (the property `failures_are_overcome` of the engine).
#[derive(Clone, Debug)]
pub struct Have {
    pub(super) family: Family,
    pub(super) node: NodeHave,
    pub(super) services: Services,
    pub(super) leftovers: Leftovers,
}

/// What is believed of one service's rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceHave {
    /// It has these.
    Known(Holding),
    /// A step that touched it failed: it may or may not have any of these chains, and any dispatch rules.
    Unknown(Box<[ChainId]>),
}

/// The rules of one service. Chains are sorted; dispatch rules are by group
/// ([`DispatchRule::group`]), then in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Its own chains.
    pub chains: Box<[(ChainId, Digest)]>,
    /// Its rules in dispatch chains.
    pub dispatch: Box<[DispatchRule]>,
}

impl Holding {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.dispatch.is_empty()
    }
}

/// What was found in the kernel and no service has claimed yet. When every service has been settled, it is nobody's.
#[derive(Clone, Debug, Default)]
pub(super) struct Leftovers {
    pub(super) chains: BTreeMap<ChainId, Digest>,
    pub(super) odd_chains: BTreeSet<ChainName>,
    pub(super) strays: Vec<DispatchRule>,
}

/// What an [`Have::absorb`] found to be other than was believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surprises {
    /// Services whose dispatch rules differ.
    pub services: BTreeSet<ServiceName>,
    /// Whether the node's part differs.
    pub node: bool,
    /// Whether rules were found in dispatch chains that name no service.
    pub strays: bool,
}

impl Surprises {
    /// Whether all was as believed.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty() && !self.node && !self.strays
    }
}

impl Have {
    /// An empty kernel. What it really holds comes with [`Have::adopt`].
    pub fn new(family: Family) -> Have {
        Have {
            family,
            node: NodeHave::default(),
            services: Services::default(),
            leftovers: Leftovers::default(),
        }
    }

    /// Believes a reading of everything, and nothing else.
    ///
    /// A chain stays the service's that it was known to belong to; others wait for a service to claim them.
    pub fn adopt(&mut self, seen: Observation) {
        let Observation {
            mut service_chains,
            odd_chains,
            mut dispatch,
            strays,
            node,
            ..
        } = seen;
        let mut services = BTreeMap::new();
        for (name, known) in std::mem::take(&mut self.services).into_known() {
            let chains = known
                .chain_ids()
                .filter_map(|id| service_chains.remove(&id).map(|digest| (id, digest)))
                .collect();
            let dispatch = dispatch.remove(&name).unwrap_or_default().into_boxed_slice();
            services.insert(name, ServiceHave::Known(Holding { chains, dispatch }));
        }
        for (name, rules) in dispatch {
            let holding = Holding {
                chains: Box::default(),
                dispatch: rules.into_boxed_slice(),
            };
            services.insert(name, ServiceHave::Known(holding));
        }
        services.retain(|_, have| !matches!(have, ServiceHave::Known(holding) if holding.is_empty()));
        *self = Have {
            family: self.family,
            node,
            services: Services::new(services),
            leftovers: Leftovers {
                chains: service_chains,
                odd_chains,
                strays,
            },
        };
    }

    /// Believes a reading made for [`super::observe::Reading::look_and`] of what was unknown, and says what it found.
    ///
    /// Afterwards no service is unknown. Chains of services that were known are not looked at.
    pub fn absorb(&mut self, seen: Observation) -> Surprises {
        let Observation {
            service_chains,
            mut dispatch,
            strays,
            node,
            ..
        } = seen;
        let mut surprises = Surprises {
            node: node != self.node,
            strays: !strays.is_empty(),
            services: BTreeSet::new(),
        };
        self.services.edit(|services| {
            for (name, have) in services {
                let rules = dispatch.remove(name).unwrap_or_default();
                if have.absorb(&service_chains, rules) {
                    surprises.services.insert(name.clone());
                }
            }
        });
        for (name, rules) in dispatch {
            surprises.services.insert(name.clone());
            let holding = Holding {
                chains: Box::default(),
                dispatch: rules.into_boxed_slice(),
            };
            self.services.insert(name, ServiceHave::Known(holding));
        }
        self.node = node;
        self.leftovers.strays = strays;
        surprises
    }

    /// Remembers what a committed batch did.
    pub fn remember(&mut self, batch: Batch) {
        for (name, holding) in batch.settles {
            self.settle(name, holding);
        }
        for id in batch.abandons {
            self.leftovers.chains.insert(id, Digest::of(&[]));
        }
        if let Some(node) = batch.node {
            self.node = node;
        }
        for id in &batch.swept.chains {
            self.leftovers.chains.remove(id);
        }
        for name in &batch.swept.odd_chains {
            self.leftovers.odd_chains.remove(name);
        }
        self.leftovers
            .strays
            .retain(|stray| !batch.swept.strays.contains(stray));
    }

    /// Stops counting as leftovers what this batch failed to sweep, until everything is read again.
    pub fn excuse(&mut self, batch: &Batch) {
        for id in &batch.swept.chains {
            self.leftovers.chains.remove(id);
        }
        for name in &batch.swept.odd_chains {
            self.leftovers.odd_chains.remove(name);
        }
    }

    /// Takes every chain to hold other rules than it does.
    #[cfg(feature = "mutants")]
    pub fn distrust_chains(&mut self) {
        self.services.edit(|services| {
            for have in services.values_mut() {
                if let ServiceHave::Known(holding) = have {
                    for (_, digest) in &mut holding.chains {
                        *digest = Digest::of(&[]);
                    }
                }
            }
        });
    }

    /// Remembers that a service has exactly this.
    pub fn settle(&mut self, name: ServiceName, holding: Holding) {
        for (id, _) in &holding.chains {
            self.leftovers.chains.remove(id);
        }
        if holding.is_empty() {
            self.services.remove(&name);
        } else {
            self.services.insert(name, ServiceHave::Known(holding));
        }
    }

    /// A batch failed, and may have been carried out in part: what it touched is unknown.
    ///
    /// The node's part is read with every reading, and needs no doubt of its own.
    pub fn doubt(&mut self, batch: &Batch) {
        for (name, after) in &batch.settles {
            let before = self.services.get(name);
            let mut ids: BTreeSet<ChainId> = after.chains.iter().map(|(id, _)| *id).collect();
            ids.extend(before.into_iter().flat_map(ServiceHave::chain_ids));
            let ids = ids.into_iter().collect();
            self.services.insert(name.clone(), ServiceHave::Unknown(ids));
        }
    }

    /// The chains of unknown services, to be read again.
    pub fn doubted_chains(&self) -> impl Iterator<Item = ChainId> {
        self.services
            .values()
            .filter(|have| matches!(have, ServiceHave::Unknown(_)))
            .flat_map(ServiceHave::chain_ids)
    }

    /// The services that have rules, or may have.
    pub fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.keys()
    }

    /// How many rules there are in our chains, in so far as it is known whose they are.
    pub fn rules(&self) -> RuleCount {
        let mut count = self.node.rules_in_our_chains();
        count.add(self.services.rules());
        count
    }

    /// How many leftovers wait for [`super::sweep`].
    pub fn leftovers(&self) -> usize {
        let Leftovers {
            chains,
            odd_chains,
            strays,
        } = &self.leftovers;
        chains.len() + odd_chains.len() + strays.len()
    }
}

impl ServiceHave {
    /// The chains that it has, or may have.
    pub fn chain_ids(&self) -> impl Iterator<Item = ChainId> {
        let (known, unknown): (&[(ChainId, Digest)], &[ChainId]) = match self {
            ServiceHave::Known(holding) => (&holding.chains, &[]),
            ServiceHave::Unknown(ids) => (&[], ids),
        };
        known.iter().map(|(id, _)| *id).chain(unknown.iter().copied())
    }

    /// Believes what was read; says whether it differs from what was believed.
    fn absorb(&mut self, chains: &BTreeMap<ChainId, Digest>, rules: Vec<DispatchRule>) -> bool {
        match self {
            ServiceHave::Known(holding) if *holding.dispatch == *rules => false,
            ServiceHave::Known(holding) => {
                holding.dispatch = rules.into_boxed_slice();
                true
            }
            ServiceHave::Unknown(ids) => {
                let chains = ids
                    .iter()
                    .filter_map(|id| chains.get(id).map(|digest| (*id, *digest)))
                    .collect();
                let dispatch = rules.into_boxed_slice();
                *self = ServiceHave::Known(Holding { chains, dispatch });
                true
            }
        }
    }
}
