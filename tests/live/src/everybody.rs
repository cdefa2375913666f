//! Everybody who uses `web` while something happens: new connections of all kinds of client, and one that lives on.

use crate::cluster::{CLIENT, NODE, PODS, WEB, WEB_NODE_PORT, endpoints, tcp, web};
use crate::manifests::{service, slice};
use crate::traffic::{RATE, by_a_pod};
use crate::within;
use lab::{Lab, ProbeOutcome, Prober};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Where `echo` is, and its pods' port.
const ECHO: &str = "10.1.0.81:7000";
const ECHO_PORT: u16 = 7000;

/// `web` in front of the first `count` of [`PODS`], and `echo` in front of the first.
pub fn objects(count: usize) -> Vec<Value> {
    let mut objects = web(count);
    let (_, address, node) = PODS[0];
    objects.push(service("echo", "10.1.0.81", ECHO_PORT, ECHO_PORT));
    objects.push(slice("echo", ECHO_PORT, &[(address, node)]));
    objects
}

/// The slice of `web` alone.
pub fn pods_of_web(count: usize) -> Value {
    endpoints("web", count)
}

/// Whom a pod sees when a client asks it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sees {
    /// The client itself.
    The(Ipv4Addr),
    /// The node: the source was rewritten.
    TheNode,
}

impl Sees {
    fn is(self, seen: IpAddr) -> bool {
        let node: [IpAddr; 2] = [[192, 168, 50, 238].into(), [10, 244, 1, 1].into()];
        match self {
            Sees::The(address) => seen == address,
            Sees::TheNode => node.contains(&seen),
        }
    }
}

/// Traffic of all kinds. New connections are made until [`Everybody::stop`].
pub struct Everybody {
    probers: Vec<(&'static str, Sees, Prober)>,
    stream: TcpStream,
}

impl Everybody {
    /// Starts, once all of it works: [`objects`] are served by somebody.
    ///
    /// # Panics
    /// When they are not in time.
    pub fn start(lab: &Lab, log: &dyn Fn() -> String) -> Everybody {
        echoes(lab, PODS[0].0);
        let pod: (&str, Ipv4Addr) = ("sender-a", Ipv4Addr::new(10, 244, 1, 7));
        let users = [
            ("client to cluster IP", CLIENT, WEB, RATE, Sees::TheNode),
            ("client to node port", CLIENT, WEB_NODE_PORT, RATE, Sees::TheNode),
            ("pod to cluster IP", pod.0, WEB, RATE / 4, Sees::The(pod.1)),
        ];
        for (what, place, to, ..) in users {
            let probe = tcp(to).within(Duration::from_millis(500));
            let served = within(Duration::from_secs(30), || {
                lab.probe(place, probe).is_ok_and(|outcome| by_a_pod(&outcome))
            });
            assert!(served.is_some(), "{what}: not served\n{}", log());
        }
        let stream = connected(lab, log);
        let probers = users.map(|(what, place, to, rate, sees)| {
            // One lost packet is repeated after a second; a busy machine must not look like a refusal.
            let probe = tcp(to).within(Duration::from_secs(3));
            let prober = lab.prober(place, probe, rate);
            (
                what,
                sees,
                prober.unwrap_or_else(|error| panic!("{}", error.chain())),
            )
        });
        Everybody {
            probers: probers.into(),
            stream,
        }
    }

    /// The connection that lives on still does.
    ///
    /// # Panics
    /// When it does not.
    pub fn goes_on(&mut self, after: &str) {
        let said = say(&mut self.stream);
        assert!(
            said.is_ok(),
            "after {after}, the established connection: {said:?}"
        );
    }

    /// Ends it. Every connection must have been answered by a pod that saw whom it should.
    ///
    /// # Panics
    /// With what went wrong, and the log.
    pub fn stop(mut self, log: &dyn Fn() -> String) {
        self.goes_on("all of it");
        for (what, sees, prober) in self.probers {
            let report = prober.stop();
            println!("{what}: {}", report.describe());
            let wrong = report.samples.iter().filter(|sample| match &sample.outcome {
                ProbeOutcome::Answered { seen_client, .. } => {
                    !by_a_pod(&sample.outcome) || !sees.is(seen_client.ip())
                }
                _ => true,
            });
            let wrong: Vec<String> = wrong
                .map(|sample| format!("+{:?} {:?}", sample.at - report.start, sample.outcome))
                .collect();
            assert!(
                wrong.is_empty(),
                "{what}: {} of {} went wrong:\n{}\n{}",
                wrong.len(),
                report.total(),
                wrong.join("\n"),
                log()
            );
            assert!(
                report.total() > 100,
                "{what}: only {} connections",
                report.total()
            );
        }
    }
}

/// A server in a pod that gives back what it gets, for as long as the test's program lives.
fn echoes(lab: &Lab, pod: &str) {
    let listen = || TcpListener::bind((Ipv4Addr::UNSPECIFIED, ECHO_PORT)).expect("the port is free");
    let namespace = lab
        .namespace(pod)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let listener = namespace
        .run(listen)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
            });
        }
    });
}

fn connected(lab: &Lab, log: &dyn Fn() -> String) -> TcpStream {
    let to: SocketAddr = ECHO.parse().expect("an address");
    let namespace = lab
        .namespace(CLIENT)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let mut found = None;
    let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(1)).ok();
    let there = within(Duration::from_secs(30), || {
        found = namespace.run(connect).ok().flatten();
        found.as_mut().is_some_and(|stream| {
            let patience = Some(Duration::from_secs(3));
            stream.set_read_timeout(patience).is_ok() && say(stream).is_ok()
        })
    });
    assert!(there.is_some(), "{to} on {NODE}: {}", log());
    found.expect("it was there")
}

/// Says a byte, and waits for it to come back.
fn say(stream: &mut TcpStream) -> Result<(), String> {
    let mut byte = [0];
    let said = stream.write_all(b"x").and_then(|()| stream.read_exact(&mut byte));
    said.map_err(|error| error.to_string())?;
    // Anything else is the sink's answer.
    (byte == *b"x")
        .then_some(())
        .ok_or_else(|| "another answers".to_owned())
}
