//! Whatever stands in an object, what comes out of resolving can be written into rules.

use model::object::{self, Object};
use model::snapshot::{Change, Snapshot};
use model::{Desired, DesiredPort, Family, FrontendKind, NodeFacts, Settings};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::IpAddr;

fn good_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": "ns", "name": "svc", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "ipFamilies": ["IPv4", "IPv6"], "externalIPs": ["192.0.2.1", "2001:db8::1"],
            "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 300}},
            "internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Local", "healthCheckNodePort": 30500,
            "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8::/32"],
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1", "ipMode": "VIP"}, {"ip": "2001:db8::2"}]}},
    })
}

fn good_slice(family: &str, address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
        "metadata": {"namespace": "ns", "name": format!("svc-{}", family.to_lowercase()), "labels": {"kubernetes.io/service-name": "svc"}},
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": [{"addresses": [address], "nodeName": "node-a",
            "conditions": {"ready": true, "serving": true, "terminating": false},
            "hints": {"forZones": [{"name": "z"}], "forNodes": [{"name": "node-a"}]}}],
    })
}

/// Texts that go wrong somewhere, and texts of no kind at all.
fn junk_text() -> impl Strategy<Value = String> {
    let known = [
        "",
        " ",
        "None",
        "0",
        "-1",
        "65536",
        "10.96.0.1",
        "::1",
        "::ffff:10.0.0.1",
        "010.000.0.1",
        "256.1.1.1",
        "fe80::1%eth0",
        "IPv4",
        "IPv6",
        "FQDN",
        "TCP",
        "UDP",
        "Local",
        "Cluster",
        "ClientIP",
        "ExternalName",
        "a b",
        "a\nb",
        "\"",
        "x -j ACCEPT",
        "*nat\nCOMMIT\n",
        "\u{0}",
        "\u{1b}[31m",
        "ünïcode",
        "10.0.0.0/8",
        "::/0",
        "0.0.0.0/0",
        "1.2.3.4/99",
        "svc",
        "-dash",
        "UPPER",
    ];
    prop_oneof![
        3 => proptest::sample::select(known.to_vec()).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z0-9.:/-]{0,300}",
    ]
}

fn junk() -> impl Strategy<Value = Value> {
    prop_oneof![
        6 => junk_text().prop_map(Value::from),
        2 => any::<i64>().prop_map(Value::from),
        1 => (0..70_000i64).prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => Just(json!([])),
        1 => Just(json!({})),
        1 => Just(json!([[{"name": 1}]])),
        1 => junk_text().prop_map(|text| json!({text: [null]})),
        1 => junk_text().prop_map(|text| json!([text, 1, {}])),
    ]
}

/// Paths of everything in a document, containers included.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                paths(
                    inner,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    found,
                );
            }
        }
        Value::Array(items) => {
            for (i, inner) in items.iter().enumerate() {
                paths(inner, &format!("{at}/{i}"), found);
            }
        }
        _ => {}
    }
}

