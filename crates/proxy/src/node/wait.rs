//! The start: objects are taken in, and no rule is written, until the Node is there with what the configuration needs
//! of it.

use super::{Missing, missing, nobody};
use crate::serve::Serving;
use crate::{ProxyError, ProxyOptions, tell};
use cluster::{Remembered, SourceEvent};
use engine::Event;
use model::object::Kind;
use model::snapshot::{Change, Snapshot};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, timeout_at};

/// How long the Node is waited for, and its pod CIDR after that.
const NODE_PATIENCE: Duration = Duration::from_secs(30);
const POD_CIDR_PATIENCE: Duration = Duration::from_mins(5);

/// What came until the Node was known.
pub(crate) struct Early {
    /// The objects.
    pub(crate) snapshot: Snapshot,
    listed: Vec<Kind>,
    /// Whether some of it is what an earlier process was told.
    pub(crate) remembered: bool,
}

/// Takes in what the source says until the Node is there with what the configuration needs of it.
///
/// Objects that come meanwhile are kept; no rule is written.
pub(crate) async fn wait_for_node(
    options: &ProxyOptions,
    events: &mut Receiver<SourceEvent>,
    serving: &Serving,
) -> Result<Early, ProxyError> {
    let mut early = Early {
        snapshot: Snapshot::new(),
        listed: Vec::new(),
        remembered: false,
    };
    let start = Instant::now();
    loop {
        let listed = early.listed.contains(&Kind::Node);
        let lacks = missing(options, &early.snapshot);
        let from_files = matches!(options.from, crate::From::Manifests(_));
        // The time to wait begins when the server has answered; without an answer there is nothing to decide on.
        let patience = match lacks {
            None if listed => return Ok(early),
            Some(Missing::PodCidr) => NODE_PATIENCE + POD_CIDR_PATIENCE,
            _ => NODE_PATIENCE,
        };
        let files_are_read = from_files && early.listed.contains(&Kind::Service) && listed;
        if listed && (start.elapsed() >= patience || files_are_read) {
            return without_node(options, lacks, early, serving);
        }
        let deadline = if listed {
            start + patience
        } else {
            Instant::now() + NODE_PATIENCE
        };
        match timeout_at(deadline, events.recv()).await {
            Ok(Some(event)) => {
                serving.source(&event);
                early.take(event);
            }
            Ok(None) => return Ok(early),
            Err(_) if from_files => tracing::warn!("still waiting until the manifests can be read"),
            Err(_) => tracing::warn!(node = %options.node_name, "still waiting for the Node"),
        }
    }
}

fn without_node(
    options: &ProxyOptions,
    lacks: Option<Missing>,
    early: Early,
    serving: &Serving,
) -> Result<Early, ProxyError> {
    let node = &options.node_name;
    match lacks {
        Some(Missing::Node) if options.config.detect_local_mode == "NodeCIDR" => {
            Err(ProxyError::NoPodCidr(format!("node {node:?} to exist")))
        }
        Some(Missing::PodCidr) => Err(ProxyError::NoPodCidr(format!(
            "PodCIDR allocation on node {node:?}"
        ))),
        Some(Missing::Node) => {
            let nobody = nobody::describe(options, &early.snapshot);
            tracing::error!(%node, "{nobody}");
            serving.node_missing(nobody);
            Ok(early)
        }
        Some(Missing::Addresses) => {
            tracing::error!(%node, "the Node has no usable addresses yet; going on with loopback ones until it has");
            Ok(early)
        }
        None => Ok(early),
    }
}

impl Early {
    fn take(&mut self, event: SourceEvent) {
        tell::source(&event);
        match event {
            SourceEvent::Change(change) => drop(self.snapshot.apply(change)),
            SourceEvent::Together(changes) => self.changes(changes),
            SourceEvent::Remembered(Remembered::InUse { kinds, changes, .. }) => {
                self.remembered = true;
                self.changes(changes);
                self.listed.extend(kinds);
            }
            SourceEvent::Remembered(Remembered::Over) => self.remembered = false,
            SourceEvent::Synced(kind) if !self.listed.contains(&kind) => self.listed.push(kind),
            _ => {}
        }
    }

    fn changes(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.snapshot.apply(change);
        }
    }

    /// All that came, as the events it would have been.
    pub(crate) fn replay(self) -> Vec<Event> {
        let Early { snapshot, listed, .. } = self;
        let mut events: Vec<Event> = snapshot
            .into_objects()
            .map(|object| Event::Changed(Change::Apply(object)))
            .collect();
        events.extend(listed.into_iter().map(Event::Listed));
        events
    }
}
