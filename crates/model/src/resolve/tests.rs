//! The meaning of services. What packets make of it is in the truth tables.

#![expect(
    clippy::needless_pass_by_value,
    reason = "`json!` values are made in the call"
)]

use super::*;
use crate::object::decode;
use crate::snapshot::Change;
use crate::{LocalDetector, NodePortAddresses, NodePortTargets, PerFamily, Protocol, ServiceName};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

fn node_in(zone: Option<&str>) -> NodeFacts {
    NodeFacts {
        name: "node-a".into(),
        zone: zone.map(Arc::from),
        ..NodeFacts::default()
    }
}

fn cluster(documents: Value) -> Snapshot {
    let mut snapshot = Snapshot::new();
    let Value::Array(documents) = documents else {
        panic!()
    };
    for document in documents {
        let decoded = decode(document);
        assert_eq!(decoded.notes, []);
        for object in decoded.objects {
            snapshot.apply(Change::Apply(object));
        }
    }
    snapshot
}

fn service(mut spec: Value) -> Value {
    if spec.get("clusterIP").is_none() {
        spec["clusterIP"] = "10.96.0.1".into();
    }
    if spec.get("ports").is_none() {
        spec["ports"] = json!([{"port": 80}]);
    }
    json!({"kind": "Service", "metadata": {"name": "a"}, "spec": spec})
}

fn slice(name: &str, port: Value, endpoints: Value) -> Value {
    json!({"kind": "EndpointSlice", "addressType": "IPv4", "ports": [port], "endpoints": endpoints,
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "a"}}})
}

fn resolved(snapshot: &Snapshot, node: &NodeFacts, settings: &Settings) -> (DesiredService, Vec<Note>) {
    let (mut desired, notes) = Desired::from_snapshot(snapshot, Family::V4, node, settings);
    (
        desired
            .services
            .remove(&ServiceName::new("default", "a"))
            .expect("the service is there"),
        notes,
    )
}

fn plainly(documents: Value) -> (DesiredService, Vec<Note>) {
    resolved(&cluster(documents), &node_in(None), &Settings::default())
}

