//! Packets through the table of nftables mode: the real kernel and the oracle say the same of hundreds of clients.
//!
//! Everything happens in one network namespace in which whole networks are local, so that a socket may have any address.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use kernel::NftTable;
use model::object::decode;
use model::snapshot::{Change, Snapshot};
use model::{ClientHashing, Desired, Family, NodeFacts, Origin, Outcome, Packet, Protocol, Settings, oracle};
use nftables::ast::{Elements, Flags, Frame};
use nftables::build;
use nftables::diff::{self, Operation};
use nftables::step::{FrameStep, Step};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;
use support::{in_namespace, tool};

/// Makes whole networks local.
const LOCAL: &str = "ip link set lo up
ip route add local 10.0.0.0/8 dev lo
ip -6 route add local fd00::/16 dev lo
echo 1 > /proc/sys/net/ipv6/ip_nonlocal_bind";

/// Clients of each family.
const CLIENTS: u16 = 640;

fn client(family: Family, number: u16) -> IpAddr {
    let text = match family {
        Family::V4 => format!("10.7.{}.{}", number >> 8, number & 0xff),
        // Numbers in two places: the hash has to mind every word.
        Family::V6 => format!("fd00:7:{}::{number:x}", number % 3),
    };
    text.parse().unwrap()
}

fn pod(family: Family, number: u8) -> SocketAddr {
    let text = match family {
        Family::V4 => format!("10.244.1.{number}:8080"),
        Family::V6 => format!("[fd00:244::{number:x}]:8080"),
    };
    text.parse().unwrap()
}

fn service_address(family: Family) -> SocketAddr {
    let text = match family {
        Family::V4 => "10.96.0.10:80",
        Family::V6 => "[fd00:96::10]:80",
    };
    text.parse().unwrap()
}

/// A service of both families with these pods.
fn objects(annotations: &Value, spec: &Value, pods: &[u8]) -> Value {
    let slice = |family: Family| {
        let endpoints: Vec<Value> = pods
            .iter()
            .map(|number| json!({"addresses": [pod(family, *number).ip()]}))
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": format!("web-{family}").to_lowercase(),
                         "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": family.to_string(), "ports": [{"name": "p", "protocol": "UDP", "port": 8080}],
            "endpoints": endpoints,
        })
    };
    let mut whole = json!({
        "clusterIP": service_address(Family::V4).ip(),
        "clusterIPs": [service_address(Family::V4).ip(), service_address(Family::V6).ip()],
        "ports": [{"name": "p", "protocol": "UDP", "port": 80, "targetPort": 8080}],
    });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service",
         "metadata": {"namespace": "default", "name": "web", "annotations": annotations}, "spec": whole},
        slice(Family::V4), slice(Family::V6),
    ]})
}

fn desired(family: Family, objects: &Value) -> Desired {
    let decoded = decode(objects.clone());
    assert!(decoded.notes.is_empty(), "{:?}", decoded.notes);
    let mut snapshot = Snapshot::new();
    for object in decoded.objects {
        snapshot.apply(Change::Apply(object));
    }
    let settings = Settings {
        client_hashing: ClientHashing::Possible,
        ..Settings::default()
    };
    let (desired, notes) = Desired::from_snapshot(&snapshot, family, &NodeFacts::default(), &settings);
    assert!(notes.is_empty(), "{notes:?}");
    desired
}

fn whole(desired: &Desired) -> (Frame, Elements) {
    let (shapes, elements) = build::parts(desired);
    (build::frame(&desired.node, &shapes, &[]), elements)
}

fn made(frame: Frame, elements: &Elements) -> Step {
    let elements = elements.iter();
    Step {
        frame: vec![FrameStep::Make(frame)],
        elements: elements
            .map(|(key, element)| Operation::Add(key.clone(), element.clone()))
            .collect(),
    }
}

fn changed(elements: Vec<Operation>) -> Step {
    Step {
        frame: Vec::new(),
        elements,
    }
}

/// Pods that answer with their number until the process ends.
fn serve(family: Family, pods: impl IntoIterator<Item = u8>) {
    for number in pods {
        let socket = UdpSocket::bind(pod(family, number)).unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 16];
            while let Ok((_, from)) = socket.recv_from(&mut bytes) {
                _ = socket.send_to(&[number], from);
            }
        });
    }
}

