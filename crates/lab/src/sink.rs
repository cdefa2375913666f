//! The machine that answers for every address nobody has.
//!
//! It is a little network stack of its own: the kernel of its namespace drops what is not addressed to it (it does not
//! forward), and a packet socket sees it before that. Answers are written by hand and leave through a raw socket, so
//! every port of every address answers, and no netfilter of any kind takes part.
//!
//! It keeps no state: a segment is answered from its own numbers. That is enough for a question and an answer.

use std::collections::VecDeque;
use std::fs;
use std::io::PipeReader;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    AddressFamily, Protocol, RawProtocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto,
};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::netns;
use crate::plan::SINK_MAC;
use crate::probe::answer_line;
use crate::serve::answer_to;
use crate::topology::Proto;
use crate::wire_format::{self, ACK, FIN, PSH, Packet, RST, SYN, Segment, Transport};

/// Our sequence number when a connection opens: any will do.
const FIRST: u32 = 1_000_000;

/// How many packets are remembered.
const MEMORY: usize = 100_000;

/// A sink to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkSpec {
    /// The file of its namespace.
    pub namespace: PathBuf,
    /// What it calls itself.
    pub answers_as: String,
    /// Its own addresses, which the kernel answers for.
    pub own: Vec<IpAddr>,
}

/// A TCP SYN or a UDP datagram that arrived at the sink: it left its node with this source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenPacket {
    /// When.
    pub at: Instant,
    /// TCP or UDP.
    pub proto: Proto,
    /// The source it had.
    pub src: SocketAddr,
    /// The destination it had.
    pub dst: SocketAddr,
}

/// What the sinks of a server have seen, the oldest first.
#[derive(Clone, Default)]
pub(crate) struct SeenLog(Arc<Mutex<VecDeque<SeenPacket>>>);

impl SeenLog {
    pub(crate) fn take(&self) -> Vec<SeenPacket> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
            .collect()
    }

    fn add(&self, packet: SeenPacket) {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == MEMORY {
            log.pop_front();
        }
        log.push_back(packet);
    }
}

/// A sink with its sockets open.
pub(crate) struct OpenSink {
    spec: SinkSpec,
    seen: SeenLog,
    arrivals: Vec<OwnedFd>,
    out_v4: OwnedFd,
    out_v6: Option<OwnedFd>,
}

impl SinkSpec {
    pub(crate) fn open(&self, seen: SeenLog) -> Result<OpenSink, LabError> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                netns::enter(&self.namespace)?;
                open_sockets(self.clone(), seen)
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

fn open_sockets(spec: SinkSpec, seen: SeenLog) -> Result<OpenSink, LabError> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = |family, protocol| rustix::net::socket_with(family, SocketType::RAW, flags, Some(protocol));
    let packet = |ether_type| {
        let opened = socket(AddressFamily::PACKET, network_order(ether_type));
        opened.map_err(|source| LabError::system("open a packet socket for the sink", source))
    };
    let out_v4 = socket(AddressFamily::INET, ipproto::RAW)
        .map_err(|source| LabError::system("open a raw socket for the sink", source))?;
    // A kernel without IPv6 has no packets to answer there.
    let out_v6 = fs::exists("/proc/net/if_inet6").unwrap_or(false);
    let out_v6 = out_v6
        .then(|| socket(AddressFamily::INET6, ipproto::RAW).ok())
        .flatten();
    Ok(OpenSink {
        spec,
        seen,
        arrivals: vec![packet(0x0800)?, packet(0x86dd)?],
        out_v4,
        out_v6,
    })
}

/// A packet socket takes its `EtherType` in network byte order.
fn network_order(ether_type: u16) -> Protocol {
    let raw = RawProtocol::new(u32::from(ether_type.to_be())).expect("invariant: an EtherType is not 0");
    Protocol::from_raw(raw)
}

