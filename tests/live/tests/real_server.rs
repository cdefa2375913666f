//! The daemon at a real API server: rules follow its objects, are upstream's, and outlast its absence.
//!
//! See [`live::server`] for what the environment must offer.

use lab::live::{available, prefix};
use lab::{Lab, LabProcess, Node, Topology};
use live::daemon::{binary, configuration};
use live::rules::{differences_in_words, saved};
use live::server::{Relay, Server, Slice, Wander, node, offered, service};
use live::{within, within_or};
use model::Family;
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The node that both proxies serve, each in a namespace of its own.
const NODE: &str = "node-a";
const OURS: &str = "ours";
const UPSTREAMS: &str = "upstreams";
const PATIENCE: Duration = Duration::from_secs(20);
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// There is one server for all.
static SERVER: Mutex<()> = Mutex::new(());

/// Two machines on loopback's way to an empty server.
struct Stage {
    server: Server,
    lab: Lab,
    relays: Vec<Relay>,
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Stage {
    /// `None` after saying why, if there is no server.
    fn set(stem: &str) -> Option<Stage> {
        if !available(&["iptables", "curl"]) {
            return None;
        }
        let alone = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
        let server = Server::offered()?;
        server.sweep();
        server.create(&node(NODE));
        let addresses = [("InternalIP", "192.0.2.10"), ("InternalIP", "2001:db8::10")]
            .map(|(kind, address)| json!({"type": kind, "address": address}));
        let status = json!({"status": {"addresses": addresses}});
        server.must("PATCH", &format!("/api/v1/nodes/{NODE}/status"), Some(&status));
        let topology = Topology {
            nodes: [
                (OURS, "192.0.2.10/24", "2001:db8::10/64"),
                (UPSTREAMS, "192.0.2.11/24", "2001:db8::11/64"),
            ]
            .map(|(name, four, six)| Node {
                name: name.to_owned(),
                addresses: [four, six].map(|text| text.parse().expect("a network")).to_vec(),
                pod_cidrs: vec![],
                interfaces: vec![],
            })
            .to_vec(),
            ..Topology::new(&prefix(stem))
        };
        let lab = Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()));
        let relays = [OURS, UPSTREAMS]
            .map(|place| Relay::open(&lab, place, server.port()))
            .into();
        let folder = tempfile::tempdir().expect("a scratch folder can be made");
        Some(Stage {
            server,
            lab,
            relays,
            folder,
            _alone: alone,
        })
    }

    fn start(&self, place: &str, program: &str, kubeconfig: &str) -> LabProcess {
        let config = configuration(&json!({
            "mode": "iptables",
            "hostnameOverride": NODE,
            "clusterCIDR": "10.244.0.0/16,fd00:10:244::/56",
            "clientConnection": {"kubeconfig": kubeconfig},
            "iptables": {"minSyncPeriod": "10ms", "syncPeriod": "30s"},
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }));
        let file = self.folder.path().join(format!("{place}.json"));
        fs::write(&file, config.to_string()).expect("the scratch folder can be written to");
        let argv = ["env", "NO_COLOR=1", program, "--config", &file.to_string_lossy()];
        let process = self
            .lab
            .spawn(place, &argv, &format!("{place}-{}", kubeconfig.len()));
        process.unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    fn start_ours(&self) -> LabProcess {
        self.start(OURS, &binary().to_string_lossy(), &self.server.kubeconfig)
    }

    /// Waits until our rules of both families are so.
    #[track_caller]
    fn both(&self, what: &str, log: &LabProcess, is_so: impl Fn(&str, Family) -> bool) {
        for family in FAMILIES {
            let reached = within(PATIENCE, || is_so(&saved(&self.lab, OURS, family), family));
            let now = || saved(&self.lab, OURS, family);
            assert!(
                reached.is_some(),
                "{family}: {what}; but\n{}\n{}",
                now(),
                log.log()
            );
        }
    }

    /// Gives service `s` so many endpoints.
    fn scale(&self, count: usize) {
        for family in ["IPv4", "IPv6"] {
            let slice = Slice::ready("s", family, count, NODE);
            self.server.patch(
                "EndpointSlice",
                &slice.name(),
                &json!({"endpoints": slice.endpoints}),
            );
        }
    }

    fn saved(&self, place: &str) -> [String; 2] {
        FAMILIES.map(|family| without_chatter(&saved(&self.lab, place, family)))
    }
}