fn texts(list: &[SocketAddr]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

#[test]
fn lists_are_sorted_as_text() {
    let addresses = ["10.0.0.9", "10.0.0.10", "10.0.0.100", "9.0.0.1"];
    let endpoints: Vec<Value> = addresses.iter().map(|ip| json!({"addresses": [ip]})).collect();
    let (service, _) = plainly(json!([
        service(json!({})),
        slice("a-1", json!({"port": 80}), json!(endpoints))
    ]));
    let expected = ["10.0.0.100:80", "10.0.0.10:80", "10.0.0.9:80", "9.0.0.1:80"];
    assert_eq!(texts(&service.ports[0].cluster), expected);
    assert_eq!(texts(&service.ports[0].reachable), expected);
}

/// Case 1: the name joins Service and slice, not the number.
#[test]
fn ports_are_joined_by_name_and_protocol() {
    let (service, _) = plainly(json!([
        service(
            json!({"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53}]})
        ),
        slice(
            "a-1",
            json!({"name": "dns", "protocol": "UDP", "port": 5353}),
            json!([{"addresses": ["10.0.0.1"]}])
        ),
        slice(
            "a-2",
            json!({"name": "dns", "protocol": "TCP", "port": 53}),
            json!([{"addresses": ["10.0.0.2"]}])
        ),
        slice(
            "a-3",
            json!({"name": "", "protocol": "TCP", "port": 53}),
            json!([{"addresses": ["10.0.0.3"]}])
        ),
    ]));
    assert_eq!(texts(&service.ports[0].cluster), ["10.0.0.1:5353"]);
    assert_eq!(texts(&service.ports[1].cluster), Vec::<String>::new());
    assert_eq!(
        (
            service.ports[0].listed_endpoints,
            service.ports[1].listed_endpoints
        ),
        (1, 0)
    );
}

/// Two endpoints may share an address when their ports differ.
#[test]
fn slices_with_other_port_numbers_add_up() {
    let (service, notes) = plainly(json!([
        service(json!({})),
        slice("a-1", json!({"port": 80}), json!([{"addresses": ["10.0.0.1"]}])),
        slice("a-2", json!({"port": 8080}), json!([{"addresses": ["10.0.0.1"]}])),
    ]));
    assert_eq!(texts(&service.ports[0].cluster), ["10.0.0.1:80", "10.0.0.1:8080"]);
    assert_eq!(notes, []);
}

#[test]
fn of_two_entries_for_one_endpoint_the_better_one_counts() {
    let terminating = json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": false, "serving": true, "terminating": true}}]);
    let ready = json!([{"addresses": ["10.0.0.1"]}]);
    for (first, second) in [(&terminating, &ready), (&ready, &terminating)] {
        let (service, notes) = plainly(json!([
            service(json!({})),
            slice("a-1", json!({"port": 80}), first.clone()),
            slice("a-2", json!({"port": 80}), second.clone()),
            slice("a-3", json!({"port": 80}), json!([{"addresses": ["10.0.0.2"]}])),
        ]));
        assert_eq!(texts(&service.ports[0].cluster), ["10.0.0.1:80", "10.0.0.2:80"]);
        assert_eq!(service.ports[0].listed_endpoints, 2);
        let said: Vec<String> = notes.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            ["Service default/a: endpoint 10.0.0.1:80 is listed more than once"]
        );
    }
}

/// Case 5.
#[test]
fn slices_with_the_headless_label_are_passed_over() {
    let mut headless = slice("a-1", json!({"port": 80}), json!([{"addresses": ["10.0.0.1"]}]));
    headless["metadata"]["labels"]["service.kubernetes.io/headless"] = "".into();
    let (service, _) = plainly(json!([service(json!({})), headless]));
    let reject = Route::Reject(Reason::NoEndpoints);
    assert_eq!(service.ports[0].frontends[0].routes.pod, reject);
    assert_eq!(service.ports[0].listed_endpoints, 0);
}

#[test]
fn without_a_node_name_no_endpoint_is_local() {
    let snapshot = cluster(json!([
        service(json!({"internalTrafficPolicy": "Local"})),
        slice(
            "a-1",
            json!({"port": 80}),
            json!([{"addresses": ["10.0.0.1"], "nodeName": ""}, {"addresses": ["10.0.0.2"]}])
        ),
    ]));
    let (service, notes) = resolved(&snapshot, &NodeFacts::default(), &Settings::default());
    assert_eq!(
        service.ports[0].frontends[0].routes.outside,
        Route::Drop(Reason::NoLocalEndpoints)
    );
    assert_eq!(notes.len(), 1, "{notes:?}");
}

#[test]
fn frontends_come_in_order_and_only_of_the_family() {
    let mut object = service(json!({
        "type": "LoadBalancer", "clusterIPs": ["10.96.0.1", "fd00::1"], "ports": [{"port": 80, "nodePort": 30080}],
        "externalIPs": ["192.0.2.2", "2001:db8::2", "192.0.2.1"],
    }));
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.3"}, {"ip": "2001:db8::3"}]}});
    let (service, _) = plainly(json!([object]));
    let kinds: Vec<(FrontendKind, u16)> = service.ports[0]
        .frontends
        .iter()
        .map(|f| (f.kind, f.port))
        .collect();
    let ip = |text: &str| text.parse().unwrap();
    assert_eq!(
        kinds,
        [
            (FrontendKind::ClusterIp(ip("10.96.0.1")), 80),
            (FrontendKind::ExternalIp(ip("192.0.2.2")), 80),
            (FrontendKind::ExternalIp(ip("192.0.2.1")), 80),
            (FrontendKind::LoadBalancerIp(ip("192.0.2.3")), 80),
            (FrontendKind::NodePort, 30_080),
        ]
    );
}

#[test]
fn a_service_without_a_cluster_ip_of_the_family_wants_nothing() {
    let snapshot = cluster(json!([service(json!({"clusterIP": "fd00::1"}))]));
    let (desired, _) = Desired::from_snapshot(&snapshot, Family::V4, &node_in(None), &Settings::default());
    assert!(desired.services.is_empty());
    let (desired, _) = Desired::from_snapshot(&snapshot, Family::V6, &node_in(None), &Settings::default());
    assert_eq!(desired.services.len(), 1);
}

#[test]
fn source_ranges_admit_only_with_endpoints_and_never_mean_everybody() {
    let admission = |ranges: Value, endpoints: Value| {
        let mut object = service(json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges}));
        object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.3"}, {"ip": "192.0.2.4"}]}});
        let snapshot = cluster(json!([object, slice("a-1", json!({"port": 80}), endpoints)]));
        let mut node = node_in(None);
        node.node_ips.v4 = Some("192.168.0.2".parse().unwrap());
        let (service, _) = resolved(&snapshot, &node, &Settings::default());
        assert_eq!(
            service.ports[0].frontends[0].admission, None,
            "cluster IPs are for everybody"
        );
        service.ports[0].frontends[1].admission.clone()
    };
    let one = || json!([{"addresses": ["10.0.0.1"]}]);
    assert_eq!(admission(json!(["10.0.0.0/8"]), json!([])), None);
    assert_eq!(admission(json!(["10.0.0.0/8", "0.0.0.0/0"]), one()), None);
    assert_eq!(admission(json!(["2001:db8::/32"]), one()), None);
    let here = admission(json!(["10.0.0.0/8", "::/0"]), one()).unwrap();
    assert_eq!((here.ranges.len(), here.self_sources.len()), (1, 0));
    let node = admission(json!(["192.168.0.0/16", "10.0.0.0/8"]), one()).unwrap();
    let texts: Vec<String> = node.ranges.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["192.168.0.0/16", "10.0.0.0/8"], "in the object's order");
    assert_eq!(node.self_sources.len(), 2);
}

