//! The rest of what a host is asked, in a namespace: addresses, notifications, traces, connections, settings, probes.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use iptables::ast::{ChainName, Is, Proto, Rule, TableName, Target};
use iptables::plan::{Step, TableWrite};
use kernel::addresses::{InterfaceAddress, interface_addresses};
use kernel::listening::{Reach, listening_sockets, own_sockets, owners};
use kernel::nfacct::{Accounting, ensure_counters, read_counter};
use kernel::probe::{Choice, Probe, Reason, Tools, Unavailable};
use kernel::{Backend, FailureKind, GenerationWatch, RuleKernel, TraceTable, TraceWatch, Traced, sysctl};
use model::{Family, Protocol};
use netlink::conntrack::{Filter, Layer4};
use netlink::nft::{TraceStep, Verdict};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use support::{in_namespace, in_namespace_with, live, own_run, tool};

fn chain(name: &str) -> ChainName {
    ChainName::new(name).unwrap()
}

fn ip(words: &str) {
    let mut all = vec!["ip"];
    all.extend(words.split(' '));
    tool(&all, "");
}

#[test]
fn addresses_of_both_families_are_listed_with_their_interfaces() {
    in_namespace(
        "addresses_of_both_families_are_listed_with_their_interfaces",
        || {
            assert_eq!(interface_addresses().unwrap(), []);
            ip("link set lo up");
            ip("link add kernel-a type veth peer name kernel-b");
            ip("addr add 10.9.8.7/24 dev kernel-a");
            ip("addr add 10.9.8.8/24 dev kernel-a");
            ip("addr add fd00::7/64 dev kernel-b nodad");
            ip("addr add 10.1.1.1 peer 10.1.1.2/32 dev kernel-b");
            let address = |interface: &str, address: &str| InterfaceAddress {
                interface: interface.to_owned(),
                address: address.parse().unwrap(),
            };
            let want = [
                address("kernel-a", "10.9.8.7/24"),
                address("kernel-a", "10.9.8.8/24"),
                address("kernel-b", "10.1.1.1/32"),
                address("kernel-b", "fd00::7/64"),
                address("lo", "127.0.0.1/8"),
                address("lo", "::1/128"),
            ];
            assert_eq!(interface_addresses().unwrap(), want);
        },
    );
}

/// A service address that OUTPUT translates to a socket of this host.
fn service(to: SocketAddr) -> Step {
    let translate = Rule {
        protocol: Some(Is::Equal(Proto::Udp)),
        ..Rule::new(Target::Dnat(to))
    };
    let dispatch = Rule {
        dst: Some(Is::Equal("10.96.0.1/32".parse().unwrap())),
        ..Rule::new(Target::Jump(chain("KUBE-SVC-TEST")))
    };
    let write = TableWrite {
        chains: [(chain("KUBE-SVC-TEST"), vec![translate])].into(),
        append: vec![(chain("OUTPUT"), dispatch)],
        ..TableWrite::default()
    };
    Step {
        write: [(TableName::Nat, write)].into(),
        ..Step::default()
    }
}

/// What [`service`] made is unmade.
fn unmade(step: &Step) -> Step {
    let write = &step.write[&TableName::Nat];
    let (from, dispatch) = write.append[0].clone();
    Step {
        delete: vec![(TableName::Nat, from, dispatch)],
        retire: vec![(TableName::Nat, chain("KUBE-SVC-TEST"))],
        ..Step::default()
    }
}

#[test]
fn commits_are_told_with_their_generation_and_their_writer() {
    in_namespace("commits_are_told_with_their_generation_and_their_writer", || {
        let mut kernel = live(Backend::NfTables);
        let mut watch = GenerationWatch::new().unwrap();
        assert_eq!(watch.take().unwrap(), []);
        let made = service("10.0.0.1:80".parse().unwrap());
        kernel.commit(Family::V4, &made).unwrap();
        let told = watch.wait(Duration::from_secs(5)).unwrap();
        let last = told.last().expect("a restore commits");
        assert_eq!(Some(last.generation), kernel.generation().unwrap());
        assert_eq!(last.process_name.as_deref(), Some("iptables-nft-re"));
        let own = kernel.netlink_port().unwrap();
        assert_ne!(last.port, own);

        kernel.commit(Family::V4, &unmade(&made)).unwrap();
        let told = watch.wait(Duration::from_secs(5)).unwrap();
        assert_eq!(
            told.len(),
            1,
            "deletions and retirements are one transaction: {told:?}"
        );
        assert_eq!(told[0].port, own);
        assert_eq!(watch.take().unwrap(), []);
    });
}

