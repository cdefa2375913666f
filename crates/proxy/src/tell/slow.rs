//! Something that runs for long: said once it has, and less and less often after that.

use std::time::Duration;

/// So long is nothing special.
const LONG: Duration = Duration::from_secs(10);

/// One thing at a time that began and has not ended, if any. Time is an argument.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Slow(Option<Running>);

#[derive(Clone, Copy, Debug)]
struct Running {
    since: Duration,
    next: Duration,
    told: bool,
}

impl Slow {
    pub(super) fn began(&mut self, now: Duration) {
        self.0 = Some(Running {
            since: now,
            next: now + LONG,
            told: false,
        });
    }

    /// It ended; how long it took, if it was said to take long.
    pub(super) fn ended(&mut self, now: Duration) -> Option<Duration> {
        let running = self.0.take()?;
        running.told.then(|| now.saturating_sub(running.since))
    }

    /// For how long it has been running, when that is to be said now.
    pub(super) fn look(&mut self, now: Duration) -> Option<Duration> {
        let running = self.0.as_mut().filter(|running| running.next <= now)?;
        let long = now.saturating_sub(running.since);
        running.told = true;
        running.next = now + long;
        Some(long)
    }

    /// When [`Slow::look`] has something to say next.
    pub(super) fn next(&self) -> Option<Duration> {
        self.0.map(|running| running.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_quick_is_not_told() {
        let mut slow = Slow::default();
        slow.began(secs(1));
        assert_eq!(slow.look(secs(10)), None);
        assert_eq!(slow.ended(secs(11)), None);
        assert_eq!((slow.look(secs(60)), slow.next()), (None, None));
    }

    #[test]
    fn what_takes_long_is_told_at_growing_intervals_and_at_its_end() {
        let mut slow = Slow::default();
        slow.began(secs(0));
        let told: Vec<u64> = (0..300).filter(|now| slow.look(secs(*now)).is_some()).collect();
        assert_eq!(told, [10, 20, 40, 80, 160]);
        assert_eq!(slow.next(), Some(secs(320)));
        assert_eq!(slow.ended(secs(300)), Some(secs(300)));
    }
}
