//! How labs begin and end: crashes, labs that outlive their maker, and labs without root.
//!
//! Tests that are ignored here are the other side: they are run as processes by the tests that are not.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::env;
use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Lab, Life, Options, Privilege, Probe, Servers, live, seed};

/// Tells a child the prefix of its lab.
const PREFIX: &str = "KPRS_TEST_LAB_PREFIX";

const SPRING_TEST_B: &str = "10.244.2.3:8080";

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn names_left(prefix: &str) -> usize {
    let names = fs::read_dir("/run/netns").unwrap();
    names
        .filter(|name| {
            name.as_ref()
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .starts_with(&format!("{prefix}-"))
        })
        .count()
}

/// This program again, running one of its ignored tests.
fn child_argv(test: &str) -> Vec<String> {
    let program = env::current_exe().unwrap().to_str().unwrap().to_owned();
    vec![
        program,
        test.to_owned(),
        "--exact".to_owned(),
        "--ignored".to_owned(),
        "--nocapture".to_owned(),
    ]
}

#[track_caller]
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "the child of a_lab_goes_with_an_owner_that_is_killed"]
fn child_holds_a_lab() {
    let lab = Lab::up(&seed::topology(&env::var(PREFIX).unwrap())).unwrap();
    let process = lab.spawn("node-a", &["sleep", "1000"], "sleep").unwrap();
    fs::write(lab.folder().join("pid.tmp"), process.pid().to_string()).unwrap();
    fs::rename(lab.folder().join("pid.tmp"), lab.folder().join("pid")).unwrap();
    thread::sleep(Duration::from_secs(1000));
}

#[test]
fn a_lab_goes_with_an_owner_that_is_killed() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("crash");
    let argv = child_argv("child_holds_a_lab");
    let mut owner = Command::new(&argv[0])
        .args(&argv[1..])
        .env(PREFIX, &prefix)
        .spawn()
        .unwrap();
    let file = Path::new("/run/kube-proxy-lab").join(&prefix).join("pid");
    wait_until("the child's lab is up", || file.exists());
    let process = format!("/proc/{}", fs::read_to_string(&file).unwrap());
    assert_eq!(names_left(&prefix), 12);
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_until("the names go", || names_left(&prefix) == 0);
    wait_until("the files go", || !file.exists());
    wait_until("the process in the node goes", || !Path::new(&process).exists());
}

#[test]
fn a_lab_that_is_up_is_not_destroyed_by_another_of_its_prefix() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("twice");
    let topology = seed::topology(&prefix);
    let lab = Lab::up(&topology).unwrap_or_else(|error| panic!("{}", error.chain()));
    let (status, text) = command_line(&["run", "--prefix", &prefix, "--", "true"]);
    assert!(
        status == 2 && text.contains("its owner still runs"),
        "{status}: {text}"
    );
    let Err(error) = Lab::up(&topology) else {
        panic!("there are two of one prefix")
    };
    assert!(
        error.to_string().contains(&format!("lab {prefix} is up already")),
        "{error}"
    );
    let outcome = lab.probe("sender-a", Probe::tcp(socket(SPRING_TEST_B))).unwrap();
    assert_eq!(outcome.answered_by(), Some("spring-test-b"));
    lab.down().unwrap();
    Lab::up(&topology).unwrap().down().unwrap();
    let lock = Path::new("/run/kube-proxy-lab").join(format!("{prefix}.lock"));
    assert!(!lock.exists());
}

#[test]
#[ignore = "the child of a_detached_lab_serves_from_a_process_until_it_is_swept"]
fn child_serves() {
    let args: Vec<String> = env::args().collect();
    lab::serve::run(&args).unwrap();
}

