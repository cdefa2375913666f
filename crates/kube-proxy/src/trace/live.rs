//! This host's own rules and addresses, for a trace.

use anyhow::{Context, Result};
use ipnet::IpNet;
use iptables::trace::LocalAddresses;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{LiveKernel, RuleKernel, Scope};
use model::Family;
use path::{Host, HostInterface};
use std::collections::BTreeMap;

/// Reads this host's rules of one family.
///
/// # Errors
/// When there are no iptables tools, or they would not say.
pub fn host(family: Family) -> Result<Host> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect)
        .context("cannot read this host's rules; give --dump FILE or --manifests PATH to trace other ones")?;
    let mut kernel = LiveKernel::new(probe);
    let mut host = Host::default();
    let rules = host.rules.get_mut(family);
    kernel
        .observe(family, &Scope::Everything, &mut |table, name, chain| {
            rules.tables.entry(table).or_default().chains.insert(name, chain);
        })
        .context("cannot read this host's rules; tracing the live host needs root")?;
    add_addresses(&mut host)?;
    Ok(host)
}

/// The host's addresses, by interface; with them it is known which packets end here.
fn add_addresses(host: &mut Host) -> Result<()> {
    let found = kernel::addresses::interface_addresses().context("cannot read this host's addresses")?;
    let mut interfaces: BTreeMap<String, Vec<IpNet>> = BTreeMap::new();
    for of in &found {
        interfaces.entry(of.interface.clone()).or_default().push(of.address);
    }
    let interface = |(name, addresses): (String, Vec<IpNet>)| HostInterface { name: name.into(), addresses };
    host.interfaces = interfaces.into_iter().map(interface).collect();
    host.addresses = LocalAddresses::Known(found.iter().map(|of| of.address.addr()).collect());
    Ok(())
}
