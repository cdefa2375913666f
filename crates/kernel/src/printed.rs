//! What a tool prints of this host, bounded in time and size; for tools, the daemon never asks this way.

use crate::classify;
use crate::process::{Invocation, RunError};
use std::path::Path;
use std::time::Duration;

/// Largest text that is kept, in bytes.
const LARGEST: usize = 512 << 20;

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// There is no such tool.
    #[error("{tool} is not installed")]
    NotInstalled {
        /// Its name.
        tool: String,
    },
    /// It could not be run to its end.
    #[error("{command} {error}")]
    Run {
        /// What was run.
        command: String,
        /// How it failed.
        error: String,
    },
    /// It refused.
    #[error("{command} failed: {said}")]
    Refused {
        /// What was run.
        command: String,
        /// What it said, in one line.
        said: String,
    },
}

/// What a tool prints; `None` when that takes longer than `patience` or is too much.
///
/// # Errors
/// When it is missing, is not allowed to, or fails.
pub(crate) fn printed(tool: &Path, args: &[&str], patience: Duration) -> Result<Option<String>, ListError> {
    let invocation = Invocation {
        program: &tool.to_owned(),
        args: args.to_vec(),
        input: &[],
        environment: &[],
        timeout: patience,
    };
    let mut output = Vec::new();
    let mut whole = true;
    let mut keep = |bytes: &[u8]| {
        whole &= output.len() + bytes.len() <= LARGEST;
        if whole {
            output.extend_from_slice(bytes);
        }
    };
    match invocation.run(&mut keep) {
        Ok(finished) if finished.succeeded() => {
            Ok(whole.then(|| String::from_utf8_lossy(&output).into_owned()))
        }
        Ok(finished) => Err(ListError::Refused {
            command: command(tool, args),
            said: classify::detail(&finished, ""),
        }),
        Err(RunError::TimedOut(_)) => Ok(None),
        Err(RunError::Start(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ListError::NotInstalled { tool: name(tool) })
        }
        Err(error) => Err(ListError::Run {
            command: command(tool, args),
            error: error.words(),
        }),
    }
}

/// That [`printed`] had nothing.
pub(crate) fn too_much(tool: &Path, args: &[&str], patience: Duration) -> ListError {
    ListError::Run {
        command: command(tool, args),
        error: format!("was not done after {patience:?}, or printed more than {LARGEST} bytes"),
    }
}

fn command(tool: &Path, args: &[&str]) -> String {
    format!("{} {}", name(tool), args.join(" "))
}

fn name(tool: &Path) -> String {
    tool.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
