//! What a host's own firewall keeps from services in nftables mode, said at start (ADR 51).

use crate::events::Fact;
use crate::serve::Serving;
use kernel::host_firewall::{Way, barriers};
use model::{Family, PerFamily};

/// Looks at the host's firewall once, and says in the log, on the API and in a metric what may be in the way.
///
/// Nobody can tell from here whether some rule of it accepts what services need: a network plugin's often do.
pub(crate) fn look(serving: &Serving, served: PerFamily<bool>) {
    for family in Family::ALL.into_iter().filter(|family| *served.get(*family)) {
        let found = match barriers(family) {
            Ok(found) => found,
            Err(error) => {
                tracing::debug!(%family, %error, "the host's own firewall cannot be read");
                continue;
            }
        };
        for way in [Way::Forward, Way::Input] {
            let chains: Vec<&str> = found
                .iter()
                .filter(|barrier| barrier.way == way)
                .map(|barrier| barrier.chain.as_str())
                .collect();
            serving.barriers(family, way, chains.len());
            if !chains.is_empty() {
                let chains = chains.join("; ");
                let advice = advice(way);
                tracing::warn!(%family, hook = %way, %chains, "this host drops what these chains do not accept; {advice}");
                serving.event(Fact::barrier(serving.node(), family, way, &chains, advice));
            }
        }
    }
}

/// What it means here, and what to do.
fn advice(way: Way) -> &'static str {
    match way {
        Way::Forward => {
            "iptables mode accepts packets to and from endpoints there and nftables mode does not: accept the pods' networks in them, or services are not reached"
        }
        Way::Input => {
            "iptables mode accepts health-check node ports there and nftables mode does not: accept them where load balancers ask for them"
        }
    }
}
