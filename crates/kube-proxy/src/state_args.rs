//! The flags of the memory on disk: ours, since upstream remembers nothing (ADR 38).

use proxy::StateFolder;
use std::time::Duration;

/// The folder.
pub const STATE_DIR: &str = "state-dir";
/// How old what is in it may be.
pub const STATE_MAX_AGE: &str = "state-max-age";

/// A day: an outage at night is over in the morning, and what nobody could confirm for longer is mostly wrong.
const DEFAULT_MAX_AGE: Duration = Duration::from_hours(24);

/// Where to remember, if at all, by these flags' values. Objects from files are on disk already.
pub fn folder(manifests: Option<&str>, folder: Option<&str>, age: Option<&str>) -> Option<StateFolder> {
    let folder = folder.filter(|_| manifests.is_none())?;
    let given = age.and_then(|text| max_age(text).ok());
    Some(StateFolder {
        folder: folder.into(),
        max_age: given.unwrap_or(DEFAULT_MAX_AGE),
    })
}

/// A duration in Go's spelling, of which something is left.
///
/// # Errors
/// What is wrong with it.
pub fn max_age(text: &str) -> Result<Duration, String> {
    let age = config::GoDuration::read(text)?.to_std();
    if age.is_zero() {
        return Err("must be more than zero; leave out --state-dir to remember nothing".to_owned());
    }
    Ok(age)
}
