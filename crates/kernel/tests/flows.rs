//! Real flows in a lab: which survive and which break when a cluster changes, and what the client sees.
//!
//! A client outside, a node with our rules, pods behind it. After each change the rules are written first and the
//! connection table is swept after that, as the daemon does.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use conntrack::{Expectation, NodeAddresses, ServiceFlows, Stale, TcpOption, decide};
use iptables::ast::Ports;
use iptables::build::{self, BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use iptables::render::SaveText;
use kernel::conntrack::{Reach, SweepOptions, SweepReport, sweep};
use lab::topology::{Node, Outside, Pod, PodNetwork, Port, Route, Topology};
use lab::{Lab, live};
use model::object::decode;
use model::resolve::{Context, resolve_node};
use model::snapshot::{Change, Snapshot};
use model::{Desired, Family, NodeFacts, ServiceName, Settings};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const NODE: &str = "node-a";
const CLIENT: &str = "client";
/// Outside as well; the node's default route goes there, and service addresses end there.
const SERVER: &str = "server";
const ON_NODE: &str = "192.168.70.1:30053";
const CLUSTER_IP: &str = "10.96.0.53:53";
const EXTERNAL_IP: &str = "203.0.113.53:53";
const TCP: &str = "10.96.0.53:7000";
const UDP_PORT: u16 = 5353;
const TCP_PORT: u16 = 7000;
const POD_A: &str = "10.244.1.10";
const POD_B: &str = "10.244.1.11";

struct World {
    lab: Lab,
    facts: NodeFacts,
    settings: Settings,
    snapshot: Snapshot,
    expectation: Expectation,
    tcp: TcpOption,
}

fn topology(prefix: &str) -> Topology {
    let net = |text: &str| text.parse().unwrap();
    let pod = |name: &str, address: &str| Pod {
        name: name.to_owned(),
        node: NODE.to_owned(),
        addresses: vec![address.parse().unwrap()],
        network: PodNetwork::Own,
        ports: vec![Port::udp(UDP_PORT)],
        answers_as: None,
    };
    let via = |to: &str| Route {
        to: net(to),
        via: NODE.to_owned(),
    };
    let outside = |name: &str, address: &str, routes: &[&str]| Outside {
        name: name.to_owned(),
        addresses: vec![net(address)],
        routes: routes.iter().map(|to| via(to)).collect(),
        ports: vec![Port::udp(30053)],
    };
    Topology {
        nodes: vec![Node {
            name: NODE.to_owned(),
            addresses: vec![net("192.168.70.1/24")],
            pod_cidrs: vec![net("10.244.1.0/24")],
            interfaces: vec![],
        }],
        pods: vec![pod("pod-a", POD_A), pod("pod-b", POD_B)],
        outside: vec![
            outside(CLIENT, "192.168.70.9/24", &["10.96.0.0/16", "203.0.113.0/24"]),
            outside(SERVER, "192.168.70.8/24", &["10.244.1.0/24"]),
        ],
        ..Topology::new(prefix)
    }
}

/// A service with a port of each protocol on each kind of frontend.
fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n"},
        "spec": {
            "type": "NodePort", "clusterIP": "10.96.0.53", "clusterIPs": ["10.96.0.53"], "ipFamilies": ["IPv4"],
            "externalIPs": ["203.0.113.53"],
            "ports": [
                {"name": "dns", "protocol": "UDP", "port": 53, "targetPort": UDP_PORT, "nodePort": 30053},
                {"name": "tcp", "protocol": "TCP", "port": 7000, "targetPort": TCP_PORT}
            ]
        }
    })
}

fn slice(endpoints: &[Value]) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "s-1", "namespace": "n", "labels": {"kubernetes.io/service-name": "s"}},
        "ports": [
            {"name": "dns", "protocol": "UDP", "port": UDP_PORT},
            {"name": "tcp", "protocol": "TCP", "port": TCP_PORT}
        ],
        "endpoints": endpoints
    })
}

fn ready(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": true, "serving": true, "terminating": false}})
}

fn terminating(address: &str) -> Value {
    json!({"addresses": [address], "conditions": {"ready": false, "serving": true, "terminating": true}})
}

