//! Whether the proxy does what it is there for: a pure state, and what is answered out of it.
//!
//! Deviation: ADR 30. Upstream forgets that a change is waiting as soon as a sync begins, so that steady events hide
//! syncs that always fail. Here a change waits until the kernel has it.

use model::object::{Eligibility, Kind};
use model::{Family, PerFamily};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// So many failures in a row, and a family is not healthy.
pub(crate) const FAILURES_IN_A_ROW: u32 = 3;

/// One command of the kernel's tools may take this long (5 minutes), and a step has up to three of them. A step that is out
/// for longer is no sign of life.
pub(crate) const LONGEST_STEP: Duration = Duration::from_mins(15);

/// A watch that says nothing for so long is silent: bookmarks come about every minute.
pub(crate) const SILENCE: Duration = Duration::from_mins(5);

/// What is known of one family. Times count from the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FamilyHealth {
    /// When its loop began; what came before could not be written yet, and waits from then on.
    pub(crate) began: Duration,
    /// When the family was last in sync, or began.
    pub(crate) updated: Duration,
    /// When the oldest change came that is not in the kernel.
    pub(crate) pending_since: Option<Duration>,
    /// Failures since the last success.
    pub(crate) failures_in_a_row: u32,
    /// When a step last went through.
    pub(crate) progress: Duration,
    /// Since when the kernel has been at a step.
    pub(crate) working_since: Option<Duration>,
    /// Services the kernel refuses by themselves.
    pub(crate) refused: usize,
    /// Services that wait, the refused ones not counted.
    pub(crate) queued: usize,
}

/// What is known of the watch of one kind of object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WatchHealth {
    /// When it last said something, bookmarks included.
    pub(crate) heard: Duration,
    /// Why it cannot be opened, when it cannot.
    pub(crate) failing: Option<String>,
}

/// Objects that count are not the API server's own, but what it said to an earlier process (ADR 38).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RememberedHealth {
    /// How old they were when they came into use.
    pub(crate) age: Duration,
    /// When that was.
    pub(crate) since: Duration,
}

impl RememberedHealth {
    /// How old they are.
    pub(crate) fn age_at(self, now: Duration) -> Duration {
        self.age + now.saturating_sub(self.since)
    }
}

/// Which question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// `/healthz`: should load balancers send here?
    Healthz,
    /// `/livez`: would a restart help?
    Livez,
}

/// The state. It moves when it is told something, and is asked with the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Health {
    /// Twice `syncPeriod`: how long a change may wait.
    pub(crate) patience: Duration,
    /// Families whose loop has begun.
    pub(crate) families: PerFamily<Option<FamilyHealth>>,
    /// What the last seen Node says of itself; `None` before there was one.
    pub(crate) node: Option<Eligibility>,
    /// Why it matters that there was none, while there was none.
    pub(crate) node_missing: Option<String>,
    /// Watches, by kind; none for files.
    pub(crate) watches: BTreeMap<Kind, WatchHealth>,
    /// When the loop that feeds the engine last came round, which it does every few seconds; `None` before it began.
    pub(crate) loop_seen: Option<Duration>,
    /// Set while remembered objects are in use. They make nothing unhealthy: they are what can be had.
    pub(crate) remembered: Option<RememberedHealth>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Whether all families are healthy.
    pub(crate) healthy: bool,
    /// Whether load balancers may send here; `None` where that does not matter.
    pub(crate) node_eligible: Option<bool>,
    /// Each family: when it was last updated, and whether it is healthy.
    pub(crate) families: Vec<(Family, Duration, bool)>,
}

impl Verdict {
    /// Whether the answer is 200.
    pub(crate) fn is_ok(&self) -> bool {
        self.healthy && self.node_eligible.unwrap_or(true)
    }
}

/// More than upstream tells: `/healthz?verbose` and `/livez?verbose`.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Detail {
    /// Per family.
    families: BTreeMap<String, FamilyDetail>,
    /// Per kind of object.
    watches: BTreeMap<String, WatchDetail>,
    /// Only while remembered objects are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    remembered_state: Option<RememberedDetail>,
    /// What is wrong with the Node's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RememberedDetail {
    age_seconds: f64,
    in_use_seconds: f64,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct FamilyDetail {
    oldest_pending_seconds: Option<f64>,
    failures_in_a_row: u32,
    queued: usize,
    refused: usize,
    since_progress_seconds: f64,
}

#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct WatchDetail {
    age_seconds: f64,
    silent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing: Option<String>,
}

