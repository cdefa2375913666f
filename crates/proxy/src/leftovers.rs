//! What other modes of kube-proxy left: it goes after this mode's rules are in, never before (ADR 41, 51).
//!
//! * nftables mode: a table of its own for each family.
//! * iptables mode: its chains, on both backends.
//! * ipvs mode: chains that iptables mode has not, ipsets, an interface that holds service addresses, and the virtual
//!   servers at these addresses. Chains that both modes have are adopted by the engine like any leftover.

pub(crate) mod iptables_mode;

use crate::start::cleanup::{self, CleanupError};
use crate::thread::{self, ThreadError};
use engine::{Engine, Item};
use iptables::ast::{ChainName, TableName};
use iptables::names::{OF_IPVS_MODE, is_ipvs_modes};
use kernel::leftovers::{
    LinkError, Removal, SET_NAME_LIMIT, addresses_of, destroy_set, empty_chains, remove_link, remove_table,
    remove_virtual_servers,
};
use kernel::legacy_trace::{self, LegacyTraceError};
use kernel::probe::Probe;
use kernel::{FailureKind, LiveKernel, RuleKernel, Scope, SocketError};
use model::{Family, PerFamily};
use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// nftables mode's table, in both families.
const TABLE: &str = "kube-proxy";

/// The chains of that table in which packets get an endpoint and a mark, upstream's and ours.
const ENTRANCES: [&str; 2] = ["nat-prerouting", "nat-output"];

/// How long a packet may be on its way between the chain that marks it and the one that rewrites its source.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// ipvs mode's interface, and its type.
const INTERFACE: (&str, &str) = ("kube-ipvs0", "dummy");

/// ipvs mode's ipsets for IPv4, behind `KUBE-`.
const SETS: [&str; 17] = [
    "LOOP-BACK",
    "CLUSTER-IP",
    "EXTERNAL-IP",
    "EXTERNAL-IP-LOCAL",
    "LOAD-BALANCER",
    "LOAD-BALANCER-LOCAL",
    "LOAD-BALANCER-FW",
    "LOAD-BALANCER-SOURCE-CIDR",
    "LOAD-BALANCER-SOURCE-IP",
    "NODE-PORT-TCP",
    "NODE-PORT-LOCAL-TCP",
    "NODE-PORT-UDP",
    "NODE-PORT-LOCAL-UDP",
    "NODE-PORT-SCTP-HASH",
    "NODE-PORT-LOCAL-SCTP-HASH",
    "HEALTH-CHECK-NODE-PORT",
    "IPVS-IPS",
];

/// After a failure.
const PAUSE: Duration = Duration::from_mins(1);

/// The whole name of a set, which the kernel limits.
fn set_name(family: Family, name: &str) -> String {
    let prefix = match family {
        Family::V4 => "KUBE-",
        Family::V6 => "KUBE-6-",
    };
    let mut whole = format!("{prefix}{name}");
    whole.truncate(SET_NAME_LIMIT);
    whole
}

/// Why something that another mode left stays.
#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    /// Its rules.
    #[error(transparent)]
    Rules(#[from] CleanupError),
    /// One thing of the kernel's.
    #[error("{what}: could not be looked for, or not removed")]
    Thing {
        /// Which.
        what: String,
        /// Why.
        #[source]
        source: SocketError,
    },
    /// Rules of iptables mode, where there is nothing to remove them with.
    #[error(
        "{family}: rules of iptables mode are in nf_tables, and this host has no iptables-nft to remove them; run kube-proxy --cleanup where there is"
    )]
    NoTools {
        /// Of which family.
        family: Family,
    },
    /// Tables of legacy, where there is nothing to look into them with.
    #[error(
        "{family}: the kernel has tables of iptables-legacy, and this host has no iptables-legacy that works to look for kube-proxy's rules there; run kube-proxy --cleanup where there is"
    )]
    Unseen {
        /// Of which family.
        family: Family,
    },
    /// The interface.
    #[error("the interface stays")]
    Interface(#[source] LinkError),
    /// Rules that ask for traces.
    #[error(
        "rules of a trace --live that was killed, with its watchdog, may stay in table raw of iptables-legacy"
    )]
    Trace(#[source] LegacyTraceError),
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What was removed, in words.
    pub(crate) removed: Vec<String>,
    /// What stays.
    pub(crate) failures: Vec<LeftoverError>,
}

