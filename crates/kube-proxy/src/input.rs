//! What the tools are asked about: objects, a node and a configuration, from files and flags.

pub mod dumps;
pub(crate) mod mailed;
pub(crate) mod parts;
mod server;
mod shown;

pub use server::{CONFIG_MAP, ServerArgs};
pub use shown::{Form, ShownArgs};

use crate::daemon_args::{check, load_config};
use crate::external_ips;
use anyhow::{Context as _, Result, anyhow, bail};
use config::KubeProxyConfiguration;
use engine::{Backend, Engine, EngineConfig, Host};
use explain::page::harmless;
use ipnet::IpNet;
use iptables::ast::{Ports, Ruleset};
use iptables::build::{BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct, ruleset};
use model::crossing::ListedEndpoints;
use model::snapshot::{Change, Snapshot};
use model::{Desired, Family, NodeFacts, PerFamily, Settings};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The node and the objects a tool is asked about.
#[derive(clap::Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Manifests of Services, `EndpointSlices` and Nodes: a file, a folder, or `-` for standard input.
    #[arg(long, value_name = "PATH|-", help_heading = "Cluster and node")]
    pub manifests: Option<PathBuf>,
    /// The node whose rules are meant.
    #[arg(
        long,
        visible_alias = "hostname-override",
        value_name = "NAME",
        help_heading = "Cluster and node"
    )]
    pub node: Option<String>,
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// What notes are about, where two things are compared.
    #[arg(skip)]
    pub about: Option<String>,
}

/// kube-proxy's configuration.
#[derive(clap::Args, Clone, Debug)]
pub struct SettingsArgs {
    /// The configuration file (`KubeProxyConfiguration`). Without it, the defaults.
    #[arg(long, value_name = "FILE", help_heading = "Cluster and node")]
    pub config: Option<PathBuf>,
    /// iptables or nftables; replaces the configuration's `mode`.
    #[arg(long, value_name = "MODE", help_heading = "Cluster and node")]
    pub proxy_mode: Option<String>,
    /// Pod CIDRs of the cluster, comma separated; replaces the configuration's.
    #[arg(long, value_name = "CIDR[,CIDR]", help_heading = "Cluster and node")]
    pub cluster_cidr: Option<String>,
    /// Networks that Services' external IPs may be of, comma separated; others are left out. Without it, all are served.
    #[arg(long, value_name = "CIDR[,CIDR]", help_heading = "Cluster and node")]
    pub external_ip_allowed_cidrs: Option<String>,
}

/// The node's addresses, where the Node object does not say all.
#[derive(clap::Args, Clone, Debug)]
pub struct AddressArgs {
    /// An address of the node, with or without its network. Repeatable. Without it, the Node object's addresses.
    #[arg(long, value_name = "IP[/LEN]", help_heading = "Cluster and node")]
    pub node_address: Vec<String>,
    /// A further interface of the node and its address. Repeatable.
    #[arg(long, value_name = "NAME=IP[/LEN]", help_heading = "Cluster and node")]
    pub interface: Vec<String>,
}

/// The families that are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// Only IPv4.
    Ipv4,
    /// Only IPv6.
    Ipv6,
    /// Both, each under a heading.
    Both,
}

impl Which {
    /// One by one.
    pub fn families(self) -> &'static [Family] {
        match self {
            Which::Ipv4 => &[Family::V4],
            Which::Ipv6 => &[Family::V6],
            Which::Both => &Family::ALL,
        }
    }
}

/// The modes whose rules the tools know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Chains and rules of iptables, as upstream writes them.
    Iptables,
    /// A table of our own.
    Nftables,
}

/// A cluster as one node sees it.
pub struct World {
    /// Whose rules are meant.
    pub mode: Mode,
    /// The objects.
    pub snapshot: Snapshot,
    /// The node.
    pub facts: NodeFacts,
    /// The settings.
    pub settings: Settings,
    /// What traffic should do.
    pub desired: PerFamily<Desired>,
}

impl ClusterArgs {
    /// Reads it all. What was left out of objects goes to stderr, a line each.
    ///
    /// # Errors
    /// Names the file or flag, and the reason.
    pub fn load(&self, addresses: &[IpAddr]) -> Result<World> {
        let Some(path) = &self.manifests else {
            bail!("no objects to work on: give --manifests FILE, DIR or -");
        };
        self.world(read_objects(path, self.about.as_deref())?, addresses, None)
    }

    /// The same of the objects that manifests or the API server hold. `own_name` is the node's where neither flag nor
    /// configuration says which is meant and there are several.
    ///
    /// # Errors
    /// Names the file, the flag or the server, and the reason.
    pub fn load_from(
        &self,
        server: &ServerArgs,
        addresses: &[IpAddr],
        own_name: Option<&str>,
    ) -> Result<World> {
        self.world(self.snapshot(server)?, addresses, own_name)
    }

