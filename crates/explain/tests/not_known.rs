//! What nobody told is taken for something plausible, hides no cause that stands without it, and is asked for where the answer
//! hangs on it.

mod support;

use explain::{Mode, Parts, Question, Reach, assemble};
use serde_json::{Value, json};
use support::small::{ask, ask_on, cause, node, says, service, slice, told, with_node_port};

fn nodes() -> Vec<Value> {
    vec![node("node-a", "192.0.2.11"), node("node-b", "192.0.2.12")]
}

fn with(more: Vec<Value>) -> Vec<Value> {
    let mut all = nodes();
    all.extend(more);
    all
}

fn cart(spec: &Value) -> Value {
    service("cart", "10.96.8.10", spec, &json!([]))
}

const PLAIN: Value = Value::Null;

/// Calico and Cilium give pods addresses without podCIDR.
#[test]
fn an_address_of_a_pod_that_is_not_known_hides_no_cause() {
    let there = || slice("cart", &["10.42.1.5"]);
    let other_name = || {
        let mut slice = there();
        slice["ports"][0]["name"] = "web".into();
        slice
    };
    let unready = || {
        let mut slice = there();
        slice["endpoints"][0]["conditions"]["ready"] = false.into();
        slice
    };
    let cases = [
        (vec![cart(&PLAIN), there()], "shop/cart", ""),
        (
            vec![cart(&PLAIN), slice("cart", &[])],
            "shop/cart",
            "empty-slices",
        ),
        (vec![cart(&PLAIN), there()], "shop/cart:81", "no-such-port"),
        (vec![cart(&PLAIN), there()], "10.96.8.10:8080", "port-mixed-up"),
        (
            vec![cart(&PLAIN), other_name()],
            "shop/cart",
            "port-name-mismatch",
        ),
        (vec![cart(&PLAIN), unready()], "shop/cart", "not-ready"),
        (
            vec![cart(&with_node_port(30080)), slice("cart", &[])],
            "node:30080",
            "empty-slices",
        ),
    ];
    for (objects, to, wanted) in cases {
        for from in ["pod", "shop/client", "node"] {
            // With Nodes that have no podCIDR, and with none at all.
            for objects in [with(objects.clone()), objects.clone()] {
                let answer = ask(&objects, from, to);
                let wanted = match (wanted, from) {
                    ("empty-slices", _) => ["nothing-selected", "empty-slices", "no-slices"].as_slice(),
                    (one, _) => &[one][..],
                };
                assert!(
                    wanted.contains(&cause(&answer)),
                    "{from} to {to}: {}",
                    told(&answer)
                );
                let reach = if wanted == [""] { Reach::Yes } else { Reach::No };
                assert_eq!(answer.reach, reach, "{from} to {to}: {}", told(&answer));
            }
        }
    }
}

#[test]
fn a_pod_of_the_objects_asks_before_an_address_that_is_made_up() {
    let objects = with(vec![
        cart(&PLAIN),
        slice("cart", &["10.42.1.5"]),
        slice("other", &["192.0.2.12", "10.42.1.5", "10.42.1.9"]),
    ]);
    // Neither the Service's own endpoint nor a node.
    let answer = ask(&objects, "pod", "shop/cart");
    assert!(told(&answer).contains("taken as 10.42.1.9)"), "{}", told(&answer));
    assert_eq!(ask(&objects, "pod", "10.96.8.10:80").from, answer.from);
    let pod = json!({"kind": "Pod", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"nodeName": "node-a"},
        "status": {"podIP": "10.42.1.77"}});
    let answer = ask(
        &with(vec![cart(&PLAIN), slice("cart", &["10.42.1.5"]), pod]),
        "pod",
        "shop/cart",
    );
    assert!(
        told(&answer).contains("taken as 10.42.1.77)"),
        "{}",
        told(&answer)
    );
    let answer = ask(
        &with(vec![cart(&PLAIN), slice("cart", &["10.42.1.5"])]),
        "pod",
        "shop/cart",
    );
    assert!(
        told(&answer).contains("since no other pod's address is known"),
        "{}",
        told(&answer)
    );
    // It is not the user's, and is not handed on as if it were.
    assert!(
        answer.next.iter().all(|line| !line.contains("10.244.")),
        "{:?}",
        answer.next
    );
}