#[test]
fn a_detached_lab_serves_from_a_process_until_it_is_swept() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("detach");
    // Behind `--` the test harness leaves flags alone.
    let argv = [child_argv("child_serves"), vec!["--".to_owned()]].concat();
    let options = Options {
        servers: Servers::Process(argv),
        life: Life::Detached,
    };
    let lab =
        Lab::up_with(&seed::topology(&prefix), &options).unwrap_or_else(|error| panic!("{}", error.chain()));
    drop(lab);
    assert_eq!(names_left(&prefix), 12);
    let lab = Lab::attach(&prefix).unwrap();
    assert_eq!(lab.topology(), &seed::topology(&prefix));
    let outcome = lab.probe("sender-a", Probe::tcp(socket(SPRING_TEST_B))).unwrap();
    assert_eq!(outcome.answered_by(), Some("spring-test-b"));
    let outcome = lab.probe("sender-a", Probe::udp(socket("10.1.0.10:53"))).unwrap();
    assert_eq!(outcome.answered_by(), Some("sink"));
    drop(lab);
    assert_eq!(lab::sweep(&prefix).unwrap(), 12);
    assert_eq!(names_left(&prefix), 0);
    assert!(Lab::attach(&prefix).is_err());
}

#[test]
#[ignore = "the child of the_command_line_builds_shows_probes_and_removes_a_lab"]
fn child_is_the_command_line() {
    let args: Vec<String> = env::args().skip_while(|arg| arg != "--").skip(1).collect();
    let ourselves = [child_argv("child_is_the_command_line"), vec!["--".to_owned()]].concat();
    std::process::exit(lab::cli::run(&args, &ourselves).into());
}

/// Exit status and output of `kube-proxy lab ARGS`.
fn command_line(args: &[&str]) -> (i32, String) {
    let child = child_argv("child_is_the_command_line");
    let mut command = Command::new(&child[0]);
    command
        .args(&child[1..])
        .arg("--")
        .args(args)
        .stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text.into_owned())
}

#[test]
fn the_command_line_builds_shows_probes_and_removes_a_lab() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("cli");
    let expect = |status: i32, words: &str, args: &[&str]| {
        let (command, rest) = args.split_first().unwrap();
        let args = [&[command, "--prefix", &prefix], rest].concat();
        let (was, text) = command_line(&args);
        assert!(
            was == status && text.contains(words),
            "{args:?} exits with {was}\n{text}"
        );
    };
    expect(2, &format!("lab: there is no lab {prefix}; "), &["show"]);
    expect(2, "there is no lab", &["probe", "sender-a", "tcp", SPRING_TEST_B]);
    expect(0, "kube-dns-a2", &["up"]);
    expect(2, "is up already: remove it with", &["up"]);
    expect(2, "is up already", &["run", "--", "true"]);
    expect(0, "kube-dns-a2", &["show"]);
    expect(
        0,
        "answered by spring-test-b, which saw 10.244.1.7:",
        &["probe", "sender-a", "tcp", SPRING_TEST_B],
    );
    expect(
        0,
        "untouched: sink saw 192.168.50.10:",
        &["probe", "client", "udp", "10.1.0.10:53", "3"],
    );
    expect(1, "refused: Reset", &["probe", "sender-a", "tcp", "10.244.2.3:1"]);
    expect(2, "no place called", &["probe", "nobody", "tcp", "10.244.2.3:1"]);
    expect(0, "12 namespaces removed", &["down"]);
    expect(0, "0 namespaces removed", &["down"]);
    assert_eq!(names_left(&prefix), 0);
}

#[test]
fn a_lab_for_one_command_goes_with_it_and_passes_its_failure_on() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("once");
    let in_node = format!("ip netns exec {prefix}-node-b ip -br addr; echo prefix=$LAB_PREFIX; exit 7");
    let (status, text) = command_line(&["run", "--prefix", &prefix, "--", "sh", "-c", &in_node]);
    assert_eq!(status, 7, "{text}");
    assert!(
        text.contains("10.244.2.1/24") && text.contains(&format!("prefix={prefix}")),
        "{text}"
    );
    assert_eq!(names_left(&prefix), 0);
    for (script, status) in [("exit 0", 0), ("exit 2", 2), ("kill -9 $$", 137)] {
        let run = ["run", "--prefix", &prefix, "--", "sh", "-c", script];
        assert_eq!(command_line(&run).0, status, "{script}");
    }
}