impl Health {
    /// A proxy that has just started and waits for its first objects.
    pub(crate) fn new(patience: Duration) -> Health {
        Health {
            patience,
            ..Health::default()
        }
    }

    /// The answer to a question.
    pub(crate) fn ask(&self, question: Question, now: Duration) -> Verdict {
        let families: Vec<_> = Family::ALL
            .into_iter()
            .filter_map(|family| Some((family, (*self.families.get(family))?)))
            .map(|(family, state)| {
                let healthy = match question {
                    Question::Healthz => self.is_current(state, now),
                    Question::Livez => self.is_alive(state, now),
                };
                (family, state.updated, healthy)
            })
            .collect();
        let turns = self
            .loop_seen
            .is_none_or(|seen| now.saturating_sub(seen) < self.patience);
        Verdict {
            healthy: turns && families.iter().all(|(_, _, healthy)| *healthy),
            node_eligible: (question == Question::Healthz).then(|| self.node == Some(Eligibility::Eligible)),
            families,
        }
    }

    /// Whether all that came long ago is in the kernel, and the kernel takes what it is given.
    fn is_current(&self, state: FamilyHealth, now: Duration) -> bool {
        let waits = state.pending_since.map(|since| now.saturating_sub(since));
        state.failures_in_a_row < FAILURES_IN_A_ROW && waits.is_none_or(|waits| waits < self.patience)
    }

    /// The same, but slow is alive. A restart would begin from the front; and it would not make the kernel take a
    /// service that it refuses by itself while it takes the others.
    fn is_alive(&self, state: FamilyHealth, now: Duration) -> bool {
        let takes_others = state.progress > state.began;
        if state.queued == 0 && state.refused > 0 && takes_others {
            return true;
        }
        if state.failures_in_a_row >= FAILURES_IN_A_ROW {
            return false;
        }
        let progressed = now.saturating_sub(state.progress) < self.patience;
        let works = state
            .working_since
            .is_some_and(|since| now.saturating_sub(since) < LONGEST_STEP);
        self.is_current(state, now) || progressed || works
    }

    /// What upstream does not tell.
    pub(crate) fn detail(&self, now: Duration) -> Detail {
        let age = |since: Duration| now.saturating_sub(since);
        let families = Family::ALL.into_iter().filter_map(|family| {
            let state = (*self.families.get(family))?;
            let detail = FamilyDetail {
                oldest_pending_seconds: state.pending_since.map(|since| age(since).as_secs_f64()),
                failures_in_a_row: state.failures_in_a_row,
                queued: state.queued,
                refused: state.refused,
                since_progress_seconds: age(state.progress).as_secs_f64(),
            };
            Some((family.to_string(), detail))
        });
        let watches = self.watches.iter().map(|(kind, watch)| {
            let detail = WatchDetail {
                age_seconds: age(watch.heard).as_secs_f64(),
                silent: age(watch.heard) >= SILENCE,
                failing: watch.failing.clone(),
            };
            (kind_word(*kind).to_owned(), detail)
        });
        Detail {
            families: families.collect(),
            watches: watches.collect(),
            remembered_state: self.remembered.map(|remembered| RememberedDetail {
                age_seconds: remembered.age_at(now).as_secs_f64(),
                in_use_seconds: age(remembered.since).as_secs_f64(),
            }),
            node: self.node_missing.clone(),
        }
    }
}

