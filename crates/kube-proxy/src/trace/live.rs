//! This host's own rules and addresses, for a trace.

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use iptables::ast::Match;
use kernel::ip_sets;
use kernel::native::{self, Elements};
use kernel::printed::ListError;
use kernel::probe::{Choice, NoTools, Probe, Tools};
use kernel::{LiveKernel, RuleKernel, Scope, TRACE_TABLES};
use model::Family;
use nftables::listed::{Contents, Ruleset};
use path::{Host, HostInterface, IpSets, LocalAddresses};
use std::collections::BTreeMap;

/// Reads this host's rules of one family: those of iptables, and the tables of nftables.
///
/// # Errors
/// When there are no tools of either kind, or they would not say.
pub fn host(family: Family) -> Result<Host> {
    let mut host = Host::default();
    let native = native_tables()?;
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    match (Probe::new(&tools, Choice::Detect), native) {
        (Ok(probe), native) => {
            add_iptables(&mut host, probe, family)?;
            host.native = native.unwrap_or_default();
        }
        (Err(NoTools { .. }), Some(native)) => host.native = native,
        (Err(error), None) => {
            return Err(error).context(
                "cannot read this host's rules; give --dump FILE or --manifests PATH to trace other ones",
            );
        }
    }
    add_addresses(&mut host)?;
    Ok(host)
}

/// Whether rules of a family's chains are kept by the tools that were found.
pub(super) fn has_iptables_rules(probe: Probe, family: Family) -> Result<bool> {
    let mut host = Host::default();
    add_iptables(&mut host, probe, family)?;
    let mut tables = host.rules.get(family).tables.values();
    Ok(tables.any(|table| table.chains.values().any(|chain| !chain.rules.is_empty())))
}

fn add_iptables(host: &mut Host, probe: Probe, family: Family) -> Result<()> {
    let mut kernel = LiveKernel::new(probe);
    let rules = host.rules.get_mut(family);
    kernel
        .observe(family, &Scope::Everything, &mut |table, name, chain| {
            rules.tables.entry(table).or_default().chains.insert(name, chain);
        })
        .context("cannot read this host's rules; tracing the live host needs root")
}

/// The tables of nftables; `None` without the tool that lists them, which is said.
pub(super) fn native_tables() -> Result<Option<Ruleset>> {
    let listed = match native::list() {
        Ok(listed) => listed,
        Err(ListError::NotInstalled { .. }) => {
            anstream::eprintln!(
                "note: nft is not installed: if this host has tables of nftables, they are not followed"
            );
            return Ok(None);
        }
        Err(error) => bail!(error),
    };
    let mut ruleset =
        nftables::parse::ruleset(&listed.json).context("cannot read what nft -j list ruleset prints")?;
    ruleset
        .tables
        .retain(|table| !table.name.starts_with(TRACE_TABLES));
    if listed.elements == Elements::LeftOut {
        anstream::eprintln!(
            "note: this host's sets are too large to be listed: what hangs on their elements stays open; \
             give --manifests to trace what would be written"
        );
        let sets = ruleset.tables.iter_mut().flat_map(|table| &mut table.sets);
        sets.for_each(|set| set.elements = Contents::NotListed);
    }
    Ok(Some(ruleset))
}

/// The sets of `ipset`, where rules ask some. Where they cannot be read, that is told: what hangs on them stays
/// open.
///
/// They change without a rule that changes, so that they hold for the moment alone, and packets that are followed are not
/// held against them.
pub(super) fn add_sets(host: &mut Host, family: Family) {
    if !asks_sets(host, family) {
        return;
    }
    let read = ip_sets::save()
        .map_err(|error| error.to_string())
        .and_then(|text| IpSets::read(&text));
    match read {
        Ok(sets) => host.sets = sets,
        Err(why) => anstream::eprintln!(
            "note: this host's rules ask sets of ipset, which could not be read, so that what hangs on them stays open: {why}"
        ),
    }
}

fn asks_sets(host: &Host, family: Family) -> bool {
    let chains = host
        .rules
        .get(family)
        .tables
        .values()
        .flat_map(|table| table.chains.values());
    let mut matches = chains
        .flat_map(|chain| &chain.rules)
        .flat_map(|rule| &rule.matches);
    matches.any(|one| matches!(one, Match::Other { module, .. } if **module == *"set"))
}

/// The host's addresses, by interface; with them it is known which packets end here.
pub(super) fn add_addresses(host: &mut Host) -> Result<()> {
    let found = kernel::addresses::interface_addresses().context("cannot read this host's addresses")?;
    let mut interfaces: BTreeMap<String, Vec<IpNet>> = BTreeMap::new();
    for of in &found {
        interfaces
            .entry(of.interface.clone())
            .or_default()
            .push(of.address);
    }
    let interface = |(name, addresses): (String, Vec<IpNet>)| HostInterface {
        name: name.into(),
        addresses,
    };
    host.interfaces = interfaces.into_iter().map(interface).collect();
    host.addresses = LocalAddresses::Known(found.iter().map(|of| of.address.addr()).collect());
    Ok(())
}
