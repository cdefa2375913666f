//! The difference of one service: what it should have, and what it has.

use super::compact::{ChainId, Digest, DispatchRule, Place};
use super::have::{Have, Holding, ServiceHave};
use crate::ast::{ChainName, Rule};
use crate::build::ServiceRules;
use crate::names::OwnChain;
use model::{Family, ServiceName};
use std::collections::BTreeMap;

/// What becomes of chains that the service has no more use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoneChains {
    /// They are deleted by the step.
    Deleted,
    /// They are left to a later sweep: deleting them made a step fail (a stranger's rule may lead to them).
    Left,
}

/// One service's difference.
#[derive(Clone, Debug)]
pub struct Difference {
    pub(super) name: ServiceName,
    pub(super) after: Holding,
    pub(super) chains: Vec<(ChainName, Vec<Rule>)>,
    pub(super) insert: Vec<(Place, Rule)>,
    pub(super) delete: Vec<DispatchRule>,
    /// Endpoint chains deleted in the transaction that rewrites their callers.
    pub(super) remove: Vec<ChainId>,
    /// Chains deleted once the dispatch rules that lead to them are gone.
    pub(super) retire: Vec<ChainId>,
    /// Chains left to a sweep.
    pub(super) abandon: Vec<ChainId>,
}

impl Difference {
    /// What one service needs. A service that is gone wants no rules at all.
    pub fn new(name: ServiceName, want: ServiceRules, have: &Have, gone_chains: GoneChains) -> Difference {
        let holding = match have.services.get(&name) {
            Some(ServiceHave::Known(holding)) => holding,
            Some(ServiceHave::Unknown(_)) => {
                debug_assert!(false, "a service is read again before it is diffed");
                &Holding::default()
            }
            None => &Holding::default(),
        };
        let mut after: BTreeMap<ChainId, Digest> = BTreeMap::new();
        let mut chains = Vec::new();
        for (chain, rules) in want.chains {
            let id = ChainId::of(&chain).expect("invariant: build names chains by hash");
            let digest = Digest::of(&rules);
            after.insert(id, digest);
            if known_digest(holding, have, id) != Some(digest) {
                chains.push((chain, rules));
            }
        }
        let gone: Vec<ChainId> = holding
            .chains
            .iter()
            .map(|(id, _)| *id)
            .filter(|id| !after.contains_key(id))
            .collect();
        let wanted = want.dispatch.iter().map(|dispatch| {
            let place = Place::of(dispatch.table, &dispatch.chain)
                .expect("invariant: build puts dispatch rules into dispatch chains");
            (place, &dispatch.rule)
        });
        let dispatch = DispatchDifference::new(have.family, wanted, &holding.dispatch);
        let (remove, retire, abandon) = part_gone(gone, gone_chains);
        Difference {
            name,
            after: Holding {
                chains: after.into_iter().collect(),
                dispatch: dispatch.after,
            },
            chains,
            insert: dispatch.insert,
            delete: dispatch.delete,
            remove,
            retire,
            abandon,
        }
    }

    /// Whether the kernel holds all of this already.
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
            && self.insert.is_empty()
            && self.delete.is_empty()
            && self.remove.is_empty()
            && self.retire.is_empty()
            && self.abandon.is_empty()
    }

    /// Writes dispatch rules that are there already.
    #[cfg(feature = "mutants")]
    pub fn rewrite_dispatch(&mut self) {
        if self.insert.is_empty() && self.delete.is_empty() {
            self.insert = self
                .after
                .dispatch
                .iter()
                .map(|rule| (rule.place, rule.rule()))
                .collect();
            self.delete = self.after.dispatch.to_vec();
        }
    }

    /// The service and what it has, to be remembered when [`Difference::is_empty`].
    pub fn into_settled(self) -> (ServiceName, Holding) {
        (self.name, self.after)
    }
}

fn known_digest(holding: &Holding, have: &Have, id: ChainId) -> Option<Digest> {
    match holding.chains.binary_search_by_key(&id, |(known, _)| *known) {
        Ok(at) => Some(holding.chains[at].1),
        Err(_) => have.leftovers.chains.get(&id).copied(),
    }
}

/// How gone chains go: at once, after the dispatch rules, or later.
///
/// Endpoint chains go in the transaction that rewrites the chains that led to them. When one of those goes itself, it
/// still leads to its endpoints until the dispatch rules are deleted, and all go together after that.
fn part_gone(gone: Vec<ChainId>, fate: GoneChains) -> (Vec<ChainId>, Vec<ChainId>, Vec<ChainId>) {
    match fate {
        GoneChains::Left => (Vec::new(), Vec::new(), gone),
        GoneChains::Deleted if gone.iter().all(|id| id.kind() == OwnChain::Sep) => {
            (gone, Vec::new(), Vec::new())
        }
        GoneChains::Deleted => (Vec::new(), gone, Vec::new()),
    }
}

/// The difference of one service's dispatch rules.
///
/// Their order within the service is upstream's too. New rules go to the head of a chain, so what stays is the longest
/// end of the wanted rules that the kernel has in that order; all before it is inserted, and old copies are deleted.
struct DispatchDifference {
    insert: Vec<(Place, Rule)>,
    delete: Vec<DispatchRule>,
    after: Box<[DispatchRule]>,
}

impl DispatchDifference {
    /// Of `have`, the rules of each place are in the kernel's order.
    fn new<'a>(family: Family, want: impl Iterator<Item = (Place, &'a Rule)>, have: &[DispatchRule]) -> Self {
        let mut want: Vec<(DispatchRule, &Rule)> = want
            .map(|(place, rule)| (DispatchRule::new(family, place, rule), rule))
            .collect();
        want.sort_by_key(|(small, _)| small.place);
        let mut insert = Vec::new();
        let mut delete = Vec::new();
        for place in Place::ALL {
            let want: Vec<_> = want.iter().filter(|(small, _)| small.place == place).collect();
            let mut left: Vec<&DispatchRule> = have.iter().filter(|rule| rule.place == place).collect();
            let mut end = left.len();
            let mut new = want.len();
            while let Some(before) = new.checked_sub(1)
                && let Some(at) = left[..end].iter().rposition(|known| **known == want[before].0)
            {
                left.remove(at);
                (end, new) = (at, before);
            }
            insert.extend(want[..new].iter().map(|(_, rule)| (place, (*rule).clone())));
            delete.extend(left.into_iter().cloned());
        }
        DispatchDifference {
            insert,
            delete,
            after: want.into_iter().map(|(small, _)| small).collect(),
        }
    }
}
