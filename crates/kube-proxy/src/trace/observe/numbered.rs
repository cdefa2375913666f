//! The words of legacy's rules by their numbers: what the kernel tells of a packet there are numbers.
//!
//! A number is right for the moment of the packet, and rules come and go. What tells of a change is the size of a table. A
//! packet that passed while all sizes were those of the list has certain words; others are told, and not compared.

use super::READ_AT_MOST_EACH;
use super::rulebook::{Witness, Witnessed};
use super::source::Words;
use crate::trace::{describe, dump, live};
use anyhow::{Context as _, Result};
use iptables::ast::{Chain, ChainName, Policy, Rule, Ruleset, TableName, Target};
use iptables::live_trace::{CHAIN, leads_there};
use kernel::passage::{Met, Passage, Seen, What};
use kernel::probe::{Tools, legacy_tables};
use kernel::table_sizes::{SizeReader, TableSizes};
use kernel::{Backend, StepKind, saved};
use model::Family;
use nftables::listed::Ruleset as NativeRuleset;
use path::Host;
use std::collections::BTreeMap;
use std::time::Instant;
use traced::{Hook, Name, Place};

/// Somebody may commit while the rules are read: so often they are read again.
const ATTEMPTS: usize = 3;

/// This host's rules.
pub(super) struct NumberedRules {
    tools: Tools,
    native: NativeRuleset,
    families: BTreeMap<Family, List>,
}

/// The rules of one family, as they were from one time to another.
struct List {
    /// Without our own rules.
    host: Host,
    /// The numbers of our own jumps, which are none of the host's rules.
    ours: BTreeMap<ChainName, Vec<u32>>,
    sizes: TableSizes,
    since: Instant,
    until: Instant,
}