#[test]
fn what_hangs_on_an_address_that_is_not_known_is_no_answer() {
    let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/25"]});
    let edge = service("cart", "10.96.8.10", &spec, &json!([{"ip": "198.51.100.50"}]));
    let objects = with(vec![edge.clone(), slice("cart", &["10.42.1.5"])]);
    let answer = ask(&objects, "pod", "198.51.100.50:80");
    says(&answer, Reach::Unknown, "not-known");
    let words = told(&answer);
    assert!(
        words.starts_with("NO ANSWER: ") && words.contains("--from pod:IP"),
        "{words}"
    );
    assert_eq!(
        ask(&objects, "pod:203.0.113.7", "198.51.100.50:80").reach,
        Reach::Yes
    );
    assert_eq!(
        ask(&objects, "pod:10.42.1.7", "198.51.100.50:80").reach,
        Reach::No
    );
    // Without endpoints the address is all the same.
    let empty = with(vec![edge, slice("cart", &[])]);
    assert_eq!(ask(&empty, "pod", "198.51.100.50:80").reach, Reach::No);
    // A name that Pods and slices know nothing of is nobody to ask for.
    let pods = json!({"kind": "PodList", "items": []});
    let objects = with(vec![cart(&PLAIN), slice("cart", &["10.42.1.5"]), pods]);
    let answer = ask(&objects, "shop/client", "shop/cart");
    assert_eq!((answer.reach, cause(&answer)), (Reach::Unknown, "no-such-pod"));
    let answer = ask(&objects, "client", "shop/cart:81");
    assert_eq!((answer.reach, cause(&answer)), (Reach::No, "no-such-port"));
    assert!(
        told(&answer).contains("no Pod default/client"),
        "{}",
        told(&answer)
    );
}

/// Whether a client is let in is not made out of an address that the user never gave.
#[test]
fn an_address_that_was_taken_is_not_told_as_the_users() {
    let spec =
        json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/25", "192.0.2.128/25"]});
    let edge = service("cart", "10.96.8.10", &spec, &json!([{"ip": "198.51.100.50"}]));
    let objects = with(vec![
        edge,
        slice("cart", &["10.42.1.5"]),
        slice("other", &["10.42.1.9"]),
    ]);
    for to in ["198.51.100.50:80", "shop/cart"] {
        let answer = ask(&objects, "outside", to);
        let words = told(&answer);
        says(&answer, Reach::Yes, "source-range");
        assert!(
            words.starts_with("REACHABLE, but only for clients in 203.0.113.0/25, 192.0.2.128/25"),
            "{words}"
        );
        assert!(
            !words.contains("198.51.100.1/32") && !words.contains("198.51.100.1)"),
            "{words}"
        );
    }
    let words = told(&ask(&objects, "pod", "198.51.100.50:80"));
    assert!(
        words.contains("add the pods' network") && !words.contains("10.42.1.9/32"),
        "{words}"
    );
    let words = told(&ask(&objects, "192.0.2.77", "198.51.100.50:80"));
    assert!(words.contains("add 192.0.2.77/32"), "{words}");
    assert!(
        words.contains("jsonpath='{.spec.loadBalancerSourceRanges}'"),
        "{words}"
    );
}

