//! Chain names, and whose chain is whose.
//!
//! All of these must equal upstream's: other programs look for them, and a proxy that takes
//! another's place must find what that one left.

use crate::ast::{ChainName, TableName};
use data_encoding::BASE32;
use model::{Protocol, ServicePortName};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::LazyLock;

/// The nfacct object that counts packets dropped for being INVALID to conntrack.
pub const NFACCT_INVALID_DROPPED: &str = "ct_state_invalid_dropped_pkts";
/// The nfacct object that counts packets to node ports on loopback.
pub const NFACCT_LOCALHOST_NODE_PORTS: &str = "localhost_nps_accepted_pkts";

/// The tables that hold the canary chain, the first of them watched (upstream `Monitor` in `pkg/util/iptables`).
pub const CANARY_TABLES: [TableName; 3] = [TableName::Mangle, TableName::Nat, TableName::Filter];

/// The chains into which services write some rules each, and whose order of services is free.
pub const DISPATCH_CHAINS: [(TableName, StaticChain); 6] = [
    (TableName::Filter, StaticChain::ExternalServices),
    (TableName::Filter, StaticChain::NodePorts),
    (TableName::Filter, StaticChain::ProxyFirewall),
    (TableName::Filter, StaticChain::Services),
    (TableName::Nat, StaticChain::NodePorts),
    (TableName::Nat, StaticChain::Services),
];

/// Whether this is one of [`DISPATCH_CHAINS`].
pub fn is_dispatch(table: TableName, chain: &ChainName) -> bool {
    DISPATCH_CHAINS
        .iter()
        .any(|(t, c)| *t == table && c.as_str() == chain.as_str())
}

/// The chains that exist once and belong to no service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StaticChain {
    /// `KUBE-SERVICES` (filter and nat)
    Services,
    /// `KUBE-EXTERNAL-SERVICES` (filter)
    ExternalServices,
    /// `KUBE-NODEPORTS` (filter and nat)
    NodePorts,
    /// `KUBE-FORWARD` (filter)
    Forward,
    /// `KUBE-PROXY-FIREWALL` (filter)
    ProxyFirewall,
    /// `KUBE-FIREWALL` (filter), shared with the kubelet and never removed by us
    Firewall,
    /// `KUBE-POSTROUTING` (nat)
    Postrouting,
    /// `KUBE-MARK-MASQ` (nat)
    MarkMasq,
    /// `KUBE-PROXY-CANARY` ([`CANARY_TABLES`])
    Canary,
}

impl StaticChain {
    /// All of them.
    pub const ALL: [StaticChain; 9] = [
        StaticChain::Services,
        StaticChain::ExternalServices,
        StaticChain::NodePorts,
        StaticChain::Forward,
        StaticChain::ProxyFirewall,
        StaticChain::Firewall,
        StaticChain::Postrouting,
        StaticChain::MarkMasq,
        StaticChain::Canary,
    ];

    /// The chain's name as text.
    pub fn as_str(self) -> &'static str {
        match self {
            StaticChain::Services => "KUBE-SERVICES",
            StaticChain::ExternalServices => "KUBE-EXTERNAL-SERVICES",
            StaticChain::NodePorts => "KUBE-NODEPORTS",
            StaticChain::Forward => "KUBE-FORWARD",
            StaticChain::ProxyFirewall => "KUBE-PROXY-FIREWALL",
            StaticChain::Firewall => "KUBE-FIREWALL",
            StaticChain::Postrouting => "KUBE-POSTROUTING",
            StaticChain::MarkMasq => "KUBE-MARK-MASQ",
            StaticChain::Canary => "KUBE-PROXY-CANARY",
        }
    }

    /// The chain's name. All callers share one text.
    pub fn name(self) -> ChainName {
        static NAMES: LazyLock<Vec<ChainName>> =
            LazyLock::new(|| StaticChain::ALL.iter().map(|c| known_good(c.as_str())).collect());
        NAMES[self as usize].clone()
    }

    /// Which of them a chain of this table is.
    pub fn of(table: TableName, chain: &str) -> Option<StaticChain> {
        StaticChain::ALL
            .into_iter()
            .find(|c| c.as_str() == chain && c.tables().contains(&table))
    }

    /// The tables in which we write this chain.
    pub fn tables(self) -> &'static [TableName] {
        match self {
            StaticChain::Services | StaticChain::NodePorts => &[TableName::Filter, TableName::Nat],
            StaticChain::ExternalServices
            | StaticChain::Forward
            | StaticChain::ProxyFirewall
            | StaticChain::Firewall => &[TableName::Filter],
            StaticChain::Postrouting | StaticChain::MarkMasq => &[TableName::Nat],
            StaticChain::Canary => &CANARY_TABLES,
        }
    }
}