    /// The objects that manifests or the API server hold.
    ///
    /// # Errors
    /// Names the file or the server, and the reason.
    pub fn snapshot(&self, server: &ServerArgs) -> Result<Snapshot> {
        match &self.manifests {
            Some(path) => read_objects(path, self.about.as_deref()),
            None if server.is_given() => server.snapshot(),
            None => bail!(
                "no objects to compare with: give --manifests FILE, DIR or -, or --kubeconfig FILE for those of the API server"
            ),
        }
    }

    /// The same of objects that were read already.
    ///
    /// # Errors
    /// Names the flag or the configuration's field, and the reason.
    pub fn of_snapshot(&self, snapshot: Snapshot, addresses: &[IpAddr]) -> Result<World> {
        self.world(snapshot, addresses, None)
    }

    fn world(&self, snapshot: Snapshot, addresses: &[IpAddr], own_name: Option<&str>) -> Result<World> {
        let config = self.settings.configuration()?;
        let facts = self.facts(&snapshot, &config, addresses, own_name)?;
        let settings = config::settings(&config, &facts);
        let desired = PerFamily::from_fn(|family| {
            let (desired, notes) = Desired::from_snapshot(&snapshot, family, &facts, &settings);
            tell("note", self.about.as_deref(), &notes);
            desired
        });
        let mode = match config.mode.as_str() {
            "" | "iptables" => Mode::Iptables,
            "nftables" => Mode::Nftables,
            other => bail!("rules of mode {other:?} are not known here; --proxy-mode iptables or nftables"),
        };
        Ok(World {
            mode,
            snapshot,
            facts,
            settings,
            desired,
        })
    }

    fn facts(
        &self,
        snapshot: &Snapshot,
        config: &KubeProxyConfiguration,
        addresses: &[IpAddr],
        own_name: Option<&str>,
    ) -> Result<NodeFacts> {
        let name = self.node_name(snapshot, config, own_name)?;
        let node_addresses = snapshot.node(&name).map_or(&[][..], |node| &node.addresses);
        let own = interface_addresses(addresses, node_addresses);
        Ok(config::facts(config, &name, snapshot, own))
    }

    /// The node asked for; without a flag, the configuration's, or the only Node there is.
    fn node_name(
        &self,
        snapshot: &Snapshot,
        config: &KubeProxyConfiguration,
        own_name: Option<&str>,
    ) -> Result<String> {
        let named = self
            .node
            .as_deref()
            .or(Some(config.hostname_override.as_str()).filter(|name| !name.is_empty()));
        let nodes: Vec<&str> = snapshot.nodes().map(|node| &*node.name).collect();
        match (named, nodes.as_slice()) {
            (Some(name), _) if nodes.is_empty() || nodes.contains(&name) => Ok(name.to_owned()),
            (Some(name), _) => bail!(
                "there is no Node {name:?} in the manifests; there are: {}",
                nodes.join(", ")
            ),
            (None, [only]) => Ok((*only).to_owned()),
            (None, all) if own_name.is_some_and(|own| all.is_empty() || all.contains(&own)) => {
                Ok(own_name.unwrap_or_default().to_owned())
            }
            (None, []) => bail!("the manifests have no Node: say which node is meant with --node"),
            (None, _) => bail!("which node is meant? Give --node, one of: {}", nodes.join(", ")),
        }
    }
}

/// Addresses of the node's interfaces: those given, or the Node object's; loopback is always among them.
fn interface_addresses(given: &[IpAddr], node_addresses: &[IpAddr]) -> Vec<IpAddr> {
    let known = if given.is_empty() { node_addresses } else { given };
    let loopback = [
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
    ];
    let all: BTreeSet<IpAddr> = known.iter().copied().chain(loopback).collect();
    all.into_iter().collect()
}

impl SettingsArgs {
    /// The configuration that the flags name.
    ///
    /// # Errors
    /// Names the file or field, and the reason.
    pub fn configuration(&self) -> Result<KubeProxyConfiguration> {
        let mut warnings = Vec::new();
        let mut config = match &self.config {
            Some(path) => load_config(path, &mut warnings)?,
            None => KubeProxyConfiguration::defaults(),
        };
        tell("warning", None, &warnings);
        if let Some(mode) = &self.proxy_mode {
            config.mode.clone_from(mode);
            // Where node ports are served unless somebody says so depends on it.
            config.fill_linux_defaults();
        }
        if let Some(cidr) = &self.cluster_cidr {
            config.cluster_cidr.clone_from(cidr);
        }
        if let Some(cidrs) = &self.external_ip_allowed_cidrs {
            external_ips::allow(&mut config, cidrs)
                .map_err(|reason| anyhow!("--{}: {reason}", external_ips::FLAG))?;
        }
        check(&config)?;
        Ok(config)
    }
}