impl Outcome {
    fn note(&mut self, what: String, outcome: Result<Removal, SocketError>) {
        match outcome {
            Ok(Removal::Removed) => self.removed.push(what),
            Ok(Removal::NotThere) => {}
            Err(source) => self.failures.push(LeftoverError::Thing { what, source }),
        }
    }

    /// Says in the log what was removed.
    pub(crate) fn tell(&self) {
        if !self.removed.is_empty() {
            tracing::info!(what = %self.removed.join(", "), "removed what another mode of kube-proxy left");
        }
    }
}

/// Removes nftables mode's table of a family.
pub(crate) fn table(family: Family, outcome: &mut Outcome) {
    let word = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    outcome.note(
        format!("nftables table {word} {TABLE}"),
        remove_table(family, TABLE),
    );
}

/// The same under traffic: a packet that the table has marked is still to get its source rewritten there, since the mark
/// need not be this mode's. So nothing enters it for a moment before it goes.
fn table_under_traffic(family: Family, outcome: &mut Outcome) {
    // Where it cannot be emptied, whoever tries to remove it says why.
    if let Ok(Removal::Removed) = empty_chains(family, TABLE, &ENTRANCES) {
        std::thread::sleep(ON_THE_WAY);
    }
    table(family, outcome);
}

/// Removes ipvs mode's sets of a family. Rules that name them must have gone.
pub(crate) fn sets(family: Family, outcome: &mut Outcome) {
    for name in SETS {
        let name = set_name(family, name);
        match destroy_set(&name) {
            // Who may not remove one may remove none.
            Err(source) if source.kind() == FailureKind::Denied => {
                let what = format!("ipsets {}…", set_name(family, ""));
                outcome.failures.push(LeftoverError::Thing { what, source });
                return;
            }
            other => outcome.note(format!("ipset {name}"), other),
        }
    }
}

/// Removes ipvs mode's interface and the virtual servers at its addresses; servers elsewhere may be anybody's.
pub(crate) fn interface(outcome: &mut Outcome) {
    let (name, kind) = INTERFACE;
    let servers = addresses_of(name).and_then(|at| remove_virtual_servers(&at));
    match servers {
        Ok(servers) if servers.is_empty() => {}
        Ok(servers) => outcome.removed.push(format!(
            "{} IPVS virtual servers at addresses of {name}",
            servers.len()
        )),
        Err(source) => {
            // Without the interface nobody could tell any more whose servers they are.
            let what = format!("interface {name}, with the IPVS virtual servers at its addresses,");
            outcome.failures.push(LeftoverError::Thing { what, source });
            return;
        }
    }
    match remove_link(name, kind) {
        Ok(Removal::Removed) => outcome.removed.push(format!("interface {name}")),
        Ok(Removal::NotThere) => {}
        Err(error) => outcome.failures.push(LeftoverError::Interface(error)),
    }
}

/// Removes what a `trace --live` in legacy left that was killed together with its watchdog (ADR 64).
pub(crate) fn traces(outcome: &mut Outcome) {
    match legacy_trace::clean_up() {
        Ok(all) => outcome.removed.extend(
            all.iter()
                .map(|left| format!("rules of trace --live in table raw ({})", left.family)),
        ),
        Err(error) => outcome.failures.push(LeftoverError::Trace(error)),
    }
}

/// Removes ipvs mode's own chains and the jumps to them.
fn chains(kernel: &mut impl RuleKernel, family: Family, outcome: &mut Outcome) {
    match cleanup::remove(kernel, family, &scopes(), is_ipvs_modes) {
        Ok(removed) => outcome.removed.extend(removed.in_words()),
        Err(error) => outcome.failures.push(error.into()),
    }
}

/// Where these chains and their jumps are.
fn scopes() -> Vec<Scope> {
    let scope = |table: TableName| {
        let own = OF_IPVS_MODE.iter().filter(|(of, _)| *of == table);
        let names = own.map(|(_, name)| *name).chain(table.built_in().iter().copied());
        let names = names.map(|name| ChainName::new(name).expect("invariant: these are good names"));
        Scope::Chains(table, names.collect())
    };
    vec![scope(TableName::Nat), scope(TableName::Filter)]
}

/// Starts the removal when the rules of a family are in.
pub(crate) struct Leftovers {
    out: Sender<Family>,
    waiting: BTreeSet<Family>,
}

