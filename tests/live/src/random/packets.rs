//! Random packets over a random cluster.

use super::Random;
use super::cluster::{Cluster, Frontend, Kind};
use super::site::{CLIENT, FURTHER, HOST_POD, NODE, PODS, Place, STRANGER, TCP, UDP, parsed};
use lab::{Probe, Proto};
use model::Family;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What a packet is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// An address that a Service has.
    Frontend(Kind),
    /// Such an address, and a port that no Service has there.
    WrongPort(Kind),
    /// An address that nobody has, of services or outside.
    Unknown,
    /// A pod itself.
    Pod,
    /// A node port on the loopback address.
    Loopback,
}

/// A packet to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// What it is sent to.
    pub aim: Aim,
    /// Who sends it.
    pub by: Place,
    /// Its source.
    pub from: IpAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Its protocol.
    pub proto: Proto,
}

impl Asked {
    /// A random one.
    pub fn new(random: &mut Random, cluster: &Cluster) -> Asked {
        let frontend = random.one_of(&cluster.frontends);
        let to = SocketAddr::new(address(random, frontend), frontend.to.port());
        let by = random.one_of(&[
            PODS[0], PODS[1], PODS[2], CLIENT, CLIENT, STRANGER, HOST_POD, HOST_POD,
        ]);
        let family = Family::of(to.ip());
        let asked = Asked {
            aim: Aim::Frontend(frontend.kind),
            by,
            from: by.address(family),
            to,
            proto: frontend.proto,
        };
        match random.below(20) {
            0..=1 => Asked {
                aim: Aim::WrongPort(frontend.kind),
                to: SocketAddr::new(to.ip(), random.one_of(&[81, 7, 29_999])),
                ..asked
            },
            2 => {
                let unknown = random.one_of(&UNKNOWN);
                let unknown: IpAddr = parsed(unknown);
                let by = asked.by.address(Family::of(unknown));
                Asked {
                    aim: Aim::Unknown,
                    from: by,
                    to: SocketAddr::new(unknown, to.port()),
                    ..asked
                }
            }
            3..=4 => asked.to_a_pod(random, family),
            5 if frontend.kind == Kind::NodePort && family == Family::V4 => Asked {
                aim: Aim::Loopback,
                by: HOST_POD,
                from: Ipv4Addr::LOCALHOST.into(),
                to: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), to.port()),
                ..asked
            },
            _ => asked,
        }
    }

    /// Who is outside has no route to pods, nor do pods share one with themselves.
    fn to_a_pod(self, random: &mut Random, family: Family) -> Asked {
        let by = random.one_of(&[PODS[0], PODS[1], HOST_POD]);
        let pod = random.one_of(&[PODS[2], PODS[3], PODS[4]]);
        let port = match self.proto {
            Proto::Udp => UDP,
            _ => TCP,
        };
        Asked {
            aim: Aim::Pod,
            by,
            from: by.address(family),
            to: SocketAddr::new(pod.address(family), port),
            ..self
        }
    }

    /// Where it is sent from.
    pub fn place(&self) -> &'static str {
        if self.sent_here() { NODE } else { self.by.name }
    }

    /// Whether the node under test sends it itself.
    pub fn sent_here(&self) -> bool {
        self.by.name == HOST_POD.name
    }

    /// The question, in the words of `trace`.
    pub fn words(&self) -> String {
        let came = match self.by {
            by if by.name == HOST_POD.name => "--sent-here",
            by if by.node.is_empty() => "--in-interface eth0",
            _ => "--in-interface cni0",
        };
        format!(
            "--from {} --to {} --proto {} {came}",
            self.from, self.to, self.proto
        )
    }

    /// The packet, from a source port.
    pub fn probe(&self, port: u16) -> Probe {
        let probe = Probe {
            proto: self.proto,
            ..Probe::tcp(self.to)
        };
        probe.from(self.from).from_port(port)
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} from {} to {:?}", self.words(), self.by.name, self.aim)
    }
}

/// Of services and outside.
const UNKNOWN: [&str; 4] = [
    "10.96.200.7",
    "fd00:96::c807",
    "203.0.113.250",
    "2001:db8:203::9:1",
];

/// A node port is on each of the node's addresses.
fn address(random: &mut Random, frontend: Frontend) -> IpAddr {
    let family = Family::of(frontend.to.ip());
    let further: IpAddr = parsed(FURTHER.get(family));
    match frontend.kind {
        Kind::NodePort if random.percent(30) => further,
        _ => frontend.to.ip(),
    }
}
