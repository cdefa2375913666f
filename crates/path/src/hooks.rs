//! Who is asked at each hook, in which order.
//!
//! A base chain of nftables has a priority of its own; a table of iptables has that of its kind
//! (`enum nf_ip_hook_priorities`). Chains that translate are asked together, at one fixed priority a hook, by the code that
//! keeps translations (`nf_nat_register_fn`): whatever a nat chain's own priority is, it only orders it among its like.

use crate::host::Host;
use iptables::ast::TableName;
use model::Family;
use nftables::listed::{self, TableFamily};
use nftables::trace::Indexed;
use std::collections::BTreeMap;
use traced::Hook;

/// Behind this priority connection tracking has seen the packet (`NF_IP_PRI_CONNTRACK`).
pub(crate) const CONNTRACK: i32 = -200;

/// The tables of iptables that each hook calls, in the order of their priorities.
pub const TABLES_OF_HOOK: [(Hook, &[TableName]); 5] = {
    use TableName::{Filter, Mangle, Nat, Raw, Security};
    [
        (Hook::Prerouting, &[Raw, Mangle, Nat]),
        (Hook::Input, &[Mangle, Filter, Security, Nat]),
        (Hook::Forward, &[Mangle, Filter, Security]),
        (Hook::Output, &[Raw, Mangle, Nat, Filter, Security]),
        (Hook::Postrouting, &[Mangle, Nat]),
    ]
};

/// One that is asked: a table of iptables, or a base chain of nftables.
#[derive(Clone, Debug)]
pub(crate) enum Rules<'a> {
    /// A table of iptables.
    Iptables(TableName, &'a iptables::ast::Table),
    /// A base chain of nftables.
    Native {
        /// Its table.
        table: &'a listed::Table,
        /// The chain.
        chain: &'a listed::Chain,
    },
}

/// What has one place in the order of a hook.
#[derive(Clone, Debug)]
pub(crate) enum Asked<'a> {
    /// One, whatever the connection has behind it.
    Filter(Rules<'a>),
    /// All that translate, by priority, those with the same one together.
    Nat(Vec<Vec<Rules<'a>>>),
}

/// Those with the same priority, of which nobody knows the order.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    /// The priority.
    pub priority: i32,
    /// Who is asked.
    pub members: Vec<Asked<'a>>,
}

/// The order of every hook, for packets of one family.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    hooks: BTreeMap<Hook, Vec<Group<'a>>>,
    /// Each native table's chains and sets, by the table's title.
    pub indexed: BTreeMap<String, Indexed<'a>>,
    /// Base chains that see frames before or behind the hooks, which nobody follows here.
    pub frames: Vec<(&'a listed::Table, &'a listed::Chain)>,
}

