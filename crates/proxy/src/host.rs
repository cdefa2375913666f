//! What the host has, found out once at start.

use config::KubeProxyConfiguration;
use iptables::ast::Ports;
use iptables::build::{Capabilities, InvalidPackets, Nfacct};
use kernel::nfacct::{Accounting, ensure_counters};
use kernel::probe::{Choice, NoTools, Probe, Tools, Unavailable};
use kernel::{SocketError, sysctl};
use model::{Family, PerFamily};
use std::net::IpAddr;

/// What was found.
pub(crate) struct Found {
    /// The tools, and the backend they are for.
    pub(crate) probe: Probe,
    /// What the engine has to know.
    pub(crate) host: engine::Host,
}

/// What the host lacks.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// No iptables of any family.
    #[error("iptables is not available on this host; install the package iptables, and run as root")]
    NoIptables(#[source] NoTools),
    /// The tools are there, and work for neither family.
    #[error("iptables works for neither IPv4 nor IPv6; run as root, or with CAP_NET_ADMIN")]
    NoFamily(#[source] Unavailable),
    /// Node ports on loopback are wanted and impossible.
    #[error(
        "cannot make node ports on loopback possible; run as root, or set iptables.localhostNodePorts: false"
    )]
    RouteLocalnet(#[source] sysctl::SysctlError),
    /// The addresses can't be read.
    #[error("cannot read this host's addresses")]
    Addresses(#[source] SocketError),
}

/// Finds tools, backend and capabilities, and says in the log what was found.
pub(crate) fn find(config: &KubeProxyConfiguration) -> Result<Found, HostError> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect).map_err(HostError::NoIptables)?;
    tracing::info!(backend = %probe.backend, reason = %probe.reason, "iptables backend chosen");
    if let (Err(reason), Err(_)) = (&probe.families.v4, &probe.families.v6) {
        return Err(HostError::NoFamily(reason.clone()));
    }
    let nfacct = accounting();
    let invalid = if sysctl::is_tcp_liberal() {
        InvalidPackets::Passed
    } else {
        InvalidPackets::Dropped
    };
    let masquerade_ports = if probe.has_random_fully() {
        Ports::RandomFully
    } else {
        Ports::Kept
    };
    let families = PerFamily::from_fn(|family| match probe.families.get(family) {
        Ok(tools) => {
            tracing::info!(%family, tool = %tools.iptables, version = %tools.version, "family is served");
            Some(Capabilities {
                masquerade_ports,
                nfacct,
            })
        }
        Err(reason) => {
            tracing::warn!(%family, %reason, "family is left alone");
            None
        }
    });
    allow_localhost_node_ports(config)?;
    Ok(Found {
        probe,
        host: engine::Host { families, invalid },
    })
}

/// Without the counters the rules are the same, less `-m nfacct` (iptables.md 10).
fn accounting() -> Nfacct {
    match ensure_counters() {
        Accounting::Present => Nfacct::Present,
        Accounting::Absent(reason) => {
            tracing::info!(%reason, "no nfacct counters in this kernel; rules do without");
            Nfacct::Absent
        }
    }
}

fn allow_localhost_node_ports(config: &KubeProxyConfiguration) -> Result<(), HostError> {
    let settings = config::settings(config, &model::NodeFacts::default());
    if settings.localhost_node_ports(Family::V4) {
        let written = sysctl::allow_route_localnet().map_err(HostError::RouteLocalnet)?;
        if written == sysctl::Written::Changed {
            tracing::info!("net.ipv4.conf.all.route_localnet set to 1, for node ports on loopback");
        }
    }
    Ok(())
}

/// All addresses of this host, sorted, without doubles.
pub(crate) fn addresses() -> Result<Vec<IpAddr>, HostError> {
    let found = kernel::addresses::interface_addresses().map_err(HostError::Addresses)?;
    let mut addresses: Vec<IpAddr> = found.iter().map(|of| of.address.addr()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}
