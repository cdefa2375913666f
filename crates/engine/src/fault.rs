//! Faults seeded on purpose, to show that the property tests can fail. Without the feature `mutants` none takes effect.

/// A fault of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Chains that a service has no more use for are kept.
    StaleChainsKept,
    /// Changes of endpoints are not brought to IPv6.
    OneFamilyForgotten,
    /// The list of local endpoints is taken to be empty.
    LocalListForgotten,
    /// A step is remembered when it is sent, whatever the answer.
    RememberedBeforeCommitted,
    /// A change that comes during a commit is forgotten when the commit is done.
    ChangeDuringCommitLost,
    /// Dispatch rules are not deleted.
    DispatchNotDeleted,
    /// Crossing the large-cluster threshold rewrites every service.
    ThresholdRewritesAll,
    /// A failed step is not tried again.
    FailedStepForgotten,
    /// A failed step is taken to have changed nothing.
    FailedStepTrusted,
    /// A new process takes the kernel to be empty.
    NothingAdopted,
    /// A change of the host's addresses does not reach the jumps to the node ports.
    TailForgotten,
    /// Rules are deleted before those that replace them are there.
    DeletedBeforeReplaced,
    /// When a claim on an address is given up, the next one in line is not told.
    ClaimHeirForgotten,
    /// The rules are never looked at between full syncs.
    NeverLooks,
    /// What nobody wants after adoption is left.
    NeverSweeps,
    /// A refused service holds up all others.
    RefusedBlocksAll,
    /// Dispatch rules are written anew with every change of a service.
    DispatchAlwaysRewritten,
    /// Nftables mode: a failed step is not tried again.
    NftFailedStepForgotten,
    /// Nftables mode: nothing is read after a failed step.
    NftFailedStepTrusted,
    /// Nftables mode: a step without an answer is taken to have changed nothing.
    NftNoAnswerTrusted,
    /// Nftables mode: a new process takes the sets to be empty.
    NftNothingAdopted,
    /// Nftables mode: what nobody wants after adoption is left.
    NftNeverSweeps,
    /// Nftables mode: nothing waits for packets that are on their way.
    NftRetiredAtOnce,
    /// Nftables mode: what waited for packets on their way is left.
    NftRetirementForgotten,
    /// Nftables mode: who takes a frontend goes into one batch with who loses it.
    NftCrossedTogether,
    /// Nftables mode: lists of a new size come without the chains for them.
    NftShapesForgotten,
    /// Nftables mode: the node's elements are those of the start.
    NftNodeForgotten,
    /// Nftables mode: elements that others touched are left as they are.
    NftToldForgotten,
    /// Nftables mode: chains and sets that others touched are left as they are.
    NftFrameForgotten,
    /// Nftables mode: another's table is taken over before ours is filled.
    NftTakenOverEmpty,
    /// Nftables mode: what many services lost is taken to be put back, and is not.
    NftPutBackForgotten,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 31] = [
        Fault::StaleChainsKept,
        Fault::OneFamilyForgotten,
        Fault::LocalListForgotten,
        Fault::RememberedBeforeCommitted,
        Fault::ChangeDuringCommitLost,
        Fault::DispatchNotDeleted,
        Fault::ThresholdRewritesAll,
        Fault::FailedStepForgotten,
        Fault::FailedStepTrusted,
        Fault::NothingAdopted,
        Fault::TailForgotten,
        Fault::DeletedBeforeReplaced,
        Fault::ClaimHeirForgotten,
        Fault::NeverLooks,
        Fault::NeverSweeps,
        Fault::RefusedBlocksAll,
        Fault::DispatchAlwaysRewritten,
        Fault::NftFailedStepForgotten,
        Fault::NftFailedStepTrusted,
        Fault::NftNoAnswerTrusted,
        Fault::NftNothingAdopted,
        Fault::NftNeverSweeps,
        Fault::NftRetiredAtOnce,
        Fault::NftRetirementForgotten,
        Fault::NftCrossedTogether,
        Fault::NftShapesForgotten,
        Fault::NftNodeForgotten,
        Fault::NftToldForgotten,
        Fault::NftFrameForgotten,
        Fault::NftTakenOverEmpty,
        Fault::NftPutBackForgotten,
    ];
}

/// The fault that was seeded, if any.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seeded(Option<Fault>);

impl Seeded {
    /// Seeds one.
    #[cfg(feature = "mutants")]
    pub fn with(fault: Fault) -> Seeded {
        Seeded(Some(fault))
    }

    /// Whether this fault is to take effect.
    pub fn has(self, fault: Fault) -> bool {
        cfg!(feature = "mutants") && self.0 == Some(fault)
    }
}
