//! Whoever stands for a sender that is not known is nobody in particular: what others would see differently is no answer.

mod support;

use explain::{Explanation, HostFacts, Parts, Question, Reach, assemble};
use serde_json::{Value, json};
use support::small::{ask, ask_on, cause, node, says, service, slice, told};

const EDGE: &str = "198.51.100.50:80";

/// A load balancer for these ranges, with an endpoint on node-a, on Nodes without podCIDR.
fn edge(ranges: &[&str], spec: &Value) -> Vec<Value> {
    let mut all = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges});
    for (field, value) in spec.as_object().into_iter().flatten() {
        all[field] = value.clone();
    }
    let nodes = [node("node-a", "192.0.2.11"), node("node-b", "192.0.2.12")];
    let edge = [
        service("edge", "10.96.8.10", &all, &json!([{"ip": "198.51.100.50"}])),
        slice("edge", &["100.64.1.5"]),
    ];
    nodes.into_iter().chain(edge).collect()
}

fn is_open(answer: &Explanation) {
    let words = told(answer);
    assert_eq!(
        (answer.reach, cause(answer)),
        (Reach::Unknown, "not-known"),
        "{words}"
    );
    assert!(words.contains("pod's address"), "{words}");
}

/// The address that was made up lies in some of them and not in others.
#[test]
fn a_source_range_is_told_from_inside_and_from_outside() {
    for ranges in [
        &["10.0.0.0/8"][..],
        &["10.244.0.0/16"],
        &["203.0.113.0/24"],
        &["10.244.255.254/32"],
        &["10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"],
    ] {
        is_open(&ask(&edge(ranges, &Value::Null), "pod", EDGE));
    }
    let all = edge(&["10.0.0.0/8", "0.0.0.0/0"], &Value::Null);
    assert_eq!(ask(&all, "pod", EDGE).reach, Reach::Yes);
    let halves = edge(&["0.0.0.0/1", "128.0.0.0/1"], &Value::Null);
    assert_eq!(ask(&halves, "pod", EDGE).reach, Reach::Yes);
}

/// A list of ranges lets an address in or it does not, however long it is.
#[test]
fn long_lists_of_source_ranges_are_no_reason_for_no_answer() {
    let ranges: Vec<String> = (0..600)
        .map(|net| format!("10.{}.{}.0/24", net / 250, net % 250))
        .collect();
    let mut nets: Vec<&str> = ranges.iter().map(String::as_str).collect();
    is_open(&ask(&edge(&nets, &Value::Null), "pod", EDGE));
    nets.extend(["10.0.0.0/8", "128.0.0.0/1", "0.0.0.0/1"]);
    says(&ask(&edge(&nets, &Value::Null), "pod", EDGE), Reach::Yes, "");
}

#[test]
fn networks_of_rules_that_were_not_all_tried_are_told_beside_the_answer() {
    let asked = |number: usize, last: &str| {
        let rules: Vec<String> = (0..number)
            .map(|net| {
                format!(
                    "\t\tip saddr 100.{}.{}.0/24 counter accept\n",
                    64 + net / 250,
                    net % 250
                )
            })
            .collect();
        let firewall = format!(
            "\tchain forward {{\n\t\ttype filter hook forward priority 0; policy accept;\n{}{last}\n\t}}",
            rules.concat()
        );
        ask_native(&firewall, "pod")
    };
    let few = asked(100, "");
    assert_eq!((few.reach, cause(&few)), (Reach::Yes, ""), "{}", told(&few));
    let many = asked(600, "");
    let words = told(&many);
    says(&many, Reach::Yes, "not-known");
    assert!(
        words.contains("256 of those it is alike") && words.contains("--from pod:IP"),
        "{words}"
    );
    is_open(&asked(600, "\t\tip saddr 10.0.0.0/8 drop"));
}