impl World {
    fn up(stem: &str, tcp: TcpOption) -> Option<World> {
        if !live::available(&["iptables-restore"]) {
            return None;
        }
        let facts = NodeFacts {
            name: NODE.into(),
            interface_addresses: ["10.244.1.1", "127.0.0.1", "192.168.70.1"]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            ..NodeFacts::default()
        };
        let lab = Lab::up(&topology(&live::prefix(stem))).unwrap();
        let route = |place: &str, words: &str| {
            let words = ["ip", "route", "add"].into_iter().chain(words.split(' '));
            lab.must_exec(place, &words.collect::<Vec<_>>()).unwrap();
        };
        route(NODE, "default via 192.168.70.8");
        route(SERVER, "blackhole 10.96.0.0/16");
        route(SERVER, "blackhole 203.0.113.0/24");
        Some(World {
            lab,
            facts,
            settings: Settings::default(),
            snapshot: Snapshot::new(),
            expectation: Expectation::new(Family::V4, NodeAddresses::default()),
            tcp,
        })
    }

    /// What the objects are from now on: rules, then the expectation. Nothing is swept.
    fn set(&mut self, objects: &[Value]) {
        let mut snapshot = Snapshot::new();
        for object in objects {
            let decoded = decode(object.clone());
            assert_eq!(decoded.notes, []);
            for object in decoded.objects {
                snapshot.apply(Change::Apply(object));
            }
        }
        self.write_rules(&snapshot);
        let before = std::mem::replace(&mut self.snapshot, snapshot);
        let node = resolve_node(Family::V4, &self.facts, &self.settings);
        self.expectation
            .update_node(NodeAddresses::of(&node, &self.facts));
        let context = Context {
            family: Family::V4,
            node: &self.facts,
            settings: &self.settings,
            claims: self.snapshot.claims(),
        };
        let names = before.services().chain(self.snapshot.services());
        for name in names
            .map(|service| service.name.clone())
            .collect::<BTreeSet<ServiceName>>()
        {
            let flows = self.snapshot.service(&name).map(|service| {
                ServiceFlows::of(service, &self.snapshot.slices_of(&name), &context, self.tcp)
            });
            self.expectation.update(&name, flows.unwrap_or_default());
        }
    }

    fn write_rules(&self, snapshot: &Snapshot) {
        let (desired, _) = Desired::from_snapshot(snapshot, Family::V4, &self.facts, &self.settings);
        let context = BuildContext {
            capabilities: Capabilities {
                masquerade_ports: Ports::RandomFully,
                nfacct: Nfacct::Absent,
            },
            endpoint_comments: EndpointComments::Kept,
            invalid: InvalidPackets::Dropped,
        };
        let ruleset = build::ruleset(&desired, &context);
        let file = self.lab.folder().join("rules");
        std::fs::write(&file, SaveText::new(&ruleset, Family::V4).to_string()).unwrap();
        self.lab
            .must_exec(NODE, &["iptables-restore", file.to_str().unwrap()])
            .unwrap();
    }

    fn sweep(&mut self) -> SweepReport {
        let options = SweepOptions {
            reach: match self.tcp {
                TcpOption::Never => Reach::Udp,
                TcpOption::CutGone => Reach::UdpAndTcp,
            },
            ..SweepOptions::default()
        };
        let begun = self.expectation.begin_sweep();
        let expectation = &self.expectation;
        let namespace = self.lab.namespace(NODE).unwrap();
        let swept = namespace.run(|| sweep(Family::V4, &options, &mut |flow| decide(expectation, flow)));
        let report = swept.unwrap().unwrap();
        assert!(report.is_complete(), "{report:?}");
        self.expectation.complete_sweep(begun);
        report
    }

    /// A client's socket that stays on its port.
    fn udp(&self, place: &str, to: &str) -> Caller {
        let to: SocketAddr = to.parse().unwrap();
        let socket = self.lab.namespace(place).unwrap().run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(to).unwrap();
            socket
        });
        let socket = socket.unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
        Caller { socket }
    }
}

/// One flow, as its client sees it.
struct Caller {
    socket: UdpSocket,
}

#[derive(Debug, PartialEq, Eq)]
enum Heard {
    From(String),
    /// ICMP port unreachable.
    Refused,
    Nothing,
}

