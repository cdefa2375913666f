//! Node ports: at which of whose addresses they answer, in which family, and what is told where no address is known.

mod support;

use explain::{Explanation, Reach, screen};
use serde_json::{Value, json};
use support::small::{ask, ask_on, cause, node, says, service, slice, told, with_node_port};

const POD: &[&str] = &["10.42.1.5"];

fn cart(spec: &Value, endpoints: &[&str]) -> Vec<Value> {
    let mut all = with_node_port(30080);
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    vec![
        service("cart", "10.96.8.10", &all, &json!([])),
        slice("cart", endpoints),
    ]
}

/// The same Service with IPv6 alone.
fn of_six() -> Vec<Value> {
    let mut all = cart(
        &json!({"clusterIP": "2001:db8:96::10", "clusterIPs": ["2001:db8:96::10"]}),
        &["2001:db8:42::5"],
    );
    all[1]["addressType"] = "IPv6".into();
    all
}

fn dual_node() -> Value {
    let mut node = node("node-a", "192.0.2.11");
    node["status"]["addresses"] = json!([{"type": "InternalIP", "address": "192.0.2.11"}, {"type": "InternalIP", "address": "2001:db8::11"}]);
    node
}

fn in_mode(mode: &str) -> Value {
    json!({"config": {"mode": mode}})
}

/// Two addresses are `localhost`: of each family one. Node ports are served on that of IPv4 alone, in iptables mode.
#[test]
fn a_node_port_of_the_other_family_is_told_as_that() {
    for mode in ["iptables", "nftables"] {
        let objects = [vec![dual_node()], of_six()].concat();
        for to in ["localhost:30080", "127.0.0.1:30080", "http://localhost:30080/"] {
            let answer = ask_on(&objects, &in_mode(mode), "node", to);
            let words = told(&answer);
            says(&answer, Reach::No, "no-address-of-family");
            for part in [
                "node port 30080 of Service shop/cart is for IPv6 alone, and 127.0.0.1 is an IPv4 address",
                "On ::1",
                "[2001:db8::11]:30080",
            ] {
                assert!(words.contains(part), "{part}: {words}");
            }
            assert!(
                !words.contains("nodePortAddresses") && !words.contains("localhostNodePorts"),
                "{words}"
            );
        }
        let answer = ask_on(&objects, &in_mode(mode), "198.51.100.7", "192.0.2.11:30080");
        let words = told(&answer);
        says(&answer, Reach::No, "no-address-of-family");
        assert!(
            words.contains("spec.ipFamilyPolicy") && words.contains("[2001:db8::11]:30080"),
            "{words}"
        );
        // IPv4 alone, asked for at IPv6's loopback.
        let objects = [vec![dual_node()], cart(&Value::Null, POD)].concat();
        let answer = ask_on(&objects, &in_mode(mode), "node", "[::1]:30080");
        let words = told(&answer);
        says(&answer, Reach::No, "node-port-address");
        assert!(
            words.contains("never served on ::1") && words.contains("192.0.2.11:30080"),
            "{words}"
        );
    }
}

/// What was made up is told as that, and is handed on to nobody.
#[test]
fn an_address_that_stands_for_the_nodes_is_not_told_as_one() {
    let objects = cart(&Value::Null, POD);
    for from in ["outside", "pod", "node"] {
        for to in ["node:30080", "shop/cart"] {
            let answer = ask(&objects, from, to);
            let words = told(&answer);
            assert_eq!((answer.reach, cause(&answer)), (Reach::Yes, ""), "{words}");
            if from != "outside" && to == "shop/cart" {
                continue;
            }
            assert!(
                answer
                    .to
                    .contains("an address of the node, of which none is known"),
                "{words}"
            );
            assert!(
                words.contains("192.0.2.254 is made up") && words.contains("no Node object was given"),
                "{words}"
            );
            assert!(
                answer.next.iter().all(|line| !line.contains("192.0.2.254")),
                "{words}"
            );
            assert!(!words.contains("in place of 192.0.2.254"), "{words}");
        }
        for (to, wanted, part) in [
            ("node:30081", "no-node-port", "no Service has node port 30081/TCP"),
            (
                "node:80",
                "port-mixed-up",
                "80 is the port of Service shop/cart; its node port is 30080",
            ),
        ] {
            let answer = ask(&objects, from, to);
            let words = told(&answer);
            says(&answer, Reach::No, wanted);
            assert!(words.contains(part), "{words}");
            assert!(!screen::headline(&answer).contains("192.0.2.254"), "{words}");
        }
    }
}

#[test]
fn where_policy_local_drops_the_nodes_that_have_endpoints_are_named_with_their_addresses() {
    let nodes = || {
        vec![
            node("node-a", "192.0.2.11"),
            node("node-b", "192.0.2.12"),
            node("node-c", "192.0.2.13"),
        ]
    };
    let asked = |spec: &Value, ingress: &Value, to: &str| {
        let mut objects = cart(spec, &["10.42.1.5", "10.42.2.5"]);
        objects[0]["status"]["loadBalancer"]["ingress"] = ingress.clone();
        objects[1]["endpoints"][0]["nodeName"] = "node-b".into();
        objects[1]["endpoints"][1]["nodeName"] = "node-c".into();
        let answer = ask(&[nodes(), objects].concat(), "198.51.100.7", to);
        says(&answer, Reach::No, "no-local-endpoints");
        told(&answer)
    };
    let local = json!({"externalTrafficPolicy": "Local"});
    let words = asked(&local, &json!([]), "192.0.2.11:30080");
    assert!(
        words.contains(
            "connect to a node that has an endpoint: 192.0.2.12:30080 (node-b), 192.0.2.13:30080 (node-c)"
        ),
        "{words}"
    );
    let balancer = json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"});
    let words = asked(&balancer, &json!([{"ip": "198.51.100.50"}]), "198.51.100.50:80");
    assert!(
        words.contains("routes 198.51.100.50, send to nodes that have an endpoint: node-b (192.0.2.12), node-c (192.0.2.13)"),
        "{words}"
    );
}

#[test]
fn where_nothing_is_sent_on_no_address_is_said_to_answer() {
    let facts = json!({"hostname": "node-a", "addresses": ["192.0.2.11/24"]});
    let answers = |endpoints: &[&str]| -> Explanation {
        ask_on(
            &cart(&Value::Null, endpoints),
            &facts,
            "198.51.100.7",
            "192.0.2.11:30080",
        )
    };
    let none = answers(&[]);
    assert_eq!(none.reach, Reach::No, "{}", told(&none));
    assert!(!told(&none).contains("answers on"), "{}", told(&none));
    let some = answers(POD);
    assert!(
        told(&some).contains("answers on 192.0.2.11, 127.0.0.1 (for the node itself)"),
        "{}",
        told(&some)
    );
}
