//! `--cleanup`: takes out exactly what kube-proxy wrote, from both backends and both families.

use iptables::ast::{Chain, ChainName, TableName, Target};
use iptables::names::{Owner, owner_of};
use iptables::plan::Step;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, CommitError, LiveKernel, ObserveError, RuleKernel, Scope};
use model::Family;

/// Why rules stay.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// They could not be read.
    #[error("{backend}, {family}: the rules cannot be read")]
    Unread {
        /// Whose.
        backend: Backend,
        /// Of which family.
        family: Family,
        /// Why not.
        #[source]
        source: ObserveError,
    },
    /// They could not be removed.
    #[error("{backend}, {family}: the rules cannot be removed")]
    Unremoved {
        /// Whose.
        backend: Backend,
        /// Of which family.
        family: Family,
        /// Why not.
        #[source]
        source: CommitError,
    },
}

/// Removes kube-proxy's chains and the jumps to them. Chains of the kubelet and of others stay, with what is in them.
///
/// A backend without tools has no rules that could be seen, and is no failure.
pub fn clean_up() -> Vec<CleanupError> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let mut failures = Vec::new();
    for backend in [Backend::NfTables, Backend::Legacy] {
        let Ok(probe) = Probe::new(&tools, Choice::Use(backend)) else {
            tracing::info!(%backend, "no tools of this backend, nothing to remove");
            continue;
        };
        let families = probe.families.clone();
        let mut kernel = LiveKernel::new(probe);
        for family in Family::ALL {
            if let Err(reason) = families.get(family) {
                tracing::info!(%backend, %family, %reason, "nothing to remove");
                continue;
            }
            match remove(&mut kernel, family) {
                Ok(0) => tracing::info!(%backend, %family, "there were no rules of kube-proxy"),
                Ok(chains) => tracing::info!(%backend, %family, chains, "rules of kube-proxy removed"),
                Err(failure) => failures.push(failure),
            }
        }
    }
    failures
}

/// Removes what is ours from one family; how many chains that were.
fn remove(kernel: &mut impl RuleKernel, family: Family) -> Result<usize, CleanupError> {
    let backend = kernel.backend();
    let mut step = Step::default();
    let mut note = |table, name, chain| take(&mut step, table, name, chain);
    kernel
        .observe(family, &Scope::Everything, &mut note)
        .map_err(|source| CleanupError::Unread {
            backend,
            family,
            source,
        })?;
    if step == Step::default() {
        return Ok(0);
    }
    kernel
        .commit(family, &step)
        .map_err(|source| CleanupError::Unremoved {
            backend,
            family,
            source,
        })?;
    Ok(step.retire.len())
}

/// A chain of ours goes whole; of another chain, the jumps to ours go. Whatever version wrote them: nobody else's chain has
/// such a name.
fn take(step: &mut Step, table: TableName, name: ChainName, chain: Chain) {
    if owner_of(table, name.as_str()) == Owner::Ours {
        step.retire.push((table, name));
        return;
    }
    // The policy tells a built-in chain. Chains of others keep even their jumps.
    if chain.policy.is_none() {
        return;
    }
    for rule in chain.rules {
        let to_ours = matches!(&rule.target, Target::Jump(to) if owner_of(table, to.as_str()) == Owner::Ours);
        if to_ours {
            step.delete.push((table, name.clone(), rule));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iptables::ast::Policy;

    fn chain(name: &str) -> ChainName {
        ChainName::new(name).unwrap()
    }

    fn jump(to: &str) -> iptables::ast::Rule {
        iptables::ast::Rule::new(Target::Jump(chain(to)))
    }

    fn builtin(rules: Vec<iptables::ast::Rule>) -> Chain {
        Chain {
            policy: Some(Policy::Accept),
            rules,
        }
    }

    #[test]
    fn jumps_to_ours_go_and_the_kubelets_and_others_stay() {
        let mut step = Step::default();
        let rules = vec![jump("KUBE-FIREWALL"), jump("KUBE-SERVICES"), jump("CNI-FORWARD")];
        take(&mut step, TableName::Filter, chain("INPUT"), builtin(rules));
        for name in [
            "KUBE-FIREWALL",
            "KUBE-SERVICES",
            "KUBE-KUBELET-CANARY",
            "CNI-FORWARD",
            "KUBE-SVC-X",
        ] {
            take(&mut step, TableName::Filter, chain(name), Chain::default());
        }
        assert_eq!(step.retire, [(TableName::Filter, chain("KUBE-SERVICES"))]);
        assert_eq!(
            step.delete,
            [(TableName::Filter, chain("INPUT"), jump("KUBE-SERVICES"))]
        );
    }
}
