//! Objects from files: a manifest, a folder of them, or text.
//!
//! [`read_str`] and [`read_path`] read once, for tools. [`Source`] reads and watches, for the daemon.

mod document;
mod folder;
mod read;
mod source;

#[cfg(test)]
mod tests;

pub use read::{ManifestError, Reading, read_path, read_str};
pub use source::{ManifestOptions, Source};