impl<'a> Order<'a> {
    /// The order on a host.
    pub(crate) fn of(host: &'a Host, family: Family) -> Order<'a> {
        let mut order = Order {
            hooks: BTreeMap::new(),
            indexed: BTreeMap::new(),
            frames: Vec::new(),
        };
        for (hook, tables) in TABLES_OF_HOOK {
            let mut filters: BTreeMap<i32, Vec<Asked<'a>>> = BTreeMap::new();
            let mut nats: BTreeMap<i32, Vec<Rules<'a>>> = BTreeMap::new();
            for name in tables {
                let Some(table) = host.rules.get(family).tables.get(name) else {
                    continue;
                };
                let rules = Rules::Iptables(*name, table);
                match name {
                    TableName::Nat => nats.entry(nat_priority(hook)).or_default().push(rules),
                    name => filters
                        .entry(priority(*name))
                        .or_default()
                        .push(Asked::Filter(rules)),
                }
            }
            for table in native_tables(host, family) {
                for chain in &table.chains {
                    let Some(base) = chain
                        .base
                        .as_ref()
                        .filter(|base| hook_of(&base.hook) == Some(hook))
                    else {
                        continue;
                    };
                    let rules = Rules::Native { table, chain };
                    match &*base.kind {
                        "nat" => nats.entry(base.priority).or_default().push(rules),
                        _ => filters
                            .entry(base.priority)
                            .or_default()
                            .push(Asked::Filter(rules)),
                    }
                }
            }
            if !nats.is_empty() {
                let nat = Asked::Nat(nats.into_values().collect());
                filters.entry(nat_priority(hook)).or_default().push(nat);
            }
            let groups = filters
                .into_iter()
                .map(|(priority, members)| Group { priority, members });
            order.hooks.insert(hook, groups.collect());
        }
        order.indexed = native_tables(host, family)
            .map(|table| (table.title(), Indexed::of(table)))
            .collect();
        order.frames = frames(host);
        order
    }

    /// The groups of a hook, lowest priority first.
    pub(crate) fn groups(&self, hook: Hook) -> &[Group<'a>] {
        self.hooks.get(&hook).map_or(&[], Vec::as_slice)
    }
}

fn priority(table: TableName) -> i32 {
    match table {
        TableName::Raw => -300,
        TableName::Mangle => -150,
        TableName::Filter | TableName::Nat => 0,
        TableName::Security => 50,
    }
}

/// `NF_IP_PRI_NAT_DST` and `NF_IP_PRI_NAT_SRC`
fn nat_priority(hook: Hook) -> i32 {
    match hook {
        Hook::Prerouting | Hook::Output | Hook::Forward => -100,
        Hook::Input | Hook::Postrouting => 100,
    }
}

fn hook_of(word: &str) -> Option<Hook> {
    let hooks = TABLES_OF_HOOK.iter().map(|(hook, _)| *hook);
    hooks
        .into_iter()
        .find(|hook| hook.as_str().to_lowercase() == word)
}

/// The native tables that see packets of a family. Tables that iptables made are among the host's other rules already.
fn native_tables(host: &Host, family: Family) -> impl Iterator<Item = &listed::Table> {
    let own = TableFamily::of(family);
    let sees = move |table: &&listed::Table| table.family == own || table.family == TableFamily::Inet;
    let asleep = |table: &&listed::Table| table.flags.iter().any(|flag| &**flag == "dormant");
    let tables = host.native.tables.iter().filter(sees);
    tables.filter(move |table| !asleep(table) && !is_of_iptables(host, family, table))
}

/// Whether `iptables` made the table, and the host's rules of iptables have it.
fn is_of_iptables(host: &Host, family: Family, table: &listed::Table) -> bool {
    let named = TableName::ALL
        .into_iter()
        .find(|name| name.as_str() == &*table.name);
    let known = named.is_some_and(|name| host.rules.get(family).tables.contains_key(&name));
    let base = |chain: &&listed::Chain| chain.base.is_some();
    let built_in = |chain: &listed::Chain| {
        let hooks = TABLES_OF_HOOK.iter();
        hooks.into_iter().any(|(hook, _)| hook.as_str() == &*chain.name)
    };
    known && table.family != TableFamily::Inet && table.chains.iter().filter(base).all(built_in)
}

/// Base chains at other places than the hooks of IP.
fn frames(host: &Host) -> Vec<(&listed::Table, &listed::Chain)> {
    let mut all = Vec::new();
    for table in &host.native.tables {
        for chain in table.chains.iter().filter(|chain| !chain.rules.is_empty()) {
            let Some(base) = &chain.base else {
                continue;
            };
            let at_device = matches!(&*base.hook, "ingress" | "egress") && table.family != TableFamily::Arp;
            if at_device || table.family == TableFamily::Bridge {
                all.push((table, chain));
            }
        }
    }
    all
}

impl Rules<'_> {
    /// The name for people: a table of iptables, or table and chain.
    pub(crate) fn title(&self) -> String {
        match self {
            Rules::Iptables(name, _) => format!("iptables {name}"),
            Rules::Native { table, chain } => format!("{} {}", table.title(), chain.name),
        }
    }

    /// Whether it can do anything at this hook: it has a rule, or a policy that drops.
    pub(crate) fn matter(&self, hook: Hook) -> bool {
        match self {
            Rules::Iptables(_, table) => table.chains.get(hook.as_str()).is_some_and(|chain| {
                !chain.rules.is_empty() || chain.policy == Some(iptables::ast::Policy::Drop)
            }),
            Rules::Native { chain, .. } => {
                let drops = |base: &listed::Base| base.policy == listed::Policy::Drop;
                !chain.rules.is_empty() || chain.base.as_ref().is_some_and(drops)
            }
        }
    }
}

impl Asked<'_> {
    /// The name for people.
    pub(crate) fn title(&self) -> String {
        match self {
            Asked::Filter(rules) => rules.title(),
            Asked::Nat(_) => "nat".to_owned(),
        }
    }

    /// Whether it can do anything at this hook.
    pub(crate) fn matters(&self, hook: Hook) -> bool {
        match self {
            Asked::Filter(rules) => rules.matter(hook),
            Asked::Nat(groups) => groups.iter().flatten().any(|rules| rules.matter(hook)),
        }
    }
}
