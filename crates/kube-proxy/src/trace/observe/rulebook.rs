//! The words of rules by their handles: what the kernel tells of a packet are handles.

use super::READ_AT_MOST_EACH;
use crate::trace::{describe, live};
use anyhow::{Context as _, Result};
use iptables::ast::{ChainName, TableName};
use kernel::passage::{Met, Passage, What};
use kernel::{PacketView, rule_handles};
use model::Family;
use nftables::listed::TableFamily;
use path::Host;
use std::collections::BTreeMap;
use std::time::Instant;
use traced::{Hook, Name, Place, Policy};

/// This host's rules, and their handles.
pub(super) struct Rulebook {
    hosts: BTreeMap<Family, Host>,
    handles: BTreeMap<(TableFamily, String, String), Vec<u64>>,
    /// When the last reading of the rules began, and when it was done.
    read: Instant,
    done: Instant,
}

/// A rule or policy that a packet met, in the words of those who list it.
#[derive(Clone, Debug)]
pub(super) struct Witnessed {
    pub(super) hook: Option<Hook>,
    pub(super) table: Name,
    pub(super) chain: Name,
    pub(super) what: Witness,
    /// Whether it is of a chain that translates: those are asked once for a connection.
    pub(super) translates: bool,
    /// The mark behind it, where it is another than before.
    pub(super) marked: Option<(u32, u32)>,
    /// What NAT made of the packet.
    pub(super) became: Option<PacketView>,
}

/// What was met.
#[derive(Clone, Debug)]
pub(super) enum Witness {
    /// A rule: its number, its words whole and short, and what it decided.
    Rule {
        number: u32,
        text: String,
        short: String,
        verdict: String,
    },
    /// A rule that is not in its chain any more.
    Gone { handle: u64, verdict: String },
    /// A rule of legacy with a number that its chain does not have.
    NoSuchRule { number: u32 },
    /// A policy.
    Policy(Policy),
    /// The policy of an empty chain, which accepts: not worth a line.
    EmptyChain,
}

impl Rulebook {
    /// Reads this host's rules.
    pub(super) fn read(families: &[Family]) -> Result<Rulebook> {
        let mut book = Rulebook {
            hosts: families.iter().map(|family| (*family, Host::default())).collect(),
            handles: BTreeMap::new(),
            read: Instant::now(),
            done: Instant::now(),
        };
        book.read_anew()?;
        Ok(book)
    }

    /// The host as one family sees it.
    pub(super) fn host(&self, family: Family) -> Option<&Host> {
        self.hosts.get(&family)
    }

    /// What a packet met, in words.
    pub(super) fn words(&mut self, family: Family, passage: &Passage) -> Result<Vec<Witnessed>> {
        let is_stale = |found: &[Witnessed]| found.iter().any(|one| matches!(one.what, Witness::Gone { .. }));
        let found = self.looked_up(family, passage)?;
        if !is_stale(&found) || self.done.elapsed() < READ_AT_MOST_EACH {
            return Ok(found);
        }
        // Rules came since they were read.
        self.read_anew()?;
        self.looked_up(family, passage)
    }

    /// Reads the rules anew, unless that was done since the packet of this time came. Whether they were.
    pub(super) fn renew(&mut self, came: Instant) -> Result<bool> {
        let is_older = self.read < came;
        if is_older {
            self.read_anew()?;
        }
        Ok(is_older)
    }

    fn read_anew(&mut self) -> Result<()> {
        self.read = Instant::now();
        self.handles.clear();
        for (family, host) in &mut self.hosts {
            *host = live::host(*family)?;
            // The packet that is told of may have put its own client in.
            host.native.forget_what_moves();
        }
        self.done = Instant::now();
        Ok(())
    }

    fn looked_up(&mut self, family: Family, passage: &Passage) -> Result<Vec<Witnessed>> {
        let mut hook = None;
        let mut mark = passage.mark;
        let mut all = Vec::new();
        for met in &passage.met {
            let table = self.table(family, met);
            let chain: Name = met.chain.as_str().into();
            hook = self.hook(family, &table, met).or(hook);
            let what = match &met.what {
                What::Policy { accepts: true } if self.is_empty(family, &table, &chain) => {
                    Witness::EmptyChain
                }
                What::Policy { accepts: true } => Witness::Policy(Policy::Accept),
                What::Policy { accepts: false } => Witness::Policy(Policy::Drop),
                What::Step { .. } => continue,
                What::Rule { handle, verdict } => {
                    let place = self.place(family, met, *handle, (&table, &chain))?;
                    self.rule(family, place, *handle, verdict)
                }
            };
            let translates = self.translates(family, &table, met);
            all.push(Witnessed {
                hook,
                translates,
                table,
                chain,
                what,
                marked: (met.mark != mark).then_some((mark, met.mark)),
                became: met.became,
            });
            mark = met.mark;
        }
        Ok(all)
    }

