//! A listener to a source of manifests.

use cluster::SourceEvent;
use cluster::manifests::{ManifestOptions, Source};
use cluster::state::KernelRules;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What is said once everything has been read.
pub const CONNECTED: &str = "Connected { delivery: Files }";

/// A Service as a manifest.
pub fn service(name: &str, ip: u8) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: default}}\n\
         spec: {{clusterIP: 10.96.0.{ip}, ports: [{{port: 80}}]}}\n"
    )
}

/// A source of manifests that runs, and what it says.
pub struct Watched {
    pub events: mpsc::Receiver<SourceEvent>,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watched {
    pub fn start(path: &Path) -> Self {
        // A poll that never comes: what the tests see, inotify has seen.
        Self::start_with(path, Duration::from_hours(1))
    }

    pub fn start_with(path: &Path, poll: Duration) -> Self {
        Self::start_beside(path, poll, || KernelRules::Absent)
    }

    pub fn start_beside(path: &Path, poll: Duration, rules: fn() -> KernelRules) -> Self {
        let mut options = ManifestOptions::new(path, "node-a");
        options.settle = Duration::from_millis(20);
        options.settle_open = Duration::from_millis(150);
        options.poll = poll;
        Self::of(options, rules)
    }

    pub fn of(options: ManifestOptions, rules: fn() -> KernelRules) -> Self {
        let (out, events) = mpsc::channel(1);
        let task = tokio::spawn(Source::new(options).unwrap().beside(rules).run(out));
        Watched { events, task }
    }

    /// What is said up to the next time everything has been, without the order of kinds.
    pub async fn round(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let text = self
                .next(Duration::from_secs(10))
                .await
                .unwrap_or_else(|| panic!("only {said:?}"));
            if text == "synced" {
                return said;
            }
            said.push(text);
        }
    }

    pub async fn next(&mut self, most: Duration) -> Option<String> {
        loop {
            let event = tokio::time::timeout(most, self.events.recv()).await.ok()??;
            if let Some(text) = super::short(&event) {
                return Some(text);
            }
        }
    }

    pub async fn quiet(&mut self) {
        assert_eq!(self.next(Duration::from_millis(400)).await, None);
    }
}

/// Puts a whole file in the place of another.
pub fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}