#[test]
fn a_lab_whose_servers_do_not_start_says_what_they_printed_and_is_removed() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("broken");
    let argv = ["sh", "-c", "echo the reason; exit 1", "sh"]
        .map(str::to_owned)
        .to_vec();
    let options = Options {
        servers: Servers::Process(argv),
        life: Life::Owned,
    };
    let Err(error) = Lab::up_with(&seed::topology(&prefix), &options) else {
        panic!("it came up")
    };
    assert!(error.to_string().contains("the reason"), "{error}");
    assert_eq!(names_left(&prefix), 0);
}

#[test]
fn a_proxy_gets_its_flags_its_node_and_a_log() {
    if !live::available(&[]) {
        return;
    }
    let lab = Lab::up(&seed::topology(&live::prefix("proxy"))).unwrap();
    let binary = lab.folder().join("fake-proxy");
    live::put_program(
        &binary,
        b"#!/bin/sh\necho \"$@\"; ip -o -4 addr show dev eth0; exec sleep 1000\n",
    );
    let started = lab.start_proxy(
        "node-b",
        &binary,
        Path::new("/manifests"),
        Path::new("/config.yaml"),
    );
    let mut proxy = started.unwrap();
    assert!(
        proxy
            .wait_for_log("192.168.50.239", Duration::from_secs(10))
            .unwrap(),
        "{}",
        proxy.log()
    );
    let flags = "--manifests /manifests --config /config.yaml --hostname-override node-b\n";
    assert!(proxy.log().starts_with(flags), "{}", proxy.log());
    let pid = proxy.pid();
    drop(proxy);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
#[ignore = "the child of an_unprivileged_user_builds_a_lab_in_a_user_namespace"]
fn child_without_root() {
    match lab::reexec_rootless() {
        Ok(privilege) => assert_eq!(privilege, Privilege::Rootless),
        Err(error) => {
            println!("NOT HERE: {}", error.chain());
            return;
        }
    }
    let lab = Lab::up(&seed::topology("rootless")).unwrap_or_else(|error| panic!("{}", error.chain()));
    assert!(lab.notes().is_empty(), "{:?}", lab.notes());
    let rule = "iptables -t nat -A PREROUTING -p tcp --dport 31080 -j DNAT --to-destination 10.244.1.3:8080";
    lab.must_exec("node-a", &rule.split(' ').collect::<Vec<_>>())
        .unwrap();
    let outcome = lab
        .probe("client", Probe::tcp(socket("192.168.50.238:31080")))
        .unwrap();
    assert_eq!(outcome.answered_by(), Some("spring-test-a"), "{outcome:?}");
    let outcome = lab
        .probe("client", Probe::tcp(socket("192.168.50.238:1")))
        .unwrap();
    assert_eq!(outcome, lab::ProbeOutcome::Refused(lab::Refusal::Reset));
    let outcome = lab.probe("sender-a", Probe::tcp(socket("10.1.0.1:80"))).unwrap();
    assert_eq!(outcome.answered_by(), Some("sink"), "{outcome:?}");
    lab.down().unwrap();
    assert_eq!(names_left("rootless"), 0);
    println!("BUILT WITHOUT ROOT");
}

#[test]
fn an_unprivileged_user_builds_a_lab_in_a_user_namespace() {
    if !live::available(&["setpriv", "unshare", "iptables"]) {
        return;
    }
    // The build folder may be closed to others.
    let folder = env::temp_dir().join(live::prefix("kprs_rootless"));
    fs::create_dir_all(&folder).unwrap();
    let argv = child_argv("child_without_root");
    let program = folder.join("test");
    live::put_program(&program, &fs::read(&argv[0]).unwrap());
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(&program)
        .args(&argv[1..]);
    let output = command.current_dir("/").stdin(Stdio::null()).output().unwrap();
    fs::remove_dir_all(&folder).unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    if let Some((_, why)) = text.split_once("NOT HERE: ") {
        assert!(
            env::var_os("KPRS_REQUIRE_LIVE").is_none(),
            "KPRS_REQUIRE_LIVE is set, but {why}"
        );
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
        return;
    }
    assert!(text.contains("BUILT WITHOUT ROOT"), "{text}");
}