/// Without the tool's comments, which have the time in them, and without counters.
fn without_chatter(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.split(" [").next().unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n")
}

/// How many lines have all these words.
fn count(text: &str, words: &[&str]) -> usize {
    text.lines()
        .filter(|line| words.iter().all(|word| line.contains(word)))
        .count()
}

fn endpoints(text: &str) -> usize {
    count(text, &["default/s:p", "--to-destination"])
}

/// The service becomes a load balancer with source ranges, of policy Local and then of policy Cluster.
fn balance(stage: &Stage, ours: &LabProcess) {
    let server = &stage.server;
    let lb =
        json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["198.51.100.0/24", "2001:db8:99::/64"]});
    server.patch("Service", "s", &json!({"spec": lb}));
    server.patch(
        "Service",
        "s",
        &json!({"spec": {"externalTrafficPolicy": "Local"}}),
    );
    stage.both("policy Local has a chain of local endpoints", ours, |text, _| {
        text.contains(":KUBE-SVL-")
    });
    let ingress =
        json!({"status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.5"}, {"ip": "2001:db8:5::5"}]}}});
    server.must(
        "PATCH",
        "/api/v1/namespaces/default/services/s/status",
        Some(&ingress),
    );
    stage.both("a firewall lets the source ranges in", ours, |text, family| {
        let (to, from) = match family {
            Family::V4 => ("-d 203.0.113.5/32", "-s 198.51.100.0/24"),
            Family::V6 => ("-d 2001:db8:5::5/128", "-s 2001:db8:99::/64"),
        };
        count(text, &[to, "KUBE-FW-"]) >= 1 && count(text, &["-A KUBE-FW-", from]) == 1
    });
    server.patch(
        "Service",
        "s",
        &json!({"spec": {"externalTrafficPolicy": "Cluster"}}),
    );
    stage.both("policy Cluster has no such chain", ours, |text, _| {
        !text.contains(":KUBE-SVL-")
    });
}

#[test]
fn rules_follow_a_service_of_a_real_server_from_its_creation_to_its_end() {
    let Some(stage) = Stage::set("follow") else { return };
    let (server, ours) = (&stage.server, stage.start_ours());
    server.create(&service("s", &json!({})));
    stage.both("a service without endpoints is refused", &ours, |text, _| {
        count(text, &["default/s:p has no endpoints", "REJECT"]) == 1
    });
    for family in ["IPv4", "IPv6"] {
        server.create(&Slice::ready("s", family, 0, NODE).object());
    }
    for size in [3, 1, 0, 3] {
        stage.scale(size);
        let refused = usize::from(size == 0);
        stage.both(&format!("{size} endpoints"), &ours, |text, _| {
            endpoints(text) == size && count(text, &["default/s:p has no endpoints"]) == refused
        });
    }
    balance(&stage, &ours);
    let affine =
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 77}}});
    server.patch("Service", "s", &json!({"spec": affine}));
    stage.both("clients are remembered for their time", &ours, |text, _| {
        count(text, &["--rcheck", "--seconds 77"]) == 3
    });
    server.delete("Service", "s");
    stage.both("nothing is left of a deleted service", &ours, |text, _| {
        !text.contains("default/s:p")
    });
    for _ in 0..5 {
        server.create(&service("s", &json!({})));
        server.delete("Service", "s");
    }
    server.create(&service("s", &json!({})));
    stage.both(
        "a service deleted and created again quickly is there",
        &ours,
        |text, _| endpoints(text) == 3,
    );
}

#[test]
fn two_hundred_random_changes_end_in_upstreams_rules() {
    let Some(stage) = Stage::set("wander") else { return };
    let Some(upstream) = offered("KPRS_UPSTREAM_KUBE_PROXY") else {
        return;
    };
    let seed = std::env::var("KPRS_SEED").map_or(20_261_201, |seed| seed.parse().expect("a number"));
    let mut wander = Wander::new(&stage.server, NODE, seed);
    let ours = stage.start_ours();
    let theirs = stage.start(UPSTREAMS, &upstream, &stage.server.kubeconfig);
    while wander.steps.len() < 200 {
        wander.step();
        if wander.steps.len() % 50 == 25 {
            same_as_upstreams(&stage, &wander, &[&ours, &theirs]);
        }
    }
    same_as_upstreams(&stage, &wander, &[&ours, &theirs]);
    let rules = saved(&stage.lab, OURS, Family::V4);
    assert!(
        count(&rules, &["default/w-", "--to-destination"]) > 10,
        "hardly any endpoints:\n{rules}"
    );
}

