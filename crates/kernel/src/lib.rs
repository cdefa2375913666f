//! The only crate that runs a tool, opens a netlink socket, reads `/proc` or writes a sysctl.
//!
//! * What it is: one trait, [`RuleKernel`], with a live and a fake implementation that give the same verdicts.
//! * In and out: [`iptables::plan::Step`]s go in; observed chains come out.
//! * What it deliberately does not know: Kubernetes, and when anything should be done.
//! * Where to start reading: [`RuleKernel`].

pub mod addresses;
mod classify;
mod commit_watch;
pub mod conntrack;
mod failed;
pub mod fake;
pub mod follow;
pub mod guard;
pub mod host_firewall;
pub mod host_state;
pub mod ip_sets;
pub mod leftovers;
pub mod legacy_trace;
mod lines;
pub mod links;
pub mod listening;
mod live;
mod losses;
pub mod native;
pub mod nfacct;
mod nft;
mod nft_table;
mod ours;
mod packet_watch;
pub mod passage;
pub mod printed;
pub mod probe;
mod process;
pub mod release;
pub mod routes;
mod rule_watch;
pub mod saved;
pub mod shortage;
mod socket;
pub mod sysctl;
pub mod table_sizes;
mod trace_table;
mod watch;

pub use commit_watch::{CommitWatch, ForeignCommit, Touches};
pub use failed::{FailedInput, FailedInputs};
pub use fake::FakeKernel;
pub use live::{LONGEST_CALL, LiveKernel, RuleCount};
pub use netlink::nflog::StepKind;
pub use netlink::packet::PacketView;
pub use nft_table::{
    ClientSets, CounterTable, Feature, Lack, NftCommitError, NftTable, Refused, TableTouched, TableWatch,
    TouchedExtent,
};
pub use packet_watch::{PacketWatch, rule_handles};
pub use rule_watch::{RuleWatch, Touch, Touched};
pub use socket::SocketError;
pub use trace_table::{Share, TRACE_TABLES, TraceTable, Traced};
pub use watch::{Committed, GenerationWatch, TraceWatch};

use lines::LineSplitter;

use iptables::ast::{Chain, ChainName, Policy, TableName};
use iptables::plan::Step;
use model::Family;
use std::collections::BTreeSet;
use std::fmt;

/// The tables that [`Scope::Everything`] reads, in this order.
pub const OBSERVED_TABLES: [TableName; 3] = [TableName::Mangle, TableName::Filter, TableName::Nat];

/// The accounting objects that kube-proxy's rules may name.
pub const NFACCT_COUNTERS: [&str; 2] = ["ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts"];

/// Which of the two kernel interfaces the iptables tools talk to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// `nf_tables`, by `iptables-nft`.
    NfTables,
    /// `x_tables`, by `iptables-legacy`, under `/run/xtables.lock`.
    Legacy,
}

/// `nf_tables` or `legacy`.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::NfTables => "nf_tables",
            Backend::Legacy => "legacy",
        })
    }
}

/// Which chains to read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every chain of [`OBSERVED_TABLES`], the built-in ones even of a table that nobody has used yet.
    Everything,
    /// These chains of one table. A chain that does not exist is not reported; a built-in one always exists.
    Chains(TableName, BTreeSet<ChainName>),
}

/// Receives what [`RuleKernel::observe`] reads, one chain at a time, so that a large table is never held whole.
pub type ChainSink<'a> = dyn FnMut(TableName, ChainName, Chain) + 'a;

/// The kernel's iptables rules of this network namespace.
pub trait RuleKernel {
    /// Which backend was found, and is used.
    fn backend(&self) -> Backend;

    /// Carries out one step, in its order: the restore, the deletions, the retirements.
    ///
    /// # Errors
    /// The restore is atomic per table; the error says what was attempted and what kind of failure it was.
    fn commit(&mut self, family: Family, step: &Step) -> Result<(), CommitError>;

    /// Reads chains back.
    ///
    /// # Errors
    /// When the tool or the kernel would not say.
    fn observe(
        &mut self,
        family: Family,
        scope: &Scope,
        sink: &mut ChainSink<'_>,
    ) -> Result<(), ObserveError>;

    /// The `nf_tables` generation, which moves with every commit by anyone; `None` on legacy.
    ///
    /// # Errors
    /// When the kernel would not say.
    fn generation(&mut self) -> Result<Option<u32>, ObserveError>;
}

/// What kind of failure it was, decided once, where the tool's answer is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureKind {
    /// The tool is not there.
    ToolMissing,
    /// Not allowed.
    Denied,
    /// The input was refused: syntax, unknown chain, unknown match.
    Refused,
    /// Somebody else holds the lock, or the kernel was busy.
    Busy,
    /// More at once than a socket of ours may send: the same in smaller steps would be taken.
    ///
    /// Without root in the initial user namespace, `iptables-nft-restore` sends at most `net.core.wmem_default` (208 KiB
    /// as a rule) for each table: some 30 services with 10 endpoints.
    TooLarge,
    /// Took too long.
    TimedOut,
    /// The answer could not be read.
    Garbled,
    /// The tool said that all went well, and the kernel took nothing of it.
    NothingDone,
    /// The system cannot run the tool as it should: no more files, processes or memory, or a program that is not the tool.
    System,
    /// Anything else.
    Other,
}

/// What a failure lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LiesIn {
    /// The host: nothing of this family would go through now.
    Host,
    /// Somebody else, who is at it just now: the same goes through in a moment.
    Busy,
    /// What was asked, as far as one can tell.
    Content,
    /// The size of what was asked.
    Size,
}

impl FailureKind {
    /// What a failure of this kind lies in.
    pub fn lies_in(self) -> LiesIn {
        match self {
            FailureKind::ToolMissing
            | FailureKind::Denied
            | FailureKind::TimedOut
            | FailureKind::NothingDone
            | FailureKind::System => LiesIn::Host,
            FailureKind::Busy => LiesIn::Busy,
            FailureKind::TooLarge => LiesIn::Size,
            FailureKind::Refused | FailureKind::Garbled | FailureKind::Other => LiesIn::Content,
        }
    }
}

/// A step that was not carried out, or not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempted} failed: {detail}")]
pub struct CommitError {
    /// What was attempted, in words: tool, family, size of the input.
    pub attempted: String,
    /// What kind of failure.
    pub kind: FailureKind,
    /// The tool's own words, trimmed, with the input line it names when it names one.
    pub detail: String,
}

/// A reading that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attempted} failed: {detail}")]
pub struct ObserveError {
    /// What was attempted.
    pub attempted: String,
    /// What kind of failure.
    pub kind: FailureKind,
    /// The tool's or kernel's own words, trimmed.
    pub detail: String,
}

/// A built-in chain that nobody has touched.
fn empty_builtin() -> Chain {
    Chain {
        policy: Some(Policy::Accept),
        rules: Vec::new(),
    }
}

/// The name of a built-in chain.
fn builtin_name(name: &str) -> ChainName {
    ChainName::new(name).expect("invariant: built-in chains have legal names")
}
