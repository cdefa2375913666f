//! What is done to host and process once, before rules are written.

mod checks;
pub(crate) mod cleanup;
mod conntrack;
mod file;

pub(crate) use checks::check;
pub use cleanup::{CleanupError, clean_up};
pub use file::{file_changes, read_config};

use crate::{ProxyError, host};
use config::KubeProxyConfiguration;
use std::time::Duration;

/// What needs root and is done once: `--init-only` does this and nothing else.
///
/// # Errors
/// When the host lacks something. Conntrack settings that cannot be written are told and are no error.
pub fn prepare(config: &KubeProxyConfiguration) -> Result<(), ProxyError> {
    host::find(config)?;
    conntrack::apply(config);
    Ok(())
}

/// Conntrack's settings, for a proxy that serves.
pub(crate) fn set_conntrack(config: &KubeProxyConfiguration) {
    conntrack::apply(config);
}

/// Writes `/proc/self/oom_score_adj`; a second try after 100 ms. Failure is told and is no error.
pub fn set_oom_score(score: i32) {
    let path = "/proc/self/oom_score_adj";
    let write = || {
        let text = std::fs::read_to_string(path)?;
        if text.trim() == score.to_string() {
            Ok(())
        } else {
            std::fs::write(path, score.to_string())
        }
    };
    if write().is_err() {
        std::thread::sleep(Duration::from_millis(100));
        if let Err(error) = write() {
            tracing::warn!(%error, score, "oom_score_adj stays as it is; the kernel may end this process early when memory is short");
        }
    }
}
