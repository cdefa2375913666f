//! What both proxies expose in one cluster while it changes: the same series, the same ones move, and those that count
//! things move by the same amount.
//!
//! See [`live::server`] for what the environment must offer. What both exposed once is kept in `scenarios/metrics`, and
//! compared again without a server; `KPRS_BLESS` writes it anew.

use lab::live::{available, prefix};
use lab::{Lab, LabProcess, Node, Topology};
use live::daemon::{binary, configuration};
use live::exposition::{Pair, differences, parse};
use live::rules::{differences_in_words, saved};
use live::server::{Relay, Server, Slice, node, offered, service};
use live::within_or;
use model::Family;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

const NODE: &str = "node-a";
const OURS: &str = "ours";
const UPSTREAMS: &str = "upstreams";
const PATIENCE: Duration = Duration::from_mins(1);
/// Both take in a change before the next one: changes that come together are counted by how they come.
const BETWEEN: Duration = Duration::from_millis(700);

fn kept(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/metrics")).join(name)
}

#[test]
fn what_was_exposed_beside_upstream_is_the_same() {
    let read = |name: &str| {
        let text = fs::read_to_string(kept(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        parse(&text)
    };
    let [upstreams, ours] = ["upstream", "ours"].map(|who| Pair {
        before: read(&format!("{who}-before.txt")),
        after: read(&format!("{who}-after.txt")),
    });
    assert!(upstreams.after.len() > 40, "hardly anything was kept");
    assert_eq!(differences(&upstreams, &ours), [""; 0]);
}

#[test]
fn twenty_changes_move_the_same_series_by_the_same_amount() {
    if !available(&["iptables", "curl"]) {
        return;
    }
    let (Some(server), Some(upstream)) = (Server::offered(), offered("KPRS_UPSTREAM_KUBE_PROXY")) else {
        return;
    };
    let stage = Stage::set(server, &upstream);
    stage.settle();
    let before = stage.scrape();
    twenty_changes(&stage);
    stage.settle();
    let after = stage.scrape();
    let pairs = [0, 1].map(|who| Pair {
        before: parse(&before[who]),
        after: parse(&after[who]),
    });
    if std::env::var_os("KPRS_BLESS").is_some_and(|value| !value.is_empty()) {
        keep(&before, &after);
    }
    let [upstreams, ours] = &pairs;
    let moved = moved(upstreams);
    assert!(moved > 20, "hardly anything moved: {moved}");
    let found = differences(upstreams, ours);
    assert!(
        found.is_empty(),
        "{}\n{}{}",
        found.join("\n"),
        stage.theirs.log(),
        stage.ours.log()
    );
    println!(
        "{} families, of which {moved} series moved in both",
        upstreams.after.len()
    );
}

/// How many of upstream's own series moved.
fn moved(pair: &Pair) -> usize {
    let own = |name: &&String| name.starts_with("kubeproxy_");
    let count = |name: &String| {
        let before = pair.before.get(name).map(|family| &family.series);
        let series = pair.after[name].series.iter();
        series
            .filter(|(labels, now)| before.and_then(|before| before.get(*labels)) != Some(now))
            .count()
    };
    pair.after.keys().filter(own).map(count).sum()
}

/// Writes what is to be kept: nothing of Go's runtime and of linked packages, which no test looks at.
fn keep(before: &[String; 2], after: &[String; 2]) {
    fs::create_dir_all(kept("")).expect("scenarios can be written");
    for (when, texts) in [("before", before), ("after", after)] {
        for (who, text) in ["upstream", "ours"].into_iter().zip(texts) {
            let lines = text.lines().filter(|line| {
                let name = line.trim_start_matches("# HELP ").trim_start_matches("# TYPE ");
                let other = [
                    "go_",
                    "apiserver_",
                    "aggregator_",
                    "kubeproxy_rs_",
                    "authen",
                    "author",
                    "workqueue_",
                ];
                !other.iter().any(|start| name.starts_with(start))
            });
            let text: String = lines.flat_map(|line| [line, "\n"]).collect();
            fs::write(kept(&format!("{who}-{when}.txt")), text).expect("scenarios can be written");
        }
    }
}

/// Both proxies of one node, each in a namespace of its own.
struct Stage {
    theirs: LabProcess,
    ours: LabProcess,
    server: Server,
    _relays: [Relay; 2],
    lab: Lab,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn set(server: Server, upstream: &str) -> Stage {
        server.sweep();
        server.create(&node(NODE));
        let addresses = [("InternalIP", "192.0.2.10"), ("InternalIP", "2001:db8::10")]
            .map(|(kind, address)| json!({"type": kind, "address": address}));
        let status = json!({"status": {"addresses": addresses}});
        server.must("PATCH", &format!("/api/v1/nodes/{NODE}/status"), Some(&status));
        server.create(&service("first", &json!({})));
        let places = [
            (UPSTREAMS, "192.0.2.11/24", "2001:db8::11/64"),
            (OURS, "192.0.2.10/24", "2001:db8::10/64"),
        ];
        let topology = Topology {
            nodes: places
                .map(|(name, four, six)| Node {
                    name: name.to_owned(),
                    addresses: [four, six].map(|text| text.parse().expect("a network")).to_vec(),
                    pod_cidrs: vec![],
                    interfaces: vec![],
                })
                .to_vec(),
            ..Topology::new(&prefix("metrics"))
        };
        let lab = Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()));
        let relays = [UPSTREAMS, OURS].map(|place| Relay::open(&lab, place, server.port()));
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        let file = folder.path().join("config.json");
        let config = configuration(&json!({
            "mode": "iptables",
            "hostnameOverride": NODE,
            "clusterCIDR": "10.244.0.0/16,fd00:10:244::/56",
            "clientConnection": {"kubeconfig": server.kubeconfig},
            "iptables": {"minSyncPeriod": "10ms", "syncPeriod": "30s"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }));
        fs::write(&file, config.to_string()).expect("the scratch folder can be written to");
        let start = |place: &str, program: &str| {
            let argv = ["env", "NO_COLOR=1", program, "--config", &file.to_string_lossy()];
            let process = lab.spawn(place, &argv, place);
            process.unwrap_or_else(|error| panic!("{}", error.chain()))
        };
        Stage {
            theirs: start(UPSTREAMS, upstream),
            ours: start(OURS, &binary().to_string_lossy()),
            server,
            _relays: relays,
            lab,
            _folder: folder,
        }
    }

    /// Waits until both have the same rules, and then a little: conntrack is gone through after that.
    fn settle(&self) {
        let look = || {
            for family in [Family::V4, Family::V6] {
                let [want, have] = [UPSTREAMS, OURS].map(|place| saved(&self.lab, place, family));
                let differences = differences_in_words(&want, &have, family);
                if want.len() < 500 || !differences.is_empty() {
                    return Err(format!("{family}:\n{differences}"));
                }
            }
            Ok(())
        };
        let same = within_or(PATIENCE, look);
        let logs = || format!("{}{}", self.theirs.log(), self.ours.log());
        same.unwrap_or_else(|wrong| panic!("{wrong}\n{}", logs()));
        thread::sleep(Duration::from_secs(3));
    }

    fn get(&self, place: &str, page: &str) -> String {
        let url = format!("http://127.0.0.1:{page}");
        let got = self.lab.must_exec(place, &["curl", "-s", "-m", "10", &url]);
        got.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// What both expose now, upstream's first, `/metrics/slis` included.
    fn scrape(&self) -> [String; 2] {
        [UPSTREAMS, OURS].map(|place| {
            let slis = self.get(place, "10249/metrics/slis");
            // Its start time is on the other page too.
            let checks = slis.lines().filter(|line| !line.contains("process_start_time"));
            let checks: String = checks.flat_map(|line| [line, "\n"]).collect();
            self.get(place, "10249/metrics") + &checks
        })
    }

    fn probe(&self, pages: &[&str]) {
        for place in [UPSTREAMS, OURS] {
            for page in pages {
                self.get(place, page);
            }
        }
    }

    fn merge(&self, kind: &str, name: &str, change: &Value) {
        self.server.patch(kind, name, change);
        thread::sleep(BETWEEN);
    }

    fn make(&self, object: &Value) {
        self.server.create(object);
        thread::sleep(BETWEEN);
    }

    fn unmake(&self, kind: &str, name: &str) {
        self.server.delete(kind, name);
        thread::sleep(BETWEEN);
    }
}

/// A slice as the endpoint-slice controller writes it: with the time of what led to it.
fn triggered(mut slice: Value) -> Value {
    slice["metadata"]["annotations"] = json!({"endpoints.kubernetes.io/last-change-trigger-time": now()});
    slice
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

fn endpoints(stage: &Stage, service: &str, family: &str, count: usize) {
    let slice = Slice::ready(service, family, count, NODE);
    let change = json!({
        "metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": now()}},
        "endpoints": slice.endpoints,
    });
    stage.merge("EndpointSlice", &slice.name(), &change);
}

fn twenty_changes(stage: &Stage) {
    first_twelve(stage);
    last_eight(stage);
    // Both answer for their health.
    let pages = [
        "10256/healthz",
        "10256/healthz",
        "10256/livez",
        "10249/healthz",
        "10249/healthz?verbose",
    ];
    stage.probe(&pages);
}

fn first_twelve(stage: &Stage) {
    // 1 to 4: a service, its slices, and one more endpoint.
    stage.make(&service("web", &json!({})));
    stage.make(&triggered(Slice::ready("web", "IPv4", 2, NODE).object()));
    stage.make(&triggered(Slice::ready("web", "IPv6", 2, NODE).object()));
    endpoints(stage, "web", "IPv4", 3);
    // 5 to 8: node ports, a load balancer of policy Local with its health-check port, and no endpoint on this node.
    stage.merge("Service", "web", &json!({"spec": {"type": "NodePort"}}));
    stage.merge("Service", "web", &json!({"spec": {"type": "LoadBalancer"}}));
    stage.merge(
        "Service",
        "web",
        &json!({"spec": {"externalTrafficPolicy": "Local"}}),
    );
    let elsewhere = json!({
        "metadata": {"annotations": {"endpoints.kubernetes.io/last-change-trigger-time": now()}},
        "endpoints": [{"addresses": ["10.244.1.9"], "nodeName": "elsewhere"}],
    });
    stage.merge("EndpointSlice", "web-v4", &elsewhere);
    // 9 to 12: UDP, with policy Local inside and nothing behind it.
    let udp = json!({"internalTrafficPolicy": "Local",
                     "ports": [{"name": "p", "protocol": "UDP", "port": 53, "targetPort": 5353}]});
    stage.make(&service("dns", &udp));
    let mut slice = Slice::ready("dns", "IPv4", 1, "elsewhere").object();
    slice["ports"] = json!([{"name": "p", "protocol": "UDP", "port": 5353}]);
    slice["endpoints"][0]["nodeName"] = json!("elsewhere");
    stage.make(&triggered(slice));
    stage.merge(
        "Service",
        "dns",
        &json!({"spec": {"sessionAffinity": "ClientIP"}}),
    );
    stage.merge(
        "Node",
        NODE,
        &json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "zone-b"}}}),
    );
}

fn last_eight(stage: &Stage) {
    // 13 to 16: a change of nothing that counts, endpoints to none, a slice and a service that go.
    stage.merge(
        "Service",
        "web",
        &json!({"metadata": {"annotations": {"note": "nothing"}}}),
    );
    endpoints(stage, "web", "IPv6", 0);
    stage.unmake("EndpointSlice", "web-v6");
    stage.unmake("Service", "first");
    // 17 to 20: source ranges, external IPs, a service of one family, and slices of a service that is not there.
    stage.merge(
        "Service",
        "web",
        &json!({"spec": {"loadBalancerSourceRanges": ["198.51.100.0/24"]}}),
    );
    stage.merge(
        "Service",
        "web",
        &json!({"spec": {"externalIPs": ["203.0.113.77"]}}),
    );
    stage.make(&service(
        "single",
        &json!({"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}),
    ));
    stage.make(&triggered(Slice::ready("nobody", "IPv4", 1, NODE).object()));
}
