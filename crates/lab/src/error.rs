//! The one error type: what was attempted, and what came back.

use std::io;

/// Why a lab could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The topology contradicts itself; nothing was built.
    #[error("the topology cannot be built: {0}")]
    Topology(String),
    /// Not root, and not inside [`crate::reexec_rootless`].
    #[error("a lab needs root, or a user namespace (see reexec_rootless)")]
    NeedsRoot,
    /// A lab of this prefix is up, and would be destroyed.
    #[error("lab {prefix} is up already: {why}, or choose another name with --prefix")]
    AlreadyUp {
        /// The prefix.
        prefix: String,
        /// Whose it is, or how to remove it.
        why: String,
    },
    /// There is no lab of this prefix.
    #[error("there is no lab {0}; `kube-proxy lab up --prefix {0}` builds one")]
    NoLab(String),
    /// A name that is neither a node, a pod, an outside client, the sink nor `wire`.
    #[error("lab {prefix} has no place called {name:?}; it has {known}")]
    UnknownPlace {
        /// The lab's prefix.
        prefix: String,
        /// The name asked for.
        name: String,
        /// The names it has, separated by blanks.
        known: String,
    },
    /// A system call or a file operation failed.
    #[error("could not {attempt}")]
    System {
        /// What was attempted, as "verb object".
        attempt: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A tool ran and failed.
    #[error("{tool} failed: {stderr}")]
    Tool {
        /// The tool and where it ran.
        tool: String,
        /// What it printed, with the input line it names.
        stderr: String,
    },
    /// The servers of the pods did not come up.
    #[error("the lab's servers did not start: {0}")]
    Servers(String),
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// User namespaces are not to be had here.
    #[error("no rootless lab on this machine: {0}")]
    Rootless(String),
}

impl LabError {
    /// Wraps what the system said with what was attempted.
    pub(crate) fn system(attempt: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System {
            attempt: attempt.into(),
            source: source.into(),
        }
    }

    /// The message and its causes on one line.
    pub fn chain(&self) -> String {
        match self {
            Self::System { attempt, source } => format!("could not {attempt}: {source}"),
            other => other.to_string(),
        }
    }
}
