//! Kernel settings under `/proc/sys`, read first and written only when they differ.

use std::io;
use std::path::{Path, PathBuf};

/// Lets packets for 127.0.0.0/8 be routed: node ports on loopback need it.
pub const ROUTE_LOCALNET: &str = "net/ipv4/conf/all/route_localnet";
/// Not zero: conntrack calls fewer packets INVALID, and kube-proxy writes no rule that drops them.
pub const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";

/// A setting that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("could not {verb} {name}")]
pub struct SysctlError {
    verb: &'static str,
    /// The setting, as a path below `/proc/sys`.
    pub name: String,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// What writing came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// It had the value already.
    AsItWas,
    /// It has the value now.
    Changed,
}

/// Reads a setting, named as a path below `/proc/sys`, trimmed.
///
/// # Errors
/// When it does not exist or may not be read.
pub fn read(name: &str) -> Result<String, SysctlError> {
    let text = std::fs::read_to_string(path(name)).map_err(|source| failed("read", name, source))?;
    Ok(text.trim().to_owned())
}

/// Writes a setting unless it has the value already.
///
/// # Errors
/// When it cannot be read, or has another value and may not be written.
pub fn ensure(name: &str, value: &str) -> Result<Written, SysctlError> {
    if read(name)? == value {
        return Ok(Written::AsItWas);
    }
    std::fs::write(path(name), value).map_err(|source| failed("write", name, source))?;
    Ok(Written::Changed)
}

/// Makes node ports on loopback possible. It is never taken back: others may have come to need it.
///
/// # Errors
/// As [`ensure`].
pub fn allow_route_localnet() -> Result<Written, SysctlError> {
    ensure(ROUTE_LOCALNET, "1")
}

/// Whether conntrack is liberal. A kernel that has not loaded conntrack yet says nothing: not liberal.
pub fn is_tcp_liberal() -> bool {
    read(TCP_BE_LIBERAL).is_ok_and(|value| value != "0")
}

fn path(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name)
}

fn failed(verb: &'static str, name: &str, source: io::Error) -> SysctlError {
    SysctlError {
        verb,
        name: name.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_that_is_not_there_is_named() {
        let error = read("net/ipv4/no_such_setting").unwrap_err();
        assert_eq!(error.to_string(), "could not read net/ipv4/no_such_setting");
    }

    #[test]
    fn setting_that_has_the_value_is_not_written() {
        // Nobody may write this one, so a write would fail.
        let value = read("kernel/ostype").unwrap();
        assert_eq!(ensure("kernel/ostype", &value).unwrap(), Written::AsItWas);
        assert!(ensure("kernel/ostype", "other").is_err());
    }
}
