//! Faults of objects as kinds: what the folders of `scenarios` show one shape of, in others, and what only looks like them.

use explain::{Explanation, HostFacts, Parts, Question, Reach, assemble, explain};
use serde_json::{Value, json};

/// A Service with one port, and what is told of it.
struct Shop {
    target: Value,
    protocol: &'static str,
    /// Of each pod: its name, address, and `spec`.
    pods: Vec<(&'static str, &'static str, Value)>,
    /// Further objects, or others in place of the usual ones.
    more: Vec<Value>,
}

const READY: &str = "True";

impl Shop {
    fn of_pods(target: Value, pods: Vec<(&'static str, &'static str, Value)>) -> Shop {
        Shop {
            target,
            protocol: "TCP",
            pods,
            more: Vec::new(),
        }
    }

    /// The slice has the port if it is a number, as the controller would write it.
    fn documents(&self) -> Vec<Value> {
        let ports = match self.target.as_u64() {
            Some(number) => json!([{"name": "http", "port": number, "protocol": self.protocol}]),
            None => json!([]),
        };
        let endpoint = |(name, ip, _): &(&str, &str, Value)| {
            json!({"addresses": [ip], "conditions": {"ready": true}, "nodeName": "node-a",
                "targetRef": {"kind": "Pod", "namespace": "shop", "name": name}})
        };
        let pod = |(name, ip, spec): &(&str, &str, Value)| {
            json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": "cart"}}, "spec": spec,
                "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": READY}]}})
        };
        let mut all = vec![
            json!({"kind": "Service", "metadata": {"name": "cart", "namespace": "shop"}, "spec": {"type": "ClusterIP",
                "clusterIP": "10.96.8.10", "clusterIPs": ["10.96.8.10"], "selector": {"app": "cart"},
                "ports": [{"name": "http", "port": 80, "protocol": self.protocol, "targetPort": self.target}]}}),
            json!({"kind": "EndpointSlice", "metadata": {"name": "cart-x", "namespace": "shop",
                "labels": {"kubernetes.io/service-name": "cart", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
                "addressType": "IPv4", "ports": ports, "endpoints": self.pods.iter().map(endpoint).collect::<Vec<_>>()}),
        ];
        all.extend(self.pods.iter().map(pod));
        all.extend(self.more.clone());
        all
    }

    fn answer(&self, to: &str) -> Explanation {
        let question = Question {
            from: "pod:10.244.1.5".parse().expect("a sender"),
            to: to.parse().expect("a destination"),
            protocol: None,
            in_interface: None,
        };
        let facts = json!({"hostname": "node-a", "addresses": ["192.0.2.11/24"], "config": {"clusterCIDR": "10.244.0.0/16"}});
        let parts = Parts {
            documents: self.documents(),
            facts: HostFacts::read(&facts).expect("good facts"),
            ..Parts::default()
        };
        explain(&assemble(parts, &question).expect("good parts"), &question)
    }
}

/// The first finding: its kind, its sentence with its reason and what to do.
fn first(answer: &Explanation) -> (&'static str, String) {
    match answer.findings.first() {
        Some(finding) => {
            let advice: Vec<String> = finding.advice.iter().map(ToString::to_string).collect();
            (
                finding.cause.as_str(),
                format!("{} {} {}", finding.what, finding.why, advice.join(" ")),
            )
        }
        None => ("", String::new()),
    }
}

fn app(ports: &Value) -> Value {
    json!({"containers": [{"name": "app", "ports": ports}]})
}

