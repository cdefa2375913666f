//! What `ipset` prints of this host's sets, for tools; the daemon never runs it.

use crate::printed::{ListError, printed, too_much};
use std::path::Path;
use std::time::Duration;

/// How long it may take. For a set of 65,536 networks, which is as many as one takes by default, it is 0.03 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Prints all sets of this network namespace as `ipset save` does. Where no rule asks a set, this may load the kernel's module.
///
/// # Errors
/// When `ipset` is missing, is not allowed to, fails, or has more than can be kept.
pub fn save() -> Result<String, ListError> {
    let (tool, args) = (Path::new("ipset"), ["save"]);
    printed(tool, &args, PATIENCE)?.ok_or_else(|| too_much(tool, &args, PATIENCE))
}
