//! Random changes on the live kernel: what the daemon arrives at step by step is what `render` makes from scratch.

use kernel::Backend;
use lab::Lab;
use live::cluster::{NODE, up};
use live::daemon::{Setup, Want, binary};
use live::manifests::{Manifests, node, service, slice};
use live::random::Random;
use model::{Family, PerFamily};
use serde_json::{Value, json};
use std::process::Command;

/// Sequences, each of some changes at once: the daemon is given no time between those of one sequence.
const SEQUENCES: usize = 40;
const CHANGES: u64 = 5;
const SERVICES: u64 = 8;

fn random_service(random: &mut Random, number: u64) -> Value {
    let name = format!("svc-{number}");
    let mut object = service(&name, &format!("10.1.7.{}", number + 1), 80, 8080);
    let spec = &mut object["spec"];
    spec["type"] = json!(random.one_of(&["ClusterIP", "NodePort", "LoadBalancer"]));
    spec["internalTrafficPolicy"] = json!(random.one_of(&["Cluster", "Cluster", "Local"]));
    if spec["type"] != "ClusterIP" {
        spec["externalTrafficPolicy"] = json!(random.one_of(&["Cluster", "Local"]));
        spec["ports"][0]["nodePort"] = json!(30_100 + number);
    }
    if random.below(3) == 0 {
        spec["sessionAffinity"] = json!("ClientIP");
    }
    if random.below(3) == 0 {
        spec["externalIPs"] = json!([format!("203.0.113.{}", number + 1)]);
    }
    if spec["type"] == "LoadBalancer" {
        if random.below(2) == 0 {
            spec["loadBalancerSourceRanges"] = json!(["192.168.50.0/24", "198.51.100.0/24"]);
        }
        object["status"] =
            json!({"loadBalancer": {"ingress": [{"ip": format!("198.51.100.{}", number + 1)}]}});
    }
    object
}

fn random_slice(random: &mut Random, number: u64) -> Value {
    let count = random.below(5);
    let addresses: Vec<String> = (0..count)
        .map(|_| format!("10.244.1.{}", 10 + random.below(20)))
        .collect();
    let endpoints: Vec<(&str, &str)> = addresses
        .iter()
        .map(|address| (address.as_str(), random.one_of(&[NODE, "node-b"])))
        .collect();
    let mut object = slice(&format!("svc-{number}"), 8080, &endpoints);
    for endpoint in object["endpoints"].as_array_mut().expect("a slice has endpoints") {
        endpoint["conditions"] = match random.one_of(&[0, 0, 0, 1, 2]) {
            1 => json!({"ready": false, "serving": true, "terminating": true}),
            2 => json!({"ready": false, "serving": false}),
            _ => json!({"ready": true}),
        };
    }
    object
}

fn change(random: &mut Random, manifests: &Manifests) {
    let number = random.below(SERVICES);
    let file = format!("svc-{number}.json");
    if random.below(6) == 0 && manifests.file(&file).exists() {
        manifests.remove(&file);
    } else {
        manifests.put(
            &file,
            &[random_service(random, number), random_slice(random, number)],
        );
    }
}

/// The rules of one family, made from scratch.
fn rendered(manifests: &Manifests, family: &str) -> String {
    let output = Command::new(binary())
        .args(["render", "--manifests"])
        .arg(manifests.path())
        .args(["--node", NODE, "--node-address", "192.168.50.238/24"])
        .args(["--cluster-cidr", "10.244.0.0/16", "--family", family])
        .output()
        .expect("the binary can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("rules are text")
}

fn all_equal(lab: &Lab, manifests: &Manifests, log: &dyn Fn() -> String) {
    let saved = PerFamily {
        v4: rendered(manifests, "ipv4"),
        v6: rendered(manifests, "ipv6"),
    };
    let want = Want {
        saved,
        backend: Backend::NfTables,
    };
    want.reached(lab, NODE, &Family::ALL, log);
}

#[test]
fn random_changes_on_the_live_kernel_end_in_the_rules_made_from_scratch() {
    if !lab::live::available(&["iptables-nft", "ip6tables-nft"]) {
        return;
    }
    let (lab, manifests) = (up("sequence"), Manifests::new());
    manifests.put("node.json", &[node(NODE, &["192.168.50.238"])]);
    let daemon = Setup::new(&lab, NODE, &manifests).start();
    let mut random = Random::new(20);
    for sequence in 0..SEQUENCES {
        for _ in 0..CHANGES {
            change(&mut random, &manifests);
        }
        all_equal(&lab, &manifests, &|| {
            format!("sequence {sequence}: {}", daemon.log())
        });
    }
}
