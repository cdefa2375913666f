//! States are decided once and named; the page only has tones and words for the names. And it says whose rules it shows.

mod support;

use explain::{Parts, Question};
use explorer::{AboutWorld, Explored};
use model::ServiceName;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SCRIPT: &str = include_str!("../src/page/explorer.js");

fn node(name: &str, ip: &str, pods: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name}, "spec": {"podCIDRs": [pods]},
        "status": {"addresses": [{"type": "InternalIP", "address": ip}]}})
}

fn service(spec: &Value) -> Value {
    let mut all = json!({"type": "NodePort", "clusterIP": "10.96.8.10", "clusterIPs": ["10.96.8.10"],
        "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    json!({"kind": "Service", "metadata": {"name": "cart", "namespace": "shop"}, "spec": all})
}

/// Endpoints by address, node, and conditions: ready, serving, terminating.
fn slice(port: &str, endpoints: &[(&str, &str, [bool; 3])]) -> Value {
    let endpoint = |(ip, node, [ready, serving, terminating]): &(&str, &str, [bool; 3])| {
        json!({"addresses": [ip], "nodeName": node,
            "conditions": {"ready": ready, "serving": serving, "terminating": terminating}})
    };
    json!({"kind": "EndpointSlice", "metadata": {"name": "cart-x", "namespace": "shop",
        "labels": {"kubernetes.io/service-name": "cart"}}, "addressType": "IPv4",
        "ports": [{"name": port, "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints.iter().map(endpoint).collect::<Vec<_>>()})
}

const READY: [bool; 3] = [true, true, false];
const HERE: (&str, &str, [bool; 3]) = ("10.244.1.5", "node-a", READY);
const THERE: (&str, &str, [bool; 3]) = ("10.244.2.5", "node-b", READY);

fn explored(service: Value, slice: Value) -> Explored {
    let parts = Parts {
        documents: vec![
            node("node-a", "192.0.2.11", "10.244.1.0/24"),
            node("node-b", "192.0.2.12", "10.244.2.0/24"),
            service,
            slice,
        ],
        cluster_cidr: Some("10.244.0.0/16".to_owned()),
        node: Some("node-a".to_owned()),
        ..Parts::default()
    };
    support::explored(parts)
}

fn ask(explored: &Explored, asked: &AboutWorld) -> Value {
    serde_json::from_str(&explored.answer(asked, None).body).expect("JSON")
}

fn row(explored: &Explored) -> Value {
    let list = AboutWorld::Services {
        words: Vec::new(),
        state: None,
        offset: 0,
        limit: 9,
    };
    ask(explored, &list)["services"][0].clone()
}

fn page(explored: &Explored) -> Value {
    ask(explored, &AboutWorld::Service(ServiceName::new("shop", "cart")))
}

#[test]
fn a_state_fits_the_number_of_endpoints_beside_it() {
    let none = json!({});
    let internal = json!({"internalTrafficPolicy": "Local"});
    let external = json!({"externalTrafficPolicy": "Local"});
    let both = json!({"internalTrafficPolicy": "Local", "externalTrafficPolicy": "Local"});
    let ending = ("10.244.1.5", "node-a", [false, true, true]);
    let down = ("10.244.1.6", "node-a", [false, false, false]);
    for (spec, slice, state, ready) in [
        (&none, slice("http", &[HERE, THERE]), "ready", 2),
        // Ready, and for no port of the Service: not without ready endpoints.
        (&none, slice("web", &[HERE, THERE]), "other-ports", 2),
        (&none, slice("web", &[ending]), "other-ports", 0),
        (&none, slice("http", &[down]), "failing", 0),
        (&none, slice("http", &[ending]), "ending", 0),
        (&none, slice("http", &[HERE, down]), "partly", 1),
        // Policy Local without an endpoint here serves nobody here.
        (&internal, slice("http", &[THERE]), "not-here", 1),
        (&both, slice("http", &[THERE]), "not-here", 1),
        (&external, slice("http", &[THERE]), "not-here-outside", 1),
        (&both, slice("http", &[HERE, THERE]), "ready", 2),
        (&external, slice("http", &[THERE, down]), "partly", 1),
        (&both, slice("http", &[down]), "failing", 0),
    ] {
        let explored = explored(service(spec), slice);
        let row = row(&explored);
        assert_eq!(
            (&row["state"], &row["ready"]),
            (&json!(state), &json!(ready)),
            "{spec}"
        );
        assert_eq!(row["kind"], json!(state));
        let summary = ask(&explored, &AboutWorld::Summary);
        assert_eq!(summary["states"][state], json!(1), "{spec}");
    }
}

/// The page's names of one kind: `const NAME = {...};`.
fn names_in_script(constant: &str) -> BTreeSet<String> {
    let begin = SCRIPT
        .find(&format!("const {constant} = {{"))
        .expect("such a constant");
    let text = &SCRIPT[begin..begin + SCRIPT[begin..].find("};").expect("its end")];
    let after = text.split_once('{').expect("its beginning").1;
    let keys = after.split([',', '\n']).filter_map(|part| part.split_once(':'));
    keys.map(|(key, _)| key.trim().trim_matches('"').to_owned())
        .filter(|key| !key.is_empty())
        .collect()
}

#[test]
fn the_page_has_words_for_every_name_that_answers_give() {
    let plain = explored(service(&json!({})), slice("http", &[HERE]));
    let states = ask(&plain, &AboutWorld::Summary)["states"].clone();
    let known = names_in_script("STATES");
    for state in states.as_object().expect("states").keys() {
        assert!(known.contains(state), "{state}: {known:?}");
    }
    assert!(known.contains("ready-with-notes"));
    let health = names_in_script("HEALTH");
    for conditions in [
        READY,
        [false, true, true],
        [false, false, true],
        [false, false, false],
        [false, true, false],
    ] {
        let explored = explored(
            service(&json!({})),
            slice("http", &[("10.244.1.5", "node-a", conditions)]),
        );
        let kind = page(&explored)["endpoints"][0]["kind"].clone();
        assert!(
            health.contains(kind.as_str().expect("a name")),
            "{kind}: {health:?}"
        );
    }
}

/// What the page shows in colours it takes from names, and not from sentences.
#[test]
fn the_page_compares_no_words() {
    for sentence in [
        "no ready endpoint\"",
        "\"not ready\"",
        "\"terminating, serving\"",
        "\"not routed\"",
        "headline.includes",
        "startsWith(\"KUBE-",
    ] {
        let uses = SCRIPT.lines().filter(|line| {
            line.contains(sentence)
                && (line.contains("===") || line.contains("includes") || line.contains("startsWith("))
        });
        assert_eq!(uses.collect::<Vec<_>>(), Vec::<&str>::new(), "{sentence}");
    }
}

#[test]
fn whose_rules_are_shown_is_said_and_who_sends_to_another_node_is_told() {
    let explored = explored(service(&json!({})), slice("http", &[HERE, THERE]));
    let seen = json!({"node": "node-a", "is_one_of_several": false, "nodes": 2});
    assert_eq!(page(&explored)["seen_from"], seen);
    let other_node = |from: &str, to: &str| {
        let question = Question {
            from: from.parse().expect("a sender"),
            to: to.parse().expect("a destination"),
            protocol: None,
            in_interface: None,
        };
        let told = ask(&explored, &AboutWorld::Path(question));
        assert_eq!(told["seen_from"], seen);
        told["other_node"].clone()
    };
    for (from, to, other) in [
        ("pod", "shop/cart", Value::Null),
        ("10.244.1.9", "shop/cart", Value::Null),
        ("node-a", "shop/cart", Value::Null),
        ("10.244.2.9", "shop/cart", json!("node-b")),
        ("node-b", "shop/cart", json!("node-b")),
        ("outside", "192.0.2.12:30080", json!("node-b")),
        ("outside", "192.0.2.11:30080", Value::Null),
    ] {
        assert_eq!(other_node(from, to), other, "{from} {to}");
    }
}
