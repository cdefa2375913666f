//! The slots of lists, and the chains that choose among them.

use super::THROWS;
use super::frame::{Choice, Shape, always, chain, plain, rule};
use crate::ast::{Action, Chain, Data, Flags, Match, Name, Rule, Set};
use crate::names::{Bound, Kind};
use model::balance;
use std::collections::BTreeSet;

/// Clients that one slot remembers, over all frontends. 48 MiB of kernel memory when full.
const CLIENTS: u32 = 1 << 18;

/// A map for each slot, and a chain that goes there.
pub(super) fn slots(kind: Kind, shapes: &[Shape], sets: &mut Vec<Set>, chains: &mut Vec<Chain>) {
    let most = most_of(shapes.iter().filter_map(|shape| shape.choice.bound()));
    let sticky = || {
        shapes.iter().filter_map(|shape| match shape.choice {
            Choice::Sticky(bound, timeout) => Some((bound, timeout)),
            _ => None,
        })
    };
    let most_sticky = most_of(sticky().map(|(bound, _)| bound));
    for slot in 0..most {
        sets.push(Set {
            data: Data::Endpoint,
            ..plain(kind.slot(slot), kind.key(), "")
        });
        chains.push(chain(kind.to(slot), vec![always(to_slot(kind, slot))]));
    }
    for slot in 0..most_sticky {
        sets.push(Set {
            flags: Flags::Clients { size: CLIENTS },
            ..plain(kind.clients(slot), kind.client_key(), "")
        });
    }
    let timeouts: BTreeSet<u32> = sticky().map(|(_, timeout)| timeout).collect();
    for timeout in timeouts {
        let of_timeout = sticky().filter(|(_, other)| *other == timeout);
        let below = most_of(of_timeout.map(|(bound, _)| bound));
        for slot in 0..below {
            chains.push(chain(
                kind.to_sticky(slot, timeout),
                remember(kind, slot, timeout),
            ));
        }
    }
}

fn most_of(bounds: impl Iterator<Item = Bound>) -> u32 {
    bounds.map(Bound::get).max().unwrap_or(0)
}

/// A map for each bucket of clients, and a chain that goes there.
pub(super) fn buckets(kind: Kind, sets: &mut Vec<Set>, chains: &mut Vec<Chain>) {
    for bucket in 0..balance::BUCKETS {
        sets.push(Set {
            data: Data::Endpoint,
            ..plain(kind.bucket(bucket), kind.key(), "")
        });
        let to = Action::DnatTo(kind.key(), kind.bucket(bucket));
        chains.push(chain(kind.to_bucket(bucket), vec![always(to)]));
    }
}

fn to_slot(kind: Kind, slot: u32) -> Action {
    Action::DnatTo(kind.key(), kind.slot(slot))
}

/// Three rules: a set that is full ends the first, and the packet goes on to the second; only a packet that finds
/// nobody in the slot comes to the third. (Whether somebody is in the slot cannot be asked first: kernels before 6.5
/// refuse to look for a key in a map without taking its data.)
///
/// The second goes to the slot's own chain: a rule of another chain that names a map makes the kernel walk all of that map's
/// elements (`nf_tables_bind_set`), which would cost the first service of a timeout 1 ms for every 10,000 services.
fn remember(kind: Kind, slot: u32, timeout: u32) -> Vec<Rule> {
    let update = Action::Remember {
        key: kind.client_key(),
        set: kind.clients(slot),
        timeout,
    };
    let to = Action::Jump(kind.to(slot));
    vec![always(update), always(to), forget(kind, slot)]
}

