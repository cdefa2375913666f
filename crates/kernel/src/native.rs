//! What `nft` lists of this host, for tools; the daemon never runs it.

use crate::classify;
use crate::process::{Invocation, RunError};
use std::path::Path;
use std::time::Duration;

/// How long `nft` may take for a list with all elements. 10,000 services with 10 endpoints each take it 5 s, 40,000 half a
/// minute and 800 MB.
const PATIENCE: Duration = Duration::from_secs(20);

/// Largest list that is kept, in bytes.
const LARGEST: usize = 512 << 20;

/// A list of all tables, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What was printed.
    pub json: String,
    /// Whether it has the elements of sets.
    pub elements: Elements,
}

/// Whether a list has the elements of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// All of them.
    Listed,
    /// None: that took too long, or was too much.
    LeftOut,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// There is no such tool.
    #[error("nft is not installed")]
    NotInstalled,
    /// It could not be run to its end.
    #[error("nft {args} {error}")]
    Run {
        /// What it was told.
        args: String,
        /// How it failed.
        error: String,
    },
    /// It refused.
    #[error("nft {args} failed: {said}")]
    Refused {
        /// What it was told.
        args: String,
        /// What it said, in one line.
        said: String,
    },
}

/// Lists all tables of this network namespace: with the elements of sets if that can be had in time.
///
/// # Errors
/// When `nft` is missing, is not allowed to, or fails.
pub fn list() -> Result<Listed, ListError> {
    list_by(Path::new("nft"), PATIENCE)
}

/// The same by this program, which may take so long for each try.
///
/// # Errors
/// As of [`list`].
pub fn list_by(nft: &Path, patience: Duration) -> Result<Listed, ListError> {
    let all = ["-j", "list", "ruleset"];
    let terse = ["-j", "-t", "list", "ruleset"];
    let (json, elements) = match run(nft, &all, patience)? {
        Some(json) => (json, Elements::Listed),
        None => match run(nft, &terse, patience)? {
            Some(json) => (json, Elements::LeftOut),
            None => {
                return Err(ListError::Run {
                    args: terse.join(" "),
                    error: format!("was not done after {patience:?}, or printed more than {LARGEST} bytes"),
                });
            }
        },
    };
    Ok(Listed { json, elements })
}

/// What it prints; `None` when that takes too long or is too much.
fn run(nft: &Path, args: &[&str], patience: Duration) -> Result<Option<String>, ListError> {
    let invocation = Invocation {
        program: &nft.to_owned(),
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
    let args = args.join(" ");
    match invocation.run(&mut keep) {
        Ok(finished) if finished.succeeded() => {
            Ok(whole.then(|| String::from_utf8_lossy(&output).into_owned()))
        }
        Ok(finished) => Err(ListError::Refused {
            args,
            said: classify::detail(&finished, ""),
        }),
        Err(RunError::TimedOut(_)) => Ok(None),
        Err(RunError::Start(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(ListError::NotInstalled)
        }
        Err(error) => Err(ListError::Run {
            args,
            error: error.words(),
        }),
    }
}
