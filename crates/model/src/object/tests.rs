//! Conversion, object by object.

#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` values are made in the call"
)]

use super::*;
use crate::{Affinity, Balancing, NoteKind, Policy, Severity};
use serde_json::{Value, json};

mod slices;

fn service(document: Value) -> (Service, Vec<String>) {
    let Decoded { objects, notes, .. } = decode(document);
    match objects.as_slice() {
        [Object::Service(service)] => (
            (**service).clone(),
            notes.iter().map(ToString::to_string).collect(),
        ),
        other => panic!("no service: {other:?}, {notes:?}"),
    }
}

fn slice(document: Value) -> (Slice, Vec<String>) {
    let Decoded { objects, notes, .. } = decode(document);
    match objects.as_slice() {
        [Object::Slice(slice)] => ((**slice).clone(), notes.iter().map(ToString::to_string).collect()),
        other => panic!("no slice: {other:?}, {notes:?}"),
    }
}

fn service_with(spec: Value) -> (Service, Vec<String>) {
    service(json!({"kind": "Service", "metadata": {"name": "a"}, "spec": spec}))
}

fn slice_with(fields: Value) -> (Slice, Vec<String>) {
    let mut document = json!({"kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "a-1", "labels": {"kubernetes.io/service-name": "a"}}});
    let Value::Object(fields) = fields else { panic!() };
    document.as_object_mut().unwrap().extend(fields);
    slice(document)
}

fn ips<const N: usize>(texts: [&str; N]) -> Vec<std::net::IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[test]
fn a_manifest_by_hand_gets_the_api_servers_defaults() {
    let (service, notes) = service_with(json!({
        "clusterIP": "10.96.7.10", "sessionAffinity": "ClientIP", "ports": [{"port": 5432}],
    }));
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(service.name, ServiceName::new("default", "a"));
    assert_eq!(service.kind, ServiceKind::ClusterIp);
    assert_eq!(service.cluster_ips.v4, Some("10.96.7.10".parse().unwrap()));
    assert_eq!(service.cluster_ips.v6, None);
    assert_eq!(
        (service.internal, service.external),
        (Policy::Cluster, Policy::Cluster)
    );
    assert_eq!(
        service.affinity,
        Some(Affinity {
            timeout_seconds: 10_800
        })
    );
    assert_eq!(service.skipped, None);
    assert_eq!(service.created, Created::UNKNOWN);
    let [port] = &*service.ports else { panic!() };
    assert_eq!(
        (&*port.name, port.protocol, port.port, port.node_port),
        ("", Protocol::Tcp, 5432, None)
    );
}

#[test]
fn an_empty_namespace_is_the_default_one() {
    let (service, _) = service(json!({"kind": "Service", "metadata": {"namespace": "", "name": "a"}}));
    assert_eq!(service.name, ServiceName::new("default", "a"));
}

#[test]
fn families_follow_the_addresses_when_nothing_else_is_said() {
    let (service, notes) =
        service_with(json!({"clusterIPs": ["fd00::1", "10.0.0.1"], "ports": [{"port": 1}]}));
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(service.cluster_ips.v4, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(service.cluster_ips.v6, Some("fd00::1".parse().unwrap()));
}

#[test]
fn ip_families_say_which_cluster_ip_counts() {
    let (service, notes) = service_with(
        json!({"clusterIPs": ["10.0.0.1", "fd00::1"], "ipFamilies": ["IPv4"], "ports": [{"port": 1}]}),
    );
    assert_eq!((service.cluster_ips.v6, notes.len()), (None, 0), "{notes:?}");
    let (service, notes) =
        service_with(json!({"clusterIPs": ["10.0.0.1"], "ipFamilies": ["IPv6"], "ports": [{"port": 1}]}));
    assert_eq!((service.cluster_ips.v4, service.cluster_ips.v6), (None, None));
    assert_eq!(service.skipped, Some(ServiceSkip::NoClusterIp));
    assert_eq!(
        notes,
        [
            "Service default/a: spec.clusterIPs[0]: \"10.0.0.1\" left out: is IPv4, which spec.ipFamilies[0] does not say"
        ]
    );
}

#[test]
fn a_service_is_served_without_the_addresses_that_it_cannot_have() {
    let (service, notes) = service_with(json!({
        "clusterIPs": ["10.0.0.1", "::1"], "ports": [{"port": 1}],
        "externalIPs": ["127.0.0.1", "203.0.113.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "fe80::1"],
    }));
    assert_eq!((service.cluster_ips.v6, service.skipped), (None, None));
    assert_eq!(service.cluster_ips.v4, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(service.external_ips.to_vec(), ips(["203.0.113.9"]));
    assert_eq!(notes.len(), 6, "{notes:?}");
    assert_eq!(
        notes[0],
        "Service default/a: spec.clusterIPs[1]: \"::1\" left out: is a loopback address"
    );
    for special in [
        "127.0.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "ff02::1",
    ] {
        let (service, notes) = service_with(json!({"clusterIP": special, "ports": [{"port": 1}]}));
        assert_eq!(service.skipped, Some(ServiceSkip::NoClusterIp), "{special}");
        assert_eq!(notes.len(), 1, "{notes:?}");
    }
}

/// What a host says to itself is no load balancer's and no cluster IP's.
#[test]
fn loopback_is_taken_by_no_load_balancer_and_no_service_cidr() {
    let ingress =
        ["127.0.0.1", "198.51.100.7", "::1", "0.0.0.0", "::ffff:127.0.0.2"].map(|ip| json!({ "ip": ip }));
    let (service, notes) = service(json!({
        "kind": "Service", "metadata": {"name": "a", "namespace": "default"},
        "spec": {"clusterIP": "10.0.0.1", "type": "LoadBalancer", "ports": [{"port": 10256}]},
        "status": {"loadBalancer": {"ingress": ingress}},
    }));
    assert_eq!(service.load_balancer_ips.to_vec(), ips(["198.51.100.7"]));
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(
        notes[0].contains("status.loadBalancer.ingress[0].ip"),
        "{notes:?}"
    );

    let nets = [
        "0.0.0.0/0",
        "10.96.0.0/12",
        "127.8.0.0/16",
        "127.0.0.1/32",
        "::/0",
        "::1/128",
        "fd00:1::/112",
    ];
    let decoded = decode(
        json!({"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1",
        "metadata": {"name": "d"}, "spec": {"cidrs": nets}}),
    );
    let [Object::ServiceCidr(cidr)] = &decoded.objects[..] else {
        panic!("{:?}", decoded.objects);
    };
    let kept: Vec<String> = cidr.cidrs.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["10.96.0.0/12", "fd00:1::/112"]);
    assert_eq!(decoded.notes.len(), 5, "{:?}", decoded.notes);
}

/// Of another proxy, headless, without a cluster IP, a name in DNS: for these there is nothing to serve.
#[test]
fn services_that_are_not_ours_are_skipped_with_the_reason() {
    let skipped = |labels: Value, spec: Value| {
        let metadata = json!({"name": "a", "labels": labels});
        service(json!({"kind": "Service", "metadata": metadata, "spec": spec}))
            .0
            .skipped
    };
    let plain = || json!({"clusterIP": "10.0.0.1"});
    assert_eq!(skipped(json!({}), plain()), None);
    let other = json!({"service.kubernetes.io/service-proxy-name": ""});
    assert_eq!(skipped(other, plain()), Some(ServiceSkip::OtherProxy));
    assert_eq!(
        skipped(json!({}), json!({"clusterIP": "None"})),
        Some(ServiceSkip::Headless)
    );
    assert_eq!(
        skipped(json!({}), json!({"clusterIPs": ["None"]})),
        Some(ServiceSkip::Headless)
    );
    assert_eq!(
        skipped(json!({}), json!({"clusterIP": ""})),
        Some(ServiceSkip::NoClusterIp)
    );
    assert_eq!(skipped(json!({}), json!({})), Some(ServiceSkip::NoClusterIp));
    let external = json!({"type": "ExternalName", "clusterIP": "10.0.0.1"});
    assert_eq!(skipped(json!({}), external), Some(ServiceSkip::ExternalName));
}

#[test]
fn addresses_in_other_spellings_are_the_same_addresses() {
    let (service, notes) = service(json!({
        "kind": "Service", "metadata": {"name": "six"},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "2001:DB8:96:0:0:0:0:190", "ports": [{"port": 80}],
            "externalIPs": ["203.0.113.041", "::ffff:203.0.113.42"],
            "loadBalancerSourceRanges": [" 203.0.113.000/025 ", "2001:db8::1/32"],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "2001:db8:70::10.0.0.34"}]}},
    }));
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(service.cluster_ips.v6, Some("2001:db8:96::190".parse().unwrap()));
    assert_eq!(*service.external_ips, *ips(["203.0.113.41", "203.0.113.42"]));
    assert_eq!(*service.load_balancer_ips, *ips(["2001:db8:70::a00:22"]));
    let ranges: Vec<String> = service.source_ranges.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["203.0.113.0/25", "2001:db8::/32"]);
}

