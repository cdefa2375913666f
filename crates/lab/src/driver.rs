//! Many probes at once on one thread: connections in flight, each a little state machine.
//!
//! ```text
//! launch ─► Connecting ─(writable)─► Asking ─(line or end)─► Answered
//!     └─ UDP ───────────────────────────┘    ─(error)──────► Refused | Unreachable
//!                                            ─(deadline)───► Timeout
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, sockopt};

use crate::icmp::{self, Ear, Unreachable};
use crate::probe::{Probe, ProbeOutcome, Refusal, parse_answer};
use crate::topology::Proto;

/// What a client says: anything ends the server's wait for a request.
const QUESTION: &[u8] = b"?\n";

/// A probe that is over.
pub struct Landed {
    /// What [`Driver::launch`] was given.
    pub tag: usize,
    /// When it was launched.
    pub launched: Instant,
    /// How long it took.
    pub took: Duration,
    /// What came of it.
    pub outcome: ProbeOutcome,
}

enum Stage {
    Connecting,
    Asking(Vec<u8>),
}

struct Flight {
    tag: usize,
    probe: Probe,
    subject: icmp::Subject,
    socket: OwnedFd,
    launched: Instant,
    stage: Stage,
}

/// Probes in flight in the namespace of the thread that made it.
pub struct Driver {
    flights: Vec<Flight>,
    landed: Vec<Landed>,
    ear: Ear,
}

impl Driver {
    /// Opens its ICMP ear in the calling thread's namespace.
    pub fn new() -> Self {
        Self {
            flights: vec![],
            landed: vec![],
            ear: Ear::open(),
        }
    }

    /// How many are under way.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Starts a probe.
    pub fn launch(&mut self, tag: usize, probe: Probe) {
        let launched = Instant::now();
        match open(&probe) {
            Ok(socket) => {
                let stage = match probe.proto {
                    Proto::Tcp | Proto::Sctp => Stage::Connecting,
                    Proto::Udp => Stage::Asking(vec![]),
                };
                let subject = (
                    probe.proto,
                    local_port(&socket).unwrap_or(0),
                    icmp::plain(probe.dst),
                );
                self.flights.push(Flight {
                    tag,
                    probe,
                    subject,
                    socket,
                    launched,
                    stage,
                });
            }
            Err(outcome) => self.landed.push(Landed {
                tag,
                launched,
                took: launched.elapsed(),
                outcome,
            }),
        }
    }

    /// Waits until something lands, at most `patience`, and hands over what has.
    pub fn step(&mut self, patience: Duration) -> Vec<Landed> {
        let ready = if self.landed.is_empty() {
            self.wait(patience)
        } else {
            vec![]
        };
        self.ear.listen();
        let now = Instant::now();
        let mut ready = ready.into_iter();
        self.flights.retain_mut(|flight| {
            let is_ready = ready.next().is_some_and(|flags| !flags.is_empty());
            let outcome = if is_ready {
                advance(flight, &mut self.ear)
            } else {
                None
            };
            let outcome = outcome.or_else(|| overheard(flight, &mut self.ear));
            let late = now.duration_since(flight.launched) >= flight.probe.timeout;
            let Some(outcome) = outcome.or_else(|| late.then_some(ProbeOutcome::Timeout)) else {
                return true;
            };
            let (launched, took) = (flight.launched, flight.launched.elapsed());
            self.landed.push(Landed {
                tag: flight.tag,
                launched,
                took,
                outcome,
            });
            false
        });
        std::mem::take(&mut self.landed)
    }

    fn wait(&self, patience: Duration) -> Vec<PollFlags> {
        let now = Instant::now();
        let deadlines = self
            .flights
            .iter()
            .map(|flight| flight.launched + flight.probe.timeout);
        let first = deadlines.min().map_or(patience, |first| {
            first.saturating_duration_since(now).min(patience)
        });
        let mut fds: Vec<PollFd<'_>> = self
            .flights
            .iter()
            .map(|flight| {
                let wanted = match flight.stage {
                    Stage::Connecting => PollFlags::OUT,
                    Stage::Asking(_) => PollFlags::IN,
                };
                PollFd::from_borrowed_fd(flight.socket.as_fd(), wanted)
            })
            .collect();
        fds.extend(
            self.ear
                .sockets()
                .map(|socket| PollFd::new(socket, PollFlags::IN)),
        );
        let timeout = Timespec::try_from(first).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => fds.iter().map(PollFd::revents).collect(),
            // Interrupted: nothing is known to be ready.
            Err(_) => vec![],
        }
    }
}

