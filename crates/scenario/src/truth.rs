//! Truth tables: packets, and what should become of them, written down by hand.

use crate::error::{ScenarioError, read, stem};
use crate::host;
use config::KubeProxyConfiguration;
use ipnet::IpNet;
use model::snapshot::Snapshot;
use model::{Delivery, Desired, NodeFacts, Note, Origin, Outcome, Packet, PerFamily, Protocol, Settings};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// One file of `scenarios/truth/`.
#[derive(Clone, Debug)]
pub struct TruthTable {
    /// The file's name.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The situations.
    pub variants: Vec<Variant>,
}

/// One situation: cluster, node, configuration, and packets.
#[derive(Clone, Debug)]
pub struct Variant {
    /// What is different about it.
    pub name: String,
    /// Addresses of the node, with their networks.
    pub addresses: Vec<IpNet>,
    /// The configuration.
    pub config: KubeProxyConfiguration,
    /// The objects as found.
    pub documents: Vec<Value>,
    /// The objects.
    pub snapshot: Snapshot,
    /// What was left out of the objects.
    pub notes: Vec<Note>,
    /// The node.
    pub facts: NodeFacts,
    /// The settings.
    pub settings: Settings,
    /// What traffic should do.
    pub desired: PerFamily<Desired>,
    /// The packets.
    pub flows: Vec<Flow>,
}