/// A Service with much that is wrong, and something good of everything.
fn half_bad() -> Value {
    json!({
        "kind": "Service", "metadata": {"namespace": "ns", "name": "a", "creationTimestamp": "yesterday"},
        "spec": {
            "type": "LoadBalancer", "clusterIPs": ["10.0.0.1", "10.0.0.2", "nonsense"],
            "externalIPs": ["", "nope", 7, "192.0.2.1"],
            "externalTrafficPolicy": "Nearby", "internalTrafficPolicy": 5,
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 0}},
            "loadBalancerSourceRanges": ["10.0.0.0", "10.0.0.0/8"],
            "ports": [
                {"name": "good", "port": 80, "nodePort": 70000},
                {"name": "zero", "port": 0}, {"name": "far", "port": 65536}, {"name": "text", "port": "81"},
                {"name": "Bad Name", "port": 82}, {"name": 5, "port": 83},
                {"name": "proto", "port": 84, "protocol": "ICMP"},
                {"name": "good", "port": 85}, {"name": "again", "port": 80},
                {"name": "udp", "port": 80, "protocol": "UDP"},
            ],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "x"}, {"hostname": "lb"}, {"ip": "192.0.2.9", "ipMode": "Odd"}, "y", {"ip": "192.0.2.8"}]}},
    })
}

