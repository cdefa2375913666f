//! What others do to the tables, told to the engine soon after it happened.
//!
//! `nf_tables` notifies of each commit, and here is who listens; `legacy` asks for the sizes of the tables. What
//! neither backend's look sees is a stranger's rule before our jumps in a built-in chain, since those are theirs.

mod legacy;
mod listen;

pub(crate) use legacy::Left;
pub(crate) use listen::{Source, watch};

use crate::thread::ThreadError;
use engine::disturbance::{Concern, Edit};
use engine::{Disturbance, Event};
use kernel::{Backend, ForeignCommit, RuleWatch, SocketError, Touch, Touched};
use model::{Family, PerFamily};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

type Out = UnboundedSender<Event>;

/// Others' edits as they are noticed, and what the workers of legacy's families have to keep for that.
pub(crate) struct Drift {
    pub(crate) disturbances: UnboundedReceiver<Event>,
    pub(crate) left: PerFamily<Option<Left>>,
}

/// Starts a thread that notices what others do to the rules of these families.
pub(crate) fn start(backend: Backend, served: PerFamily<bool>) -> Result<Drift, ThreadError> {
    let (out, disturbances) = unbounded_channel();
    let mut left = PerFamily::default();
    match backend {
        Backend::NfTables => watch::<RuleWatch>(out)?,
        Backend::Legacy => {
            left = PerFamily::from_fn(|family| {
                let is_served = *served.get(family);
                is_served.then(|| Left::new(family, out.clone())).flatten()
            });
            legacy::watch(
                Family::ALL
                    .iter()
                    .filter_map(|family| left.get(*family).clone())
                    .collect(),
            )?;
        }
    }
    Ok(Drift { disturbances, left })
}

impl Source for RuleWatch {
    type Commit = ForeignCommit<Touched>;

    fn open() -> Result<RuleWatch, SocketError> {
        RuleWatch::new()
    }

    fn wait(&mut self, at_most: Duration) -> Result<Vec<ForeignCommit<Touched>>, SocketError> {
        RuleWatch::wait(self, at_most)
    }

    fn tell(commits: &[ForeignCommit<Touched>]) -> Vec<Event> {
        let told = concerning(commits).into_iter().map(|(family, disturbance)| {
            let by = disturbance.by.as_deref().unwrap_or("unknown");
            tracing::debug!(%family, %by, suspects = disturbance.suspects.len(), "others wrote into our chains");
            Event::Disturbed(family, disturbance)
        });
        told.collect()
    }

    fn everything(family: Family) -> Event {
        Event::Disturbed(family, Disturbance::everything(None))
    }
}

/// What of these commits concerns our rules, by family.
fn concerning(commits: &[ForeignCommit<Touched>]) -> Vec<(Family, Disturbance)> {
    let mut of: PerFamily<Option<Disturbance>> = PerFamily::default();
    for commit in commits {
        let by: Arc<str> = commit.by.to_string().into();
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

#[cfg(test)]
mod tests {
    use super::*;
    use iptables::ast::{ChainName, TableName};
    use kernel::Committed;

    fn commit(touched: Touched) -> ForeignCommit<Touched> {
        let by = Committed {
            generation: 2,
            port: 9,
            process: Some(4711),
            process_name: Some("iptables".to_owned()),
        };
        ForeignCommit { by, touched }
    }

    fn in_chain(chain: &str) -> ForeignCommit<Touched> {
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
