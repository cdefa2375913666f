//! A node that starts while the API server is away serves what the server said to an earlier process.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use lab::{Lab, LabProcess, seed};
use live::cluster::{self, CLIENT, NODE, PODS, WEB, crowd, endpoints, tcp, web};
use live::daemon::{binary, configuration};
use live::manifests::{node, service};
use live::small_server::SmallServer;
use live::traffic::{commits, settled, watch};
use live::{rules, told, within};
use model::Family;
use serde_json::{Value, json};
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A busy machine, and up to ten seconds until the file is looked at again.
const PATIENCE: Duration = Duration::from_mins(1);
const PORT: u16 = 16443;

/// A node, its API server, and scratch room.
struct Stage {
    server: SmallServer,
    scratch: tempfile::TempDir,
    lab: Lab,
}

impl Stage {
    /// With a server that has these objects and answers.
    fn set(stem: &str, objects: &[Value]) -> Stage {
        let lab = cluster::up(stem);
        let mut server = SmallServer::away(&lab, NODE, PORT, objects);
        server.comes();
        Stage {
            server,
            scratch: tempfile::tempdir().unwrap(),
            lab,
        }
    }

    fn folder(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    fn file(&self) -> PathBuf {
        self.folder().join("objects")
    }

    fn start(&self) -> LabProcess {
        self.start_with("ours", &[], NODE, &["--state-dir", &words(&self.folder())])
    }

    fn start_with(&self, name: &str, before: &[&str], node: &str, flags: &[&str]) -> LabProcess {
        let config = configuration(&json!({
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        }));
        // A file for each: one that is written anew under a process that runs makes it end.
        let file = self.scratch.path().join(format!("{name}.json"));
        fs::write(&file, config.to_string()).unwrap();
        let (program, file, url) = (words(binary()), words(&file), self.server.url());
        let mut argv = before.to_vec();
        argv.extend([
            "env",
            "NO_COLOR=1",
            &program,
            "--config",
            &file,
            "--hostname-override",
            node,
        ]);
        argv.extend(["--master", &url]);
        argv.extend(flags);
        self.lab
            .spawn(NODE, &argv, name)
            .unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// Lets a process live until its rules and its memory are written, and kills it.
    fn live_once(&self) {
        let mut process = self.start_with("earlier", &[], NODE, &["--state-dir", &words(&self.folder())]);
        says(&process, "the remembered state is written");
        self.web_answers(&process);
        process.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// The node boots again: no rule is left.
    fn reboots(&self) {
        self.must(&["nft", "flush", "ruleset"]);
    }

    fn must(&self, argv: &[&str]) -> String {
        self.lab
            .must_exec(NODE, argv)
            .unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    fn rules(&self) -> String {
        rules::saved(&self.lab, NODE, Family::V4)
    }

    #[track_caller]
    fn rules_say(&self, text: &str, process: &LabProcess) {
        let found = within(PATIENCE, || self.rules().contains(text));
        assert!(found.is_some(), "no rule says {text}:\n{}", process.log());
    }

    #[track_caller]
    fn web_answers(&self, process: &LabProcess) {
        let answered = within(PATIENCE, || {
            let outcome = self
                .lab
                .probe(CLIENT, tcp(WEB).within(Duration::from_millis(500)));
            let outcome = outcome.unwrap_or_else(|error| panic!("{}", error.chain()));
            outcome
                .answered_by()
                .is_some_and(|name| PODS.iter().any(|(pod, _, _)| *pod == name))
        });
        assert!(answered.is_some(), "web does not answer:\n{}", process.log());
    }

    /// A page of the process: status and body.
    fn page(&self, port: u16, path: &str) -> (u16, String) {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let answer = self.lab.http_get(NODE, at, path, Duration::from_secs(5));
        answer.map_or((0, String::new()), |answer| (answer.status, answer.body))
    }

    fn livez(&self) -> Value {
        serde_json::from_str(&self.page(10256, "/livez?verbose").1).unwrap_or_default()
    }

    fn has_metric(&self, line: &str) -> bool {
        self.page(10249, "/metrics").1.lines().any(|of| of == line)
    }
}

fn words(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[track_caller]
fn says(process: &LabProcess, text: &str) {
    told(PATIENCE, || process.log(), text);
}

#[test]
fn a_node_that_boots_without_the_server_serves_what_was_remembered_until_the_server_answers() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let mut stage = Stage::set("state", &web(2));
    stage.live_once();
    stage.server.goes();
    stage.reboots();

    let process = stage.start();
    stage.web_answers(&process);
    says(
        &process,
        "what it said to an earlier process counts until it does",
    );
    let in_use = within(PATIENCE, || stage.page(10256, "/healthz").0 == 200);
    assert!(in_use.is_some(), "the remembered Node counts: {}", process.log());
    let age = stage.livez()["detail"]["rememberedState"]["ageSeconds"].clone();
    assert!(age.as_f64().is_some_and(|age| age > 0.0), "{age}");
    assert!(stage.has_metric("kubeproxy_rs_remembered_state_in_use 1"));
    assert!(
        stage
            .page(10249, "/metrics")
            .1
            .contains("\nkubeproxy_rs_remembered_state_age_seconds ")
    );

    // Meanwhile things have changed.
    let mut objects = web(4);
    objects.extend(crowd(1));
    stage.server.has(&objects);
    stage.server.comes();
    says(&process, "nothing remembered counts any more");
    stage.rules_say("default/crowd-0", &process);
    stage.rules_say("10.244.2.7:8080", &process);
    assert!(stage.has_metric("kubeproxy_rs_remembered_state_in_use 0"));
    assert_eq!(stage.livez()["detail"]["rememberedState"], Value::Null);
    stage.web_answers(&process);
}

/// A folder with a file of no use in it, who asks for it, and the reason that is given.
struct Useless {
    folder: PathBuf,
    node: &'static str,
    flags: &'static [&'static str],
    reason: &'static str,
}

impl Useless {
    fn new(folder: PathBuf, reason: &'static str) -> Useless {
        Useless {
            folder,
            node: NODE,
            flags: &[],
            reason,
        }
    }

    fn start(&self, stage: &Stage) -> LabProcess {
        let folder = words(&self.folder);
        let flags = [&["--state-dir", &folder][..], self.flags].concat();
        let name = words(Path::new(self.folder.file_name().unwrap()));
        stage.start_with(&name, &[], self.node, &flags)
    }
}

/// Every kind of them, the first one damaged.
fn useless(stage: &Stage) -> Vec<Useless> {
    let good = fs::read(stage.file()).unwrap();
    let folder = |name: &str, bytes: &[u8]| {
        let folder = stage.scratch.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
        fs::write(folder.join("objects"), bytes).unwrap();
        fs::set_permissions(folder.join("objects"), Permissions::from_mode(0o600)).unwrap();
        folder
    };
    let mut damaged = good.clone();
    damaged[good.len() / 2] ^= 1;
    let link = folder("link", &good);
    fs::remove_file(link.join("objects")).unwrap();
    symlink(stage.file(), link.join("objects")).unwrap();
    let open = folder("open", &good);
    fs::set_permissions(open.join("objects"), Permissions::from_mode(0o666)).unwrap();
    vec![
        Useless::new(folder("damaged", &damaged), "its checksum is not right"),
        Useless::new(link, "is a symbolic link"),
        Useless::new(open, "can be written to by others"),
        Useless {
            node: seed::NODE_B,
            ..Useless::new(folder("other", &good), "belongs to node")
        },
        Useless {
            flags: &["--state-max-age", "1ms"],
            ..Useless::new(folder("old", &good), "longer ago than --state-max-age")
        },
        Useless {
            flags: &["--master", "http://127.0.0.1:16444"],
            ..Useless::new(folder("moved", &good), "belongs to another cluster")
        },
    ]
}

#[test]
fn a_file_of_no_use_is_named_with_the_reason_and_no_rule_is_made_of_it() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let mut stage = Stage::set("statebad", &web(2));
    stage.live_once();
    stage.server.goes();
    stage.reboots();
    // All at once: none of them writes anything.
    let cases = useless(&stage);
    let mut processes: Vec<LabProcess> = cases.iter().map(|of| of.start(&stage)).collect();
    for (of, process) in cases.iter().zip(&processes) {
        says(process, of.reason);
        let log = process.log();
        let lines: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("state is not used"))
            .collect();
        assert_eq!(lines.len(), 1, "told once:\n{log}");
        let line = lines[0];
        assert!(
            line.starts_with('W') && line.contains(&words(&of.folder)),
            "{line}"
        );
        assert!(!log.contains("counts until it does"), "{log}");
    }
    assert!(!stage.rules().contains("KUBE-SVC"), "{}", stage.rules());

    // And each still waits for the server.
    processes.truncate(1);
    stage.server.comes();
    stage.web_answers(&processes[0]);
}

#[test]
fn rules_that_are_there_are_left_alone_and_the_file_counts_once_they_are_lost() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let mut stage = Stage::set("statelit", &web(2));
    stage.live_once();
    // The rules are newer than the file.
    let mut objects = web(4);
    objects.extend(crowd(1));
    stage.server.has(&objects);
    let mut process = stage.start_with("newer", &[], NODE, &[]);
    stage.rules_say("default/crowd-0", &process);
    process.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
    stage.server.goes();
    let mut watch = watch(&stage.lab);
    settled(&mut watch);
    let before = stage.rules();

