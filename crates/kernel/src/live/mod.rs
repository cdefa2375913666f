//! The kernel of this network namespace.
//!
//! On `nf_tables`, rules go in by `iptables-nft-restore` and everything else by netlink: reading, deleting rules by
//! handle, retiring chains. On legacy, all of it is `iptables-legacy-restore` and `iptables-legacy-save`.

mod counters;
mod legacy;
mod observe;
mod settle;

pub use counters::RuleCount;

use crate::probe::{FamilyTools, Probe, Tool};
use crate::process::LITTLE;
use crate::socket::{Socket, SocketError};
use crate::{
    Backend, ChainSink, CommitError, FailedInputs, FailureKind, ObserveError, RuleKernel, Scope, classify,
    guard, nft,
};
use iptables::plan::Step;
use iptables::render::{StepText, Tool as Reader};
use model::Family;
use netlink::nft::Change;
use std::time::Duration;

/// When a tool is killed. A restore or a save of a large legacy table on a busy host takes minutes (performance.md);
/// nothing takes longer and still makes sense to wait for.
pub const LONGEST_CALL: Duration = Duration::from_mins(5);

/// iptables rules of this network namespace.
pub struct LiveKernel {
    probe: Probe,
    /// Opened when first needed, and anew after a failure.
    socket: Option<Socket>,
    failed: FailedInputs,
}

impl LiveKernel {
    /// A kernel that is reached with what was found.
    pub fn new(probe: Probe) -> LiveKernel {
        LiveKernel {
            probe,
            socket: None,
            failed: FailedInputs::default(),
        }
    }

    /// The same, which keeps there what failing restores were given.
    #[must_use]
    pub fn keeping(mut self, failed: FailedInputs) -> LiveKernel {
        self.failed = failed;
        self
    }

    /// What was found.
    pub fn probe(&self) -> &Probe {
        &self.probe
    }

    /// The netlink port of this process's own deletions: notifications that carry it are ours.
    ///
    /// # Errors
    /// When there is no netlink socket to be had.
    pub fn netlink_port(&mut self) -> Result<u32, SocketError> {
        self.with_socket(|socket| Ok(socket.port()))
    }

    fn tools(&self, family: Family) -> Result<&FamilyTools, Missing> {
        self.probe
            .families
            .get(family)
            .as_ref()
            .map_err(|error| Missing(error.to_string()))
    }

