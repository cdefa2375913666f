//! Metrics by Service: what is on the page, and that none of it is there unless it was asked for.

use super::*;
use crate::counting::Extent;
use crate::counting::Reading;
use iptables::counted::{CountedPort, Counts};
use nftables::ast::Value as Part;
use std::num::NonZeroUsize;

fn counting(most: usize) -> Serving {
    let pages = PageOptions {
        service_metrics: NonZeroUsize::new(most),
        ..PageOptions::default()
    };
    Serving::new(&KubeProxyConfiguration::defaults(), "n1".into(), &pages).0
}

fn reading(id: u64, name: &str, counts: Counts, packets: u64) -> Reading {
    Reading {
        id,
        port: CountedPort {
            service: ServiceName::new("shop", name),
            port: "http".into(),
        },
        counts,
        packets,
    }
}

#[test]
fn each_port_with_traffic_has_its_series_and_the_others_are_counted() {
    let serving = counting(1);
    serving.counted(
        Family::V4,
        vec![
            reading(1, "cart", Counts::Connections, 7),
            reading(2, "cart", Counts::Dropped, 2),
            reading(3, "pay", Counts::Connections, 1),
            reading(4, "idle", Counts::Connections, 0),
        ],
    );
    serving.not_counted(Family::V6);
    serving.all_counted(Duration::from_millis(1500));
    let text = serving.service_metrics();
    let at = r#"ip_family="IPv4",namespace="shop",port="http",service="cart""#;
    for line in [
        format!("kubeproxy_rs_service_connections_total{{{at}}} 7\n"),
        format!("kubeproxy_rs_service_refused_packets_total{{action=\"reject\",{at}}} 0\n"),
        format!("kubeproxy_rs_service_refused_packets_total{{action=\"drop\",{at}}} 2\n"),
        "kubeproxy_rs_service_ports_left_out 1\n".to_owned(),
        "kubeproxy_rs_service_counters_reading_seconds 1.5\n".to_owned(),
        "kubeproxy_rs_service_counters_failures_total{ip_family=\"IPv6\"} 1\n".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} in {text}");
    }
    assert!(!text.contains("pay") && !text.contains("idle"), "{text}");
}

#[test]
fn hostile_names_stay_within_their_label() {
    let serving = counting(9);
    serving.counted(
        Family::V4,
        vec![reading(1, "a\"} 1\nevil{x=\"\\", Counts::Connections, 1)],
    );
    serving.all_counted(Duration::ZERO);
    let text = serving.service_metrics();
    assert!(text.contains(r#"service="a\"} 1\nevil{x=\"\\"} 1"#), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("evil")), "{text}");
}

#[tokio::test]
async fn the_page_has_them_only_when_they_were_asked_for() {
    for (most, is_there) in [(0, false), (5, true)] {
        let serving = counting(most);
        serving.counted(Family::V4, vec![reading(1, "cart", Counts::Connections, 7)]);
        serving.all_counted(Duration::ZERO);
        let at = up(metrics_pages::router(&serving)).await;
        let page = ask(at, "GET", "/metrics").await.body;
        assert_eq!(page.contains("kubeproxy_rs_service_"), is_there, "{most}: {page}");
        assert!(page.contains("kubeproxy_rs_node_found"), "{page}");
        let of_cart = serving.counted_of(&ServiceName::new("shop", "cart"));
        assert_eq!(of_cart.map(|ports| ports.len()), is_there.then_some(1));
    }
}

/// A Service with all kinds of frontend, of which clients outside have no endpoint here, and one that has none at all.
fn snapshot() -> Snapshot {
    let documents = [
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "namespace": "ns"},
            "spec": {
                "type": "LoadBalancer", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
                "externalTrafficPolicy": "Local", "externalIPs": ["192.0.2.77"],
                "ports": [{"name": "a", "port": 80, "nodePort": 30080, "protocol": "TCP"}],
            },
        }),
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "lb-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "lb"}},
            "ports": [{"name": "a", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": ["10.244.2.1"], "nodeName": "n2"}],
        }),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "empty", "namespace": "ns"},
            "spec": {
                "clusterIP": "10.0.0.10", "clusterIPs": ["10.0.0.10"], "ipFamilies": ["IPv4"],
                "ports": [{"port": 53, "protocol": "UDP"}],
            },
        }),
    ];
    let mut snapshot = Snapshot::new();
    for object in documents
        .into_iter()
        .flat_map(|document| decode(document).objects)
    {
        snapshot.apply(Change::Apply(object));
    }
    snapshot
}

#[test]
fn in_nftables_mode_each_address_is_counted_as_what_becomes_of_its_connections() {
    let config = KubeProxyConfiguration {
        mode: "nftables".to_owned(),
        ..KubeProxyConfiguration::defaults()
    };
    let pages = PageOptions {
        service_metrics: NonZeroUsize::new(9),
        ..PageOptions::default()
    };
    let serving = Serving::new(&config, "n1".into(), &pages).0;
    let (snapshot, settings) = (snapshot(), model::Settings::default());
    let facts = NodeFacts {
        name: "n1".into(),
        ..NodeFacts::default()
    };
    let context = Context {
        family: Family::V4,
        node: &facts,
        settings: &settings,
        claims: snapshot.claims(),
    };
    serving.tell_places(&snapshot, &context, &Recount::All);
    let told = serving.take_places(Family::V4);
    assert_eq!(told.extent, Extent::All);
    let at = |key: &[Part]| {
        let ip = key.iter().find_map(|part| match part {
            Part::Address(ip) => Some(ip.to_string()),
            _ => None,
        });
        ip.unwrap_or_else(|| "node port".to_owned())
    };
    let mut found: Vec<_> = told
        .services
        .values()
        .flatten()
        .map(|place| (at(&place.key), place.port.port.to_string(), place.counts))
        .collect();
    found.sort();
    let expected = [
        ("10.0.0.10", "", Counts::Rejected),
        ("10.0.0.9", "a", Counts::Connections),
        ("192.0.2.77", "a", Counts::Connections),
        ("node port", "a", Counts::Connections),
    ];
    assert_eq!(
        found,
        expected.map(|(at, port, counts)| (at.to_owned(), port.to_owned(), counts))
    );
    // Nothing is told twice, and of a service that is gone that it has no place.
    assert!(serving.take_places(Family::V4).services.is_empty());
    let gone = ServiceName::new("ns", "gone");
    serving.tell_places(&snapshot, &context, &Recount::These([gone.clone()].into()));
    let told = serving.take_places(Family::V4);
    assert_eq!(
        (told.extent, told.services.get(&gone)),
        (Extent::Some, Some(&Vec::new()))
    );
}
