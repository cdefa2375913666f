//! What a reading shows to be other than it was left: somebody else's doing.

use super::compact::{ChainId, Digest, DispatchRule};
use super::have::{Have, ServiceHave};
use super::observe::Observation;
use model::ServiceName;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Which chains of services a reading is good for.
#[derive(Clone, Copy, Debug)]
pub enum Checked<'a> {
    /// These.
    These(&'a BTreeSet<ChainId>),
    /// All there are.
    All,
}

impl Checked<'_> {
    fn has(self, id: ChainId) -> bool {
        match self {
            Checked::These(ids) => ids.contains(&id),
            Checked::All => true,
        }
    }
}

/// How much of it is named; a flushed table of a large cluster is 100,000 chains.
const NAMED: usize = 8;

/// What is missing or changed, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// The first of it, a phrase each.
    pub named: Vec<String>,
    /// How much there is besides.
    pub more: usize,
}

impl Harm {
    /// One more thing; its words are asked for only if they are told.
    pub fn add(&mut self, words: impl FnOnce() -> String) {
        if self.named.len() < NAMED {
            self.named.push(words());
        } else {
            self.more += 1;
        }
    }

    /// Whether all is as it was left.
    pub fn is_none(&self) -> bool {
        self.named.is_empty()
    }
}

/// `a; b; and 3 more`.
impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.named.join("; "))?;
        match self.more {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Services whose own chains are other than they were left.
pub type Harmed = BTreeSet<ServiceName>;

impl Have {
    /// Names what is missing or changed, the node's part first.
    ///
    /// To be asked before the reading is believed.
    pub fn harm(&self, seen: &Observation, checked: Checked<'_>) -> Harm {
        let mut harm = Harm::default();
        self.node.harm(&seen.node, &mut harm);
        for (name, have) in self.services.iter() {
            let ServiceHave::Known(holding) = have else {
                continue;
            };
            let dispatch = seen.dispatch.get(name).map_or(&[][..], Vec::as_slice);
            dispatch_harm(name, &holding.dispatch, dispatch, &mut harm);
            for (id, digest) in holding.chains.iter().filter(|(id, _)| checked.has(*id)) {
                match seen.service_chains.get(id) {
                    None => harm.add(|| format!("nat chain {id:?} of {name} missing")),
                    Some(found) if found != digest => {
                        harm.add(|| format!("nat chain {id:?} of {name} changed"));
                    }
                    Some(_) => {}
                }
            }
        }
        harm
    }

    /// Believes what a reading shows of the chains of known services, and says whose are other than they were.
    ///
    /// Of everything else, [`Have::absorb`] believes the same reading.
    pub fn verify(&mut self, seen: &Observation, checked: Checked<'_>) -> Harmed {
        let mut harmed = Harmed::new();
        let verify = |(name, have): (&ServiceName, &mut ServiceHave)| {
            let ServiceHave::Known(holding) = have else {
                return;
            };
            let is_whole = |(id, digest): &(ChainId, Digest)| {
                !checked.has(*id) || seen.service_chains.get(id) == Some(digest)
            };
            if holding.chains.iter().all(is_whole) {
                return;
            }
            let found = |(id, digest): &(ChainId, Digest)| {
                if checked.has(*id) {
                    seen.service_chains.get(id).map(|found| (*id, *found))
                } else {
                    Some((*id, *digest))
                }
            };
            holding.chains = holding.chains.iter().filter_map(found).collect();
            harmed.insert(name.clone());
        };
        self.services
            .edit(|services| services.iter_mut().for_each(verify));
        harmed
    }

    /// All chains of services that are there, or may be.
    pub fn all_chains(&self) -> impl Iterator<Item = ChainId> {
        self.services.values().flat_map(ServiceHave::chain_ids)
    }
}

/// How a service's rules in dispatch chains differ; each chain once.
fn dispatch_harm(name: &ServiceName, had: &[DispatchRule], found: &[DispatchRule], harm: &mut Harm) {
    if had == found {
        return;
    }
    let mut by_place: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for rule in had.iter().filter(|rule| !found.contains(rule)) {
        by_place.entry(place(rule)).or_default().0 += 1;
    }
    for rule in found.iter().filter(|rule| !had.contains(rule)) {
        by_place.entry(place(rule)).or_default().1 += 1;
    }
    for (place, (missing, strange)) in by_place {
        harm.add(|| match (missing, strange) {
            (0, strange) => format!("{strange} strange rules for {name} in {place}"),
            (missing, _) => format!("{missing} rules for {name} missing in {place}"),
        });
    }
}

fn place(rule: &DispatchRule) -> String {
    let place = rule.place;
    format!("{} {}", place.table(), place.chain())
}