#[test]
fn a_name_of_a_port_is_looked_for_where_the_controller_looks() {
    let starts = json!({"containers": [{"name": "app", "ports": [{"name": "web", "containerPort": 8080}]}],
        "initContainers": [{"name": "migrate", "ports": [{"name": "http", "containerPort": 9000}]}]});
    let sidecar = json!({"containers": [{"name": "app"}],
        "initContainers": [{"name": "proxy", "restartPolicy": "Always", "ports": [{"name": "http", "containerPort": 4180}]}]});
    let udp = app(&json!([{"name": "http", "containerPort": 8443, "protocol": "UDP"}]));
    let other = app(&json!([{"name": "web", "containerPort": 8080}]));
    for (spec, words) in [
        (starts, "migrate, a container that ends before its pods serve"),
        (sidecar, "set it to the number, 4180"),
        (
            udp,
            "is a port for UDP in its pods, and the Service's port is TCP",
        ),
        (other, "set it to \"web\""),
    ] {
        let answer =
            Shop::of_pods(json!("http"), vec![("cart-1", "10.244.1.20", spec)]).answer("shop/cart:80");
        let (cause, told) = first(&answer);
        assert_eq!(cause, "target-port-name", "{told}");
        assert!(told.contains(words), "{words}: {told}");
        assert_eq!(answer.reach, Reach::No);
    }
}

#[test]
fn a_number_that_is_not_declared_is_told_where_all_containers_declare_something() {
    let declares = |port: u16| app(&json!([{"name": "web", "containerPort": port}]));
    let silent =
        json!({"containers": [{"name": "app"}, {"name": "proxy", "ports": [{"containerPort": 4143}]}]});
    let udp = app(&json!([{"containerPort": 8080, "protocol": "UDP"}]));
    let told = |pods: Vec<Value>| {
        let names = [("cart-1", "10.244.1.20"), ("cart-2", "10.244.1.21")];
        let pods = names
            .into_iter()
            .zip(pods)
            .map(|((name, ip), spec)| (name, ip, spec));
        first(&Shop::of_pods(json!(8080), pods.collect()).answer("shop/cart:80"))
    };
    assert_eq!(told(vec![declares(8080), declares(8080)]).0, "");
    assert_eq!(
        told(vec![declares(9090), declares(9090)]).0,
        "target-port-undeclared"
    );
    assert_eq!(told(vec![declares(8080), declares(9090)]).0, "selector-too-wide");
    // A container that declares nothing may listen on anything.
    assert_eq!(told(vec![silent.clone(), silent.clone()]).0, "");
    assert_eq!(told(vec![declares(9090), silent]).0, "");
    let (cause, words) = told(vec![udp]);
    assert_eq!(cause, "target-port-undeclared");
    assert!(words.contains("set it to UDP"), "{words}");
}

#[test]
fn pods_that_have_gone_are_told_where_pods_are_known() {
    let there = || ("cart-1", "10.244.1.20", app(&json!([{"containerPort": 8080}])));
    let slice = |ip: &str, name: &str| {
        json!({"kind": "EndpointSlice", "metadata": {"name": "old", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ip], "conditions": {}, "targetRef": {"kind": "Pod", "namespace": "shop", "name": name}}]})
    };
    let answer = |pods, more| {
        let mut shop = Shop::of_pods(json!(8080), pods);
        shop.more = more;
        shop.answer("shop/cart:80")
    };
    let gone = answer(vec![there()], vec![slice("10.244.7.7", "cart-0")]);
    assert_eq!(first(&gone).0, "stale-slices");
    assert!(matches!(gone.reach, Reach::Fails(share) if (share - 0.5).abs() < 0.01));
    assert!(gone.deliveries.iter().any(|to| !to.works));
    // The pod is there, at another address.
    let moved = answer(vec![there()], vec![slice("10.244.7.7", "cart-1")]);
    assert_eq!(first(&moved).0, "stale-slices");
    // Nobody gave any pod of the namespace.
    let unknown = answer(Vec::new(), vec![slice("10.244.7.7", "cart-0")]);
    assert_eq!((first(&unknown).0, unknown.reach), ("", Reach::Yes));
}

