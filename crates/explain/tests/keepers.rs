//! What a controller keeps is not to be changed by hand: advice names what it follows. A running proxy does not know who keeps
//! a slice, nor selectors and pods.

mod support;

use config::KubeProxyConfiguration;
use explain::{Explanation, Parts, Question, assemble, assemble_running, explain};
use serde_json::{Value, json};
use support::small::{cause, node, service, slice, told};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// As the API server has the objects, with this keeper of the slice.
    KeptBy(Option<&'static str>),
    /// As a running proxy has them.
    Running,
}

const CONTROLLER: Seen = Seen::KeptBy(Some("endpointslice-controller.k8s.io"));
const MIRROR: Seen = Seen::KeptBy(Some("endpointslicemirroring-controller.k8s.io"));
const NOBODY: Seen = Seen::KeptBy(None);

fn answer(mut slices: Vec<Value>, selector: &Value, seen: Seen) -> Explanation {
    if let Seen::KeptBy(Some(keeper)) = seen {
        for slice in &mut slices {
            slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] = keeper.into();
        }
    }
    let mut documents = vec![
        node("node-a", "192.0.2.11"),
        service("cart", "10.96.8.10", &json!({"selector": selector}), &json!([])),
    ];
    documents.extend(slices);
    let question = Question {
        from: "pod".parse().expect("a sender"),
        to: "shop/cart".parse().expect("a destination"),
        protocol: None,
        in_interface: None,
    };
    let parts = Parts {
        documents,
        ..Parts::default()
    };
    let world = assemble(parts, &question).expect("good parts");
    if seen != Seen::Running {
        return explain(&world, &question);
    }
    let settings = config::settings(&KubeProxyConfiguration::defaults(), &world.facts);
    let running = assemble_running(world.snapshot, world.facts, &settings, "iptables");
    explain(&running, &question)
}

/// What is to be done at slices, and everything that is to be done.
fn advice(answer: &Explanation) -> (Vec<String>, String) {
    let all = answer.findings.iter().flat_map(|finding| &finding.advice);
    let of_slices = all.clone().filter(|advice| {
        advice
            .object
            .as_ref()
            .is_some_and(|object| object.kind == "EndpointSlice")
    });
    let words = all.map(|advice| advice.action.clone()).collect::<Vec<_>>();
    (
        of_slices.map(|advice| advice.action.clone()).collect(),
        words.join("; "),
    )
}

fn broken() -> Vec<(&'static str, Vec<Value>)> {
    let good = || slice("cart", &["10.42.1.5"]);
    let with = |pointer: &str, value: Value| {
        let mut slice = good();
        *slice.pointer_mut(pointer).expect("a field") = value;
        vec![slice]
    };
    vec![
        ("port-name-mismatch", with("/ports/0/name", "web".into())),
        ("port-protocol-mismatch", with("/ports/0/protocol", "UDP".into())),
        ("not-ready", with("/endpoints/0/conditions/ready", false.into())),
        (
            "bad-addresses",
            with("/endpoints/0/addresses/0", "10.42.1.x".into()),
        ),
        ("empty-slices", vec![slice("cart", &[])]),
        ("no-slices", vec![]),
    ]
}

#[test]
fn a_slice_is_to_be_changed_by_hand_where_nobody_keeps_it_alone() {
    for (wanted, slices) in broken() {
        for selector in [json!({"app": "cart"}), json!({})] {
            let kept = answer(slices.clone(), &selector, CONTROLLER);
            assert_eq!(advice(&kept).0, [""; 0], "{wanted}: {}", told(&kept));
            assert_ne!(
                kept.findings
                    .iter()
                    .map(|finding| finding.advice.len())
                    .sum::<usize>(),
                0,
                "{wanted}"
            );
        }
    }
    for (wanted, slices) in broken().into_iter().filter(|(_, slices)| !slices.is_empty()) {
        let by_hand = answer(slices.clone(), &json!({}), NOBODY);
        assert_eq!(cause(&by_hand), wanted);
        assert_eq!(advice(&by_hand).0.len(), 1, "{wanted}: {}", told(&by_hand));
        let mirrored = answer(slices, &json!({}), MIRROR);
        assert_eq!(advice(&mirrored).0, [""; 0], "{wanted}: {}", told(&mirrored));
        let all = advice(&mirrored).1;
        assert!(
            all.contains("kubectl edit endpoints -n shop cart"),
            "{wanted}: {all}"
        );
    }
}

#[test]
fn a_running_proxy_says_what_to_look_at_and_claims_nothing_of_selectors() {
    for (wanted, slices) in broken() {
        let answer = answer(slices, &json!({"app": "cart"}), Seen::Running);
        // Notes of what was left out as objects were read are not kept there.
        let wanted = if wanted == "bad-addresses" {
            "empty-slices"
        } else {
            wanted
        };
        assert_eq!(cause(&answer), wanted, "{}", told(&answer));
        let (of_slices, all) = advice(&answer);
        assert!(
            of_slices
                .iter()
                .all(|action| action.starts_with("only if no controller keeps it")),
            "{of_slices:?}"
        );
        assert!(!told(&answer).contains("has no selector"), "{}", told(&answer));
        let looks = ["kubectl get", "kube-controller-manager", "set it to"];
        assert!(looks.iter().any(|look| all.contains(look)), "{wanted}: {all}");
    }
}
