//! Tables of nftables mode in memory, which refuse what the kernel refuses.

use model::{Family, PerFamily};
use netlink::Errno;
use nftables::ast::{Action, Base, Chain, Element, ElementKey, Match, Name, Rule, Set};
use nftables::diff::Operation;
use nftables::names::{self, Role};
use nftables::parts::{parts_of, size_of};
use nftables::pool::Pool;
use nftables::step::{FrameStep, Observation, Reading, Seen, SeenChain, SeenFrame, SeenSet, Step};
use std::collections::{BTreeMap, BTreeSet};

/// One family's table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeTable {
    /// Sets.
    pub sets: BTreeMap<Name, Set>,
    /// Chains.
    pub chains: BTreeMap<Name, FakeChain>,
    /// Elements.
    pub elements: BTreeMap<ElementKey, Element>,
}

/// A chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FakeChain {
    /// Where packets enter it.
    pub base: Option<Base>,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// Why a step is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the kernel would say.
    pub errno: Errno,
    /// About what.
    pub about: String,
    /// The element that it is about, if it is one.
    pub element: Option<ElementKey>,
}

fn refuse<T>(errno: Errno, about: impl std::fmt::Display) -> Result<T, Refusal> {
    Err(Refusal {
        errno,
        about: format!("{about}"),
        element: None,
    })
}

fn refuse_element<T>(errno: Errno, key: &ElementKey) -> Result<T, Refusal> {
    Err(Refusal {
        errno,
        about: format!("{key:?}"),
        element: Some(key.clone()),
    })
}

/// What is told of each commit: the family, and its table before and after.
pub type TableWitness = Box<dyn FnMut(Family, Option<&FakeTable>, &FakeTable) + Send>;

/// A kernel with tables of nftables mode.
#[derive(Default)]
pub struct FakeTables {
    tables: PerFamily<Option<FakeTable>>,
    witness: Option<TableWitness>,
    /// Refuses so many of the next steps, whatever is in them.
    pub refuse_next: u32,
    /// Carries out so many of the next steps, and does not say so.
    pub lose_answers: u32,
    /// Elements under these keys are refused, by their first value that an element has in common with one of them.
    pub poisoned: BTreeSet<ElementKey>,
    /// Carries out longer steps in parts ([`size_of`]).
    pub room: Option<usize>,
    /// Steps that were carried out, or parts of them.
    pub committed: Vec<(Family, Step)>,
}

impl FakeTables {
    /// Has every commit seen.
    pub fn watch(&mut self, witness: TableWitness) {
        self.witness = Some(witness);
    }

    /// A family's table.
    pub fn table(&self, family: Family) -> Option<&FakeTable> {
        self.tables.get(family).as_ref()
    }

    /// A family's table, for somebody else to change.
    pub fn table_mut(&mut self, family: Family) -> &mut Option<FakeTable> {
        self.tables.get_mut(family)
    }

    /// Carries out a step, or nothing of it; if there is not enough room, of what is left of it after a part is refused.
    ///
    /// # Errors
    /// What the kernel would refuse.
    pub fn commit(&mut self, family: Family, step: &Step) -> Result<(), Refusal> {
        if self.room.is_none_or(|room| size_of(step) <= room) {
            return self.commit_whole(family, step);
        }
        for part in parts_of(step) {
            self.commit_whole(family, &part)?;
        }
        Ok(())
    }

    fn commit_whole(&mut self, family: Family, step: &Step) -> Result<(), Refusal> {
        if self.refuse_next > 0 {
            self.refuse_next -= 1;
            return refuse(Errno::EINVAL, "as it was asked to");
        }
        let before = self.tables.get(family).clone();
        let mut table = before.clone();
        for part in &step.frame {
            change_frame(&mut table, part)?;
        }
        let Some(mut table) = table else {
            return refuse(Errno::ENOENT, "the table");
        };
        self.change_elements(&mut table, &step.elements)?;
        table.check()?;
        if let Some(witness) = &mut self.witness {
            witness(family, before.as_ref(), &table);
        }
        *self.tables.get_mut(family) = Some(table);
        self.committed.push((family, step.clone()));
        if self.lose_answers > 0 {
            self.lose_answers -= 1;
            return refuse(Errno::ENOBUFS, "an answer that was lost");
        }
        Ok(())
    }

