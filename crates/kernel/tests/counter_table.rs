//! The table that counts connections beside nftables mode's: what `nft` says of it, and that it goes with its maker.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use kernel::CounterTable;
use model::{Family, Protocol};
use nftables::ast::Value;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use support::{in_namespace, tool};

/// Somebody's rule wants conntrack, as nftables mode's do: without it there are no connections to count. The other one
/// refuses, with nearly the priority of translation.
const OTHERS: &str = "table ip other {
    chain c { type filter hook input priority 0; ct state new accept; }
    chain d { type filter hook output priority -101; tcp dport 81 drop; }
}";

fn place(ip: Option<&str>, protocol: Protocol, port: u16) -> Vec<Value> {
    let ip = ip.map(|ip| Value::Address(ip.parse().unwrap()));
    ip.into_iter()
        .chain([Value::Protocol(protocol), Value::Port(port)])
        .collect()
}

#[test]
fn the_first_packets_of_connections_are_counted_and_no_others() {
    in_namespace(
        "the_first_packets_of_connections_are_counted_and_no_others",
        || {
            tool(&["ip", "link", "set", "lo", "up"], "");
            tool(&["ip", "address", "add", "192.0.2.1/32", "dev", "lo"], "");
            tool(&["nft", "-f", "-"], OTHERS);
            let mut table = CounterTable::new(Family::V4).unwrap();
            let web = place(Some("192.0.2.1"), Protocol::Tcp, 8080);
            let dns = place(Some("192.0.2.1"), Protocol::Udp, 5353);
            let node_port = place(None, Protocol::Tcp, 8080);
            let refused = place(Some("192.0.2.1"), Protocol::Tcp, 81);
            table
                .count(&[web.clone(), dns.clone(), node_port.clone(), refused.clone()])
                .unwrap();
            let listener = TcpListener::bind("0.0.0.0:8080").unwrap();
            for _ in 0..7 {
                // Data go both ways.
                let mut client = TcpStream::connect("192.0.2.1:8080").unwrap();
                let (mut server, _) = listener.accept().unwrap();
                std::io::Write::write_all(&mut client, &[0; 10_000]).unwrap();
                std::io::Read::read_exact(&mut server, &mut [0; 10_000]).unwrap();
            }
            // Node ports are never served on loopback here.
            TcpStream::connect("127.0.0.1:8080").unwrap();
            // What is dropped before the chains of nat is not counted.
            let refused_at = "192.0.2.1:81".parse().unwrap();
            TcpStream::connect_timeout(&refused_at, Duration::from_millis(300)).unwrap_err();
            let server = UdpSocket::bind("192.0.2.1:5353").unwrap();
            for _ in 0..3 {
                let client = UdpSocket::bind("192.0.2.1:0").unwrap();
                for _ in 0..5 {
                    client.send_to(b"?", "192.0.2.1:5353").unwrap();
                    server.recv_from(&mut [0; 8]).unwrap();
                }
            }
            let mut read = table.read().unwrap();
            read.sort();
            let mut expected = [(web.clone(), 7), (dns, 3), (node_port, 7), (refused, 0)];
            expected.sort();
            assert_eq!(read, expected);

            let listed = tool(&["nft", "list", "table", "ip", "kube-proxy-rs-counters"], "");
            assert!(
                listed.contains("192.0.2.1 . tcp . 8080 counter packets 7"),
                "{listed}"
            );
            // Whoever comes second has to wait, and takes nothing away.
            assert!(CounterTable::new(Family::V4).is_err());
            assert_eq!(table.read().unwrap().len(), 4);
            table.forget(&[web]).unwrap();
            assert_eq!(table.read().unwrap().len(), 3);
            drop(table);
            let tables = tool(&["nft", "list", "tables"], "");
            assert!(!tables.contains("counters"), "{tables}");
            CounterTable::new(Family::V4).unwrap();
        },
    );
}

#[test]
fn ten_thousand_places_of_either_family_are_counted_and_read() {
    in_namespace(
        "ten_thousand_places_of_either_family_are_counted_and_read",
        || {
            for (family, net) in [(Family::V4, "10.96."), (Family::V6, "fd00:10:96::")] {
                let address = |number: u32| match family {
                    Family::V4 => format!("{net}{}.{}", number / 250, number % 250),
                    Family::V6 => format!("{net}{number:x}"),
                };
                let places: Vec<Vec<Value>> = (1..10_001)
                    .map(|number| place(Some(&address(number)), Protocol::Tcp, 80))
                    .collect();
                let mut table = CounterTable::new(family).unwrap();
                table.count(&places).unwrap();
                let begun = std::time::Instant::now();
                assert_eq!(table.read().unwrap().len(), 10_000);
                println!("{family}: read in {:?}", begun.elapsed());
                table.forget(&places).unwrap();
                assert_eq!(table.read().unwrap(), []);
            }
        },
    );
}