/// Sends a datagram to the service and returns the sender's address.
fn send() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"hello", "10.96.0.1:53").unwrap();
    socket.local_addr().unwrap()
}

/// A kernel whose OUTPUT translates 10.96.0.1 to a socket that receives.
fn translating() -> (kernel::LiveKernel, UdpSocket) {
    ip("link set lo up");
    ip("route add 10.96.0.0/16 dev lo");
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut kernel = live(Backend::NfTables);
    kernel
        .commit(Family::V4, &service(receiver.local_addr().unwrap()))
        .unwrap();
    (kernel, receiver)
}

const TRACED: Traced = Traced {
    source: None,
    source_port: None,
    in_interface: None,
    destination: Some(IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))),
    protocol: Some(17),
    port: Some(53),
};

/// The rules of iptables that a traced packet met: chain and whether it went on elsewhere.
fn traced_rules(watch: &mut TraceWatch) -> Vec<(String, bool)> {
    let mut rules = Vec::new();
    watch
        .until_quiet(Duration::from_millis(200), &mut |event| {
            if let Some(TraceStep::Rule { verdict, .. }) = event.step()
                && event.table == "nat"
            {
                rules.push((event.chain.to_owned(), matches!(verdict, Verdict::Jump(_))));
            }
        })
        .unwrap();
    rules
}

fn a_packet_is_traced_and_its_connection_found() {
    let (_kernel, receiver) = translating();
    let mut watch = TraceWatch::new().unwrap();
    let table = TraceTable::new(Family::V4, "kernel-test-trace", &[TRACED]).unwrap();
    let sender = send();
    lab::live::recv(&receiver, &mut [0; 16]).unwrap();
    let want = [("OUTPUT".to_owned(), true), ("KUBE-SVC-TEST".to_owned(), false)];
    assert_eq!(traced_rules(&mut watch), want);

    let narrow = Filter {
        protocol: Some(17),
        ..Filter::default()
    };
    let wanted = |tuple: &netlink::conntrack::Tuple| {
        let Layer4::Ports { source, destination } = tuple.layer4 else {
            return false;
        };
        source == sender.port() && destination == 53
    };
    let found = kernel::conntrack::connections(Family::V4, narrow, wanted).unwrap();
    let [entry] = found[..] else { panic!("{found:?}") };
    assert_eq!(
        entry.original.destination,
        IpAddr::V4(Ipv4Addr::new(10, 96, 0, 1))
    );
    assert_eq!(entry.reply.source, receiver.local_addr().unwrap().ip());

    assert!(tool(&["nft", "list", "tables"], "").contains("kernel-test-trace"));
    drop(table);
    assert!(!tool(&["nft", "list", "tables"], "").contains("kernel-test-trace"));
    send();
    assert_eq!(traced_rules(&mut watch), []);
}

#[test]
fn traced_packet_shows_the_rules_it_met_and_its_connection() {
    in_namespace("traced_packet_shows_the_rules_it_met_and_its_connection", || {
        a_packet_is_traced_and_its_connection_found();
    });
}

#[test]
fn everything_works_in_a_user_namespace() {
    in_namespace_with(
        "everything_works_in_a_user_namespace",
        &["--user", "--map-root-user"],
        || {
            own_run();
            a_packet_is_traced_and_its_connection_found();
            let mut kernel = live(Backend::NfTables);
            let mut watch = GenerationWatch::new().unwrap();
            let made = service("[fd00::1]:80".parse().unwrap());
            let mut made_v6 = made.clone();
            let write = made_v6.write.get_mut(&TableName::Nat).unwrap();
            write.append[0].1.dst = Some(Is::Equal("fd00::96/128".parse().unwrap()));
            kernel.commit(Family::V6, &made_v6).unwrap();
            kernel.commit(Family::V6, &unmade(&made_v6)).unwrap();
            assert!(watch.take().unwrap().len() >= 2);
            sysctl::allow_route_localnet().unwrap();
            interface_addresses().unwrap();
        },
    );
}

