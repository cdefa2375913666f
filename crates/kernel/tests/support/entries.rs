//! Entries of the connection table, written as the kernel writes them into dumps and as it takes them from programs.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use conntrack::{Allowed, Expectation, Flow, FrontendKey, NodeAddresses, ServiceFlows};
use model::{Family, Protocol, ServiceName};
use netlink::message::{Messages, Reply, flags};
use netlink::nfnl;
use netlink::write::MessageWriter;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// `NFNL_SUBSYS_CTNETLINK`.
const CONNTRACK: u16 = 1 << 8;
/// `IPCTNL_MSG_CT_NEW` and `IPCTNL_MSG_CT_DELETE`.
const NEW: u16 = CONNTRACK;
const DELETE: u16 = CONNTRACK | 2;

/// A flow with the number of its zone.
pub type Zoned = (Flow, u16);

fn tuple(
    writer: &mut MessageWriter<'_>,
    kind: u16,
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
) {
    let address = |writer: &mut MessageWriter<'_>, v4, ip| match ip {
        IpAddr::V4(ip) => writer.bytes(v4, &ip.octets()),
        IpAddr::V6(ip) => writer.bytes(v4 + 2, &ip.octets()),
    };
    writer.nest(kind, |writer| {
        writer.nest(1, |writer| {
            address(writer, 1, source.ip());
            address(writer, 2, destination.ip());
        });
        writer.nest(2, |writer| {
            writer.u8(1, protocol);
            writer.u16(2, source.port());
            writer.u16(3, destination.port());
        });
    });
}

fn family(flow: &Flow) -> nfnl::Family {
    match flow.client {
        SocketAddr::V4(_) => nfnl::Family::Ipv4,
        SocketAddr::V6(_) => nfnl::Family::Ipv6,
    }
}

fn write(buffer: &mut Vec<u8>, (kind, flags, sequence): Head, (flow, zone): &Zoned, rest: Rest) {
    let mut writer = MessageWriter::begin(buffer, kind, flags, sequence);
    writer.fixed(&[family(flow).code(), 0, 0, 0]);
    let protocol = flow.protocol.number();
    tuple(&mut writer, 1, protocol, flow.client, flow.destination);
    if let Rest::Dumped(_) | Rest::Made = rest {
        tuple(&mut writer, 2, protocol, flow.answerer, flow.client);
        // CTA_TIMEOUT.
        writer.u32(7, 600);
    }
    if let Rest::Dumped(id) = rest {
        // CTA_STATUS, CTA_MARK, CTA_USE, CTA_ID.
        writer.u32(3, 0x18a);
        writer.u32(8, 0);
        writer.u32(11, 1);
        writer.u32(12, id);
    }
    if *zone != 0 {
        writer.u16(18, *zone);
    }
    writer.finish().expect("it fits");
}

/// Type, flags and sequence number of a message.
type Head = (u16, u16, u32);

/// What else an entry says besides its tuples.
#[derive(Clone, Copy)]
enum Rest {
    Dumped(u32),
    Made,
    Nothing,
}

/// Adds an entry of a dump to a buffer.
pub fn dumped(buffer: &mut Vec<u8>, sequence: u32, flow: Flow, id: u32) {
    write(
        buffer,
        (NEW, flags::MULTI, sequence),
        &(flow, 0),
        Rest::Dumped(id),
    );
}

/// The end of a dump.
pub fn done(buffer: &mut Vec<u8>, sequence: u32) {
    let mut writer = MessageWriter::begin(buffer, 3, flags::MULTI, sequence);
    writer.fixed(&[0; 4]);
    writer.finish().expect("it fits");
}

/// Makes and removes entries in this network namespace.
pub struct Table(OwnedFd);

impl Table {
    pub fn open() -> Self {
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(NETFILTER),
        );
        let fd = fd.expect("a socket");
        bind(&fd, &SocketAddrNetlink::new(0, 0)).expect("bound");
        Table(fd)
    }

    pub fn make(&self, entries: &[Zoned]) {
        for chunk in entries.chunks(100) {
            self.put(chunk, NEW, flags::CREATE | flags::EXCL, Rest::Made);
        }
    }

    pub fn remove(&self, entries: &[Zoned]) {
        self.put(entries, DELETE, 0, Rest::Nothing);
    }

    /// Errors are told in any case, success only for the last one.
    fn put(&self, entries: &[Zoned], kind: u16, more: u16, rest: Rest) {
        let mut bytes = Vec::new();
        let last = u32::try_from(entries.len()).unwrap();
        for (sequence, entry) in (1..).zip(entries) {
            let ack = if sequence == last { flags::ACK } else { 0 };
            write(
                &mut bytes,
                (kind, flags::REQUEST | more | ack, sequence),
                entry,
                rest,
            );
        }
        send(&self.0, &bytes, SendFlags::empty()).expect("sent");
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let (count, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty()).expect("an answer");
            for message in Messages::new(&buffer[..count]) {
                match Reply::read(message.expect("well-formed")).expect("well-formed") {
                    Reply::Ack(header) if header.sequence == last => return,
                    Reply::Refused(error) => panic!("{error:?}"),
                    _ => {}
                }
            }
        }
    }
}

/// Services of a large cluster, each with a cluster IP, ten endpoints and UDP port 53.
pub const SERVICES: u32 = 1000;

fn ip(base: [u8; 4], number: u32) -> IpAddr {
    Ipv4Addr::from_bits(Ipv4Addr::from(base).to_bits() + number).into()
}

fn endpoint(service: u32, number: u32) -> SocketAddr {
    SocketAddr::new(ip([10, 128, 0, 0], service * 16 + number), 5353)
}

fn cluster_ip(service: u32) -> SocketAddr {
    SocketAddr::new(ip([10, 96, 0, 0], service), 53)
}

/// What is expected of the services' flows.
pub fn expectation() -> Expectation {
    let mut expectation = Expectation::new(Family::V4, NodeAddresses::default());
    for service in 0..SERVICES {
        let address = cluster_ip(service);
        let key = FrontendKey::Address(address.ip(), address.port(), Protocol::Udp);
        let allowed = Allowed::new((0..10).map(|number| endpoint(service, number)).collect());
        let flows = ServiceFlows {
            frontends: [(key, Arc::new(allowed))].into(),
        };
        expectation.update(&ServiceName::new("n", format!("s{service}")), flows);
    }
    expectation
}

/// Flow number `n` of a busy node. Of each eight: five to endpoints, one to an endpoint that has gone (the last), one to
/// nothing of ours, and one of TCP.
pub fn busy(n: u32) -> Flow {
    let service = n % SERVICES;
    let client = SocketAddr::new(
        ip([10, 0, 0, 0], n / 8),
        1024 + u16::try_from(n % 50_000).unwrap(),
    );
    let destination = cluster_ip(service);
    let (protocol, destination, answerer) = match n % 8 {
        0..=4 => (Protocol::Udp, destination, endpoint(service, n % 10)),
        5 => {
            let stranger = SocketAddr::new(ip([198, 18, 0, 0], n % 1000), 123);
            (Protocol::Udp, stranger, stranger)
        }
        6 => (Protocol::Tcp, destination, endpoint(service, 12)),
        _ => (Protocol::Udp, destination, endpoint(service, 12)),
    };
    Flow {
        protocol,
        client,
        destination,
        answerer,
    }
}

/// Resident memory of this process in KiB: now, and the most there ever was.
pub fn resident() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc");
    let field = |name: &str| {
        let line = status
            .lines()
            .find(|line| line.starts_with(name))
            .expect("a field of proc");
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (field("VmRSS:"), field("VmHWM:"))
}