/// Pods and nodes of the cluster take other routes than clients outside.
#[test]
fn a_client_outside_is_no_pod_and_no_node() {
    let local = json!({"externalTrafficPolicy": "Local"});
    let pods = json!({"config": {"clusterCIDR": "10.244.0.0/16"}});
    let taken = |ranges: &[&str]| {
        let mut objects = edge(ranges, &local);
        objects[3]["endpoints"][0]["nodeName"] = "node-b".into();
        let answer = ask_on(&objects, &pods, "outside", EDGE);
        (answer.packet.as_ref().expect("a packet").src.to_string(), answer)
    };
    for ranges in [
        &["10.244.0.0/16", "203.0.113.0/24"][..],
        &["10.244.7.0/24", "203.0.113.0/24"],
        &["192.0.2.11/32", "203.0.113.0/24"],
        &["192.0.2.0/24", "203.0.113.0/24"],
    ] {
        let (ip, answer) = taken(ranges);
        assert_eq!(ip, "203.0.113.254", "{ranges:?}");
        assert_eq!(answer.reach, Reach::No, "{}", told(&answer));
        assert_eq!(cause(&answer), "no-local-endpoints");
    }
    // Of a network that holds the pods': one that is in none of them.
    let (ip, answer) = taken(&["10.0.0.0/8"]);
    assert_eq!(
        (ip.as_str(), cause(&answer)),
        ("10.255.255.254", "no-local-endpoints")
    );
    // For nobody outside.
    for range in ["10.244.0.0/16", "192.0.2.11/32"] {
        let answer = ask_on(&edge(&[range], &Value::Null), &pods, "outside", EDGE);
        says(&answer, Reach::No, "source-range");
    }
}

/// Slices that people and the API server write list databases and nodes.
#[test]
fn an_endpoint_that_is_no_pods_stands_for_no_pod() {
    let mut objects = edge(&["203.0.113.0/24"], &Value::Null);
    let mut database = slice("db", &["203.0.113.9"]);
    let endpoint = database["endpoints"][0].as_object_mut().expect("an endpoint");
    endpoint.remove("nodeName");
    objects.push(database.clone());
    is_open(&ask(&objects, "pod", EDGE));
    let pod = json!({"kind": "Pod", "namespace": "shop", "name": "db-0"});
    database["endpoints"][0]["targetRef"] = pod;
    objects.pop();
    objects.push(database);
    let answer = ask(&objects, "pod", EDGE);
    assert_eq!(answer.reach, Reach::Yes, "{}", told(&answer));
}

/// A firewall's table beside rules that send to an endpoint.
fn ask_native(firewall: &str, from: &str) -> Explanation {
    let text = format!(
        "table ip nat {{\n\tchain prerouting {{\n\t\ttype nat hook prerouting priority -100; policy accept;\n\
         \t\tip daddr 10.96.8.10 tcp dport 80 dnat to 100.64.1.5:8080\n\t}}\n}}\n\
         table inet fw {{\n{firewall}\n}}\n"
    );
    let question = Question {
        from: from.parse().expect("a sender"),
        to: "10.96.8.10:80".parse().expect("a destination"),
        protocol: None,
        in_interface: None,
    };
    let parts = Parts {
        native: Some(nftables::parse::ruleset(&text).expect("good rules")),
        facts: HostFacts::default(),
        ..Parts::default()
    };
    explain::explain(&assemble(parts, &question).expect("good parts"), &question)
}

#[test]
fn networks_in_native_tables_tell_senders_apart() {
    let chain = |policy: &str, rule: &str| {
        format!(
            "\tchain forward {{\n\t\ttype filter hook forward priority 0; policy {policy};\n\t\t{rule}\n\t}}"
        )
    };
    let set = |elements: &str, policy: &str, rule: &str| {
        let set = format!(
            "\tset pods {{\n\t\ttype ipv4_addr\n\t\tflags interval\n\t\telements = {{ {elements} }}\n\t}}\n"
        );
        set + &chain(policy, rule)
    };
    for firewall in [
        chain("drop", "ip saddr 100.64.0.0/10 accept"),
        chain("accept", "ip saddr != 100.64.0.0/10 drop"),
        chain("drop", "ip saddr { 100.64.0.0/10, 172.16.0.0/12 } accept"),
        chain("drop", "ip saddr 100.64.0.0-100.64.255.255 accept"),
        chain("drop", "ip saddr vmap { 100.64.0.0/10 : accept }"),
        chain("accept", "ip saddr 10.0.0.0/8 drop"),
        set("100.64.0.0/10", "drop", "ip saddr @pods accept"),
    ] {
        is_open(&ask_native(&firewall, "pod"));
        let known = ask_native(&firewall, "pod:100.64.3.3");
        assert_eq!(known.reach, Reach::Yes, "{firewall}: {}", told(&known));
    }
    // Nobody is let through; and the address of nobody is not handed on.
    for from in ["pod", "outside"] {
        let closed = ask_native(&chain("drop", "ip daddr 192.0.2.7 accept"), from);
        assert_eq!(closed.reach, Reach::No, "{}", told(&closed));
        let next = closed.next.join("\n");
        assert!(next.contains("trace --dump FILE --from IP --to"), "{next}");
    }
}

