//! Names that lead elsewhere than their writers thought, and objects of a size that nobody foresaw.

mod support;

use explain::{Explanation, Reach};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use support::small::{ask, node, says, service, slice, told};

fn pod(name: &str, ip: &str, spec: &Value) -> Value {
    let mut all = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": "cart"}},
        "spec": {"nodeName": "node-a"}, "status": {"podIP": ip}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all["spec"][field] = value.clone();
    }
    all
}

fn cluster(spec: &Value, ingress: &Value) -> Vec<Value> {
    vec![
        node("node-a", "192.0.2.11"),
        pod("cart-0", "10.42.1.5", &json!({})),
        pod("web", "10.42.1.9", &json!({})),
        service("cart", "10.96.8.10", spec, ingress),
        slice("cart", &["10.42.1.5"]),
    ]
}

#[track_caller]
fn tells(answer: &Explanation, words: &str) {
    assert!(told(answer).contains(words), "{words:?} in {}", told(answer));
}

#[test]
fn a_pods_name_and_names_turned_around_are_told_as_what_they_are() {
    let objects = cluster(&json!({}), &json!([]));
    let answer = ask(&objects, "shop/web", "shop/cart-0:8080");
    says(&answer, Reach::No, "no-such-service");
    tells(&answer, "It is the name of a Pod.");
    tells(&answer, "--to 10.42.1.5");
    let answer = ask(&objects, "shop/web", "shop.cart:80");
    says(&answer, Reach::No, "no-such-service");
    tells(&answer, "There is shop/cart.");
}

#[test]
fn a_load_balancers_host_name_is_of_its_service() {
    let ingress = json!([{"hostname": "a1b2.elb.example.com"}]);
    let objects = cluster(&json!({"type": "LoadBalancer"}), &ingress);
    for to in ["a1b2.elb.example.com:80", "http://a1b2.elb.example.com./"] {
        let answer = ask(&objects, "shop/web", to);
        says(&answer, Reach::Unknown, "not-known");
        tells(&answer, "the load balancer of Service shop/cart");
    }
    let answer = ask(&objects, "shop/web", "c3d4.elb.example.com:80");
    tells(&answer, "is the name of no Node");
}

#[test]
fn a_pod_that_asks_its_nodes_dns_is_told_of_whole_names_too() {
    let mut objects = cluster(&json!({}), &json!([]));
    objects.push(pod(
        "agent",
        "192.0.2.11",
        &json!({"hostNetwork": true, "dnsPolicy": "ClusterFirst"}),
    ));
    let answer = ask(&objects, "shop/agent", "cart.shop:80");
    says(&answer, Reach::Yes, "");
    tells(&answer, "asks its node's DNS servers, which know no Service cart");
}

#[test]
fn a_headless_services_pods_are_told_with_their_port() {
    let objects = cluster(&json!({"clusterIP": "None", "clusterIPs": ["None"]}), &json!([]));
    tells(
        &ask(&objects, "shop/web", "shop/cart:80"),
        "on the pods' port (8080)",
    );
}

#[test]
fn with_affinity_one_endpoint_is_no_choice() {
    let affinity =
        json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}});
    let mut objects = cluster(&affinity, &json!([]));
    let answer = ask(&objects, "shop/web", "shop/cart");
    says(&answer, Reach::Yes, "");
    assert!(
        !told(&answer).contains("stays with one endpoint"),
        "{}",
        told(&answer)
    );
    objects[4] = slice("cart", &["10.42.1.5", "10.42.1.6"]);
    let answer = ask(&objects, "shop/web", "shop/cart");
    tells(&answer, "Endpoints: 10.42.1.5:8080, 10.42.1.6:8080.");
}

#[test]
fn a_slice_that_names_a_service_is_what_to_change() {
    let mut objects = cluster(&json!({}), &json!([]));
    objects.push(service(
        "alias",
        "10.96.8.11",
        &json!({"selector": null}),
        &json!([]),
    ));
    let mut by_hand = slice("alias", &["10.96.8.10"]);
    by_hand["ports"][0]["port"] = json!(80);
    objects.push(by_hand);
    let answer = ask(&objects, "shop/web", "shop/alias");
    says(&answer, Reach::No, "translated-once");
    tells(&answer, "EndpointSlice shop/alias-x, endpoints[].addresses");
}

#[test]
fn an_object_with_a_thousand_damaged_parts_fits_on_a_screen() {
    let ranges: Vec<String> = (0..1000).map(|number| format!("10.0.0.{number}/99")).collect();
    let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges});
    let answer = ask(&cluster(&spec, &json!([])), "shop/web", "shop/cart");
    let screen = explain::screen::text(&answer, 80);
    assert!(screen.lines().count() < 60, "{screen}");
    tells(&answer, "more: --output json has them all");
}

#[test]
fn thousands_of_endpoints_are_not_searched_for_each_other() {
    let all: Vec<String> = (0..4000)
        .map(|number| format!("10.50.{}.{}", number / 250, number % 250 + 1))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut objects = cluster(&json!({}), &json!([]));
    objects[4] = slice("cart", &all);
    let begin = Instant::now();
    let answer = ask(&objects, "shop/web", "shop/cart");
    assert_eq!(answer.deliveries.len(), 4000, "{}", told(&answer));
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn of_endpoints_that_terminate_the_missing_ones_are_looked_for() {
    let mut objects = cluster(&json!({}), &json!([]));
    objects[4]["endpoints"][0]["conditions"] = json!({"ready": false, "serving": false, "terminating": true});
    let answer = ask(&objects, "shop/web", "shop/cart");
    says(&answer, Reach::No, "not-ready");
    tells(
        &answer,
        "the only endpoint of Service shop/cart terminates and no longer serves",
    );
    tells(&answer, "see why no new pod has taken their place");
}