#[test]
fn affinity_and_health_check_port_reach_every_port() {
    let (service, _) = plainly(json!([service(json!({
        "type": "LoadBalancer", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30000,
        "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10}},
        "ports": [{"name": "b", "port": 80}, {"name": "a", "port": 81}, {"name": "a", "port": 81, "protocol": "UDP"}],
    }))]));
    let names: Vec<(&str, Protocol)> = service
        .ports
        .iter()
        .map(|p| (&*p.name.port, p.name.protocol))
        .collect();
    assert_eq!(
        names,
        [("a", Protocol::Tcp), ("a", Protocol::Udp), ("b", Protocol::Tcp)]
    );
    for port in &service.ports {
        assert_eq!(port.affinity, Some(crate::Affinity { timeout_seconds: 10 }));
        assert_eq!(port.health_check_node_port, Some(30_000));
    }
}

#[test]
fn each_route_says_why() {
    let reasons = |policy: &str, detectors: PerFamily<Option<LocalDetector>>, masquerade_all: bool| {
        let snapshot = cluster(json!([
            service(
                json!({"type": "NodePort", "externalTrafficPolicy": policy, "ports": [{"port": 80, "nodePort": 30080}]})
            ),
            slice(
                "a-1",
                json!({"port": 80}),
                json!([{"addresses": ["10.0.0.1"], "nodeName": "node-a"}])
            ),
        ]));
        let settings = Settings {
            masquerade_all,
            detectors,
            ..Settings::default()
        };
        let (service, _) = resolved(&snapshot, &node_in(None), &settings);
        let reason = |route| match route {
            Route::Endpoints { reason, .. } | Route::Reject(reason) | Route::Drop(reason) => reason,
        };
        let frontends = service.ports[0].frontends.iter();
        let all = frontends.map(|f| [f.routes.pod, f.routes.node, f.routes.outside].map(reason));
        let all: Vec<[Reason; 3]> = all.collect();
        (all[0], all[1])
    };
    let detector = || PerFamily {
        v4: Some(LocalDetector::Bridge("cni0".into())),
        v6: None,
    };
    let off = [
        Reason::ClusterIpFromPod,
        Reason::ClusterIpOffCluster,
        Reason::ClusterIpOffCluster,
    ];
    let local = [
        Reason::ShortCircuitPod,
        Reason::ShortCircuitNode,
        Reason::ExternalLocal,
    ];
    assert_eq!(reasons("Local", detector(), false), (off, local));
    let blind = [
        Reason::ExternalLocal,
        Reason::ShortCircuitNode,
        Reason::ExternalLocal,
    ];
    assert_eq!(
        reasons("Local", PerFamily::default(), false),
        ([Reason::ClusterIpUndetected; 3], blind)
    );
    assert_eq!(
        reasons("Cluster", detector(), true),
        ([Reason::MasqueradeAll; 3], [Reason::ExternalCluster; 3])
    );
}