#[test]
fn a_bad_field_costs_only_what_it_holds() {
    let (service, notes) = service(half_bad());
    assert_eq!(service.cluster_ips.v4, Some("10.0.0.1".parse().unwrap()));
    assert_eq!(*service.external_ips, *ips(["192.0.2.1"]));
    assert_eq!(*service.load_balancer_ips, *ips(["192.0.2.8"]));
    assert_eq!(service.source_ranges.len(), 1);
    assert_eq!(
        service.affinity,
        Some(Affinity {
            timeout_seconds: 10_800
        })
    );
    let ports: Vec<(&str, u16, Option<u16>)> = service
        .ports
        .iter()
        .map(|port| (&*port.name, port.port, port.node_port))
        .collect();
    assert_eq!(ports, [("good", 80, None), ("udp", 80, None)]);
    let mut fields: Vec<&str> = notes
        .iter()
        .map(|note| note.split(": ").nth(1).unwrap())
        .collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "metadata.creationTimestamp",
            "spec.clusterIPs[1]",
            "spec.clusterIPs[2]",
            "spec.externalIPs[1]",
            "spec.externalIPs[2]",
            "spec.externalTrafficPolicy",
            "spec.internalTrafficPolicy",
            "spec.loadBalancerSourceRanges[0]",
            "spec.ports[0].nodePort",
            "spec.ports[1].port",
            "spec.ports[2].port",
            "spec.ports[3].port",
            "spec.ports[4].name",
            "spec.ports[5].name",
            "spec.ports[6].protocol",
            "spec.ports[7].name",
            "spec.ports[8].port",
            "spec.sessionAffinityConfig.clientIP.timeoutSeconds",
            "status.loadBalancer.ingress[0].ip",
            "status.loadBalancer.ingress[2].ipMode",
            "status.loadBalancer.ingress[3]",
        ]
    );
    assert!(
        notes.iter().all(|note| note.starts_with("Service ns/a: ")),
        "{notes:#?}"
    );
}