impl Leftovers {
    /// In iptables mode: nftables mode's table goes, and what ipvs mode alone has. Nothing is touched yet.
    pub(crate) fn beside_iptables_mode(
        probe: &Probe,
        served: PerFamily<bool>,
    ) -> Result<Leftovers, ThreadError> {
        let mut kernel = LiveKernel::new(probe.clone());
        Leftovers::start(served, move |family| {
            let mut outcome = Outcome::default();
            table_under_traffic(family, &mut outcome);
            chains(&mut kernel, family, &mut outcome);
            sets(family, &mut outcome);
            outcome
        })
    }

    /// In nftables mode: all that iptables mode and ipvs mode write goes, on both backends. Nothing is touched yet.
    pub(crate) fn beside_nftables_mode(served: PerFamily<bool>) -> Result<Leftovers, ThreadError> {
        Leftovers::start(served, |family| {
            let mut outcome = Outcome::default();
            iptables_mode::remove(family, &mut outcome);
            sets(family, &mut outcome);
            outcome
        })
    }

    fn start(
        served: PerFamily<bool>,
        remove_of: impl FnMut(Family) -> Outcome + Send + 'static,
    ) -> Result<Leftovers, ThreadError> {
        let (out, synced) = channel();
        let waiting: BTreeSet<Family> = Family::ALL
            .into_iter()
            .filter(|family| *served.get(*family))
            .collect();
        let all = waiting.clone();
        thread::start("leftovers", move || work(remove_of, &all, &synced))?;
        Ok(Leftovers { out, waiting })
    }

    /// Looks whether the rules of a family are in for the first time, each turn of the loop.
    pub(crate) fn look(&mut self, engine: &Engine) {
        let out = &self.out;
        self.waiting.retain(|family| {
            let ready = is_in(engine, *family);
            // A thread that has ended has nothing left to do.
            ready.then(|| out.send(*family).ok());
            !ready
        });
    }
}

/// Whether a family's rules serve: all that the kernel takes is in, and that is most of it. Were nearly everything
/// refused, what the other mode left would be better than nothing.
fn is_in(engine: &Engine, family: Family) -> bool {
    let full = engine.status(family).and_then(|status| status.last_full_sync);
    if full.is_none() {
        return false;
    }
    let mut refused = 0;
    for item in engine.refused(family) {
        match item {
            Item::Node => return false,
            Item::Service(_) => refused += 1,
            Item::Sweep => {}
        }
    }
    refused == 0 || refused * 2 < engine.snapshot().services().count()
}

/// Removes a family's leftovers when it is told that its rules are in, and what both families share at the end.
fn work(mut remove_of: impl FnMut(Family) -> Outcome, all: &BTreeSet<Family>, synced: &Receiver<Family>) {
    let mut told = Told::default();
    let mut due = BTreeSet::new();
    let mut done = BTreeSet::new();
    loop {
        match synced.recv_timeout(PAUSE) {
            Ok(family) => drop(due.insert(family)),
            Err(RecvTimeoutError::Timeout) => {}
            // The proxy ends.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        due.retain(|family| {
            let clean = told.tell(&remove_of(*family));
            if clean {
                done.insert(*family);
            }
            !clean
        });
        if done != *all {
            continue;
        }
        let mut outcome = Outcome::default();
        interface(&mut outcome);
        if told.tell(&outcome) {
            return;
        }
    }
}

/// What was told already, so that a failure that repeats is told once.
#[derive(Default)]
struct Told(BTreeSet<String>);

impl Told {
    /// Says whether nothing is left.
    fn tell(&mut self, outcome: &Outcome) -> bool {
        outcome.tell();
        for failure in &outcome.failures {
            let line = cluster::chain(failure);
            if self.0.insert(line.clone()) {
                tracing::warn!(reason = %line, "what another mode of kube-proxy left cannot be removed; trying again");
            }
        }
        outcome.failures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ipv6_sets_are_cut_as_ipvs_mode_cuts_them() {
        let names: Vec<String> = SETS.iter().map(|name| set_name(Family::V6, name)).collect();
        assert!(names.iter().any(|name| name == "KUBE-6-LOAD-BALANCER-SOURCE-CID"));
        assert!(names.iter().any(|name| name == "KUBE-6-NODE-PORT-LOCAL-SCTP-HAS"));
        assert!(names.iter().any(|name| name == "KUBE-6-IPVS-IPS"));
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), SETS.len());
    }
}
