//! How many rules the kernel is believed to hold of ours, kept up to date as services are settled.

use super::compact::Place;
use super::have::{Holding, ServiceHave};
use crate::ast::TableName;
use model::ServiceName;
use std::collections::BTreeMap;
use std::ops::Deref;

/// The rules that upstream counts as its own: those in our chains, and the one that is put into the kubelet's. Jumps in
/// built-in chains are not among them, nor is what no service has claimed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// In the filter table.
    pub filter: usize,
    /// In the nat table.
    pub nat: usize,
}

impl RuleCount {
    pub(super) fn add(&mut self, other: RuleCount) {
        self.filter += other.filter;
        self.nat += other.nat;
    }

    fn take(&mut self, other: RuleCount) {
        self.filter -= other.filter;
        self.nat -= other.nat;
    }

    fn of(have: &ServiceHave) -> RuleCount {
        let ServiceHave::Known(Holding { chains, dispatch }) = have else {
            return RuleCount::default();
        };
        let nat = |place: Place| place.table() == TableName::Nat;
        let in_nat = dispatch.iter().filter(|rule| nat(rule.place)).count();
        RuleCount {
            filter: dispatch.len() - in_nat,
            nat: in_nat + chains.iter().map(|(_, digest)| digest.rules()).sum::<usize>(),
        }
    }

    fn of_all(services: &BTreeMap<ServiceName, ServiceHave>) -> RuleCount {
        let mut count = RuleCount::default();
        for have in services.values() {
            count.add(RuleCount::of(have));
        }
        count
    }
}

/// What is believed of each service, and the number of its rules. Unknown services count as none until they are read.
#[derive(Clone, Debug, Default)]
pub(super) struct Services {
    known: BTreeMap<ServiceName, ServiceHave>,
    rules: RuleCount,
}

impl Services {
    pub(super) fn new(known: BTreeMap<ServiceName, ServiceHave>) -> Services {
        let rules = RuleCount::of_all(&known);
        Services { known, rules }
    }

    pub(super) fn insert(&mut self, name: ServiceName, have: ServiceHave) {
        self.rules.add(RuleCount::of(&have));
        if let Some(before) = self.known.insert(name, have) {
            self.rules.take(RuleCount::of(&before));
        }
    }

    pub(super) fn remove(&mut self, name: &ServiceName) {
        if let Some(before) = self.known.remove(name) {
            self.rules.take(RuleCount::of(&before));
        }
    }

    /// Changes whatever it likes; everything is counted anew afterwards. For what goes through all services anyway.
    pub(super) fn edit<T>(&mut self, edit: impl FnOnce(&mut BTreeMap<ServiceName, ServiceHave>) -> T) -> T {
        let result = edit(&mut self.known);
        self.rules = RuleCount::of_all(&self.known);
        result
    }

    pub(super) fn rules(&self) -> RuleCount {
        self.rules
    }

    pub(super) fn into_known(self) -> BTreeMap<ServiceName, ServiceHave> {
        self.known
    }
}

impl Deref for Services {
    type Target = BTreeMap<ServiceName, ServiceHave>;

    fn deref(&self) -> &Self::Target {
        &self.known
    }
}
