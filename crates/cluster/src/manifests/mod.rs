//! Objects from files: a manifest, a folder of them, or text.
//!
//! [`read_str`] and [`read_path`] read once, for tools; [`values_in`] keeps what the proxy does not look at. [`Source`] reads and watches, for the daemon.

mod complaints;
mod document;
mod folder;
mod place;
mod read;
mod source;
mod unrest;
mod values;

#[cfg(test)]
mod tests;

pub use read::{ManifestError, Reading, read_path, read_str};
pub use source::{ManifestOptions, Source};
pub use values::{Values, values_in};
