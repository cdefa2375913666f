//! What a cluster's page is answered, from objects to JSON.

mod support;

use explain::Parts;
use explorer::{AboutWorld, Answer, Asked, Counted, Explored, Names, Request, read};
use model::{Family, ServiceName};
use serde_json::{Value, json};

fn service(namespace: &str, name: &str, ip: &str, extra: &Value) -> Value {
    let mut spec = json!({
        "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip],
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
    });
    for (field, value) in extra.as_object().expect("fields") {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name}, "spec": spec,
    })
}

/// Endpoints by address: ready, serving, terminating.
fn slice(namespace: &str, service: &str, endpoints: &[(&str, bool, bool, bool)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(ip, ready, serving, terminating)| {
            json!({
                "addresses": [ip], "nodeName": "node-a",
                "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
                "targetRef": {"kind": "Pod", "namespace": namespace, "name": format!("{service}-{ip}")},
            })
        })
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"namespace": namespace, "name": format!("{service}-x"), "labels": {"kubernetes.io/service-name": service}},
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints,
    })
}

fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}, "spec": {"podCIDRs": ["10.244.1.0/24"]},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
    })
}

fn shop() -> Vec<Value> {
    vec![
        node(),
        service("shop", "cart", "10.96.0.1", &json!({})),
        slice(
            "shop",
            "cart",
            &[
                ("10.244.1.1", false, false, false),
                ("10.244.1.2", false, false, false),
            ],
        ),
        service("shop", "pay", "10.96.0.2", &json!({})),
        slice(
            "shop",
            "pay",
            &[
                ("10.244.1.3", true, true, false),
                ("10.244.1.4", true, true, false),
            ],
        ),
        service("shop", "old", "10.96.0.3", &json!({})),
        slice("shop", "old", &[("10.244.1.5", false, true, true)]),
        service("shop", "half", "10.96.0.4", &json!({})),
        slice(
            "shop",
            "half",
            &[
                ("10.244.1.6", true, true, false),
                ("10.244.1.7", false, false, false),
            ],
        ),
        service("shop", "empty", "10.96.0.5", &json!({})),
        service(
            "shop",
            "dns",
            "None",
            &json!({"clusterIP": "None", "clusterIPs": ["None"]}),
        ),
        service(
            "shop",
            "odd",
            "10.96.0.6",
            &json!({"externalIPs": ["<img src=x onerror=alert(1)>"]}),
        ),
    ]
}

fn explored(documents: Vec<Value>, mode: Option<explain::Mode>) -> Explored {
    let parts = Parts {
        documents,
        mode,
        cluster_cidr: Some("10.244.0.0/16".to_owned()),
        node: Some("node-a".to_owned()),
        ..Parts::default()
    };
    support::explored(parts)
}

fn get(explored: &Explored, path: &str, query: &str) -> Answer {
    let request = Request {
        method: "GET",
        host: Some("localhost"),
        path,
        query: Some(query),
    };
    match read(&request, &Names::default()) {
        Asked::Known(answer) => answer,
        Asked::World(asked) => explored.answer(&asked, None),
        Asked::Changes(_) => panic!("asked about changes"),
    }
}

fn ask(explored: &Explored, what: &str, query: &str) -> Value {
    let answer = get(explored, &format!("/explore/api/{what}"), query);
    assert_eq!(
        (answer.status, answer.content_type),
        (200, "application/json"),
        "{}",
        answer.body
    );
    serde_json::from_str(&answer.body).expect("JSON")
}

fn names(answer: &Value) -> Vec<&str> {
    let rows = answer["services"].as_array().expect("rows");
    rows.iter()
        .map(|row| row["name"].as_str().expect("a name"))
        .collect()
}