/// Waits until both proxies have the same rules; one of them may be behind, or sweep later.
fn same_as_upstreams(stage: &Stage, wander: &Wander<'_>, logs: &[&LabProcess]) {
    let look = || {
        for family in FAMILIES {
            let [want, have] = [UPSTREAMS, OURS].map(|place| saved(&stage.lab, place, family));
            let differences = differences_in_words(&want, &have, family);
            if !differences.is_empty() {
                return Err(format!("{family}:\n{differences}"));
            }
        }
        Ok(())
    };
    // Upstream drops chains of endpoints that are gone in its next full sync only.
    let same = within_or(Duration::from_secs(45), look);
    let logs = || logs.iter().map(|process| process.log()).collect::<String>();
    same.unwrap_or_else(|wrong| panic!("{wrong}\nafter:\n{}\n{}", wander.steps.join("\n"), logs()));
    println!("same rules after {} changes", wander.steps.len());
}

/// Stops or starts the server itself if that is offered; else only the way to it ends.
fn control(stage: &mut Stage, verb: &str) {
    match offered("KPRS_APISERVER_CONTROL") {
        Some(command) => {
            let status = Command::new(&command).arg(verb).status();
            assert!(status.is_ok_and(|status| status.success()), "{command} {verb}");
        }
        None if verb == "stop" => stage.relays.iter_mut().for_each(Relay::cut),
        None => stage.relays.iter_mut().for_each(Relay::restore),
    }
}

/// Lines that say that the server is away.
fn away(process: &LabProcess) -> usize {
    count(
        &process.log(),
        &["API server https://127.0.0.1:", "does not answer", "check that"],
    )
}

#[test]
fn rules_outlast_the_server_and_a_restart_without_it() {
    let Some(mut stage) = Stage::set("away") else {
        return;
    };
    let mut ours = stage.start_ours();
    stage.server.create(&service("s", &json!({})));
    for family in ["IPv4", "IPv6"] {
        stage.server.create(&Slice::ready("s", family, 3, NODE).object());
    }
    stage.both("three endpoints", &ours, |text, _| endpoints(text) == 3);
    let before = stage.saved(OURS);

    control(&mut stage, "stop");
    stays(&stage, &before, "while the server is away");
    assert!((1..=4).contains(&away(&ours)), "{}", ours.log());
    // What is said of the configuration is no matter of the server.
    let is_error = |line: &&str| line.starts_with('E') && !line.contains("Kube-proxy configuration may be");
    let errors = ours.log().lines().filter(is_error).count();
    assert_eq!(errors, 0, "{}", ours.log());
    ours.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
    let mut ours = stage.start_ours();
    stays(&stage, &before, "after a restart without the server");
    assert!((1..=2).contains(&away(&ours)), "{}", ours.log());
    let ended = ours.ended().unwrap_or_else(|error| panic!("{}", error.chain()));
    assert_eq!(ended, None, "{}", ours.log());

    control(&mut stage, "start");
    stays(&stage, &before, "when the server is back");
    stage.scale(1);
    stage.both("a change right after is heard", &ours, |text, _| {
        endpoints(text) == 1
    });

    // Without a restart in between, too.
    control(&mut stage, "stop");
    thread::sleep(Duration::from_secs(3));
    control(&mut stage, "start");
    stage.scale(2);
    stage.both("and again", &ours, |text, _| endpoints(text) == 2);
}

/// The rules are the same for a while, whenever one looks.
#[track_caller]
fn stays(stage: &Stage, before: &[String; 2], when: &str) {
    for _ in 0..30 {
        assert_eq!(&stage.saved(OURS), before, "rules changed {when}");
        thread::sleep(Duration::from_millis(100));
    }
}