    let process = stage.start();
    says(&process, "they stay as they are until the API server answers");
    let written = commits(&mut watch);
    assert!(written.is_empty(), "{written:?}\n{}", process.log());
    assert!(stage.rules().contains("default/crowd-0") && before.contains("default/crowd-0"));

    stage.reboots();
    says(
        &process,
        "what it said to an earlier process counts until it does",
    );
    stage.web_answers(&process);
    assert!(!stage.rules().contains("default/crowd-0"));
    stage.server.comes();
    stage.rules_say("default/crowd-0", &process);
}

#[test]
fn killed_while_it_makes_rules_of_the_file_its_successor_ends_the_work() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let mut objects = web(2);
    objects.extend(crowd(500));
    let mut stage = Stage::set("statekill", &objects);
    stage.live_once();
    stage.server.goes();
    stage.reboots();
    let there = || {
        let is_theirs = |line: &&str| line.starts_with("-A KUBE-SERVICES") && line.contains("default/crowd-");
        stage.rules().lines().filter(is_theirs).count()
    };
    let mut process = stage.start();
    assert!(
        within(PATIENCE, || there() > 0).is_some(),
        "no rules:\n{}",
        process.log()
    );
    process.kill().unwrap_or_else(|error| panic!("{}", error.chain()));
    println!("killed with {} of 500", there());

    let process = stage.start();
    says(
        &process,
        "what it said to an earlier process counts until it does",
    );
    let complete = within(PATIENCE, || there() == 500);
    assert!(complete.is_some(), "{} of 500:\n{}", there(), process.log());
    stage.web_answers(&process);
}