#[test]
fn services_are_told_apart_by_what_their_endpoints_amount_to() {
    let explored = explored(shop(), None);
    let of = |state: &str| ask(&explored, "services", &format!("state={state}"));
    assert_eq!(names(&of("failing")), ["shop/cart", "shop/empty", "shop/odd"]);
    assert_eq!(names(&of("ending")), ["shop/old"]);
    assert_eq!(names(&of("partly")), ["shop/half"]);
    assert_eq!(names(&of("ready")), ["shop/pay"]);
    assert_eq!(names(&of("not-served")), ["shop/dns"]);
    assert_eq!(names(&of("noted")), ["shop/odd"]);
    let summary = ask(&explored, "summary", "");
    let states = json!({"failing": 3, "other-ports": 0, "ending": 1, "not-here": 0, "partly": 1, "not-here-outside": 0, "ready": 1,
        "not-served": 1});
    assert_eq!((&summary["services"], &summary["states"]), (&json!(7), &states));
    assert_eq!(
        (&summary["node"], &summary["live"]),
        (&json!("node-a"), &json!(false))
    );
}

#[test]
fn a_search_finds_names_addresses_and_endpoints_and_the_exact_name_first() {
    let mut all = shop();
    all.push(service("a", "shop-cart", "10.96.0.7", &json!({})));
    let explored = explored(all, None);
    let found = |query: &str| ask(&explored, "services", query);
    assert_eq!(names(&found("search=cart")), ["shop/cart", "a/shop-cart"]);
    assert_eq!(names(&found("search=10.96.0.2")), ["shop/pay"]);
    assert_eq!(names(&found("search=10.244.1.7")), ["shop/half"]);
    assert_eq!(names(&found("search=SHOP+half")), ["shop/half"]);
    let page = found("offset=2&limit=3");
    assert_eq!(
        (names(&page).len(), &page["matched"], &page["total"]),
        (3, &json!(8), &json!(8))
    );
}

#[test]
fn one_service_tells_why_it_fails_and_how_its_endpoints_are() {
    let explored = explored(shop(), None);
    let cart = ask(&explored, "service", "name=shop/cart");
    let answer = &cart["answers"][0];
    assert_eq!(
        (&answer["reachable"], &answer["findings"][0]["id"]),
        (&json!("no"), &json!("not-ready"))
    );
    assert_eq!(cart["endpoints"][0]["state"], json!("not ready"));
    assert_eq!(cart["endpoints"][0]["pod"], json!("shop/cart-10.244.1.1"));
    assert_eq!(cart["ports"][0]["frontends"][0]["pod"]["ends"], json!("refused"));
    let rules = cart["rules"]["rules"].as_array().expect("rules");
    assert!(rules.iter().any(
        |rule| rule["table"] == "filter" && rule["text"].as_str().is_some_and(|it| it.contains("REJECT"))
    ));
    let pay = ask(&explored, "service", "name=shop/pay");
    assert_eq!(pay["answers"][0]["reachable"], json!("yes"));
    let chains: Vec<&str> = pay["rules"]["rules"]
        .as_array()
        .expect("rules")
        .iter()
        .filter_map(|rule| rule["chain"].as_str())
        .collect();
    for prefix in ["KUBE-SERVICES", "KUBE-SVC-", "KUBE-SEP-"] {
        assert!(
            chains.iter().any(|chain| chain.starts_with(prefix)),
            "{prefix}: {chains:?}"
        );
    }
    let headless = ask(&explored, "service", "name=shop/dns");
    assert_eq!(headless["answers"][0]["reachable"], json!("not-ours"));
    assert_eq!(
        get(&explored, "/explore/api/service", "name=shop/nobody").status,
        404
    );
}

#[test]
fn one_service_tells_what_was_counted_where_somebody_counts() {
    let explored = explored(shop(), None);
    let asked = AboutWorld::Service(ServiceName::new("shop", "pay"));
    let counted = Counted {
        family: Family::V6,
        port: "<b>".to_owned(),
        connections: 7,
        rejected: 1,
        dropped: 0,
    };
    let row = json!({"family": "IPv6", "port": "<b>", "connections": 7, "rejected": 1, "dropped": 0});
    for (counted, told) in [
        (None, Value::Null),
        (Some(vec![]), json!([])),
        (Some(vec![counted]), json!([row])),
    ] {
        let answer = explored.answer(&asked, counted.as_deref());
        let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
        assert_eq!(answer["counters"], told);
        assert_eq!(
            answer["counted_every_seconds"],
            json!(explorer::COUNTED_EVERY_SECONDS)
        );
    }
}