/// The kinds of chain that a service port or an endpoint has for itself; all of them are in nat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OwnChain {
    /// `KUBE-SVC-`: endpoints of policy Cluster.
    Svc,
    /// `KUBE-SVL-`: endpoints of policy Local.
    Svl,
    /// `KUBE-EXT-`: traffic from outside the cluster.
    Ext,
    /// `KUBE-FW-`: the allow-list of a load balancer.
    Fw,
    /// `KUBE-SEP-`: one endpoint.
    Sep,
}

impl OwnChain {
    /// All of them.
    pub const ALL: [OwnChain; 5] = [
        OwnChain::Svc,
        OwnChain::Svl,
        OwnChain::Ext,
        OwnChain::Fw,
        OwnChain::Sep,
    ];

    /// What such chains' names begin with.
    pub fn prefix(self) -> &'static str {
        match self {
            OwnChain::Svc => "KUBE-SVC-",
            OwnChain::Svl => "KUBE-SVL-",
            OwnChain::Ext => "KUBE-EXT-",
            OwnChain::Fw => "KUBE-FW-",
            OwnChain::Sep => "KUBE-SEP-",
        }
    }

    /// Which kind a chain of the nat table is, by its name.
    pub fn of(chain: &str) -> Option<OwnChain> {
        OwnChain::ALL.into_iter().find(|k| chain.starts_with(k.prefix()))
    }
}

/// The names of one service port's chains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortChains {
    /// `KUBE-SVC-...`
    pub svc: ChainName,
    /// `KUBE-SVL-...`
    pub svl: ChainName,
    /// `KUBE-EXT-...`
    pub ext: ChainName,
    /// `KUBE-FW-...`
    pub fw: ChainName,
}

impl PortChains {
    /// The names for this service port: one hash for all four.
    pub fn of(port: &ServicePortName) -> PortChains {
        let hash = hash16(&[&port.to_string(), port.protocol.as_lower()]);
        let name = |kind: OwnChain| known_good(&format!("{}{hash}", kind.prefix()));
        PortChains {
            svc: name(OwnChain::Svc),
            svl: name(OwnChain::Svl),
            ext: name(OwnChain::Ext),
            fw: name(OwnChain::Fw),
        }
    }
}

/// The chain of one endpoint of a service port; `port` is the printed [`ServicePortName`].
pub fn endpoint_chain(port: &str, protocol: Protocol, endpoint: SocketAddr) -> ChainName {
    let hash = hash16(&[port, protocol.as_lower(), &endpoint.to_string()]);
    known_good(&format!("{}{hash}", OwnChain::Sep.prefix()))
}

/// Whose a chain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// kube-proxy's: cleanup removes it.
    Ours,
    /// The kubelet's, or shared with it (`KUBE-FIREWALL`): never removed by us.
    Kubelet,
    /// Anybody else's, built-in chains included: never touched.
    Foreign,
}

/// Chains of the kubelet, in any table. `KUBE-MARK-DROP` is what older ones left.
const KUBELET: [&str; 4] = [
    "KUBE-FIREWALL",
    "KUBE-KUBELET-CANARY",
    "KUBE-IPTABLES-HINT",
    "KUBE-MARK-DROP",
];

/// Whose this chain is, by table and name alone, so that a process without memory can tell.
///
/// As upstream has it, the beginnings `KUBE-SVC-`, `KUBE-SVL-`, `KUBE-EXT-`, `KUBE-FW-` and `KUBE-SEP-` in nat are
/// kube-proxy's whatever follows them.
pub fn owner_of(table: TableName, chain: &str) -> Owner {
    if KUBELET.contains(&chain) {
        return Owner::Kubelet;
    }
    if StaticChain::of(table, chain).is_some() || is_services(table, chain) {
        Owner::Ours
    } else {
        Owner::Foreign
    }
}

/// Chains that kube-proxy's ipvs mode writes and iptables mode has no use for.
pub const OF_IPVS_MODE: [(TableName, &str); 6] = [
    (TableName::Nat, "KUBE-NODE-PORT"),
    (TableName::Nat, "KUBE-LOAD-BALANCER"),
    (TableName::Filter, "KUBE-NODE-PORT"),
    (TableName::Filter, "KUBE-SOURCE-RANGES-FIREWALL"),
    (TableName::Filter, "KUBE-IPVS-FILTER"),
    (TableName::Filter, "KUBE-IPVS-OUT-FILTER"),
];

/// Whether a chain is what kube-proxy's ipvs mode left, and nobody else's by its name.
///
/// The chains that both modes have (`KUBE-SERVICES` and others) are [`Owner::Ours`].
pub fn is_ipvs_modes(table: TableName, chain: &str) -> bool {
    OF_IPVS_MODE.contains(&(table, chain))
}

/// Whether a chain is one of a service port or an endpoint.
pub fn is_services(table: TableName, chain: &str) -> bool {
    table == TableName::Nat && OwnChain::of(chain).is_some()
}

/// The first 16 characters of the base32 form of the SHA-256 of the joined parts: the first ten bytes of the hash.
fn hash16(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    BASE32.encode(&hash.finalize()[..10])
}

