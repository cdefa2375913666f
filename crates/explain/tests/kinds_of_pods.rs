//! What keeps pods out of a Service's slices, or their slices away from the Service: as kinds, and what only looks like them.

mod support;

use explain::{Explanation, Reach};
use serde_json::{Value, json};
use support::small::{ask, cause, node, says, service, slice, told};

fn pod(name: &str, ip: Option<&str>, status: &Value) -> Value {
    let mut all = json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "labels": {"app": "cart"}},
        "spec": {"nodeName": "node-a", "containers": [{"name": "app", "ports": [{"name": "http", "containerPort": 8080}]}]}, "status": status});
    if let Some(ip) = ip {
        all["status"]["podIP"] = ip.into();
    }
    all
}

fn ready() -> Value {
    json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
}

fn asked(more: Vec<Value>) -> Explanation {
    let mut all = vec![node("node-a", "192.0.2.11")];
    all.extend(more);
    ask(&all, "node", "shop/cart")
}

fn cart(spec: &Value) -> Value {
    service("cart", "10.96.8.10", spec, &json!([]))
}

fn empty() -> Vec<Value> {
    vec![cart(&Value::Null), slice("cart", &[])]
}

#[track_caller]
fn names(answer: &Explanation, parts: &[&str]) {
    let words = told(answer);
    for part in parts {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn a_pod_that_has_ended_is_no_fault_of_the_slice_controller() {
    for (status, part) in [
        (json!({"phase": "Succeeded"}), "(Succeeded)"),
        (json!({"phase": "Failed"}), "(Failed)"),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}),
            "(Failed; Evicted: The node was low on resource: memory)",
        ),
        (
            json!({"phase": "Failed", "reason": "NodeAffinity"}),
            "(Failed; NodeAffinity)",
        ),
    ] {
        let answer = asked([empty(), vec![pod("cart-1", Some("10.42.1.5"), &status)]].concat());
        says(&answer, Reach::No, "not-ready");
        names(
            &answer,
            &[
                "the only pod that Service shop/cart selects has ended: shop/cart-1",
                part,
            ],
        );
        // Whoever lives counts first.
        let lives = pod("cart-2", Some("10.42.1.6"), &ready());
        let answer = asked([empty(), vec![pod("cart-1", Some("10.42.1.5"), &status), lives]].concat());
        says(&answer, Reach::No, "stale-slices");
        let both = [
            empty(),
            vec![pod("cart-1", None, &status), pod("cart-2", None, &status)],
        ]
        .concat();
        names(
            &asked(both),
            &["all 2 pods that Service shop/cart selects have ended: shop/cart-1, shop/cart-2"],
        );
    }
}

#[test]
fn a_pod_that_no_node_takes_is_told_with_the_schedulers_word() {
    let open = |message: Value| {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        let status = json!({"phase": "Pending", "conditions": [condition]});
        asked([empty(), vec![pod("cart-1", None, &status)]].concat())
    };
    let answer = open(json!("0/3 nodes are available: 3 node(s) had untolerated taint."));
    says(&answer, Reach::No, "not-ready");
    names(
        &answer,
        &["it is Pending; no node takes it: 0/3 nodes are available: 3 node(s) had untolerated taint"],
    );
    names(&open(Value::Null), &["no node takes it: Unschedulable"]);
}

#[test]
fn a_node_that_does_not_answer_comes_before_what_its_pods_last_said() {
    let lost = |status: &str| {
        let mut lost = node("node-b", "192.0.2.12");
        lost["status"]["conditions"] = json!([{"type": "MemoryPressure", "status": "Unknown"},
            {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}]);
        lost
    };
    let on_node_b = |is_ready: bool| {
        let mut slice = slice("cart", &["10.42.1.5", "10.42.2.5"]);
        slice["endpoints"][1]["nodeName"] = "node-b".into();
        slice["endpoints"][1]["targetRef"] = json!({"kind": "Pod", "namespace": "shop", "name": "cart-2"});
        slice["endpoints"][1]["conditions"]["ready"] = is_ready.into();
        slice["endpoints"][0]["conditions"]["ready"] = is_ready.into();
        let crashing = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "app", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
        let mut second = pod("cart-2", Some("10.42.2.5"), &crashing);
        second["spec"]["nodeName"] = "node-b".into();
        vec![cart(&Value::Null), slice, second]
    };
    for status in ["Unknown", "False"] {
        let answer = asked([vec![lost(status)], on_node_b(false)].concat());
        says(&answer, Reach::No, "not-ready");
        names(
            &answer,
            &["Node node-b is not ready (Kubelet stopped posting node status)"],
        );
        assert!(!told(&answer).contains("CrashLoopBackOff"), "{}", told(&answer));
        // Before slices follow, it gets traffic all the same.
        let answer = asked([vec![lost(status)], on_node_b(true)].concat());
        says(&answer, Reach::Yes, "node-not-ready");
        names(
            &answer,
            &[
                "1 of 2 endpoints of Service shop/cart on a node that does not answer",
                "kubectl describe node node-b",
            ],
        );
    }
    let answer = asked([vec![lost("True")], on_node_b(false)].concat());
    assert!(!told(&answer).contains("Node node-b"), "{}", told(&answer));
    assert_eq!(cause(&asked([vec![lost("True")], on_node_b(true)].concat())), "");
}