/// A number would say that there were none.
#[test]
fn what_a_mode_does_not_count_is_no_number() {
    let explored = explored(shop(), Some(explain::Mode::Nftables));
    let counted = Counted {
        family: Family::V4,
        port: "http".to_owned(),
        connections: 7,
        rejected: 1,
        dropped: 0,
    };
    let asked = AboutWorld::Service(ServiceName::new("shop", "pay"));
    let answer = explored.answer(&asked, Some(&[counted]));
    let answer: Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(answer["counters"][0]["dropped"], Value::Null);
    assert_eq!(answer["counters"][0]["rejected"], json!(1));
}

#[test]
fn nftables_mode_tells_its_elements() {
    let explored = explored(shop(), Some(explain::Mode::Nftables));
    let pay = ask(&explored, "service", "name=shop/pay");
    let rules = pay["rules"]["rules"].as_array().expect("elements");
    assert!(
        rules.iter().any(|rule| rule["text"]
            .as_str()
            .is_some_and(|text| text.contains("10.96.0.2"))),
        "{rules:?}"
    );
    assert!(
        !rules.iter().any(|rule| rule["text"]
            .as_str()
            .is_some_and(|text| text.contains("10.96.0.4"))),
        "{rules:?}"
    );
    assert_eq!(pay["answers"][0]["reachable"], json!("yes"));
}

#[test]
fn the_path_of_a_packet_has_its_chains_in_order_and_its_endpoints() {
    let explored = explored(shop(), None);
    let way = ask(&explored, "path", "from=pod&to=shop/pay:80");
    let chains: Vec<&str> = way["steps"]
        .as_array()
        .expect("steps")
        .iter()
        .filter_map(|step| step["chain"].as_str())
        .collect();
    assert_eq!(chains.first(), Some(&"KUBE-SERVICES"));
    assert!(
        chains
            .windows(2)
            .any(|pair| pair[0].starts_with("KUBE-SVC-") && pair[1].starts_with("KUBE-SEP-")),
        "{chains:?}"
    );
    let endpoints = way["endpoints"].as_array().expect("endpoints");
    let chances: f64 = endpoints.iter().filter_map(|one| one["chance"].as_f64()).sum();
    assert_eq!(endpoints.len(), 2);
    assert!((chances - 1.0).abs() < 1e-9, "{chances}");
    let nowhere = ask(&explored, "path", "from=pod&to=shop/nobody:80");
    assert_eq!(nowhere["reachable"], json!("no"));
}

#[test]
fn what_is_hostile_in_objects_stays_text() {
    let explored = explored(shop(), None);
    let answer = get(&explored, "/explore/api/notes", "");
    assert_eq!(answer.content_type, "application/json");
    assert!(
        answer.body.contains("<img src=x onerror=alert(1)>"),
        "{}",
        answer.body
    );
    // The page's own files have no place for anything of a cluster, no script in the text, and no address elsewhere.
    for (path, kind) in [
        ("/explore/", "text/html"),
        ("/explore/explorer.js", "text/javascript"),
        ("/explore/explorer.css", "text/css"),
    ] {
        let file = get(&explored, path, "");
        assert!(file.content_type.starts_with(kind), "{path}");
        for word in [
            "http://",
            "https://",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "onload=",
            "onclick=\"",
            "style=\"",
        ] {
            assert!(!file.body.contains(word), "{path} has {word}");
        }
    }
    let html = get(&explored, "/explore/", "").body;
    assert_eq!(
        html.matches("<script").count(),
        html.matches("<script src=\"/explore/").count()
    );
}
