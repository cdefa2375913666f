//! Connections of a client on the node itself to services whose endpoints are on the node as well: when a first packet
//! arrives, what it costs, and how many connections a second there can be.

use crate::case::{IN_SYNC, PATIENCE, prepare_namespace, serve};
use crate::daemon::Daemon;
use crate::nftables::special;
use crate::objects::{Objects, cluster_ip};
use crate::stats::Spread;
use crate::{Backend, Mode, Options};
use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

/// Where all endpoints listen.
pub const ENDPOINT_PORT: u16 = 8080;
/// The client's address, inside the cluster's network so that nothing is masqueraded.
const CLIENT: &str = "11.255.0.1";
/// Who tries until there are rules. Its packets that were too early leave entries in the connection table that
/// translate nothing for two minutes; they must not be met by a connection that is measured.
const EARLY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(11, 255, 0, 2)), 0);
/// Connections of one measurement.
const CONNECTIONS: usize = 10_000;

/// A client, and every endpoint.
pub struct Client {
    endpoints: TcpListener,
}

/// One connection that got through.
struct Connection {
    /// How long its first packet took, with the answer.
    took: Duration,
    /// Where it arrived.
    endpoint: IpAddr,
}

impl Client {
    /// Makes every endpoint an address of this network namespace, and listens on all of them.
    pub fn new() -> Result<Client> {
        for words in [
            "ip route add local 11.0.0.0/8 dev lo",
            &format!("ip route add 10.96.0.0/12 dev lo src {CLIENT}"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let status = Command::new(words[0]).args(&words[1..]).status()?;
            anyhow::ensure!(status.success(), "{} failed: {status}", words.join(" "));
        }
        let endpoints = TcpListener::bind((Ipv4Addr::UNSPECIFIED, ENDPOINT_PORT))?;
        endpoints.set_nonblocking(true)?;
        Ok(Client { endpoints })
    }

    /// Connects once; `None` when nobody answered at once. On loopback the whole handshake is over when `connect` is.
    fn connect(&self, socket: &OwnedFd, to: SocketAddr) -> Result<Option<Connection>> {
        let start = Instant::now();
        // In progress, refused and unreachable are all told by whether somebody is there to accept.
        let _ = rustix::net::connect(socket, &to);
        let took = start.elapsed();
        let endpoint = self.accept()?;
        Ok(endpoint.map(|endpoint| Connection { took, endpoint }))
    }

    /// Connects once, and gives a busy machine a second for the handshake; whether an endpoint answered.
    pub fn is_answered(&self, to: SocketAddr) -> Result<bool> {
        let socket = socket()?;
        let _ = rustix::net::connect(&socket, &to);
        if self.accept()?.is_some() {
            return Ok(true);
        }
        let mut waited = [PollFd::new(&socket, PollFlags::OUT)];
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut waited, Some(&second))?;
        Ok(self.accept()?.is_some())
    }

    fn accept(&self) -> Result<Option<IpAddr>> {
        match self.endpoints.accept() {
            Ok((server, _)) => Ok(Some(server.local_addr()?.ip())),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error).context("the endpoints cannot accept"),
        }
    }

    /// Connects over and over until a connection arrives at `wanted`, or anywhere; gives when that one began.
    pub fn first_packet(&self, to: SocketAddr, wanted: Option<IpAddr>) -> Result<Instant> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let socket = socket()?;
            rustix::net::bind(&socket, &EARLY)?;
            if let Some(connection) = self.connect(&socket, to)?
                && wanted.is_none_or(|wanted| wanted == connection.endpoint)
            {
                return Ok(Instant::now());
            }
        }
        bail!("no packet to {to} arrived at {wanted:?} within 10 s")
    }

    /// Connects to each of these in turn.
    fn rate(&self, to: &[SocketAddr]) -> Result<(Spread, f64)> {
        let start = Instant::now();
        let mut took = Vec::with_capacity(CONNECTIONS);
        for at in 0..CONNECTIONS {
            let to = to[at * 7919 % to.len()];
            let connection = self.connect(&socket()?, to)?;
            took.push(
                connection
                    .with_context(|| format!("nobody answered at {to}"))?
                    .took,
            );
        }
        let count = u32::try_from(CONNECTIONS).expect("a small number");
        let rate = f64::from(count) / start.elapsed().as_secs_f64();
        Ok((Spread::of(took), rate))
    }
}

fn socket() -> Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    // A reset at the end leaves no connection behind that keeps its port.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(socket)
}

/// What connections cost at one size in one mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PacketsResult {
    /// The mode.
    pub mode: Mode,
    /// Services.
    pub services: usize,
    /// To whom, the first packet with its answer, and connections a second, one after the other.
    pub to: Vec<(String, Spread, f64)>,
}

/// Measures connections at the first size of the options; in nftables mode also with more shapes in use.
pub fn run(options: &Options, mode: Mode) -> Result<PacketsResult> {
    let services = *options.services.first().context("a case needs a size")?;
    prepare_namespace()?;
    let client = Client::new()?;
    let server = serve(services, options.endpoints)?;
    let daemon = Daemon::start(&options.binary, server.address, Backend::NfTables, mode)?;
    daemon.log_line(IN_SYNC, 0, PATIENCE)?;
    std::thread::sleep(Duration::from_secs(2));
    let objects = Objects::new(services, options.endpoints);
    let direct: Vec<SocketAddr> = (0..services)
        .map(|i| SocketAddr::new(objects.newest(i).into(), ENDPOINT_PORT))
        .collect();
    let through: Vec<SocketAddr> = (0..services)
        .map(|i| SocketAddr::new(cluster_ip(i).into(), 80))
        .collect();
    let mut to = Vec::new();
    let mut measure = |what: &str, addresses: &[SocketAddr]| -> Result<()> {
        let (spread, rate) = client.rate(addresses)?;
        to.push((what.to_owned(), spread, rate));
        Ok(())
    };
    // Twice, since the first round also warms caches.
    client.rate(&direct)?;
    measure("an endpoint without a service", &direct)?;
    client.rate(&through)?;
    measure("the services", &through)?;
    if mode == Mode::Nftables {
        let mut shapes = 0;
        for more in [10, 100] {
            while shapes < more {
                special::shape(&server, shapes);
                shapes += 1;
            }
            let last = SocketAddr::new(special::shape_ip(shapes - 1).into(), 80);
            client.first_packet(last, None)?;
            measure(&format!("the services, {more} more shapes in use"), &through)?;
            measure(&format!("the last one of {more} more shapes"), &[last])?;
        }
    }
    Ok(PacketsResult { mode, services, to })
}