/// One packet and what should become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The row, in the words of the table.
    pub name: String,
    /// The packet.
    pub packet: Packet,
    /// What should become of it.
    pub expect: Outcome,
    /// What becomes of it in nftables mode, where upstream's modes differ on purpose.
    pub in_nftables: Option<Outcome>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableFile {
    title: String,
    #[serde(default)]
    names: BTreeMap<String, String>,
    node: NodePart,
    #[serde(default)]
    config: Value,
    #[serde(default)]
    objects: Vec<Value>,
    #[serde(default)]
    flows: Vec<FlowPart>,
    #[serde(default)]
    variants: Vec<VariantPart>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodePart {
    name: String,
    #[serde(default)]
    internal_ips: Vec<String>,
    addresses: Vec<String>,
}

impl NodePart {
    fn object(&self) -> Value {
        let address = |ip: &String| serde_json::json!({"type": "InternalIP", "address": ip});
        let addresses: Vec<Value> = self.internal_ips.iter().map(address).collect();
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name},
            "status": {"addresses": addresses},
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantPart {
    name: String,
    /// In place of the table's.
    config: Option<Value>,
    /// In place of the table's.
    objects: Option<Vec<Value>>,
    /// In place of the table's.
    flows: Option<Vec<FlowPart>>,
    /// Rows that differ from the table's, told by `from`, `to` and `proto`.
    #[serde(default)]
    instead: Vec<FlowPart>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowPart {
    from: String,
    to: String,
    #[serde(default = "tcp")]
    proto: String,
    /// The interface it comes in through.
    in_interface: Option<String>,
    /// `host` when the node sends it although the source is none of its addresses.
    origin: Option<String>,
    expect: ExpectPart,
    /// In nftables mode, where that differs.
    nftables: Option<ExpectPart>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum ExpectPart {
    Word(String),
    Delivered {
        endpoints: Vec<String>,
        masquerade: MasqueradePart,
    },
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum MasqueradePart {
    All(bool),
    These(Vec<String>),
}

fn tcp() -> String {
    "tcp".to_owned()
}

impl Variant {
    /// The same situation with what is expected of nftables mode.
    #[must_use]
    pub fn in_nftables(&self) -> Variant {
        let mut variant = self.clone();
        for flow in &mut variant.flows {
            if let Some(other) = flow.in_nftables.take() {
                flow.expect = other;
            }
        }
        variant
    }
}

/// Reads one truth table.
///
/// # Errors
/// When the file is missing or malformed.
pub fn read_truth_table(path: &Path) -> Result<TruthTable, ScenarioError> {
    let text = read(path)?;
    let file: TableFile = serde_saphyr::from_str(&text).map_err(|err| ScenarioError::form(path, &err))?;
    let mut variants = Vec::new();
    if file.variants.is_empty() || !file.flows.is_empty() {
        let plain = VariantPart {
            name: "as it is".to_owned(),
            config: None,
            objects: None,
            flows: None,
            instead: Vec::new(),
        };
        variants.push(variant(&file, &plain).map_err(|err| ScenarioError::form(path, &err))?);
    }
    for part in &file.variants {
        let failed = |err| ScenarioError::form(path, &format!("variant {:?}: {err}", part.name));
        variants.push(variant(&file, part).map_err(failed)?);
    }
    Ok(TruthTable {
        name: stem(path),
        title: file.title,
        variants,
    })
}

fn variant(file: &TableFile, part: &VariantPart) -> Result<Variant, String> {
    let config = host::configuration(part.config.as_ref().unwrap_or(&file.config), &file.node.name)?;
    let mut documents = part.objects.as_ref().unwrap_or(&file.objects).clone();
    documents.push(file.node.object());
    let (snapshot, notes) = host::snapshot(documents.clone());
    let addresses = host::nets(&file.node.addresses)?;
    let facts = host::facts(
        &file.node.name,
        &snapshot,
        &config,
        addresses.iter().map(IpNet::addr).collect(),
    );
    let settings = config::settings(&config, &facts);
    let rows = rows(file, part)?;
    let names = Names(&file.names);
    let flows: Result<Vec<Flow>, String> = rows
        .iter()
        .map(|row| flow(row, names, &facts).map_err(|err| format!("{} -> {}: {err}", row.from, row.to)))
        .collect();
    Ok(Variant {
        name: part.name.clone(),
        addresses,
        config,
        documents,
        desired: host::desired(&snapshot, &facts, &settings),
        snapshot,
        notes,
        facts,
        settings,
        flows: flows?,
    })
}

/// The rows of a variant: its own, or the table's with some replaced.
fn rows(file: &TableFile, part: &VariantPart) -> Result<Vec<FlowPart>, String> {
    let mut rows = part.flows.as_ref().unwrap_or(&file.flows).clone();
    for instead in &part.instead {
        let key = |row: &FlowPart| (row.from.clone(), row.to.clone(), row.proto.clone());
        let row = rows.iter_mut().find(|row| key(row) == key(instead));
        let row = row.ok_or_else(|| format!("instead: no row {} -> {}", instead.from, instead.to))?;
        *row = instead.clone();
    }
    Ok(rows)
}

fn flow(row: &FlowPart, names: Names<'_>, facts: &NodeFacts) -> Result<Flow, String> {
    let src = names.ip(&row.from)?;
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.as_lower() == row.proto);
    let protocol = protocol.ok_or_else(|| format!("{}: no protocol", row.proto))?;
    let origin = match (row.origin.as_deref(), &row.in_interface) {
        (Some("host"), None) => Origin::Host,
        (None, Some(interface)) => Origin::Interface(interface.as_str().into()),
        (None, None) if facts.is_local_address(src) => Origin::Host,
        (None, None) => Origin::Interface("".into()),
        (Some(other), _) => return Err(format!("origin {other:?} makes no sense here")),
    };
    Ok(Flow {
        name: format!("{} -> {} {}", row.from, row.to, row.proto),
        packet: Packet::new(src, names.socket(&row.to)?, protocol, origin),
        expect: expect(&row.expect, names)?,
        in_nftables: row
            .nftables
            .as_ref()
            .map(|part| expect(part, names))
            .transpose()?,
    })
}

fn expect(part: &ExpectPart, names: Names<'_>) -> Result<Outcome, String> {
    let (endpoints, masquerade) = match part {
        ExpectPart::Word(word) => {
            return match word.as_str() {
                "reject" => Ok(Outcome::Rejected),
                "drop" => Ok(Outcome::Dropped),
                "accept" => Ok(Outcome::Accepted),
                "untouched" => Ok(Outcome::Untouched),
                other => Err(format!("{other:?}: no outcome")),
            };
        }
        ExpectPart::Delivered {
            endpoints,
            masquerade,
        } => (endpoints, masquerade),
    };
    let deliver = |text: &String| -> Result<Delivery, String> {
        Ok(Delivery {
            endpoint: names.socket(text)?,
            masquerade: match masquerade {
                MasqueradePart::All(all) => *all,
                MasqueradePart::These(these) => these.contains(text),
            },
        })
    };
    let deliveries: Result<BTreeSet<Delivery>, String> = endpoints.iter().map(deliver).collect();
    match deliveries? {
        empty if empty.is_empty() => Err("no endpoints".to_owned()),
        deliveries => Ok(Outcome::Delivered(deliveries)),
    }
}

/// Short names for addresses, or for addresses with port.
#[derive(Clone, Copy)]
struct Names<'a>(&'a BTreeMap<String, String>);

impl Names<'_> {
    fn text<'t>(self, name: &'t str) -> &'t str
    where
        Self: 't,
    {
        self.0.get(name).map_or(name, String::as_str)
    }

    fn ip(self, name: &str) -> Result<IpAddr, String> {
        self.text(name).parse().map_err(|_| format!("{name}: no address"))
    }

    /// `NAME`, `NAME:port`, or a socket address.
    fn socket(self, name: &str) -> Result<SocketAddr, String> {
        if let Ok(socket) = self.text(name).parse() {
            return Ok(socket);
        }
        let wrong = || format!("{name}: no address and port");
        let (host, port) = name.rsplit_once(':').ok_or_else(wrong)?;
        Ok(SocketAddr::new(
            self.ip(host)?,
            port.parse().map_err(|_| wrong())?,
        ))
    }
}