/// Iptables.md 4.2.
#[test]
fn external_policy_and_health_check_port_need_the_right_type() {
    let read = |kind: &str, external_ips: &[&str]| {
        let (service, _) = service_with(json!({
            "type": kind, "clusterIP": "10.0.0.1", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000,
            "externalIPs": external_ips,
        }));
        (service.external, service.health_check_node_port)
    };
    assert_eq!(read("LoadBalancer", &[]), (Policy::Local, Some(30_000)));
    assert_eq!(read("NodePort", &[]), (Policy::Local, None));
    assert_eq!(read("ClusterIP", &["192.0.2.1"]), (Policy::Local, None));
    assert_eq!(read("ClusterIP", &[]), (Policy::Cluster, None));
}

#[test]
fn names_that_are_no_names_never_get_in() {
    let long = "a".repeat(64);
    for bad in [
        "",
        "a b",
        "a\nb",
        "a\"b",
        "-a",
        "Upper",
        "a.b",
        "*filter\nCOMMIT",
        &long,
    ] {
        let decoded =
            decode(json!({"kind": "Service", "metadata": {"name": bad}, "spec": {"clusterIP": "10.0.0.1"}}));
        assert_eq!(decoded.objects, [], "{bad:?}");
        let [note] = decoded.notes.as_slice() else {
            panic!("{bad:?}: {:?}", decoded.notes)
        };
        assert_eq!(note.severity, Severity::Error);
        assert!(!note.to_string().contains('\n'), "{note}");
    }
    for metadata in [
        json!({"namespace": "a b", "name": "a"}),
        json!({"namespace": 5, "name": "a"}),
        json!({"namespace": "a", "name": 5}),
        json!([]),
        json!(null),
    ] {
        let decoded = decode(json!({"kind": "Service", "metadata": metadata}));
        assert_eq!((decoded.objects.len(), decoded.notes.len()), (0, 1), "{metadata}");
    }
    // Longest names are names (case 48).
    let (service, notes) = service(json!({
        "kind": "Service", "spec": {"clusterIP": "10.96.7.200", "ports": [{"name": "https-alternate", "port": 80}]},
        "metadata": {"namespace": "tenant-example-analytics-platform-preproduction-eu-central-1-bl",
                     "name": "billing-reconciliation-gateway-x-analytics-x-shared-virtual-cl2"},
    }));
    assert_eq!((service.ports.len(), notes.len()), (1, 0));
}

#[test]
fn a_node_says_zone_addresses_networks_and_whether_it_goes() {
    let node = |fields: Value| {
        let mut document = json!({"kind": "Node", "metadata": {"name": "node-a.example", "labels": {"topology.kubernetes.io/zone": "z"}}});
        let Value::Object(fields) = fields else { panic!() };
        document.as_object_mut().unwrap().extend(fields);
        match decode(document).objects.remove(0) {
            Object::Node(node) => node,
            other => panic!("{other:?}"),
        }
    };
    let found = node(json!({
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00:10:244:1::/64", "x"]},
        "status": {"addresses": [
            {"type": "ExternalIP", "address": "203.0.113.1"}, {"type": "Hostname", "address": "node-a"},
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "bad"}]},
    }));
    assert_eq!(found.zone.as_deref(), Some("z"));
    assert_eq!(*found.addresses, *ips(["10.0.0.1", "203.0.113.1"]));
    assert_eq!(found.pod_cidrs.len(), 2);
    assert_eq!(found.eligibility, Eligibility::Eligible);
    let tainted = node(json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler"}]}}));
    assert_eq!(tainted.eligibility, Eligibility::ToBeDeleted);
}

