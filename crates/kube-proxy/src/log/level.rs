//! Which lines are said: klog's verbosity over the levels of `tracing`, and `vmodule` over both.
//!
//! | verbosity | says also |
//! |---|---|
//! | 0 | the life of the process, what is wrong, what was changed by others |
//! | 1 | every flag |
//! | 2 | each sync and each write of rules; ports that open and close; the connection table gone through |
//! | 3 | what each watch said, and why a sync is due |
//! | 4 | requests to the API server; remarks of the libraries |
//! | 5 | signs of life |
//! | 8, 9 | what the libraries say of themselves |
//!
//! Errors, warnings and information are 0, debug is 2, trace is 5, unless the line has a field `v`.

use super::pattern;
use config::types::VModule;
use proxy::Verbosity;
use std::path::Path;
use tracing::{Level, Metadata};
use tracing_subscriber::filter::LevelFilter;

/// How much is to be said.
pub(super) struct Wanted {
    verbosity: Verbosity,
    /// Patterns of file names, in order; the first that matches counts.
    files: Vec<(String, u32)>,
}

impl Wanted {
    pub(super) fn new(verbosity: Verbosity, vmodule: &[VModule]) -> Wanted {
        let files = vmodule
            .iter()
            .map(|entry| (entry.file_pattern.clone(), entry.verbosity));
        Wanted {
            verbosity,
            files: files.collect(),
        }
    }

    /// Whether a line from there can be one that is said, before it is known what it says.
    pub(super) fn may_show(&self, meta: &Metadata<'_>) -> bool {
        level_of(meta) <= self.for_file(meta.file())
    }

    /// Whether a line is said: `named` is the verbosity that it names itself.
    pub(super) fn shows(&self, meta: &Metadata<'_>, named: Option<u32>) -> bool {
        named.unwrap_or(0).max(level_of(meta)) <= self.for_file(meta.file())
    }

    /// The level that nothing is beyond.
    pub(super) fn most(&self) -> LevelFilter {
        let files = self.files.iter().map(|(_, verbosity)| *verbosity);
        match files.fold(self.verbosity.get(), u32::max) {
            0..=1 => LevelFilter::INFO,
            2..=4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        }
    }

    /// `vmodule` lets more be said, never less.
    fn for_file(&self, file: Option<&str>) -> u32 {
        let stem = Path::new(file.unwrap_or_default()).file_stem();
        let stem = stem.map(|stem| stem.to_string_lossy()).unwrap_or_default();
        let of_file = self
            .files
            .iter()
            .find(|(pattern, _)| pattern::matches(pattern, &stem));
        let of_file = of_file.map_or(0, |(_, verbosity)| *verbosity);
        self.verbosity.get().max(of_file)
    }
}

/// The least verbosity at which a line of this level shows.
pub(super) fn level_of(meta: &Metadata<'_>) -> u32 {
    // The compiler names files of this workspace relative to it, and those of libraries by their whole path.
    let is_ours = meta.file().is_some_and(|file| file.starts_with("crates/"));
    match (*meta.level(), is_ours) {
        (Level::DEBUG, true) => 2,
        (Level::TRACE, true) => 5,
        // It logs every request that fails; the watches say so once, with the next step.
        (Level::ERROR | Level::WARN, false) if meta.target().starts_with("kube_client") => 4,
        (Level::ERROR | Level::WARN, _) | (Level::INFO, true) => 0,
        (Level::INFO, false) => 4,
        (Level::DEBUG, false) => 8,
        (Level::TRACE, false) => 9,
    }
}
