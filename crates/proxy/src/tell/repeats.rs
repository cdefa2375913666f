//! The same said again and again, summed up: the first time whole, then how often at growing intervals.

use std::collections::BTreeMap;
use std::time::Duration;

/// Until the first summary; each later one waits twice as long as the one before.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest wait between two.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// What was not heard for so long is news again.
const FORGOTTEN: Duration = Duration::from_mins(10);
/// So many subjects are kept apart; beyond, all is news again.
const MOST_SUBJECTS: usize = 1_000;

/// What to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Say {
    /// All of it: this is new.
    Whole,
    /// That it goes on.
    Summary {
        /// How often it was heard by now.
        times: u32,
        /// For how long.
        since: Duration,
    },
    /// Nothing: it was said not long ago.
    Nothing,
}

/// What is being said, by what it is about. Time is an argument.
#[derive(Debug)]
pub(super) struct Repeats<K>(BTreeMap<K, Repeated>);

#[derive(Debug)]
struct Repeated {
    text: String,
    times: u32,
    first: Duration,
    last: Duration,
    wait: Duration,
    next: Duration,
}

impl<K: Ord> Repeats<K> {
    pub(super) fn new() -> Repeats<K> {
        Repeats(BTreeMap::new())
    }

    /// Something was heard about a subject. Texts that differ in numbers alone are the same.
    pub(super) fn heard(&mut self, subject: K, text: &str, now: Duration) -> Say {
        let text: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if let Some(known) = self.0.get_mut(&subject)
            && known.text == text
            && now.saturating_sub(known.last) < FORGOTTEN.max(known.wait)
        {
            return known.again(now);
        }
        if self.0.len() >= MOST_SUBJECTS {
            self.0.clear();
        }
        let new = Repeated {
            text,
            times: 1,
            first: now,
            last: now,
            wait: FIRST_WAIT,
            next: now + FIRST_WAIT,
        };
        self.0.insert(subject, new);
        Say::Whole
    }

    /// It is over with a subject; how often it was heard, if it was.
    pub(super) fn over(&mut self, subject: &K) -> Option<u32> {
        self.0.remove(subject).map(|known| known.times)
    }

    /// It is over with all subjects but these.
    pub(super) fn keep(&mut self, mut goes_on: impl FnMut(&K) -> bool) {
        self.0.retain(|subject, _| goes_on(subject));
    }
}

impl Repeated {
    fn again(&mut self, now: Duration) -> Say {
        self.times += 1;
        self.last = now;
        if now < self.next {
            return Say::Nothing;
        }
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        self.next = now + self.wait;
        Say::Summary {
            times: self.times,
            since: now.saturating_sub(self.first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_failure_each_second_for_an_hour_takes_a_dozen_lines() {
        let mut repeats = Repeats::new();
        let said: Vec<(u64, Say)> = (0..3600)
            .map(|second| (second, repeats.heard("v4", "no", secs(second))))
            .filter(|(_, say)| *say != Say::Nothing)
            .collect();
        assert_eq!(said[0], (0, Say::Whole));
        let at: Vec<u64> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(at, [0, 10, 30, 70, 150, 310, 630, 1270, 2550]);
        let summary = Say::Summary {
            times: 11,
            since: secs(10),
        };
        assert_eq!(said[1].1, summary);
    }

    #[test]
    fn another_text_or_another_subject_is_news() {
        let mut repeats = Repeats::new();
        assert_eq!(repeats.heard(4, "lock is held", secs(0)), Say::Whole);
        assert_eq!(repeats.heard(6, "lock is held", secs(1)), Say::Whole);
        assert_eq!(repeats.heard(4, "no such chain", secs(2)), Say::Whole);
        assert_eq!(repeats.heard(4, "lock is held", secs(3)), Say::Whole);
    }

    #[test]
    fn numbers_make_no_news() {
        let mut repeats = Repeats::new();
        assert_eq!(repeats.heard((), "line 7 of 80 bytes", secs(0)), Say::Whole);
        assert_eq!(repeats.heard((), "line 12 of 9 bytes", secs(1)), Say::Nothing);
    }

    #[test]
    fn what_is_over_is_counted_and_is_news_when_it_comes_back() {
        let mut repeats = Repeats::new();
        for second in 0..5 {
            repeats.heard("a", "no", secs(second));
        }
        assert_eq!(repeats.over(&"a"), Some(5));
        assert_eq!(repeats.over(&"a"), None);
        assert_eq!(repeats.heard("a", "no", secs(6)), Say::Whole);
        assert_eq!(repeats.heard("a", "no", secs(6 + 600)), Say::Whole);
    }

    #[test]
    fn subjects_are_bounded() {
        let mut repeats = Repeats::new();
        for subject in 0..100_000 {
            assert_eq!(repeats.heard(subject, "no", secs(0)), Say::Whole);
            assert!(repeats.0.len() <= MOST_SUBJECTS);
        }
    }
}
