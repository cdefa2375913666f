use super::*;

fn ports(targets: &PerFamily<Option<NodePortTargets>>, loopback: bool) -> NodePorts {
    let mut ports = NodePorts {
        ports: BTreeMap::new(),
        targets: PerFamily::from_fn(|family| {
            targets.get(family).clone().map(|addresses| Targets {
                addresses,
                loopback: loopback && family == Family::V4,
            })
        }),
    };
    for family in Family::ALL {
        if targets.get(family).is_some() {
            ports.serve(family, Protocol::Tcp, 30080, &ServiceName::new("ns", "web"));
            ports.serve(family, Protocol::Udp, 30053, &ServiceName::new("ns", "dns"));
        }
    }
    ports
}

fn everywhere() -> PerFamily<Option<NodePortTargets>> {
    PerFamily::from_fn(|_| Some(NodePortTargets::AllLocal))
}

fn only(addresses: &[&str]) -> NodePortTargets {
    let parse = |text: &&str| text.parse().expect("an address");
    NodePortTargets::Only(addresses.iter().map(parse).collect())
}

fn tcp(address: &str, reach: Reach) -> Listening {
    Listening {
        protocol: Protocol::Tcp,
        address: address.parse().expect("a socket address"),
        reach,
        inode: 7,
    }
}

fn is_conflict(ports: &NodePorts, address: &str, reach: Reach) -> bool {
    !ports
        .conflicts(&[tcp(address, reach)], &BTreeSet::new())
        .is_empty()
}

#[test]
fn sockets_on_addresses_that_serve_node_ports_are_not_reached() {
    let all = ports(&everywhere(), false);
    for (address, want) in [
        ("0.0.0.0:30080", true),
        ("192.0.2.1:30080", true),
        ("[::]:30080", true),
        ("[2001:db8::1]:30080", true),
        ("127.0.0.1:30080", false),
        ("[::1]:30080", false),
        ("0.0.0.0:30081", false),
        // UDP's node port is none of TCP.
        ("0.0.0.0:30053", false),
    ] {
        assert_eq!(is_conflict(&all, address, Reach::Own), want, "{address}");
    }
    assert!(is_conflict(
        &ports(&everywhere(), true),
        "127.0.0.1:30080",
        Reach::Own
    ));
}

#[test]
fn an_ipv6_wildcard_that_serves_ipv4_is_taken_from_by_ipv4s_node_ports() {
    let v4 = ports(
        &PerFamily {
            v4: Some(NodePortTargets::AllLocal),
            v6: None,
        },
        false,
    );
    assert!(is_conflict(&v4, "[::]:30080", Reach::Both));
    assert!(!is_conflict(&v4, "[::]:30080", Reach::Own));
    assert!(!is_conflict(&v4, "[2001:db8::1]:30080", Reach::Own));
}

#[test]
fn where_node_ports_are_limited_sockets_elsewhere_are_reached() {
    let some = ports(
        &PerFamily {
            v4: Some(only(&["192.0.2.1"])),
            v6: Some(only(&[])),
        },
        false,
    );
    assert!(is_conflict(&some, "192.0.2.1:30080", Reach::Own));
    assert!(is_conflict(&some, "0.0.0.0:30080", Reach::Own));
    assert!(!is_conflict(&some, "192.0.2.2:30080", Reach::Own));
    assert!(!is_conflict(&some, "[::]:30080", Reach::Own));
}

#[test]
fn a_conflict_is_new_once_and_again_after_it_was_gone() {
    let ports = ports(&everywhere(), false);
    let mut known = Known::default();
    let there = [tcp("0.0.0.0:30080", Reach::Own)];
    assert_eq!(known.take(&ports, &there).len(), 1);
    assert_eq!(known.take(&ports, &there).len(), 0);
    assert_eq!(known.conflicts.len(), 1);
    assert_eq!(known.take(&ports, &[]).len(), 0);
    assert_eq!(known.conflicts.len(), 0);
    assert_eq!(known.take(&ports, &there).len(), 1);
}

#[test]
fn a_udp_socket_counts_only_when_it_stays() {
    let ports = ports(&everywhere(), false);
    let udp = |inode| Listening {
        protocol: Protocol::Udp,
        address: "0.0.0.0:30053".parse().expect("a socket address"),
        reach: Reach::Own,
        inode,
    };
    let mut known = Known::default();
    assert_eq!(known.take(&ports, &[udp(1)]), []);
    assert_eq!(known.take(&ports, &[udp(2)]), []);
    assert_eq!(known.take(&ports, &[udp(2)]).len(), 1);
}

#[test]
fn what_is_said_names_service_port_address_and_process() {
    let conflict = Conflict {
        service: ServiceName::new("ns", "web"),
        protocol: Protocol::Tcp,
        address: "0.0.0.0:30080".parse().expect("a socket address"),
        inode: 7,
        owner: Some(Owner {
            name: "sshd".to_owned(),
            pid: 12,
        }),
    };
    let text = conflict.to_string();
    for word in ["ns/web", "0.0.0.0:30080/TCP", "sshd (pid 12)"] {
        assert!(text.contains(word), "{text}");
    }
}
