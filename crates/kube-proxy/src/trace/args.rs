//! The flags of `kube-proxy trace`.

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use ipnet::IpNet;
use iptables::trace::LocalAddresses;
use model::Family;
use path::{Host, HostInterface, Route};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// Where a packet goes on this host, and why: every rule it meets, and every way it can take with its chance.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    #[command(flatten)]
    pub packet: PacketArgs,
    /// Many packets, one a line in the words of the flags above (`--from 10.244.1.7 --to 10.96.0.10:53 --proto udp`); `-`
    /// for standard input. Empty lines and those that begin with `#` are skipped. The answer is one table.
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["from", "to", "in_interface", "sent_here", "mark"])]
    pub packets: Option<String>,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Rules as `iptables-save` (or `ip6tables-save`), `nft list ruleset` or `nft -j list ruleset` prints them, and sets as
    /// `ipset save` does; `-` for standard input. Repeat for a host that has several kinds.
    #[arg(long, value_name = "FILE")]
    pub dump: Vec<String>,
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
    /// How many ways are printed rule by rule, or drawn; 0 for all. The others are listed with their ends [default: 10;
    /// of JSON, which leaves the others out: 1000, and fewer where they have very many steps].
    #[arg(long, value_name = "N")]
    pub full: Option<usize>,
    /// Columns to fit the text into.
    #[arg(long, default_value_t = 140, value_name = "N")]
    pub width: u16,
    /// Form of the answer.
    #[arg(long, short, default_value = "text")]
    pub output: Form,
}

/// The packet that is asked about; with `--live`, which packets are followed.
#[derive(Clone, Debug, Default, Args)]
pub struct PacketArgs {
    /// Source address, with a port if that matters: `10.0.0.2`, `10.0.0.2:5000`, `[fd00::2]:5000`.
    #[arg(long, value_name = "IP[:PORT]")]
    pub from: Option<Source>,
    /// Destination address and port: 10.96.0.10:53. With --live the port may be left out.
    #[arg(long, value_name = "IP:PORT")]
    pub to: Option<Source>,
    /// Transport protocol [default: tcp; with --live: any].
    #[arg(long)]
    pub proto: Option<Protocol>,
    /// The interface it comes in through. Without it, a source that is this host's own means that this host sends it.
    #[arg(long, value_name = "IF")]
    pub in_interface: Option<String>,
    /// This host sends it, whatever its source address is.
    #[arg(long, conflicts_with = "in_interface")]
    pub sent_here: bool,
    /// The mark it carries at the start.
    #[arg(long, value_parser = parse_mark, value_name = "MARK")]
    pub mark: Option<u32>,
}

/// Real packets instead of one that is thought of.
#[derive(Clone, Debug, Args)]
pub struct LiveArgs {
    /// Follow real packets of this host as they pass, rule by rule, as the kernel tells it: `nf_tables`, or where
    /// iptables-legacy keeps the rules, its target TRACE, by rules in table raw that go at the end. Needs root.
    #[arg(long, help_heading = "Real packets", conflicts_with_all = ["packets", "mark", "evaluated"])]
    pub live: bool,
    /// End after so many packets.
    #[arg(
        long,
        default_value_t = 10,
        value_name = "N",
        help_heading = "Real packets",
        requires = "live"
    )]
    pub count: usize,
    /// End after this time.
    #[arg(long = "for", default_value = "30s", value_parser = parse_time, value_name = "TIME", help_heading = "Real packets", requires = "live")]
    pub time: Duration,
    /// Compare each new connection's packet with what trace says of it: over this host's rules, or those of --dump.
    /// Exit status 1 when a packet took a way that trace does not give.
    #[arg(long, help_heading = "Real packets", requires = "live")]
    pub check: bool,
}

/// A packet that can be traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The source.
    pub from: Source,
    /// The destination.
    pub to: SocketAddr,
    /// The protocol.
    pub proto: model::Protocol,
    /// The interface it comes in through.
    pub in_interface: Option<String>,
    /// Whether this host sends it, whatever its source.
    pub sent_here: bool,
    /// The mark at the start.
    pub mark: u32,
}

impl PacketArgs {
    /// The packet, when enough is said of it.
    ///
    /// # Errors
    /// Names what is missing.
    pub fn question(&self) -> anyhow::Result<Question> {
        let from = self
            .from
            .context("--from IP[:PORT] is missing: the packet's source")?;
        let to = self
            .to
            .context("--to IP:PORT is missing: the packet's destination")?;
        let Some(port) = to.port else {
            let example = SocketAddr::new(to.ip, 80);
            bail!("--to: the port is missing: a service listens on one, so give {example} or the like");
        };
        anyhow::ensure!(
            Family::of(from.ip) == Family::of(to.ip),
            "--from {} and --to {} are of different families",
            from.ip,
            SocketAddr::new(to.ip, port)
        );
        Ok(Question {
            from,
            to: SocketAddr::new(to.ip, port),
            proto: self.proto.unwrap_or(Protocol::Tcp).into(),
            in_interface: self.in_interface.clone(),
            sent_here: self.sent_here,
            mark: self.mark.unwrap_or_default(),
        })
    }
}

impl Question {
    /// Its family.
    pub fn family(&self) -> Family {
        Family::of(self.to.ip())
    }
}

/// How many ways are printed rule by rule when nobody says.
const USUAL_FULL: usize = 10;

impl TraceArgs {
    /// How many ways are printed rule by rule, or drawn; 0 for all.
    pub(super) fn full(&self) -> usize {
        self.full.unwrap_or(USUAL_FULL)
    }

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
    /// A flow chart for Mermaid.
    Mermaid,
    /// A graph for Graphviz.
    Dot,
    /// A picture for a browser, light or dark.
    Svg,
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

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = config::GoDuration::read(text)?.to_std();
    if time.is_zero() {
        return Err(format!("{text:?} is no time to wait for anything"));
    }
    Ok(time)
}

/// An address and maybe a port.
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
