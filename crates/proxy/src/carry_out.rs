//! Carrying out the engine's effects, on one thread per family, so that a family whose tools hang or fail holds nobody up.

use crate::drift::Left;
use crate::flows::Proved;
use crate::thread::{self, ThreadError};
use engine::{Answer, Cause, Effect, Failure};
use iptables::diff::observe::{Observation, Reading};
use kernel::{FailureKind, LiesIn, LiveKernel, RuleKernel, Scope};
use model::Family;
use std::sync::mpsc::{Sender, channel};
use tokio::sync::mpsc::UnboundedSender;

/// A thread that has the kernel's rules of one family to itself.
pub(crate) struct Worker(Sender<Effect>);

impl Worker {
    /// Starts the thread. Each effect it is given is answered once, in order. `proved` gets what the rules prove that
    /// are there before the first effect.
    pub(crate) fn start(
        family: Family,
        kernel: LiveKernel,
        proved: Proved,
        left: Option<Left>,
        answers: UnboundedSender<(Family, Answer)>,
    ) -> Result<Worker, ThreadError> {
        let mut kernel = kernel;
        let mut unread = Some(proved);
        Worker::spawn(family, move |effect| {
            if let Some(proved) = unread.take() {
                proved.read(&mut kernel, family);
            }
            let mut carry_out = |effect| carry_out(&mut kernel, family, effect);
            let answer = match &left {
                Some(left) => left.around(effect, carry_out),
                None => carry_out(effect),
            };
            answers.send((family, answer)).is_ok()
        })
    }

    /// Starts the thread, which ends when `carry_out` says that nobody listens any more.
    pub(crate) fn spawn(
        family: Family,
        mut carry_out: impl FnMut(Effect) -> bool + Send + 'static,
    ) -> Result<Worker, ThreadError> {
        let (send, receive) = channel::<Effect>();
        thread::start(&format!("rules-{family}"), move || {
            while let Ok(effect) = receive.recv() {
                if !carry_out(effect) {
                    return;
                }
            }
        })?;
        Ok(Worker(send))
    }

    /// Hands over one effect.
    pub(crate) fn give(&self, effect: Effect) {
        self.0
            .send(effect)
            .expect("invariant: the worker lives as long as its sender");
    }
}

/// Carries out one effect.
pub(crate) fn carry_out(kernel: &mut impl RuleKernel, family: Family, effect: Effect) -> Answer {
    match effect {
        Effect::Commit(step) => match kernel.commit(family, &step) {
            Ok(()) => Answer::Committed,
            Err(error) => Answer::CommitFailed(failure(error.kind, &error)),
        },
        Effect::Observe { reading, unless } => match observe(kernel, family, &reading, unless) {
            Ok(answer) => answer,
            Err(error) => Answer::ObserveFailed(failure(error.kind, &error)),
        },
        Effect::NftCommit(_) | Effect::NftObserve(_) => {
            unreachable!("invariant: iptables mode has effects of its own")
        }
    }
}

/// The generation is taken before the reading: a change that comes in between shows as another generation next time.
fn observe(
    kernel: &mut impl RuleKernel,
    family: Family,
    reading: &Reading,
    unless: Option<u32>,
) -> Result<Answer, kernel::ObserveError> {
    let generation = kernel.generation()?;
    if unless.is_some() && unless == generation {
        return Ok(Answer::Unchanged);
    }
    let mut observation = Observation::new(family);
    let mut observe = |scope: &Scope| {
        kernel.observe(family, scope, &mut |table, name, chain| {
            observation.record(table, &name, &chain);
        })
    };
    match reading {
        Reading::Everything => observe(&Scope::Everything)?,
        Reading::Chains(tables) => {
            for (table, chains) in tables {
                observe(&Scope::Chains(*table, chains.clone()))?;
            }
        }
    }
    Ok(Answer::Observed {
        generation,
        observation: Box::new(observation),
    })
}

fn failure(kind: FailureKind, error: &dyn std::fmt::Display) -> Failure {
    Failure {
        cause: cause(kind),
        text: error.to_string(),
    }
}

/// Whether everything of the family would fail now, or just what was asked.
pub(crate) fn cause(kind: FailureKind) -> Cause {
    match kind.lies_in() {
        LiesIn::Host => Cause::Host,
        LiesIn::Busy => Cause::Busy,
        LiesIn::Content => Cause::Content,
        LiesIn::Size => Cause::Size,
    }
}
