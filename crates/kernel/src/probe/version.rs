//! Versions of the tools.

use crate::Backend;
use std::fmt;

/// A version of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    parts: [u16; 3],
}

impl Version {
    /// `iptables -w`, which waits for the lock.
    pub const WAIT: Version = Version::of(1, 4, 20);
    /// `iptables -w SECONDS`.
    pub const WAIT_SECONDS: Version = Version::of(1, 4, 22);
    /// `iptables-restore -w SECONDS`.
    pub const RESTORE_WAIT: Version = Version::of(1, 6, 2);
    /// `MASQUERADE --random-fully`.
    pub const RANDOM_FULLY: Version = Version::of(1, 6, 2);

    /// A version out of its parts.
    pub const fn of(major: u16, minor: u16, patch: u16) -> Version {
        Version {
            parts: [major, minor, patch],
        }
    }

    /// The version in what `--version` printed: the first `vN.N`.
    pub fn parse(text: &str) -> Option<Version> {
        text.split_whitespace().find_map(|word| {
            let numbers = word.strip_prefix('v')?;
            let mut parts = [0; 3];
            let mut count = 0;
            for (part, digits) in parts.iter_mut().zip(numbers.split('.')) {
                let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
                *part = digits[..end].parse().ok()?;
                count += 1;
            }
            (count >= 2).then_some(Version { parts })
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.parts;
        write!(f, "{major}.{minor}.{patch}")
    }
}

/// The backend in what `--version` printed. Before 1.8 there was only one, and no word for it.
pub(super) fn backend_of(text: &str) -> Backend {
    if text.contains("(nf_tables)") {
        Backend::NfTables
    } else {
        Backend::Legacy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_real_tools_are_read() {
        assert_eq!(
            Version::parse("iptables v1.8.9 (nf_tables)\n"),
            Some(Version::of(1, 8, 9))
        );
        assert_eq!(Version::parse("ip6tables v1.6.1"), Some(Version::of(1, 6, 1)));
        assert_eq!(Version::parse("iptables v1.4.19.1"), Some(Version::of(1, 4, 19)));
        assert_eq!(Version::parse("iptables 1.8.9"), None);
        assert_eq!(Version::parse("bash: iptables: not found"), None);
        assert_eq!(backend_of("iptables v1.8.9 (nf_tables)"), Backend::NfTables);
        assert_eq!(backend_of("iptables v1.8.9 (legacy)"), Backend::Legacy);
        assert_eq!(backend_of("iptables v1.6.1"), Backend::Legacy);
    }

    #[test]
    fn versions_order_by_their_numbers() {
        assert!(Version::of(1, 10, 0) > Version::of(1, 8, 9));
        assert!(Version::of(1, 4, 19) < Version::WAIT);
    }
}
