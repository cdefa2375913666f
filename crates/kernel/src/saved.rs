//! What `iptables-save` prints, whole: for people who look at a host, and for tools that do.

use crate::probe::{Tools, has_legacy_tables};
use crate::{Backend, FailureKind, ObserveError, classify};
use model::Family;
use std::time::Duration;

/// How long it may take: 5,000 services with 10 endpoints take half a minute after one large restore.
const PATIENCE: Duration = Duration::from_secs(90);

/// Largest text that is kept, in bytes: a million rules take some 200 MB.
const LARGEST: usize = 512 << 20;

/// The rules of one backend and family as its `-save` prints them; `None` where there are none to print. No table is made
/// by asking.
///
/// # Errors
/// When there is no such tool, or it fails; the error has its words.
pub fn save(tools: &Tools, backend: Backend, family: Family) -> Result<Option<String>, ObserveError> {
    // Its tool would load the modules of tables that nobody uses.
    if backend == Backend::Legacy && !has_legacy_tables(family) {
        return Ok(None);
    }
    let found = tools.of(backend, family).map_err(|missing| ObserveError {
        attempted: format!("reading rules of {family} in {backend}"),
        kind: FailureKind::ToolMissing,
        detail: missing.to_string(),
    })?;
    let failed = |kind, detail| ObserveError {
        attempted: found.save.to_string(),
        kind,
        detail,
    };
    match found
        .save
        .invocation(&[], b"", &tools.environment, PATIENCE)
        .text(LARGEST)
    {
        Ok((finished, text)) if finished.succeeded() => Ok(Some(text)),
        Ok((finished, _)) => Err(failed(
            classify::tool_failure(&finished),
            classify::detail(&finished, ""),
        )),
        Err(error) => Err(failed(classify::run_failure(&error), error.words())),
    }
}