fn spoilt(good: Value) -> impl Strategy<Value = Value> {
    let spoil = (any::<proptest::sample::Index>(), junk());
    proptest::collection::vec(spoil, 1..4).prop_map(move |spoils| {
        let mut document = good.clone();
        for (which, junk) in spoils {
            let mut all = Vec::new();
            paths(&document, "", &mut all);
            let path = &all[which.index(all.len())];
            *document.pointer_mut(path).expect("the path was just found") = junk;
        }
        document
    })
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 63
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn check_port(port: &DesiredPort, family: Family) -> Result<(), TestCaseError> {
    let of_family = |ip: IpAddr| Family::of(ip) == family;
    prop_assert!(
        is_label(&port.name.service.namespace) && is_label(&port.name.service.name),
        "{port:?}"
    );
    prop_assert!(port.name.port.is_empty() || is_label(&port.name.port), "{port:?}");
    prop_assert!(port.health_check_node_port != Some(0));
    prop_assert!(
        port.affinity
            .is_none_or(|affinity| (1..=86_400).contains(&affinity.timeout_seconds))
    );
    for endpoint in port.cluster.iter().chain(&port.local).chain(&port.reachable) {
        prop_assert!(of_family(endpoint.ip()) && endpoint.port() != 0, "{port:?}");
        prop_assert!(port.reachable.contains(endpoint), "{port:?}");
    }
    for frontend in &port.frontends {
        prop_assert!(frontend.port != 0, "{port:?}");
        match frontend.kind {
            FrontendKind::ClusterIp(ip) | FrontendKind::ExternalIp(ip) | FrontendKind::LoadBalancerIp(ip) => {
                prop_assert!(of_family(ip), "{port:?}");
            }
            FrontendKind::NodePort => {}
        }
        if let Some(admission) = &frontend.admission {
            prop_assert!(!admission.ranges.is_empty());
            prop_assert!(
                admission
                    .ranges
                    .iter()
                    .all(|net| of_family(net.addr()) && net.trunc() == *net)
            );
        }
    }
    Ok(())
}

fn check(documents: Vec<Value>) -> Result<(), TestCaseError> {
    let mut snapshot = Snapshot::new();
    let mut notes = Vec::new();
    for document in documents {
        let decoded = object::decode(document);
        notes.extend(decoded.notes);
        for object in decoded.objects {
            snapshot.apply(Change::Apply(object));
        }
    }
    let node = NodeFacts {
        name: "node-a".into(),
        zone: Some("z".into()),
        ..NodeFacts::default()
    };
    for family in Family::ALL {
        let (desired, more) = Desired::from_snapshot(&snapshot, family, &node, &Settings::default());
        notes.extend(more);
        for port in desired.services.values().flat_map(|service| &service.ports) {
            check_port(port, family)?;
        }
    }
    for note in notes {
        prop_assert!(!note.to_string().contains(['\n', '\u{1b}', '\0']), "{note:?}");
    }
    Ok(())
}

proptest! {
    #[test]
    fn junk_anywhere_in_a_service_never_reaches_rules(service in spoilt(good_service())) {
        check(vec![service, good_slice("IPv4", "10.0.0.1"), good_slice("IPv6", "fd00::a")])?;
    }

    #[test]
    fn junk_anywhere_in_a_slice_never_reaches_rules(
        v4 in spoilt(good_slice("IPv4", "10.0.0.1")),
        v6 in spoilt(good_slice("IPv6", "fd00::a")),
    ) {
        check(vec![good_service(), v4, v6])?;
    }

    #[test]
    fn any_document_at_all_is_decoded(document in junk(), kind in junk_text()) {
        object::decode(document.clone());
        object::decode(json!({"kind": kind, "metadata": document, "spec": document, "items": document}));
    }

    /// Beam 7: what a bad object says costs no other object anything.
    #[test]
    fn a_bad_object_harms_only_itself(bad in spoilt(good_service())) {
        let other = || {
            let mut other = good_service();
            other["metadata"]["namespace"] = "other".into();
            // Older, so that it keeps what both claim.
            other["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
            other["spec"]["clusterIPs"] = json!(["10.96.0.2", "fd00::2"]);
            other["spec"]["clusterIP"] = "10.96.0.2".into();
            other
        };
        let desired = |documents: Vec<Value>| {
            let mut snapshot = Snapshot::new();
            for object in documents.into_iter().flat_map(|document| object::decode(document).objects) {
                snapshot.apply(Change::Apply(object));
            }
            let name = model::ServiceName::new("other", "svc");
            let (mut desired, _) = Desired::from_snapshot(&snapshot, Family::V4, &NodeFacts::default(), &Settings::default());
            desired.services.remove(&name)
        };
        let is_other = |object: &Object| matches!(object, Object::Service(service) if &*service.name.namespace == "other");
        prop_assume!(!object::decode(bad.clone()).objects.iter().any(is_other));
        let alone = desired(vec![other()]);
        prop_assert!(alone.is_some());
        prop_assert_eq!(desired(vec![bad, other()]), alone);
    }
}