impl AddressArgs {
    /// The addresses that the flags name.
    ///
    /// # Errors
    /// Names the flag that is no address.
    pub fn addresses(&self) -> Result<Vec<IpAddr>> {
        let mut found = Vec::new();
        for text in &self.node_address {
            found.push(address(text).with_context(|| format!("--node-address {text}"))?);
        }
        for text in &self.interface {
            let parsed = text.split_once('=').map(|(_, ip)| address(ip));
            let ip = parsed.unwrap_or_else(|| bail!("not of the form NAME=IP/LEN"));
            found.push(ip.with_context(|| format!("--interface {text}"))?);
        }
        Ok(found)
    }
}

fn address(text: &str) -> Result<IpAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(ip);
    }
    let net: IpNet = text
        .parse()
        .map_err(|_| anyhow::anyhow!("neither an IP nor IP/LEN"))?;
    Ok(net.addr())
}

/// The objects of manifests, whole: with what the proxy does not keep of them. What cannot be read among others is told and left out.
///
/// # Errors
/// When nothing can be read.
pub fn read_manifests(path: &Path) -> Result<Vec<Value>> {
    let found = cluster::manifests::values_in(path).context("cannot read --manifests")?;
    if let ([], [first, ..]) = (found.values.as_slice(), found.errors.as_slice()) {
        bail!("{first}");
    }
    tell("warning", None, &found.errors);
    Ok(found.values)
}

/// A folder whose every file is unreadable has nothing to work on; one bad file among others is reported and left out.
fn read_objects(path: &Path, about: Option<&str>) -> Result<Snapshot> {
    let reading = cluster::manifests::read_path(path).context("cannot read --manifests")?;
    if let ([], [first, ..]) = (reading.objects.as_slice(), reading.errors.as_slice()) {
        bail!("{first}");
    }
    if let Some(kinds) = kinds_not_read(&reading.not_read) {
        if reading.objects.is_empty() {
            bail!(
                "{}: no Service, EndpointSlice, Node or ServiceCIDR in it, only {kinds}: give manifests of those",
                path.display()
            );
        }
        tell(
            "note",
            about,
            &[format!("objects of these kinds are not read: {kinds}")],
        );
    }
    tell("warning", about, &reading.errors);
    tell("warning", about, &reading.doubles);
    tell("note", about, &reading.notes);
    let mut snapshot = Snapshot::new();
    for object in reading.objects {
        snapshot.apply(Change::Apply(object));
    }
    Ok(snapshot)
}

/// What is no answer goes to stderr, a line each; of one of two things that are compared with the word for which.
fn tell<T: std::fmt::Display>(kind: &str, about: Option<&str>, lines: &[T]) {
    let about = about.map_or_else(String::new, |about| format!(" ({about})"));
    for line in lines {
        anstream::eprintln!("{kind}{}: {}", harmless(&about), harmless(&line.to_string()));
    }
}

/// The kinds that nobody here reads, each once.
fn kinds_not_read(not_read: &[model::object::NotRead]) -> Option<String> {
    let kinds: BTreeSet<&str> = not_read.iter().map(|object| object.kind.as_str()).collect();
    let kinds: Vec<&str> = kinds.into_iter().collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

impl World {
    /// The rules of one family, with every capability that tool and kernel can have, unless told otherwise.
    pub fn ruleset(&self, family: Family, capabilities: Capabilities) -> Ruleset {
        let desired = self.desired.get(family);
        let context = BuildContext {
            capabilities,
            endpoint_comments: EndpointComments::for_cluster(&ListedEndpoints::of(desired)),
            invalid: InvalidPackets::Dropped,
        };
        ruleset(desired, &context)
    }

    /// The networks that cluster IPs come from, sorted, as the daemon takes them.
    pub fn service_cidrs(&self) -> Vec<IpNet> {
        let cidrs = self
            .snapshot
            .service_cidrs()
            .flat_map(|cidr| cidr.cidrs.iter().copied());
        let all: BTreeSet<IpNet> = cidrs.collect();
        all.into_iter().collect()
    }

    /// The same node with other settings.
    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> World {
        self.desired = PerFamily::from_fn(|family| {
            Desired::from_snapshot(&self.snapshot, family, &self.facts, &settings).0
        });
        self.settings = settings;
        self
    }

    /// A new engine for one family of this node.
    pub fn engine(&self, family: Family, capabilities: Capabilities, invalid: InvalidPackets) -> Engine {
        let host = Host {
            families: PerFamily::from_fn(|of| (of == family).then_some(capabilities)),
            invalid,
        };
        let config = EngineConfig {
            backend: match self.mode {
                Mode::Iptables => Backend::NfTables,
                Mode::Nftables => Backend::OwnTable,
            },
            ..EngineConfig::default()
        };
        Engine::new(self.settings.clone(), self.facts.clone(), &host, &config)
    }
}

/// What a host has that lacks nothing.
pub const EVERY_CAPABILITY: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Present,
};