fn known_good(name: &str) -> ChainName {
    ChainName::new(name).expect("invariant: our prefixes and 16 characters of base32 fit a chain name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ServiceName;

    fn port(ns: &str, name: &str, port: &str, protocol: Protocol) -> ServicePortName {
        ServicePortName {
            service: ServiceName::new(ns, name),
            port: port.into(),
            protocol,
        }
    }

    /// Names as upstream makes them; the hashes were computed with another program.
    #[test]
    fn service_chains_are_named_as_upstream_names_them() {
        for (ns, name, p, hash) in [
            ("ns1", "svc1", "p80", "XPGD46QRK7WJZT7O"),
            ("ns2", "svc2", "p80", "GNZBNJ2PO5MGZ6GT"),
            ("ns3", "svc3", "p80", "X27LE4BHSL4DOUIK"),
            ("ns4", "svc4", "p80", "4SW47YFZTEDKD3PK"),
            ("ns5", "svc5", "p80", "NUKIZ6OKUXPJNT4C"),
            ("ns2", "svc2", "p8080", "2VJB64SDSIJUP5T6"),
        ] {
            let chains = PortChains::of(&port(ns, name, p, Protocol::Tcp));
            assert_eq!(chains.svc.as_str(), format!("KUBE-SVC-{hash}"));
            assert_eq!(chains.svl.as_str(), format!("KUBE-SVL-{hash}"));
            assert_eq!(chains.ext.as_str(), format!("KUBE-EXT-{hash}"));
            assert_eq!(chains.fw.as_str(), format!("KUBE-FW-{hash}"));
        }
    }

    #[test]
    fn endpoint_chains_are_named_as_upstream_names_them() {
        for (p, endpoint, hash) in [
            ("ns1/svc1:p80", "10.180.0.1:80", "SXIVWICOYRO3J4NJ"),
            ("ns4/svc4:p80", "10.180.0.5:80", "C6EBXVWJJZMIWKLZ"),
            ("ns1/svc1:p80", "10.0.1.1:80", "SNQ3ZNILQDEJNDQO"),
            ("ns1/svc1:p80", "10.0.0.0:80", "DKGQUZGBKLTPAR56"),
        ] {
            let chain = endpoint_chain(p, Protocol::Tcp, endpoint.parse().unwrap());
            assert_eq!(chain.as_str(), format!("KUBE-SEP-{hash}"));
        }
    }

    #[test]
    fn the_protocol_is_part_of_the_name() {
        let tcp = PortChains::of(&port("ns1", "dns", "", Protocol::Tcp));
        let udp = PortChains::of(&port("ns1", "dns", "", Protocol::Udp));
        assert_ne!(tcp.svc, udp.svc);
    }

    #[test]
    fn static_names_come_in_the_order_of_the_enum() {
        for chain in StaticChain::ALL {
            assert_eq!(chain.name().as_str(), chain.as_str());
        }
    }

    #[test]
    fn chains_of_ipvs_mode_are_known_by_table_and_name() {
        use TableName::{Filter, Mangle, Nat};
        for (table, chain, known) in [
            (Nat, "KUBE-NODE-PORT", true),
            (Filter, "KUBE-IPVS-FILTER", true),
            (Nat, "KUBE-IPVS-FILTER", false),
            (Mangle, "KUBE-NODE-PORT", false),
            (Nat, "KUBE-NODEPORTS", false),
            (Nat, "KUBE-SERVICES", false),
        ] {
            assert_eq!(is_ipvs_modes(table, chain), known, "{table} {chain}");
        }
    }

    #[test]
    fn kubelets_and_foreign_chains_are_not_ours() {
        use TableName::{Filter, Mangle, Nat, Raw};
        for (table, chain, owner) in [
            (Nat, "KUBE-SERVICES", Owner::Ours),
            (Filter, "KUBE-SERVICES", Owner::Ours),
            (Mangle, "KUBE-SERVICES", Owner::Foreign),
            (Nat, "KUBE-SEP-SXIVWICOYRO3J4NJ", Owner::Ours),
            (Filter, "KUBE-SEP-SXIVWICOYRO3J4NJ", Owner::Foreign),
            (Nat, "KUBE-FW-XPGD46QRK7WJZT7O", Owner::Ours),
            (Filter, "KUBE-FIREWALL", Owner::Kubelet),
            (Mangle, "KUBE-KUBELET-CANARY", Owner::Kubelet),
            (Mangle, "KUBE-IPTABLES-HINT", Owner::Kubelet),
            (Mangle, "KUBE-PROXY-CANARY", Owner::Ours),
            (Raw, "KUBE-PROXY-CANARY", Owner::Foreign),
            (Nat, "KUBE-POSTROUTING", Owner::Ours),
            (Nat, "POSTROUTING", Owner::Foreign),
            (Filter, "cali-FORWARD", Owner::Foreign),
            (Nat, "KUBE-SVCX", Owner::Foreign),
        ] {
            assert_eq!(owner_of(table, chain), owner, "{table} {chain}");
        }
    }
}
