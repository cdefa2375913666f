//! One family's table.

use super::encode::{self, Encoded};
use super::feature::{Feature, Lack};
use super::observe;
use super::refused::{self, NftCommitError};
use crate::nft::family;
use crate::socket::{Socket, SocketError};
use model::Family;
use netlink::nfnl::{Batch, OnlyNew};
use netlink::nft::{Change, SetChange};
use netlink::{EncodeError, Errno};
use nftables::ast::{Action, Chain, Frame, Name, Rule};
use nftables::diff::Operation;
use nftables::names::TABLE;
use nftables::step::{FrameStep, Observation, Reading, Step};
use std::collections::BTreeMap;

/// How many sets and chains a batch makes, when there are more: some 300 bytes each.
const MOST_OBJECTS: usize = 1_000;

/// The kernel's table of one family.
pub struct NftTable {
    pub(super) socket: Socket,
    pub(super) family: Family,
}

impl NftTable {
    /// A socket for one family's table in this network namespace.
    ///
    /// # Errors
    /// When there is no netlink.
    pub fn new(family: Family) -> Result<NftTable, SocketError> {
        Ok(NftTable {
            socket: Socket::netfilter()?,
            family,
        })
    }

    /// Carries out a step, in one batch. Of a large frame, sets and chains that nothing leads to yet are made in
    /// batches before it: thousands of them are more than a socket takes at once.
    ///
    /// # Errors
    /// When the kernel refuses it; nothing that packets meet has changed then. When its answer was lost, nobody knows.
    pub fn commit(&mut self, step: &Step) -> Result<(), NftCommitError> {
        let mut batch = self.socket.batch(None);
        let mut id = 0;
        for part in &step.frame {
            match part {
                FrameStep::Extend(frame) if frame.sets.len() + frame.chains.len() > MOST_OBJECTS => {
                    let (leaves, rest) = parted(frame);
                    self.make_ahead(&leaves)?;
                    self.extend(&mut batch, &rest, &mut id)?;
                }
                part => self.frame(&mut batch, part, &mut id)?,
            }
        }
        self.elements(&mut batch, &step.elements)?;
        self.carry_out(batch)
    }

    /// Makes sets, and chains that nothing leads to. Twice is as good as once.
    fn make_ahead(&mut self, leaves: &Frame) -> Result<(), NftCommitError> {
        for sets in leaves.sets.chunks(MOST_OBJECTS) {
            let mut batch = self.socket.batch(None);
            for set in sets {
                encode::set(&mut batch, self.family, set)?;
            }
            self.carry_out(batch)?;
        }
        for chains in leaves.chains.chunks(MOST_OBJECTS) {
            let mut batch = self.socket.batch(None);
            self.rewrite(&mut batch, chains, &mut 0)?;
            self.carry_out(batch)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, batch: Batch) -> Result<(), NftCommitError> {
        let Some(batch) = batch.finish() else {
            return Ok(());
        };
        self.socket.carry_out(&batch).map_err(|error| {
            let refused = refused::of(self.family, &batch, &error);
            NftCommitError { refused, error }
        })
    }

    /// How many elements a batch may have so that the socket takes it, whatever they are. In a user namespace that is
    /// not allowed to have large buffers it is fewer than elsewhere.
    pub fn room(&self) -> usize {
        /// An element of IPv6 with the longest comment.
        const MOST_BYTES: usize = 210;
        self.socket.room() / MOST_BYTES
    }

    /// What the table takes that this kernel lacks, each asked for in a batch that is not committed. Modules are loaded
    /// by the way, conntrack's among them.
    ///
    /// # Errors
    /// When the kernel does not answer, or may not be asked.
    pub fn lacks(&mut self) -> Result<Vec<Lack>, SocketError> {
        let mut lacks = Vec::new();
        for feature in Feature::ALL {
            // Without tables there is nothing else either.
            if matches!(
                lacks.as_slice(),
                [Lack {
                    feature: Feature::Table,
                    ..
                }]
            ) {
                break;
            }
            let mut batch = self.socket.batch(None);
            let frame = feature.frame(self.family);
            self.table(&mut batch)?;
            self.extend(&mut batch, &frame, &mut 0)?;
            match self.socket.rehearse(batch) {
                Ok(()) => {}
                Err(SocketError::Refused(error)) if error.errno != Errno::EPERM => lacks.push(Lack {
                    feature,
                    family: self.family,
                    said: error.errno.to_string(),
                }),
                Err(error) => return Err(error),
            }
        }
        Ok(lacks)
    }

    /// Reads back what is asked for.
    ///
    /// # Errors
    /// When the kernel does not answer, or its answer makes no sense.
    pub fn observe(&mut self, reading: &Reading) -> Result<Observation, SocketError> {
        observe::observe(&mut self.socket, self.family, reading)
    }

    fn frame(&self, batch: &mut Batch, step: &FrameStep, id: &mut u32) -> Result<(), EncodeError> {
        match step {
            FrameStep::Make(frame) => {
                batch.push(&OnlyNew(self.new_table()))?;
                self.extend(batch, frame, id)
            }
            FrameStep::MakeAnew(frame) => {
                self.table(batch)?;
                batch.push(&Change::DeleteTable {
                    family: family(self.family),
                    name: TABLE,
                })?;
                self.table(batch)?;
                self.extend(batch, frame, id)
            }
            FrameStep::Extend(frame) => self.extend(batch, frame, id),
            FrameStep::Rewrite(chains) => self.rewrite(batch, chains, id),
            FrameStep::DeleteChains(names) => self.delete_chains(batch, names),
            FrameStep::DeleteSets(names) => {
                for name in names {
                    batch.push(&SetChange::Delete {
                        family: family(self.family),
                        table: TABLE,
                        set: name.as_str(),
                    })?;
                }
                Ok(())
            }
        }
    }

    /// Makes the table, or finds it there.
    fn table(&self, batch: &mut Batch) -> Result<(), EncodeError> {
        batch.push(&self.new_table())?;
        Ok(())
    }

    fn new_table(&self) -> Change<'static> {
        Change::NewTable {
            family: family(self.family),
            name: TABLE,
            flags: 0,
        }
    }

