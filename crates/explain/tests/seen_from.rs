//! From where is looked: a client on another node than the one whose rules are asked, and what kube-proxy takes for pods.

mod support;

use explain::{Explanation, HostFacts, Parts, Question, Reach, assemble, explain};
use serde_json::{Value, json};
use support::small::{ask, ask_as, ask_on, cause, node, says, service, slice, told, with_node_port};

fn pod(name: &str, ip: &str, node: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": node}, "status": {"podIP": ip}})
}

/// Two nodes with a client each, and a Service with an endpoint on the second.
fn cluster(spec: &Value) -> Vec<Value> {
    let mut all = with_node_port(30080);
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let mut slice = slice("cart", &["10.42.2.5"]);
    slice["endpoints"][0]["nodeName"] = "node-b".into();
    vec![
        node("node-a", "192.0.2.11"),
        node("node-b", "192.0.2.12"),
        service("cart", "10.96.8.10", &all, &json!([{"ip": "198.51.100.50"}])),
        slice,
        pod("web-a", "10.42.1.77", "node-a"),
        pod("web-b", "10.42.2.77", "node-b"),
    ]
}

/// Asked with `--node`, or with rules that were saved on the node that facts name.
fn ask_at(parts: Parts, from: &str, to: &str) -> Explanation {
    let question = Question {
        from: from.parse().expect("a sender"),
        to: to.parse().expect("a destination"),
        protocol: None,
        in_interface: None,
    };
    explain(&assemble(parts, &question).expect("good parts"), &question)
}

fn at_node(objects: &[Value], node: &str, from: &str, to: &str) -> Explanation {
    let parts = Parts {
        documents: objects.to_vec(),
        node: Some(node.to_owned()),
        cluster_cidr: Some("10.42.0.0/16".to_owned()),
        ..Parts::default()
    };
    ask_at(parts, from, to)
}

#[test]
fn a_client_of_another_node_is_told_to_be_asked_for_there() {
    let objects = cluster(&Value::Null);
    for from in [
        "shop/web-b",
        "pod:10.42.2.77",
        "10.42.2.77",
        "node:node-b",
        "192.0.2.12",
    ] {
        let answer = at_node(&objects, "node-a", from, "shop/cart");
        let words = told(&answer);
        says(&answer, Reach::Yes, "seen-from");
        for part in [
            "is on node node-b, and the rules of node-a were asked",
            "--node node-b",
        ] {
            assert!(words.contains(part), "{from} {part}: {words}");
        }
        // At its own node, and where nobody says which is meant.
        for answer in [
            at_node(&objects, "node-b", from, "shop/cart"),
            ask(&objects, from, "shop/cart"),
        ] {
            assert_eq!(
                (cause(&answer), answer.node.as_str()),
                ("", "node-b"),
                "{}",
                told(&answer)
            );
        }
    }
    // A node's own address is where everybody comes to, and nobody outside is on a node.
    for (from, to) in [
        ("shop/web-b", "192.0.2.11:30080"),
        ("shop/web-b", "node-a:30080"),
        ("shop/web-a", "shop/cart"),
        ("pod", "shop/cart"),
        ("outside", "shop/cart"),
        ("node", "shop/cart"),
    ] {
        let answer = at_node(&objects, "node-a", from, to);
        assert_eq!(
            (answer.reach, cause(&answer)),
            (Reach::Yes, ""),
            "{from} {to}: {}",
            told(&answer)
        );
    }
}

#[test]
fn saved_rules_are_of_the_host_that_the_facts_name() {
    let dump = "*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SERVICES - [0:0]\n:KUBE-SVC-IV - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
        -A KUBE-SERVICES -d 10.96.8.10/32 -p tcp -m comment --comment \"shop/cart:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-IV\n\
        -A KUBE-SVC-IV -p tcp -m tcp -j DNAT --to-destination 10.42.2.5:8080\nCOMMIT\n";
    let parts = Parts {
        documents: cluster(&Value::Null),
        facts: HostFacts::read(&json!({"hostname": "node-a"})).expect("good facts"),
        saved: model::PerFamily {
            v4: Some(iptables::parse::save(dump, model::Family::V4).ruleset),
            v6: None,
        },
        ..Parts::default()
    };
    let answer = ask_at(parts, "shop/web-b", "shop/cart");
    let words = told(&answer);
    assert_eq!(
        (answer.node.as_str(), answer.reach),
        ("node-a", Reach::Yes),
        "{words}"
    );
    assert!(
        words.contains("give the rules of node-b: --dump of that node"),
        "{words}"
    );
}

/// A pod that comes to another node's address may come with its own node's.
#[test]
fn a_pod_that_comes_over_from_another_node_may_count_as_outside() {
    let told_of = |policy: &str| {
        let objects = cluster(&json!({"externalTrafficPolicy": policy}));
        told(&at_node(&objects, "node-a", "shop/web-b", "node-a:30080")).contains("come from node node-b")
    };
    assert!(told_of("Local"));
    assert!(!told_of("Cluster"));
}

#[test]
fn what_hangs_on_the_pods_networks_is_told_where_nobody_gave_them() {
    let local = cluster(&json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}));
    // No endpoint is on the client's node: dropped as a client outside, sent elsewhere as a pod.
    for to in ["198.51.100.50:80", "192.0.2.11:30080"] {
        let answer = ask(&local, "shop/web-a", to);
        let words = told(&answer);
        says(&answer, Reach::Unknown, "not-known");
        assert!(
            words.contains("--cluster-cidr") && words.contains("--config"),
            "{words}"
        );
        let given = json!({"config": {"clusterCIDR": "10.42.0.0/16"}});
        assert_eq!(ask_on(&local, &given, "shop/web-a", to).reach, Reach::Yes);
        // A configuration that names none is the cause itself.
        let none = json!({"config": {"mode": "iptables"}});
        let answer = ask_on(&local, &none, "shop/web-a", to);
        let words = told(&answer);
        says(&answer, Reach::No, "no-local-endpoints");
        assert!(words.contains("clusterCIDR is not set"), "{words}");
    }
    // There is one: which endpoints, and which source, is another question.
    let hangs =
        |answer: &Explanation| told(answer).contains("hangs on the pods' networks, of which nobody told");
    let answer = ask(&local, "shop/web-b", "198.51.100.50:80");
    assert_eq!(answer.reach, Reach::Yes, "{}", told(&answer));
    assert!(hangs(&answer), "{}", told(&answer));
    let plain = cluster(&Value::Null);
    for (from, comes_in, wanted) in [
        ("198.51.100.7", Some("eth0"), true),
        ("shop/web-a", None, false),
        ("node", None, false),
    ] {
        let answer = ask_as(&plain, &json!({}), from, "10.96.8.10:80", comes_in);
        assert_eq!(
            (answer.reach, hangs(&answer)),
            (Reach::Yes, wanted),
            "{from}: {}",
            told(&answer)
        );
        let given = json!({"config": {"clusterCIDR": "10.42.0.0/16"}});
        let answer = ask_as(&plain, &given, from, "10.96.8.10:80", comes_in);
        assert!(!hangs(&answer), "{}", told(&answer));
    }
    assert!(!hangs(&ask(&plain, "198.51.100.7", "192.0.2.11:30080")));
}
