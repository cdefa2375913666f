//! One flow as its client sees it: a socket that keeps its port.

use crate::daemon::{Daemon, PATIENCE};
use crate::within;
use lab::Lab;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// A UDP client at a place, with one partner.
pub struct Flow {
    socket: UdpSocket,
    to: SocketAddr,
}

/// What a client hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// This server's answer.
    From(String),
    /// ICMP port unreachable.
    Refused,
    /// Nothing, for a while.
    Nothing,
}

impl Flow {
    /// A socket of that place.
    ///
    /// # Panics
    /// When there is none to be had.
    pub fn new(lab: &Lab, place: &str, to: &str) -> Flow {
        let to: SocketAddr = to.parse().expect("a socket address");
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let namespace = lab
            .namespace(place)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        let open = || {
            let socket = UdpSocket::bind((any, 0)).expect("a port is free");
            socket.connect(to).expect("there is a route");
            socket
                .set_read_timeout(Some(Duration::from_millis(250)))
                .expect("a socket may wait");
            socket
        };
        let socket = namespace
            .run(open)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        Flow { socket, to }
    }

    /// Sends one packet, and listens.
    ///
    /// # Panics
    /// When the socket fails in a way that no packet can cause.
    pub fn ask(&self) -> Heard {
        // An error that is still there from the packet before would hide what this one meets.
        let _ = self.socket.take_error();
        let mut answer = [0; 512];
        let heard = self
            .socket
            .send(b"who\n")
            .and_then(|_| lab::live::recv(&self.socket, &mut answer));
        match heard {
            Ok(count) => {
                let text = String::from_utf8_lossy(&answer[..count]);
                Heard::From(text.split(' ').next().unwrap_or_default().to_owned())
            }
            Err(error) => match error.kind() {
                ErrorKind::ConnectionRefused => Heard::Refused,
                ErrorKind::WouldBlock
                | ErrorKind::TimedOut
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable => Heard::Nothing,
                _ => panic!("{}: {error}", self.to),
            },
        }
    }

    /// Asks again and again until the answer is this one: the flow is never left alone for long enough to be forgotten.
    ///
    /// # Panics
    /// When it is not in time, with the daemon's log.
    pub fn until(&self, want: &Heard, daemon: &Daemon) -> Duration {
        let mut last = Heard::Nothing;
        let took = within(PATIENCE, || {
            last = self.ask();
            last == *want
        });
        took.unwrap_or_else(|| {
            panic!(
                "{}: not {want:?}, but {last:?}; log of the daemon:\n{}",
                self.to,
                daemon.log()
            )
        })
    }
}

/// An answer of this server.
pub fn from(name: &str) -> Heard {
    Heard::From(name.to_owned())
}
