//! What goes into the engine and what comes out of it.

use iptables::ast::ChainName;
use iptables::diff::harm::Harm;
use iptables::diff::observe::{Observation, Reading};
use iptables::plan::Step;
use model::{Family, Note, ServiceName};
use nftables::ast::ElementKey;
use nftables::step as nft;
use std::sync::Arc;
use std::time::Duration;

/// Something that happened at the kernel's side.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The step was carried out.
    Committed,
    /// The step was not carried out, or not whole.
    CommitFailed(Failure),
    /// The kernel refused a step of nftables mode, and named the element that it did not want.
    NftRefused(Failure, ElementKey),
    /// What was read.
    Observed {
        /// The generation of `nf_tables` just before the reading; `None` where there is no such thing.
        generation: Option<u32>,
        /// What was seen.
        observation: Box<Observation>,
    },
    /// Nothing was read, since the generation is the one that was named.
    Unchanged,
    /// What was read of a table of nftables mode.
    NftObserved(Box<nft::Observation>),
    /// Reading failed.
    ObserveFailed(Failure),
}

/// Why the kernel's side did not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it lies in.
    pub cause: Cause,
    /// What was attempted and what was answered, for people.
    pub text: String,
}

/// What a failure lies in. It decides who has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// In the host: a missing tool, no permission, a kernel that is too slow. Nothing of this family would go through
    /// now.
    Host,
    /// In somebody else's work: a lock that another holds. Nothing would go through now, and at any moment it may.
    Busy,
    /// In what was asked, as far as one can tell: a smaller step may go through.
    Content,
    /// In the size of what was asked: the same goes through in smaller steps, now and later.
    Size,
}

/// Something to be done at the kernel's side. Each is answered by one [`Answer`], and no family has two at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Carry out this step.
    Commit(Step),
    /// Read this back.
    Observe {
        /// What.
        reading: Reading,
        /// Unless the generation of `nf_tables` is this one.
        unless: Option<u32>,
    },
    /// Carry out this step of nftables mode.
    NftCommit(nft::Step),
    /// Read this back of a table of nftables mode.
    NftObserve(nft::Reading),
}

/// What the engine has to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The kernel took a step.
    Applied {
        /// The family.
        family: Family,
        /// The services it settled.
        services: Vec<ServiceName>,
        /// How much it wrote.
        size: StepSize,
    },
    /// The kernel's rules for these services are what is wanted already: nothing was written for them. What else their
    /// objects say, such as which endpoints there are that no rule leads to, may have changed.
    AsItIs {
        /// The family.
        family: Family,
        /// The services.
        services: Vec<ServiceName>,
    },
    /// A step or a reading failed. What it was about stays pending.
    Failed {
        /// The family.
        family: Family,
        /// Why.
        failure: Failure,
        /// How many in a row.
        in_a_row: u32,
        /// What it was about.
        about: About,
        /// When it is tried again, in the engine's time.
        retry_at: Duration,
    },
    /// The first success after failures.
    Recovered {
        /// The family.
        family: Family,
        /// How many failures there were in a row.
        after: u32,
    },
    /// Everything that was wanted when this was said is in the kernel.
    InSync {
        /// The family.
        family: Family,
        /// When the oldest change in it had come, in the engine's time.
        since: Duration,
        /// What kind of run it was.
        run: RunKind,
    },
    /// Rules were found to be other than they had been left.
    Damaged {
        /// The family.
        family: Family,
        /// How many services are concerned.
        services: usize,
        /// What is missing or changed.
        what: Harm,
        /// Who was the last to write into our chains, as far as the kernel told.
        by: Option<Arc<str>>,
        /// How long the next repair waits at least, once there have been many in a short time.
        backing_off: Option<Duration>,
    },
    /// A chain of ours that nobody wants cannot be deleted; something leads to it that is not ours.
    Stuck {
        /// The family.
        family: Family,
        /// The chains.
        chains: Vec<ChainName>,
        /// What was answered.
        failure: Failure,
    },
    /// What was seen in a service's objects changed: the notes that hold now.
    Noted {
        /// The service.
        service: ServiceName,
        /// All its notes, of both families.
        notes: Vec<Note>,
    },
    /// A family's rules are written without the comments of endpoints from now on, or with them again.
    EndpointComments {
        /// The family.
        family: Family,
        /// Which.
        comments: iptables::build::EndpointComments,
    },
}

/// How much a step writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepSize {
    /// Chains written; in nftables mode those made or given other rules.
    pub chains: usize,
    /// Rules written, in those chains and one by one; in nftables mode, elements put in.
    pub rules: usize,
    /// Rules deleted one by one; in nftables mode, elements taken out.
    pub deleted: usize,
    /// Chains deleted.
    pub removed: usize,
}

impl StepSize {
    /// The size of a step.
    pub fn of(step: &Step) -> StepSize {
        let mut size = StepSize {
            deleted: step.delete.len(),
            removed: step.retire.len(),
            ..StepSize::default()
        };
        for write in step.write.values() {
            size.chains += write.chains.len();
            size.rules += write.chains.values().map(Vec::len).sum::<usize>();
            size.rules += write.insert.len() + write.append.len();
            size.removed += write.remove.len();
        }
        size
    }
}

/// What a failure was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A reading.
    Reading,
    /// A step for several of them, or for the node's part; smaller steps follow.
    Step,
    /// This service alone.
    Service(ServiceName),
}

/// Kinds of run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunKind {
    /// Just what had changed.
    Changes,
    /// Everything was read back and compared.
    Full,
}
