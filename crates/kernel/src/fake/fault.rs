//! The fault script of the fake kernel.

use crate::{CommitError, FailureKind, Scope};
use iptables::ast::TableName;
use iptables::plan::Step;
use model::{Family, PerFamily};

/// One line of the script. Commits and observations are counted from the moment it was injected, the first being 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The nth commit of a family fails and changes nothing.
    FailCommit {
        /// Whose commits are counted.
        family: Family,
        /// Which one.
        nth: u32,
        /// How it fails.
        kind: FailureKind,
    },
    /// Every commit of a family before the nth fails: a broken `ip6tables` that is repaired, or never is (`u32::MAX`).
    FailUntil {
        /// Whose commits are counted.
        family: Family,
        /// The first one that works again.
        nth: u32,
        /// How the others fail.
        kind: FailureKind,
    },
    /// The nth observation of a family fails.
    FailObserve {
        /// Whose observations are counted.
        family: Family,
        /// Which one.
        nth: u32,
        /// How it fails.
        kind: FailureKind,
    },
    /// Somebody holds the lock during the next so many commits of either family: they fail as [`FailureKind::Busy`].
    LockHeld {
        /// How many commits.
        commits: u32,
    },
    /// After so many more writes (a table restored, the deletions of a step) nothing is written any more, as if the
    /// process had been killed there: what is committed stays, this and every later commit fails as
    /// [`FailureKind::Other`] until [`Fault::Restart`].
    CrashAfter {
        /// How many writes still happen.
        writes: u32,
    },
    /// Ends a [`Fault::CrashAfter`], pending or come true: a new process on the same kernel.
    Restart,
    /// A stranger edits just before the nth commit of a family, after everything that was observed.
    Stranger {
        /// Whose rules are edited.
        family: Family,
        /// Before which commit.
        nth: u32,
        /// What is edited.
        edit: Edit,
    },
}

/// What a stranger does with the tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Restores, deletes, retires as a step of ours would.
    Step(Box<Step>),
    /// `iptables -t TABLE -F`: all chains emptied, none deleted.
    Flush(TableName),
    /// `-F` and `-X`: all chains emptied, the users' deleted.
    Wipe(TableName),
}

/// What was asked of the fake kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Journal {
    /// A commit and its answer.
    Commit {
        /// Which family.
        family: Family,
        /// The step.
        step: Step,
        /// The answer.
        result: Result<(), CommitError>,
    },
    /// An observation.
    Observe {
        /// Which family.
        family: Family,
        /// What was to be read.
        scope: Scope,
    },
}

/// The script and where it stands.
#[derive(Default)]
pub(super) struct Faults {
    script: Vec<Pending>,
    /// Writes left before the crash.
    crash: Option<u32>,
}

struct Pending {
    fault: Fault,
    commits: PerFamily<u32>,
    observations: PerFamily<u32>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        match fault {
            Fault::CrashAfter { writes } => self.crash = Some(writes),
            Fault::Restart => self.crash = None,
            fault => self.script.push(Pending {
                fault,
                commits: PerFamily::default(),
                observations: PerFamily::default(),
            }),
        }
    }

    /// Counts a commit; the edits of strangers come before its verdict.
    pub(super) fn strangers_before_commit(&mut self, family: Family) -> Vec<Edit> {
        let mut edits = Vec::new();
        for pending in &mut self.script {
            let count = pending.commits.get_mut(family);
            *count += 1;
            match &pending.fault {
                Fault::Stranger { family: f, nth, edit } if *f == family && nth == count => {
                    edits.push(edit.clone());
                }
                _ => {}
            }
        }
        edits
    }

    /// The verdict on a commit that was counted.
    pub(super) fn on_commit(&mut self, family: Family) -> Option<FailureKind> {
        self.script.iter().find_map(|pending| {
            let count = *pending.commits.get(family);
            match &pending.fault {
                Fault::FailCommit { family: f, nth, kind } if *f == family && *nth == count => Some(*kind),
                Fault::FailUntil { family: f, nth, kind } if *f == family && count < *nth => Some(*kind),
                Fault::LockHeld { commits } if pending.commits.v4 + pending.commits.v6 <= *commits => {
                    Some(FailureKind::Busy)
                }
                _ => None,
            }
        })
    }

    pub(super) fn on_observe(&mut self, family: Family) -> Option<FailureKind> {
        let mut verdict = None;
        for pending in &mut self.script {
            let count = pending.observations.get_mut(family);
            *count += 1;
            match &pending.fault {
                Fault::FailObserve { family: f, nth, kind } if *f == family && nth == count => {
                    verdict = Some(*kind);
                }
                _ => {}
            }
        }
        verdict
    }

    /// Counts a write towards the crash.
    pub(super) fn before_write(&mut self) -> Result<(), FailureKind> {
        match &mut self.crash {
            Some(0) => Err(FailureKind::Other),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