/// A kind's name in the API.
pub(crate) fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Service => "Service",
        Kind::Slice => "EndpointSlice",
        Kind::Node => "Node",
        Kind::ServiceCidr => "ServiceCIDR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn health(state: FamilyHealth) -> Health {
        Health {
            families: PerFamily {
                v4: Some(state),
                v6: None,
            },
            node: Some(Eligibility::Eligible),
            ..Health::new(secs(60))
        }
    }

    fn ok(health: &Health, question: Question, now: u64) -> bool {
        health.ask(question, secs(now)).is_ok()
    }

    #[test]
    fn before_the_first_object_the_proxy_lives_and_is_not_eligible() {
        let fresh = Health::new(secs(60));
        assert!(ok(&fresh, Question::Livez, 0));
        let verdict = fresh.ask(Question::Healthz, secs(0));
        assert!(verdict.healthy);
        assert_eq!(verdict.node_eligible, Some(false));
        assert!(!verdict.is_ok());
    }

    #[test]
    fn nothing_pending_is_healthy_for_ever() {
        let idle = health(FamilyHealth::default());
        assert!(ok(&idle, Question::Healthz, 1_000_000));
        assert!(ok(&idle, Question::Livez, 1_000_000));
    }

    #[test]
    fn a_change_that_waits_for_twice_the_sync_period_is_unhealthy() {
        let waiting = health(FamilyHealth {
            pending_since: Some(secs(100)),
            queued: 1,
            ..FamilyHealth::default()
        });
        assert!(ok(&waiting, Question::Healthz, 159));
        assert!(!ok(&waiting, Question::Healthz, 160));
        assert!(!ok(&waiting, Question::Livez, 160));
    }

    #[test]
    fn three_failures_in_a_row_are_unhealthy_at_once() {
        let failing = |failures_in_a_row| {
            health(FamilyHealth {
                failures_in_a_row,
                progress: secs(1),
                ..FamilyHealth::default()
            })
        };
        for question in [Question::Healthz, Question::Livez] {
            assert!(ok(&failing(2), question, 1));
            assert!(!ok(&failing(3), question, 1));
        }
    }

    #[test]
    fn slow_but_progressing_is_alive_and_not_healthy() {
        let slow = health(FamilyHealth {
            pending_since: Some(secs(0)),
            progress: secs(290),
            queued: 5000,
            ..FamilyHealth::default()
        });
        assert!(ok(&slow, Question::Livez, 300));
        assert!(!ok(&slow, Question::Healthz, 300));
        assert!(!ok(&slow, Question::Livez, 350));
    }

    #[test]
    fn one_restore_of_five_minutes_is_alive_and_one_that_never_ends_is_not() {
        let long = health(FamilyHealth {
            pending_since: Some(secs(0)),
            working_since: Some(secs(2)),
            queued: 1,
            ..FamilyHealth::default()
        });
        assert!(ok(&long, Question::Livez, 302));
        assert!(!ok(&long, Question::Healthz, 302));
        assert!(!ok(&long, Question::Livez, 902));
    }

    #[test]
    fn a_service_refused_by_itself_does_not_get_the_process_killed() {
        let refused = |progress| {
            health(FamilyHealth {
                pending_since: Some(secs(0)),
                failures_in_a_row: 7,
                progress,
                refused: 1,
                ..FamilyHealth::default()
            })
        };
        assert!(ok(&refused(secs(5)), Question::Livez, 10_000));
        assert!(!ok(&refused(secs(5)), Question::Healthz, 10_000));
        // Nothing ever went through: it is not just this service.
        assert!(!ok(&refused(secs(0)), Question::Livez, 10_000));
    }

    #[test]
    fn one_sick_family_makes_the_proxy_sick() {
        let mut both = health(FamilyHealth::default());
        both.families.v6 = Some(FamilyHealth {
            failures_in_a_row: 3,
            ..FamilyHealth::default()
        });
        let verdict = both.ask(Question::Livez, secs(0));
        let healthy: Vec<bool> = verdict.families.iter().map(|(_, _, healthy)| *healthy).collect();
        assert_eq!(healthy, [true, false]);
        assert!(!verdict.is_ok());
    }

    #[test]
    fn a_node_on_its_way_out_fails_healthz_only() {
        for node in [Eligibility::Deleting, Eligibility::ToBeDeleted] {
            let mut leaving = health(FamilyHealth::default());
            leaving.node = Some(node);
            assert!(leaving.ask(Question::Healthz, secs(0)).healthy);
            assert!(!ok(&leaving, Question::Healthz, 0));
            assert!(ok(&leaving, Question::Livez, 0));
        }
    }

    #[test]
    fn a_loop_that_no_longer_turns_is_unhealthy_with_nothing_pending() {
        let mut stuck = health(FamilyHealth::default());
        stuck.loop_seen = Some(secs(10));
        assert!(ok(&stuck, Question::Livez, 69));
        assert!(!ok(&stuck, Question::Livez, 70));
        assert!(!ok(&stuck, Question::Healthz, 70));
    }

    #[test]
    fn a_silent_watch_shows_in_the_detail() {
        let mut quiet = health(FamilyHealth::default());
        quiet.watches.insert(
            Kind::Slice,
            WatchHealth {
                heard: secs(10),
                failing: Some("refused".into()),
            },
        );
        let detail = serde_json::to_value(quiet.detail(secs(310))).unwrap();
        assert_eq!(detail["watches"]["EndpointSlice"]["silent"], true);
        assert_eq!(detail["watches"]["EndpointSlice"]["ageSeconds"], 300.0);
        assert_eq!(detail["watches"]["EndpointSlice"]["failing"], "refused");
        let detail = serde_json::to_value(quiet.detail(secs(309))).unwrap();
        assert_eq!(detail["watches"]["EndpointSlice"]["silent"], false);
    }
}
