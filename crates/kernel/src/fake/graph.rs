//! Who jumps where, and what the kernel refuses about it: loops, depth, and targets that a hook may not reach.
//!
//! The kernel looks only at what a built-in chain reaches (`nf_tables_validate`): a loop that nobody enters is taken.

use crate::Backend;
use iptables::ast::{ChainName, Rule, Table, TableName, Target};
use std::collections::{BTreeMap, BTreeSet};

/// `NFT_JUMP_STACK_SIZE` of the kernel: a packet may be this many jumps deep.
const JUMP_DEPTH: usize = 16;

/// For each chain, which chains jump or go to it, and how often.
#[derive(Default)]
pub(super) struct Callers {
    of: BTreeMap<ChainName, BTreeMap<ChainName, u32>>,
}

impl Callers {
    pub(super) fn add(&mut self, chain: &ChainName, rule: &Rule) {
        if let Some(callee) = callee(rule) {
            *self
                .of
                .entry(callee.clone())
                .or_default()
                .entry(chain.clone())
                .or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, chain: &ChainName, rule: &Rule) {
        let Some(callee) = callee(rule) else { return };
        let Some(callers) = self.of.get_mut(callee) else {
            return;
        };
        if let Some(count) = callers.get_mut(chain) {
            *count -= 1;
            if *count == 0 {
                callers.remove(chain);
            }
        }
        if callers.is_empty() {
            self.of.remove(callee);
        }
    }

    pub(super) fn has_callers(&self, chain: &ChainName) -> bool {
        self.of.contains_key(chain)
    }

    fn callers(&self, chain: &ChainName) -> impl Iterator<Item = &ChainName> {
        self.of.get(chain).into_iter().flat_map(BTreeMap::keys)
    }
}

fn callee(rule: &Rule) -> Option<&ChainName> {
    match &rule.target {
        Target::Jump(name) | Target::Goto(name) => Some(name),
        _ => None,
    }
}

/// Targets that only some hooks may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Restricted {
    Dnat,
    Masquerade,
    Reject,
}

impl Restricted {
    fn of(rule: &Rule) -> Option<Restricted> {
        match rule.target {
            Target::Dnat(_) => Some(Restricted::Dnat),
            Target::Masquerade(_) => Some(Restricted::Masquerade),
            Target::Reject(_) => Some(Restricted::Reject),
            _ => None,
        }
    }

    /// The table whose chains may hold it: checked for every chain, reached or not.
    fn table(self) -> TableName {
        match self {
            Restricted::Dnat | Restricted::Masquerade => TableName::Nat,
            Restricted::Reject => TableName::Filter,
        }
    }

    fn hooks(self) -> &'static [&'static str] {
        match self {
            Restricted::Dnat => &["PREROUTING", "OUTPUT"],
            Restricted::Masquerade => &["POSTROUTING"],
            Restricted::Reject => &["INPUT", "FORWARD", "OUTPUT"],
        }
    }
}

/// What lies below a chain.
#[derive(Clone, Default)]
struct Below {
    loops: bool,
    depth: usize,
    targets: BTreeSet<Restricted>,
}

/// What lies above a chain.
#[derive(Clone, Default)]
struct Above {
    hooks: BTreeSet<ChainName>,
    depth: usize,
}

/// Looks at the rules that a batch added, in the state after it.
pub(super) fn validate(
    backend: Backend,
    name: TableName,
    table: &Table,
    callers: &Callers,
    added: &[(ChainName, Rule)],
) -> Result<(), String> {
    let mut walk = Walk {
        backend,
        table,
        callers,
        below: BTreeMap::new(),
        above: BTreeMap::new(),
    };
    for (chain, rule) in added {
        if let Some(target) = Restricted::of(rule)
            && target.table() != name
        {
            return Err(format!(
                "RULE_APPEND failed (Invalid argument): rule in chain {chain}"
            ));
        }
        if let Some(callee) = callee(rule).filter(|callee| is_builtin(table, callee)) {
            return Err(format!(
                "RULE_APPEND failed (No such file or directory): jump to built-in {callee} in chain {chain}"
            ));
        }
        // A chain that a later line of the same restore deleted does no harm.
        if backend == Backend::NfTables && table.chains.contains_key(chain) {
            walk.check(chain, rule)?;
        }
    }
    match backend {
        Backend::NfTables => Ok(()),
        Backend::Legacy => walk.check_everything(name),
    }
}