#[test]
fn node_ports_are_served_where_the_settings_say() {
    let node = NodeFacts {
        interface_addresses: ["10.0.0.5", "127.0.0.1", "192.168.0.2", "::1", "2001:db8::1"]
            .map(|ip| ip.parse().unwrap())
            .into(),
        ..NodeFacts::default()
    };
    let targets = |family, nets: &[&str], wanted| {
        let nets: Vec<IpNet> = nets.iter().map(|net| net.parse().unwrap()).collect();
        let mut settings = Settings {
            localhost_node_ports_wanted: wanted,
            ..Settings::default()
        };
        *settings.node_port_addresses.get_mut(family) = NodePortAddresses::In(nets);
        resolve_node(family, &node, &settings).node_ports
    };
    let only = |ips: &[&str]| NodePortTargets::Only(ips.iter().map(|ip| ip.parse().unwrap()).collect());
    assert_eq!(
        targets(Family::V4, &["192.168.0.0/16", "10.0.0.0/8", "10.0.0.0/24"], true),
        only(&["10.0.0.5", "192.168.0.2"])
    );
    assert_eq!(targets(Family::V4, &["127.0.0.0/8"], true), only(&["127.0.0.1"]));
    assert_eq!(targets(Family::V4, &["127.0.0.0/8"], false), only(&[]));
    assert_eq!(targets(Family::V4, &["172.16.0.0/12"], true), only(&[]));
    assert_eq!(
        targets(Family::V4, &["2001:db8::/32"], true),
        NodePortTargets::AllLocal
    );
    assert_eq!(
        targets(Family::V4, &["10.0.0.0/8", "0.0.0.0/0"], true),
        NodePortTargets::AllLocal
    );
    assert_eq!(
        targets(Family::V6, &["::1/128", "2001:db8::/32"], true),
        only(&["2001:db8::1"])
    );
    assert_eq!(
        resolve_node(Family::V4, &node, &Settings::default()).node_ports,
        NodePortTargets::AllLocal
    );
}

/// Of CVE-2020-8554: an address that nobody gave out is not taken by writing it into `externalIPs`.
#[test]
fn external_ips_outside_the_allowed_networks_are_left_out_with_a_note_and_others_stay() {
    let mut object = service(json!({
        "type": "LoadBalancer", "clusterIPs": ["10.96.0.1", "fd00::1"],
        "ports": [{"name": "a", "port": 80, "nodePort": 30080}, {"name": "b", "port": 81}],
        "externalIPs": ["203.0.113.9", "198.51.100.7", "2001:db8::9"],
    }));
    object["status"] = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.8"}]}});
    let settings = Settings {
        external_ips: ExternalIps::Within(["203.0.113.0/24".parse().unwrap()].into()),
        ..Settings::default()
    };
    let (service, notes) = resolved(&cluster(json!([object])), &node_in(None), &settings);
    let ip = |text: &str| text.parse().unwrap();
    for port in &service.ports {
        let kinds: Vec<FrontendKind> = port.frontends.iter().map(|frontend| frontend.kind).collect();
        let want = [
            FrontendKind::ClusterIp(ip("10.96.0.1")),
            FrontendKind::ExternalIp(ip("203.0.113.9")),
            FrontendKind::LoadBalancerIp(ip("198.51.100.8")),
            FrontendKind::NodePort,
        ];
        assert_eq!(kinds, want[..kinds.len()]);
    }
    let said: Vec<(Severity, String)> = notes
        .iter()
        .map(|note| (note.severity, note.to_string()))
        .collect();
    let text = "Service default/a: external IP 198.51.100.7 left out: it is in no network of --external-ip-allowed-cidrs";
    assert_eq!(said, [(Severity::Warning, text.to_owned())]);
}

#[test]
fn a_hash_of_the_client_gives_way_to_the_mode_and_to_affinity_and_a_note_says_so() {
    let asked = |spec: Value, client_hashing| {
        let mut service = service(spec);
        service["metadata"]["annotations"] = json!({"kube-proxy-rs.io/balancing": "client-hash"});
        let settings = Settings {
            client_hashing,
            ..Settings::default()
        };
        let (resolved, notes) = resolved(&cluster(json!([service])), &node_in(None), &settings);
        let notes: Vec<NoteKind> = notes.into_iter().map(|note| note.kind).collect();
        (resolved.ports[0].balancing, notes)
    };
    let ignored = |why| vec![NoteKind::BalancingIgnored { why }];
    let sticky = json!({"sessionAffinity": "ClientIP"});
    assert_eq!(
        asked(json!({}), ClientHashing::Possible),
        (Balancing::ClientHash, vec![])
    );
    assert_eq!(
        asked(json!({}), ClientHashing::Impossible),
        (Balancing::Random, ignored(BalancingIgnored::Mode))
    );
    assert_eq!(
        asked(sticky, ClientHashing::Possible),
        (Balancing::Random, ignored(BalancingIgnored::Affinity))
    );
}
