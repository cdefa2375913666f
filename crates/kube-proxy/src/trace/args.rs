//! The flags of `kube-proxy trace`.

use clap::{Args, ValueEnum};
use ipnet::IpNet;
use iptables::trace::LocalAddresses;
use path::{Host, HostInterface, Route};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Where a packet goes on this host, and why: every rule it meets, and every way it can take with its chance.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// Source address, with a port if that matters: `10.0.0.2`, `10.0.0.2:5000`, `[fd00::2]:5000`.
    #[arg(long, value_name = "IP[:PORT]")]
    pub from: Source,
    /// Destination address and port: 10.96.0.10:53.
    #[arg(long, value_name = "IP:PORT")]
    pub to: SocketAddr,
    /// Transport protocol.
    #[arg(long, default_value = "tcp")]
    pub proto: Protocol,
    /// The interface it comes in through. Without it, a source that is this host's own means that this host sends it.
    #[arg(long, value_name = "IF")]
    pub in_interface: Option<String>,
    /// This host sends it, whatever its source address is.
    #[arg(long, conflicts_with = "in_interface")]
    pub sent_here: bool,
    /// The mark it carries at the start.
    #[arg(long, value_parser = parse_mark, value_name = "MARK")]
    pub mark: Option<u32>,
    /// Rules as `iptables-save` (or `ip6tables-save`) prints them; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    pub dump: Option<String>,
    /// An address of the host, beside those that are known otherwise. Repeat for all: with any given, every other
    /// address counts as another host's. Without any, a dump leaves that open, and the answer says what hangs on it.
    #[arg(long, value_name = "IP")]
    pub local_address: Vec<IpAddr>,
    /// An interface of the host and one of its addresses. Repeat for more.
    #[arg(long, value_name = "IF=IP/LEN")]
    pub interface: Vec<InterfaceAddress>,
    /// A route of the host, beside those to its interfaces' networks. Repeat for more.
    #[arg(long, value_name = "\"NET [via IP] dev IF\"")]
    pub route: Vec<RouteArg>,
    /// Lists every rule that is evaluated, not only those that match.
    #[arg(long)]
    pub evaluated: bool,
    /// How many ways are printed rule by rule; 0 for all. The others are listed with their ends.
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub full: usize,
    /// Columns to fit the text into.
    #[arg(long, default_value_t = 140, value_name = "N")]
    pub width: u16,
    /// Form of the answer.
    #[arg(long, short, default_value = "text")]
    pub output: Form,
}

impl TraceArgs {
    /// Adds what the flags say about the host.
    pub(super) fn add_facts(&self, host: &mut Host) {
        if !self.local_address.is_empty() {
            let mut all = match std::mem::take(&mut host.addresses) {
                LocalAddresses::Known(all) => all,
                LocalAddresses::Unknown => std::collections::BTreeSet::new(),
            };
            all.extend(&self.local_address);
            host.addresses = LocalAddresses::Known(all);
        }
        for InterfaceAddress { name, address } in &self.interface {
            match host
                .interfaces
                .iter_mut()
                .find(|interface| *interface.name == **name)
            {
                Some(interface) => interface.addresses.push(*address),
                None => host.interfaces.push(HostInterface {
                    name: name.as_str().into(),
                    addresses: vec![*address],
                }),
            }
        }
        for RouteArg(route) in &self.route {
            host.routes.get_or_insert_default().push(route.clone());
        }
    }
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl From<Protocol> for model::Protocol {
    fn from(protocol: Protocol) -> model::Protocol {
        match protocol {
            Protocol::Tcp => model::Protocol::Tcp,
            Protocol::Udp => model::Protocol::Udp,
            Protocol::Sctp => model::Protocol::Sctp,
        }
    }
}

/// A source address and maybe a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The address.
    pub ip: IpAddr,
    /// The port, when it matters.
    pub port: Option<u16>,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Source, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Source { ip, port: None });
        }
        let both: SocketAddr = text
            .parse()
            .map_err(|_| format!("{text:?} is no IP address, nor one with a port"))?;
        Ok(Source {
            ip: both.ip(),
            port: Some(both.port()),
        })
    }
}

/// An interface and one of its addresses: `eth0=192.0.2.11/24`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The interface.
    pub name: String,
    /// The address, with the length of its network.
    pub address: IpNet,
}

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<InterfaceAddress, String> {
        let (name, address) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not IF=IP/LEN"))?;
        let address = address
            .parse()
            .map_err(|_| format!("{address:?} is no address with the length of its network"))?;
        Ok(InterfaceAddress {
            name: name.to_owned(),
            address,
        })
    }
}

/// A route in the words of `ip route`: `default via 192.0.2.1 dev eth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteArg(pub Route);

impl FromStr for RouteArg {
    type Err = String;

    fn from_str(text: &str) -> Result<RouteArg, String> {
        let mut words = text.split_whitespace();
        let to = words.next().ok_or("an empty route")?;
        let (mut via, mut interface) = (None, None);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word:?} without a value"))?;
            match word {
                "via" => {
                    let hop: IpAddr = value.parse().map_err(|err| format!("via {value}: {err}"))?;
                    via = Some(hop);
                }
                "dev" => interface = Some(value.into()),
                _ => return Err(format!("{word:?} is neither via nor dev")),
            }
        }
        let interface = interface.ok_or("a route needs dev IF")?;
        let to = match (to, via) {
            ("default", Some(IpAddr::V6(_))) => "::/0",
            ("default", _) => "0.0.0.0/0",
            (net, _) => net,
        };
        let to = to
            .parse::<IpNet>()
            .or_else(|_| to.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| format!("{to:?} is no network"))?;
        Ok(RouteArg(Route { to, via, interface }))
    }
}

fn parse_mark(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|err| format!("{text:?} is no mark: {err}"))
}
