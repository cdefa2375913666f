//! The tables of `scenarios/conntrack` with real flows of both families, on each kind of frontend, through one life of a
//! cluster: what survives, what breaks, and what the client hears.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use kernel::conntrack::connections;
use lab::live::available;
use lab::{Lab, Proto};
use live::daemon::{Daemon, PATIENCE, Setup, configuration};
use live::flow::{Flow, Heard, from};
use live::manifests::Manifests;
use live::stubs::{Misbehaviour, Stubs};
use live::two_families::{
    ADDRESSES, Addresses, CLIENT, Condition, NODE, NODE_PORT, at, everywhere, node, service, slices, up,
};
use live::{health, within};
use model::Family;
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;

const RESTORES: [&str; 2] = ["iptables-nft-restore", "ip6tables-nft-restore"];
const DELETED: &str = "kubeproxy_conntrack_reconciler_deleted_entries_total";
const SWEEPS: &str = "kubeproxy_conntrack_reconciler_sync_duration_seconds_count";
const READY: Condition = Condition::Ready;

/// The flows of one family.
struct Flows {
    family: Family,
    /// To the cluster IP, the external IP, the load balancer's IP and the node port of `s`.
    service: [Flow; 4],
    /// To a service whose endpoint changes with each step: once it follows, the table was swept after the change.
    canary: Flow,
    /// Nobody's business: other addresses at the number of the node port, from the node itself and through it.
    others: Vec<(Flow, Heard)>,
    /// To an address that the node is going to have.
    coming: Flow,
}

impl Flows {
    fn new(lab: &Lab, family: Family) -> Flows {
        let has = ADDRESSES.get(family);
        let client = |address: &str, port| Flow::new(lab, CLIENT, &at(address, port));
        let [cluster, external, balancer] = has.service;
        let elsewhere = at(has.server, NODE_PORT);
        Flows {
            family,
            service: [
                client(cluster, 53),
                client(external, 53),
                client(balancer, 53),
                client(has.node, NODE_PORT),
            ],
            canary: client(has.canary, 53),
            others: vec![
                (client(has.other, NODE_PORT), from("host")),
                (Flow::new(lab, NODE, &elsewhere), from("server")),
                (Flow::new(lab, "pod-b", &elsewhere), from("server")),
            ],
            coming: client(has.coming, NODE_PORT),
        }
    }
}

/// What happens, and what the four flows to `s` hear from then on.
struct Step {
    what: &'static str,
    objects: Vec<Value>,
    heard: [Heard; 4],
    entries: Entries,
}

/// What becomes of the entries of the flows to `s`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entries {
    /// What the flows hear says it.
    AsHeard,
    /// They are the same ones, by their ids.
    Stay,
}

fn step(what: &'static str, parts: &[Vec<Value>], heard: [Heard; 4]) -> Step {
    Step {
        what,
        objects: parts.concat(),
        heard,
        entries: Entries::AsHeard,
    }
}

fn quiet(what: &'static str, parts: &[Vec<Value>], heard: [Heard; 4]) -> Step {
    Step {
        entries: Entries::Stay,
        ..step(what, parts, heard)
    }
}

fn all(heard: &Heard) -> [Heard; 4] {
    [(); 4].map(|()| heard.clone())
}

/// Nobody translates: the sink answers for service addresses, and the node for its own.
fn nobody() -> [Heard; 4] {
    [from("sink"), from("sink"), from("sink"), Heard::Refused]
}

/// Only the cluster IP is served.
fn inside(pod: &str) -> [Heard; 4] {
    let mut heard = nobody();
    heard[0] = from(pod);
    heard
}

fn service_with(pods: &[(usize, Condition)]) -> Vec<Value> {
    let mut objects = vec![everywhere()];
    objects.extend(slices("s", pods));
    objects
}