/// Says to the program that it is the one to be killed.
const TRACER: &str = "KPRS_TEST_TRACER";

/// Keeps a table until it is killed.
fn tracer() -> Child {
    let program = std::env::current_exe().unwrap();
    let name = "table_of_a_killed_tracer_vanishes";
    Command::new(program)
        .args([name, "--exact", "--nocapture"])
        .env(TRACER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn wait_for(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come about");
}

#[test]
fn table_of_a_killed_tracer_vanishes() {
    in_namespace("table_of_a_killed_tracer_vanishes", || {
        if std::env::var_os(TRACER).is_some() {
            let _table = TraceTable::new(Family::V6, "kernel-test-killed", &[TRACED]);
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            return;
        }
        let there = || tool(&["nft", "list", "tables"], "").contains("kernel-test-killed");
        let mut child = tracer();
        wait_for("the table", there);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("the table's end", || !there());
    });
}

#[test]
fn settings_are_written_once() {
    in_namespace("settings_are_written_once", || {
        assert_eq!(sysctl::read(sysctl::ROUTE_LOCALNET).unwrap(), "0");
        assert_eq!(sysctl::allow_route_localnet().unwrap(), sysctl::Written::Changed);
        assert_eq!(sysctl::read(sysctl::ROUTE_LOCALNET).unwrap(), "1");
        assert_eq!(sysctl::allow_route_localnet().unwrap(), sysctl::Written::AsItWas);
        assert!(!sysctl::is_tcp_liberal());
        sysctl::ensure(sysctl::TCP_BE_LIBERAL, "1").unwrap();
        assert!(sysctl::is_tcp_liberal());
    });
}

#[test]
fn accounting_objects_are_made_once_and_read() {
    in_namespace("accounting_objects_are_made_once_and_read", || {
        let [first, second] = kernel::NFACCT_COUNTERS;
        assert_eq!(read_counter(first).unwrap(), None);
        assert_eq!(ensure_counters(), Accounting::Present);
        assert_eq!(ensure_counters(), Accounting::Present);
        let counting =
            format!("*filter\n-A OUTPUT -d 127.0.0.9/32 -m nfacct --nfacct-name {second} -j DROP\nCOMMIT\n");
        tool(&["iptables-nft-restore"], &counting);
        ip("link set lo up");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        // The rule drops it; the sender is told.
        let _ = socket.send_to(b"hello", "127.0.0.9:9");
        assert_eq!(read_counter(first).unwrap().unwrap().packets, 0);
        assert_eq!(read_counter(second).unwrap().unwrap().packets, 1);
    });
}

fn chosen() -> (Backend, Reason) {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    let probe = Probe::new(&tools, Choice::Detect).unwrap();
    for family in Family::ALL {
        assert!(probe.families.get(family).is_ok(), "{family}");
    }
    assert!(probe.has_random_fully());
    (probe.backend, probe.reason)
}

#[test]
fn backend_is_chosen_by_what_the_host_uses() {
    in_namespace("backend_is_chosen_by_what_the_host_uses", || {
        own_run();
        assert_eq!(chosen(), (Backend::NfTables, Reason::Default));
        let tables = std::fs::read_to_string("/proc/net/ip_tables_names").unwrap();
        assert_eq!(tables, "", "looking must not make legacy tables");

        let two = "*filter\n-A INPUT -j ACCEPT\n-A OUTPUT -j ACCEPT\nCOMMIT\n";
        tool(&["iptables-nft-restore"], two);
        tool(
            &["ip6tables-legacy-restore"],
            "*filter\n-A INPUT -j ACCEPT\n-A OUTPUT -j ACCEPT\nCOMMIT\n",
        );
        assert_eq!(
            chosen(),
            (
                Backend::NfTables,
                Reason::MoreRules {
                    nf_tables: 2,
                    legacy: 2
                }
            )
        );
        tool(
            &["iptables-legacy-restore"],
            "*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n",
        );
        assert_eq!(
            chosen(),
            (
                Backend::Legacy,
                Reason::MoreRules {
                    nf_tables: 2,
                    legacy: 3
                }
            )
        );

        tool(
            &["ip6tables-legacy-restore"],
            "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n",
        );
        tool(&["iptables-nft-restore"], two);
        tool(&["iptables-nft-restore", "--noflush"], two);
        tool(&["iptables-nft-restore", "--noflush"], two);
        assert_eq!(chosen(), (Backend::Legacy, Reason::KubeletHint));
        tool(
            &["ip6tables-nft-restore"],
            "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n",
        );
        assert_eq!(chosen(), (Backend::NfTables, Reason::KubeletHint));
    });
}

#[test]
fn process_without_rights_is_denied() {
    const DENIED: &str = "KPRS_TEST_DENIED";
    let name = "process_without_rights_is_denied";
    if std::env::var_os(DENIED).is_none() {
        // A user namespace in which nobody is mapped leaves no rights over its network namespace.
        return in_namespace(name, || {
            let program = std::env::current_exe().unwrap();
            let status = Command::new("unshare")
                .args(["--user", "--net"])
                .arg(program)
                .args([name, "--exact", "--nocapture"])
                .env(DENIED, "1")
                .status()
                .unwrap();
            assert!(status.success());
        });
    }
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    for backend in [Backend::NfTables, Backend::Legacy] {
        let probe = Probe::new(&tools, Choice::Use(backend)).unwrap();
        let found = probe.families.v4.as_ref().unwrap_err();
        let Unavailable::DoesNotWork { kind, .. } = found else {
            panic!("{found}")
        };
        assert_eq!(*kind, FailureKind::Denied, "{backend}: {found}");
    }
    let error = TraceTable::new(Family::V4, "kernel-test-denied", &[TRACED])
        .err()
        .unwrap();
    assert_eq!(error.kind(), FailureKind::Denied, "{error}");
}

#[test]
fn sockets_that_listen_are_told_with_their_owner_and_connections_are_not() {
    in_namespace(
        "sockets_that_listen_are_told_with_their_owner_and_connections_are_not",
        || {
            ip("link set lo up");
            ip("addr add 10.9.8.7/32 dev lo");
            let four = TcpListener::bind("10.9.8.7:30080").unwrap();
            let six = TcpListener::bind("[::1]:30081").unwrap();
            // The standard library's wildcard of IPv6 serves IPv4 as well.
            let both = TcpListener::bind("[::]:30082").unwrap();
            let udp = UdpSocket::bind("0.0.0.0:30053").unwrap();
            let client = TcpStream::connect("10.9.8.7:30080").unwrap();
            let connected = UdpSocket::bind("127.0.0.1:30054").unwrap();
            connected.connect("127.0.0.1:30053").unwrap();
            let found = listening_sockets().unwrap();
            let short: Vec<(Protocol, String, Reach)> = found
                .iter()
                .map(|socket| (socket.protocol, socket.address.to_string(), socket.reach))
                .collect();
            let want = [
                (Protocol::Tcp, "10.9.8.7:30080", Reach::Own),
                (Protocol::Tcp, "[::]:30082", Reach::Both),
                (Protocol::Tcp, "[::1]:30081", Reach::Own),
                (Protocol::Udp, "0.0.0.0:30053", Reach::Own),
            ];
            assert_eq!(
                short,
                want.map(|(protocol, at, reach)| (protocol, at.to_owned(), reach))
            );

            let own = own_sockets();
            assert!(
                found.iter().all(|socket| own.contains(&socket.inode)),
                "{found:?}"
            );
            let owners = owners(&found.iter().map(|socket| socket.inode).collect());
            assert_eq!(owners.len(), found.len(), "{owners:?}");
            assert!(
                owners.values().all(|owner| owner.pid == std::process::id()),
                "{owners:?}"
            );
            drop((four, six, both, udp, client, connected));
            assert_eq!(listening_sockets().unwrap(), []);
        },
    );
}
