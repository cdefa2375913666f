use super::*;
use cluster::SourceEvent;
use engine::{Cause, Failure};
use iptables::diff::harm::Harm;
use model::note::Subject;
use model::object::{Object, ObjectRef};
use model::snapshot::Change;
use model::{Family, ServiceName};
use model::{Note, NoteKind, Severity};
use std::time::Duration;

fn note(service: &str, value: &str, severity: Severity) -> Note {
    Note {
        severity,
        subject: Subject::service(&ServiceName::new("ns", service)),
        kind: NoteKind::BadField {
            field: "spec.externalIPs[0]".to_owned(),
            value: value.to_owned(),
            reason: "no IP address".to_owned(),
        },
    }
}

fn said(facts: &[Fact]) -> Vec<(&'static str, String)> {
    facts
        .iter()
        .map(|fact| (fact.reason, fact.note.clone()))
        .collect()
}

fn service(name: &str) -> SourceEvent {
    let value = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ns", "name": name},
        "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]},
    });
    let raw = serde_json::from_value(value).expect("a Service");
    let object = model::object::convert_service(&raw)
        .object
        .expect("it has a name");
    assert!(matches!(object, Object::Service(_)));
    SourceEvent::Change(Change::Apply(object))
}

#[test]
fn a_bad_object_is_told_of_once_however_often_it_comes() {
    let mut telling = Telling::new(node());
    let bad = SourceEvent::Notes(vec![note("web", "x", Severity::Warning)]);
    let first = telling.source(&bad);
    assert_eq!(
        said(&first),
        [(
            "InvalidService",
            "Service ns/web: spec.externalIPs[0]: \"x\" left out: no IP address".to_owned()
        )]
    );
    for _ in 0..3 {
        assert_eq!(telling.source(&service("web")), []);
        assert_eq!(telling.source(&bad), []);
    }
    // Something else is wrong with it besides.
    let worse = vec![
        note("web", "x", Severity::Warning),
        note("web", "y", Severity::Error),
    ];
    assert_eq!(telling.source(&SourceEvent::Notes(worse)).len(), 1);
}

#[test]
fn an_object_that_was_mended_and_broken_again_is_told_of_again() {
    let mut telling = Telling::new(node());
    let bad = SourceEvent::Notes(vec![note("web", "x", Severity::Warning)]);
    assert_eq!(telling.source(&bad).len(), 1);
    assert_eq!(telling.source(&service("web")), []);
    // It comes without a note.
    assert_eq!(telling.source(&service("web")), []);
    assert_eq!(telling.source(&bad).len(), 1);
    let gone = ObjectRef::Service(ServiceName::new("ns", "web"));
    telling.source(&SourceEvent::Change(Change::Delete(gone)));
    assert_eq!(telling.source(&bad).len(), 1);
}

#[test]
fn what_is_merely_worth_knowing_is_no_event() {
    let mut telling = Telling::new(node());
    let info = SourceEvent::Notes(vec![note("web", "x", Severity::Info)]);
    assert_eq!(telling.source(&info), []);
}

#[test]
fn notes_of_the_engine_are_told_of_when_they_begin_to_hold() {
    let mut telling = Telling::new(node());
    let noted = |notes| Report::Noted {
        service: ServiceName::new("ns", "web"),
        notes,
    };
    let claimed = |frontend: &str| Note {
        kind: NoteKind::Claimed {
            frontend: frontend.to_owned(),
            winner: ServiceName::new("ns", "other"),
        },
        ..note("web", "", Severity::Warning)
    };
    let (one, two) = (claimed("203.0.113.9:80/TCP"), claimed("node port 30080/TCP"));
    let first = telling.report(&noted(vec![one.clone()]));
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].reason, "AddressClaimed");
    let second = telling.report(&noted(vec![one, two.clone()]));
    assert_eq!(second.len(), 1);
    assert!(second[0].note.contains("node port 30080"), "{second:?}");
    assert_eq!(telling.report(&noted(vec![two.clone()])), []);
    assert_eq!(telling.report(&noted(Vec::new())), []);
    assert_eq!(telling.report(&noted(vec![two])).len(), 1);
}

#[test]
fn memory_of_what_was_said_is_bounded() {
    let mut telling = Telling::new(node());
    let mut told = 0;
    for count in 0..10_000 {
        let bad = note(&format!("web-{count}"), "x", Severity::Error);
        told += telling.source(&SourceEvent::Notes(vec![bad])).len();
    }
    assert_eq!(told, 4096);
}

#[test]
fn a_service_that_the_kernel_refuses_is_named_with_the_kernels_words() {
    let mut telling = Telling::new(node());
    let report = |about| Report::Failed {
        family: Family::V6,
        failure: Failure {
            cause: Cause::Content,
            text: "ip6tables-restore: line 7 failed".to_owned(),
        },
        in_a_row: 1,
        about,
        retry_at: Duration::ZERO,
    };
    let facts = telling.report(&report(About::Service(ServiceName::new("ns", "web"))));
    assert_eq!(facts.len(), 1);
    assert_eq!(facts[0].reason, "RulesRefused");
    assert!(
        facts[0].note.contains("IPv6") && facts[0].note.contains("line 7 failed"),
        "{facts:?}"
    );
    assert_eq!(telling.report(&report(About::Step)), []);
}

#[test]
fn who_changed_our_rules_and_what_was_missing_is_said_of_the_node() {
    let mut telling = Telling::new(node());
    let report = |by: &str, backing_off| Report::Damaged {
        family: Family::V4,
        services: 1,
        what: Harm {
            named: vec!["nat chain KUBE-SVC-X of ns/web missing".to_owned()],
            more: 0,
        },
        by: Some(by.into()),
        backing_off,
    };
    let one = telling.report(&report("iptables (pid 11)", None));
    assert_eq!(one[0].reason, "RulesRepaired");
    assert_eq!(one[0].regarding.kind, "Node");
    for word in ["iptables (pid 11)", "KUBE-SVC-X", "IPv4"] {
        assert!(one[0].note.contains(word), "{one:?}");
    }
    // The next process of the same name does the same: one more of a series.
    let other = telling.report(&report("iptables (pid 12)", None));
    assert_eq!(one[0].distinct, other[0].distinct);
    let rival = telling.report(&report("firewalld (pid 13)", Some(Duration::from_secs(8))));
    assert_eq!(rival[0].reason, "RulesContested");
    assert!(
        rival[0].note.contains("firewalld") && rival[0].note.contains("8s"),
        "{rival:?}"
    );
}

#[test]
fn a_port_that_must_open_and_does_not_is_said_in_upstreams_words() {
    let end = |server| crate::ProxyError::Listen {
        server,
        address: "0.0.0.0:10256".to_owned(),
        error: std::io::Error::from(std::io::ErrorKind::AddrInUse),
    };
    let fact = Fact::of_end(&node(), &end("healthz")).expect("an Event");
    assert_eq!(fact.reason, "FailedToStartProxierHealthcheck");
    assert_eq!(fact.note, "healthz server failed: address in use");
    let fact = Fact::of_end(&node(), &end("metrics")).expect("an Event");
    assert_eq!(fact.reason, "FailedToStartMetricServer");
    assert_eq!(fact.note, "address in use");
    let other = crate::ProxyError::Mode("ipvs".to_owned());
    assert_eq!(Fact::of_end(&node(), &other), None);
}

fn node() -> Arc<str> {
    "node-a".into()
}
