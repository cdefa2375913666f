use super::*;
use model::object::decode;
use serde_json::json;

/// Seconds, on both clocks.
fn at(seconds: u64) -> Now {
    Now {
        running: Duration::from_secs(seconds),
        since_1970: Duration::from_secs(1_000_000 + seconds),
    }
}

fn one(document: Value) -> Object {
    decode(document).objects.remove(0)
}

fn service(name: &str, port: u16) -> Object {
    one(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "shop", "name": name},
        "spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "ports": [{"port": port}]},
    }))
}

fn slice(name: &str, service: &str, endpoints: &[(&str, bool)]) -> Object {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(ip, ready)| json!({"addresses": [ip], "conditions": {"ready": ready, "serving": ready}}))
        .collect();
    one(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"port": 8080}], "endpoints": endpoints,
    }))
}

fn name(of: &str) -> ServiceName {
    ServiceName::new("shop", of)
}

/// Changes of an IPv4 host, with what is known to them.
struct Told {
    changes: Changes,
    snapshot: Snapshot,
}

impl Told {
    fn new(most: usize) -> Told {
        let mut changes = Changes::new(most);
        changes.serves(Family::V4);
        Told {
            changes,
            snapshot: Snapshot::new(),
        }
    }

    fn hear(&mut self, change: Change, seconds: u64) {
        self.changes.heard(&change, &self.snapshot, at(seconds));
        self.snapshot.apply(change);
    }

    fn apply(&mut self, object: Object, seconds: u64) {
        self.hear(Change::Apply(object), seconds);
    }

    /// All entries, the oldest first.
    fn rows(&self) -> Vec<Value> {
        let asked = AboutChanges {
            words: Vec::new(),
            limit: usize::MAX,
        };
        let answer: Value = serde_json::from_str(&self.changes.answer(&asked).body).expect("JSON");
        let mut rows = answer["changes"].as_array().expect("a list").clone();
        rows.reverse();
        rows
    }

    fn what(&self) -> Vec<String> {
        let rows = self.rows();
        rows.iter()
            .map(|row| row["what"].as_str().expect("text").to_owned())
            .collect()
    }
}

#[test]
fn what_changed_is_told_in_the_words_of_objects() {
    let mut told = Told::new(100);
    told.apply(service("cart", 80), 1);
    told.apply(service("cart", 81), 2);
    told.apply(
        slice("cart-x", "cart", &[("10.1.0.1", true), ("10.1.0.2", false)]),
        3,
    );
    told.apply(
        slice("cart-x", "cart", &[("10.1.0.2", true), ("10.1.0.3", true)]),
        4,
    );
    // The same again is no change.
    told.apply(
        slice("cart-x", "cart", &[("10.1.0.2", true), ("10.1.0.3", true)]),
        5,
    );
    told.hear(Change::Delete(ObjectRef::Service(name("cart"))), 6);
    assert_eq!(
        told.what(),
        [
            "came: ClusterIP 10.96.0.1, 80/TCP",
            "ports 80/TCP → 81/TCP",
            "came: 2 endpoints, 1 ready",
            "10.1.0.2 not ready → ready; + 10.1.0.3 ready; − 10.1.0.1",
            "went",
        ]
    );
}

#[test]
fn a_change_is_in_the_kernel_when_a_step_is_that_began_after_it_was_heard() {
    let mut told = Told::new(100);
    told.apply(service("cart", 80), 10);
    told.changes.step(Family::V4, at(12));
    // This one comes while the step is under way.
    told.apply(service("cart", 81), 13);
    told.changes.written(Family::V4, &[name("cart")], at(14));
    let rows = told.rows();
    assert_eq!(
        (&rows[0]["kernel"], &rows[0]["took_ms"]),
        (&json!("written"), &json!(4000.0))
    );
    assert_eq!(rows[0]["kernel_ms"], json!(1_000_014_000_u64));
    assert_eq!(
        (&rows[1]["kernel"], &rows[1]["took_ms"]),
        (&json!("waits"), &Value::Null)
    );
    told.changes.step(Family::V4, at(15));
    told.changes.written(Family::V4, &[name("cart")], at(16));
    assert_eq!(told.rows()[1]["took_ms"], json!(3000.0));
}

#[test]
fn what_the_kernel_refuses_waits_with_the_reason_until_it_is_taken() {
    let mut told = Told::new(100);
    told.apply(service("cart", 80), 1);
    told.apply(service("pay", 80), 1);
    told.changes.step(Family::V4, at(2));
    told.changes
        .failed(Family::V4, Some(&name("cart")), "no such target");
    // Nothing is queued, and the refused one is not taken for done.
    told.changes.idle(Family::V4, at(3));
    let rows = told.rows();
    assert_eq!(
        (&rows[0]["kernel"], &rows[0]["why"]),
        (&json!("waits"), &json!("no such target"))
    );
    assert_eq!(rows[1]["kernel"], json!("as-it-was"));
    told.changes.step(Family::V4, at(4));
    told.changes.written(Family::V4, &[name("cart")], at(5));
    let rows = told.rows();
    assert_eq!(
        (&rows[0]["kernel"], &rows[0]["why"]),
        (&json!("written"), &Value::Null)
    );
}

#[test]
fn what_is_kept_is_bounded_and_so_is_what_waits() {
    let mut told = Told::new(10);
    for number in 0..500 {
        told.apply(service(&format!("s{number}"), 80), number);
    }
    assert_eq!(told.rows().len(), 10);
    let waiting = told.changes.families.v4.as_ref().expect("served");
    assert_eq!(waiting.of.len(), 10);
    // The numbers of those that went are not taken for others.
    told.changes.step(Family::V4, at(600));
    told.changes
        .written(Family::V4, &[name("s0"), name("s499")], at(601));
    let written: Vec<bool> = told.rows().iter().map(|row| row["kernel"] == "written").collect();
    assert_eq!(written.iter().filter(|is| **is).count(), 1);
    assert!(written[9]);
}

#[test]
fn a_list_that_comes_again_tells_what_is_other_and_long_texts_are_cut() {
    let mut told = Told::new(1000);
    let list = |port| Change::ReplaceAll {
        kind: Kind::Service,
        objects: vec![service("cart", 80), service("pay", port)],
    };
    told.hear(list(80), 1);
    told.hear(list(81), 2);
    assert_eq!(told.what(), ["listed: 2", "ports 80/TCP → 81/TCP", "listed: 2"]);
    told.changes.damaged(Family::V4, &"é".repeat(5_000), at(3));
    let what = told.what().pop().expect("one");
    assert!(what.len() < LONGEST + 8 && what.ends_with('…'), "{}", what.len());
}

#[test]
fn nothing_waits_for_a_family_that_is_not_served_or_that_a_service_has_not() {
    let mut told = Told::new(10);
    told.changes.serves(Family::V6);
    told.apply(service("cart", 80), 1);
    told.changes.step(Family::V4, at(2));
    told.changes.written(Family::V4, &[name("cart")], at(3));
    assert_eq!(told.rows()[0]["kernel"], json!("written"));
}
