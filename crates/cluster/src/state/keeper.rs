//! The stage between a source and who listens: passes on what the server says, has it written down, and uses what was
//! written when the server does not answer at start.

use super::book::Book;
use super::disk::{self, OpenError};
use super::format::{self, Page, Reader};
use super::handover::Handover;
use super::patience::Patience;
use super::writer::{self, Pace};
use super::{StateOptions, StateTiming};
use crate::{Remembered, SourceEvent};
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// Whether the kernel has rules for services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelRules {
    /// It has none: nothing can get worse.
    Absent,
    /// It has some, or nobody can tell.
    Present,
}

type LookForRules = dyn Fn() -> KernelRules + Send + Sync;

/// The memory of one source.
#[derive(Clone)]
pub struct Keeper {
    options: StateOptions,
    rules: Arc<LookForRules>,
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What came of looking for the file.
enum Look {
    Found(Page),
    NotNow(Remembered),
}

impl Keeper {
    /// A memory. `rules` looks whether the kernel has rules; it may take its time.
    pub fn new(options: StateOptions, rules: impl Fn() -> KernelRules + Send + Sync + 'static) -> Keeper {
        Keeper {
            options,
            rules: Arc::new(rules),
        }
    }

    /// Passes on what a source says until it ends or nobody listens.
    ///
    /// # Panics
    /// When reading the file panics, which is a bug.
    pub async fn run(self, mut source: Receiver<SourceEvent>, out: Sender<SourceEvent>) {
        let pace = Pace::new(self.options.timing.clone(), self.options.max_age);
        let book = Arc::new(Book::new(pace));
        writer::start(book.clone(), self.options.clone(), out.clone()).await;
        let _ends = EndOf(&book);
        let mut waiting = Waiting::new(self.options.timing.clone());
        let mut hand_on = Vec::new();
        loop {
            let wants = waiting.handover.wants_memory();
            tokio::select! {
                event = source.recv() => {
                    let Some(event) = event else { return };
                    book.note(&event, SystemTime::now());
                    waiting.take(event, &mut hand_on);
                }
                () = out.closed() => return,
                () = sleep_until(waiting.patience.due()), if wants && waiting.look.is_none() => {
                    let keeper = self.clone();
                    waiting.look = Some(tokio::task::spawn_blocking(move || keeper.look()));
                }
                found = ended(&mut waiting.look) => hand_on.extend(waiting.found(found)),
            }
            for event in hand_on.drain(..) {
                if matches!(event, SourceEvent::Together(_)) {
                    self.forget_use();
                }
                if out.send(event).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Looks whether there is something to use, and whether it may be.
    fn look(&self) -> Look {
        let folder = &self.options.folder;
        let mut file = match disk::open(folder) {
            Ok(file) => file,
            Err(error) => return self.not_used(&error),
        };
        let sum = format::claimed_sum(&mut file).unwrap_or_default();
        // Rules that were made of this very file in this boot may be half of it: a process that was killed in between.
        if !disk::is_used(folder, &sum) && (self.rules)() == KernelRules::Present {
            return Look::NotNow(Remembered::RulesAreThere);
        }
        let reader = Reader {
            node: &self.options.node_name,
            identity: &self.options.identity,
            max_age: self.options.max_age,
            now: SystemTime::now(),
        };
        match format::read(&mut file, &reader) {
            Ok(page) => {
                if let Err(error) = disk::note_use(folder, &sum) {
                    tracing::debug!(%error, "a restart in this outage will leave the rules as they are then");
                }
                Look::Found(page)
            }
            Err(refusal) => self.not_used(&refusal.into()),
        }
    }

    /// Rules are made of what the server says from now on. Nothing waits for it.
    fn forget_use(&self) {
        let folder = self.options.folder.clone();
        tokio::task::spawn_blocking(move || disk::forget_use(&folder));
    }

    fn not_used(&self, error: &OpenError) -> Look {
        let path = disk::path(&self.options.folder);
        let line = format!("{}: {error}", path.display());
        Look::NotNow(match error {
            OpenError::Missing => Remembered::Nothing(line),
            OpenError::Unsafe(_) | OpenError::Refused(_) => Remembered::NotUsed(line),
        })
    }
}

/// Ends the writer with whoever fills the book.
struct EndOf<'a>(&'a Book);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The end of a look, if there is one.
async fn ended(look: &mut Option<JoinHandle<Look>>) -> Look {
    match look {
        Some(task) => {
            let found = task.await.expect("invariant: looking does not panic");
            *look = None;
            found
        }
        None => std::future::pending().await,
    }
}

/// What is waited for.
struct Waiting {
    handover: Handover,
    patience: Patience,
    look: Option<JoinHandle<Look>>,
    told: Option<Remembered>,
}

impl Waiting {
    fn new(timing: StateTiming) -> Waiting {
        Waiting {
            handover: Handover::new(),
            patience: Patience::new(timing, Instant::now()),
            look: None,
            told: None,
        }
    }

    fn take(&mut self, event: SourceEvent, out: &mut Vec<SourceEvent>) {
        let is_list = self.handover.is_waited_for(&event);
        self.patience.heard(&event, is_list, Instant::now());
        self.handover.take(event, out);
    }

    /// What to say of a look; each thing once while it stays so.
    fn found(&mut self, look: Look) -> Option<SourceEvent> {
        match look {
            // The server was quicker.
            _ if !self.handover.wants_memory() => None,
            Look::Found(page) => Some(self.handover.remember(page.objects, page.age)),
            Look::NotNow(why) => {
                self.patience.look_again(Instant::now());
                if self.told.as_ref() == Some(&why) {
                    return None;
                }
                self.told = Some(why.clone());
                Some(SourceEvent::Remembered(why))
            }
        }
    }
}