#[test]
fn a_folder_that_cannot_be_written_is_read_and_holds_up_nothing() {
    if !available(&["iptables", "nft", "unshare"]) {
        return;
    }
    let mut stage = Stage::set("statero", &web(2));
    stage.live_once();
    stage.server.goes();
    stage.reboots();
    let folder = words(&stage.folder());
    let read_only = format!(
        "mount --make-rprivate / && mount --bind {folder} {folder} && mount -o remount,ro,bind {folder} && exec \"$@\""
    );
    let before = ["unshare", "-m", "sh", "-c", &read_only, "sh"];
    let process = stage.start_with("ours", &before, NODE, &["--state-dir", &folder]);
    stage.web_answers(&process);
    says(
        &process,
        "what it said to an earlier process counts until it does",
    );

    let mut objects = web(4);
    objects.extend(crowd(1));
    stage.server.has(&objects);
    stage.server.comes();
    says(
        &process,
        "the remembered state cannot be written, serving goes on",
    );
    stage.rules_say("default/crowd-0", &process);
    assert!(stage.has_metric("kubeproxy_rs_remembered_state_write_failing 1"));
    stage.web_answers(&process);
}

const DNS: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 1, 0, 53), 53);

/// Service `dns` in front of this pod of the node.
fn dns(pod: &str) -> Vec<Value> {
    let mut service = service("dns", "10.1.0.53", 53, 53);
    service["spec"]["ports"][0]["protocol"] = "UDP".into();
    let mut slice = endpoints("dns", 1);
    slice["ports"][0] = json!({"name": "p", "protocol": "UDP", "port": 53});
    slice["endpoints"] = json!([{"addresses": [pod], "nodeName": NODE}]);
    vec![node(NODE, &["192.168.50.238"]), service, slice]
}

/// A socket of the client's that keeps its port.
fn udp_client(stage: &Stage) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        socket
    };
    let opened = stage
        .lab
        .namespace(CLIENT)
        .and_then(|namespace| namespace.run(open));
    opened.unwrap_or_else(|error| panic!("{}", error.chain()))
}

#[test]
fn no_flow_is_deleted_on_the_strength_of_remembered_objects() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let mut stage = Stage::set("stateudp", &dns("10.244.1.4"));
    let earlier = stage.start();
    says(&earlier, "the remembered state is written");
    drop(earlier);
    stage.server.goes();
    stage.reboots();
    // A flow to a pod that the remembered slices do not have: made by hand, as an earlier truth would have been.
    let rule = |verb: &str| -> String {
        let words = format!(
            "iptables -t nat {verb} PREROUTING -d 10.1.0.53 -p udp -j DNAT --to-destination 10.244.1.2:53"
        );
        let argv: Vec<&str> = words.split(' ').collect();
        stage.must(&argv)
    };
    rule("-A");
    let client = udp_client(&stage);
    let ask = || -> String {
        let mut answer = [0; 512];
        // A refusal is told by the next call.
        let sent = client.send_to(b"who", DNS);
        let count = sent
            .and_then(|_| lab::live::recv(&client, &mut answer))
            .unwrap_or(0);
        String::from_utf8_lossy(&answer[..count]).into_owned()
    };
    assert!(within(PATIENCE, || ask().contains("kube-dns-a1")).is_some());
    rule("-D");

    let process = stage.start();
    stage.rules_say("10.244.1.4:53", &process);
    says(&process, "rules are in sync");
    for _ in 0..30 {
        assert!(
            !ask().contains("kube-dns-a2"),
            "the flow was deleted:\n{}",
            process.log()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(!process.log().contains("stale connections"), "{}", process.log());

    // The server says the same, and now it counts.
    stage.server.comes();
    let followed = within(PATIENCE, || ask().contains("kube-dns-a2"));
    assert!(
        followed.is_some(),
        "the flow is never deleted:\n{}",
        process.log()
    );
    // The line comes after the deletion, and the client may be faster.
    says(&process, "stale connections deleted");
}