impl Caller {
    fn ask(&self) -> Heard {
        // An error that is still pending from before would hide what this packet meets.
        let _ = self.socket.take_error();
        self.socket.send(b"?\n").unwrap();
        let mut answer = [0; 200];
        match live::recv(&self.socket, &mut answer) {
            Ok(count) => {
                let text = String::from_utf8_lossy(&answer[..count]);
                Heard::From(text.split(' ').next().unwrap().to_owned())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Heard::Refused,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Heard::Nothing
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn from(name: &str) -> Heard {
    Heard::From(name.to_owned())
}

const FRONTENDS: [&str; 3] = [CLUSTER_IP, EXTERNAL_IP, ON_NODE];

#[test]
fn a_flow_stays_while_its_endpoint_stays_and_moves_when_it_goes() {
    let Some(mut world) = World::up("ctmove", TcpOption::Never) else {
        return;
    };
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let callers = FRONTENDS.map(|frontend| world.udp(CLIENT, frontend));
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"));
    }
    world.set(&[service(), slice(&[ready(POD_A), ready(POD_B)])]);
    assert_eq!(world.sweep().deleted(), 0);
    world.set(&[service(), slice(&[terminating(POD_A), ready(POD_B)])]);
    assert_eq!(world.sweep().deleted(), 0);
    for caller in &callers {
        assert_eq!(
            caller.ask(),
            from("pod-a"),
            "it stays, though new flows go elsewhere"
        );
    }
    world.set(&[service(), slice(&[ready(POD_B)])]);
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"), "rules alone do not move a flow");
    }
    assert_eq!(world.sweep().deleted, [(Stale::EndpointGone, 3)].into());
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-b"));
    }
    assert_eq!(world.sweep().deleted(), 0);
}

#[test]
fn a_restart_with_unchanged_state_breaks_no_flow() {
    let Some(mut world) = World::up("ctrest", TcpOption::CutGone) else {
        return;
    };
    world.set(&[service(), slice(&[ready(POD_A), ready(POD_B)])]);
    let callers = FRONTENDS.map(|frontend| world.udp(CLIENT, frontend));
    let heard: Vec<Heard> = callers.iter().map(Caller::ask).collect();
    world.expectation = Expectation::from_snapshot(
        &world.snapshot,
        Family::V4,
        &world.facts,
        &world.settings,
        world.tcp,
    );
    let report = world.sweep();
    assert_eq!((report.deleted(), report.seen >= 3), (0, true));
    let again: Vec<Heard> = callers.iter().map(Caller::ask).collect();
    assert_eq!(heard, again);
}

#[test]
fn a_sender_that_was_there_before_the_endpoints_gets_through() {
    let Some(mut world) = World::up("ctfirst", TcpOption::Never) else {
        return;
    };
    // No rule at all: what the client sends is forwarded as it is, and lost.
    world.write_rules(&Snapshot::new());
    let callers = [CLUSTER_IP, EXTERNAL_IP].map(|frontend| world.udp(CLIENT, frontend));
    for caller in &callers {
        assert_eq!(caller.ask(), Heard::Nothing);
    }
    world.set(&[service(), slice(&[ready(POD_A)])]);
    for caller in &callers {
        assert_eq!(caller.ask(), Heard::Nothing, "its entry says: no translation");
    }
    assert_eq!(world.sweep().deleted, [(Stale::BlackHole, 2)].into());
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"));
    }
}

#[test]
fn flows_of_a_service_that_lost_its_last_endpoint_are_refused() {
    let Some(mut world) = World::up("ctlast", TcpOption::Never) else {
        return;
    };
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let callers = FRONTENDS.map(|frontend| world.udp(CLIENT, frontend));
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"));
    }
    world.set(&[service(), slice(&[])]);
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"), "the reject rule sees new flows only");
    }
    assert_eq!(world.sweep().deleted, [(Stale::NoEndpoints, 3)].into());
    for caller in &callers {
        assert_eq!(caller.ask(), Heard::Refused);
    }
    world.set(&[service(), slice(&[ready(POD_B)])]);
    world.sweep();
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-b"));
    }
}

#[test]
fn flows_of_a_deleted_service_reach_its_pods_no_more() {
    let Some(mut world) = World::up("ctgone", TcpOption::Never) else {
        return;
    };
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let callers = FRONTENDS.map(|frontend| world.udp(CLIENT, frontend));
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"));
    }
    world.set(&[]);
    for caller in &callers {
        assert_eq!(caller.ask(), from("pod-a"));
    }
    assert_eq!(world.sweep().deleted, [(Stale::FrontendGone, 3)].into());
    for caller in &callers {
        assert_ne!(caller.ask(), from("pod-a"));
    }
}