/// What a step is.
enum Step<'a> {
    /// A rule by its number among the host's own.
    Rule(u32, &'a Rule),
    Policy(Policy, &'a Chain),
    /// Nothing that is told: the end of a chain, or a rule of ours.
    Nothing,
    /// There is no such rule.
    Gone,
}

impl NumberedRules {
    /// Reads this host's rules.
    pub(super) fn read(tools: Tools, families: &[Family]) -> Result<NumberedRules> {
        let native = live::native_tables()?.unwrap_or_default();
        let mut rules = NumberedRules {
            tools,
            native,
            families: BTreeMap::new(),
        };
        for family in families {
            let list = rules.list(*family)?;
            rules.families.insert(*family, list);
        }
        Ok(rules)
    }

    /// The tables of nftables that packets pass as well.
    pub(super) fn native_tables(&self) -> Option<String> {
        let has_base =
            |table: &&nftables::listed::Table| table.chains.iter().any(|chain| chain.base.is_some());
        let titles: Vec<String> = self
            .native
            .tables
            .iter()
            .filter(has_base)
            .map(nftables::listed::Table::title)
            .collect();
        (!titles.is_empty()).then(|| titles.join(", "))
    }

    /// The host as one family sees it.
    pub(super) fn host(&self, family: Family) -> Option<&Host> {
        self.families.get(&family).map(|list| &list.host)
    }

    /// Reads anew what was changed, so that packets to come find their rules listed.
    pub(super) fn keep_up(&mut self) -> Result<()> {
        let families: Vec<Family> = self.families.keys().copied().collect();
        for family in families {
            if !self.is_current(family)? && self.families[&family].since.elapsed() >= READ_AT_MOST_EACH {
                let list = self.list(family)?;
                self.families.insert(family, list);
            }
        }
        Ok(())
    }

    /// Whether the rules are those of the list, as the sizes of the tables tell.
    fn is_current(&mut self, family: Family) -> Result<bool> {
        let now = Instant::now();
        let sizes = sizes(family)?;
        let list = self.families.get_mut(&family);
        let list = list.context("a packet of a family that is not followed")?;
        let is_current = list.sizes == sizes;
        if is_current {
            list.until = now;
        }
        Ok(is_current)
    }

    /// What a packet met, in words, and what became of it.
    pub(super) fn words(&mut self, family: Family, passage: &mut Passage) -> Result<Words> {
        let is_current = self.is_current(family)?;
        let list = &self.families[&family];
        if !is_current && list.until < passage.ended() && list.since.elapsed() >= READ_AT_MOST_EACH {
            let list = self.list(family)?;
            self.families.insert(family, list);
        }
        let list = &self.families[&family];
        Ok(Words {
            certain: list.since <= passage.began && passage.ended() <= list.until,
            met: list.words(family, passage),
        })
    }

    fn list(&self, family: Family) -> Result<List> {
        let mut list = self.list_once(family)?;
        for _ in 1..ATTEMPTS {
            if list.until > list.since {
                break;
            }
            list = self.list_once(family)?;
        }
        Ok(list)
    }

    /// Reads the rules. Where they changed meanwhile, the list is that of no time.
    fn list_once(&self, family: Family) -> Result<List> {
        let since = Instant::now();
        let before = sizes(family)?;
        let mut rules = rules(&self.tools, family)?;
        let until = Instant::now();
        let sizes = sizes(family)?;
        let mut host = Host {
            native: self.native.clone(),
            ..Host::default()
        };
        let ours = without_ours(&mut rules);
        *host.rules.get_mut(family) = rules;
        live::add_addresses(&mut host)?;
        Ok(List {
            host,
            ours,
            since,
            until: if before == sizes { until } else { since },
            sizes,
        })
    }
}

fn sizes(family: Family) -> Result<TableSizes> {
    let reader = SizeReader::new(family).context("cannot ask for the sizes of legacy's tables")?;
    Ok(reader.read_of(&legacy_tables(family)?)?)
}

/// All of legacy's rules of a family.
fn rules(tools: &Tools, family: Family) -> Result<Ruleset> {
    let text = saved::save(tools, Backend::Legacy, family);
    let text = text.context("cannot read this host's rules; tracing the live host needs root")?;
    match text {
        Some(text) if text.contains("COMMIT") => {
            dump::rules_of("what iptables-legacy-save prints", &text, family)
        }
        _ => Ok(Ruleset::default()),
    }
}

/// Takes our own rules out, and says where they were.
pub(super) fn without_ours(rules: &mut Ruleset) -> BTreeMap<ChainName, Vec<u32>> {
    let mut places = BTreeMap::new();
    let Some(raw) = rules.tables.get_mut(&TableName::Raw) else {
        return places;
    };
    raw.chains.remove(CHAIN);
    for (name, chain) in &mut raw.chains {
        let numbers = (1..)
            .zip(&chain.rules)
            .filter(|(_, rule)| leads_there(rule))
            .map(|(number, _)| number);
        let numbers: Vec<u32> = numbers.collect();
        chain.rules.retain(|rule| !leads_there(rule));
        if !numbers.is_empty() {
            places.insert(name.clone(), numbers);
        }
    }
    places
}

impl List {
    fn words(&self, family: Family, passage: &mut Passage) -> Vec<Witnessed> {
        let at_the_end = passage.seen;
        let mut hook = None;
        let mut mark = passage.mark;
        let mut all = Vec::new();
        for met in &passage.met {
            let What::Step { kind, number } = met.what else {
                continue;
            };
            let step = self.step(family, met, kind, number);
            passage.seen = match &step {
                Step::Rule(_, rule) => end(&rule.target).unwrap_or(at_the_end),
                Step::Policy(Policy::Drop, _) => Seen::Dropped,
                _ => at_the_end,
            };
            hook = hook_of(&met.chain).or(hook);
            let Some(what) = self.witness(family, met, &step, number) else {
                continue;
            };
            all.push(Witnessed {
                hook,
                table: met.table.as_str().into(),
                chain: met.chain.as_str().into(),
                what,
                translates: met.table == TableName::Nat.as_str(),
                marked: (met.mark != mark).then_some((mark, met.mark)),
                became: met.became,
            });
            mark = met.mark;
        }
        all
    }

    /// A rule without a match, the target of which is a verdict or `RETURN`, is called a chain's end by the kernel, and told
    /// from one by its number alone.
    fn step(&self, family: Family, met: &Met, kind: StepKind, number: u32) -> Step<'_> {
        let table = TableName::from_word(&met.table);
        let tables = &self.host.rules.get(family).tables;
        let chain = table.and_then(|table| tables.get(&table)?.chains.get(met.chain.as_str()));
        let Some(chain) = chain else { return Step::Gone };
        let ours = self
            .ours
            .get(met.chain.as_str())
            .filter(|_| table == Some(TableName::Raw));
        let ours = ours.map_or(&[][..], Vec::as_slice);
        if ours.contains(&number) {
            return Step::Nothing;
        }
        let before = ours.iter().filter(|one| **one < number).count();
        let number = number.saturating_sub(u32::try_from(before).unwrap_or(u32::MAX));
        let index = usize::try_from(number).unwrap_or(usize::MAX).saturating_sub(1);
        match (chain.rules.get(index), kind, chain.policy) {
            (Some(rule), ..) => Step::Rule(number, rule),
            (None, StepKind::Return, _) if index == chain.rules.len() => Step::Nothing,
            (None, StepKind::Policy, Some(policy)) if index == chain.rules.len() => {
                Step::Policy(policy, chain)
            }
            _ => Step::Gone,
        }
    }

    fn witness(&self, family: Family, met: &Met, step: &Step<'_>, told: u32) -> Option<Witness> {
        match *step {
            Step::Nothing => None,
            Step::Gone => Some(Witness::NoSuchRule { number: told }),
            Step::Policy(Policy::Accept, chain) if chain.rules.is_empty() => Some(Witness::EmptyChain),
            Step::Policy(policy, _) => Some(Witness::Policy(policy)),
            Step::Rule(number, rule) => {
                let place = Place {
                    hook: Hook::Prerouting,
                    table: met.table.as_str().into(),
                    chain: Name::from(met.chain.as_str()),
                    rule: number,
                };
                Some(Witness::Rule {
                    number,
                    text: describe::rule_text(&self.host, family, &place),
                    short: describe::short_rule_text(&self.host, family, &place),
                    verdict: verdict(&rule.target),
                })
            }
        }
    }
}

