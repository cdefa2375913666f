//! Others' commits to the tables, told to the engine as they happen (`nf_tables`; legacy tells nobody of anything).
//!
//! On legacy the engine reads all of our tables each `syncPeriod` and finds the same harm then. Nothing cheaper is
//! there: how many entries a table has is told by a socket option alone, which takes unsafe code to ask for. What
//! neither backend's look sees is a stranger's rule before our jumps in a built-in chain, since those are theirs.

use engine::Disturbance;
use engine::disturbance::{Concern, Edit};
use kernel::{Committed, ForeignCommit, RuleWatch, SocketError, Touch, Touched};
use model::{Family, PerFamily};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

type Out = UnboundedSender<(Family, Disturbance)>;

/// After lost notifications everything is read back, but not more often than this.
const BETWEEN_LOSSES: Duration = Duration::from_mins(1);
/// After a failure of the watch.
const PAUSE: Duration = Duration::from_secs(5);
/// With nothing to wait for.
const LONG: Duration = Duration::from_hours(1);

/// Starts a thread that tells of everything that may concern our rules.
pub(crate) fn watch(out: Out) {
    std::thread::Builder::new()
        .name("drift".to_owned())
        .spawn(move || {
            // Whoever does not listen any more has ended.
            let mut losses = Losses::default();
            while listen(&out, &mut losses).is_some() {
                std::thread::sleep(PAUSE);
            }
        })
        .expect("invariant: a process can have one more thread");
}

/// Listens until the watch breaks; `None` when nobody wants to know.
fn listen(out: &Out, losses: &mut Losses) -> Option<()> {
    let mut watch = match RuleWatch::new() {
        Ok(watch) => watch,
        Err(error) => {
            tracing::debug!(%error, "changes by others are noticed late: each syncPeriod");
            return Some(());
        }
    };
    loop {
        match watch.wait(losses.left().unwrap_or(LONG)) {
            Ok(commits) => {
                for (family, disturbance) in concerning(&commits) {
                    let by = disturbance.by.as_deref().unwrap_or("unknown");
                    tracing::debug!(%family, %by, suspects = disturbance.suspects.len(), "others wrote into our chains");
                    out.send((family, disturbance)).ok()?;
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
                out.send((family, Disturbance::everything(None))).ok()?;
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

/// What of these commits concerns our rules, by family.
fn concerning(commits: &[ForeignCommit]) -> Vec<(Family, Disturbance)> {
    let mut of: PerFamily<Option<Disturbance>> = PerFamily::default();
    for commit in commits {
        let by: Arc<str> = who(&commit.by).into();
        match &commit.touched {
            Touched::Many => {
                for family in Family::ALL {
                    let known = of.get_mut(family).get_or_insert_default();
                    known.merge(Disturbance::everything(Some(by.clone())));
                }
            }
            Touched::Chains(chains) => {
                for (family, table, chain, touch) in chains {
                    let mut new = Disturbance::default();
                    let edit = match touch {
                        Touch::Added => Edit::Added,
                        Touch::Deleted => Edit::Deleted,
                    };
                    if new.note(*table, chain, edit) == Concern::Ours {
                        new.by = Some(by.clone());
                        of.get_mut(*family).get_or_insert_default().merge(new);
                    }
                }
            }
        }
    }
    Family::ALL
        .into_iter()
        .filter_map(|family| of.get_mut(family).take().map(|disturbance| (family, disturbance)))
        .collect()
}

/// `iptables (pid 4711)`. Pids are those of the initial namespace.
fn who(by: &Committed) -> String {
    let name = by.process_name.as_deref().unwrap_or("somebody");
    match by.process {
        Some(pid) => format!("{name} (pid {pid})"),
        None => format!("{name} (port {})", by.port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iptables::ast::{ChainName, TableName};

    fn commit(touched: Touched) -> ForeignCommit {
        let by = Committed {
            generation: 2,
            port: 9,
            process: Some(4711),
            process_name: Some("iptables".to_owned()),
        };
        ForeignCommit { by, touched }
    }

    fn in_chain(chain: &str) -> ForeignCommit {
        let chain = ChainName::new(chain).expect("a chain's name");
        commit(Touched::Chains(
            [(Family::V4, TableName::Nat, chain, Touch::Deleted)].into(),
        ))
    }

    #[test]
    fn commits_that_touch_nothing_of_ours_are_not_told() {
        assert_eq!(concerning(&[in_chain("CNI-HOSTPORT-DNAT")]), []);
    }

    #[test]
    fn whoever_touched_ours_is_named_and_no_one_else() {
        let mut stranger = in_chain("CNI-HOSTPORT-DNAT");
        stranger.by.process_name = Some("cni".to_owned());
        let told = concerning(&[in_chain("KUBE-SERVICES"), stranger]);
        let names: Vec<_> = told
            .iter()
            .map(|(family, d)| (*family, d.by.as_deref()))
            .collect();
        assert_eq!(names, [(Family::V4, Some("iptables (pid 4711)"))]);
    }

    #[test]
    fn a_commit_too_large_to_tell_disturbs_both_families() {
        assert_eq!(concerning(&[commit(Touched::Many)]).len(), 2);
    }
}
