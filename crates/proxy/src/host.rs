//! What the host has, found out once at start.

mod nf_tables;

use crate::thread::{self, ThreadError};
use config::KubeProxyConfiguration;
use iptables::ast::Ports;
use iptables::build::{Capabilities, InvalidPackets, Nfacct};
use kernel::addresses::AddressWatch;
use kernel::nfacct::{Accounting, ensure_counters};
use kernel::probe::{Choice, NoTools, Probe, Reason, Tools, Unavailable};
use kernel::release::Release;
use kernel::{NftTable, SocketError, sysctl};
use model::{Family, PerFamily};
use std::net::IpAddr;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What was found.
pub(crate) struct Found {
    /// How rules get into the kernel.
    pub(crate) way: Way,
    /// What the engine has to know.
    pub(crate) host: engine::Host,
    /// Whether node ports on loopback can be served.
    pub(crate) loopback: Loopback,
}

/// Whether node ports can be served on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loopback {
    /// They can, or are not wanted.
    AsConfigured,
    /// The kernel drops such packets, and the setting for it cannot be written.
    Impossible,
}

impl Found {
    /// Conntrack's settings are written when it was found how rules get into the kernel, which loads conntrack: what it makes of odd packets may
    /// be otherwise since then.
    pub(crate) fn look_again(&mut self) {
        self.host.invalid = invalid_packets();
    }

    /// The configuration that this host allows.
    ///
    /// Deviation: ADR 43. Upstream ends where `/proc/sys` is read-only. Rules for what cannot be would make clients of
    /// a node port on loopback wait for an answer that never comes; without them they are refused at once.
    pub(crate) fn restrain(&self, config: &mut KubeProxyConfiguration) {
        if self.loopback == Loopback::Impossible {
            config.iptables.localhost_node_ports = Some(false);
        }
    }
}

/// How rules get into the kernel.
pub(crate) enum Way {
    /// By the tools, for the backend that was chosen (iptables mode).
    Tools(Box<Probe>),
    /// Into a table of our own, by netlink (nftables mode).
    OwnTable,
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
    /// The kernel has no `nf_tables`, or this process may not use it.
    #[error(
        "nf_tables cannot be used; run as root or with CAP_NET_ADMIN, on a kernel of 5.13 or later with nf_tables"
    )]
    NoNfTables(#[source] SocketError),
    /// The kernel is older than nftables mode wants.
    #[error(
        "kernel {0} is older than 5.13, the oldest for nftables mode; boot a newer one, or set mode: iptables. If no nft of this host ever lists or changes the tables, KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK=1 in the environment tries this one"
    )]
    OldKernel(Release),
    /// The kernel was built, or installed, without something.
    #[error(
        "this kernel lacks what nftables mode takes: {0}; load the modules on the host, boot a kernel that has them, or set mode: iptables"
    )]
    Lacks(String),
    /// The addresses can't be read.
    #[error("cannot read this host's addresses")]
    Addresses(#[source] SocketError),
}

/// Finds tools, backend and capabilities, and says in the log what was found.
pub(crate) fn find(config: &KubeProxyConfiguration) -> Result<Found, HostError> {
    if config.mode == "nftables" {
        return own_table();
    }
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect).map_err(HostError::NoIptables)?;
    tracing::info!(backend = %probe.backend, reason = %probe.reason, "iptables backend chosen");
    if probe.reason == Reason::LegacyUnread {
        tracing::warn!(
            "this host has tables of legacy iptables, and they cannot be read; give the process CAP_NET_RAW, or it cannot know whether rules belong there"
        );
    }
    if let (Err(reason), Err(_)) = (&probe.families.v4, &probe.families.v6) {
        return Err(HostError::NoFamily(reason.clone()));
    }
    let nfacct = accounting();
    let invalid = invalid_packets();
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
    Ok(Found {
        way: Way::Tools(Box::new(probe)),
        host: engine::Host { families, invalid },
        loopback: allow_localhost_node_ports(config),
    })
}

