//! Real packets through labs: what is built is what the topology says, and nothing is left.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use lab::{Lab, Probe, ProbeOutcome, Proto, Refusal, live, seed};

const SHORT: Duration = Duration::from_millis(300);

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn seed_lab(stem: &str) -> Lab {
    Lab::up(&seed::topology(&live::prefix(stem))).unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn iptables(lab: &Lab, node: &str, rule: &str) {
    let argv: Vec<&str> = std::iter::once("iptables").chain(rule.split(' ')).collect();
    lab.must_exec(node, &argv).unwrap();
}

fn names_left(prefix: &str) -> Vec<String> {
    let output = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter(|line| line.starts_with(&format!("{prefix}-")))
        .map(str::to_owned)
        .collect()
}

#[track_caller]
fn assert_answered(outcome: &ProbeOutcome, name: &str, client: &str) {
    assert_eq!(
        (outcome.answered_by(), outcome.seen_client()),
        (Some(name), Some(ip(client))),
        "{outcome:?}"
    );
}

#[test]
fn pods_on_both_nodes_see_each_others_addresses_over_tcp_and_udp() {
    if !live::available(&[]) {
        return;
    }
    let lab = seed_lab("pods");
    let remote = lab
        .probe("sender-a", Probe::tcp(socket("10.244.2.3:8080")))
        .unwrap();
    assert_answered(&remote, "spring-test-b", "10.244.1.7");
    let neighbour = lab
        .probe("sender-a", Probe::tcp(socket("10.244.1.3:8080")))
        .unwrap();
    assert_answered(&neighbour, "spring-test-a", "10.244.1.7");
    let datagram = lab
        .probe("sender-b", Probe::udp(socket("10.244.1.4:53")))
        .unwrap();
    assert_answered(&datagram, "kube-dns-a2", "10.244.2.7");
    let node = lab
        .probe("node-b", Probe::tcp(socket("10.244.1.3:8080")))
        .unwrap();
    assert_answered(&node, "spring-test-a", "192.168.50.239");
}

#[test]
fn a_node_port_by_hand_reaches_pods_and_un_nats_the_answer() {
    if !live::available(&["iptables"]) {
        return;
    }
    let lab = seed_lab("dnat");
    let rule = "-t nat -A PREROUTING -p tcp -d 192.168.50.238 --dport 31080 -j DNAT --to-destination 10.244.1.3:8080";
    iptables(&lab, "node-a", rule);
    let outcome = lab
        .probe("client", Probe::tcp(socket("192.168.50.238:31080")))
        .unwrap();
    assert_answered(&outcome, "spring-test-a", "192.168.50.10");
    let source = Probe::tcp(socket("192.168.50.238:31080"))
        .from(ip("192.168.50.10"))
        .from_port(40_123);
    let ProbeOutcome::Answered { seen_client, .. } = lab.probe("client", source).unwrap() else {
        panic!("no answer");
    };
    assert_eq!(seen_client, socket("192.168.50.10:40123"));
}

#[test]
fn a_pod_reaches_itself_and_its_neighbour_through_a_service_address() {
    if !live::available(&["iptables"]) {
        return;
    }
    let lab = seed_lab("hairpin");
    assert!(lab.notes().is_empty(), "{:?}", lab.notes());
    let dnat =
        |vip: &str, pod: &str| format!("-t nat -A PREROUTING -p tcp -d {vip} -j DNAT --to-destination {pod}");
    iptables(&lab, "node-a", &dnat("10.1.0.1", "10.244.1.3:8080"));
    iptables(
        &lab,
        "node-a",
        "-t nat -A POSTROUTING -s 10.244.1.3 -d 10.244.1.3 -j MASQUERADE",
    );
    // Itself: the packet goes back out of the port it came from, with the bridge's address as its source.
    let itself = lab
        .probe("spring-test-a", Probe::tcp(socket("10.1.0.1:80")))
        .unwrap();
    assert_answered(&itself, "spring-test-a", "10.244.1.1");
    // A neighbour: its answer is bridged, and only bridge-nf-call shows it to the node's NAT.
    let neighbour = lab.probe("sender-a", Probe::tcp(socket("10.1.0.1:80"))).unwrap();
    assert_answered(&neighbour, "spring-test-a", "10.244.1.7");
    lab.must_exec(
        "node-a",
        &["sysctl", "-qw", "net.bridge.bridge-nf-call-iptables=0"],
    )
    .unwrap();
    let unseen = lab
        .probe("sender-a", Probe::tcp(socket("10.1.0.1:80")).within(SHORT))
        .unwrap();
    assert_ne!(unseen.answered_by(), Some("spring-test-a"));
}

#[test]
fn the_sink_answers_for_every_address_and_port_with_the_destination_it_saw() {
    if !live::available(&[]) {
        return;
    }
    let lab = seed_lab("sink");
    for (from, client) in [("sender-a", "10.244.1.7"), ("node-b", "192.168.50.239")] {
        for (proto, dst) in [(Proto::Tcp, "10.1.68.7:8080"), (Proto::Udp, "8.8.8.8:53")] {
            let dst = socket(dst);
            let outcome = lab
                .probe(
                    from,
                    Probe {
                        proto,
                        ..Probe::tcp(dst)
                    },
                )
                .unwrap();
            assert_answered(&outcome, "sink", client);
            assert!(
                matches!(outcome, ProbeOutcome::Answered { seen_destination: Some(seen), .. } if seen == dst),
                "{outcome:?}"
            );
            let seen = lab.take_seen();
            assert_eq!(seen.len(), 1, "{seen:?}");
            assert_eq!(
                (seen[0].proto, seen[0].src.ip(), seen[0].dst),
                (proto, ip(client), dst)
            );
        }
    }
    // The client has a route to the service network through node-a, which passes the packet on untouched.
    let outcome = lab.probe("client", Probe::tcp(socket("10.1.68.7:8080"))).unwrap();
    assert_answered(&outcome, "sink", "192.168.50.10");
}

#[test]
fn refusals_are_told_apart() {
    if !live::available(&["iptables"]) {
        return;
    }
    let lab = seed_lab("refuse");
    iptables(&lab, "node-a", "-A INPUT -p tcp --dport 1001 -j REJECT");
    iptables(&lab, "node-a", "-A INPUT -p udp --dport 1001 -j REJECT");
    iptables(
        &lab,
        "node-a",
        "-A INPUT -p tcp --dport 1002 -j REJECT --reject-with icmp-admin-prohibited",
    );
    iptables(
        &lab,
        "node-a",
        "-A INPUT -p udp --dport 1002 -j REJECT --reject-with icmp-admin-prohibited",
    );
    iptables(&lab, "node-a", "-A INPUT -p tcp --dport 1003 -j DROP");
    iptables(
        &lab,
        "node-a",
        "-A INPUT -p tcp --dport 1004 -j REJECT --reject-with tcp-reset",
    );
    iptables(
        &lab,
        "node-a",
        "-A INPUT -p tcp --dport 1005 -j REJECT --reject-with icmp-host-unreachable",
    );
    iptables(&lab, "node-a", "-A OUTPUT -p udp --dport 1006 -j REJECT");
    iptables(&lab, "node-a", "-A OUTPUT -p tcp --dport 1006 -j REJECT");
    let tcp = |port| Probe::tcp(SocketAddr::new(ip("192.168.50.238"), port)).within(SHORT);
    let udp = |port| Probe {
        proto: Proto::Udp,
        ..tcp(port)
    };
    let port_unreachable = ProbeOutcome::Refused(Refusal::PortUnreachable);
    let prohibited = ProbeOutcome::Refused(Refusal::Prohibited);
    let reset = ProbeOutcome::Refused(Refusal::Reset);
    for (probe, expected) in [
        (tcp(1000), &reset),
        (udp(1000), &port_unreachable),
        (tcp(1001), &port_unreachable),
        (udp(1001), &port_unreachable),
        (tcp(1002), &prohibited),
        (udp(1002), &prohibited),
        (tcp(1003), &ProbeOutcome::Timeout),
        (tcp(1004), &reset),
    ] {
        assert_eq!(&lab.probe("client", probe).unwrap(), expected, "{probe:?}");
    }
    let elsewhere = lab.probe("client", tcp(1005)).unwrap();
    assert!(matches!(elsewhere, ProbeOutcome::Unreachable(_)), "{elsewhere:?}");
    for local in [tcp(1006), udp(1006)] {
        assert_eq!(lab.probe("node-a", local).unwrap(), port_unreachable, "{local:?}");
    }
}

#[test]
fn a_bulk_of_refusals_is_not_rate_limited() {
    if !live::available(&["iptables"]) {
        return;
    }
    let lab = seed_lab("limit");
    iptables(&lab, "node-a", "-A INPUT -p tcp --dport 1001 -j REJECT");
    let outcomes = lab
        .probe_many("client", Probe::tcp(socket("192.168.50.238:1001")), 500)
        .unwrap();
    let refused = ProbeOutcome::Refused(Refusal::PortUnreachable);
    assert_eq!(
        outcomes.iter().filter(|outcome| **outcome == refused).count(),
        500
    );
}

#[test]
fn a_bulk_of_probes_is_many_connections() {
    if !live::available(&["iptables"]) {
        return;
    }
    let lab = seed_lab("bulk");
    let to = |how: &str, pod: &str| {
        format!("-t nat -A PREROUTING -p tcp --dport 31080{how} -j DNAT --to-destination {pod}:8080")
    };
    iptables(
        &lab,
        "node-a",
        &to(" -m statistic --mode nth --every 2 --packet 0", "10.244.1.3"),
    );
    iptables(&lab, "node-a", &to("", "10.244.2.3"));
    iptables(
        &lab,
        "node-a",
        "-t nat -A POSTROUTING -d 10.244.2.3 -j MASQUERADE",
    );
    let outcomes = lab
        .probe_many("client", Probe::tcp(socket("192.168.50.238:31080")), 500)
        .unwrap();
    let count = |name: &str| {
        outcomes
            .iter()
            .filter(|one| one.answered_by() == Some(name))
            .count()
    };
    assert_eq!((count("spring-test-a"), count("spring-test-b")), (250, 250));
}

#[test]
fn a_prober_notices_a_moment_without_rules() {
    if !live::available(&["iptables"]) {
        return;
    }
    let lab = seed_lab("prober");
    let rule = "PREROUTING -p tcp --dport 31080 -j DNAT --to-destination 10.244.1.3:8080";
    iptables(&lab, "node-a", &format!("-t nat -A {rule}"));
    let prober = lab
        .prober("client", Probe::tcp(socket("192.168.50.238:31080")), 200)
        .unwrap();
    let wait_for = |total: usize| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while prober.so_far().total() < total {
            assert!(
                Instant::now() < deadline,
                "the prober stands still: {}",
                prober.so_far().describe()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(50);
    assert_eq!(
        prober.so_far().misses().count(),
        0,
        "{}",
        prober.so_far().describe()
    );
    iptables(&lab, "node-a", &format!("-t nat -D {rule}"));
    wait_for(prober.so_far().total() + 20);
    iptables(&lab, "node-a", &format!("-t nat -A {rule}"));
    wait_for(prober.so_far().total() + 20);
    let report = prober.stop();
    assert_eq!(report.by_name().get("spring-test-a"), Some(&report.answered()));
    let reset = ProbeOutcome::Refused(Refusal::Reset);
    assert!(report.misses().count() > 0, "{}", report.describe());
    assert!(
        report.misses().all(|(_, sample)| sample.outcome == reset),
        "{}",
        report.describe()
    );
}

#[test]
fn parallel_labs_with_the_same_addresses_do_not_meet() {
    if !live::available(&[]) {
        return;
    }
    let (one, two) = (seed_lab("par1"), seed_lab("par2"));
    let _only_in_two = two
        .serve("spring-test-b", "two", &[(Proto::Tcp, socket("10.244.2.3:9999"))])
        .unwrap();
    let probe = Probe::tcp(socket("10.244.2.3:9999"));
    assert_eq!(
        two.probe("client", probe).unwrap().answered_by(),
        Some("sink"),
        "the client has no route to pods"
    );
    assert_eq!(two.probe("sender-a", probe).unwrap().answered_by(), Some("two"));
    assert_eq!(
        one.probe("sender-a", probe).unwrap(),
        ProbeOutcome::Refused(Refusal::Reset)
    );
}

#[test]
fn servers_answer_http_and_clients_that_say_nothing() {
    if !live::available(&[]) {
        return;
    }
    let lab = seed_lab("http");
    let answer = lab
        .http_get("sender-a", socket("10.244.1.3:8080"), "/", Duration::from_secs(2))
        .unwrap();
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.starts_with("spring-test-a 10.244.1.7:"),
        "{}",
        answer.body
    );
    let answer = lab
        .http_get("sender-a", socket("10.1.2.3:80"), "/", Duration::from_secs(2))
        .unwrap();
    assert!(answer.body.starts_with("sink 10.244.1.7:"), "{}", answer.body);
    let script = "exec 3<>/dev/tcp/10.244.1.3/8080; cat <&3";
    let silent = lab.must_exec("sender-a", &["bash", "-c", script]).unwrap();
    assert!(silent.starts_with("spring-test-a 10.244.1.7:"), "{silent}");
}

#[test]
fn going_down_leaves_no_name_no_file_and_no_process() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("down");
    let lab = Lab::up(&seed::topology(&prefix)).unwrap();
    assert_eq!(
        names_left(&prefix).len(),
        12,
        "the wire, 2 nodes, 7 pods, a client and a sink"
    );
    let mut process = lab.spawn("node-a", &["sleep", "1000"], "sleep").unwrap();
    let folder = lab.folder();
    lab.down().unwrap();
    assert_eq!(names_left(&prefix), Vec::<String>::new());
    assert!(!folder.exists());
    assert!(
        process.wait(Duration::from_secs(5)).unwrap().is_some(),
        "the process in the namespace lives on"
    );
}

#[test]
fn what_was_left_behind_goes_with_the_next_lab_of_its_prefix_and_with_a_sweep() {
    if !live::available(&[]) {
        return;
    }
    let prefix = live::prefix("left");
    let left = format!("{prefix}-left");
    let added = Command::new("ip").args(["netns", "add", &left]).status().unwrap();
    assert!(added.success());
    let mut small = seed::topology(&prefix);
    small.pods.truncate(1);
    let lab = Lab::up(&small).unwrap();
    assert_eq!(
        names_left(&prefix).len(),
        6,
        "the wire, 2 nodes, a pod, a client and a sink"
    );
    assert_eq!(lab::sweep(&prefix).unwrap(), 6);
    assert_eq!(names_left(&prefix), Vec::<String>::new());
    assert_eq!(lab::sweep(&prefix).unwrap(), 0);
    drop(lab);
}