/// The chains that choose among the slots of one shape.
pub(super) fn picks(shape: Shape, chains: &mut Vec<Chain>) {
    let kind = shape.kind;
    match shape.choice {
        Choice::Hashed => {
            let targets = (0..balance::BUCKETS).map(|bucket| kind.to_bucket(bucket));
            let hash = Action::JumpHashed(targets.collect());
            chains.push(chain(kind.hash(), vec![always(hash)]));
        }
        Choice::Random(bound) => {
            let targets = (0..bound.get()).map(|slot| kind.to(slot)).collect();
            chains.push(chain(kind.try_one(bound), vec![always(die(targets))]));
            let mut rules = vec![always(Action::Jump(kind.try_one(bound))); throws(bound)];
            // Invariant: slot 0 of such a list is taken (`slots_hold_the_list_and_some_slot_is_taken_all_the_time`).
            rules.extend(bound.half().map(|_| always(Action::Goto(kind.to(0)))));
            chains.push(chain(kind.pick(bound), rules));
        }
        Choice::Sticky(bound, timeout) => {
            let targets: Vec<Name> = (0..bound.get())
                .map(|slot| kind.to_sticky(slot, timeout))
                .collect();
            let try_one = kind.try_one_sticky(bound, timeout);
            chains.push(chain(try_one.clone(), vec![always(die(targets.clone()))]));
            let mut rules: Vec<Rule> = (0..)
                .zip(&targets)
                .map(|(slot, to)| known(kind, slot, to))
                .collect();
            rules.extend((0..bound.get()).map(|slot| forget(kind, slot)));
            rules.extend(std::iter::repeat_n(always(Action::Jump(try_one)), throws(bound)));
            rules.extend(targets.into_iter().map(|to| always(Action::Jump(to))));
            chains.push(chain(kind.pick_sticky(bound, timeout), rules));
        }
    }
}

fn die(mut chains: Vec<Name>) -> Action {
    match chains.len() {
        1 => Action::Jump(chains.remove(0)),
        _ => Action::JumpRandom(chains),
    }
}

fn throws(bound: Bound) -> usize {
    if bound.half().is_none() { 1 } else { THROWS }
}

/// A client that a slot knows goes there, and comes back forgotten if nobody is in the slot.
fn known(kind: Kind, slot: u32, to: &Name) -> Rule {
    let client = Match::In(kind.client_key(), kind.clients(slot));
    rule(vec![client], vec![Action::Jump(to.clone())])
}

/// A client whose endpoint has gone is forgotten, or it would be drawn to whoever gets the slot next.
fn forget(kind: Kind, slot: u32) -> Rule {
    always(Action::Forget {
        key: kind.client_key(),
        set: kind.clients(slot),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, Shapes};
    use model::{DesiredNode, Family, Mark, NodePortTargets};
    use std::collections::BTreeMap;

    /// A map that is new to a chain is walked by the kernel; within one chain it is not.
    #[test]
    fn each_map_is_named_by_rules_of_one_chain_whatever_shapes_there_are() {
        let bound = |slots| Bound::of(slots).expect("some");
        let choices = [
            Choice::Random(bound(3)),
            Choice::Sticky(bound(1), 600),
            Choice::Sticky(bound(5), 601),
            Choice::Hashed,
        ];
        let of_kind = |kind| choices.map(|choice| Shape { kind, choice });
        let shapes: Shapes = Kind::ALL.into_iter().flat_map(of_kind).collect();
        let node = DesiredNode {
            family: Family::V4,
            mark: Mark::default(),
            detector: None,
            node_ports: NodePortTargets::AllLocal,
            localhost_node_ports: false,
        };
        let frame = build::frame(&node, &shapes, &[]);
        let mut users: BTreeMap<&Name, BTreeSet<&Name>> = BTreeMap::new();
        for chain in &frame.chains {
            for action in chain.rules.iter().flat_map(|rule| &rule.actions) {
                if let Action::DnatTo(_, map) = action {
                    users.entry(map).or_default().insert(&chain.name);
                }
            }
        }
        let maps = frame.sets.iter().filter(|set| set.data == Data::Endpoint);
        assert_eq!(users.len(), maps.count());
        users.retain(|_, chains| chains.len() > 1);
        assert_eq!(users, BTreeMap::new());
    }
}
