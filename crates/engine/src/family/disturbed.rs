//! Somebody else wrote into the tables: what has to be looked at, and how often that is put right.

use crate::disturbance::{Disturbance, Extent, Merge};
use crate::pace::Spread;
use std::time::Duration;

/// How long after a commit its chains are looked at, and twice as long at most: who writes one rule often writes more. Two of
/// ours that see the same at the same time would both put it right, both take the double back, and so on for ever.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Between two looks at least: somebody who writes all the time and does no harm costs a look each half second.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// So many times as long as a look took is waited before the next: they take a fifth of the time at most. A look at
/// legacy's tables reads all of them, and in a large cluster that is seconds.
const REST_TO_LOOK: u32 = 4;

/// So many repairs are made at once, each when it is due; then the waits double.
const PROMPT_REPAIRS: u32 = 5;

/// What waits to be looked at.
#[derive(Debug, Default)]
pub(crate) struct Disturbed<W = Disturbance> {
    waiting: W,
    /// When it is looked at; `None` when nothing waits.
    at: Option<Duration>,
    last_look: Option<Duration>,
    /// How long the last one took.
    look_took: Duration,
    /// Repairs, none of them a quiet time after the one before.
    streak: u32,
    last_repair: Option<Duration>,
    /// By what looks come later than they could; `None`: by nothing.
    spread: Option<Spread>,
}

impl<W: Merge + Default> Disturbed<W> {
    /// Nothing yet. `seed`: of [`crate::EngineConfig`].
    pub(crate) fn new(seed: u64) -> Self {
        Disturbed {
            spread: (seed != 0).then(|| Spread::new(seed)),
            ..Disturbed::default()
        }
    }

    /// Something happened. `most`: the longest wait.
    pub(crate) fn note(&mut self, disturbance: W, now: Duration, most: Duration) {
        self.waiting.merge(disturbance);
        if self.at.is_none() {
            let rest = self
                .look_took
                .saturating_mul(REST_TO_LOOK)
                .min(most)
                .max(BETWEEN_LOOKS);
            let rested = self.last_look.map_or(now, |last| last + self.look_took + rest);
            let later = self.spread.as_mut().map_or(0.0, Spread::fraction);
            let first = self.earliest(now, most).max(now + DEBOUNCE).max(rested);
            self.at = Some(first + DEBOUNCE.mul_f64(later));
        }
    }

    /// The same of something that leaves nobody served: it is looked at as soon as earlier repairs allow.
    pub(crate) fn note_at_once(&mut self, disturbance: W, now: Duration, most: Duration) {
        self.waiting.merge(disturbance);
        self.at = Some(self.earliest(now, most));
    }

    /// When the next look is due.
    pub(crate) fn at(&self) -> Option<Duration> {
        self.at
    }

    /// Takes what waits.
    pub(crate) fn take(&mut self, now: Duration) -> W {
        self.at = None;
        self.last_look = Some(now);
        std::mem::take(&mut self.waiting)
    }

    /// What was taken has been looked at.
    pub(crate) fn looked(&mut self, now: Duration) {
        let begun = self.last_look.unwrap_or(now);
        self.look_took = now.saturating_sub(begun);
    }

    /// The look failed: it is still to be done.
    pub(crate) fn give_back(&mut self, disturbance: W, now: Duration) {
        self.waiting.merge(disturbance);
        self.at = Some(now);
    }

    /// Harm was found and is repaired; how long the next repair has to wait, when it has to.
    ///
    /// What is found while an earlier repair's wait is not over (a step of ours met it) belongs to that repair: the waits
    /// double for each that was served.
    pub(crate) fn repaired(&mut self, now: Duration, most: Duration) -> Option<Duration> {
        let quiet = most.saturating_mul(2).max(Duration::from_mins(2));
        if self
            .last_repair
            .is_none_or(|last| now.saturating_sub(last) > quiet)
        {
            self.streak = 0;
        }
        if self.earliest(now, most) <= now {
            self.streak += 1;
            self.last_repair = Some(now);
        }
        let next = self.earliest(now, most);
        self.at = self.at.map(|at| at.max(next));
        next.checked_sub(now).filter(|wait| !wait.is_zero())
    }

    /// A rival is not fought for ever.
    fn earliest(&self, now: Duration, most: Duration) -> Duration {
        let (Some(last), Some(doublings)) = (self.last_repair, self.streak.checked_sub(PROMPT_REPAIRS))
        else {
            return now;
        };
        let wait = Duration::from_secs(1)
            .saturating_mul(1 << doublings.min(16))
            .min(most);
        (last + wait).max(now)
    }
}

