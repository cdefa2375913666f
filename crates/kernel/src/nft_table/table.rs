//! One family's table.

use super::encode::{self, Encoded};
use super::feature::{Feature, Lack};
use super::observe;
use super::refused::{self, NftCommitError};
use crate::nft::family;
use crate::socket::{Socket, SocketError};
use model::Family;
use netlink::nfnl::{Batch, BatchBytes, OnlyNew};
use netlink::nft::{Change, SetChange};
use netlink::{EncodeError, Errno};
use nftables::ast::{Chain, Frame, Name};
use nftables::diff::Operation;
use nftables::names::{self, TABLE};
use nftables::parts::parts_of;
use nftables::step::{FrameStep, Observation, Reading, Step};
use std::collections::BTreeMap;

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

    /// Carries out a step, in one batch. If that is more than the socket takes, in several, each as long as may be
    /// ([`parts_of`]): thousands of slots come at once.
    ///
    /// # Errors
    /// When the kernel refuses it; what was carried out before is harmless then. When its answer was lost, nobody knows.
    pub fn commit(&mut self, step: &Step) -> Result<(), NftCommitError> {
        let mut whole = self.socket.batch(None);
        self.put(&mut whole, step, &mut 0)?;
        if self.fits(whole.byte_count()) {
            return whole.finish().map_or(Ok(()), |whole| self.carry_out(&whole));
        }
        drop(whole);
        self.carry_out_in_parts(&parts_of(step))
    }

    fn carry_out_in_parts(&mut self, parts: &[Step]) -> Result<(), NftCommitError> {
        let mut batch = self.socket.batch(None);
        let mut id = 0;
        for part in parts {
            let mut alone = self.socket.batch(None);
            self.put(&mut alone, part, &mut 0)?;
            if !self.fits(batch.byte_count() + alone.byte_count()) {
                let full = std::mem::replace(&mut batch, self.socket.batch(None));
                full.finish().map_or(Ok(()), |full| self.carry_out(&full))?;
            }
            self.put(&mut batch, part, &mut id)?;
        }
        batch.finish().map_or(Ok(()), |last| self.carry_out(&last))
    }

    /// Whether the socket takes so many bytes in one batch, and what ends it.
    fn fits(&self, bytes: usize) -> bool {
        const END: usize = 64;
        bytes + END <= self.socket.room()
    }

    fn put(&self, batch: &mut Batch, step: &Step, id: &mut u32) -> Result<(), EncodeError> {
        for part in &step.frame {
            self.frame(batch, part, id)?;
        }
        self.elements(batch, &step.elements)
    }

    fn carry_out(&mut self, batch: &BatchBytes) -> Result<(), NftCommitError> {
        self.socket.carry_out(batch).map_err(|error| {
            let refused = refused::of(self.family, batch, &error);
            NftCommitError { refused, error }
        })
    }

    /// Has the socket take so many bytes at most, as where large buffers are not allowed.
    ///
    /// # Errors
    /// When the socket does not take the setting.
    pub fn narrow(&mut self, bytes: usize) -> Result<(), SocketError> {
        self.socket.narrow(bytes)
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
            FrameStep::Append(chain) => self.rules(batch, std::slice::from_ref(chain), id),
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

    fn extend(&self, batch: &mut Batch, frame: &Frame, id: &mut u32) -> Result<(), EncodeError> {
        for set in &frame.sets {
            encode::set(batch, self.family, set)?;
        }
        self.chains(batch, &frame.chains, id)
    }

    /// All chains come before all rules, since rules name chains. What a step that failed has left in a chain below lists
    /// goes.
    fn chains(&self, batch: &mut Batch, chains: &[Chain], id: &mut u32) -> Result<(), EncodeError> {
        for chain in chains {
            encode::chain(batch, self.family, chain)?;
            if names::is_below_lists(&chain.name) {
                self.flush(batch, &chain.name)?;
            }
        }
        self.rules(batch, chains, id)
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
