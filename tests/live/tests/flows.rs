//! A UDP client that keeps its port is not left with a pod that has gone.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, CLIENT, NODE};
use live::daemon::{Daemon, PATIENCE, Setup};
use live::manifests::{Manifests, node, service};
use live::stubs::{Misbehaviour, Stubs};
use live::within;
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

const DNS: &str = "10.1.0.53:53";
const FIRST: (&str, &str) = ("kube-dns-a1", "10.244.1.2");
const SECOND: (&str, &str) = ("kube-dns-a2", "10.244.1.4");

/// A client's socket, which keeps its port.
struct Client {
    socket: UdpSocket,
}

impl Client {
    fn new(lab: &Lab) -> Client {
        let namespace = lab
            .namespace(CLIENT)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        let open = || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            socket
        };
        let socket = namespace
            .run(open)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        Client { socket }
    }

    /// Who answers; nobody within the time is empty.
    fn ask(&self) -> String {
        let to: SocketAddr = DNS.parse().unwrap();
        // A refusal is told by the next call.
        let mut answer = [0; 512];
        if self.socket.send_to(b"who", to).is_err() {
            return String::new();
        }
        match lab::live::recv(&self.socket, &mut answer) {
            Ok(count) => String::from_utf8_lossy(&answer[..count]).into_owned(),
            Err(_) => String::new(),
        }
    }

    /// Asks until this one answers, without ever leaving the flow alone for long enough to be forgotten.
    fn until(&self, who: &str, daemon: &Daemon) -> Duration {
        let mut last = String::new();
        let took = within(PATIENCE, || {
            last = self.ask();
            last.contains(who)
        });
        took.unwrap_or_else(|| {
            panic!(
                "{who} does not answer, but {last:?}; log of the daemon:\n{}",
                daemon.log()
            )
        })
    }
}

/// Service `dns` in front of these pods.
fn dns(pods: &[(&str, &str)]) -> Vec<Value> {
    let endpoints: Vec<Value> = pods
        .iter()
        .map(|(_, address)| json!({"addresses": [address], "nodeName": NODE}))
        .collect();
    vec![
        node(NODE, &["192.168.50.238"]),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": "dns"},
            "spec": {"clusterIP": "10.1.0.53", "ports": [{"name": "p", "protocol": "UDP", "port": 53, "targetPort": 53}]},
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"namespace": "default", "name": "dns-1", "labels": {"kubernetes.io/service-name": "dns"}},
            "addressType": "IPv4", "ports": [{"name": "p", "protocol": "UDP", "port": 53}],
            "endpoints": endpoints,
        }),
    ]
}

#[test]
fn a_udp_flow_follows_its_service_to_another_endpoint() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("flows"), Manifests::new());
    manifests.put("dns.json", &dns(&[FIRST]));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let client = Client::new(&lab);
    client.until(FIRST.0, &daemon);
    manifests.put("dns.json", &dns(&[SECOND]));
    println!("followed after {:?}", client.until(SECOND.0, &daemon));
    manifests.put("dns.json", &dns(&[FIRST]));
    println!("and back after {:?}", client.until(FIRST.0, &daemon));
    daemon.says("stale connections deleted");
}

#[test]
fn a_udp_flow_stays_while_its_endpoint_serves() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("flowst"), Manifests::new());
    manifests.put("dns.json", &dns(&[FIRST]));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let client = Client::new(&lab);
    client.until(FIRST.0, &daemon);
    manifests.put("dns.json", &dns(&[FIRST, SECOND]));
    live::traffic::rules_say(&lab, SECOND.1, &daemon);
    for _ in 0..30 {
        assert!(client.ask().contains(FIRST.0), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    // A new process finds the same state and deletes nothing.
    daemon.kill();
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    for _ in 0..30 {
        assert!(client.ask().contains(FIRST.0), "{}", daemon.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!daemon.log().contains("stale connections"), "{}", daemon.log());
}

#[test]
fn what_was_deleted_while_nobody_watched_is_proved_by_the_rules() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("flowsg"), Manifests::new());
    manifests.put("dns.json", &dns(&[FIRST]));
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let client = Client::new(&lab);
    client.until(FIRST.0, &daemon);
    daemon.kill();
    manifests.put("dns.json", &[node(NODE, &["192.168.50.238"])]);
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let gone = within(PATIENCE, || !client.ask().contains(FIRST.0));
    println!("gone after {gone:?}");
    assert!(gone.is_some(), "{}", daemon.log());
    daemon.says("stale connections deleted");
}

/// It waits by itself from the start on, so that not everything is ever in.
#[test]
fn a_service_that_the_kernel_refuses_does_not_hold_back_the_connection_table() {
    if !available(&["iptables-nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("flowsr"), Manifests::new());
    let stubs = Stubs::new(
        &["iptables-nft-restore"],
        Misbehaviour::Refuses("default/refused"),
    );
    stubs.on("iptables-nft-restore");
    manifests.put("dns.json", &dns(&[FIRST]));
    manifests.put("refused.json", &[service("refused", "10.1.0.66", 80, 8080)]);
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("PATH", stubs.path())];
    let daemon = setup.start();
    let client = Client::new(&lab);
    client.until(FIRST.0, &daemon);
    manifests.put("dns.json", &dns(&[SECOND]));
    client.until(SECOND.0, &daemon);
    let log = daemon.log();
    assert!(log.contains("made to refuse"), "{log}");
    assert!(log.contains("stale connections deleted"), "{log}");
}
