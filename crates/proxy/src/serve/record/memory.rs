//! What is told of the memory on disk.

use super::{Moment, Record};
use crate::serve::families::own;
use crate::serve::health::RememberedHealth;
use cluster::Remembered;

impl Record {
    /// The memory did something.
    pub(super) fn remembered(&mut self, what: &Remembered, now: Moment) {
        match what {
            Remembered::InUse { changes, age, .. } => {
                // No watch said any of it, so none is any younger for it.
                for change in changes {
                    self.count(change, now);
                }
                self.health.remembered = Some(RememberedHealth {
                    age: *age,
                    since: now.since_start,
                });
                self.metrics.set(own::REMEMBERED, &[], 1.0);
            }
            Remembered::Over => {
                self.health.remembered = None;
                self.metrics.set(own::REMEMBERED, &[], 0.0);
            }
            Remembered::NotWritten(_) => self.metrics.set(own::REMEMBERED_FAILING, &[], 1.0),
            Remembered::Written(_) => self.metrics.set(own::REMEMBERED_FAILING, &[], 0.0),
            Remembered::NotUsed(_) | Remembered::Nothing(_) | Remembered::RulesAreThere => {}
        }
    }

    /// How old what is remembered is, while it is in use.
    pub(super) fn remembered_age(&mut self, now: Moment) {
        self.metrics.clear(own::REMEMBERED_AGE);
        if let Some(remembered) = self.health.remembered {
            let age = remembered.age_at(now.since_start).as_secs_f64();
            self.metrics.set(own::REMEMBERED_AGE, &[], age);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::families::Mode;
    use crate::serve::health::WatchHealth;
    use model::Family;
    use model::object::Kind;
    use model::snapshot::Change;
    use std::time::Duration;

    fn at(seconds: u64) -> Moment {
        Moment {
            since_start: Duration::from_secs(seconds),
            wall: 0.0,
        }
    }

    fn in_use() -> cluster::SourceEvent {
        cluster::SourceEvent::Remembered(Remembered::InUse {
            kinds: vec![Kind::Service],
            changes: vec![Change::ReplaceAll {
                kind: Kind::Service,
                objects: vec![],
            }],
            age: Duration::from_secs(100),
            objects: 0,
        })
    }

    #[test]
    fn remembered_objects_show_with_their_age_and_make_no_watch_younger() {
        let mut record = Record::new(Mode::Iptables, "node-a".into(), Duration::from_mins(1));
        record
            .health
            .watches
            .insert(Kind::Service, WatchHealth::default());
        record.source(&in_use(), at(20));
        assert_eq!(record.health.watches[&Kind::Service].heard, Duration::ZERO);
        record.ages(at(30));
        assert_eq!(record.metrics.number(own::REMEMBERED, &[]), Some(1.0));
        assert_eq!(record.metrics.number(own::REMEMBERED_AGE, &[]), Some(110.0));
        let detail = serde_json::to_value(record.health.detail(at(30).since_start)).unwrap();
        assert_eq!(detail["rememberedState"]["ageSeconds"], 110.0);
        record.source(&cluster::SourceEvent::Remembered(Remembered::Over), at(40));
        record.ages(at(40));
        assert_eq!(record.metrics.number(own::REMEMBERED, &[]), Some(0.0));
        assert_eq!(record.metrics.number(own::REMEMBERED_AGE, &[]), None);
        let detail = serde_json::to_value(record.health.detail(at(40).since_start)).unwrap();
        assert!(detail.get("rememberedState").is_none());
    }

    #[test]
    fn remembered_objects_do_not_change_what_healthy_means() {
        let mut record = Record::new(Mode::Iptables, "node-a".into(), Duration::from_mins(1));
        let before = record
            .health
            .ask(crate::serve::health::Question::Livez, Duration::ZERO);
        record.source(&in_use(), at(20));
        let after = record
            .health
            .ask(crate::serve::health::Question::Livez, Duration::ZERO);
        assert_eq!(before, after);
        assert!(record.health.families.get(Family::V4).is_none());
    }
}
