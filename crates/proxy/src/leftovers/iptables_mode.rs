//! What iptables mode left, and ipvs mode in its chains, while nftables mode serves.

use super::{LeftoverError, ON_THE_WAY, Outcome};
use crate::start::cleanup::{self, CleanupError, Removed};
use iptables::ast::{ChainName, TableName};
use iptables::names::{Owner, StaticChain, is_ipvs_modes, owner_of};
use kernel::leftovers::has_chain;
use kernel::probe::{Probe, Tools, has_legacy_tables};
use kernel::{Backend, LiveKernel, RuleKernel, Scope, SocketError};
use model::Family;

/// The chains of nat in which packets get an endpoint and a mark.
const ENTRANCES: [&str; 2] = ["PREROUTING", "OUTPUT"];

/// Removes a family's rules of these modes from both backends.
pub(super) fn remove(family: Family, outcome: &mut Outcome) {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    for backend in [Backend::NfTables, Backend::Legacy] {
        // Asking legacy's tools for rules makes the tables that they would be in.
        if backend == Backend::Legacy && !has_legacy_tables(family) {
            continue;
        }
        let probe = Probe::untried(&tools, backend).ok();
        let Some(probe) = probe.filter(|probe| probe.families.get(family).is_ok()) else {
            // Of legacy nothing can be seen without its tools; `--cleanup` says so, a running proxy need not again and again.
            if backend == Backend::NfTables {
                outcome.failures.extend(unremovable(family));
            }
            continue;
        };
        match remove_by(&mut LiveKernel::new(probe), family) {
            Ok(removed) => outcome.removed.extend(removed.in_words()),
            Err(error) => outcome.failures.push(error.into()),
        }
    }
}

/// Rules of iptables mode in `nf_tables`, which can be seen where there are no tools to remove them with.
pub(crate) fn unremovable(family: Family) -> Option<LeftoverError> {
    match has_any_chain(family) {
        Ok(false) => None,
        Ok(true) => Some(LeftoverError::NoTools { family }),
        Err(source) => Some(LeftoverError::Thing {
            what: format!("rules of iptables mode ({family})"),
            source,
        }),
    }
}

/// Whether a chain of kube-proxy's alone is there: somebody may have taken out some of them.
fn has_any_chain(family: Family) -> Result<bool, SocketError> {
    for chain in StaticChain::ALL {
        for table in chain.tables() {
            let is_ours = owner_of(*table, chain.as_str()) == Owner::Ours;
            if is_ours && has_chain(family, *table, &chain.name())? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// A packet that these rules have marked is still to get its source rewritten by them, since the mark need not be this
/// mode's. So nothing enters them for a moment before they go.
fn remove_by(kernel: &mut impl RuleKernel, family: Family) -> Result<Removed, CleanupError> {
    let names = ENTRANCES.map(|name| ChainName::new(name).expect("invariant: a good name"));
    let entrances = Scope::Chains(TableName::Nat, names.into());
    let jumps = cleanup::remove(kernel, family, &[entrances], is_left)?;
    if !jumps.is_empty() {
        std::thread::sleep(ON_THE_WAY);
    }
    let rest = cleanup::remove(kernel, family, &[Scope::Everything], is_left)?;
    Ok(jumps.and(rest))
}

fn is_left(table: TableName, chain: &str) -> bool {
    owner_of(table, chain) == Owner::Ours || is_ipvs_modes(table, chain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::FakeKernel;

    const HELD: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n\
        :KUBE-SERVICES - [0:0]\n:KUBE-POSTROUTING - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n:MINE - [0:0]\n\
        -A PREROUTING -j KUBE-SERVICES\n-A PREROUTING -j MINE\n-A OUTPUT -j KUBE-SERVICES\n\
        -A POSTROUTING -j KUBE-POSTROUTING\n-A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-MARK-MASQ\nCOMMIT\n";

    #[test]
    fn nothing_of_iptables_mode_is_left_and_a_strangers_chain_is_as_it_was() {
        for backend in [Backend::NfTables, Backend::Legacy] {
            let mut kernel = FakeKernel::new(backend);
            kernel.load(Family::V4, iptables::parse::save(HELD, Family::V4).ruleset);
            let removed = remove_by(&mut kernel, Family::V4).expect("nobody holds on to it");
            assert!(
                removed.in_words().contains(&"3 jumps to these".to_owned()),
                "{removed:?}"
            );
            let nat = &kernel.ruleset(Family::V4).tables[&TableName::Nat];
            let left: Vec<&str> = nat.chains.keys().map(ChainName::as_str).collect();
            assert!(
                left.contains(&"MINE") && !left.iter().any(|name| name.starts_with("KUBE-")),
                "{left:?}"
            );
            let prerouting = &nat.chains[&ChainName::new("PREROUTING").expect("a good name")];
            assert_eq!(prerouting.rules.len(), 1);
        }
    }
}