/// While the process lives, and after it was started anew.
fn steps() -> (Vec<Step>, Vec<Step>) {
    let (a, b) = (from("pod-a"), from("pod-b"));
    let cluster_ips = [ADDRESSES.v4.service[0], ADDRESSES.v6.service[0]];
    let leaving = [(0, Condition::Terminating), (1, READY)];
    let before = vec![
        step("flows were there before the service", &[], nobody()),
        step(
            "a service comes, and what was never translated goes",
            &[service_with(&[(0, READY)])],
            all(&a),
        ),
        quiet(
            "another endpoint comes, and nothing moves",
            &[service_with(&[(0, READY), (1, READY)])],
            all(&a),
        ),
        quiet(
            "a terminating endpoint that serves keeps its flows",
            &[service_with(&leaving)],
            all(&a),
        ),
        step("the endpoint has gone", &[service_with(&[(1, READY)])], all(&b)),
        step(
            "the last one has gone",
            &[service_with(&[])],
            all(&Heard::Refused),
        ),
        step("one comes back", &[service_with(&[(1, READY)])], all(&b)),
    ];
    let plain = vec![service("s", cluster_ips)];
    let heirs = [vec![service("heir", cluster_ips)], slices("heir", &[(1, READY)])].concat();
    let after = vec![
        step(
            "node port, external and balancer's addresses go",
            &[plain, slices("s", &[(0, READY)])],
            inside("pod-a"),
        ),
        step(
            "another service takes the address over, with other endpoints",
            &[heirs],
            inside("pod-b"),
        ),
        step("it is deleted", &[], nobody()),
    ];
    (before, after)
}

/// A run of the story.
struct World<'a> {
    lab: &'a Lab,
    manifests: &'a Manifests,
    setup: Setup<'a>,
    flows: Vec<Flows>,
    turn: usize,
}

impl World<'_> {
    /// Writes what is from now on, with the canary's endpoint changed.
    fn put(&mut self, objects: &[Value]) {
        self.turn += 1;
        let cluster_ips = [ADDRESSES.v4.canary, ADDRESSES.v6.canary];
        let canary = [
            vec![node(), service("canary", cluster_ips)],
            slices("canary", &[(self.turn % 2, READY)]),
        ];
        self.manifests
            .put("all.json", &[&canary.concat(), objects].concat());
    }

    fn canary(&self) -> Heard {
        from(["pod-a", "pod-b"][self.turn % 2])
    }

    fn go(&mut self, step: &Step, daemon: &Daemon) {
        let before = self.of_service();
        self.put(&step.objects);
        let took = self.settle(&step.heard, daemon);
        println!("{}: {took:?} at most", step.what);
        if step.entries == Entries::Stay {
            assert_eq!(self.of_service(), before, "{}\n{}", step.what, daemon.log());
        }
    }

    /// Waits until the table was swept and all flows hear what they should; nobody else's flow may notice.
    fn settle(&self, heard: &[Heard; 4], daemon: &Daemon) -> Duration {
        let mut longest = Duration::ZERO;
        for flows in &self.flows {
            longest = longest.max(flows.canary.until(&self.canary(), daemon));
            for (flow, want) in flows.service.iter().zip(heard) {
                longest = longest.max(flow.until(want, daemon));
            }
            for (flow, want) in &flows.others {
                flow.until(want, daemon);
            }
        }
        longest
    }

    #[allow(
        clippy::default_trait_access,
        reason = "the filter's type is of a crate that these tests do not know"
    )]
    /// The entries of flows to these addresses, with the ids by which the kernel tells an entry from a later one.
    fn entries(&self, wanted: impl Fn(&Addresses) -> Vec<&'static str>) -> Vec<String> {
        let namespace = self.lab.namespace(NODE).unwrap();
        let mut found = vec![];
        for family in Family::ALL {
            let wanted = wanted(ADDRESSES.get(family));
            let is_wanted = |to: IpAddr| wanted.iter().any(|address| *address == to.to_string());
            let read = || connections(family, Default::default(), |tuple| is_wanted(tuple.destination));
            let entries = namespace.run(read).unwrap().expect("the kernel tells");
            found.extend(
                entries
                    .iter()
                    .map(|entry| format!("{:?} {:?}", entry.id, entry.original)),
            );
        }
        found.sort();
        found
    }

    /// No sweep may touch these.
    fn of_others(&self) -> Vec<String> {
        self.entries(|has| vec![has.other, has.server])
    }

    fn of_service(&self) -> Vec<String> {
        self.entries(|has| [has.service.to_vec(), vec![has.node]].concat())
    }

    fn sum(&self, metric: &str) -> f64 {
        health::metric(self.lab, metric, &[]).unwrap_or(0.0)
    }

    /// An address that the node gets takes its flows from then on.
    fn address_comes(&self, daemon: &Daemon) {
        for flows in &self.flows {
            flows.coming.until(&from("sink"), daemon);
            let address = ADDRESSES.get(flows.family).coming;
            self.lab
                .must_exec(NODE, &["ip", "address", "add", address, "dev", "eth0"])
                .unwrap();
            let took = flows.coming.until(&from("pod-b"), daemon);
            println!("{address} is a node port's after {took:?}");
        }
    }

    /// Rules that cannot be written leave their flows as they are, and what was to be done is done with the first ones
    /// that can.
    fn failed_syncs_lose_nothing(&mut self, stubs: &Stubs, daemon: &Daemon) {
        for tool in RESTORES {
            stubs.on(tool);
        }
        let before = self.of_service();
        self.put(&service_with(&[(0, READY)]));
        let tried = within(PATIENCE, || RESTORES.iter().all(|tool| stubs.calls(tool) >= 2));
        assert!(tried.is_some(), "{}", daemon.log());
        for flow in self.flows.iter().flat_map(|flows| &flows.service) {
            flow.until(&from("pod-b"), daemon);
        }
        assert_eq!(self.of_service(), before, "{}", daemon.log());
        for tool in RESTORES {
            stubs.off(tool);
        }
        println!("after failures: {:?}", self.settle(&all(&from("pod-a")), daemon));
    }

    /// A new process finds the same state and deletes nothing.
    fn restart_changes_nothing(&self, daemon: Daemon) -> Daemon {
        let before = self.of_service();
        daemon.kill();
        let daemon = self.setup.start();
        // Each family at its start, and that is all: the next sweep is a minute away.
        let swept = within(PATIENCE, || self.sum(SWEEPS) >= 2.0);
        assert!(swept.is_some(), "{}", daemon.log());
        assert_eq!(self.of_service(), before, "{}", daemon.log());
        assert!(self.sum(DELETED).abs() < 0.5, "{}", daemon.log());
        self.settle(&all(&from("pod-a")), &daemon);
        daemon
    }
}