#[test]
fn what_makes_pods_is_told_where_it_makes_none() {
    let workload = |kind: &str, namespace: &str, app: &str, replicas: Value| {
        json!({"kind": kind, "metadata": {"name": "cart", "namespace": namespace}, "spec": {"replicas": replicas,
            "template": {"metadata": {"labels": {"app": app, "tier": "back"}}}}})
    };
    let no_pods = || json!({"kind": "PodList", "items": []});
    for kind in ["Deployment", "StatefulSet", "ReplicaSet"] {
        for pods in [vec![], vec![no_pods()]] {
            let answer = asked([empty(), vec![workload(kind, "shop", "cart", json!(0))], pods].concat());
            says(&answer, Reach::No, "nothing-selected");
            let lower = kind.to_lowercase();
            names(
                &answer,
                &[
                    &format!("{kind} shop/cart, whose pods Service shop/cart selects, has no replicas"),
                    "spec.replicas",
                    &format!("kubectl scale {lower} -n shop cart --replicas=1"),
                ],
            );
        }
        let answer = asked([empty(), vec![workload(kind, "shop", "cart", json!(3)), no_pods()]].concat());
        names(&answer, &["has none of its 3 replicas"]);
        for other in [
            workload(kind, "prod", "cart", json!(0)),
            workload(kind, "shop", "basket", json!(0)),
            workload("DaemonSet", "shop", "cart", json!(0)),
        ] {
            let answer = asked([empty(), vec![other, no_pods()]].concat());
            assert!(!told(&answer).contains("replicas"), "{}", told(&answer));
        }
    }
    // Labels that nearly fit are told where no Pods say more.
    let near = workload("Deployment", "shop", "carts", json!(2));
    let answer = asked([empty(), vec![near.clone()]].concat());
    says(&answer, Reach::No, "nothing-selected");
    names(
        &answer,
        &[
            "Deployment shop/cart comes nearest: its pods have app=carts",
            "spec.selector[app]: set it to carts",
        ],
    );
    let answer = asked([empty(), vec![near, no_pods()]].concat());
    assert!(!told(&answer).contains("comes nearest"), "{}", told(&answer));
    // An old generation of a Deployment has none on purpose, and pods that are there come first.
    let mut owned = workload("ReplicaSet", "shop", "cart", json!(0));
    owned["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "name": "cart"}]);
    assert!(!told(&asked([empty(), vec![owned]].concat())).contains("replicas"));
    let there = pod("cart-1", Some("10.42.1.5"), &ready());
    let answer = asked(
        [
            empty(),
            vec![workload("Deployment", "shop", "cart", json!(0)), there],
        ]
        .concat(),
    );
    assert_eq!(cause(&answer), "stale-slices");
}

#[test]
fn slices_and_endpoints_that_were_written_beside_the_service_are_found() {
    let by_hand = || cart(&json!({"selector": null}));
    let of = |namespace: &str| {
        let mut slice = slice("cart", &["198.51.100.40"]);
        slice["metadata"]["namespace"] = namespace.into();
        slice
    };
    let endpoints = |name: &str, namespace: &str| {
        json!({"kind": "Endpoints", "metadata": {"name": name, "namespace": namespace},
            "subsets": [{"addresses": [{"ip": "198.51.100.40"}], "ports": [{"name": "http", "port": 8080}]}]})
    };
    let answer = asked(vec![by_hand(), of("default")]);
    says(&answer, Reach::No, "no-selector");
    names(
        &answer,
        &[
            "slice default/cart-x has its name, and is in another namespace",
            "metadata.namespace",
        ],
    );
    let answer = asked(vec![by_hand(), endpoints("cart-external", "shop")]);
    says(&answer, Reach::No, "no-selector");
    names(
        &answer,
        &[
            "the Endpoints object shop/cart-external is of no Service",
            "name it cart",
        ],
    );
    // Those of others are theirs.
    let mut others = service("cart", "10.96.8.11", &Value::Null, &json!([]));
    others["metadata"]["namespace"] = "default".into();
    for more in [
        vec![of("default"), others],
        vec![endpoints("cart-external", "default")],
        vec![
            endpoints("basket", "shop"),
            service("basket", "10.96.8.12", &Value::Null, &json!([])),
        ],
    ] {
        let answer = asked([vec![by_hand()], more].concat());
        says(&answer, Reach::No, "no-selector");
        let words = told(&answer);
        assert!(
            !words.contains("metadata.namespace") && !words.contains("is of no Service"),
            "{words}"
        );
    }
}

#[test]
fn ready_pods_without_the_named_target_port_are_counted() {
    let keeper = "endpointslice.kubernetes.io/managed-by";
    let asked_of = |target: Value, managed_by: Option<&str>| {
        let mut with = slice("cart", &["10.42.1.5"]);
        with["metadata"]["name"] = "cart-with".into();
        let mut without = slice("cart", &["10.42.1.6", "10.42.1.7"]);
        without["ports"] = json!([]);
        for slice in [&mut with, &mut without] {
            if let Some(managed_by) = managed_by {
                slice["metadata"]["labels"][keeper] = managed_by.into();
            }
        }
        let spec = json!({"ports": [{"name": "http", "port": 80, "targetPort": target}]});
        asked(vec![
            cart(&spec),
            with,
            without,
            pod("cart-1", Some("10.42.1.5"), &ready()),
            pod("cart-2", Some("10.42.1.6"), &ready()),
            pod("cart-3", Some("10.42.1.7"), &ready()),
        ])
    };
    let controller = Some("endpointslice-controller.k8s.io");
    let answer = asked_of(json!("web"), controller);
    says(&answer, Reach::Yes, "target-port-name");
    names(
        &answer,
        &[
            "2 of 3 ready pods of Service shop/cart have no port \"web\"",
            "\"http\" 8080/TCP",
            "spec.ports[].targetPort",
        ],
    );
    // A number needs no looking up, and who writes slices by hand may part them as they like.
    for answer in [asked_of(json!(8080), controller), asked_of(json!("web"), None)] {
        assert_eq!(
            (answer.reach, cause(&answer)),
            (Reach::Yes, ""),
            "{}",
            told(&answer)
        );
    }
}

#[test]
fn a_source_range_that_is_an_address_is_told_as_left_out() {
    let answer = |ranges: &Value, from: &str| {
        let spec = json!({"type": "LoadBalancer", "loadBalancerSourceRanges": ranges});
        let edge = service("cart", "10.96.8.10", &spec, &json!([{"ip": "203.0.113.50"}]));
        ask(
            &[node("node-a", "192.0.2.11"), edge, slice("cart", &["10.42.1.5"])],
            from,
            "203.0.113.50:80",
        )
    };
    let bare = json!(["10.0.0.0/8", "198.51.100.7"]);
    let left_out = answer(&bare, "198.51.100.7");
    says(&left_out, Reach::No, "source-range");
    names(
        &left_out,
        &[
            "spec.loadBalancerSourceRanges[1] is \"198.51.100.7\", which is left out",
            "write 198.51.100.7/32",
        ],
    );
    let another = answer(&bare, "198.51.100.8");
    says(&another, Reach::No, "source-range");
    assert!(!told(&another).contains("write 198"), "{}", told(&another));
}

/// The status of a container says more than whether it is ready.
#[test]
fn a_container_that_is_not_ready_is_told_by_what_it_does() {
    let running = || json!({"running": {}});
    let waits = |reason: &str| json!({"waiting": {"reason": reason}});
    let of = |init: Value, app: Value| {
        let mut status = json!({"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]});
        status["initContainerStatuses"] = init;
        status["containerStatuses"] = json!([app]);
        let mut pod = pod("cart-1", Some("10.42.1.5"), &status);
        pod["spec"]["initContainers"] =
            json!([{"name": "wait-for-db"}, {"name": "proxy", "restartPolicy": "Always"}]);
        let mut slice = slice("cart", &["10.42.1.5"]);
        slice["endpoints"][0]["conditions"]["ready"] = false.into();
        let answer = asked(vec![cart(&Value::Null), slice, pod]);
        says(&answer, Reach::No, "not-ready");
        told(&answer)
    };
    let app = |state: Value| json!({"name": "app", "ready": false, "state": state});
    let mut killed = app(waits("CrashLoopBackOff"));
    killed["lastState"] = json!({"terminated": {"reason": "OOMKilled"}});
    let mut starting = app(running());
    starting["started"] = false.into();
    let init = |name: &str, state: Value| json!([{"name": name, "ready": false, "state": state}]);
    for (words, part) in [
        (
            of(init("wait-for-db", running()), app(waits("PodInitializing"))),
            "container wait-for-db of initContainers has not ended yet",
        ),
        (
            of(init("proxy", running()), app(running())),
            "container proxy runs and its readiness probe fails",
        ),
        (
            of(
                init("wait-for-db", waits("ImagePullBackOff")),
                app(waits("PodInitializing")),
            ),
            "container wait-for-db waits: ImagePullBackOff",
        ),
        (
            of(json!([]), killed),
            "container app waits: CrashLoopBackOff (it ended before: OOMKilled)",
        ),
        (of(json!([]), starting), "its startup probe has not succeeded yet"),
        (of(json!([]), app(running())), "its readiness probe fails"),
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    // One that did its part is no trouble.
    let done = of(
        init("wait-for-db", json!({"terminated": {"reason": "Completed"}})),
        app(running()),
    );
    assert!(!done.contains("wait-for-db"), "{done}");
}
