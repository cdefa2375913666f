//! What somebody else's commits did to the tables of nftables mode.

use crate::commit_watch::{CommitWatch, Touches};
use crate::nft;
use model::{Family, PerFamily};
use netlink::nft::{ElementData, Elements, Message};
use nftables::ast::{Element, ElementKey, Name};
use nftables::names::{self, Role, TABLE};
use nftables::wire;
use std::collections::BTreeMap;

/// More elements than this in one commit are not told one by one: 20 MiB of them. It is more than a set has at 40,000
/// services, and reading everything there takes seconds.
const MOST_ELEMENTS: usize = 100_000;

/// What a commit did to one family's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableTouched {
    /// Elements of sets of ours, and what is there now.
    pub elements: BTreeMap<ElementKey, Option<Element>>,
    /// What else.
    pub extent: TouchedExtent,
}

/// How much of a table may be other than it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TouchedExtent {
    /// The elements that are told.
    #[default]
    Elements,
    /// Chains, rules or sets.
    Frame,
    /// All of it.
    Everything,
    /// The table went.
    Gone,
}

impl TableTouched {
    /// Whether it did nothing to it.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty() && self.extent == TouchedExtent::Elements
    }
}

/// Tells of others' commits to our tables in this network namespace.
pub type TableWatch = CommitWatch<PerFamily<TableTouched>>;

impl Touches for PerFamily<TableTouched> {
    type Told = PerFamily<TableTouched>;

    fn note(&mut self, message: &Message<'_>) {
        note(self, message);
    }

    fn end(self) -> Option<PerFamily<TableTouched>> {
        (!self.v4.is_empty() || !self.v6.is_empty()).then_some(self)
    }
}

fn note(open: &mut PerFamily<TableTouched>, message: &Message<'_>) {
    let (family, table, extent) = match message {
        Message::NewElements(elements) => return note_elements(open, elements, true),
        Message::DeletedElements(elements) => return note_elements(open, elements, false),
        Message::DeletedTable(table) => (table.family, table.name, TouchedExtent::Gone),
        Message::NewTable(table) => (table.family, table.name, TouchedExtent::Frame),
        Message::NewChain(chain) | Message::DeletedChain(chain) => {
            (chain.family, chain.table, TouchedExtent::Frame)
        }
        Message::NewRule(rule) | Message::DeletedRule(rule) => {
            (rule.family, rule.table, TouchedExtent::Frame)
        }
        Message::NewSet(set) | Message::DeletedSet(set) => (set.family, set.table, TouchedExtent::Frame),
        _ => return,
    };
    if let Some(family) = ours_of(family, table) {
        let touched = open.get_mut(family);
        touched.extent = touched.extent.max(extent);
    }
}

fn ours_of(family: netlink::nfnl::Family, table: &str) -> Option<Family> {
    let family = Family::ALL.into_iter().find(|ours| nft::family(*ours) == family);
    family.filter(|_| table == TABLE)
}

fn note_elements(open: &mut PerFamily<TableTouched>, elements: &Elements<'_>, there: bool) {
    let Some(family) = ours_of(elements.family, elements.table) else {
        return;
    };
    let form = names::form_of(elements.set);
    let Some(form) = form.filter(|form| !matches!(form.role, Role::Clients(_))) else {
        return;
    };
    let touched = open.get_mut(family);
    for element in &elements.elements {
        let Some(key) = wire::read_key(form.key, family, element.key, element.key_end) else {
            touched.extent = TouchedExtent::Everything;
            continue;
        };
        let key = ElementKey {
            set: Name::new(elements.set),
            key: key.into(),
        };
        let endpoint = match element.data {
            Some(ElementData::Value(bytes)) => wire::read_endpoint(bytes),
            _ => None,
        };
        let now = there.then_some(Element {
            endpoint,
            comment: None,
        });
        touched.elements.insert(key, now);
    }
    if touched.elements.len() > MOST_ELEMENTS {
        touched.elements.clear();
        touched.extent = TouchedExtent::Everything;
    }
}
