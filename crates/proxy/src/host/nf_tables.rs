//! Whether nftables mode can serve on this kernel: asked once, at start, and what is missing is named.

use super::HostError;
use kernel::release::Release;
use kernel::{Lack, SocketError};
use model::{Family, PerFamily};

/// With any value, old kernels are tried as well; upstream's name for it.
const SKIP: &str = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";

/// What old kernels are to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OldKernels {
    /// Refused, as by upstream: a distribution with an older kernel has an `nft` that cannot list newer tables, and
    /// may break them.
    Refused,
    /// The operator said that this does not matter here.
    Tried,
}

impl OldKernels {
    /// As the environment says.
    pub(super) fn as_told() -> OldKernels {
        if std::env::var_os(SKIP).is_some_and(|value| !value.is_empty()) {
            OldKernels::Tried
        } else {
            OldKernels::Refused
        }
    }
}

/// Why a family is left alone.
pub(super) type Reason = String;

/// The families that can be served.
///
/// # Errors
/// When the kernel is too old, or IPv4 cannot be served.
pub(super) fn families(
    release: &Release,
    old: OldKernels,
    has_ipv6: impl FnOnce() -> bool,
    mut lacks: impl FnMut(Family) -> Result<Vec<Lack>, SocketError>,
) -> Result<PerFamily<Result<(), Reason>>, HostError> {
    if release.is_before(5, 13) {
        if old == OldKernels::Refused {
            return Err(HostError::OldKernel(release.clone()));
        }
        tracing::warn!(kernel = %release, "kernel older than nftables mode wants, served because {SKIP} is set");
    }
    let missing = lacks(Family::V4).map_err(HostError::NoNfTables)?;
    if !missing.is_empty() {
        return Err(HostError::Lacks(in_words(&missing)));
    }
    let ipv6 = if has_ipv6() {
        match lacks(Family::V6) {
            Ok(missing) if missing.is_empty() => Ok(()),
            Ok(missing) => Err(format!("the kernel lacks {}", in_words(&missing))),
            Err(error) => Err(cluster::chain(&error)),
        }
    } else {
        Err("this host does not have it".to_owned())
    };
    Ok(PerFamily { v4: Ok(()), v6: ipv6 })
}

fn in_words(missing: &[Lack]) -> String {
    let words: Vec<String> = missing.iter().map(ToString::to_string).collect();
    words.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::Feature;

    const NEW: &str = "6.1.0-57-amd64";

    fn masquerade_in(poor: Family) -> impl FnMut(Family) -> Result<Vec<Lack>, SocketError> {
        move |family| {
            let lack = Lack {
                feature: Feature::Masquerade,
                family,
                said: "ENOENT".to_owned(),
            };
            Ok(if family == poor { vec![lack] } else { vec![] })
        }
    }

    fn asked(release: &str, old: OldKernels) -> Result<PerFamily<Result<(), Reason>>, HostError> {
        families(&Release::of(release), old, || true, |_| Ok(vec![]))
    }

    #[test]
    fn an_old_kernel_is_refused_with_what_can_be_done_unless_the_operator_knows_better() {
        let refused = asked("5.12.19-amd64", OldKernels::Refused)
            .unwrap_err()
            .to_string();
        for words in ["5.12.19-amd64", "5.13", "mode: iptables", SKIP] {
            assert!(refused.contains(words), "{words} in {refused}");
        }
        assert!(asked("5.12.19-amd64", OldKernels::Tried).is_ok());
        assert!(asked("5.13.0", OldKernels::Refused).is_ok());
        assert!(asked(NEW, OldKernels::Refused).is_ok());
    }

    #[test]
    fn what_the_kernel_lacks_for_ipv4_ends_the_process_and_is_named_with_its_module() {
        let poor = families(
            &Release::of(NEW),
            OldKernels::Refused,
            || true,
            masquerade_in(Family::V4),
        );
        let told = poor.unwrap_err().to_string();
        for words in ["`masquerade` for IPv4", "nft_masq", "CONFIG_NFT_MASQ", "ENOENT"] {
            assert!(told.contains(words), "{words} in {told}");
        }
    }

    #[test]
    fn what_it_lacks_for_ipv6_leaves_that_family_alone_with_the_reason() {
        let poor = masquerade_in(Family::V6);
        let served = families(&Release::of(NEW), OldKernels::Refused, || true, poor).unwrap();
        assert!(served.v4.is_ok());
        assert!(served.v6.unwrap_err().contains("`masquerade` for IPv6"));
    }

    #[test]
    fn a_host_without_ipv6_is_not_asked_about_it() {
        let mut asked = vec![];
        let served = families(
            &Release::of(NEW),
            OldKernels::Refused,
            || false,
            |family| {
                asked.push(family);
                Ok(vec![])
            },
        );
        assert_eq!(served.unwrap().v6, Err("this host does not have it".to_owned()));
        assert_eq!(asked, [Family::V4]);
    }
}
