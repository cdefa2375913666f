//! Listening to others' commits on `nf_tables`, whatever became of it before.

use super::Out;
use crate::thread::{self, ThreadError};
use engine::Event;
use kernel::SocketError;
use model::Family;
use std::time::{Duration, Instant};

/// After lost notifications everything is read back, but not more often than this.
const BETWEEN_LOSSES: Duration = Duration::from_mins(1);
/// After a failure of the watch.
const PAUSE: Duration = Duration::from_secs(5);
/// With nothing to wait for.
const LONG: Duration = Duration::from_hours(1);

/// What is listened to, and how the engine is told of it.
pub(crate) trait Source: Sized {
    /// What others did.
    type Commit;

    /// Listens from now on.
    fn open() -> Result<Self, SocketError>;

    /// Waits for the next commits, at most so long.
    fn wait(&mut self, at_most: Duration) -> Result<Vec<Self::Commit>, SocketError>;

    /// What of these commits concerns us.
    fn tell(commits: &[Self::Commit]) -> Vec<Event>;

    /// Anything may have happened to a family.
    fn everything(family: Family) -> Event;
}

/// Starts a thread that tells of everything that may concern us.
pub(crate) fn watch<S: Source>(out: Out) -> Result<(), ThreadError> {
    thread::start("drift", move || {
        // Whoever does not listen any more has ended.
        let mut losses = Losses::default();
        while listen::<S>(&out, &mut losses).is_some() {
            std::thread::sleep(PAUSE);
        }
    })
}

/// Listens until the watch breaks; `None` when nobody wants to know.
fn listen<S: Source>(out: &Out, losses: &mut Losses) -> Option<()> {
    let mut watch = match S::open() {
        Ok(watch) => watch,
        Err(error) => {
            tracing::debug!(%error, "changes by others are noticed late: each syncPeriod");
            return Some(());
        }
    };
    loop {
        match watch.wait(losses.left().unwrap_or(LONG)) {
            Ok(commits) => {
                for event in S::tell(&commits) {
                    out.send(event).ok()?;
                }
            }
            Err(SocketError::Lost) => losses.pending = true,
            Err(error) => {
                tracing::warn!(%error, "the watch for changes by others broke and is opened anew");
                // What happens until then is not known.
                losses.pending = true;
                return Some(());
            }
        }
        if losses.left().is_some_and(|left| left.is_zero()) {
            losses.told();
            tracing::debug!("notifications of others' writes were lost; everything is read back");
            for family in Family::ALL {
                out.send(S::everything(family)).ok()?;
            }
        }
    }
}

/// Notifications that were lost and for which everything is to be read back.
#[derive(Default)]
struct Losses {
    pending: bool,
    last: Option<Instant>,
}

impl Losses {
    /// How long until they are made good; `None` when there are none.
    fn left(&self) -> Option<Duration> {
        let since = self.last.map(|last| last.elapsed());
        self.pending
            .then(|| since.map_or(Duration::ZERO, |since| BETWEEN_LOSSES.saturating_sub(since)))
    }

    fn told(&mut self) {
        self.pending = false;
        self.last = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Disturbance;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use tokio::sync::mpsc::unbounded_channel;

    thread_local! {
        /// What a watch answers until it breaks.
        static ANSWERS: RefCell<VecDeque<Result<Vec<Family>, SocketError>>> = RefCell::default();
    }

    struct Scripted;

    impl Source for Scripted {
        type Commit = Family;

        fn open() -> Result<Scripted, SocketError> {
            Ok(Scripted)
        }

        fn wait(&mut self, _: Duration) -> Result<Vec<Family>, SocketError> {
            ANSWERS.with_borrow_mut(|answers| answers.pop_front().unwrap_or(Err(SocketError::Silent)))
        }

        fn tell(commits: &[Family]) -> Vec<Event> {
            let disturbed = |family: &Family| Event::Disturbed(*family, Disturbance::default());
            commits.iter().map(disturbed).collect()
        }

        fn everything(family: Family) -> Event {
            Event::Disturbed(family, Disturbance::everything(None))
        }
    }

    /// What is told while the watch answers this, and then breaks.
    fn told(
        losses: &mut Losses,
        answers: impl IntoIterator<Item = Result<Vec<Family>, SocketError>>,
    ) -> Vec<(Family, bool)> {
        ANSWERS.set(answers.into_iter().collect());
        let (out, mut events) = unbounded_channel();
        listen::<Scripted>(&out, losses).expect("somebody wants to know");
        drop(out);
        let mut told = Vec::new();
        while let Some(Event::Disturbed(family, disturbance)) = events.blocking_recv() {
            told.push((family, disturbance == Disturbance::everything(None)));
        }
        told
    }

    const EVERYTHING: [(Family, bool); 2] = [(Family::V4, true), (Family::V6, true)];

    #[test]
    fn what_happened_while_nobody_listened_is_read_once_somebody_does() {
        let mut losses = Losses::default();
        let commit = || Ok(vec![Family::V6]);
        assert_eq!(told(&mut losses, [commit()]), [(Family::V6, false)]);
        assert_eq!(told(&mut losses, [Ok(Vec::new())]), EVERYTHING);
    }

    #[test]
    fn lost_notifications_are_made_good_at_once_and_then_not_again_for_a_while() {
        let mut losses = Losses::default();
        let lost = || Err(SocketError::Lost);
        assert_eq!(told(&mut losses, [lost(), lost(), lost()]), EVERYTHING);
        assert!(losses.left().is_some_and(|left| !left.is_zero()));
    }
}
