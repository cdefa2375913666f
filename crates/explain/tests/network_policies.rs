//! `NetworkPolicies` that are about the client or the endpoints' pods are told of, and not judged.

mod support;

use explain::{Reach, Severity};
use serde_json::{Value, json};
use support::small::{ask, node, service, slice, told};

fn pod(name: &str, ip: &str, labels: &Value) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": {"nodeName": "node-a"},
        "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}})
}

fn policy(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

/// A client, and a Service of three pods, of which one has a label of its own.
fn shop(policies: &[Value]) -> Vec<Value> {
    let mut all = vec![
        node("node-a", "192.0.2.11"),
        service("cart", "10.96.8.10", &json!({}), &json!([])),
        slice("cart", &["10.42.1.5", "10.42.1.6", "10.42.1.7"]),
        pod("cart-1", "10.42.1.5", &json!({"app": "cart", "tier": "front"})),
        pod("cart-2", "10.42.1.6", &json!({"app": "cart"})),
        pod("cart-3", "10.42.1.7", &json!({"app": "cart"})),
        pod("web", "10.42.1.77", &json!({"app": "web"})),
    ];
    all.extend(policies.iter().cloned());
    all
}

/// What is told of policies.
fn notes(objects: &[Value], from: &str, to: &str) -> Vec<String> {
    let answer = ask(objects, from, to);
    assert!(
        !answer.has_findings() || answer.reach == Reach::No,
        "{}",
        told(&answer)
    );
    let of_policies = answer
        .findings
        .iter()
        .filter(|finding| finding.cause.as_str() == "network-policy");
    let words = of_policies.map(|finding| {
        assert_eq!(finding.severity, Severity::Remark);
        assert!(
            finding
                .objects
                .iter()
                .all(|object| object.kind == "NetworkPolicy")
        );
        finding.what.clone()
    });
    words.collect()
}

const PLUGINS: &str = "its word, not kube-proxy's";

#[test]
fn policies_that_select_endpoints_are_counted_by_their_pods() {
    let of = |selector: Value| json!({"podSelector": selector, "policyTypes": ["Ingress"]});
    for (selector, wanted) in [
        (json!({}), "selects 3 of the endpoints' pods"),
        (json!({"matchLabels": {"app": "cart"}}), "selects 3 of"),
        (
            json!({"matchLabels": {"app": "cart", "tier": "front"}}),
            "selects 1 of",
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
            "selects 2 of",
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            "selects 1 of",
        ),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["cart", "x"]}]}),
            "selects 3 of",
        ),
        (
            json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["front"]}]}),
            "selects 2 of",
        ),
    ] {
        let told = notes(
            &shop(&[policy("shop", "deny-all", &of(selector.clone()))]),
            "shop/web",
            "cart",
        );
        assert_eq!(told.len(), 1, "{selector}: {told:?}");
        assert!(
            told[0].starts_with(&format!("NetworkPolicy shop/deny-all {wanted}")),
            "{selector}: {told:?}"
        );
        assert!(told[0].ends_with(PLUGINS), "{told:?}");
    }
}

#[test]
fn policies_of_other_pods_namespaces_and_directions_are_not_told() {
    let of = |selector: Value| json!({"podSelector": selector, "policyTypes": ["Ingress"]});
    let all = |selector: Value| policy("shop", "other", &of(selector));
    for (policies, wanted) in [
        (vec![policy("prod", "deny-all", &of(json!({})))], 0),
        (vec![all(json!({"matchLabels": {"app": "web"}}))], 0),
        (
            vec![policy(
                "shop",
                "out",
                &json!({"podSelector": {}, "policyTypes": ["Egress"]}),
            )],
            1,
        ),
        (Vec::new(), 0),
    ] {
        assert_eq!(
            notes(&shop(&policies), "shop/web", "cart").len(),
            wanted,
            "{policies:?}"
        );
    }
    let two = [
        policy("shop", "a", &of(json!({}))),
        policy("shop", "b", &of(json!({}))),
    ];
    let told = notes(&shop(&two), "outside", "10.42.1.5:8080");
    assert!(
        told[0].starts_with("NetworkPolicies shop/a, shop/b select 1 of"),
        "{told:?}"
    );
}

#[test]
fn a_policy_that_selects_the_client_is_told_where_a_pod_is_named() {
    let out = || {
        policy(
            "shop",
            "out",
            &json!({"podSelector": {"matchLabels": {"app": "web"}}, "egress": []}),
        )
    };
    for from in ["shop/web", "pod:10.42.1.77", "10.42.1.77"] {
        let told = notes(&shop(&[out()]), from, "cart.shop");
        // Without policyTypes it is for what comes in, too, and that is of the client's own.
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("NetworkPolicy shop/out selects the client"),
            "{told:?}"
        );
    }
    for from in ["pod", "node", "198.51.100.7"] {
        assert_eq!(notes(&shop(&[out()]), from, "cart.shop"), [""; 0], "{from}");
    }
}

#[test]
fn where_labels_are_not_known_or_nothing_arrives_no_policy_is_blamed() {
    let selecting = |selector: Value| policy("shop", "deny", &json!({"podSelector": selector}));
    let without_pods = |selector: Value| {
        let mut all = shop(&[selecting(selector)]);
        all.retain(|object| object["kind"] != "Pod");
        notes(&all, "pod", "shop/cart")
    };
    let told = without_pods(json!({"matchLabels": {"app": "cart"}}));
    assert!(
        told[0]
            .starts_with("NetworkPolicy shop/deny may select the endpoints' pods, whose labels nobody told"),
        "{told:?}"
    );
    let told = without_pods(json!({}));
    assert!(
        told[0].starts_with("NetworkPolicy shop/deny selects 3 of"),
        "{told:?}"
    );
    let mut closed = shop(&[selecting(json!({}))]);
    closed[2] = slice("cart", &[]);
    assert_eq!(notes(&closed, "shop/web", "cart"), [""; 0]);
}
