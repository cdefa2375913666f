//! `--cleanup`: takes out exactly what kube-proxy wrote, of every mode, from both backends and both families.

use crate::leftovers::{self, LeftoverError, Outcome, iptables_mode};
use iptables::ast::{Chain, ChainName, Rule, TableName, Target};
use iptables::names::{OwnChain, Owner, is_ipvs_modes, is_services, owner_of};
use iptables::plan::Step;
use kernel::probe::{Probe, Tools, has_legacy_tables};
use kernel::{Backend, CommitError, LiveKernel, ObserveError, RuleKernel, Scope};
use model::Family;
use std::collections::BTreeMap;

/// Why rules stay.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// They could not be read.
    #[error("{backend}, {family}: the rules cannot be read, so none were removed")]
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
    #[error("{backend}, {family}: {chains} cannot be removed; does somebody else's chain lead there?")]
    Unremoved {
        /// Whose.
        backend: Backend,
        /// Of which family.
        family: Family,
        /// The chains that stay, without rules, or where jumps stay.
        chains: String,
        /// Why not.
        #[source]
        source: CommitError,
    },
}

/// Removes kube-proxy's chains and the jumps to them, and what its other modes leave in the kernel. Chains of the kubelet
/// and of others stay, with what is in them.
///
/// A backend without tools has no rules that could be seen, and is no failure. What fails holds up nothing else.
pub fn clean_up() -> Vec<LeftoverError> {
    let mut outcome = Outcome::default();
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    for backend in [Backend::NfTables, Backend::Legacy] {
        clean_up_backend(&tools, backend, &mut outcome);
    }
    for family in Family::ALL {
        leftovers::table(family, &mut outcome);
        leftovers::sets(family, &mut outcome);
    }
    leftovers::interface(&mut outcome);
    leftovers::traces(&mut outcome);
    outcome.tell();
    outcome.failures
}

fn clean_up_backend(tools: &Tools, backend: Backend, outcome: &mut Outcome) {
    // Tools are not tried: that would make legacy's tables where there are none.
    let kernel = Probe::untried(tools, backend).map(LiveKernel::new);
    let mut kernel = kernel.ok();
    for family in Family::ALL {
        let by_tools = kernel
            .as_mut()
            .filter(|kernel| kernel.probe().families.get(family).is_ok());
        let Some(kernel) = by_tools else {
            let failure = match backend {
                Backend::NfTables => iptables_mode::unremovable(family),
                Backend::Legacy => has_legacy_tables(family).then_some(LeftoverError::Unseen { family }),
            };
            if failure.is_none() {
                tracing::info!(%backend, %family, "no tools of this backend, nothing to remove");
            }
            outcome.failures.extend(failure);
            continue;
        };
        let ours = |table, chain: &str| owner_of(table, chain) == Owner::Ours || is_ipvs_modes(table, chain);
        match remove(kernel, family, &[Scope::Everything], ours) {
            Ok(removed) if removed.is_empty() => {
                tracing::info!(%backend, %family, "there were no rules of kube-proxy");
            }
            Ok(removed) => {
                let what = removed.in_words().join(", ");
                tracing::info!(%backend, %family, %what, "rules of kube-proxy removed");
            }
            Err(failure) => outcome.failures.push(failure.into()),
        }
    }
}

/// Chains and jumps that were removed.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    jumps: usize,
    chains: Vec<(TableName, ChainName)>,
}

impl Removed {
    /// Whether there was nothing to remove.
    pub(crate) fn is_empty(&self) -> bool {
        self.jumps == 0 && self.chains.is_empty()
    }

    /// Both of them, as one removal.
    pub(crate) fn and(mut self, other: Removed) -> Removed {
        self.jumps += other.jumps;
        self.chains.extend(other.chains);
        self
    }

    /// What it was: chains that exist once by name, the others by kind and number.
    pub(crate) fn in_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for (table, chain) in &self.chains {
            match OwnChain::of(chain.as_str()).filter(|_| is_services(*table, chain.as_str())) {
                Some(kind) => *kinds.entry(kind.prefix()).or_default() += 1,
                None => words.push(format!("{table} chain {chain}")),
            }
        }
        words.extend(
            kinds
                .into_iter()
                .map(|(prefix, count)| format!("{count} chains {prefix}…")),
        );
        if self.jumps > 0 {
            words.push(format!("{} jumps to these", self.jumps));
        }
        words
    }
}

/// Removes the chains in scope that are `ours` by table and name, and the jumps to them from built-in chains.
pub(crate) fn remove(
    kernel: &mut impl RuleKernel,
    family: Family,
    scopes: &[Scope],
    ours: impl Fn(TableName, &str) -> bool,
) -> Result<Removed, CleanupError> {
    let backend = kernel.backend();
    let mut step = Step::default();
    let mut note = |table, name, chain| take(&mut step, &ours, table, name, chain);
    for scope in scopes {
        let seen = kernel.observe(family, scope, &mut note);
        seen.map_err(|source| CleanupError::Unread {
            backend,
            family,
            source,
        })?;
    }
    let removed = Removed {
        jumps: step.delete.len(),
        chains: step.retire.clone(),
    };
    if removed.is_empty() || kernel.commit(family, &step).is_ok() {
        return Ok(removed);
    }
    match remove_in_parts(kernel, family, &step) {
        None => Ok(removed),
        Some((left, source)) => Err(CleanupError::Unremoved {
            backend,
            family,
            chains: left.join(", "),
            source,
        }),
    }
}