fn open(probe: &Probe) -> Result<OwnedFd, ProbeOutcome> {
    let family = if probe.dst.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let (kind, protocol) = match probe.proto {
        Proto::Tcp => (SocketType::STREAM, None),
        Proto::Sctp => (SocketType::STREAM, Some(ipproto::SCTP)),
        Proto::Udp => (SocketType::DGRAM, None),
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let failed = |what: &str, errno: Errno| ProbeOutcome::Failed(format!("{what}: {errno}"));
    let socket = rustix::net::socket_with(family, kind, flags, protocol).map_err(|e| failed("socket", e))?;
    if probe.src.is_some() || probe.src_port.is_some() {
        bind(&socket, probe).map_err(|errno| failed("bind the source", errno))?;
    }
    match rustix::net::connect(&socket, &probe.dst) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(classify(probe, None, errno)),
    }
    if probe.proto == Proto::Udp {
        match rustix::net::send(&socket, QUESTION, SendFlags::empty()) {
            // EPERM: the filter of this host took the datagram. Whether it was dropped or rejected shows later.
            Ok(_) | Err(Errno::PERM) => {}
            Err(errno) => return Err(classify(probe, None, errno)),
        }
    }
    Ok(socket)
}

fn bind(socket: &OwnedFd, probe: &Probe) -> Result<(), Errno> {
    let any = match probe.dst {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    sockopt::set_socket_reuseaddr(socket, true)?;
    rustix::net::bind(
        socket,
        &SocketAddr::new(probe.src.unwrap_or(any), probe.src_port.unwrap_or(0)),
    )
}

/// Takes a flight on after its socket became ready.
fn advance(flight: &mut Flight, ear: &mut Ear) -> Option<ProbeOutcome> {
    match step(flight) {
        Ok(outcome) => outcome,
        Err(Errno::AGAIN | Errno::INTR) => None,
        Err(errno) => {
            let said = ear.heard_about(flight.subject);
            Some(classify(&flight.probe, said, errno))
        }
    }
}

/// A refusal that the socket does not know of.
///
/// The kernel drops an ICMP error that arrives while `connect` still holds the socket (`LockDroppedIcmps`), and veths
/// deliver it within that call: the caller would learn of it from the second SYN, a second later.
fn overheard(flight: &Flight, ear: &mut Ear) -> Option<ProbeOutcome> {
    let said = ear.heard_about(flight.subject)?;
    Some(classify(&flight.probe, Some(said), Errno::HOSTUNREACH))
}

fn step(flight: &mut Flight) -> Result<Option<ProbeOutcome>, Errno> {
    if matches!(flight.stage, Stage::Connecting) {
        sockopt::socket_error(&flight.socket)??;
        match rustix::net::send(&flight.socket, QUESTION, SendFlags::NOSIGNAL) {
            // A server that lost patience has answered, and an association has no half that stays open. The answer
            // can still be read.
            Err(Errno::PIPE | Errno::SHUTDOWN) if flight.probe.proto == Proto::Sctp => {}
            sent => {
                sent?;
            }
        }
        flight.stage = Stage::Asking(vec![]);
        return Ok(None);
    }
    let Stage::Asking(answer) = &mut flight.stage else {
        return Ok(None);
    };
    let mut buffer = [0_u8; 1024];
    let (length, _) = rustix::net::recv(&flight.socket, &mut buffer, RecvFlags::empty())?;
    answer.extend(buffer.iter().take(length));
    let over = length == 0 || answer.last() == Some(&b'\n') || flight.probe.proto == Proto::Udp;
    Ok(over.then(|| match answer.as_slice() {
        [] => ProbeOutcome::Failed("the connection was closed without an answer".to_owned()),
        answer => parse_answer(&String::from_utf8_lossy(answer)),
    }))
}

fn local_port(socket: &OwnedFd) -> Option<u16> {
    let name = rustix::net::getsockname(socket).ok()?;
    SocketAddr::try_from(name).ok().map(|address| address.port())
}

fn classify(probe: &Probe, said: Option<Unreachable>, errno: Errno) -> ProbeOutcome {
    match (said, errno) {
        (Some(Unreachable::Port), _) => ProbeOutcome::Refused(Refusal::PortUnreachable),
        (Some(Unreachable::Prohibited), _) => ProbeOutcome::Refused(Refusal::Prohibited),
        (Some(Unreachable::Elsewhere), errno) => ProbeOutcome::Unreachable(format!("told so: {errno}")),
        (None, Errno::CONNREFUSED) if probe.proto == Proto::Udp => {
            ProbeOutcome::Refused(Refusal::PortUnreachable)
        }
        (None, Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE) => ProbeOutcome::Refused(Refusal::Reset),
        (None, Errno::TIMEDOUT) => ProbeOutcome::Timeout,
        (None, Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::ACCESS) => {
            ProbeOutcome::Unreachable(errno.to_string())
        }
        (None, errno) => ProbeOutcome::Failed(errno.to_string()),
    }
}