#[test]
fn an_address_that_is_not_the_nodes_is_told_and_no_setting_is_blamed() {
    let objects = with(vec![cart(&with_node_port(30080)), slice("cart", &["10.42.1.5"])]);
    for mode in [Mode::Iptables, Mode::Nftables] {
        let facts = json!({"config": {"mode": mode.to_string()}});
        let answer = ask_on(&objects, &facts, "outside", "192.0.2.99:30080");
        let words = told(&answer);
        says(&answer, Reach::Unknown, "not-the-nodes-address");
        assert!(
            words.contains("192.0.2.11 (status.addresses of its Node object"),
            "{words}"
        );
        assert!(!words.contains("nodePortAddresses"), "{words}");
        // Interfaces are all that there are.
        let facts = json!({"addresses": ["192.0.2.11/24"], "hostname": "node-a", "config": {"mode": mode.to_string()}});
        let answer = ask_on(&objects, &facts, "198.51.100.7", "192.0.2.99:30080");
        let words = told(&answer);
        says(&answer, Reach::No, "not-the-nodes-address");
        assert!(words.contains("192.0.2.11 (of the host's interfaces)"), "{words}");
        // Another node's is that node's to answer for.
        let question = Question {
            from: "pod".parse().expect("a sender"),
            to: "192.0.2.12:30080".parse().expect("a destination"),
            protocol: None,
            in_interface: None,
        };
        let parts = Parts {
            documents: objects.clone(),
            mode: Some(mode),
            node: Some("node-a".to_owned()),
            ..Parts::default()
        };
        let answer = explain::explain(&assemble(parts, &question).expect("good parts"), &question);
        let words = told(&answer);
        assert_eq!(answer.reach, Reach::Unknown, "{words}");
        assert!(
            words.contains("an address of Node node-b") && words.contains("--node node-b"),
            "{words}"
        );
    }
    // Whoever has the address: there is no endpoint.
    let objects = with(vec![cart(&with_node_port(30080)), slice("cart", &[])]);
    let answer = ask(&objects, "outside", "192.0.2.99:30080");
    assert_eq!(answer.reach, Reach::No, "{}", told(&answer));
    assert_ne!(cause(&answer), "not-the-nodes-address");
}

#[test]
fn a_name_that_is_no_nodes_is_refused_where_nodes_are_known() {
    let refused = |documents: Vec<Value>, node: Option<&str>, from: &str| {
        let question = Question {
            from: from.parse().expect("a sender"),
            to: "shop/cart".parse().expect("a destination"),
            protocol: None,
            in_interface: None,
        };
        let parts = Parts {
            documents,
            node: node.map(str::to_owned),
            ..Parts::default()
        };
        assemble(parts, &question).err()
    };
    let words = "there is no Node node-c; the Nodes are: node-a, node-b";
    assert_eq!(refused(nodes(), Some("node-c"), "pod").as_deref(), Some(words));
    assert_eq!(refused(nodes(), None, "node:node-c").as_deref(), Some(words));
    assert_eq!(refused(nodes(), Some("node-b"), "node:node-a"), None);
    assert_eq!(refused(vec![], Some("node-c"), "pod"), None);
}

