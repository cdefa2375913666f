//! What the API server said, remembered on disk between the source and the loop (ADR 38).

use crate::{Out, ProxyOptions, Task};
use cluster::api::Source;
use cluster::state::{Keeper, KernelRules, StateOptions, StateTiming};
use iptables::ast::{TableName, Target};
use iptables::names::StaticChain;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{LiveKernel, NftTable, ObserveError, RuleKernel, Scope, SocketError};
use model::Family;
use nftables::step::{Observation, Reading};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::mpsc::channel;

/// Where to remember, and how long it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFolder {
    /// `--state-dir`.
    pub folder: PathBuf,
    /// `--state-max-age`.
    pub max_age: Duration,
}

/// Events between the source and the memory.
const AHEAD: usize = 64;

/// The API server as a source, with a memory if one is wanted.
pub(crate) async fn of(options: &ProxyOptions, source: Source) -> Box<dyn FnOnce(Out) -> Task + Send> {
    let Some(state) = options.state.clone() else {
        return Box::new(move |out| Box::pin(source.run(out)));
    };
    let keeper = Keeper::new(
        StateOptions {
            folder: state.folder,
            max_age: state.max_age,
            node_name: options.node_name.clone(),
            identity: source.identity().await,
            timing: StateTiming::default(),
        },
        rules_of(&options.config.mode),
    );
    Box::new(move |out| {
        Box::pin(async move {
            let (said, heard) = channel(AHEAD);
            tokio::join!(source.run(said), keeper.run(heard, out));
        })
    })
}

/// What asks whether the kernel has rules for services, those of the other mode included, which go when this one serves.
/// If nobody can tell, they are left alone.
pub(crate) fn rules_of(mode: &str) -> fn() -> KernelRules {
    if mode == "nftables" {
        || match own_table_serves() {
            Ok(false) => tools_rules().unwrap_or(KernelRules::Absent),
            Ok(true) | Err(_) => KernelRules::Present,
        }
    } else {
        || match own_table_serves() {
            Ok(true) => KernelRules::Present,
            // Old kernels have no nf_tables.
            Ok(false) | Err(_) => tools_rules().unwrap_or(KernelRules::Present),
        }
    }
}

/// Whether a table of nftables mode has anything in it.
fn own_table_serves() -> Result<bool, SocketError> {
    for family in Family::ALL {
        let seen = NftTable::new(family)?.observe(&Reading::Everything)?;
        if matches!(seen, Observation::Everything(Some(seen)) if !seen.elements.is_empty()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The same of iptables mode; `None` without tools.
fn tools_rules() -> Option<KernelRules> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect).ok()?;
    let mut kernel = LiveKernel::new(probe.clone());
    for family in Family::ALL {
        if probe.families.get(family).is_err() {
            continue;
        }
        match has_services(&mut kernel, family) {
            Ok(false) => {}
            Ok(true) => return Some(KernelRules::Present),
            Err(error) => {
                tracing::debug!(%family, %error, "whether there are rules is not known");
                return Some(KernelRules::Present);
            }
        }
    }
    Some(KernelRules::Absent)
}

/// Whether anything is dispatched to a service. The jump to node ports is there without any.
fn has_services(kernel: &mut impl RuleKernel, family: Family) -> Result<bool, ObserveError> {
    let scope = Scope::Chains(TableName::Nat, BTreeSet::from([StaticChain::Services.name()]));
    let node_ports = StaticChain::NodePorts.name();
    let mut found = false;
    kernel.observe(family, &scope, &mut |_, _, chain| {
        found |= chain.rules.iter().any(|rule| match &rule.target {
            Target::Jump(to) | Target::Goto(to) => *to != node_ports,
            _ => false,
        });
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{Backend, FakeKernel};

    fn has(rules: &str) -> bool {
        let text = format!(
            "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-NODEPORTS - [0:0]\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n{rules}COMMIT\n"
        );
        let mut kernel = FakeKernel::new(Backend::NfTables);
        kernel.load(Family::V4, iptables::parse::save(&text, Family::V4).ruleset);
        has_services(&mut kernel, Family::V4).expect("the fake kernel is whole")
    }

    #[test]
    fn a_kernel_is_dark_without_a_rule_that_leads_to_a_service() {
        let tail = "-A KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n";
        let service =
            "-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 53 -j KUBE-SVC-AAAAAAAAAAAAAAAA\n";
        assert!(!has(""));
        assert!(!has(tail));
        assert!(has(service));
        assert!(has(&format!("{service}{tail}")));
    }

    #[test]
    fn a_kernel_without_any_table_is_dark() {
        let mut kernel = FakeKernel::new(Backend::NfTables);
        assert!(!has_services(&mut kernel, Family::V6).expect("the fake kernel is whole"));
    }
}