#[test]
fn flows_to_another_host_on_a_node_ports_number_stay() {
    let Some(mut world) = World::up("ctport", TcpOption::Never) else {
        return;
    };
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let own = world.udp(CLIENT, ON_NODE);
    assert_eq!(own.ask(), from("pod-a"));
    let through = world.udp("pod-b", "192.168.70.8:30053");
    let local = world.udp(NODE, "192.168.70.8:30053");
    assert_eq!((through.ask(), local.ask()), (from("server"), from("server")));
    for objects in [vec![service(), slice(&[ready(POD_B)])], vec![]] {
        world.set(&objects);
        let report = world.sweep();
        assert!(report.deleted() <= 1, "{report:?}");
    }
    let namespace = world.lab.namespace(NODE).unwrap();
    let entries = namespace.run(|| {
        let narrow = netlink::conntrack::Filter::default();
        kernel::conntrack::connections(Family::V4, narrow, |tuple| {
            tuple.destination.to_string() == "192.168.70.8"
        })
    });
    assert_eq!(entries.unwrap().unwrap().len(), 2, "both entries are still there");
    assert_eq!((through.ask(), local.ask()), (from("server"), from("server")));
}

/// A connection to a server that echoes, in a pod.
fn echoed(world: &World, pod: &str) -> TcpListener {
    let listener = world
        .lab
        .namespace(pod)
        .unwrap()
        .run(|| TcpListener::bind(("0.0.0.0", TCP_PORT)).unwrap());
    let listener = listener.unwrap();
    let accepting = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        // The thread ends with the test's program.
        while let Ok((mut stream, _)) = accepting.accept() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
    listener
}

fn connected(world: &World) -> TcpStream {
    let stream = world
        .lab
        .namespace(CLIENT)
        .unwrap()
        .run(|| TcpStream::connect(TCP).unwrap())
        .unwrap();
    stream
        .set_read_timeout(Some(Duration::from_millis(1500)))
        .unwrap();
    stream
}

/// Says a byte and waits for it to come back.
fn say(stream: &mut TcpStream) -> Result<(), ErrorKind> {
    stream.write_all(b"x").map_err(|error| error.kind())?;
    stream.read_exact(&mut [0]).map_err(|error| error.kind())
}

#[test]
fn tcp_to_an_endpoint_that_left_goes_on_without_the_option() {
    let Some(mut world) = World::up("cttcp", TcpOption::Never) else {
        return;
    };
    let _servers = [echoed(&world, "pod-a"), echoed(&world, "pod-b")];
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let mut stream = connected(&world);
    assert_eq!(say(&mut stream), Ok(()));
    for objects in [
        vec![service(), slice(&[ready(POD_B)])],
        vec![service(), slice(&[])],
        vec![],
    ] {
        world.set(&objects);
        assert_eq!(world.sweep().deleted(), 0);
        assert_eq!(say(&mut stream), Ok(()));
    }
}

#[test]
fn tcp_to_an_endpoint_that_left_is_reset_by_another_one_with_the_option() {
    let Some(mut world) = World::up("ctcut", TcpOption::CutGone) else {
        return;
    };
    let _servers = [echoed(&world, "pod-a"), echoed(&world, "pod-b")];
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let mut stream = connected(&world);
    assert_eq!(say(&mut stream), Ok(()));
    world.set(&[service(), slice(&[terminating(POD_A), ready(POD_B)])]);
    assert_eq!(world.sweep().deleted(), 0);
    assert_eq!(
        say(&mut stream),
        Ok(()),
        "a terminating endpoint keeps its connections"
    );
    world.set(&[service(), slice(&[ready(POD_B)])]);
    assert_eq!(world.sweep().deleted, [(Stale::TcpEndpointGone, 1)].into());
    assert_eq!(say(&mut stream), Err(ErrorKind::ConnectionReset));
}

#[test]
fn tcp_to_the_last_endpoint_hangs_once_cut() {
    let Some(mut world) = World::up("cthang", TcpOption::CutGone) else {
        return;
    };
    let _server = echoed(&world, "pod-a");
    world.set(&[service(), slice(&[ready(POD_A)])]);
    let mut stream = connected(&world);
    assert_eq!(say(&mut stream), Ok(()));
    world.set(&[service(), slice(&[])]);
    assert_eq!(world.sweep().deleted, [(Stale::TcpEndpointGone, 1)].into());
    assert_eq!(
        say(&mut stream),
        Err(ErrorKind::WouldBlock),
        "ICMP does not end an established connection"
    );
}