/// When all of it together is refused: what has to stay, and the last reason.
///
/// Everything is emptied first, so that no chain stays only because another one of ours leads to it.
fn remove_in_parts(
    kernel: &mut impl RuleKernel,
    family: Family,
    step: &Step,
) -> Option<(Vec<String>, CommitError)> {
    let mut left = Vec::new();
    let mut reason = None;
    let mut attempt = |part: &Step| kernel.commit(family, part).map_err(|error| reason = Some(error));
    for jump in &step.delete {
        let part = Step {
            delete: vec![jump.clone()],
            ..Step::default()
        };
        if attempt(&part).is_err() {
            left.push(format!("a jump in {} {}", jump.0, jump.1));
        }
    }
    let mut empty = Step::default();
    for (table, chain) in &step.retire {
        let write = empty.write.entry(*table).or_default();
        write.chains.insert(chain.clone(), Vec::new());
    }
    // If this is refused, so is what follows, and tells of it.
    let _ = attempt(&empty);
    let mut parts = vec![step.retire.as_slice()];
    while let Some(retire) = parts.pop() {
        let part = Step {
            retire: retire.to_vec(),
            ..Step::default()
        };
        if retire.is_empty() || attempt(&part).is_ok() {
            continue;
        }
        match retire {
            [(table, chain)] => left.push(format!("{table} chain {chain}")),
            many => {
                let (one, other) = many.split_at(many.len() / 2);
                parts.extend([one, other]);
            }
        }
    }
    if left.is_empty() {
        return None;
    }
    reason.map(|reason| (left, reason))
}

/// A chain of ours goes whole; of another chain, the jumps to ours go. Whatever version wrote them: nobody else's chain has
/// such a name.
fn take(
    step: &mut Step,
    ours: &impl Fn(TableName, &str) -> bool,
    table: TableName,
    name: ChainName,
    chain: Chain,
) {
    if ours(table, name.as_str()) {
        step.retire.push((table, name));
        return;
    }
    // The policy tells a built-in chain. Chains of others keep even their jumps.
    if chain.policy.is_none() {
        return;
    }
    let to_ours = |rule: &Rule| matches!(&rule.target, Target::Jump(to) if ours(table, to.as_str()));
    for rule in chain.rules.into_iter().filter(to_ours) {
        step.delete.push((table, name.clone(), rule));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iptables::ast::Policy;
    use kernel::FakeKernel;

    fn is_ours(table: TableName, chain: &str) -> bool {
        owner_of(table, chain) == Owner::Ours
    }

    fn chain(name: &str) -> ChainName {
        ChainName::new(name).unwrap()
    }

    fn jump(to: &str) -> Rule {
        Rule::new(Target::Jump(chain(to)))
    }

    fn builtin(rules: Vec<Rule>) -> Chain {
        Chain {
            policy: Some(Policy::Accept),
            rules,
        }
    }

    #[test]
    fn jumps_to_ours_go_and_the_kubelets_and_others_stay() {
        let mut step = Step::default();
        let rules = vec![jump("KUBE-FIREWALL"), jump("KUBE-SERVICES"), jump("CNI-FORWARD")];
        take(
            &mut step,
            &is_ours,
            TableName::Filter,
            chain("INPUT"),
            builtin(rules),
        );
        for name in [
            "KUBE-FIREWALL",
            "KUBE-SERVICES",
            "KUBE-KUBELET-CANARY",
            "CNI-FORWARD",
            "KUBE-SVC-X",
        ] {
            take(
                &mut step,
                &is_ours,
                TableName::Filter,
                chain(name),
                Chain::default(),
            );
        }
        assert_eq!(step.retire, [(TableName::Filter, chain("KUBE-SERVICES"))]);
        assert_eq!(
            step.delete,
            [(TableName::Filter, chain("INPUT"), jump("KUBE-SERVICES"))]
        );
    }

    const HELD: &str = "*nat\n:OUTPUT ACCEPT [0:0]\n:MINE - [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n\
        :KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\n\
        -A OUTPUT -j KUBE-SERVICES\n-A MINE -j KUBE-MARK-MASQ\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n\
        -A KUBE-SERVICES -d 10.96.0.1/32 -j KUBE-SVC-AAAAAAAAAAAAAAAA\n\
        -A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA\nCOMMIT\n";

    /// One chain that a stranger's rule leads to holds up no other one.
    #[test]
    fn what_has_to_stay_is_named_and_everything_else_goes() {
        for backend in [Backend::NfTables, Backend::Legacy] {
            let mut kernel = FakeKernel::new(backend);
            kernel.load(Family::V4, iptables::parse::save(HELD, Family::V4).ruleset);
            let error = remove(&mut kernel, Family::V4, &[Scope::Everything], is_ours).unwrap_err();
            assert!(
                error.to_string().contains("nat chain KUBE-MARK-MASQ cannot"),
                "{error}"
            );
            let nat = &kernel.ruleset(Family::V4).tables[&TableName::Nat];
            let left: Vec<&str> = nat.chains.keys().map(ChainName::as_str).collect();
            let left: Vec<&str> = left
                .into_iter()
                .filter(|name| !TableName::Nat.built_in().contains(name))
                .collect();
            assert_eq!(left, ["KUBE-MARK-MASQ", "MINE"], "{backend}");
            assert_eq!(nat.chains[&chain("MINE")].rules, [jump("KUBE-MARK-MASQ")]);
            assert_eq!(nat.chains[&chain("OUTPUT")].rules, []);
        }
    }

    #[test]
    fn what_was_removed_is_said_by_name_or_by_number() {
        let removed = Removed {
            jumps: 2,
            chains: ["KUBE-SERVICES", "KUBE-SVC-A", "KUBE-SVC-B"]
                .map(|name| (TableName::Nat, chain(name)))
                .to_vec(),
        };
        let want = [
            "nat chain KUBE-SERVICES",
            "2 chains KUBE-SVC-…",
            "2 jumps to these",
        ];
        assert_eq!(removed.in_words(), want);
    }
}