/// What `deploy/rbac.yaml` makes; the role's rules are handed over.
fn deploy_rights(server: &Server) -> Value {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac.yaml");
    let text = fs::read_to_string(root).expect("deploy/rbac.yaml is there");
    server.apply_yaml(&text);
    let role = server.must(
        "GET",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/kube-proxy-rs",
        None,
    );
    role["rules"].clone()
}

#[test]
fn rights_as_deployed_are_enough_and_a_missing_one_is_named() {
    let Some(stage) = Stage::set("rights") else { return };
    let server = &stage.server;
    let rules = deploy_rights(server);
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let account = "/api/v1/namespaces/kube-system/serviceaccounts/kube-proxy-rs/token";
    let token = server.must("POST", account, Some(&request))["status"]["token"].clone();
    let kubeconfig = stage.folder.path().join("kubeconfig");
    fs::write(
        &kubeconfig,
        server.kubeconfig_with(token.as_str().expect("a token")),
    )
    .expect("the scratch folder can be written to");
    let start = || stage.start(OURS, &binary().to_string_lossy(), &kubeconfig.to_string_lossy());

    server.create(&service("s", &json!({})));
    let ours = start();
    stage.both("the rights are enough", &ours, |text, _| {
        text.contains("default/s:p")
    });
    assert_eq!(count(&ours.log(), &["403"]), 0, "{}", ours.log());
    drop(ours);
    for (index, rule) in rules.as_array().expect("rules").iter().enumerate() {
        let resource = rule["resources"][0].as_str().expect("a resource");
        if resource == "events" {
            continue;
        }
        let mut fewer = rules.clone();
        fewer[index]["verbs"] = json!(["list"]);
        server.patch("ClusterRole", "kube-proxy-rs", &json!({"rules": fewer}));
        thread::sleep(Duration::from_secs(1));
        let ours = start();
        let named = || count(&ours.log(), &["403", "cannot watch resource", resource, "grant"]) > 0;
        assert!(within(PATIENCE, named).is_some(), "{resource}:\n{}", ours.log());
        // Once the right is there, it goes on by itself.
        server.patch("ClusterRole", "kube-proxy-rs", &json!({"rules": rules}));
        let kinds = |log: &str| count(log, &["\"watching\" kind="]) >= 4;
        assert!(
            within(PATIENCE, || kinds(&ours.log())).is_some(),
            "{resource}:\n{}",
            ours.log()
        );
    }
}

#[test]
fn the_server_takes_our_events_and_their_series() {
    let Some(stage) = Stage::set("realev") else { return };
    let events = |reason: &str| -> Vec<Value> {
        let path = "/apis/events.k8s.io/v1/namespaces/default/events";
        let list = stage.server.ask("GET", path, None).body;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items
            .into_iter()
            .filter(|event| event["reason"] == reason)
            .collect()
    };
    let before = events("RulesRepaired").len();
    let starts = events("Starting").len();
    let ours = stage.start_ours();
    stage.both("there are jumps", &ours, |rules, _| {
        rules.contains("-A PREROUTING")
    });
    let damage_until = |what: &str, is_told: &dyn Fn() -> bool| {
        let done = stage
            .lab
            .exec(OURS, &["iptables", "-t", "nat", "-D", "PREROUTING", "1"]);
        assert!(
            done.is_ok_and(|done| done.status.success()),
            "{what}: no rule to delete"
        );
        let told = within(PATIENCE, || {
            is_told() && saved(&stage.lab, OURS, Family::V4).contains("-A PREROUTING")
        });
        assert!(
            told.is_some(),
            "{what}: {:#?}\n{}",
            events("RulesRepaired"),
            ours.log()
        );
    };
    damage_until("the first time", &|| events("RulesRepaired").len() == before + 1);
    let series = || {
        events("RulesRepaired")
            .iter()
            .any(|event| event["series"]["count"] == 2)
    };
    damage_until("the second time", &series);
    assert_eq!(events("RulesRepaired").len(), before + 1);
    let is_ours =
        |event: &Value| event["reportingController"] == "kube-proxy" && event["regarding"]["name"] == NODE;
    assert!(
        events("RulesRepaired").iter().all(is_ours),
        "{:#?}",
        events("RulesRepaired")
    );
    assert_eq!(events("Starting").len(), starts + 1);
}
