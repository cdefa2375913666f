//! What a run has still to do, in the order in which it is done.

use model::ServiceName;
use std::collections::{BTreeMap, BTreeSet};

/// A thing to settle.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// The node's part.
    Node,
    /// A service, there or gone.
    Service(ServiceName),
    /// What nobody wants.
    Sweep,
}

impl Item {
    /// When it comes once it changed.
    pub fn rank(&self) -> Rank {
        match self {
            Item::Node => Rank::Node,
            Item::Service(_) => Rank::Changed,
            Item::Sweep => Rank::Sweep,
        }
    }

    /// The service, if it is one.
    pub fn service(&self) -> Option<&ServiceName> {
        match self {
            Item::Service(name) => Some(name),
            Item::Node | Item::Sweep => None,
        }
    }
}

/// When an item comes, seen from the others of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// The node's part: without the jumps nothing works.
    Node,
    /// What everything else in a cluster needs: `default/kubernetes` and DNS.
    First,
    /// Services that changed.
    Changed,
    /// Services that are written for the first time, or compared.
    Rest,
    /// What nobody wants, which is known when all others are settled.
    Sweep,
}

/// The items of a run, each once.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    order: BTreeSet<(Rank, Item)>,
    ranks: BTreeMap<Item, Rank>,
}

impl Queue {
    /// Adds an item, or moves it forward when it is there with a later rank.
    pub fn push(&mut self, rank: Rank, item: Item) {
        if let Some(known) = self.ranks.get(&item) {
            if *known <= rank {
                return;
            }
            self.order.remove(&(*known, item.clone()));
        }
        self.ranks.insert(item.clone(), rank);
        self.order.insert((rank, item));
    }

    /// The item that comes first.
    pub fn first(&self) -> Option<&Item> {
        self.order.first().map(|(_, item)| item)
    }

    /// Takes the item that comes first, and says when it came.
    pub fn pop(&mut self) -> Option<(Rank, Item)> {
        let (rank, item) = self.order.pop_first()?;
        self.ranks.remove(&item);
        Some((rank, item))
    }

    /// Whether there is nothing left to do.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many items are left.
    pub fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> Item {
        Item::Service(ServiceName::new("ns", name))
    }

    #[test]
    fn items_come_by_rank_and_then_by_name() {
        let mut queue = Queue::default();
        queue.push(Rank::Sweep, Item::Sweep);
        queue.push(Rank::Rest, service("a"));
        queue.push(Rank::Changed, service("z"));
        queue.push(Rank::First, service("dns"));
        queue.push(Rank::Node, Item::Node);
        let order: Vec<Item> = std::iter::from_fn(|| queue.pop()).map(|(_, item)| item).collect();
        assert_eq!(
            order,
            [
                Item::Node,
                service("dns"),
                service("z"),
                service("a"),
                Item::Sweep
            ]
        );
    }

    #[test]
    fn an_item_is_there_once_at_its_best_rank() {
        let mut queue = Queue::default();
        queue.push(Rank::Rest, service("a"));
        queue.push(Rank::Changed, service("a"));
        queue.push(Rank::Rest, service("a"));
        assert_eq!(queue.len(), 1);
        queue.push(Rank::Rest, service("0"));
        assert_eq!(queue.pop(), Some((Rank::Changed, service("a"))));
        assert_eq!(queue.pop(), Some((Rank::Rest, service("0"))));
    }
}