impl OpenSink {
    /// Until the writing end of the pipe is closed.
    pub(crate) fn run(&self, stopped: &PipeReader) {
        let mut buffer = vec![0_u8; 65_536];
        loop {
            let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
            fds.extend(
                self.arrivals
                    .iter()
                    .map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)),
            );
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("invariant: open sockets can be polled: {errno}"),
            }
            if fds.first().is_some_and(|stop| !stop.revents().is_empty()) {
                return;
            }
            for arrivals in &self.arrivals {
                while let Ok((length, _)) =
                    rustix::net::recv(arrivals, buffer.as_mut_slice(), RecvFlags::empty())
                {
                    self.take_frame(buffer.get(..length).unwrap_or_default());
                }
            }
        }
    }

    fn take_frame(&self, frame: &[u8]) {
        // A bridge floods frames for hardware addresses it has not learnt.
        if !frame.starts_with(&SINK_MAC) {
            return;
        }
        let Some(packet) = frame.get(14..).and_then(wire_format::parse) else {
            return;
        };
        if self.spec.own.contains(&packet.dst.ip()) || packet.dst.ip().is_multicast() {
            return;
        }
        self.remember(&packet);
        let line = answer_line(&self.spec.answers_as, packet.src, Some(packet.dst));
        let Some(bytes) = answer(&packet, &line).and_then(|answer| turn_around(&packet, &answer)) else {
            return;
        };
        let out = if packet.src.is_ipv4() {
            Some(&self.out_v4)
        } else {
            self.out_v6.as_ref()
        };
        if let Some(out) = out {
            // No way back is the client's timeout.
            let to = SocketAddr::new(packet.src.ip(), 0);
            let _no_way_back = rustix::net::sendto(out, &bytes, SendFlags::empty(), &to);
        }
    }

    fn remember(&self, packet: &Packet<'_>) {
        let proto = match packet.transport {
            Transport::Tcp(segment) if segment.flags & (SYN | ACK) == SYN => Proto::Tcp,
            Transport::Tcp(_) => return,
            Transport::Udp(_) => Proto::Udp,
            Transport::Sctp => Proto::Sctp,
        };
        self.seen.add(SeenPacket {
            at: Instant::now(),
            proto,
            src: packet.src,
            dst: packet.dst,
        });
    }
}

/// What goes back: the numbers of a segment, and text.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Segment {
        seq: u32,
        ack: u32,
        flags: u8,
        text: String,
    },
    Datagram(String),
}

fn answer(packet: &Packet<'_>, line: &str) -> Option<Answer> {
    let segment = match packet.transport {
        Transport::Udp(_) => return Some(Answer::Datagram(line.to_owned())),
        Transport::Tcp(segment) => segment,
        // Nobody needs an answer to an association that goes nowhere.
        Transport::Sctp => return None,
    };
    let has = |flag| segment.flags & flag != 0;
    let length = u32::try_from(segment.payload.len()).ok()?;
    if has(RST) {
        None
    } else if has(SYN) && !has(ACK) {
        let ack = segment.seq.wrapping_add(1);
        Some(Answer::Segment {
            seq: FIRST,
            ack,
            flags: SYN | ACK,
            text: String::new(),
        })
    } else if length > 0 {
        let ack = segment.seq.wrapping_add(length).wrapping_add(u32::from(has(FIN)));
        let text = answer_to(segment.payload, line);
        Some(Answer::Segment {
            seq: segment.ack,
            ack,
            flags: PSH | ACK | FIN,
            text,
        })
    } else if has(FIN) {
        let ack = segment.seq.wrapping_add(1);
        Some(Answer::Segment {
            seq: segment.ack,
            ack,
            flags: ACK,
            text: String::new(),
        })
    } else {
        None
    }
}

fn turn_around(packet: &Packet<'_>, answer: &Answer) -> Option<Vec<u8>> {
    let transport = match answer {
        Answer::Segment {
            seq,
            ack,
            flags,
            text,
        } => Transport::Tcp(Segment {
            seq: *seq,
            ack: *ack,
            flags: *flags,
            payload: text.as_bytes(),
        }),
        Answer::Datagram(text) => Transport::Udp(text.as_bytes()),
    };
    wire_format::write(&Packet {
        src: packet.dst,
        dst: packet.src,
        transport,
    })
}