    fn rule(&self, family: Family, place: Option<Place>, handle: u64, verdict: &str) -> Witness {
        let found = place.zip(self.hosts.get(&family)).and_then(|(place, host)| {
            let text = describe::rule_text(host, family, &place);
            (!text.is_empty()).then(|| Witness::Rule {
                number: place.rule,
                short: describe::short_rule_text(host, family, &place),
                text,
                verdict: verdict.to_owned(),
            })
        });
        found.unwrap_or_else(|| Witness::Gone {
            handle,
            verdict: verdict.to_owned(),
        })
    }

    /// The table as `trace` calls it: iptables' by its word alone, those of nftables with their family.
    fn table(&self, family: Family, met: &Met) -> Name {
        let is_of_iptables = met.family == TableFamily::of(family)
            && TableName::from_word(&met.table).is_some_and(|table| {
                let rules = self.hosts.get(&family).map(|host| host.rules.get(family));
                rules.is_some_and(|rules| rules.tables.contains_key(&table))
            });
        if is_of_iptables {
            met.table.as_str().into()
        } else {
            format!("{} {}", met.family.as_str(), met.table).into()
        }
    }

    /// The hook, where the chain is a base chain.
    fn hook(&self, family: Family, table: &Name, met: &Met) -> Option<Hook> {
        let word = match self.native_chain(family, table, &met.chain) {
            Some(chain) => chain.base.as_ref()?.hook.to_uppercase(),
            None => met.chain.clone(),
        };
        Hook::ALL.into_iter().find(|hook| hook.as_str() == word)
    }

    fn translates(&self, family: Family, table: &Name, met: &Met) -> bool {
        let native = self.native_chain(family, table, &met.chain);
        let base = native.and_then(|chain| chain.base.as_ref());
        *table == TableName::Nat.as_str() || base.is_some_and(|base| &*base.kind == "nat")
    }

    fn native_chain(&self, family: Family, table: &Name, chain: &str) -> Option<&nftables::listed::Chain> {
        let mut tables = self.hosts.get(&family)?.native.tables.iter();
        tables.find(|one| *table == one.title().as_str())?.chain(chain)
    }

    fn is_empty(&self, family: Family, table: &Name, chain: &Name) -> bool {
        let host = self.hosts.get(&family);
        host.is_some_and(|host| describe::is_empty(host, family, table, chain))
    }

    /// A rule's place by its handle.
    fn place(
        &mut self,
        family: Family,
        met: &Met,
        handle: u64,
        (table, chain): (&Name, &Name),
    ) -> Result<Option<Place>> {
        let key = (met.family, met.table.clone(), met.chain.clone());
        if !self.handles.contains_key(&key) {
            let all = rule_handles(met.family, &met.table, &met.chain)
                .with_context(|| format!("cannot list the rules of {table} {chain}"))?;
            if all.len() != self.length(family, table, &met.chain) {
                // The chain has changed since its rules were read: places would be those of other rules.
                return Ok(None);
            }
            self.handles.insert(key.clone(), all);
        }
        let index = self.handles[&key].iter().position(|one| *one == handle);
        let number = index.and_then(|index| u32::try_from(index + 1).ok());
        Ok(number.map(|rule| Place {
            hook: Hook::Prerouting,
            table: table.clone(),
            chain: chain.clone(),
            rule,
        }))
    }

    /// How many rules a chain had when they were read.
    fn length(&self, family: Family, table: &Name, chain: &str) -> usize {
        if let Some(chain) = self.native_chain(family, table, chain) {
            return chain.rules.len();
        }
        let found = || {
            let rules = self.hosts.get(&family)?.rules.get(family);
            let table = rules.tables.get(&TableName::from_word(table.as_str())?)?;
            table.chains.get(&ChainName::new(chain).ok()?)
        };
        found().map_or(0, |chain| chain.rules.len())
    }
}
