//! A name that does not say what it is the name of is a Service as DNS has it for the client, or a Node; and what it was taken
//! for is told.

mod support;

use explain::{Explanation, Reach};
use serde_json::{Value, json};
use support::small::{ask, cause, node, says, service, slice, told, with_node_port};

/// A Service in this namespace, with one endpoint.
fn cart(namespace: &str, ip: &str, endpoint: &str) -> Vec<Value> {
    let mut all = [
        service("cart", ip, &with_node_port(30080), &json!([])),
        slice("cart", &[endpoint]),
    ];
    for object in &mut all {
        object["metadata"]["namespace"] = namespace.into();
    }
    all.into()
}

fn pod(namespace: &str, ip: &str) -> Value {
    json!({"kind": "Pod", "metadata": {"name": "web", "namespace": namespace}, "spec": {"nodeName": "node-a"},
        "status": {"podIP": ip}})
}

/// Two nodes, a client in each of two namespaces, and Services of one name in these.
fn cluster(namespaces: &[&str]) -> Vec<Value> {
    let mut all = vec![node("node-a", "192.0.2.11"), node("node-b", "192.0.2.12")];
    all.extend([
        pod("shop", "10.42.1.77"),
        pod("prod", "10.42.1.78"),
        pod("default", "10.42.1.79"),
    ]);
    for (number, namespace) in namespaces.iter().enumerate() {
        let of = 10 + number;
        all.extend(cart(
            namespace,
            &format!("10.96.8.{of}"),
            &format!("10.42.1.{of}"),
        ));
    }
    all
}

fn asked(answer: &Explanation) -> String {
    answer
        .service
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default()
}

#[test]
fn a_name_without_a_namespace_is_of_the_clients_own() {
    let objects = cluster(&["shop", "prod"]);
    for (from, wanted) in [
        ("shop/web", "shop/cart"),
        ("prod/web", "prod/cart"),
        ("pod:10.42.1.77", "shop/cart"),
        ("10.42.1.78", "prod/cart"),
    ] {
        for to in ["cart", "cart:80", "cart:http", "http://cart/x"] {
            let answer = ask(&objects, from, to);
            assert_eq!(
                (asked(&answer).as_str(), answer.reach),
                (wanted, Reach::Yes),
                "{}",
                told(&answer)
            );
            assert!(!told(&answer).contains("was taken for"), "{}", told(&answer));
        }
        let answer = ask(&objects, from, "cart.prod");
        assert_eq!(asked(&answer), "prod/cart");
    }
}

