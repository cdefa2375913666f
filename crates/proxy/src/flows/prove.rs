//! What the rules found at start prove about flows of services that were deleted while nobody watched.

use conntrack::FrontendKey;
use iptables::ast::{Chain, ChainName, Is, Proto, Rule, Table, TableName, Target};
use iptables::names::StaticChain;
use kernel::conntrack::translated;
use kernel::{ObserveError, RuleKernel, Scope};
use model::Family;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

type Pairs = BTreeSet<(FrontendKey, SocketAddr)>;

/// Pairs of a frontend and an endpoint, handed from the thread that reads rules to the loop.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proved(Arc<Mutex<Pairs>>);

impl Proved {
    /// Reads what the kernel's rules prove, before the first of them is replaced.
    ///
    /// Without it flows of services that have gone are kept, as if the rules had not been there.
    pub(crate) fn read(&self, kernel: &mut impl RuleKernel, family: Family) {
        match udp_rules(kernel, family) {
            Ok(table) => {
                let pairs = translated(&table, family);
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = pairs;
            }
            Err(error) => tracing::info!(%family, %error, "what earlier rules say about flows is not known"),
        }
    }

    /// Takes the pairs out.
    pub(crate) fn take(&self) -> Pairs {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The rules for UDP frontends and what they lead to, and nothing else: most services of a large cluster are TCP, and
/// their 320,000 rules are not worth holding.
fn udp_rules(kernel: &mut impl RuleKernel, family: Family) -> Result<Table, ObserveError> {
    let mut table = Table::default();
    let mut wanted: BTreeSet<ChainName> =
        [StaticChain::Services.name(), StaticChain::NodePorts.name()].into();
    let entrances = wanted.clone();
    // Chains that are not there are not reported, and must not be asked for again.
    let mut asked = BTreeSet::new();
    while !wanted.is_empty() {
        asked.extend(wanted.iter().cloned());
        let mut next = BTreeSet::new();
        let scope = Scope::Chains(TableName::Nat, wanted);
        kernel.observe(family, &scope, &mut |_, name, mut chain: Chain| {
            if entrances.contains(&name) {
                chain.rules.retain(is_udp);
            }
            next.extend(chain.rules.iter().filter_map(leads_to).cloned());
            table.chains.insert(name, chain);
        })?;
        wanted = next.difference(&asked).cloned().collect();
    }
    Ok(table)
}

fn is_udp(rule: &Rule) -> bool {
    rule.protocol == Some(Is::Equal(Proto::Udp))
}

fn leads_to(rule: &Rule) -> Option<&ChainName> {
    match &rule.target {
        Target::Jump(chain) | Target::Goto(chain) => Some(chain),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernel::{Backend, FakeKernel};

    const FOUND: &str = "*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n\
        :KUBE-SEP-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SVC-BBBBBBBBBBBBBBBB - [0:0]\n\
        -A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 53 -j KUBE-SVC-AAAAAAAAAAAAAAAA\n\
        -A KUBE-SERVICES -d 10.96.0.11/32 -p tcp -m tcp --dport 53 -j KUBE-SVC-BBBBBBBBBBBBBBBB\n\
        -A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-AAAAAAAAAAAAAAAA\n\
        -A KUBE-SEP-AAAAAAAAAAAAAAAA -p udp -m udp -j DNAT --to-destination 10.0.0.2:5353\nCOMMIT\n";

    #[test]
    fn chains_of_tcp_services_are_not_even_read() {
        let mut kernel = loaded();
        let table = udp_rules(&mut kernel, Family::V4).expect("the fake kernel is whole");
        let names: Vec<&str> = table.chains.keys().map(ChainName::as_str).collect();
        let tcp = names.contains(&"KUBE-SVC-BBBBBBBBBBBBBBBB");
        assert!(!tcp && names.contains(&"KUBE-SEP-AAAAAAAAAAAAAAAA"), "{names:?}");
    }

    #[test]
    fn each_udp_frontend_is_proved_with_its_endpoints_once() {
        let proved = Proved::default();
        proved.read(&mut loaded(), Family::V4);
        let pairs: Vec<String> = proved
            .take()
            .iter()
            .map(|(_, endpoint)| endpoint.to_string())
            .collect();
        assert_eq!(pairs, ["10.0.0.2:5353"]);
        assert!(proved.take().is_empty());
    }

    fn loaded() -> FakeKernel {
        let mut kernel = FakeKernel::new(Backend::NfTables);
        kernel.load(Family::V4, iptables::parse::save(FOUND, Family::V4).ruleset);
        kernel
    }
}