impl Disturbed {
    /// How much the next look takes in.
    pub(super) fn extent(&self) -> Extent {
        self.waiting.extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(30);

    /// Eight repairs, the last of them at 10 s.
    fn rival(disturbed: &mut Disturbed) {
        for at in [0, 0, 1, 2, 3, 4, 6, 10] {
            disturbed.repaired(secs(at), MOST);
        }
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_repairs_are_prompt_and_later_ones_wait_twice_as_long_each() {
        let mut disturbed: Disturbed = Disturbed::default();
        let mut now = Duration::ZERO;
        let waits: Vec<Option<Duration>> = (0..12)
            .map(|_| {
                let wait = disturbed.repaired(now, MOST);
                now += wait.unwrap_or(secs(1));
                wait
            })
            .collect();
        let want = [
            None,
            None,
            None,
            None,
            Some(1),
            Some(2),
            Some(4),
            Some(8),
            Some(16),
            Some(30),
            Some(30),
            Some(30),
        ];
        assert_eq!(waits, want.map(|wait| wait.map(secs)));
    }

    #[test]
    fn what_is_found_before_a_wait_is_over_belongs_to_that_repair() {
        let mut disturbed: Disturbed = Disturbed::default();
        for _ in 0..6 {
            disturbed.repaired(secs(10), MOST);
        }
        // The fifth has the next wait for a second, and so the sixth was no round of its own.
        assert_eq!(disturbed.repaired(secs(10), MOST), Some(secs(1)));
        assert_eq!(disturbed.repaired(secs(11), MOST), Some(secs(2)));
        assert_eq!(disturbed.repaired(secs(12), MOST), Some(secs(1)));
        assert_eq!(disturbed.repaired(secs(13), MOST), Some(secs(4)));
    }

    #[test]
    fn two_that_see_the_same_look_at_other_times() {
        let looks = |seed| {
            let mut disturbed: Disturbed = Disturbed::new(seed);
            let mut look = |at| {
                disturbed.note(Disturbance::everything(None), secs(at), MOST);
                let looked = disturbed.at().expect("a look");
                disturbed.take(looked);
                looked.saturating_sub(secs(at))
            };
            [look(10), look(20), look(30)]
        };
        let (one, other) = (looks(1), looks(2));
        assert!(one.iter().zip(&other).all(|(one, other)| one != other));
        assert!(
            one.iter()
                .chain(&other)
                .all(|wait| (DEBOUNCE..2 * DEBOUNCE).contains(wait))
        );
    }

    #[test]
    fn after_a_quiet_time_repairs_are_prompt_again() {
        let mut disturbed: Disturbed = Disturbed::default();
        for n in 0..10 {
            disturbed.repaired(secs(n), MOST);
        }
        assert_eq!(disturbed.repaired(secs(200), MOST), None);
    }

    #[test]
    fn a_stream_of_commits_does_not_put_the_look_off() {
        let mut disturbed: Disturbed = Disturbed::default();
        for tenth in 0..10 {
            disturbed.note(
                Disturbance::everything(None),
                Duration::from_millis(tenth * 100),
                MOST,
            );
        }
        assert_eq!(disturbed.at(), Some(DEBOUNCE));
    }

    #[test]
    fn looks_that_find_nothing_are_half_a_second_apart() {
        let mut disturbed: Disturbed = Disturbed::default();
        disturbed.note(Disturbance::everything(None), secs(1), MOST);
        disturbed.take(secs(2));
        disturbed.note(Disturbance::everything(None), secs(2), MOST);
        assert_eq!(disturbed.at(), Some(secs(2) + BETWEEN_LOOKS));
    }

    #[test]
    fn looks_that_take_long_are_further_apart() {
        let mut disturbed: Disturbed = Disturbed::default();
        disturbed.note(Disturbance::look(None), secs(1), MOST);
        disturbed.take(secs(2));
        disturbed.looked(secs(5));
        disturbed.note(Disturbance::look(None), secs(5), MOST);
        assert_eq!(disturbed.at(), Some(secs(5 + 12)));
    }

    #[test]
    fn what_leaves_nobody_served_is_looked_at_at_once_unless_a_rival_does_it() {
        let mut disturbed: Disturbed = Disturbed::default();
        disturbed.note(Disturbance::look(None), secs(10), MOST);
        disturbed.note_at_once(Disturbance::everything(None), secs(10), MOST);
        assert_eq!(disturbed.at(), Some(secs(10)));
        disturbed.take(secs(10));
        rival(&mut disturbed);
        disturbed.note_at_once(Disturbance::everything(None), secs(11), MOST);
        assert_eq!(disturbed.at(), Some(secs(18)));
    }

    #[test]
    fn a_look_waits_for_its_turn_after_many_repairs() {
        let mut disturbed: Disturbed = Disturbed::default();
        rival(&mut disturbed);
        disturbed.note(Disturbance::everything(None), secs(11), MOST);
        assert_eq!(disturbed.at(), Some(secs(18)));
    }
}