    fn change_elements(&self, table: &mut FakeTable, operations: &[Operation]) -> Result<(), Refusal> {
        for operation in operations {
            let (Operation::Delete(key, _) | Operation::Replace(key, ..)) = operation else {
                continue;
            };
            if table.elements.remove(key).is_none() {
                return refuse_element(Errno::ENOENT, key);
            }
        }
        for operation in operations {
            let (Operation::Add(key, element) | Operation::Replace(key, _, element)) = operation else {
                continue;
            };
            if !table.sets.contains_key(&key.set) {
                return refuse(Errno::ENOENT, &key.set);
            }
            if self.poisoned.contains(key) {
                return refuse_element(Errno::EINVAL, key);
            }
            let known = table.elements.insert(key.clone(), element.clone());
            if known.is_some_and(|known| known.endpoint != element.endpoint) {
                return refuse_element(Errno::EEXIST, key);
            }
        }
        Ok(())
    }

    /// Reads back.
    pub fn observe(&self, family: Family, reading: &Reading) -> Observation {
        let table = self.tables.get(family).as_ref();
        match reading {
            Reading::Everything => Observation::Everything(table.map(|table| Seen {
                frame: table.frame(),
                elements: table.pool(),
            })),
            Reading::Frame => Observation::Frame(table.map(FakeTable::frame)),
            Reading::Elements(keys) => {
                let read = |key: &ElementKey| table.and_then(|table| table.elements.get(key)).cloned();
                Observation::Elements(keys.iter().map(|key| (key.clone(), read(key))).collect())
            }
        }
    }
}

/// Chains may lead into each other as deep as this (`NFT_JUMP_STACK_SIZE` counts the base chain); deeper is `EMLINK`.
const DEEPEST: usize = 15;

fn change_frame(table: &mut Option<FakeTable>, step: &FrameStep) -> Result<(), Refusal> {
    if matches!(step, FrameStep::Make(_)) && table.is_some() {
        return refuse(Errno::EEXIST, "the table");
    }
    if let FrameStep::Make(frame) | FrameStep::MakeAnew(frame) = step {
        *table = Some(FakeTable::default());
        return change_frame(table, &FrameStep::Extend(frame.clone()));
    }
    let Some(table) = table else {
        return refuse(Errno::ENOENT, "the table");
    };
    match step {
        FrameStep::Make(_) | FrameStep::MakeAnew(_) => {}
        FrameStep::Extend(frame) => {
            for set in &frame.sets {
                let known = table.sets.entry(set.name.clone()).or_insert_with(|| set.clone());
                if (known.key, known.data, known.flags) != (set.key, set.data, set.flags) {
                    return refuse(Errno::EEXIST, &set.name);
                }
            }
            for chain in &frame.chains {
                let known = made(table, chain);
                if known.base != chain.base {
                    return refuse(Errno::EEXIST, &chain.name);
                }
                if names::is_below_lists(&chain.name) {
                    known.rules.clear();
                }
                known.rules.extend(chain.rules.iter().cloned());
            }
        }
        FrameStep::Append(chain) => {
            let Some(known) = table.chains.get_mut(&chain.name) else {
                return refuse(Errno::ENOENT, &chain.name);
            };
            known.rules.extend(chain.rules.iter().cloned());
        }
        FrameStep::Rewrite(chains) => {
            for chain in chains {
                let known = made(table, chain);
                known.rules.clone_from(&chain.rules);
            }
        }
        FrameStep::DeleteChains(names) => delete_chains(table, names)?,
        FrameStep::DeleteSets(names) => delete_sets(table, names)?,
    }
    Ok(())
}

/// A chain that was there or is there now.
fn made<'a>(table: &'a mut FakeTable, chain: &Chain) -> &'a mut FakeChain {
    let empty = || FakeChain {
        base: chain.base,
        rules: Vec::new(),
    };
    table.chains.entry(chain.name.clone()).or_insert_with(empty)
}

