//! Whether node, host and configuration go together, before the first rule is written.

use crate::host::{Found, Way};
use crate::{ProxyError, ProxyOptions};
use config::NodeFamilies;
use model::snapshot::Snapshot;
use model::{Family, PerFamily};

/// Says in the log what may be wrong.
///
/// # Errors
/// What upstream ends with: the family of the node's own address cannot be served, or a list that local traffic is told
/// by has none of that family.
pub(crate) fn check(options: &ProxyOptions, snapshot: &Snapshot, found: &Found) -> Result<(), ProxyError> {
    let node = snapshot.node(&options.node_name);
    let addresses = node.map(|node| &*node.addresses).unwrap_or_default();
    let (primary, ips) = config::node_ips(&options.config, addresses);
    let own = ips.get(primary).filter(|ip| !ip.is_loopback());
    if let Some(ip) = own {
        tracing::info!(%ip, %primary, "the node's own address");
    } else {
        tracing::info!(%primary, "the node's own address is not known, and loopback stands in for it; bindAddress (--bind-address) would say it");
    }
    let served = PerFamily::from_fn(|family| found.host.families.get(family).is_some());
    if !served.get(primary) {
        return Err(ProxyError::PrimaryFamily {
            family: primary,
            reason: match &found.way {
                Way::Tools(probe) => match probe.families.get(primary) {
                    Err(reason) => reason.to_string(),
                    Ok(_) => String::new(),
                },
                Way::OwnTable => "this host does not have it".to_owned(),
            },
        });
    }
    let families = NodeFamilies {
        primary,
        dual_stack: Family::ALL.into_iter().all(|family| *served.get(family)),
        ips,
        pod_cidrs: node.map(|node| node.pod_cidrs.to_vec()).unwrap_or_default(),
    };
    let config::Checks { fatal, warnings } = config::checks(&options.config, &families);
    if !warnings.is_empty() {
        let err = warnings.join("; ");
        tracing::error!(%err, "Kube-proxy configuration may be incomplete or incorrect");
    }
    if fatal.is_empty() {
        Ok(())
    } else {
        Err(ProxyError::WrongFamily(fatal))
    }
}