/// Multus' and others' slices list addresses that no pod's status has; slices of other clusters list pods that nobody
/// finds here.
#[test]
fn pods_at_addresses_of_further_networks_have_not_gone() {
    let networks = json!([
        {"name": "cbr0", "interface": "eth0", "ips": ["10.244.1.20"], "default": true},
        {"name": "shop/storage", "interface": "net1", "ips": ["172.31.7.7"]}
    ]);
    let slice = |ip: &str, pod: &str, label: Option<(&str, &str)>| {
        let mut slice = json!({"kind": "EndpointSlice", "metadata": {"name": "further", "namespace": "shop",
            "labels": {"kubernetes.io/service-name": "cart"}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ip], "conditions": {}, "targetRef": {"kind": "Pod", "namespace": "shop", "name": pod}}]});
        if let Some((key, value)) = label {
            slice["metadata"]["labels"][key] = value.into();
        }
        slice
    };
    let pod = |annotations: &Value| {
        json!({"kind": "Pod", "metadata": {"name": "cart-1", "namespace": "shop", "labels": {"app": "cart"}, "annotations": annotations},
            "spec": app(&json!([{"containerPort": 8080}])),
            "status": {"phase": "Running", "podIP": "10.244.1.20", "conditions": [{"type": "Ready", "status": READY}]}})
    };
    // The slice alone lists anything: the controller's own has no endpoint.
    let told = |slice: Value, annotations: Value| {
        let mut shop = Shop::of_pods(json!(8080), Vec::new());
        shop.more = vec![pod(&annotations), slice];
        let answer = shop.answer("shop/cart:80");
        let stale = answer
            .findings
            .iter()
            .filter(|of| of.cause.as_str() == "stale-slices");
        (stale.map(|of| of.what.clone()).collect::<Vec<_>>(), answer.reach)
    };
    let keeper = "endpointslice.kubernetes.io/managed-by";
    let multus = Some((keeper, "multus-endpointslice-controller.npwg.k8s.cni.cncf.io"));
    let of_cluster = |keeper: &'static str| Some((keeper, "east"));
    let quiet = (Vec::new(), Reach::Yes);
    for status in ["network-status", "networks-status"] {
        let annotations = json!({format!("k8s.v1.cni.cncf.io/{status}"): networks.to_string()});
        assert_eq!(
            told(slice("172.31.7.7", "cart-1", None), annotations.clone()),
            quiet
        );
        assert_eq!(told(slice("172.31.7.7", "cart-1", multus), annotations), quiet);
    }
    assert_eq!(
        told(slice("172.31.7.7", "cart-1", multus), json!({})),
        quiet,
        "a keeper of its own"
    );
    let (stale, _) = told(slice("172.31.7.7", "cart-1", None), json!({}));
    assert_ne!(
        stale,
        Vec::<String>::new(),
        "nobody says that it is of another network"
    );
    let (stale, _) = told(slice("172.31.7.7", "cart-0", multus), json!({}));
    assert_ne!(stale, Vec::<String>::new(), "there is no such pod");
    let east = of_cluster("multicluster.kubernetes.io/source-cluster");
    let (stale, reach) = told(slice("172.31.7.7", "cart-0", east), json!({}));
    assert!(!stale.iter().any(|what| what.contains("has gone")), "{stale:?}");
    assert_eq!(reach, Reach::Yes);
}

#[test]
fn a_label_that_fits_elsewhere_is_nearer_than_another_value_here() {
    let pod = |namespace: &str, name: &str, app: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}}, "spec": {},
            "status": {"phase": "Running", "podIP": "10.244.1.30"}})
    };
    let mut shop = Shop::of_pods(json!(8080), Vec::new());
    shop.more = vec![pod("shop", "mailer", "mailer"), pod("prod", "cart-1", "cart")];
    let (cause, told) = first(&shop.answer("shop/cart:80"));
    assert_eq!(cause, "nothing-selected");
    assert!(told.contains("make the Service in namespace prod"), "{told}");
}

