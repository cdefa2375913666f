//! Dumps of rules in the shape that other software gives them, and what becomes of packets that meet them.

use crate::error::{ScenarioError, read, stem};
use crate::host;
use ipnet::IpNet;
use model::{Origin, Packet, PerFamily, Protocol};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

/// One folder of `scenarios/dumps/`.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The folder's name: the program.
    pub name: String,
    /// What `iptables-save` and `ip6tables-save` print.
    pub saved: PerFamily<Option<String>>,
    /// What `nft list ruleset` prints.
    pub text: Option<String>,
    /// What `nft -j list ruleset` prints.
    pub json: Option<String>,
    /// The sets that its rules name, as input of `ipset restore`.
    pub ipsets: Option<String>,
    /// What else there is to know.
    pub expect: Expect,
}

/// A folder's `expect.yaml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// What is printed back in other words, each with the words it is printed in.
    #[serde(default)]
    pub normalised: BTreeMap<String, String>,
    /// Why today's tools cannot load it, where they cannot.
    pub not_loaded: Option<String>,
    /// Interfaces that have to be there before it is loaded.
    #[serde(default)]
    pub links: Vec<String>,
    /// The interfaces with their addresses.
    #[serde(deserialize_with = "interfaces")]
    pub interfaces: BTreeMap<String, Vec<IpNet>>,
    /// The routes beside those that the addresses imply.
    pub routes: Vec<DumpRoute>,
    /// The rules of kube-proxy that are there as well.
    pub kube_proxy: Option<Beside>,
    /// What is asked.
    pub packets: Vec<Question>,
}

fn interfaces<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Vec<IpNet>>, D::Error> {
    let all = BTreeMap::<String, Vec<String>>::deserialize(from)?.into_iter();
    all.map(|(name, nets)| Ok((name, host::nets(&nets).map_err(D::Error::custom)?)))
        .collect()
}

/// `NETWORK [via ADDRESS] dev INTERFACE`
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct DumpRoute {
    /// Where to.
    pub to: IpNet,
    /// The next hop; `None` for neighbours.
    pub via: Option<IpAddr>,
    /// The interface.
    pub interface: String,
}

/// Rules of kube-proxy beside those of the program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The golden cluster whose rules they are.
    pub golden: String,
    /// Whether they stand before the program's in chains that both use.
    pub order: Order,
}

/// Where rules stand among others of their chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Before them.
    First,
    /// Behind them.
    Last,
}

/// A packet, and every way it can take.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    from: String,
    to: SocketAddr,
    #[serde(default)]
    proto: Proto,
    #[serde(default)]
    mark: u32,
    /// Each way: its end, then what it stands on, parted by ` | `.
    pub expect: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Proto {
    #[default]
    Tcp,
    Udp,
    Sctp,
}

impl Question {
    /// The packet that is asked about.
    ///
    /// # Errors
    /// When the sender is neither `ADDRESS dev INTERFACE` nor `node ADDRESS`.
    pub fn packet(&self) -> Result<Packet, String> {
        let wrong = || format!("{}: neither ADDRESS dev INTERFACE nor node ADDRESS", self.from);
        let words: Vec<&str> = self.from.split(' ').collect();
        let (src, origin) = match words[..] {
            ["node", src] => (src, Origin::Host),
            [src, "dev", name] => (src, Origin::Interface(name.into())),
            _ => return Err(wrong()),
        };
        let protocol = match self.proto {
            Proto::Tcp => Protocol::Tcp,
            Proto::Udp => Protocol::Udp,
            Proto::Sctp => Protocol::Sctp,
        };
        let src = src.parse().map_err(|_| wrong())?;
        Ok(Packet {
            mark: self.mark,
            ..Packet::new(src, self.to, protocol, origin)
        })
    }
}

impl TryFrom<String> for DumpRoute {
    type Error = String;

    fn try_from(text: String) -> Result<DumpRoute, String> {
        let wrong = || format!("{text}: not NETWORK [via ADDRESS] dev INTERFACE");
        let words: Vec<&str> = text.split(' ').collect();
        let (to, via, interface) = match words[..] {
            [to, "dev", interface] => (to, None, interface),
            [to, "via", via, "dev", interface] => (to, Some(via), interface),
            _ => return Err(wrong()),
        };
        let via = via.map(str::parse).transpose().map_err(|_| wrong())?;
        Ok(DumpRoute {
            to: to.parse().map_err(|_| wrong())?,
            via,
            interface: interface.to_owned(),
        })
    }
}

/// Reads one folder.
///
/// # Errors
/// When a file is malformed, or there is none to ask about.
pub fn read_dump(folder: &Path) -> Result<Dump, ScenarioError> {
    let expect_path = folder.join("expect.yaml");
    let expect: Expect = serde_saphyr::from_str(&read(&expect_path)?)
        .map_err(|error| ScenarioError::form(&expect_path, &error))?;
    let optional = |name: &str| {
        let path = folder.join(name);
        path.exists().then(|| read(&path)).transpose()
    };
    let dump = Dump {
        name: stem(folder),
        saved: PerFamily {
            v4: optional("iptables-save.txt")?,
            v6: optional("ip6tables-save.txt")?,
        },
        text: optional("nft-ruleset.txt")?,
        json: optional("nft-ruleset.json")?,
        ipsets: optional("ipset.txt")?,
        expect,
    };
    if dump.saved.v4.is_none() && dump.saved.v6.is_none() && dump.text.is_none() && dump.json.is_none() {
        return Err(ScenarioError::form(folder, &"no dump of rules is in it"));
    }
    Ok(dump)
}