/// Whether nothing behind this rule is ever reached: `x_tables` does not look there (`mark_source_chains`).
fn ends_the_walk(rule: &Rule) -> bool {
    matches!(rule.target, Target::Accept | Target::Drop | Target::Return)
        && *rule == Rule::new(rule.target.clone())
}

fn is_builtin(table: &Table, chain: &ChainName) -> bool {
    table
        .chains
        .get(chain)
        .is_some_and(|content| content.policy.is_some())
}

/// Walks over the jumps, each chain once per batch.
struct Walk<'a> {
    backend: Backend,
    table: &'a Table,
    callers: &'a Callers,
    below: BTreeMap<ChainName, Option<Below>>,
    above: BTreeMap<ChainName, Option<Above>>,
}

impl Walk<'_> {
    /// Legacy gets the whole table back each time, and may find fault with what was there before: a rule that stood
    /// behind an unconditional verdict comes alive when that is deleted.
    fn check_everything(&mut self, name: TableName) -> Result<(), String> {
        for hook in name.built_in() {
            let below = self.below(&crate::builtin_name(hook));
            if below.loops {
                return Err(format!("a loop under {hook}"));
            }
            if let Some(target) = below.targets.iter().find(|target| !target.hooks().contains(hook)) {
                return Err(format!("{target:?} under {hook}"));
            }
        }
        Ok(())
    }

    fn check(&mut self, chain: &ChainName, rule: &Rule) -> Result<(), String> {
        let mut reached = Below {
            targets: Restricted::of(rule).into_iter().collect(),
            ..Below::default()
        };
        if let Some(callee) = callee(rule) {
            reached = self.below(callee);
            reached.depth += 1;
        }
        if !reached.loops && reached.depth == 0 && reached.targets.is_empty() {
            return Ok(());
        }
        let above = self.above(chain);
        if above.hooks.is_empty() {
            return Ok(());
        }
        if reached.loops || above.depth + reached.depth >= JUMP_DEPTH {
            return Err(format!(
                "RULE_APPEND failed (Too many links): rule in chain {chain}"
            ));
        }
        for target in &reached.targets {
            if let Some(hook) = above
                .hooks
                .iter()
                .find(|hook| !target.hooks().contains(&hook.as_str()))
            {
                return Err(format!(
                    "RULE_APPEND failed (Invalid argument): rule in chain {chain}: {target:?} under {hook}"
                ));
            }
        }
        Ok(())
    }

    /// `None` marks a chain whose walk has begun and not ended: meeting it again is a loop.
    fn below(&mut self, chain: &ChainName) -> Below {
        match self.below.get(chain) {
            Some(Some(known)) => return known.clone(),
            Some(None) => {
                return Below {
                    loops: true,
                    ..Below::default()
                };
            }
            None => {}
        }
        self.below.insert(chain.clone(), None);
        let mut sum = Below::default();
        let mut seen = BTreeSet::new();
        for rule in self
            .table
            .chains
            .get(chain)
            .map_or(&[][..], |content| &content.rules)
        {
            if self.backend == Backend::Legacy && ends_the_walk(rule) {
                break;
            }
            sum.targets.extend(Restricted::of(rule));
            let Some(callee) = callee(rule) else { continue };
            if !seen.insert(callee.clone()) {
                continue;
            }
            let below = self.below(callee);
            sum.loops |= below.loops;
            sum.depth = sum.depth.max(below.depth + 1);
            sum.targets.extend(below.targets);
        }
        self.below.insert(chain.clone(), Some(sum.clone()));
        sum
    }

    /// Loops above that no hook enters add nothing; one that a hook enters is found by `below`.
    fn above(&mut self, chain: &ChainName) -> Above {
        match self.above.get(chain) {
            Some(Some(known)) => return known.clone(),
            Some(None) => return Above::default(),
            None => {}
        }
        self.above.insert(chain.clone(), None);
        let mut sum = Above::default();
        if is_builtin(self.table, chain) {
            sum.hooks.insert(chain.clone());
        }
        let callers: Vec<ChainName> = self.callers.callers(chain).cloned().collect();
        for caller in callers {
            let above = self.above(&caller);
            if !above.hooks.is_empty() {
                sum.depth = sum.depth.max(above.depth + 1);
                sum.hooks.extend(above.hooks);
            }
        }
        self.above.insert(chain.clone(), Some(sum.clone()));
        sum
    }
}
