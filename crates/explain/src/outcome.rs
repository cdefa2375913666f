//! What it comes to: whether the sender reaches what it asked for, and the verdict in a word.

use crate::asked::{Asked, Failing};
use crate::explanation::{Reach, Verdict, is_others};
use crate::fate::{Ended, Fate};
use crate::finding::{Cause, Finding, Severity};
use crate::world::AddressesFrom;
use path::Listener;

impl Asked<'_> {
    pub(crate) fn reach(&self, failing: &Failing, findings: &[Finding]) -> Reach {
        let is_fault = findings.iter().any(|finding| finding.severity == Severity::Fault);
        if is_others(findings) {
            return Reach::NotOurs;
        }
        if findings.first().is_some_and(|first| self.is_for_another(first)) {
            return Reach::Unknown;
        }
        if failing.all {
            return Reach::No;
        }
        let total: f64 = self.fates.iter().map(|fate| fate.chance).sum();
        let fails =
            |fate: &&Fate| !fate.got_through() || fate.to.is_some_and(|to| failing.endpoints.contains(&to));
        let failed: f64 = self.fates.iter().filter(fails).map(|fate| fate.chance).sum();
        let share = if total > 0.0 { failed / total } else { 1.0 };
        let untouched = self
            .fates
            .iter()
            .all(|fate| !fate.is_translated() && fate.end != Ended::HealthCheck);
        if share > 0.999 {
            Reach::No
        } else if share > 0.001 {
            Reach::Fails(share)
        } else if untouched && !is_fault {
            Reach::NotOurs
        } else if untouched {
            Reach::No
        } else {
            Reach::Yes
        }
    }

    pub(crate) fn verdict(&self, findings: &[Finding]) -> Verdict {
        let has = |cause: Cause| findings.iter().any(|finding| finding.cause == cause);
        if has(Cause::OnLink) {
            return Verdict::NotRoutedThroughNode;
        }
        let bridged = findings
            .iter()
            .find(|finding| finding.cause == Cause::ReplyNotTranslated);
        let mut all: Vec<Verdict> = self
            .fates
            .iter()
            .map(|fate| match (&fate.end, fate.to) {
                (Ended::Refused(_), _) | (Ended::Here(Listener::Absent), Some(_)) => Verdict::Reject,
                (Ended::Dropped, _) => Verdict::Drop,
                (Ended::NoRoute, _) => Verdict::Unreachable,
                (Ended::HealthCheck, _) => Verdict::Accept,
                (Ended::Undecided(_), _) => Verdict::Mixed,
                (_, Some(_)) if bridged.is_some() => Verdict::ReplyNotTranslated,
                (_, Some(_)) => Verdict::Dnat,
                (_, None) => Verdict::Untouched,
            })
            .collect();
        all.sort();
        all.dedup();
        match all.as_slice() {
            [one] => *one,
            _ => Verdict::Mixed,
        }
    }

    /// Whether it says that somebody else would have to be asked: another node, or one whose interfaces are known.
    fn is_for_another(&self, finding: &Finding) -> bool {
        match finding.cause {
            Cause::SeenFrom => finding.severity == Severity::Fault,
            Cause::NotTheNodesAddress => self.world.addresses_from == AddressesFrom::Node,
            _ => false,
        }
    }
}
