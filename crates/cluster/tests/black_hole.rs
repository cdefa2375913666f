//! A connection whose packets go nowhere (upstream issues 76338, 38372, 51445, 67875, 91812).

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod support;

use apiserver::{Options, Server, objects};
use cluster::api::{KeepAlive, Timing};
use lab::Namespace;
use lab::live::{available, prefix};
use std::process::Command;
use std::time::Duration;
use support::follower::Follower;
use support::{options, quick};

/// A network namespace with nothing but loopback.
struct Alone(String);

impl Alone {
    fn make() -> Alone {
        let name = prefix("kprs-hole");
        tool(&["ip", "netns", "add", &name]);
        let alone = Alone(name);
        alone.tool(&["ip", "link", "set", "lo", "up"]);
        alone
    }

    fn tool(&self, argv: &[&str]) {
        tool(&[&["ip", "netns", "exec", &self.0], argv].concat());
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // A failure here must not hide that of the test.
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).status();
    }
}

fn tool(argv: &[&str]) {
    let status = Command::new(argv[0]).args(&argv[1..]).status().unwrap();
    assert!(status.success(), "{argv:?}");
}

#[test]
fn within_a_minute_by_default() {
    assert!(KeepAlive::default().limit() < Duration::from_mins(1));
    assert!(Timing::default().answer <= Duration::from_mins(1));
}

/// Only keep-alive can find it here: hours may pass without an event.
#[test]
fn a_connection_whose_packets_go_nowhere_is_found_and_replaced() {
    if !available(&["iptables"]) {
        return;
    }
    let alone = Alone::make();
    Namespace::named(alone.0.clone())
        .run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(loses_its_packets(&alone));
        })
        .unwrap_or_else(|error| panic!("{}", error.chain()));
}

async fn loses_its_packets(alone: &Alone) {
    let server = Server::start(Options::default());
    server.apply(objects::service("a", "10.96.0.1"));
    let timing = Timing {
        keep_alive: KeepAlive {
            idle: Duration::from_secs(1),
            interval: Duration::from_secs(1),
            probes: 2,
        },
        silence: Duration::from_hours(9),
        answer: Duration::from_secs(2),
        ..quick()
    };
    let mut follower = Follower::start(options(&server.url, timing)).await;
    follower.until_connected().await;
    alone.tool(&["iptables", "-A", "INPUT", "-p", "tcp", "-j", "DROP"]);
    server.apply(objects::service("b", "10.96.0.2"));
    follower
        .until("the connection is found dead", |follower| {
            !follower.failures.is_empty()
        })
        .await;
    alone.tool(&["iptables", "-F", "INPUT"]);
    follower.until_right(&server).await;
}
