//! A client outside that asks for a Service by name asks at what is meant for clients outside.

mod support;

use explain::{Cause, Reach};
use serde_json::{Value, json};
use support::small::{ask, ask_as, ask_on, cause, node, says, service, slice, told, with_node_port};

fn cluster(spec: &Value, ingress: &Value, endpoints: &[&str]) -> Vec<Value> {
    vec![
        node("node-a", "192.0.2.11"),
        service("cart", "10.96.8.10", spec, ingress),
        slice("cart", endpoints),
    ]
}

const POD: &[&str] = &["10.42.1.5"];

#[test]
fn the_address_that_outsiders_use_is_asked_for() {
    let port = json!([{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]);
    let bare = json!([{"name": "http", "port": 80, "targetPort": 8080}]);
    let cases = [
        (
            json!({"type": "LoadBalancer", "ports": port}),
            json!([{"ip": "198.51.100.50"}]),
            "load-balancer IP 198.51.100.50:80",
        ),
        (
            json!({"externalIPs": ["198.51.100.60"], "ports": bare}),
            json!([]),
            "external IP 198.51.100.60:80",
        ),
        (
            with_node_port(30080),
            json!([]),
            "node port 30080/TCP on 192.0.2.11",
        ),
        // The load balancer sees the traffic itself, and comes to the node port.
        (
            json!({"type": "LoadBalancer", "ports": port}),
            json!([{"ip": "198.51.100.50", "ipMode": "Proxy"}]),
            "node port 30080/TCP on 192.0.2.11",
        ),
        (
            json!({"type": "LoadBalancer", "ports": port}),
            json!([{"hostname": "lb.example"}]),
            "node port 30080/TCP on 192.0.2.11",
        ),
    ];
    for (spec, ingress, to) in cases {
        for asked in ["shop/cart", "shop/cart:80", "shop/cart:http"] {
            let answer = ask(&cluster(&spec, &ingress, POD), "outside", asked);
            assert!(answer.to.contains(to), "{asked}: {}", told(&answer));
            assert_eq!(
                (answer.reach, cause(&answer)),
                (Reach::Yes, ""),
                "{}",
                told(&answer)
            );
            let none = ask(&cluster(&spec, &ingress, &[]), "outside", asked);
            assert_eq!(none.reach, Reach::No, "{}", told(&none));
        }
    }
}

#[test]
fn a_service_that_has_only_a_cluster_ip_cannot_be_reached_from_outside() {
    for endpoints in [POD, &[]] {
        let answer = ask(
            &cluster(&json!({}), &json!([]), endpoints),
            "outside",
            "shop/cart",
        );
        let words = told(&answer);
        says(&answer, Reach::No, "not-exposed");
        for part in ["spec.type", "spec.externalIPs", "10.96.8.10"] {
            assert!(words.contains(part), "{part}: {words}");
        }
    }
    // What is no port, or is nobody's, is told as such.
    assert_eq!(
        cause(&ask(
            &cluster(&json!({}), &json!([]), POD),
            "outside",
            "shop/cart:81"
        )),
        "no-such-port"
    );
    assert_eq!(
        cause(&ask(
            &cluster(&json!({}), &json!([]), POD),
            "outside",
            "shop/nobody"
        )),
        "no-such-service"
    );
    let headless = json!({"clusterIP": "None", "clusterIPs": ["None"]});
    assert_eq!(
        cause(&ask(&cluster(&headless, &json!([]), POD), "outside", "shop/cart")),
        "headless"
    );
}

#[test]
fn a_load_balancer_that_nobody_gave_an_address_is_told() {
    let with_ports = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
    let answer = ask(&cluster(&with_ports, &json!([]), POD), "outside", "shop/cart");
    says(&answer, Reach::Yes, "load-balancer-pending");
    let without = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let answer = ask(&cluster(&without, &json!([]), POD), "outside", "shop/cart");
    says(&answer, Reach::No, "load-balancer-pending");
    // With ipMode Proxy and no node port the load balancer has ways of its own.
    let answer = ask(
        &cluster(
            &without,
            &json!([{"ip": "198.51.100.50", "ipMode": "Proxy"}]),
            POD,
        ),
        "outside",
        "shop/cart",
    );
    says(&answer, Reach::NotOurs, "ip-mode-proxy");
}

#[test]
fn another_way_in_that_does_not_work_is_told_beside_the_first() {
    let spec = json!({"type": "LoadBalancer", "ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
    let facts = json!({"hostname": "node-a", "addresses": ["192.0.2.11/24"], "config": {"nodePortAddresses": ["10.0.0.0/8"]}});
    let answer = ask_on(
        &cluster(&spec, &json!([{"ip": "198.51.100.50"}]), POD),
        &facts,
        "outside",
        "shop/cart",
    );
    let words = told(&answer);
    says(&answer, Reach::Yes, "node-port-address");
    assert!(words.contains("REACHABLE, but node port 30080/TCP:"), "{words}");
}

#[test]
fn a_cluster_ip_is_not_routed_outside_of_the_cluster() {
    let both = json!({"clusterIPs": ["10.96.8.10", "2001:db8:96::10"], "ipFamilies": ["IPv4", "IPv6"]});
    let mut exposed = both.clone();
    exposed["type"] = "NodePort".into();
    exposed["ports"] = with_node_port(30080)["ports"].clone();
    let cases = [
        ("outside", "10.96.8.10:80"),
        ("outside", "10.96.8.10"),
        ("outside", "[2001:db8:96::10]:80"),
        ("198.51.100.7", "10.96.8.10:80"),
        ("2001:db8:ffff::7", "[2001:db8:96::10]:80"),
    ];
    for (spec, way) in [(&both, "spec.type"), (&exposed, "node port 30080/TCP")] {
        let mut objects = cluster(spec, &json!([]), POD);
        let mut of_v6 = slice("cart", &["2001:db8:42::5"]);
        of_v6["metadata"]["name"] = "cart-v6".into();
        of_v6["addressType"] = "IPv6".into();
        objects.push(of_v6);
        for (from, to) in cases {
            let answer = ask(&objects, from, to);
            let words = told(&answer);
            assert_eq!(
                (answer.reach, cause(&answer)),
                (Reach::No, "not-exposed"),
                "{from} {to}: {words}"
            );
            for part in ["is known on the cluster's nodes only", way, "--in-interface"] {
                assert!(words.contains(part), "{part}: {words}");
            }
            // Routers may bring it to a node all the same.
            let comes_in = ask_as(&objects, &json!({}), from, to, Some("eth0"));
            assert_eq!(comes_in.reach, Reach::Yes, "{from} {to}: {}", told(&comes_in));
        }
    }
}

/// Nodes with the pods' networks, where they are known.
fn limited(pods: Option<&str>) -> Vec<Value> {
    let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ["203.0.113.0/24"],
        "ports": with_node_port(30080)["ports"]});
    let mut objects = cluster(&spec, &json!([{"ip": "198.51.100.50"}]), POD);
    if let Some(pods) = pods {
        objects[0]["spec"] = json!({"podCIDR": pods, "podCIDRs": [pods]});
    }
    objects
}

#[test]
fn a_client_that_is_given_by_its_address_asks_where_others_outside_do() {
    let cases = [
        // Let in by the source ranges, or not.
        (
            Some("10.42.1.0/24"),
            "203.0.113.9",
            Reach::Yes,
            "load-balancer IP",
        ),
        (
            Some("10.42.1.0/24"),
            "198.51.100.7",
            Reach::No,
            "load-balancer IP",
        ),
        (None, "198.51.100.7", Reach::No, "load-balancer IP"),
        (Some("10.42.1.0/24"), "192.168.7.7", Reach::No, "load-balancer IP"),
        // A pod's, a node's, and perhaps a pod's.
        (Some("10.42.1.0/24"), "10.42.1.77", Reach::Yes, "cluster IP"),
        (None, "10.42.1.5", Reach::Yes, "cluster IP"),
        (None, "10.99.1.5", Reach::Yes, "cluster IP"),
        (None, "192.0.2.11", Reach::Yes, "cluster IP"),
    ];
    for (pods, from, reach, at) in cases {
        let answer = ask(&limited(pods), from, "shop/cart");
        let words = told(&answer);
        assert_eq!(answer.reach, reach, "{from}: {words}");
        assert!(answer.to.contains(at), "{from}: {words}");
        if reach == Reach::No {
            assert_eq!(cause(&answer), "source-range", "{words}");
        }
    }
    // A packet and its destination are of one family.
    let answer = ask(
        &cluster(&with_node_port(30080), &json!([]), POD),
        "2001:db8:ffff::7",
        "shop/cart",
    );
    says(&answer, Reach::No, "no-address-of-family");
}

/// Masquerading gives a process of the node the address that it has.
#[test]
fn a_source_that_stays_the_same_is_not_told_as_rewritten() {
    let objects = limited(Some("10.42.1.0/24"));
    let rewritten = |from: &str, to: &str| {
        let answer = ask(&objects, from, to);
        assert_eq!(answer.reach, Reach::Yes, "{}", told(&answer));
        answer
            .findings
            .iter()
            .any(|finding| finding.cause == Cause::SourceRewritten)
    };
    assert!(!rewritten("node", "shop/cart"));
    assert!(!rewritten("192.0.2.11", "10.96.8.10:80"));
    assert!(!rewritten("node", "192.0.2.11:30080"));
    assert!(!rewritten("node", "node:30080"));
    assert!(rewritten("203.0.113.9", "192.0.2.11:30080"));
}

/// Set-ups in which the Service has an external IP by its spec, and kube-proxy does not serve it: objects, configuration, the
/// kind of finding, and parts of its words.
fn not_served() -> Vec<(Vec<Value>, Value, &'static str, [&'static str; 2])> {
    let claims =
        |ip: &str| json!({"externalIPs": [ip], "ports": [{"name": "http", "port": 80, "targetPort": 8080}]});
    let of = |ip: &str| {
        let mut objects = cluster(&claims(ip), &json!([]), POD);
        objects[1]["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z".into();
        objects
    };
    let mut first = service("basket", "10.96.8.9", &claims("198.51.100.60"), &json!([]));
    first["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    vec![
        (
            [of("198.51.100.60"), vec![first]].concat(),
            json!({}),
            "claimed",
            [
                "198.51.100.60:80/TCP belongs to Service shop/basket",
                "Service shop/cart claims it too",
            ],
        ),
        (
            of("198.51.100.60"),
            json!({"featureGates": {"AllowServiceExternalIPs": false}}),
            "external-ip-not-allowed",
            [
                "external IP 198.51.100.60 of Service shop/cart is not served",
                "AllowServiceExternalIPs",
            ],
        ),
        (
            of("2001:db8:1::60"),
            json!({}),
            "no-address-of-family",
            [
                "external IP 2001:db8:1::60 of Service shop/cart is of IPv6",
                "spec.ipFamilyPolicy",
            ],
        ),
    ]
}

#[test]
fn an_address_that_is_not_served_is_named_with_why() {
    for (mut objects, config, wanted, parts) in not_served() {
        let facts = json!({"config": config});
        let answer = ask_on(&objects, &facts, "outside", "shop/cart");
        let words = told(&answer);
        says(&answer, Reach::No, wanted);
        for part in parts {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(!words.contains("a cluster IP alone"), "{words}");
        // Beside a way in that works it is a warning.
        objects[1]["spec"]["ports"] = with_node_port(30080)["ports"].clone();
        let answer = ask_on(&objects, &facts, "outside", "shop/cart");
        says(&answer, Reach::Yes, wanted);
    }
}

/// The nodes would serve the address, had another Service not had it before.
#[test]
fn a_load_balancers_address_that_another_service_has_is_told_as_that() {
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let ingress = json!([{"ip": "198.51.100.50"}]);
    let mut objects = cluster(&spec, &ingress, POD);
    objects[1]["metadata"]["creationTimestamp"] = "2024-01-01T00:00:00Z".into();
    let mut first = service("basket", "10.96.8.9", &spec, &ingress);
    first["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    objects.extend([first, slice("basket", &["10.42.1.6"])]);
    let answer = ask(&objects, "outside", "shop/cart");
    says(&answer, Reach::No, "claimed");
    assert_eq!(ask(&objects, "outside", "shop/basket").reach, Reach::Yes);
}

#[test]
fn ways_in_that_are_too_many_are_counted_and_other_ports_are_told() {
    let ips: Vec<String> = (1..=9).map(|last| format!("198.51.100.{last}")).collect();
    let ports = json!([{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}, {"name": "https", "port": 443, "targetPort": 8443}]);
    let spec = json!({"externalIPs": ips, "ports": ports, "type": "NodePort"});
    let answer = ask(&cluster(&spec, &json!([]), POD), "outside", "shop/cart");
    let words = told(&answer);
    assert_eq!(answer.reach, Reach::Yes, "{words}");
    for part in [
        "and 3 more ways in, not looked at: external IP 198.51.100.8:80/TCP",
        "node port 30080/TCP",
        "no port was asked for; the Service has also 443/TCP",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let words = told(&ask(&cluster(&spec, &json!([]), POD), "outside", "shop/cart:80"));
    assert!(!words.contains("no port was asked for"), "{words}");
}

#[test]
fn a_load_balancer_that_is_not_served_is_told_where_its_node_port_is_looked_at() {
    let spec = |kind: &str| json!({"type": kind, "ports": with_node_port(30080)["ports"]});
    let told_of =
        |kind: &str, ingress: Value| told(&ask(&cluster(&spec(kind), &ingress, POD), "outside", "shop/cart"));
    let served = "a load balancer that kube-proxy does not serve";
    for (ingress, balancer) in [
        (json!([{"hostname": "lb.example"}]), "lb.example"),
        (
            json!([{"ip": "198.51.100.50", "ipMode": "Proxy"}]),
            "198.51.100.50",
        ),
    ] {
        let words = told_of("LoadBalancer", ingress);
        let wanted = format!("clients outside ask {balancer}, {served}; looked at is node port 30080/TCP");
        assert!(words.contains(&wanted), "{words}");
    }
    // Of the one family it is served, or sees the traffic; the client is of the other.
    let mut dual = spec("LoadBalancer");
    dual["clusterIPs"] = json!(["10.96.8.10", "2001:db8:96::10"]);
    for ingress in [
        json!([{"ip": "198.51.100.50", "hostname": "lb.example"}]),
        json!([{"ip": "198.51.100.50", "ipMode": "Proxy"}]),
    ] {
        let asked = ask(&cluster(&dual, &ingress, POD), "2001:db8:ffff::7", "shop/cart");
        assert!(!told(&asked).contains(served), "{}", told(&asked));
    }
    for (kind, ingress) in [
        ("LoadBalancer", json!([{"ip": "198.51.100.50"}])),
        ("LoadBalancer", json!([])),
        ("NodePort", json!([])),
    ] {
        let words = told_of(kind, ingress);
        assert!(!words.contains(served), "{words}");
    }
}

/// Of the client's family, and not where the nodes serve the address.
#[test]
fn a_load_balancer_that_sees_the_traffic_itself_is_one_of_ip_mode_proxy() {
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let both =
        json!([{"ip": "2001:db8:1::50", "ipMode": "Proxy"}, {"ip": "198.51.100.50", "ipMode": "Proxy"}]);
    let answer = ask(&cluster(&spec, &both, POD), "198.51.100.7", "shop/cart");
    let words = told(&answer);
    says(&answer, Reach::NotOurs, "ip-mode-proxy");
    assert!(words.contains("198.51.100.50 is a load balancer"), "{words}");
    // Nodes serve the one address, and it is of the other family.
    let mut dual = spec.clone();
    dual["clusterIPs"] = json!(["10.96.8.10", "2001:db8:96::10"]);
    let answer = ask(
        &cluster(&dual, &json!([{"ip": "198.51.100.50", "ipMode": "VIP"}]), POD),
        "2001:db8:ffff::7",
        "shop/cart",
    );
    let words = told(&answer);
    says(&answer, Reach::No, "no-address-of-family");
    assert!(
        words.contains("only load-balancer IP 198.51.100.50:80/TCP"),
        "{words}"
    );
}

/// Some give out the nodes' own addresses (klipper-lb of k3s): a client comes to the node that has the address.
#[test]
fn a_load_balancers_address_that_is_a_nodes_is_answered_by_that_node() {
    let spec = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": with_node_port(30080)["ports"]});
    let ingress = json!([{"ip": "192.0.2.11"}, {"ip": "192.0.2.12"}]);
    let mut objects = cluster(&spec, &ingress, POD);
    objects.push(node("node-b", "192.0.2.12"));
    objects[2]["endpoints"][0]["nodeName"] = "node-b".into();
    for from in ["outside", "198.51.100.7"] {
        for to in ["192.0.2.12:80", "192.0.2.12:30080"] {
            let answer = ask(&objects, from, to);
            assert_eq!(
                (answer.reach, answer.node.as_str()),
                (Reach::Yes, "node-b"),
                "{}",
                told(&answer)
            );
        }
        let answer = ask(&objects, from, "192.0.2.11:80");
        says(&answer, Reach::No, "no-local-endpoints");
        // By name the first node's rules are asked, and those of the other are that node's to say.
        let words = told(&ask(&objects, from, "shop/cart"));
        assert!(
            words.contains("load-balancer IP 192.0.2.12:80/TCP is an address of Node node-b, whose rules decide there: --node node-b"),
            "{words}"
        );
    }
}

#[test]
fn a_load_balancer_that_has_a_name_alone_serves_by_itself() {
    let spec = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false});
    let answer = ask(
        &cluster(&spec, &json!([{"hostname": "lb.example"}]), POD),
        "outside",
        "shop/cart",
    );
    says(&answer, Reach::NotOurs, "ip-mode-proxy");
    assert!(
        told(&answer).contains("by its load balancer, lb.example"),
        "{}",
        told(&answer)
    );
}