#[test]
fn node_port_addresses_are_told_with_their_value_and_what_to_add() {
    let objects = with(vec![cart(&with_node_port(30080)), slice("cart", &["10.42.1.5"])]);
    let on = |config: Value, from: &str, to: &str| {
        let facts = json!({"hostname": "node-a", "addresses": ["192.0.2.11/24", "203.0.113.11/24"], "config": config});
        told(&ask_on(&objects, &facts, from, to))
    };
    let words = on(
        json!({"nodePortAddresses": ["192.0.2.0/25"]}),
        "198.51.100.7",
        "203.0.113.11:30080",
    );
    for part in [
        "nodePortAddresses is 192.0.2.0/25.",
        "leaves 192.0.2.11",
        "add 203.0.113.11/32",
        "kubectl get configmap -n kube-system kube-proxy",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let words = on(
        json!({"nodePortAddresses": ["10.0.0.0/8"]}),
        "198.51.100.7",
        "203.0.113.11:30080",
    );
    assert!(words.contains("No address of this node is in it"), "{words}");
    let words = on(json!({"mode": "nftables"}), "198.51.100.7", "203.0.113.11:30080");
    assert!(
        words.contains("is primary, which is the default in nftables mode"),
        "{words}"
    );
}

#[test]
fn loopback_is_told_by_mode_and_by_the_setting_that_leaves_it_out() {
    let objects = with(vec![cart(&with_node_port(30080)), slice("cart", &["10.42.1.5"])]);
    let on = |config: Value, from: &str| {
        let facts = json!({"hostname": "node-a", "addresses": ["192.0.2.11/24"], "config": config});
        let answer = ask_on(&objects, &facts, from, "127.0.0.1:30080");
        (answer.reach, told(&answer))
    };
    assert_eq!(on(json!({}), "node").0, Reach::Yes);
    let off = json!({"iptables": {"localhostNodePorts": false}});
    let elsewhere = json!({"nodePortAddresses": ["192.0.2.0/24"]});
    for (config, parts) in [
        (
            off,
            [
                "iptables.localhostNodePorts is false",
                "route_localnet",
                "192.0.2.11:30080",
            ],
        ),
        (
            elsewhere,
            [
                "nodePortAddresses is 192.0.2.0/24",
                "add 127.0.0.0/8",
                "192.0.2.11:30080",
            ],
        ),
        (
            json!({"mode": "nftables"}),
            ["nftables mode never serves", "loopback", "192.0.2.11:30080"],
        ),
    ] {
        let (reach, words) = on(config, "node");
        assert_eq!(reach, Reach::No, "{words}");
        for part in parts {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    let (_, words) = on(json!({"nodePortAddresses": ["10.0.0.0/8"]}), "node");
    assert!(
        !words.contains("use the node's own address"),
        "it is not served there: {words}"
    );
    // A pod's loopback, and a client's, is its own.
    for from in ["pod", "outside", "198.51.100.7"] {
        let (reach, words) = on(json!({}), from);
        assert_eq!(reach, Reach::No, "{words}");
        assert!(
            words.contains("itself: the packet never leaves it") && words.contains("--from node"),
            "{words}"
        );
    }
}

/// Any address of a node will do where none is known.
#[test]
fn a_node_port_is_answered_where_no_address_of_the_node_is_known() {
    for mode in ["iptables", "nftables"] {
        let facts = json!({"config": {"mode": mode}});
        let ready = [cart(&with_node_port(30080)), slice("cart", &["10.42.1.5"])];
        for (from, to) in [
            ("outside", "node:30080"),
            ("pod", "node:30080"),
            ("node", "node:30080"),
            ("198.51.100.7", "192.0.2.11:30080"),
            ("outside", "shop/cart"),
        ] {
            let answer = ask_on(&ready, &facts, from, to);
            assert_eq!(answer.reach, Reach::Yes, "{mode} {from} {to}: {}", told(&answer));
            let is_told = told(&answer).contains("no address of the node is known");
            assert_eq!(is_told, !to.contains("192.0.2.11"), "{}", told(&answer));
        }
        // Who else has the number is no node.
        assert_eq!(
            ask_on(&ready, &facts, "outside", "192.0.2.11:30081").reach,
            Reach::No
        );
    }
}

/// Saved rules of a host, of which nothing else is known.
fn ask_rules(marks: &str, filter: &str) -> explain::Explanation {
    let dump = format!(
        "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n{filter}COMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n\
         :KUBE-SERVICES - [0:0]\n:KUBE-SVC-IV - [0:0]\n:KUBE-SEP-IV - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n-A PREROUTING -j KUBE-SERVICES\n\
         -A KUBE-SERVICES -d 10.96.8.10/32 -p tcp -m comment --comment \"shop/cart:http cluster IP\" -m tcp --dport 80 -j KUBE-SVC-IV\n\
         {marks}-A KUBE-SVC-IV -j KUBE-SEP-IV\n-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000\n\
         -A KUBE-SEP-IV -p tcp -m tcp -j DNAT --to-destination 10.42.2.9:8080\nCOMMIT\n"
    );
    let question = Question {
        from: "pod".parse().expect("a sender"),
        to: "10.96.8.10:80".parse().expect("a destination"),
        protocol: None,
        in_interface: None,
    };
    let parts = Parts {
        saved: model::PerFamily {
            v4: Some(iptables::parse::save(&dump, model::Family::V4).ruleset),
            v6: None,
        },
        ..Parts::default()
    };
    explain::explain(&assemble(parts, &question).expect("good parts"), &question)
}

#[test]
fn saved_rules_tell_which_addresses_pods_have_or_that_it_matters() {
    let marks =
        "-A KUBE-SVC-IV ! -s 10.42.0.0/16 -d 10.96.8.10/32 -p tcp -m tcp --dport 80 -j KUBE-MARK-MASQ\n";
    let pods = "-A FORWARD -s 10.42.0.0/16 -j ACCEPT\n";
    let known = ask_rules(marks, pods);
    assert_eq!(known.reach, Reach::Yes, "{}", told(&known));
    assert!(known.from.contains("taken as 10.42.255.254)"), "{}", known.from);
    let open = ask_rules("", pods);
    says(&open, Reach::Unknown, "not-known");
    // Nobody is let through, whoever it is.
    let closed = ask_rules("", "");
    says(&closed, Reach::No, "foreign-rule");
}