/// Which pod answers a client. Each round has a port of its own, since the kernel remembers connections.
fn answered(family: Family, from: IpAddr, round: u16) -> Option<u8> {
    let socket = UdpSocket::bind((from, 20_000 + round)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    socket.connect(service_address(family)).unwrap();
    socket.send(b"?").unwrap();
    let mut bytes = [0; 16];
    lab::live::recv(&socket, &mut bytes).ok().map(|_| bytes[0])
}

fn all_answered(family: Family, round: u16) -> BTreeMap<IpAddr, u8> {
    (0..CLIENTS)
        .map(|number| {
            let from = client(family, number);
            let by = answered(family, from, round);
            (
                from,
                by.unwrap_or_else(|| panic!("{from} got no answer in round {round}")),
            )
        })
        .collect()
}

/// Which pod the oracle gives each client: exactly one.
fn foretold(family: Family, desired: &Desired) -> BTreeMap<IpAddr, u8> {
    (0..CLIENTS)
        .map(|number| {
            let from = client(family, number);
            let to = service_address(family);
            let packet = Packet::new(from, to, Protocol::Udp, Origin::Host);
            let Outcome::Delivered(to) = oracle::outcome(desired, &NodeFacts::default(), &packet) else {
                panic!("{from} goes nowhere");
            };
            assert_eq!(to.len(), 1, "{to:?}");
            let endpoint = to.first().unwrap().endpoint;
            let by = (1..=9).find(|number| pod(family, *number) == endpoint);
            (from, by.unwrap())
        })
        .collect()
}

#[test]
fn a_hashed_service_sends_each_client_where_the_oracle_says_and_moves_those_of_changed_endpoints_only() {
    let test =
        "a_hashed_service_sends_each_client_where_the_oracle_says_and_moves_those_of_changed_endpoints_only";
    in_namespace(test, || {
        tool(&["sh", "-e"], LOCAL);
        let hashed = json!({"kube-proxy-rs.io/balancing": "client-hash"});
        for family in Family::ALL {
            serve(family, 1..=6);
            let of = |pods: &[u8]| desired(family, &objects(&hashed, &json!({}), pods));
            let five = of(&[1, 2, 3, 4, 5]);
            let (frame, elements) = whole(&five);
            let mut table = NftTable::new(family).unwrap();
            table.commit(&made(frame, &elements)).unwrap();
            let first = all_answered(family, 0);
            assert_eq!(first, foretold(family, &five), "{family}");

            let mut become_of = |from: &Elements, want: &Desired, round| {
                let (_, to) = whole(want);
                let change = diff::change(from, &to);
                assert!(change.later.is_empty());
                table.commit(&changed(change.now)).unwrap();
                let now = all_answered(family, round);
                assert_eq!(now, foretold(family, want), "{family}");
                (now, to)
            };
            let (without, elements) = become_of(&elements, &of(&[1, 2, 4, 5]), 1);
            for (client, before) in &first {
                assert_eq!(*before == 3, without[client] != *before, "{family} {client}");
            }
            let (with, _) = become_of(&elements, &of(&[1, 2, 4, 5, 6]), 2);
            let moved = without
                .iter()
                .filter(|(client, before)| with[*client] != **before);
            let moved: Vec<IpAddr> = moved.map(|(client, _)| *client).collect();
            assert!(moved.iter().all(|client| with[client] == 6), "{family}");
            let fifth = usize::from(CLIENTS / 5);
            assert!(
                (fifth / 2..fifth * 2).contains(&moved.len()),
                "{} moved",
                moved.len()
            );
            println!(
                "{family}: of {CLIENTS} clients {} moved to the new one",
                moved.len()
            );
        }
    });
}

#[test]
fn another_balancing_on_a_live_service_finds_an_endpoint_at_every_moment() {
    let test = "another_balancing_on_a_live_service_finds_an_endpoint_at_every_moment";
    in_namespace(test, || {
        tool(&["sh", "-e"], LOCAL);
        let family = Family::V4;
        serve(family, 1..=3);
        let of = |annotations: &Value| desired(family, &objects(annotations, &json!({}), &[1, 2, 3]));
        let random = of(&json!({}));
        let hashed = of(&json!({"kube-proxy-rs.io/balancing": "client-hash"}));
        let (mut shapes, from) = build::parts(&random);
        let (more, to) = build::parts(&hashed);
        // The chains of both ways of choosing.
        shapes.extend(more);
        let frame = build::frame(&random.node, &shapes, &[]);
        let mut table = NftTable::new(family).unwrap();
        table.commit(&made(frame, &from)).unwrap();
        let mut round = 0;
        let mut flood = |clients: std::ops::Range<u16>| {
            for number in clients {
                let from = client(family, number);
                assert!(answered(family, from, round).is_some(), "{from} in round {round}");
            }
            round += 1;
        };
        for (before, after) in [(&from, &to), (&to, &from)] {
            let change = diff::change(before, after);
            assert!(!change.later.is_empty());
            table.commit(&changed(change.now)).unwrap();
            flood(0..64);
            table.commit(&changed(change.later)).unwrap();
            flood(0..64);
            table.commit(&changed(change.last)).unwrap();
            flood(0..64);
        }
    });
}

#[test]
fn a_full_set_of_clients_stops_no_connection_and_the_fill_is_told() {
    const SIZE: u32 = 16;
    let test = "a_full_set_of_clients_stops_no_connection_and_the_fill_is_told";
    in_namespace(test, || {
        tool(&["sh", "-e"], LOCAL);
        for family in Family::ALL {
            serve(family, 1..=2);
            let sticky = desired(
                family,
                &objects(&json!({}), &json!({"sessionAffinity": "ClientIP"}), &[1, 2]),
            );
            let (mut frame, elements) = whole(&sticky);
            for set in &mut frame.sets {
                if let Flags::Clients { size } = &mut set.flags {
                    *size = SIZE;
                }
            }
            let mut table = NftTable::new(family).unwrap();
            table.commit(&made(frame, &elements)).unwrap();
            let empty = table.client_sets().unwrap();
            let first: Vec<Option<u8>> = (0..8)
                .map(|number| answered(family, client(family, number), 0))
                .collect();
            all_answered(family, 1);
            // Those who came while there was room have stayed.
            for round in 2..10 {
                let again: Vec<Option<u8>> = (0..8)
                    .map(|number| answered(family, client(family, number), round))
                    .collect();
                assert_eq!(first, again, "{family} round {round}");
            }
            let listed = tool(&["nft", "list", "ruleset"], "");
            assert!(listed.contains(&format!("size {SIZE}")), "{listed}");
            if let (Some(empty), Some(full)) = (empty, table.client_sets().unwrap()) {
                assert_eq!(empty.clients, 0);
                assert_eq!(full.clients, u64::from(2 * SIZE));
                assert!((full.fullest - 1.0).abs() < 1e-9, "{full:?}");
            } else {
                println!("this kernel does not count elements");
            }
        }
    });
}
