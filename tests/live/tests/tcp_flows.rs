//! TCP connections to an endpoint that goes: they live without `--conntrack-cut-gone-tcp`, and with it a client sees what
//! docs/running.md says, in both families.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::flow::{Flow, from};
use live::manifests::Manifests;
use live::two_families::{ADDRESSES, CLIENT, Condition, NODE, at, node, service, slices, up};
use live::within;
use model::Family;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const PORT: u16 = 7000;
const READY: Condition = Condition::Ready;
const LEAVING: Condition = Condition::Terminating;

/// A server in a pod that gives back what it gets, on both families, for as long as the test's program lives.
fn echoes(lab: &Lab, pod: &str) {
    let listen = || TcpListener::bind((Ipv6Addr::UNSPECIFIED, PORT)).expect("the port is free");
    let listener = lab.namespace(pod).unwrap().run(listen).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
}

/// A connection of the client, once one can be had.
fn connected(lab: &Lab, family: Family, daemon: &Daemon) -> TcpStream {
    let to: SocketAddr = at(ADDRESSES.get(family).service[0], PORT).parse().unwrap();
    let namespace = lab.namespace(CLIENT).unwrap();
    let mut stream = None;
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok();
    let there = within(PATIENCE, || {
        // Before there are rules, the sink takes connections.
        stream = namespace.run(connect).unwrap();
        stream.as_mut().is_some_and(|stream| {
            stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
            say(stream).is_ok()
        })
    });
    assert!(there.is_some(), "{to}: {}", daemon.log());
    stream.unwrap()
}

/// Says a byte, and waits for it to come back.
fn say(stream: &mut TcpStream) -> Result<(), ErrorKind> {
    let mut byte = [0];
    stream
        .write_all(b"x")
        .and_then(|()| stream.read_exact(&mut byte))
        .map_err(|error| error.kind())?;
    // Anything else is the sink's answer.
    if byte == *b"x" {
        Ok(())
    } else {
        Err(ErrorKind::InvalidData)
    }
}

/// What the client sees when the connection ends.
fn end(stream: &mut TcpStream, daemon: &Daemon) -> ErrorKind {
    let mut ended = None;
    within(PATIENCE, || {
        ended = say(stream).err();
        ended.is_some()
    });
    ended.unwrap_or_else(|| panic!("it goes on; log of the daemon:\n{}", daemon.log()))
}

/// The service with these pods, and a canary whose UDP flow shows that the table was swept since.
fn objects(pods: &[(usize, Condition)], canary: usize) -> Vec<Value> {
    let tcp = |mut object: Value| {
        let port = match object["kind"].as_str() {
            Some("Service") => &mut object["spec"]["ports"][0],
            _ => &mut object["ports"][0],
        };
        *port = json!({"name": "echo", "protocol": "TCP", "port": PORT});
        object
    };
    let of = |index: usize| [ADDRESSES.v4.service[index], ADDRESSES.v6.service[index]];
    let mut objects = vec![tcp(service("s", of(0)))];
    objects.extend(slices("s", pods).into_iter().map(tcp));
    objects.extend(self::canary(canary));
    objects
}

fn canary(pod: usize) -> Vec<Value> {
    let mut objects = vec![
        node(),
        service("canary", [ADDRESSES.v4.canary, ADDRESSES.v6.canary]),
    ];
    objects.extend(slices("canary", &[(pod, READY)]));
    objects
}

fn canaries(lab: &Lab) -> [Flow; 2] {
    Family::ALL.map(|family| Flow::new(lab, CLIENT, &at(ADDRESSES.get(family).canary, 53)))
}

fn swept(canaries: &[Flow; 2], pod: usize, daemon: &Daemon) {
    for canary in canaries {
        canary.until(&from(["pod-a", "pod-b"][pod]), daemon);
    }
}

#[test]
fn connections_outlive_their_endpoint_unless_they_are_to_be_cut() {
    if !available(&["iptables", "ip6tables"]) {
        return;
    }
    let (lab, manifests) = (up("tcpflow"), Manifests::new());
    for pod in ["pod-a", "pod-b"] {
        echoes(&lab, pod);
    }
    let canaries = canaries(&lab);
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config = configuration(&json!({"clusterCIDR": "10.244.0.0/16,fd00:244::/32"}));

    // Without the option: whatever becomes of endpoint and service.
    manifests.put("all.json", &objects(&[(0, READY)], 0));
    let daemon = setup.start();
    let mut streams = Family::ALL.map(|family| connected(&lab, family, &daemon));
    for (objects, pod) in [
        (objects(&[(1, READY)], 1), 1),
        (objects(&[], 0), 0),
        (canary(1), 1),
    ] {
        manifests.put("all.json", &objects);
        swept(&canaries, pod, &daemon);
        for stream in &mut streams {
            assert_eq!(say(stream), Ok(()), "{}", daemon.log());
        }
    }
    daemon.kill();

    // With it: a terminating endpoint keeps its connections, and so does a restart.
    setup.flags = vec!["--conntrack-cut-gone-tcp".to_owned()];
    manifests.put("all.json", &objects(&[(0, READY)], 0));
    let daemon = setup.start();
    swept(&canaries, 0, &daemon);
    let mut streams = Family::ALL.map(|family| connected(&lab, family, &daemon));
    manifests.put("all.json", &objects(&[(0, LEAVING), (1, READY)], 1));
    swept(&canaries, 1, &daemon);
    for stream in &mut streams {
        assert_eq!(say(stream), Ok(()), "{}", daemon.log());
    }
    // When it has left the slice, the next packet goes to another endpoint, which knows nothing of the connection.
    manifests.put("all.json", &objects(&[(1, READY)], 0));
    for stream in &mut streams {
        assert_eq!(
            end(stream, &daemon),
            ErrorKind::ConnectionReset,
            "{}",
            daemon.log()
        );
    }
    // Without another one nobody answers: the client waits for its own timeout, as it would without the option.
    let mut streams = Family::ALL.map(|family| connected(&lab, family, &daemon));
    manifests.put("all.json", &objects(&[], 1));
    swept(&canaries, 1, &daemon);
    for stream in &mut streams {
        assert_eq!(end(stream, &daemon), ErrorKind::WouldBlock, "{}", daemon.log());
    }
    daemon.says("stale connections deleted");
}
