//! Nftables mode at the kernel's side: one thread per family that has its table to itself, and what is told of others'
//! commits to it.

use crate::carry_out::{self, Worker};
use crate::drift::Source;
use crate::thread::ThreadError;
use engine::{Answer, Cause, Effect, Event, Failure, Foreign, ForeignExtent};
use kernel::{
    ForeignCommit, NftCommitError, NftTable, Refused, SocketError, TableTouched, TableWatch, TouchedExtent,
};
use model::{Family, PerFamily};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// How many elements a step may have. A step that is nearly full takes one more service, which may be as large again.
pub(crate) fn step_elements() -> usize {
    let most = engine::EngineConfig::default().step_elements;
    let room = NftTable::new(Family::V4).map_or(most, |table| table.room());
    (room / 2).clamp(1, most)
}

/// Starts the thread of one family. Each effect it is given is answered once, in order.
pub(crate) fn worker(
    family: Family,
    answers: UnboundedSender<(Family, Answer)>,
) -> Result<Worker, ThreadError> {
    let mut table = None;
    Worker::spawn(family, move |effect| {
        let answer = carry_out(&mut table, family, &effect);
        answers.send((family, answer)).is_ok()
    })
}

/// The socket is opened when it is needed, and anew after it broke.
fn carry_out(table: &mut Option<NftTable>, family: Family, effect: &Effect) -> Answer {
    let mut open = match table.take() {
        Some(table) => table,
        None => match NftTable::new(family) {
            Ok(table) => table,
            Err(error) => return failed(effect, &error),
        },
    };
    let answer = match effect {
        Effect::NftCommit(step) => open.commit(step).map_err(|error| not_committed(&error)),
        Effect::NftObserve(reading) => match open.observe(reading) {
            Ok(observation) => return answered(table, open, Answer::NftObserved(Box::new(observation))),
            Err(error) => Err(failed(effect, &error)),
        },
        Effect::Commit(_) | Effect::Observe { .. } => {
            unreachable!("invariant: nftables mode has effects of its own")
        }
    };
    match answer {
        Ok(()) => answered(table, open, Answer::Committed),
        Err(answer) => answer,
    }
}

/// The socket is good for more.
fn answered(table: &mut Option<NftTable>, open: NftTable, answer: Answer) -> Answer {
    *table = Some(open);
    answer
}

/// What was refused is named, so that its service waits and no other.
fn not_committed(error: &NftCommitError) -> Answer {
    let failure = Failure {
        cause: cause(&error.error),
        text: format!("nf_tables: {}", cluster::chain(error)),
    };
    match &error.refused {
        Some(Refused::Element(key)) if failure.cause == Cause::Content => {
            Answer::NftRefused(failure, key.clone())
        }
        _ => Answer::CommitFailed(failure),
    }
}

fn failed(effect: &Effect, error: &SocketError) -> Answer {
    let failure = failure(error);
    match effect {
        Effect::NftCommit(_) | Effect::Commit(_) => Answer::CommitFailed(failure),
        Effect::NftObserve(_) | Effect::Observe { .. } => Answer::ObserveFailed(failure),
    }
}

fn failure(error: &SocketError) -> Failure {
    Failure {
        cause: cause(error),
        text: format!("nf_tables: {}", cluster::chain(error)),
    }
}

/// Where an answer was lost nobody knows what was carried out; the engine reads that for causes in the host.
fn cause(error: &SocketError) -> Cause {
    match error {
        SocketError::Lost => Cause::Host,
        error => carry_out::cause(error.kind()),
    }
}

impl Source for TableWatch {
    type Commit = ForeignCommit<PerFamily<TableTouched>>;

    fn open() -> Result<TableWatch, SocketError> {
        TableWatch::new()
    }

    fn wait(&mut self, at_most: Duration) -> Result<Vec<Self::Commit>, SocketError> {
        TableWatch::wait(self, at_most)
    }

    fn tell(commits: &[Self::Commit]) -> Vec<Event> {
        let mut told = Vec::new();
        for commit in commits {
            let by: Arc<str> = commit.by.to_string().into();
            for family in Family::ALL {
                let touched = commit.touched.get(family);
                if !touched.is_empty() {
                    tracing::debug!(%family, %by, elements = touched.elements.len(), "others wrote into our table");
                    told.push(Event::NftDisturbed(family, foreign(touched, &by)));
                }
            }
        }
        told
    }

    fn everything(family: Family) -> Event {
        Event::NftDisturbed(family, Foreign::everything(None))
    }
}

fn foreign(touched: &TableTouched, by: &Arc<str>) -> Foreign {
    Foreign {
        elements: touched.elements.clone(),
        extent: match touched.extent {
            TouchedExtent::Elements => ForeignExtent::Told,
            TouchedExtent::Frame => ForeignExtent::Frame,
            TouchedExtent::Everything => ForeignExtent::Everything,
            TouchedExtent::Gone => ForeignExtent::Gone,
        },
        by: Some(by.clone()),
    }
}
