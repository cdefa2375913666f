//! Stable text forms of this crate's stages: for people, for `kube-proxy render --stage`, and for golden files.
//!
//! One fact a line; what belongs to a thing stands indented below it. Nothing here depends on the order in which
//! things came, and no line is longer for the number of things, so that a diff of two texts shows what differs.

mod desired;
mod snapshot;
#[cfg(test)]
mod tests;

pub use desired::DesiredText;
pub use snapshot::SnapshotText;

use crate::{Policy, Protocol, ServicePortName};
use std::fmt::{self, Write};

/// `namespace/name:port TCP`.
fn port_title(f: &mut fmt::Formatter<'_>, name: &ServicePortName) -> fmt::Result {
    write!(f, "{name} {}", name.protocol)
}

/// `http TCP`, or `TCP` for a port without a name.
fn port_words(f: &mut fmt::Formatter<'_>, name: &str, protocol: Protocol) -> fmt::Result {
    if !name.is_empty() {
        write!(f, "{name} ")?;
    }
    write!(f, "{protocol}")
}

fn policy(policy: Policy) -> &'static str {
    match policy {
        Policy::Cluster => "Cluster",
        Policy::Local => "Local",
    }
}

/// The values with commas between them.
fn listed<T: fmt::Display>(f: &mut fmt::Formatter<'_>, values: impl IntoIterator<Item = T>) -> fmt::Result {
    for (i, value) in values.into_iter().enumerate() {
        if i > 0 {
            f.write_char(',')?;
        }
        write!(f, "{value}")?;
    }
    Ok(())
}
