//! What somebody else did to the table.

use super::{Need, NftLoop};
use crate::disturbance::Merge;
use crate::event::{Report, RunKind};
use crate::fault::Fault;
use crate::queue::{Item, Rank};
use crate::world::World;
use iptables::diff::harm::Harm;
use nftables::ast::{Element, ElementKey};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What somebody else did to one family's table, as the kernel told it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Elements, and what is there now.
    pub elements: BTreeMap<ElementKey, Option<Element>>,
    /// What else.
    pub extent: ForeignExtent,
    /// Who was the last to do so, as far as the kernel tells.
    pub by: Option<Arc<str>>,
}

/// How much has to be read back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForeignExtent {
    /// Nothing: the elements are told.
    #[default]
    Told,
    /// Chains and sets.
    Frame,
    /// Everything: more was done than could be told.
    Everything,
    /// The table has gone, and nobody is served. Everything is read, since it may be there again.
    Gone,
}

impl Foreign {
    /// Anything may have happened.
    pub fn everything(by: Option<Arc<str>>) -> Foreign {
        Foreign {
            elements: BTreeMap::new(),
            extent: ForeignExtent::Everything,
            by,
        }
    }
}

impl Merge for Foreign {
    fn merge(&mut self, other: Foreign) {
        self.elements.extend(other.elements);
        self.extent = self.extent.max(other.extent);
        if other.by.is_some() {
            self.by = other.by;
        }
    }
}

impl NftLoop {
    /// Believes what was told, has the rest read, and settles whoever is concerned.
    pub(super) fn look_at_foreign(&mut self, world: &World, now: Duration) {
        let mut foreign = self.disturbed.take(now);
        if self.frame.is_none() && self.runs.last_full().is_none() {
            // Nothing is known yet that could have been harmed, and everything is read first.
            return;
        }
        match foreign.extent {
            ForeignExtent::Frame if self.need != Need::Everything => self.need = Need::Frame,
            ForeignExtent::Told | ForeignExtent::Frame => {}
            ForeignExtent::Everything | ForeignExtent::Gone => self.need = Need::Everything,
        }
        if self.need == Need::Everything {
            // What is told is in what is read, and whoever did it is named then.
        } else if !self.seeded.has(Fault::NftToldForgotten) {
            foreign = self.put_back_told(world, foreign, now);
            self.put_right(&foreign, now);
        }
        self.looking = self.need != Need::Nothing;
        if !self.looking {
            self.disturbed.looked(now);
        }
        if self.need == Need::Frame && self.seeded.has(Fault::NftFrameForgotten) {
            self.need = Need::Nothing;
        }
        self.suspect = foreign.by;
    }

    /// Settles whoever lost by what was told.
    fn put_right(&mut self, foreign: &Foreign, now: Duration) {
        let told = foreign
            .elements
            .iter()
            .map(|(key, element)| (key, element.as_ref()));
        let corrected = self.held.correct(told);
        if corrected.strays > 0 {
            self.strays_since = Some(now);
        }
        if corrected.is_empty() {
            return;
        }
        let mut harm = Harm::default();
        for (name, key) in &corrected.services {
            let is_there = foreign.elements.get(key).is_some_and(Option::is_some);
            let what = if is_there { "changed" } else { "missing" };
            harm.add(|| format!("an element of {} for {name} {what}", key.set));
        }
        for key in &corrected.node {
            harm.add(|| format!("an element of {} missing", key.set));
            self.runs.queue.push(Rank::Node, Item::Node);
        }
        let harmed = corrected.services.len() + corrected.node.len();
        for name in corrected.services.into_keys() {
            self.runs.queue.push(Rank::Changed, Item::Service(name));
        }
        self.runs.begin(now, RunKind::Changes);
        self.damaged(harmed, harm, foreign.by.clone(), now);
    }

    pub(super) fn damaged(&mut self, services: usize, what: Harm, by: Option<Arc<str>>, now: Duration) {
        let backing_off = self.disturbed.repaired(now, self.config.sync_period);
        self.reports.push(Report::Damaged {
            family: self.family,
            services,
            what,
            by,
            backing_off,
        });
    }
}
