//! The rules that are verified: this host's, or those of dumps.

use crate::input::dumps::Dumps;
use crate::input::{Mode, World};
use anyhow::{Context as _, Result, bail};
use difference::drift;
use iptables::ast::{ChainName, Ports, Ruleset, TableName};
use iptables::build::{Capabilities, InvalidPackets, Nfacct};
use iptables::diff::observe::Observation;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{LiveKernel, NftTable, OBSERVED_TABLES, RuleKernel as _, Scope};
use model::Family;
use nftables::build::frame;
use nftables::listed::{self, Contents, TableFamily};
use nftables::names::TABLE;
use nftables::step::{Observation as TableObservation, Reading, Seen};
use std::net::IpAddr;

/// Where rules are read.
pub(super) enum Host {
    /// The kernel of this network namespace.
    Live,
    /// Dumps.
    Dumped(Dumps),
}

/// What is held of one family.
pub(super) enum Held {
    /// Chains of iptables.
    Iptables(Box<Chains>),
    /// A table of nftables mode, or none.
    OwnTable {
        /// As `nft` lists it, where that was given.
        listed: Option<listed::Table>,
    },
}

/// Chains of iptables, and what goes with them.
pub(super) struct Chains {
    pub(super) rules: Ruleset,
    pub(super) observation: Observation,
    pub(super) capabilities: Capabilities,
    pub(super) invalid: InvalidPackets,
    pub(super) remarks: Vec<String>,
}

/// Nftables mode depends on none.
pub(super) const NFT_CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Absent,
};

/// Readings are repeated so often when somebody wrote meanwhile.
const READINGS: usize = 3;

impl Host {
    /// The mode that the rules look like, where nobody said which is meant.
    pub(super) fn likely_mode(&self) -> Option<&'static str> {
        match self {
            Host::Dumped(dumps) if dumps.native.is_some() => Some("nftables"),
            Host::Dumped(_) => Some("iptables"),
            Host::Live => Family::ALL
                .into_iter()
                .any(|family| matches!(observed(family), Ok(Some(_))))
                .then_some("nftables"),
        }
    }

    /// The host's addresses, where it can be asked.
    pub(super) fn addresses(&self) -> Result<Vec<IpAddr>> {
        match self {
            Host::Dumped(_) => Ok(Vec::new()),
            Host::Live => {
                let found =
                    kernel::addresses::interface_addresses().context("cannot read this host's addresses")?;
                Ok(found.iter().map(|of| of.address.addr()).collect())
            }
        }
    }

    /// The host's name.
    pub(super) fn own_name(&self) -> Option<String> {
        match self {
            Host::Dumped(_) => None,
            Host::Live => kernel::sysctl::read("kernel/hostname").ok(),
        }
    }

    /// What is held of a family; `None` for one that is not there to be compared.
    pub(super) fn held(&self, world: &World, family: Family) -> Result<Option<Held>> {
        match (self, world.mode) {
            (Host::Live, Mode::Iptables) => live_chains(family),
            (Host::Live, Mode::Nftables) => {
                let has_family = family == Family::V4 || std::path::Path::new("/proc/net/if_inet6").exists();
                Ok(has_family.then_some(Held::OwnTable { listed: None }))
            }
            (Host::Dumped(dumps), Mode::Iptables) => {
                if dumps.native.is_some() {
                    bail!(
                        "the mode is iptables, and the dump is a list of nftables: give what iptables-save prints"
                    );
                }
                let saved = dumps.saved.get(family).clone();
                Ok(saved.map(|rules| Held::Iptables(Box::new(of_dump(family, rules)))))
            }
            (Host::Dumped(dumps), Mode::Nftables) => {
                let Some(native) = &dumps.native else {
                    bail!(
                        "the mode is nftables, and the dump is of iptables: give what nft list ruleset prints"
                    );
                };
                let listed = native.table(TableFamily::of(family), TABLE).cloned();
                // A dump of one family's table is no dump of a host that lacks the other's.
                let is_wanted = listed.is_some() || !world.desired.get(family).services.is_empty();
                Ok(is_wanted.then_some(Held::OwnTable { listed }))
            }
        }
    }

    /// The table of nftables mode as the daemon reads it.
    pub(super) fn table(
        &self,
        world: &World,
        family: Family,
        listed: Option<&listed::Table>,
    ) -> Result<Option<Seen>> {
        match self {
            Host::Live => {
                observed(family).context("cannot read this host's table; verifying the live host needs root")
            }
            Host::Dumped(_) => {
                let Some(table) = listed else {
                    return Ok(None);
                };
                let cidrs = world.service_cidrs();
                let node = &world.desired.get(family).node;
                let seen = listed::seen(table, family, |shapes| frame(node, shapes, &cidrs));
                Ok(Some(
                    seen.context("the dump is not whole; list it without --terse")?,
                ))
            }
        }
    }
}