#[test]
fn flows_survive_and_break_as_the_tables_say() {
    if !available(&["iptables", "ip6tables"]) {
        return;
    }
    let (lab, manifests) = (up("flowtb"), Manifests::new());
    let sockets = Family::ALL.map(|family| at(ADDRESSES.get(family).other, NODE_PORT).parse().unwrap());
    let _host = lab
        .serve(NODE, "host", &sockets.map(|socket| (Proto::Udp, socket)))
        .unwrap();
    let stubs = Stubs::new(&RESTORES, Misbehaviour::Fails);
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("PATH", stubs.path())];
    setup.config = configuration(&json!({
        "clusterCIDR": "10.244.0.0/16,fd00:244::/32",
        // Not the addresses of vip0.
        "nodePortAddresses": ["192.168.70.0/24", "203.0.113.0/24", "fd70::/64", "2001:db8:203::/64"],
    }));
    let mut world = World {
        lab: &lab,
        manifests: &manifests,
        flows: Family::ALL.map(|family| Flows::new(&lab, family)).into(),
        setup,
        turn: 0,
    };
    world.put(&[]);
    let mut daemon = world.setup.start();
    let (before, after) = steps();
    world.go(&before[0], &daemon);
    let others = world.of_others();
    assert_eq!(others.len(), 6, "{others:#?}");
    for step in &before[1..] {
        world.go(step, &daemon);
    }
    world.address_comes(&daemon);
    world.failed_syncs_lose_nothing(&stubs, &daemon);
    let deleted = world.sum(DELETED);
    // Eight flows, in each of: first endpoint, endpoint gone, last one gone, failed sync.
    assert!(deleted >= 32.0, "only {deleted} deletions are counted");
    daemon = world.restart_changes_nothing(daemon);
    for step in &after {
        world.go(step, &daemon);
    }
    assert_eq!(world.of_others(), others, "{}", daemon.log());
}