    /// All chains come before all rules, since rules name chains.
    fn extend(&self, batch: &mut Batch, frame: &Frame, id: &mut u32) -> Result<(), EncodeError> {
        for set in &frame.sets {
            encode::set(batch, self.family, set)?;
        }
        for chain in &frame.chains {
            encode::chain(batch, self.family, chain)?;
        }
        self.rules(batch, &frame.chains, id)
    }

    fn rules(&self, batch: &mut Batch, chains: &[Chain], id: &mut u32) -> Result<(), EncodeError> {
        for chain in chains {
            for rule in &chain.rules {
                encode::rule(batch, self.family, &chain.name, rule, id)?;
            }
        }
        Ok(())
    }

    fn rewrite(&self, batch: &mut Batch, chains: &[Chain], id: &mut u32) -> Result<(), EncodeError> {
        for chain in chains {
            encode::chain(batch, self.family, chain)?;
            self.flush(batch, &chain.name)?;
        }
        self.rules(batch, chains, id)
    }

    fn delete_chains(&self, batch: &mut Batch, names: &[Name]) -> Result<(), EncodeError> {
        for name in names {
            self.flush(batch, name)?;
        }
        for name in names {
            batch.push(&Change::DeleteChain {
                family: family(self.family),
                table: TABLE,
                name: name.as_str(),
            })?;
        }
        Ok(())
    }

    fn flush(&self, batch: &mut Batch, chain: &Name) -> Result<(), EncodeError> {
        batch.push(&Change::FlushChain {
            family: family(self.family),
            table: TABLE,
            chain: chain.as_str(),
        })?;
        Ok(())
    }

    /// What goes is taken out before anything is put in, so that one element can take another's place.
    fn elements(&self, batch: &mut Batch, operations: &[Operation]) -> Result<(), EncodeError> {
        let mut removed: BTreeMap<&Name, Vec<Encoded>> = BTreeMap::new();
        let mut added: BTreeMap<&Name, Vec<Encoded>> = BTreeMap::new();
        for operation in operations {
            let (key, old, new) = match operation {
                Operation::Add(key, new) => (key, None, Some(new)),
                Operation::Replace(key, old, new) => (key, Some(old), Some(new)),
                Operation::Delete(key, old) => (key, Some(old), None),
            };
            if let Some(old) = old {
                removed.entry(&key.set).or_default().push(Encoded::of(key, old));
            }
            if let Some(new) = new {
                added.entry(&key.set).or_default().push(Encoded::of(key, new));
            }
        }
        for (set, elements) in &removed {
            encode::remove(batch, self.family, set, elements)?;
        }
        for (set, elements) in &added {
            encode::add(batch, self.family, set, elements)?;
        }
        Ok(())
    }
}

/// What can be made before anything leads there, and the rest: the sets and the chains that lead nowhere themselves.
fn parted(frame: &Frame) -> (Frame, Frame) {
    let leads_on = |chain: &Chain| chain.base.is_some() || chain.rules.iter().any(leads_on);
    let (rest, leaves) = frame.chains.iter().cloned().partition(leads_on);
    let of = |sets, chains| Frame {
        family: frame.family,
        sets,
        chains,
    };
    (of(frame.sets.clone(), leaves), of(Vec::new(), rest))
}

fn leads_on(rule: &Rule) -> bool {
    rule.actions.iter().any(|action| {
        matches!(
            action,
            Action::Jump(_) | Action::Goto(_) | Action::JumpRandom(_) | Action::JumpHashed(_)
        )
    })
}