#[test]
fn lists_of_any_kind_are_unwrapped() {
    let service = |name: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": "10.0.0.1"}});
    let mut with_kind = service("a");
    with_kind["kind"] = "Service".into();
    let decoded = decode(json!({"kind": "List", "apiVersion": "v1", "items": [
        with_kind,
        {"kind": "ServiceList", "apiVersion": "v1", "items": [service("b"), service("c")]},
        {"kind": "ServiceCIDRList", "apiVersion": "networking.k8s.io/v1", "items": [{"metadata": {"name": "d"}, "spec": {"cidrs": ["10.96.0.0/12"]}}]},
        null, "junk",
    ]}));
    let kinds: Vec<Kind> = decoded.objects.iter().map(Object::kind).collect();
    assert_eq!(
        kinds,
        [Kind::Service, Kind::Service, Kind::Service, Kind::ServiceCidr]
    );
    assert_eq!(decoded.notes.len(), 1, "{:?}", decoded.notes);
}

/// Case 3, and a kind of the same name in another group.
#[test]
fn other_kinds_are_named_and_not_read() {
    let decoded = decode(json!({"kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "api", "namespace": "default"}},
        {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "hello"}},
        {"kind": "Deployment", "metadata": {"name": "api"}},
    ]}));
    assert_eq!(decoded.objects, []);
    let kinds: Vec<&str> = decoded.not_read.iter().map(|other| other.kind.as_str()).collect();
    assert_eq!(kinds, ["Endpoints", "Service", "Deployment"]);
    assert_eq!(decoded.not_read[0].namespace, "default");
}

#[test]
fn typed_readers_get_the_same_as_documents() {
    let text = r#"{"metadata": {"name": "a", "resourceVersion": "7", "annotations": {"k": "v"}, "managedFields": [{"x": 1}]},
                   "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80, "targetPort": "http"}], "selector": {"app": "a"}}}"#;
    let raw: raw::Service = serde_json::from_str(text).unwrap();
    let meta = raw.metadata.given().unwrap();
    assert_eq!(meta.resource_version.given().map(String::as_str), Some("7"));
    let mut document: Value = serde_json::from_str(text).unwrap();
    document["kind"] = "Service".into();
    assert_eq!(convert_service(&raw).object, decode(document).objects.pop());
}

#[test]
fn a_note_carries_kind_name_field_and_reason() {
    let decoded = decode(
        json!({"kind": "Service", "metadata": {"namespace": "ns", "name": "a"},
        "spec": {"clusterIP": "10.0.0.1", "externalIPs": ["no\nip"]}}),
    );
    let [note] = decoded.notes.as_slice() else {
        panic!()
    };
    assert_eq!(
        (note.subject.kind, &*note.subject.namespace, &*note.subject.name),
        ("Service", "ns", "a")
    );
    let NoteKind::BadField { field, value, reason } = &note.kind else {
        panic!()
    };
    assert_eq!(
        (field.as_str(), value.as_str(), reason.as_str()),
        ("spec.externalIPs[0]", "no\nip", "is no IP address")
    );
    assert_eq!(
        note.to_string(),
        "Service ns/a: spec.externalIPs[0]: \"no\\nip\" left out: is no IP address"
    );
}

#[test]
fn a_service_is_balanced_at_random_unless_the_annotation_says_otherwise_in_words_we_know() {
    let said = |annotations: Value| {
        let (service, notes) = service(json!({"kind": "Service",
            "metadata": {"name": "a", "annotations": annotations}, "spec": {"clusterIP": "10.0.0.1"}}));
        (service.balancing, notes)
    };
    let by = |value: Value| said(json!({BALANCING_ANNOTATION: value}));
    assert_eq!(said(json!({"other": "client-hash"})), (Balancing::Random, vec![]));
    assert_eq!(by(json!("random")), (Balancing::Random, vec![]));
    assert_eq!(by(json!("client-hash")), (Balancing::ClientHash, vec![]));
    for bad in [json!("Client-Hash"), json!(""), json!(1)] {
        let (balancing, notes) = by(bad);
        assert_eq!(balancing, Balancing::Random);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(
            notes[0].contains("metadata.annotations[kube-proxy-rs.io/balancing]"),
            "{notes:?}"
        );
    }
}
