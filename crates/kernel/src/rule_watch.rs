//! Which chains of iptables somebody else's commits touched.

use crate::commit_watch::{CommitWatch, Touches};
use crate::nft;
use iptables::ast::{ChainName, TableName};
use model::Family;
use netlink::nft::{Chain, Message, Rule};
use std::collections::BTreeSet;

/// More chains than this in one commit are not told one by one.
const MOST_CHAINS: usize = 2000;

/// What happened in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touch {
    /// Rules were added, or the chain was made.
    Added,
    /// Rules or the chain were deleted.
    Deleted,
}

/// The chains that a commit touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    /// These, of the tables mangle, filter and nat.
    Chains(BTreeSet<(Family, TableName, ChainName, Touch)>),
    /// More than are worth telling, or a chain was renamed, of which only the new name is known.
    Many,
}

/// Tells of others' commits to iptables' tables in this network namespace, on `nf_tables`.
pub type RuleWatch = CommitWatch<OpenRules>;

/// The chains that a commit has touched so far.
#[derive(Debug, Default)]
pub struct OpenRules {
    touched: Touched,
    /// Chains that were told of as new and have rules or jumps to them, though none of those rules was new.
    renamed: BTreeSet<(Family, TableName, ChainName)>,
}

impl Touches for OpenRules {
    type Told = Touched;

    fn note(&mut self, message: &Message<'_>) {
        match message {
            Message::NewChain(chain) => self.chain(chain),
            Message::DeletedChain(chain) => {
                self.touched
                    .add(chain.family, chain.table, chain.name, Touch::Deleted);
            }
            Message::NewRule(rule) => self.rule(rule),
            Message::DeletedRule(rule) => {
                self.touched
                    .add(rule.family, rule.table, rule.chain, Touch::Deleted);
            }
            _ => {}
        }
    }

    /// The new name of a chain is all that the kernel tells, and it may be one of ours that got it.
    fn end(self) -> Option<Touched> {
        if !self.renamed.is_empty() {
            return Some(Touched::Many);
        }
        Some(self.touched).filter(|touched| !touched.is_empty())
    }
}

impl OpenRules {
    fn chain(&mut self, chain: &Chain<'_>) {
        self.touched
            .add(chain.family, chain.table, chain.name, Touch::Added);
        if chain.base.is_none()
            && chain.use_count > 0
            && let Some(place) = place(chain.family, chain.table, chain.name)
        {
            self.renamed.insert(place);
        }
    }

    fn rule(&mut self, rule: &Rule<'_>) {
        self.touched
            .add(rule.family, rule.table, rule.chain, Touch::Added);
        if !self.renamed.is_empty()
            && let Some(place) = place(rule.family, rule.table, rule.chain)
        {
            self.renamed.remove(&place);
        }
    }
}

/// A chain that iptables can have made in one of its tables.
fn place(family: netlink::nfnl::Family, table: &str, chain: &str) -> Option<(Family, TableName, ChainName)> {
    let family = Family::ALL
        .into_iter()
        .find(|ours| nft::family(*ours) == family)?;
    let table = crate::OBSERVED_TABLES
        .into_iter()
        .find(|known| known.as_str() == table)?;
    Some((family, table, ChainName::new(chain).ok()?))
}

impl Default for Touched {
    fn default() -> Self {
        Touched::Chains(BTreeSet::new())
    }
}

impl Touched {
    fn is_empty(&self) -> bool {
        matches!(self, Touched::Chains(chains) if chains.is_empty())
    }

    fn add(&mut self, family: netlink::nfnl::Family, table: &str, chain: &str, touch: Touch) {
        let Touched::Chains(chains) = self else { return };
        // A name that iptables would not take is none of its chains'.
        let Some((family, table, chain)) = place(family, table, chain) else {
            return;
        };
        chains.insert((family, table, chain, touch));
        if chains.len() > MOST_CHAINS {
            *self = Touched::Many;
        }
    }
}
