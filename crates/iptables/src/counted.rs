//! What the packet counter of a rule says about a service port.
//!
//! Only the first packet of a connection goes through nat, so the rule that sends an address on to a service's chain counts
//! connections. Rules of filter that refuse count packets. All of them name their service port in their comment, in
//! large clusters too.

use crate::ast::{Rule, TableName, Target};
use crate::diff::compact::owner;
use crate::names::{OwnChain, StaticChain};
use model::ServiceName;
use std::sync::Arc;

/// The chains whose rules count.
pub const CHAINS: [(TableName, StaticChain); 5] = [
    (TableName::Nat, StaticChain::Services),
    (TableName::Nat, StaticChain::NodePorts),
    (TableName::Filter, StaticChain::Services),
    (TableName::Filter, StaticChain::ExternalServices),
    (TableName::Filter, StaticChain::ProxyFirewall),
];

/// A port of a service by its name, which is empty where the service has one port and does not name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountedPort {
    /// The service.
    pub service: ServiceName,
    /// The port's name.
    pub port: Arc<str>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counts {
    /// First packets of connections.
    Connections,
    /// Packets that were answered with an error.
    Rejected,
    /// Packets that were not answered.
    Dropped,
}

impl Counts {
    /// All of them.
    pub const ALL: [Counts; 3] = [Counts::Connections, Counts::Rejected, Counts::Dropped];
}

/// What a rule of one of [`CHAINS`] counts; `None` for rules that are no service's, and for those that count nothing.
pub fn by(table: TableName, rule: &Rule) -> Option<(CountedPort, Counts)> {
    let counts = match (table, &rule.target) {
        (TableName::Nat, Target::Jump(chain)) => {
            OwnChain::of(chain.as_str())?;
            Counts::Connections
        }
        (TableName::Filter, Target::Reject(_)) => Counts::Rejected,
        (TableName::Filter, Target::Drop) => Counts::Dropped,
        _ => return None,
    };
    let service = owner(rule)?;
    let title = rule.comment()?.split(' ').next()?;
    Some((
        CountedPort {
            service,
            port: port_of(title),
        },
        counts,
    ))
}

/// The port's name in `namespace/name:port`.
fn port_of(title: &str) -> Arc<str> {
    title.split_once(':').map_or("", |(_, port)| port).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;
    use model::Family;

    #[test]
    fn rules_count_for_the_port_that_their_comment_names() {
        use TableName::{Filter, Nat};
        let jump = "-j KUBE-SVC-XPGD46QRK7WJZT7O";
        for (table, text, expected) in [
            (
                Nat,
                format!("-d 10.0.0.1/32 -p tcp -m comment --comment \"a/b:http cluster IP\" -m tcp --dport 80 {jump}"),
                Some(("a/b", "http", Counts::Connections)),
            ),
            (
                Nat,
                "-p tcp -m comment --comment a/b -m tcp --dport 3080 -j KUBE-EXT-XPGD46QRK7WJZT7O".to_owned(),
                Some(("a/b", "", Counts::Connections)),
            ),
            (
                Filter,
                "-d 10.0.0.1/32 -p udp -m comment --comment \"a/b:dns has no endpoints\" -m udp --dport 53 -j REJECT".to_owned(),
                Some(("a/b", "dns", Counts::Rejected)),
            ),
            (
                Filter,
                "-d 1.2.3.4/32 -p tcp -m comment --comment \"a/b:x traffic not accepted by KUBE-FW-A\" -j DROP".to_owned(),
                Some(("a/b", "x", Counts::Dropped)),
            ),
            // The health check's port is accepted, and the tail is nobody's.
            (Filter, "-p tcp -m comment --comment \"a/b:x health check node port\" -j ACCEPT".to_owned(), None),
            (Nat, "-m comment --comment \"kubernetes service nodeports\" -j KUBE-NODEPORTS".to_owned(), None),
            (Nat, format!("-d 10.0.0.1/32 {jump}"), None),
        ] {
            let rule = parse::rule(&text, Family::V4).expect("a rule");
            let found = by(table, &rule).map(|(port, counts)| (port.service.to_string(), port.port.to_string(), counts));
            let expected = expected.map(|(service, port, counts)| (service.to_owned(), port.to_owned(), counts));
            assert_eq!(found, expected, "{text}");
        }
    }
}
