//! This host's own rules and addresses, for a trace.

use anyhow::{Context, Result};
use kernel::probe::{Choice, Probe, Tools};
use kernel::{LiveKernel, RuleKernel, Scope};
use model::Family;
use path::Host;

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
    Ok(host)
}