fn delete_chains(table: &mut FakeTable, names: &[Name]) -> Result<(), Refusal> {
    for name in names {
        let leads = |rule: &Rule| names_in(rule).0.contains(&name);
        let mut others = table.chains.iter().filter(|(other, _)| !names.contains(other));
        if others.any(|(_, chain)| chain.rules.iter().any(leads)) {
            return refuse(Errno::EBUSY, name);
        }
    }
    for name in names {
        if table.chains.remove(name).is_none() {
            return refuse(Errno::ENOENT, name);
        }
    }
    Ok(())
}

fn delete_sets(table: &mut FakeTable, names: &[Name]) -> Result<(), Refusal> {
    for name in names {
        let uses = |rule: &Rule| names_in(rule).1.contains(&name);
        if table.chains.values().any(|chain| chain.rules.iter().any(uses)) {
            return refuse(Errno::EBUSY, name);
        }
        if table.sets.remove(name).is_none() {
            return refuse(Errno::ENOENT, name);
        }
        table.elements.retain(|key, _| key.set != *name);
    }
    Ok(())
}

impl FakeTable {
    /// Every rule leads somewhere and looks into a set that there is.
    fn check(&self) -> Result<(), Refusal> {
        for (name, chain) in &self.chains {
            for rule in &chain.rules {
                let (chains, sets) = names_in(rule);
                if let Some(missing) = chains.iter().find(|chain| !self.chains.contains_key(chain)) {
                    return refuse(Errno::ENOENT, format!("chain {missing} in {name}"));
                }
                if let Some(missing) = sets.iter().find(|set| !self.sets.contains_key(set)) {
                    return refuse(Errno::ENOENT, format!("set {missing} in {name}"));
                }
            }
        }
        let mut known = BTreeMap::new();
        for (name, _) in self.chains.iter().filter(|(_, chain)| chain.base.is_some()) {
            if self.depth_below(name, DEEPEST, &mut known).is_none() {
                return refuse(Errno(31), format!("chain {name}: too many links"));
            }
        }
        Ok(())
    }

    /// How deep chains lead into each other from this one; `None` for deeper than `most`.
    fn depth_below<'a>(
        &'a self,
        name: &'a Name,
        most: usize,
        known: &mut BTreeMap<&'a Name, usize>,
    ) -> Option<usize> {
        if let Some(depth) = known.get(name) {
            return (*depth <= most).then_some(*depth);
        }
        let rules = self.chains.get(name).map_or(&[][..], |chain| &chain.rules);
        let mut depth = 0;
        for next in rules.iter().flat_map(|rule| names_in(rule).0) {
            depth = depth.max(1 + self.depth_below(next, most.checked_sub(1)?, known)?);
        }
        known.insert(name, depth);
        Some(depth)
    }

    fn frame(&self) -> SeenFrame {
        let seen = |name: &Name| {
            if names::form_of(name.as_str()).is_some() {
                SeenSet::Ours
            } else {
                SeenSet::Strange
            }
        };
        let chain = |chain: &FakeChain| SeenChain {
            base: chain.base,
            rules: chain.rules.iter().cloned().map(Some).collect(),
        };
        SeenFrame {
            sets: self.sets.keys().map(|name| (name.clone(), seen(name))).collect(),
            chains: self
                .chains
                .iter()
                .map(|(name, of)| (name.clone(), chain(of)))
                .collect(),
        }
    }

    fn pool(&self) -> Pool {
        let mut pool = Pool::default();
        for (key, element) in &self.elements {
            let form = names::form_of(key.set.as_str());
            if form.is_some_and(|form| !matches!(form.role, Role::Clients(_))) {
                pool.put(key, Some(element));
            }
        }
        pool
    }
}

/// The chains and sets that a rule names.
fn names_in(rule: &Rule) -> (Vec<&Name>, Vec<&Name>) {
    let (mut chains, mut sets) = (Vec::new(), Vec::new());
    for part in &rule.matches {
        if let Match::In(_, set) | Match::NotIn(_, set) = part {
            sets.push(set);
        }
    }
    for action in &rule.actions {
        match action {
            Action::Jump(chain) | Action::Goto(chain) => chains.push(chain),
            Action::JumpRandom(all) | Action::JumpHashed(all) => chains.extend(all),
            Action::DnatTo(_, set) | Action::Remember { set, .. } | Action::Forget { set, .. } => {
                sets.push(set);
            }
            _ => {}
        }
    }
    (chains, sets)
}
