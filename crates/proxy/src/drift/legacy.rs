//! Others' edits on legacy, which tells nobody of anything: the sizes of the tables are asked for each second (ADR 39).
//!
//! The worker of a family notes the sizes after each of our own writes and before each reading. Whoever finds others
//! later, the poll or the worker at its next turn, tells the engine, which looks at everything.
//!
//! Not seen are an edit that keeps both the number of entries and of bytes, such as a rule replaced by another of its
//! length, and two edits between two polls that cancel each other. The look at each `syncPeriod` finds these. What is
//! done in the moment of a write of ours cannot be told from it, so each of our writes is looked at as well.

use super::Out;
use crate::thread::{self, ThreadError};
use engine::{Answer, Disturbance, Effect, Event};
use kernel::table_sizes::{SizeReader, TableSizes};
use model::Family;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the sizes are asked for.
const PERIOD: Duration = Duration::from_secs(1);

/// The sizes of one family's tables as we left them. Its clones are the same.
#[derive(Clone)]
pub(crate) struct Left(Arc<Inner>);

struct Inner {
    family: Family,
    reader: SizeReader,
    out: Out,
    state: Mutex<State>,
}

/// What is known of the tables.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// We are at work there, or somebody else was and the engine has been told.
    Unknown,
    /// They were of these sizes when we last knew what is in them.
    Known(TableSizes),
}

impl Left {
    /// For one family; `None`, with a line in the log, where the sizes cannot be asked for.
    pub(super) fn new(family: Family, out: Out) -> Option<Left> {
        let reader = SizeReader::new(family)
            .inspect_err(|error| {
                tracing::warn!(%family, %error, "changes by others are noticed late: each syncPeriod");
            })
            .ok()?;
        Some(Left(Arc::new(Inner {
            family,
            reader,
            out,
            state: Mutex::new(State::Unknown),
        })))
    }

    /// Carries an effect out, and knows afterwards what the tables are like.
    pub(crate) fn around(&self, effect: Effect, carry_out: impl FnOnce(Effect) -> Answer) -> Answer {
        self.poll();
        let before = self.take();
        let answer = carry_out(effect);
        let left = match &answer {
            Answer::Committed => self.sizes(),
            // What came in during the reading may not be in it.
            Answer::Observed { .. } => before,
            Answer::Unchanged
            | Answer::CommitFailed(_)
            | Answer::ObserveFailed(_)
            | Answer::NftRefused(_, _)
            | Answer::NftObserved(_) => None,
        };
        let mut state = self.state();
        if let Some(left) = left {
            *state = State::Known(left);
        }
        if matches!(answer, Answer::Committed) {
            // Others may have written in the same moment, and be part of the sizes just read.
            // Whoever does not listen any more has ended.
            let _ = self.tell();
        }
        drop(state);
        answer
    }

    /// Compares, and tells the engine of a difference, once. `None` when nobody wants to know any more.
    pub(super) fn poll(&self) -> Option<()> {
        // Held while the kernel is asked, so that no write of ours comes in between; it takes microseconds.
        let mut state = self.state();
        let State::Known(left) = &*state else {
            return Some(());
        };
        let Some(now) = self.sizes().filter(|now| now != left) else {
            return Some(());
        };
        let family = self.0.family;
        tracing::debug!(%family, changed = %now.since(left), "others wrote into our tables");
        *state = State::Unknown;
        self.tell()
    }

    fn tell(&self) -> Option<()> {
        self.0
            .out
            .send(Event::Disturbed(self.0.family, Disturbance::look(None)))
            .ok()
    }

    /// From now on we are at work: what the tables are like just before.
    fn take(&self) -> Option<TableSizes> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Unknown) {
            State::Known(left) => Some(left),
            State::Unknown => self.sizes(),
        }
    }

    fn sizes(&self) -> Option<TableSizes> {
        match self.0.reader.read() {
            Ok(sizes) => Some(sizes),
            Err(error) => {
                tracing::debug!(error = %cluster::chain(&error), "sizes of tables are not known");
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a thread that polls these.
pub(super) fn watch(families: Vec<Left>) -> Result<(), ThreadError> {
    thread::start("drift", move || {
        while families.iter().all(|left| left.poll().is_some()) {
            std::thread::sleep(PERIOD);
        }
    })
}