/// Policy Local keeps a client to its own node, and nobody said which that is.
#[test]
fn a_client_of_no_known_node_is_kept_to_no_node() {
    let local = |on: &[&str]| {
        let addresses: Vec<String> = (0..on.len()).map(|i| format!("100.64.1.{i}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let mut all = slice("edge", &addresses);
        for (endpoint, node) in on.iter().enumerate() {
            all["endpoints"][endpoint]["nodeName"] = (*node).into();
        }
        let spec = json!({"internalTrafficPolicy": "Local"});
        vec![service("edge", "10.96.8.10", &spec, &json!([])), all]
    };
    let nodes = || vec![node("node-a", "192.0.2.11"), node("node-b", "192.0.2.12")];
    for on in [&["node-b"], &["node-a"]] {
        let answer = ask(&[nodes(), local(on)].concat(), "shop/client", "shop/edge");
        let words = told(&answer);
        says(&answer, Reach::Unknown, "not-known");
        assert!(words.starts_with("NO ANSWER: it depends on the node"), "{words}");
        assert!(words.contains(on[0]) && words.contains("--node NAME"), "{words}");
    }
    let answer = ask(&local(&["node-b"]), "shop/client", "shop/edge");
    assert_eq!(answer.reach, Reach::Unknown, "{}", told(&answer));
    // Alike on every node, or on the only one, or its node is known.
    let both = [nodes(), local(&["node-a", "node-b"])].concat();
    assert_eq!(ask(&both, "shop/client", "shop/edge").reach, Reach::Yes);
    let empty = [nodes(), local(&[])].concat();
    assert_eq!(ask(&empty, "shop/client", "shop/edge").reach, Reach::No);
    let one = [vec![node("node-a", "192.0.2.11")], local(&["node-b"])].concat();
    assert_eq!(ask(&one, "shop/client", "shop/edge").reach, Reach::No);
    let pod = json!({"kind": "Pod", "metadata": {"name": "client", "namespace": "shop"}, "spec": {"nodeName": "node-a"},
        "status": {"podIP": "100.64.1.77"}});
    let known = [nodes(), local(&["node-b"]), vec![pod]].concat();
    let answer = ask(&known, "shop/client", "shop/edge");
    assert_eq!(cause(&answer), "no-local-endpoints", "{}", told(&answer));
}

#[test]
fn a_node_port_at_nobodys_address_is_told_by_whose_it_could_be() {
    let spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": 8080, "nodePort": 30080}]});
    let mut objects = edge(&[], &spec);
    let range = json!({"kind": "ServiceCIDR", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
    objects.push(range);
    let without_nodes = objects[2..].to_vec();
    for objects in [&objects, &without_nodes] {
        let answer = ask(objects, "pod:100.64.1.9", "10.96.8.99:30080");
        let words = told(&answer);
        says(&answer, Reach::No, "nobodys-address");
        assert!(
            words.contains("lies in the service range 10.96.0.0/16"),
            "{words}"
        );
    }
    let words = told(&ask(&objects, "pod:100.64.1.9", "8.8.8.8:30080"));
    assert!(
        words.starts_with("NO ANSWER: nobody is known to have 8.8.8.8")
            && !words.contains("not one of the known"),
        "{words}"
    );
    let answer = ask(&objects, "pod:100.64.1.9", "192.0.2.11:30080");
    assert_eq!(answer.reach, Reach::Yes, "{}", told(&answer));
}