fn observed(family: Family) -> Result<Option<Seen>> {
    match NftTable::new(family)?.observe(&Reading::Everything)? {
        TableObservation::Everything(seen) => Ok(seen),
        TableObservation::Frame(_) | TableObservation::Elements(_) => {
            unreachable!("invariant: an observation answers its reading")
        }
    }
}

/// The table in `nft`'s words, for what netlink's reading has no words for; `None` without the tool.
pub(super) fn listed(family: Family) -> Option<listed::Table> {
    let list = kernel::native::list().ok()?;
    let mut ruleset = nftables::parse::ruleset(&list.json).ok()?;
    if list.elements == kernel::native::Elements::LeftOut {
        let sets = ruleset.tables.iter_mut().flat_map(|table| &mut table.sets);
        sets.for_each(|set| set.elements = Contents::NotListed);
    }
    ruleset.table(TableFamily::of(family), TABLE).cloned()
}

fn of_dump(family: Family, rules: Ruleset) -> Chains {
    let missing = [TableName::Filter, TableName::Nat]
        .into_iter()
        .filter(|table| !rules.tables.contains_key(table));
    let remarks = missing
        .map(|table| {
            format!("the {family} dump has no table {table}: if it was made with -t, differences in there mean nothing")
        })
        .collect();
    Chains {
        observation: observation(family, &rules),
        capabilities: drift::capabilities(&rules),
        invalid: InvalidPackets::Dropped,
        rules,
        remarks,
    }
}

fn observation(family: Family, rules: &Ruleset) -> Observation {
    let mut observation = Observation::new(family);
    for table in OBSERVED_TABLES {
        for (name, chain) in rules
            .tables
            .get(&table)
            .into_iter()
            .flat_map(|table| &table.chains)
        {
            observation.record(table, name, chain);
        }
    }
    observation
}

/// This host's chains; `None` for a family that the daemon would leave alone.
fn live_chains(family: Family) -> Result<Option<Held>> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect)
        .context("cannot read this host's rules; give --dump FILE for others")?;
    if let Err(reason) = probe.families.get(family) {
        if family == Family::V4 {
            bail!("cannot read this host's rules (verifying the live host needs root): {reason}");
        }
        anstream::eprintln!("note: {family} is not compared: {reason}");
        return Ok(None);
    }
    let masquerade_ports = if probe.has_random_fully() {
        Ports::RandomFully
    } else {
        Ports::Kept
    };
    let mut kernel = LiveKernel::new(probe);
    let rules = read_settled(&mut kernel, family)
        .context("cannot read this host's rules; verifying the live host needs root")?;
    let counts = kernel::nfacct::read_counter(kernel::NFACCT_COUNTERS[0]);
    Ok(Some(Held::Iptables(Box::new(Chains {
        observation: observation(family, &rules),
        capabilities: Capabilities {
            masquerade_ports,
            nfacct: if matches!(counts, Ok(Some(_))) {
                Nfacct::Present
            } else {
                Nfacct::Absent
            },
        },
        invalid: if kernel::sysctl::is_tcp_liberal() {
            InvalidPackets::Passed
        } else {
            InvalidPackets::Dropped
        },
        rules,
        remarks: Vec::new(),
    }))))
}

/// Reads until nobody wrote meanwhile, or for the last time.
fn read_settled(kernel: &mut LiveKernel, family: Family) -> Result<Ruleset> {
    let mut last = 1;
    loop {
        let before = kernel.generation()?;
        let rules = read(kernel, family)?;
        if kernel.generation()? == before || last == READINGS {
            return Ok(rules);
        }
        last += 1;
    }
}

fn read(kernel: &mut LiveKernel, family: Family) -> Result<Ruleset> {
    let mut rules = Ruleset::default();
    let mut keep = |table, name, chain| {
        let table: &mut iptables::ast::Table = rules.tables.entry(table).or_default();
        table.chains.insert(name, chain);
    };
    kernel.observe(family, &Scope::Everything, &mut keep)?;
    // Others' rules there may take packets away from ours.
    let raw = TableName::Raw
        .built_in()
        .iter()
        .filter_map(|name| ChainName::new(name).ok());
    kernel.observe(family, &Scope::Chains(TableName::Raw, raw.collect()), &mut keep)?;
    Ok(rules)
}
