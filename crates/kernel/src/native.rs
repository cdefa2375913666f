//! What `nft` lists of this host, for tools; the daemon never runs it.

use crate::printed::{ListError, printed, too_much};
use std::path::Path;
use std::time::Duration;

/// How long `nft` may take for a list with all elements. 10,000 services with 10 endpoints each take it 5 s, 40,000 half a
/// minute and 800 MB.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let (json, elements) = match printed(nft, &all, patience)? {
        Some(json) => (json, Elements::Listed),
        None => match printed(nft, &terse, patience)? {
            Some(json) => (json, Elements::LeftOut),
            None => return Err(too_much(nft, &terse, patience)),
        },
    };
    Ok(Listed { json, elements })
}