/// Nftables mode needs no tools: a kernel that is new enough, and has what the table takes.
fn own_table() -> Result<Found, HostError> {
    let old = nf_tables::OldKernels::as_told();
    let lacks = |family| NftTable::new(family)?.lacks();
    let can_be = nf_tables::families(&Release::running(), old, has_ipv6, lacks)?;
    let families = PerFamily::from_fn(|family| match can_be.get(family) {
        Ok(()) => {
            tracing::info!(%family, "family is served");
            Some(Capabilities {
                masquerade_ports: Ports::RandomFully,
                nfacct: Nfacct::Absent,
            })
        }
        Err(reason) => {
            tracing::warn!(%family, %reason, "family is left alone");
            None
        }
    });
    Ok(Found {
        way: Way::OwnTable,
        host: engine::Host {
            families,
            invalid: InvalidPackets::Passed,
        },
        loopback: Loopback::AsConfigured,
    })
}

/// Whether the kernel has IPv6 and it is not switched off.
fn has_ipv6() -> bool {
    let disabled = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    std::path::Path::new("/proc/net/if_inet6").exists() && disabled.is_ok_and(|text| text.trim() != "1")
}

fn invalid_packets() -> InvalidPackets {
    if sysctl::is_tcp_liberal() {
        InvalidPackets::Passed
    } else {
        InvalidPackets::Dropped
    }
}

/// Without the counters the rules are the same, less `-m nfacct`.
fn accounting() -> Nfacct {
    match ensure_counters() {
        Accounting::Present => Nfacct::Present,
        Accounting::Absent(reason) => {
            tracing::info!(%reason, "no nfacct counters in this kernel; rules do without");
            Nfacct::Absent
        }
    }
}

fn allow_localhost_node_ports(config: &KubeProxyConfiguration) -> Loopback {
    let settings = config::settings(config, &model::NodeFacts::default());
    if !settings.localhost_node_ports(Family::V4) {
        return Loopback::AsConfigured;
    }
    match sysctl::allow_route_localnet() {
        Ok(sysctl::Written::AsItWas) => Loopback::AsConfigured,
        Ok(sysctl::Written::Changed) => {
            tracing::info!("net.ipv4.conf.all.route_localnet set to 1, for node ports on loopback");
            Loopback::AsConfigured
        }
        Err(error) => {
            let error = cluster::chain(&error);
            tracing::warn!(
                error,
                "node ports are not served on loopback; set net.ipv4.conf.all.route_localnet to 1 on the host (--init-only does), or iptables.localhostNodePorts to false"
            );
            Loopback::Impossible
        }
    }
}

/// How long after a change of addresses they are read: whoever changes one often changes more.
const TOGETHER: Duration = Duration::from_millis(100);
/// After a failure of the watch.
const PAUSE: Duration = Duration::from_secs(5);
/// With nothing to wait for.
const LONG: Duration = Duration::from_hours(1);

/// Tells when this host's addresses have changed, from a thread of its own.
pub(crate) fn watch_addresses() -> Result<UnboundedReceiver<()>, ThreadError> {
    let (out, changed) = unbounded_channel();
    thread::start("addresses", move || {
        while let Err(error) = listen(&out) {
            tracing::debug!(%error, "changes of this host's addresses are noticed late: every 5 s");
            std::thread::sleep(PAUSE);
        }
    })?;
    Ok(changed)
}

/// Listens until the watch breaks, or until nobody wants to know.
fn listen(out: &UnboundedSender<()>) -> Result<(), SocketError> {
    let mut watch = AddressWatch::new()?;
    loop {
        // The first time as well: addresses may have changed before there was a watch.
        if out.send(()).is_err() {
            return Ok(());
        }
        while !watch.wait(LONG)? {}
        std::thread::sleep(TOGETHER);
        watch.wait(Duration::ZERO)?;
    }
}

/// All addresses of this host, sorted, without doubles.
pub(crate) fn addresses() -> Result<Vec<IpAddr>, HostError> {
    let found = kernel::addresses::interface_addresses().map_err(HostError::Addresses)?;
    let mut addresses: Vec<IpAddr> = found.iter().map(|of| of.address.addr()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses)
}
