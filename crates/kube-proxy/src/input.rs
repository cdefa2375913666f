//! What the tools are asked about: objects, a node and a configuration, from files and flags.

use crate::daemon_args::{check, load_config};
use anyhow::{Context as _, Result, bail};
use config::KubeProxyConfiguration;
use ipnet::IpNet;
use iptables::ast::{Ports, Ruleset};
use iptables::build::{BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct, ruleset};
use model::crossing::ListedEndpoints;
use model::snapshot::{Change, Snapshot};
use model::{Desired, Family, NodeFacts, PerFamily, Settings};
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
    /// The configuration file (`KubeProxyConfiguration`). Without it, the defaults.
    #[arg(long, value_name = "FILE", help_heading = "Cluster and node")]
    pub config: Option<PathBuf>,
    /// Pod CIDRs of the cluster, comma separated; replaces the configuration's.
    #[arg(long, value_name = "CIDR[,CIDR]", help_heading = "Cluster and node")]
    pub cluster_cidr: Option<String>,
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

/// A cluster as one node sees it.
pub struct World {
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
        let config = self.configuration()?;
        let snapshot = read_objects(path)?;
        let facts = self.facts(&snapshot, &config, addresses)?;
        let settings = config::settings(&config, &facts);
        let desired = PerFamily::from_fn(|family| {
            let (desired, notes) = Desired::from_snapshot(&snapshot, family, &facts, &settings);
            tell("note", &notes);
            desired
        });
        Ok(World {
            snapshot,
            facts,
            settings,
            desired,
        })
    }

    fn configuration(&self) -> Result<KubeProxyConfiguration> {
        let mut warnings = Vec::new();
        let mut config = match &self.config {
            Some(path) => load_config(path, &mut warnings)?,
            None => KubeProxyConfiguration::defaults(),
        };
        tell("warning", &warnings);
        if let Some(cidr) = &self.cluster_cidr {
            config.cluster_cidr.clone_from(cidr);
        }
        check(&config)?;
        Ok(config)
    }

    fn facts(
        &self,
        snapshot: &Snapshot,
        config: &KubeProxyConfiguration,
        addresses: &[IpAddr],
    ) -> Result<NodeFacts> {
        let name = self.node_name(snapshot, config)?;
        let node_addresses = snapshot.node(&name).map_or(&[][..], |node| &node.addresses);
        let own = interface_addresses(addresses, node_addresses);
        Ok(config::facts(config, &name, snapshot, own))
    }

    /// The node asked for; without a flag, the configuration's, or the only Node there is.
    fn node_name(&self, snapshot: &Snapshot, config: &KubeProxyConfiguration) -> Result<String> {
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

/// A folder whose every file is unreadable has nothing to work on; one bad file among others is reported and left out.
fn read_objects(path: &Path) -> Result<Snapshot> {
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
        anstream::eprintln!("note: objects of these kinds are not read: {kinds}");
    }
    tell("warning", &reading.errors);
    tell("warning", &reading.doubles);
    tell("note", &reading.notes);
    let mut snapshot = Snapshot::new();
    for object in reading.objects {
        snapshot.apply(Change::Apply(object));
    }
    Ok(snapshot)
}

/// What is no answer goes to stderr, a line each.
fn tell<T: std::fmt::Display>(kind: &str, lines: &[T]) {
    for line in lines {
        anstream::eprintln!("{kind}: {line}");
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
}

/// What a host has that lacks nothing.
pub const EVERY_CAPABILITY: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Present,
};