#[test]
fn an_address_that_a_load_balancer_is_asked_for_is_not_yet_served() {
    let service = |spec: Value, annotations: Value, ingress: Value| {
        let mut shop = Shop::of_pods(json!(8080), Vec::new());
        let mut spec = spec;
        spec["type"] = "LoadBalancer".into();
        spec["clusterIP"] = "10.96.8.11".into();
        spec["clusterIPs"] = json!(["10.96.8.11"]);
        spec["ports"] = json!([{"name": "https", "port": 443}]);
        shop.more = vec![
            json!({"kind": "Service", "metadata": {"name": "edge", "namespace": "shop", "annotations": annotations},
            "spec": spec, "status": {"loadBalancer": {"ingress": ingress}}}),
        ];
        first(&shop.answer("203.0.113.9:443"))
    };
    let asked = || json!({"loadBalancerIP": "203.0.113.9"});
    let (cause, told) = service(asked(), json!({}), json!([]));
    assert_eq!(cause, "load-balancer-pending");
    assert!(told.contains("<pending>"), "{told}");
    let (cause, told) = service(asked(), json!({}), json!([{"ip": "203.0.113.77"}]));
    assert_eq!(cause, "load-balancer-pending");
    assert!(told.contains("was given 203.0.113.77"), "{told}");
    let by_annotation = json!({"metallb.io/loadBalancerIPs": "2001:db8::9, 203.0.113.9"});
    assert_eq!(
        service(json!({}), by_annotation, json!([])).0,
        "load-balancer-pending"
    );
    assert_eq!(service(json!({}), json!({}), json!([])).0, "nobodys-address");
}

/// They share the node's address with each other, and with programs that are no pods.
#[test]
fn pods_of_the_nodes_network_are_those_that_the_services_own_slice_names() {
    let on_node = |port: u16| json!({"hostNetwork": true, "containers": [{"name": "app", "ports": [{"containerPort": port}]}]});
    let slice = |namespace: &str, service: &str, endpoint: Value, port: u16| {
        json!({"kind": "EndpointSlice", "metadata": {"name": format!("{service}-y"), "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": port, "protocol": "TCP"}], "endpoints": [endpoint]})
    };
    let named = json!({"addresses": ["192.0.2.12"], "conditions": {}, "targetRef": {"kind": "Pod", "namespace": "agents", "name": "agent"}});
    let others = vec![
        json!({"kind": "Pod", "metadata": {"name": "agent", "namespace": "agents"}, "spec": on_node(80), "status": {"podIP": "192.0.2.12"}}),
        slice("agents", "agent", named, 80),
    ];
    let exporter = |port| {
        let mut shop = Shop::of_pods(json!(9100), vec![("exporter", "192.0.2.12", on_node(port))]);
        shop.more = others.clone();
        shop.answer("shop/cart:80")
    };
    let answer = exporter(9100);
    assert_eq!(first(&answer), ("", String::new()));
    assert_eq!(answer.deliveries[0].pod.as_deref(), Some("shop/exporter"));
    assert_eq!(first(&exporter(9200)).0, "target-port-undeclared");
    // Nobody says what serves there, as for the API server's own Service.
    let mut shop = Shop::of_pods(json!(6443), Vec::new());
    shop.more = others.clone();
    shop.more.push(slice(
        "shop",
        "cart",
        json!({"addresses": ["192.0.2.12"], "conditions": {}}),
        6443,
    ));
    let answer = shop.answer("shop/cart:80");
    assert_eq!(first(&answer), ("", String::new()));
    assert_eq!(answer.deliveries[0].pod, None);
}

/// In the word that the condition has, with its name.
#[test]
fn a_readiness_gate_that_holds_pods_back_is_told_by_its_condition() {
    let gate = "target-health.example/cart";
    let pod = |name: &str, ip: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": "cart"}},
            "spec": {"readinessGates": [{"conditionType": gate}], "containers": [{"name": "app"}]},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "False"}, {"type": gate, "status": "False"}],
                "containerStatuses": [{"name": "app", "ready": true, "state": {"running": {}}}]}})
    };
    let endpoint = |ip: &str| json!({"addresses": [ip], "conditions": {"ready": false}});
    let mut shop = Shop::of_pods(json!(8080), Vec::new());
    shop.more = vec![
        pod("cart-1", "10.244.1.20"),
        pod("cart-2", "10.244.1.21"),
        json!({"kind": "EndpointSlice", "metadata": {"name": "cart-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": [endpoint("10.244.1.20"), endpoint("10.244.1.21")]}),
    ];
    let (cause, words) = first(&shop.answer("shop/cart:80"));
    assert_eq!(cause, "not-ready");
    assert!(
        words.contains("readiness gate target-health.example/cart is not True"),
        "{words}"
    );
}