/// The hook of a base chain, which has its name.
fn hook_of(chain: &str) -> Option<Hook> {
    Hook::ALL.into_iter().find(|hook| hook.as_str() == chain)
}

/// What becomes of a packet at this target, if that is its end.
fn end(target: &Target) -> Option<Seen> {
    match target {
        Target::Drop | Target::Reject(_) => Some(Seen::Dropped),
        Target::Other { name, .. } => match &**name {
            "DROP" | "REJECT" => Some(Seen::Dropped),
            // A program decides.
            "NFQUEUE" | "QUEUE" => Some(Seen::NoMore),
            _ => None,
        },
        _ => None,
    }
}

/// A target in the words in which `nf_tables` tells verdicts.
fn verdict(target: &Target) -> String {
    match target {
        Target::Jump(chain) => format!("jump {chain}"),
        Target::Goto(chain) => format!("goto {chain}"),
        Target::Return => "return".to_owned(),
        Target::Accept | Target::Dnat(_) | Target::Masquerade(_) => "accept".to_owned(),
        Target::Drop | Target::Reject(_) => "drop".to_owned(),
        Target::None | Target::Mark { .. } => "continue".to_owned(),
        Target::Other { name, .. } => match &**name {
            "SNAT" | "DNAT" | "REDIRECT" | "NETMAP" | "ACCEPT" => "accept".to_owned(),
            "DROP" | "REJECT" => "drop".to_owned(),
            "RETURN" => "return".to_owned(),
            "NFQUEUE" | "QUEUE" => "queue".to_owned(),
            _ => "continue".to_owned(),
        },
    }
}
