//! What tells one cluster from another.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;

/// The API server's address and the authorities that its certificate may come from.
///
/// The address alone is not enough: many clusters have theirs at `https://127.0.0.1:6443`. An authority alone is not
/// either: one may sign for several clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The server's URL.
    server: String,
    /// SHA-256 of each certificate of the CA bundle.
    authorities: BTreeSet<String>,
}

impl Identity {
    /// Of a server with this URL and this CA bundle in DER.
    pub fn new(server: &str, bundle: &[Vec<u8>]) -> Identity {
        Identity {
            server: server.to_owned(),
            authorities: bundle
                .iter()
                .map(|der| HEXLOWER.encode(&Sha256::digest(der)))
                .collect(),
        }
    }

    /// Whether both mean one cluster. While an authority is replaced, the bundle holds the old one and the new.
    pub(super) fn is_same_cluster(&self, other: &Identity) -> bool {
        let share = !self.authorities.is_disjoint(&other.authorities);
        let both_lack = self.authorities.is_empty() && other.authorities.is_empty();
        self.server == other.server && (share || both_lack)
    }

    /// For messages.
    pub(super) fn server(&self) -> &str {
        &self.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(server: &str, bundle: &[&[u8]]) -> Identity {
        let bundle: Vec<Vec<u8>> = bundle.iter().map(|der| der.to_vec()).collect();
        Identity::new(server, &bundle)
    }

    #[test]
    fn a_bundle_that_gains_or_loses_an_authority_is_the_same_cluster() {
        let old = identity("https://a:6443", &[b"old"]);
        let both = identity("https://a:6443", &[b"new", b"old"]);
        let new = identity("https://a:6443", &[b"new"]);
        assert!(old.is_same_cluster(&both) && both.is_same_cluster(&new));
        assert!(!old.is_same_cluster(&new));
    }

    #[test]
    fn another_address_or_another_authority_is_another_cluster() {
        let here = identity("https://127.0.0.1:6443", &[b"ca"]);
        for other in [
            identity("https://127.0.0.1:6444", &[b"ca"]),
            identity("https://127.0.0.1:6443", &[b"other"]),
            identity("https://127.0.0.1:6443", &[]),
        ] {
            assert!(!here.is_same_cluster(&other), "{other:?}");
        }
        let plain = identity("http://127.0.0.1:8080", &[]);
        assert!(plain.is_same_cluster(&plain.clone()));
    }
}