/// What DNS would not find is not found, whoever has a Service of that name elsewhere.
#[test]
fn a_name_that_is_another_namespaces_is_not_found_and_the_right_one_is_told() {
    let answer = ask(&cluster(&["prod"]), "shop/web", "cart:80");
    let words = told(&answer);
    says(&answer, Reach::No, "no-such-service");
    for part in [
        "there is no Service shop/cart",
        "looks in its own, shop",
        "prod/cart",
        "cart.prod",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn where_no_pod_asks_the_name_is_of_the_only_one_or_of_default_and_that_is_told() {
    let only = cluster(&["shop"]);
    for from in ["pod", "node", "outside", "node-a", "198.51.100.7"] {
        let answer = ask(&only, from, "cart");
        let words = told(&answer);
        assert_eq!(
            (asked(&answer).as_str(), answer.reach),
            ("shop/cart", Reach::Yes),
            "{words}"
        );
        assert!(
            words.contains("taken for shop/cart, the only Service of that name"),
            "{words}"
        );
    }
    let answer = ask(&cluster(&["default"]), "pod", "cart");
    assert!(!told(&answer).contains("taken for"), "{}", told(&answer));
    let answer = ask(&cluster(&["shop", "default"]), "pod", "cart");
    let words = told(&answer);
    assert_eq!(
        (asked(&answer).as_str(), answer.reach),
        ("default/cart", Reach::Yes),
        "{words}"
    );
    assert!(words.contains("there is shop/cart, too"), "{words}");
    let answer = ask(&cluster(&["shop", "prod"]), "pod", "cart");
    let words = told(&answer);
    says(&answer, Reach::Unknown, "not-known");
    assert!(
        words.contains("cart is a Service in 2 namespaces") && words.contains("--to prod/cart"),
        "{words}"
    );
    let answer = ask(&only, "pod", "basket");
    says(&answer, Reach::No, "no-such-service");
}

#[test]
fn a_name_of_a_node_is_its_address_and_its_own_rules_are_asked() {
    let mut objects = cluster(&["shop"]);
    objects.push(node("worker-2.example.com", "192.0.2.13"));
    objects.push(node("worker-3.example", "192.0.2.14"));
    for (to, name, address) in [
        ("node-b:30080", "node-b", "192.0.2.12"),
        ("http://node-b:30080/x", "node-b", "192.0.2.12"),
        ("worker-2.example.com:30080", "worker-2.example.com", "192.0.2.13"),
        ("worker-3.example:30080", "worker-3.example", "192.0.2.14"),
    ] {
        for from in ["outside", "pod", "shop/web", "node-a", "198.51.100.7"] {
            let answer = ask(&objects, from, to);
            let words = told(&answer);
            assert_eq!(answer.reach, Reach::Yes, "{from}: {words}");
            assert_eq!(answer.node, name, "{from}: {words}");
            assert_eq!(
                answer.packet.as_ref().expect("a packet").dst.to_string(),
                format!("{address}:30080")
            );
            assert!(
                words.contains(&format!("{name} is a Node: it is asked at {address}")),
                "{words}"
            );
        }
    }
    let answer = ask(&objects, "outside", "node-b");
    says(&answer, Reach::Unknown, "not-known");
    assert!(
        told(&answer).contains("the number of a port is needed"),
        "{}",
        told(&answer)
    );
    let answer = ask(&objects, "outside", "www.example.com:80");
    says(&answer, Reach::Unknown, "not-known");
    assert!(told(&answer).contains("name of no Node"), "{}", told(&answer));
}

/// A pod and a Service of one family each.
#[test]
fn a_client_of_the_other_family_is_told_which_fields_give_the_service_its_own() {
    let six = || {
        let spec = json!({"clusterIPs": ["2001:db8:96::10"], "ipFamilies": ["IPv6"]});
        let mut slice = slice("cart", &["2001:db8:42::5"]);
        slice["addressType"] = "IPv6".into();
        vec![service("cart", "2001:db8:96::10", &spec, &json!([])), slice]
    };
    let four = || {
        vec![
            service("cart", "10.96.8.10", &json!({}), &json!([])),
            slice("cart", &["10.42.1.5"]),
        ]
    };
    let both = || {
        let spec = json!({"clusterIPs": ["10.96.8.10", "2001:db8:96::10"]});
        let mut all = six();
        all[0] = service("cart", "10.96.8.10", &spec, &json!([]));
        let mut of_v4 = slice("cart", &["10.42.1.5"]);
        of_v4["metadata"]["name"] = "cart-4".into();
        all.push(of_v4);
        all
    };
    let nodes = || vec![node("node-a", "192.0.2.11")];
    for (of_service, ip, lacks) in [(six(), "10.42.1.77", "IPv4"), (four(), "2001:db8:42::77", "IPv6")] {
        let objects = [nodes(), of_service, vec![pod("shop", ip)]].concat();
        for from in ["shop/web".to_owned(), format!("pod:{ip}")] {
            let answer = ask(&objects, &from, "cart.shop");
            let words = told(&answer);
            says(&answer, Reach::No, "no-address-of-family");
            for part in [
                &format!("has no {lacks} cluster IP")[..],
                "spec.ipFamilyPolicy",
                &format!("add {lacks} to spec.ipFamilies"),
            ] {
                assert!(words.contains(part), "{part}: {words}");
            }
        }
    }
    for ip in ["10.42.1.77", "2001:db8:42::77"] {
        let objects = [nodes(), both(), vec![pod("shop", ip)]].concat();
        let answer = ask(&objects, "shop/web", "cart");
        assert_eq!(
            (answer.reach, cause(&answer)),
            (Reach::Yes, ""),
            "{}",
            told(&answer)
        );
        assert_eq!(answer.packet.as_ref().expect("a packet").src.to_string(), ip);
    }
}

/// People know Deployments by name, and pods by what `kubectl` calls them.
#[test]
fn a_sender_that_is_no_pod_is_told_which_pods_are_near() {
    let mut objects = cluster(&["shop"]);
    let mut made = pod("shop", "10.42.1.80");
    made["metadata"]["name"] = "front-7c9f6d-abcde".into();
    objects.push(made);
    for (from, near) in [
        ("shop/front", "shop/front-7c9f6d-abcde"),
        ("front", "shop/front-7c9f6d-abcde"),
        ("pod/front-7c9f6d-abcde", "shop/front-7c9f6d-abcde"),
        ("pod/web", "default/web, prod/web, shop/web"),
    ] {
        let answer = ask(&objects, from, "cart");
        let words = told(&answer);
        says(&answer, Reach::Unknown, "no-such-pod");
        let first = near.split(',').next().unwrap_or_default();
        assert!(words.contains(&format!("There is {near}.")), "{words}");
        assert!(words.contains(&format!("--from {first}")), "{words}");
        // Whose namespace would count, nobody knows.
        assert_eq!(asked(&answer), "shop/cart");
    }
    let answer = ask(&objects, "shop/fro", "cart");
    assert!(
        told(&answer).contains("Neither Pods nor slices name it"),
        "{}",
        told(&answer)
    );
}

/// Objects that were restored with the addresses that they had.
#[test]
fn a_service_whose_cluster_ip_is_anothers_is_not_answered_for_by_that() {
    let older = |mut objects: Vec<Value>, year: u16| {
        objects[0]["metadata"]["creationTimestamp"] = format!("{year}-01-01T00:00:00Z").into();
        objects
    };
    let objects = [
        vec![node("node-a", "192.0.2.11")],
        older(cart("shop", "10.96.8.10", "10.42.1.5"), 2024),
        older(cart("prod", "10.96.8.10", "10.42.1.6"), 2020),
    ]
    .concat();
    let answer = ask(&objects, "node", "shop/cart");
    let words = told(&answer);
    says(&answer, Reach::No, "claimed");
    for part in [
        "10.96.8.10:80/TCP is that of Service prod/cart, and shop/cart has the same",
        "spec.clusterIP",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert_eq!(ask(&objects, "node", "prod/cart").reach, Reach::Yes);
}

/// Pods of the node's network, and those that were told so, ask the node's DNS servers.
#[test]
fn a_client_that_asks_its_nodes_dns_is_told_that_it_finds_no_service() {
    let mut objects = cluster(&["shop"]);
    let mut agent = |name: &str, ip: &str, spec: Value| {
        let mut agent = pod("shop", ip);
        agent["metadata"]["name"] = name.into();
        agent["spec"] = spec;
        objects.push(agent);
    };
    agent(
        "host",
        "192.0.2.11",
        json!({"nodeName": "node-a", "hostNetwork": true}),
    );
    agent(
        "first",
        "192.0.2.11",
        json!({"nodeName": "node-a", "hostNetwork": true, "dnsPolicy": "ClusterFirst"}),
    );
    agent(
        "both",
        "192.0.2.11",
        json!({"nodeName": "node-a", "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
    );
    agent(
        "default",
        "10.42.1.90",
        json!({"nodeName": "node-a", "dnsPolicy": "Default"}),
    );
    agent(
        "own",
        "10.42.1.91",
        json!({"nodeName": "node-a", "dnsPolicy": "None"}),
    );
    agent(
        "plain",
        "10.42.1.92",
        json!({"nodeName": "node-a", "dnsPolicy": "ClusterFirst"}),
    );
    for (name, policy) in [
        ("host", Some("ClusterFirstWithHostNet")),
        ("first", Some("ClusterFirstWithHostNet")),
        ("default", Some("set it to ClusterFirst")),
        ("both", None),
        ("own", None),
        ("plain", None),
    ] {
        let answer = ask(&objects, &format!("shop/{name}"), "cart");
        let words = told(&answer);
        let wanted = if policy.is_some() { "node-dns" } else { "" };
        assert_eq!(
            (answer.reach, cause(&answer)),
            (Reach::Yes, wanted),
            "{name}: {words}"
        );
        assert!(
            policy.is_none_or(|policy| words.contains(policy)),
            "{name}: {words}"
        );
        // Who gives the Service's own name asks no DNS.
        assert_eq!(cause(&ask(&objects, &format!("shop/{name}"), "shop/cart")), "");
    }
}

/// Where no pod is named, it is one of the family that pods are known to have.
#[test]
fn any_pod_is_of_the_family_that_pods_are_known_to_have() {
    let with = |pods: &str| {
        let mut node = node("node-a", "192.0.2.11");
        node["spec"] = json!({"podCIDR": pods, "podCIDRs": [pods]});
        node
    };
    let of = |ips: &[&str]| {
        let spec = json!({"clusterIPs": ips});
        let mut six = slice("cart", &["2001:db8:42::5"]);
        six["addressType"] = "IPv6".into();
        six["metadata"]["name"] = "cart-6".into();
        vec![
            service("cart", ips[0], &spec, &json!([])),
            slice("cart", &["10.42.1.5"]),
            six,
        ]
    };
    let both = &["10.96.8.10", "2001:db8:96::10"][..];
    for (pods, wanted) in [
        ("10.42.1.0/24", "10.96.8.10:80"),
        ("2001:db8:42::/64", "[2001:db8:96::10]:80"),
    ] {
        let answer = ask(&[vec![with(pods)], of(both)].concat(), "pod", "shop/cart");
        assert_eq!(
            (answer.reach, cause(&answer)),
            (Reach::Yes, ""),
            "{}",
            told(&answer)
        );
        assert_eq!(answer.packet.as_ref().expect("a packet").dst.to_string(), wanted);
    }
    let answer = ask(
        &[vec![with("10.42.1.0/24")], of(&["2001:db8:96::10"])].concat(),
        "pod",
        "shop/cart",
    );
    says(&answer, Reach::Yes, "no-address-of-family");
    assert!(
        told(&answer).contains("pods are known to have IPv4 alone (10.42.1.0/24)"),
        "{}",
        told(&answer)
    );
    // Where no network of pods is known, nothing is said.
    let answer = ask(
        &[vec![node("node-a", "192.0.2.11")], of(&["2001:db8:96::10"])].concat(),
        "pod",
        "shop/cart",
    );
    assert_eq!(cause(&answer), "", "{}", told(&answer));
}
