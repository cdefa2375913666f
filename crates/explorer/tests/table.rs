//! The table of addresses says what the answers beside it say, and the list of Services what their pages say.

mod support;

use explain::{HostFacts, Parts};
use explorer::{AboutWorld, Explored};
use model::ServiceName;
use serde_json::{Value, json};

fn node() -> Value {
    json!({"kind": "Node", "metadata": {"name": "node-a"}, "spec": {"podCIDRs": ["10.244.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]}})
}

fn service(spec: &Value, ingress: &Value) -> Value {
    let mut all = json!({"type": "NodePort", "clusterIP": "10.96.8.10", "clusterIPs": ["10.96.8.10"],
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    json!({"kind": "Service", "metadata": {"name": "cart", "namespace": "shop"}, "spec": all,
        "status": {"loadBalancer": {"ingress": ingress}}})
}

/// Endpoints by address and node, ready or not.
fn slice(endpoints: &[(&str, &str, bool)]) -> Value {
    let endpoint = |(ip, node, ready): &(&str, &str, bool)| json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": ready, "serving": ready}});
    let is_v6 = endpoints.iter().any(|(ip, ..)| ip.contains(':'));
    json!({"kind": "EndpointSlice", "metadata": {"name": if is_v6 { "cart-6" } else { "cart-4" }, "namespace": "shop",
        "labels": {"kubernetes.io/service-name": "cart"}}, "addressType": if is_v6 { "IPv6" } else { "IPv4" },
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()})
}

const READY: &[(&str, &str, bool)] = &[("10.244.1.5", "node-a", true)];

fn explored(documents: Vec<Value>, config: &Value) -> Explored {
    let mut config = config.clone();
    config["clusterCIDR"] = "10.244.0.0/16".into();
    let parts = Parts {
        documents,
        facts: HostFacts::read(&json!({"config": config})).expect("good facts"),
        ..Parts::default()
    };
    support::explored(parts)
}

fn ask(explored: &Explored, asked: &AboutWorld) -> Value {
    serde_json::from_str(&explored.answer(asked, None).body).expect("JSON")
}

fn page(documents: Vec<Value>, config: &Value) -> Value {
    ask(
        &explored(documents, config),
        &AboutWorld::Service(ServiceName::new("shop", "cart")),
    )
}

/// The row of one kind of address.
fn row<'v>(page: &'v Value, what: &str) -> &'v Value {
    let mut rows = page["ports"][0]["frontends"].as_array().expect("rows").iter();
    rows.find(|row| row["what"] == what).expect("such a row")
}

fn card<'v>(page: &'v Value, from: &str) -> &'v Value {
    let mut cards = page["answers"].as_array().expect("cards").iter();
    cards
        .find(|card| card["asked_from"] == from)
        .expect("such a card")
}

#[test]
fn node_ports_are_told_with_the_addresses_that_serve_them() {
    for mode in ["iptables", "nftables"] {
        let on = |addresses: Value| {
            let config = json!({"mode": mode, "nodePortAddresses": addresses});
            page(
                vec![node(), service(&json!({}), &json!([])), slice(READY)],
                &config,
            )
        };
        let served = on(json!(["192.0.2.0/24"]));
        assert_eq!(row(&served, "node port")["at"], "30080 on 192.0.2.11", "{mode}");
        assert_eq!(row(&served, "node port")["outside"]["ends"], "endpoints");
        assert_eq!(card(&served, "outside")["reachable"], "yes");
        let elsewhere = on(json!(["198.51.100.0/24"]));
        let cell = row(&elsewhere, "node port");
        assert_eq!(cell["at"], "30080 on no IPv4 address of this node", "{mode}");
        for from in ["pod", "node", "outside"] {
            assert_eq!(cell[from]["ends"], "not served", "{mode} {from}");
        }
        let card = card(&elsewhere, "outside");
        assert_eq!(card["reachable"], "no", "{mode}");
        assert_eq!(card["findings"][0]["id"], "node-port-address", "{mode}");
    }
}

#[test]
fn source_ranges_are_told_of_each_who_may_ask() {
    let on = |range: &str| {
        let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": [range]});
        page(
            vec![
                node(),
                service(&spec, &json!([{"ip": "198.51.100.50"}])),
                slice(READY),
            ],
            &json!({}),
        )
    };
    let some = on("203.0.113.0/25");
    let cells = row(&some, "load-balancer IP");
    assert_eq!(
        (&cells["pod"]["ends"], &cells["node"]["ends"]),
        (&json!("dropped"), &json!("dropped"))
    );
    assert_eq!(cells["outside"]["only_from"], "203.0.113.0/25");
    let outside = card(&some, "outside");
    assert_eq!(outside["reachable"], "yes");
    assert!(
        outside["headline"]
            .as_str()
            .is_some_and(|line| line.contains("only for clients in 203.0.113.0/25"))
    );
    assert_eq!(
        row(&on("10.244.0.0/16"), "load-balancer IP")["pod"]["ends"],
        "endpoints"
    );
    assert_eq!(
        row(&on("192.0.2.0/24"), "load-balancer IP")["node"]["ends"],
        "endpoints"
    );
    // Nobody is limited elsewhere.
    assert_eq!(row(&some, "cluster IP")["outside"]["only_from"], Value::Null);
}

#[test]
fn policy_local_tells_endpoints_that_are_here_and_not_ready_from_none() {
    let why = |endpoints: &[(&str, &str, bool)]| {
        let spec = json!({"externalTrafficPolicy": "Local"});
        let page = page(
            vec![node(), service(&spec, &json!([])), slice(endpoints)],
            &json!({}),
        );
        let cell = &row(&page, "node port")["outside"];
        assert_eq!(cell["ends"], "dropped");
        cell["reason"].as_str().expect("a reason").to_owned()
    };
    let there = ("10.244.2.5", "node-b", true);
    assert_eq!(why(&[there]), "policy Local, and no endpoint is on this node");
    assert_eq!(
        why(&[there, ("10.244.1.5", "node-a", false)]),
        "policy Local, and no endpoint on this node is ready"
    );
}

/// A cluster IP alone is not asked for from outside; a load balancer that waits for its address is.
#[test]
fn a_card_for_clients_outside_is_there_where_the_service_is_for_them() {
    let has_one = |spec: Value| {
        let page = page(vec![node(), service(&spec, &json!([])), slice(READY)], &json!({}));
        let cards = page["answers"].as_array().expect("cards").clone();
        cards.into_iter().find(|card| card["asked_from"] == "outside")
    };
    let inside = json!({"type": "ClusterIP", "ports": [{"name": "http", "port": 80}]});
    assert_eq!(has_one(inside.clone()), None);
    let told = page(
        vec![node(), service(&inside, &json!([])), slice(READY)],
        &json!({}),
    );
    assert_eq!(row(&told, "cluster IP")["outside"]["ends"], "not routed");
    assert_eq!(row(&told, "cluster IP")["pod"]["ends"], "endpoints");
    let mut with_ip = inside.clone();
    with_ip["externalIPs"] = json!(["198.51.100.60"]);
    assert!(has_one(with_ip).is_some_and(|card| card["reachable"] == "yes"));
    let mut waits = inside;
    waits["type"] = "LoadBalancer".into();
    let card = has_one(waits).expect("a card");
    assert_eq!(card["findings"][0]["id"], "load-balancer-pending");
}

#[test]
fn the_list_counts_what_the_page_tells() {
    let of = |documents: Vec<Value>| {
        let explored = explored(documents, &json!({}));
        let list = AboutWorld::Services {
            words: Vec::new(),
            state: None,
            offset: 0,
            limit: 9,
        };
        let row = ask(&explored, &list)["services"][0].clone();
        let page = ask(&explored, &AboutWorld::Service(ServiceName::new("shop", "cart")));
        let summary = ask(&explored, &AboutWorld::Summary);
        let notes = page["notes"].as_array().expect("notes").len();
        assert_eq!(row["notes"], json!(notes));
        assert_eq!(summary["noted"], json!(usize::from(notes > 0)));
        (row["state"].clone(), notes, row["warnings"].clone())
    };
    let plain = || service(&json!({}), &json!([]));
    assert_eq!(
        of(vec![node(), plain(), slice(READY)]),
        (json!("ready"), 0, json!(0))
    );
    // A note about the Service's slice is the Service's.
    let mut bad = slice(READY);
    bad["endpoints"] =
        json!([bad["endpoints"][0], {"addresses": ["10.244.1.x"], "conditions": {"ready": true}}]);
    let (state, notes, warnings) = of(vec![node(), plain(), bad]);
    assert_eq!(
        (state, notes > 0, warnings != json!(0)),
        (json!("ready"), true, true)
    );
    // Good to know, and no reason to look: for policy Local this is as it should be.
    let local = service(&json!({"externalTrafficPolicy": "Local"}), &json!([]));
    let (_, notes, warnings) = of(vec![node(), local, slice(&[("10.244.2.5", "node-b", true)])]);
    assert_eq!((notes, warnings), (1, json!(0)));
    // The family that fares worse tells, and so does what is published though it does not serve.
    let dual = || {
        let mut dual = plain();
        dual["spec"]["clusterIPs"] = json!(["10.96.8.10", "2001:db8::10"]);
        dual["spec"]["ipFamilies"] = json!(["IPv4", "IPv6"]);
        dual
    };
    let six = |ready| slice(&[("2001:db8:1::5", "node-a", ready)]);
    assert_eq!(of(vec![node(), dual(), slice(READY), six(true)]).0, "ready");
    assert_eq!(of(vec![node(), dual(), slice(READY), six(false)]).0, "failing");
    let mut published = slice(READY);
    published["endpoints"][0]["conditions"]["serving"] = false.into();
    assert_eq!(of(vec![node(), plain(), published]).0, "partly");
}

#[test]
fn a_node_without_a_name_is_not_called_one() {
    let words = |documents| ask(&explored(documents, &json!({})), &AboutWorld::Summary)["node_words"].clone();
    assert_eq!(words(vec![node()]), "node node-a");
    assert_eq!(words(vec![]), "no Node is known");
}