    fn with_socket<T>(
        &mut self,
        work: impl FnOnce(&mut Socket) -> Result<T, SocketError>,
    ) -> Result<T, SocketError> {
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => Socket::netfilter()?,
        };
        let outcome = work(&mut socket);
        // After anything but a plain refusal, answers may still be under way: better a new socket.
        if matches!(outcome, Ok(_) | Err(SocketError::Refused(_))) {
            self.socket = Some(socket);
        }
        outcome
    }

    fn commit_nf_tables(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        let text = StepText {
            step,
            family,
            tool: Reader::NfTables,
        };
        self.make_chains(family, &text)?;
        let text = text.to_string();
        self.restore_and_see(family, &text)
            .map_err(|error| self.kept(family, &text, error))?;
        self.settle(family, step)
    }

    /// Restores, and does not believe in a success after which the kernel is where it was.
    ///
    /// A chain that is emptied may have been empty, but a rule is always something. Another's commit meanwhile hides
    /// that nothing was done; then the next look at the rules finds what is missing.
    fn restore_and_see(&mut self, family: Family, text: &str) -> Result<(), CommitError> {
        if !text.lines().any(|line| line.starts_with('-')) {
            return self.restore(family, text);
        }
        let before = self.generation_now()?;
        self.restore(family, text)?;
        if self.generation_now()? != before {
            return Ok(());
        }
        let tools = self.tools(family).map_err(Missing::for_commit)?;
        Err(CommitError {
            attempted: format!("{} with {} bytes", tools.restore, text.len()),
            kind: FailureKind::NothingDone,
            detail: "it said that all went well, and the kernel's rules are as they were; \
                     is it the iptables of this kernel, in this network namespace?"
                .to_owned(),
        })
    }

    fn generation_now(&mut self) -> Result<u32, CommitError> {
        self.with_socket(nft::generation)
            .map_err(|error| by_netlink("reading the generation of nf_tables", &error))
    }

    /// Keeps what a failing restore was given.
    fn kept(&self, family: Family, text: &str, error: CommitError) -> CommitError {
        self.failed.keep(family, text, &error);
        error
    }

    /// Makes chains that are others' as well, and leaves them alone if they are there.
    fn make_chains(&mut self, family: Family, text: &StepText<'_>) -> Result<(), CommitError> {
        let chains: Vec<_> = text.chains_to_make_first().collect();
        if chains.is_empty() {
            return Ok(());
        }
        let netlink_family = nft::family(family);
        let made = self.with_socket(|socket| {
            let mut batch = socket.batch(None);
            for (table, chain) in &chains {
                batch.push(&Change::NewTable {
                    family: netlink_family,
                    name: table.as_str(),
                    flags: 0,
                })?;
                batch.push(&Change::NewChain {
                    family: netlink_family,
                    table: table.as_str(),
                    name: chain.as_str(),
                    base: None,
                })?;
            }
            socket.commit(batch)
        });
        made.map_err(|error| by_netlink(&format!("making {} {family} chains", chains.len()), &error))
    }

    /// Restores a text; one that asks for nothing is no restore.
    fn restore(&self, family: Family, text: &str) -> Result<(), CommitError> {
        if text.lines().all(|line| line.starts_with('*') || line == "COMMIT") {
            return Ok(());
        }
        let tools = self.tools(family).map_err(Missing::for_commit)?;
        let mut args = tools.restore_wait_flags().to_vec();
        args.push("--noflush");
        self.run(&tools.restore, &args, text, LONGEST_CALL).map(|_| ())
    }

    /// Runs a tool and returns what it printed.
    fn run(&self, tool: &Tool, args: &[&str], input: &str, timeout: Duration) -> Result<String, CommitError> {
        let attempted = || format!("{tool} {} with {} bytes", args.join(" "), input.len());
        let outcome = tool
            .invocation(args, input.as_bytes(), &self.probe.environment, timeout)
            .text(LITTLE);
        match outcome {
            Ok((finished, text)) if finished.succeeded() => Ok(text),
            Ok((finished, _)) => Err(CommitError {
                attempted: attempted(),
                kind: classify::tool_failure(&finished),
                detail: classify::detail(&finished, input),
            }),
            Err(error) => Err(CommitError {
                attempted: attempted(),
                kind: classify::run_failure(&error),
                detail: error.words(),
            }),
        }
    }
}

impl RuleKernel for LiveKernel {
    fn backend(&self) -> Backend {
        self.probe.backend
    }

    fn commit(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        guard::check_step(step)?;
        self.tools(family).map_err(Missing::for_commit)?;
        match self.probe.backend {
            Backend::NfTables => self.commit_nf_tables(family, step),
            Backend::Legacy => self.commit_legacy(family, step),
        }
    }

    fn observe(
        &mut self,
        family: Family,
        scope: &Scope,
        sink: &mut ChainSink<'_>,
    ) -> Result<(), ObserveError> {
        self.tools(family).map_err(Missing::for_observe)?;
        match self.probe.backend {
            Backend::NfTables => self.observe_nf_tables(family, scope, sink),
            Backend::Legacy => self.observe_legacy(family, scope, sink),
        }
    }

    fn generation(&mut self) -> Result<Option<u32>, ObserveError> {
        match self.probe.backend {
            Backend::NfTables => self
                .with_socket(nft::generation)
                .map(Some)
                .map_err(|error| reading("the generation of nf_tables", &error)),
            Backend::Legacy => Ok(None),
        }
    }
}

/// A family without tools.
struct Missing(String);

impl Missing {
    fn for_commit(self) -> CommitError {
        CommitError {
            attempted: "looking for the tools".to_owned(),
            kind: FailureKind::ToolMissing,
            detail: self.0,
        }
    }

    fn for_observe(self) -> ObserveError {
        ObserveError {
            attempted: "looking for the tools".to_owned(),
            kind: FailureKind::ToolMissing,
            detail: self.0,
        }
    }
}

fn by_netlink(attempted: &str, error: &SocketError) -> CommitError {
    CommitError {
        attempted: format!("{attempted} by netlink"),
        kind: error.kind(),
        detail: error.words(),
    }
}

fn reading(what: &str, error: &SocketError) -> ObserveError {
    ObserveError {
        attempted: format!("reading {what} by netlink"),
        kind: error.kind(),
        detail: error.words(),
    }
}
