use super::*;
use model::object::decode;
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

/// Objects as an API server might send them, good and odd.
fn document() -> impl Strategy<Value = Value> {
    prop_oneof![service(), slice(), node(), cidr()]
}

fn name() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "web", "kube-dns", "x-1"])
}

fn ip() -> impl Strategy<Value = &'static str> {
    select(vec![
        "10.0.0.1",
        "10.96.0.010",
        "fd00::1",
        "::ffff:10.0.0.2",
        "None",
        "",
        "junk",
    ])
}

fn net() -> impl Strategy<Value = &'static str> {
    select(vec!["10.0.0.0/8", "10.1.2.3/16", "fd00::/64", "::/0", "junk"])
}

fn policy() -> impl Strategy<Value = Option<&'static str>> {
    select(vec![None, Some("Cluster"), Some("Local"), Some("Odd")])
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = select(vec![None, Some("TCP"), Some("UDP"), Some("SCTP"), Some("X")]);
    (of(name()), protocol, select(vec![0, 53, 80, 65_535, 70_000]), of(select(vec![0, 30_080])))
        .prop_map(|(name, protocol, port, node_port)| {
            json!({"name": name, "protocol": protocol, "port": port, "nodePort": node_port})
        })
}

fn service() -> impl Strategy<Value = Value> {
    let kind = select(vec![
        None,
        Some("ClusterIP"),
        Some("NodePort"),
        Some("LoadBalancer"),
        Some("ExternalName"),
    ]);
    let one = (
        name(),
        kind,
        of(ip()),
        vec(ip(), 0..3),
        vec(ip(), 0..3),
        vec(ip(), 0..3),
    );
    let two = (
        policy(),
        policy(),
        vec(port(), 0..4),
        vec(net(), 0..3),
        of(select(vec![0, 1, 86_400, 90_000])),
    );
    let created = select(vec![
        None,
        Some("2024-02-29T12:00:00Z"),
        Some("1969-12-31T23:59:58.5Z"),
        Some("x"),
    ]);
    let three = (
        created,
        any::<bool>(),
        any::<bool>(),
        of(select(vec![0, 32_000])),
        of(vec(select(vec!["IPv4", "IPv6"]), 0..3)),
        of(select(vec!["client-hash", "random", "x"])),
    );
    (one, two, three).prop_map(|((name, kind, ip, ips, external, balancers), (inner, outer, ports, ranges, affinity), (created, other, unready, check, families, balancing))| {
        let labels = other.then(|| json!({PROXY_NAME_LABEL: "x"}));
        let annotations = balancing.map(|balancing| json!({BALANCING_ANNOTATION: balancing}));
        let affinity_kind = affinity.map(|_| "ClientIP");
        let ingress: Vec<Value> = balancers.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "kind": "Service", "apiVersion": "v1",
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": created, "labels": labels, "annotations": annotations},
            "spec": {
                "type": kind, "clusterIP": ip, "clusterIPs": ips, "externalIPs": external, "ports": ports, "ipFamilies": families,
                "internalTrafficPolicy": inner, "externalTrafficPolicy": outer, "loadBalancerSourceRanges": ranges,
                "sessionAffinity": affinity_kind, "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": affinity}},
                "publishNotReadyAddresses": unready, "healthCheckNodePort": check,
            },
            "status": {"loadBalancer": {"ingress": ingress}},
        })
    })
}

fn slice() -> impl Strategy<Value = Value> {
    let kind = select(vec![None, Some("IPv4"), Some("IPv6"), Some("FQDN")]);
    let condition = || of(any::<bool>());
    let hint = || of(vec(name().prop_map(|name| json!({"name": name})), 0..3));
    let endpoint = (
        ip(),
        condition(),
        condition(),
        condition(),
        of(select(vec!["node-a", "n\"\n", ""])),
        hint(),
        hint(),
    )
        .prop_map(|(ip, ready, serving, terminating, node, zones, nodes)| {
            json!({
                "addresses": [ip], "nodeName": node, "hints": {"forZones": zones, "forNodes": nodes},
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
            })
        });
    let owner = select(vec![None, Some("web"), Some(""), Some("no label")]);
    (name(), kind, owner, any::<bool>(), vec(port(), 0..3), vec(endpoint, 0..4)).prop_map(
        |(name, kind, owner, headless, ports, endpoints)| {
            let headless = headless.then_some("");
            json!({
                "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"namespace": "ns", "name": name, "labels": {OWNER_LABEL: owner, HEADLESS_LABEL: headless}},
                "addressType": kind, "ports": ports, "endpoints": endpoints,
            })
        },
    )
}

fn node() -> impl Strategy<Value = Value> {
    let address = (select(vec!["InternalIP", "ExternalIP", "Hostname"]), ip())
        .prop_map(|(kind, ip)| json!({"type": kind, "address": ip}));
    let zone = of(select(vec!["zone-1", "", "ä\u{1b}"]));
    (name(), zone, any::<bool>(), any::<bool>(), vec(address, 0..4), vec(net(), 0..3)).prop_map(
        |(name, zone, deleting, tainted, addresses, nets)| {
            let taints = tainted.then(|| json!([{"key": AUTOSCALER_TAINT}]));
            json!({
                "kind": "Node", "apiVersion": "v1",
                "metadata": {"name": name, "labels": {ZONE_LABEL: zone}, "deletionTimestamp": deleting.then_some("2024-01-01T00:00:00Z")},
                "spec": {"podCIDRs": nets, "taints": taints}, "status": {"addresses": addresses},
            })
        },
    )
}

fn cidr() -> impl Strategy<Value = Value> {
    (name(), vec(net(), 0..3)).prop_map(|(name, nets)| {
        json!({"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": name}, "spec": {"cidrs": nets}})
    })
}

proptest! {
    #[test]
    fn whatever_the_server_sends_is_the_same_after_it_was_written_and_read(document in document()) {
        for object in decode(document).objects {
            let line = write(&object);
            prop_assert!(!line.contains(&b'\n'));
            prop_assert_eq!(read(&line), Some(object), "{}", String::from_utf8_lossy(&line));
        }
    }

    #[test]
    fn a_line_with_anything_behind_its_beginning_never_panics(
        beginning in select(BEGINNINGS.to_vec()),
        rest in vec(any::<u8>(), 0..200),
    ) {
        let line = [beginning.1, &rest].concat();
        if let Some(object) = read(&line) {
            prop_assert_eq!(object.kind(), beginning.0);
        }
    }
}

#[test]
fn a_name_that_is_none_does_not_get_in() {
    let line = br#"{"kind":"Service","metadata":{"namespace":"ns","name":"a\n-j ACCEPT"},"spec":{"clusterIP":"10.0.0.1"}}"#;
    assert_eq!(read(line), None);
    assert_eq!(read(br#"{"kind":"Pod","metadata":{"name":"a"}}"#), None);
    assert_eq!(read(b""), None);
}
