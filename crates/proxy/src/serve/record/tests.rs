use super::*;
use engine::{Failure, StepSize};
use iptables::ast::ChainName;
use iptables::plan::{Step, TableWrite};
use model::object::{Eligibility, Node, ObjectRef, SliceName};

fn record() -> Record {
    let mut record = Record::new(Mode::Iptables, "n1".into(), Duration::from_mins(1));
    record.health.families.v4 = Some(FamilyHealth::default());
    record
}

fn at(seconds: u64) -> Moment {
    Moment {
        since_start: Duration::from_secs(seconds),
        wall: 1000.0 + as_f64(seconds),
    }
}

fn step(rules: usize) -> Effect {
    let chain = ChainName::new("KUBE-SVC-A").expect("a name");
    let rule = iptables::ast::Rule::new(iptables::ast::Target::Return);
    let write = TableWrite {
        chains: BTreeMap::from([(chain, vec![rule; rules])]),
        ..TableWrite::default()
    };
    Effect::Commit(Step {
        write: BTreeMap::from([(TableName::Nat, write)]),
        ..Step::default()
    })
}

fn in_sync(run: RunKind) -> Report {
    Report::InSync {
        family: Family::V4,
        since: Duration::ZERO,
        run,
    }
}

#[test]
fn a_run_of_two_steps_is_one_sync_of_the_rules_of_both() {
    let mut record = record();
    record.began(Family::V4, &step(3), at(10));
    record.answered(Family::V4);
    record.began(Family::V4, &step(4), at(11));
    record.answered(Family::V4);
    record.report(&in_sync(RunKind::Changes), at(12));
    let text = record.metrics.text();
    assert!(
        text.contains("kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 2\n"),
        "{text}"
    );
    assert!(
        text.contains("kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n")
    );
    assert!(!text.contains("kubeproxy_sync_full_proxy_rules_duration_seconds_count"));
    assert_eq!(
        record.metrics.number(name::RULES_LAST, &["IPv4", "nat"]),
        Some(7.0)
    );
    assert_eq!(
        record.metrics.number(name::RULES_LAST, &["IPv4", "filter"]),
        Some(0.0)
    );
    assert_eq!(record.metrics.number(name::LAST_SYNC, &["IPv4"]), Some(1012.0));
}

#[test]
fn a_failed_partial_step_counts_twice_and_ends_its_sync() {
    let mut record = record();
    record.began(Family::V4, &step(3), at(10));
    let failed = Report::Failed {
        family: Family::V4,
        failure: Failure {
            cause: Cause::Host,
            text: "busy".into(),
        },
        in_a_row: 1,
        about: About::Step,
        retry_at: Duration::ZERO,
    };
    record.report(&failed, at(14));
    for metric in [name::RESTORE_FAILURES, name::PARTIAL_FAILURES] {
        assert_eq!(record.metrics.number(metric, &["IPv4"]), Some(1.0));
    }
    assert_eq!(
        record.metrics.number(own::FAILURES, &["step", "host", "IPv4"]),
        Some(1.0)
    );
    assert!(
        record
            .metrics
            .text()
            .contains("kubeproxy_sync_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 4\n")
    );
    assert_eq!(record.metrics.number(name::LAST_SYNC, &["IPv4"]), None);
    record.began(Family::V4, &step(1), at(20));
    record.report(&in_sync(RunKind::Changes), at(21));
    assert_eq!(
        record.metrics.number(name::RULES_LAST, &["IPv4", "nat"]),
        Some(1.0)
    );
}

#[test]
fn a_failed_full_step_is_no_partial_failure() {
    let mut record = record();
    let everything = Effect::Observe {
        reading: Reading::Everything,
        unless: None,
    };
    record.began(Family::V4, &everything, at(1));
    record.began(Family::V4, &step(1), at(2));
    let failed = Report::Failed {
        family: Family::V4,
        failure: Failure {
            cause: Cause::Content,
            text: "no".into(),
        },
        in_a_row: 1,
        about: About::Step,
        retry_at: Duration::ZERO,
    };
    record.report(&failed, at(3));
    assert_eq!(
        record.metrics.number(name::RESTORE_FAILURES, &["IPv4"]),
        Some(1.0)
    );
    assert_eq!(record.metrics.number(name::PARTIAL_FAILURES, &["IPv4"]), None);
}

#[test]
fn a_step_that_goes_through_is_progress_and_an_answer_ends_the_work() {
    let mut record = record();
    record.began(Family::V4, &step(1), at(5));
    assert_eq!(
        record.health.families.v4.unwrap().working_since,
        Some(Duration::from_secs(5))
    );
    record.answered(Family::V4);
    let applied = Report::Applied {
        family: Family::V4,
        services: Vec::new(),
        size: StepSize::default(),
    };
    record.report(&applied, at(9));
    let state = record.health.families.v4.unwrap();
    assert_eq!(
        (state.working_since, state.progress),
        (None, Duration::from_secs(9))
    );
}

fn slice_gone() -> SourceEvent {
    let name = SliceName::new("ns", "a-1");
    SourceEvent::Change(Change::Delete(ObjectRef::Slice(name)))
}

#[test]
fn changes_are_pending_until_a_step_is_made_of_them() {
    let mut record = record();
    record.health.families.v6 = Some(FamilyHealth::default());
    let service = ObjectRef::Service(ServiceName::new("ns", "a"));
    record.source(&slice_gone(), at(3));
    record.source(&slice_gone(), at(4));
    record.source(&SourceEvent::Change(Change::Delete(service)), at(4));
    assert_eq!(record.metrics.number(name::ENDPOINTS_PENDING, &[]), Some(2.0));
    assert_eq!(record.metrics.number(name::SERVICES_PENDING, &[]), Some(1.0));
    assert_eq!(record.metrics.number(name::LAST_QUEUED, &["IPv6"]), Some(1004.0));
    record.began(Family::V4, &step(1), at(5));
    assert_eq!(record.metrics.number(name::ENDPOINTS_PENDING, &[]), Some(0.0));
    assert_eq!(record.metrics.number(name::SERVICES_PENDING, &[]), Some(0.0));
    assert_eq!(record.metrics.number(name::ENDPOINTS_TOTAL, &[]), Some(2.0));
    // Twice in dual stack, as upstream has it.
    assert_eq!(record.metrics.number(name::SERVICES_TOTAL, &[]), Some(2.0));
}

#[test]
fn the_last_seen_node_counts_and_others_do_not() {
    let mut record = record();
    let node = |name: &str, eligibility| {
        SourceEvent::Change(Change::Apply(Object::Node(Node {
            name: name.into(),
            zone: None,
            addresses: Box::default(),
            pod_cidrs: Box::default(),
            eligibility,
        })))
    };
    record.source(&node("n2", Eligibility::Eligible), at(1));
    assert_eq!(record.health.node, None);
    record.source(&node("n1", Eligibility::ToBeDeleted), at(1));
    record.source(
        &SourceEvent::Change(Change::Delete(ObjectRef::Node("n1".into()))),
        at(2),
    );
    assert_eq!(record.health.node, Some(Eligibility::ToBeDeleted));
}

#[test]
fn the_age_of_a_watch_goes_back_with_a_bookmark_and_not_with_a_failure() {
    let mut record = record();
    let delivery = cluster::Delivery::StreamingList;
    let says = |record: &mut Record, health, seconds| {
        record.source(&SourceEvent::Health(Kind::Slice, health), at(seconds));
    };
    says(&mut record, cluster::Health::Connected { delivery }, 10);
    says(&mut record, cluster::Health::Bookmark, 70);
    let failing = cluster::Health::Failing {
        error: "refused".into(),
        failures: 1,
        since: Duration::ZERO,
    };
    says(&mut record, failing, 75);
    record.ages(at(100));
    assert_eq!(
        record.metrics.number(own::WATCH_AGE, &["EndpointSlice"]),
        Some(30.0)
    );
    assert_eq!(
        record.metrics.number(own::WATCH_FAILURES, &["EndpointSlice"]),
        Some(1.0)
    );
    assert_eq!(
        record.health.watches[&Kind::Slice].failing.as_deref(),
        Some("refused")
    );
}

#[test]
fn notes_are_counted_while_they_hold() {
    let mut record = record();
    let service = ServiceName::new("ns", "a");
    let note = Note {
        severity: Severity::Warning,
        subject: model::note::Subject::service(&service),
        kind: NoteKind::DuplicateEndpoint {
            endpoint: "192.0.2.1:80".into(),
        },
    };
    let noted = |notes| Report::Noted {
        service: service.clone(),
        notes,
    };
    record.report(&noted(vec![note.clone(), note.clone()]), at(1));
    assert_eq!(
        record
            .metrics
            .number(own::NOTES, &["DuplicateEndpoint", "warning"]),
        Some(2.0)
    );
    record.report(&noted(vec![note]), at(2));
    assert_eq!(
        record
            .metrics
            .number(own::NOTES, &["DuplicateEndpoint", "warning"]),
        Some(1.0)
    );
    record.report(&noted(Vec::new()), at(3));
    assert_eq!(
        record
            .metrics
            .number(own::NOTES, &["DuplicateEndpoint", "warning"]),
        Some(0.0)
    );
}

#[test]
fn a_sweep_that_deleted_nothing_makes_its_series_appear() {
    let mut record = record();
    record.reconciled(Family::V6, Duration::from_millis(3), 0);
    assert_eq!(
        record.metrics.number(name::RECONCILE_DELETED, &["IPv6"]),
        Some(0.0)
    );
    assert!(
        record.metrics.text().contains(
            "conntrack_reconciler_sync_duration_seconds_bucket{ip_family=\"IPv6\",le=\"0.004\"} 1\n"
        )
    );
}

/// An engine of IPv4 alone whose lists have come.
fn engine() -> Engine {
    let capabilities = iptables::build::Capabilities {
        masquerade_ports: iptables::ast::Ports::Kept,
        nfacct: iptables::build::Nfacct::Absent,
    };
    let host = engine::Host {
        families: PerFamily {
            v4: Some(capabilities),
            v6: None,
        },
        invalid: iptables::build::InvalidPackets::Passed,
    };
    let config = engine::EngineConfig::default();
    let mut engine = Engine::new(
        model::Settings::default(),
        model::NodeFacts::default(),
        &host,
        &config,
    );
    for kind in [Kind::Service, Kind::Slice] {
        engine.handle(engine::Event::Listed(kind), Duration::ZERO);
    }
    engine
}

/// A service whose port is another each time.
fn changed_service(port: u64) -> Change {
    let document = serde_json::json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ports": [{"port": port, "protocol": "TCP"}]},
    });
    let object = model::object::decode(document).objects.into_iter().next();
    Change::Apply(object.expect("a service"))
}

/// All that the engine does at one moment, every step answered by `answer`.
fn turn(engine: &mut Engine, record: &mut Record, now: Moment, mut answer: impl FnMut() -> engine::Answer) {
    while let Some(effect) = engine.next(Family::V4, now.since_start) {
        record.began(Family::V4, &effect, now);
        let answer = match effect {
            Effect::Commit(_) => answer(),
            Effect::Observe { .. } => engine::Answer::Observed {
                generation: None,
                observation: Box::new(iptables::diff::observe::Observation::new(Family::V4)),
            },
            Effect::NftCommit(_) | Effect::NftObserve(_) => panic!("of nftables mode"),
        };
        record.answered(Family::V4);
        engine.handle(engine::Event::Answer(Family::V4, answer), now.since_start);
    }
    for report in engine.take_reports() {
        record.report(&report, now);
    }
    record.look(engine, now.since_start, now);
}

/// Runs the engine for some seconds, one event each, every step answered by `answer`; says what both pages say at the end.
fn run_for(seconds: u64, mut answer: impl FnMut() -> engine::Answer) -> (bool, bool) {
    let mut engine = engine();
    let mut record = record();
    record.health.families.v4 = None;
    record.health.node = Some(Eligibility::Eligible);
    for second in 0..=seconds {
        let now = at(second);
        engine.handle(
            engine::Event::Changed(changed_service(second + 1)),
            now.since_start,
        );
        turn(&mut engine, &mut record, now, &mut answer);
    }
    let ask = |question| record.health.ask(question, Duration::from_secs(seconds)).is_ok();
    (
        ask(super::super::health::Question::Healthz),
        ask(super::super::health::Question::Livez),
    )
}

fn refuse(cause: Cause) -> engine::Answer {
    engine::Answer::CommitFailed(Failure {
        cause,
        text: "no".into(),
    })
}

#[test]
fn restores_that_always_fail_are_unhealthy_under_steady_events() {
    assert_eq!(run_for(70, || refuse(Cause::Host)), (false, false));
    let (healthz, _) = run_for(70, || refuse(Cause::Content));
    assert!(!healthz);
}

#[test]
fn restores_that_always_fail_are_unhealthy_before_the_patience_is_over() {
    assert_eq!(run_for(20, || refuse(Cause::Host)), (false, false));
}

#[test]
fn two_failures_and_then_success_are_healthy() {
    let mut failures = 2;
    let answer = || {
        if failures > 0 {
            failures -= 1;
            return refuse(Cause::Host);
        }
        engine::Answer::Committed
    };
    assert_eq!(run_for(70, answer), (true, true));
}

/// A slice of service `a` with that many endpoints, that changed at this second of [`at`].
fn triggered(second: u64, endpoints: u8) -> Change {
    let time = format!("1970-01-01T00:16:40.{second}Z");
    let addresses = (1..=endpoints).map(|n| serde_json::json!({"addresses": [format!("10.244.0.{n}")]}));
    let document = serde_json::json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "a-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "a"},
                     "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": time}},
        "ports": [{"name": "", "port": 80, "protocol": "TCP"}],
        "endpoints": addresses.collect::<Vec<_>>(),
    });
    let object = model::object::decode(document).objects.into_iter().next();
    Change::Apply(object.expect("a slice"))
}

#[test]
fn a_change_counts_its_latency_when_the_kernel_has_it_and_the_rules_are_counted() {
    let (mut engine, mut record) = (engine(), record());
    record.programming = Programming::since(Duration::from_secs(1000));
    record.programming.serves(Family::V4);
    let give = |record: &mut Record, engine: &mut Engine, change: Change, now: Moment| {
        record.source(&SourceEvent::Change(change.clone()), now);
        record.programming.given(&change, now.since_start);
        engine.handle(engine::Event::Changed(change), now.since_start);
    };
    let latencies = |record: &Record| {
        let text = record.metrics.text();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("kubeproxy_network_programming_duration_seconds_count{ip_family=\"IPv4\"} ")
        });
        line.map_or(0, |count| count.parse().expect("a count"))
    };
    let rules = |record: &Record| record.metrics.number(name::RULES_TOTAL, &["IPv4", "nat"]);

    give(&mut record, &mut engine, changed_service(80), at(1));
    turn(&mut engine, &mut record, at(1), || engine::Answer::Committed);
    let none = rules(&record).expect("a count");
    give(&mut record, &mut engine, triggered(1, 1), at(3));
    turn(&mut engine, &mut record, at(3), || refuse(Cause::Host));
    assert_eq!((latencies(&record), rules(&record)), (0, Some(none)));
    turn(&mut engine, &mut record, at(60), || engine::Answer::Committed);
    assert_eq!(latencies(&record), 1, "{}", record.metrics.text());
    // A dispatch rule, one in the service's chain (nothing tells pods from others here), two in the endpoint's.
    assert_eq!(rules(&record), Some(none + 4.0));

    // The same endpoints with a later time: nothing is to be written, and nothing stays pending.
    give(&mut record, &mut engine, triggered(2, 1), at(70));
    assert_eq!(record.metrics.number(name::ENDPOINTS_PENDING, &[]), Some(1.0));
    turn(&mut engine, &mut record, at(70), || {
        panic!("there is nothing to write")
    });
    assert_eq!(record.metrics.number(name::ENDPOINTS_PENDING, &[]), Some(0.0));
    assert_eq!(latencies(&record), 2);
}

/// What is asked of nftables mode: its own two counters, and none of iptables mode's series.
#[test]
fn nftables_mode_counts_failures_as_its_own_and_has_no_series_of_iptables_mode() {
    use nftables::step::{FrameStep, Step as NftStep};
    let mut record = Record::new(Mode::Nftables, "n1".into(), Duration::from_mins(1));
    record.health.families.v4 = Some(FamilyHealth::default());
    let failed = Report::Failed {
        family: Family::V4,
        failure: Failure {
            cause: Cause::Content,
            text: "no".into(),
        },
        in_a_row: 1,
        about: About::Step,
        retry_at: Duration::ZERO,
    };
    let clearing = NftStep {
        frame: vec![FrameStep::DeleteChains(Vec::new())],
        ..NftStep::default()
    };
    let counts = |record: &Record| {
        [name::NFT_FAILURES, name::NFT_CLEANUP_FAILURES].map(|name| record.metrics.number(name, &["IPv4"]))
    };
    record.began(Family::V4, &Effect::NftCommit(clearing), at(1));
    record.report(&failed, at(2));
    assert_eq!(counts(&record), [None, Some(1.0)]);
    record.began(Family::V4, &Effect::NftCommit(NftStep::default()), at(3));
    record.report(&failed, at(4));
    assert_eq!(counts(&record), [Some(1.0), Some(1.0)]);
    record.began(
        Family::V4,
        &Effect::NftObserve(nftables::step::Reading::Everything),
        at(5),
    );
    record.began(Family::V4, &Effect::NftCommit(NftStep::default()), at(5));
    record.report(&in_sync(RunKind::Full), at(7));
    let text = record.metrics.text();
    assert!(
        text.contains("kubeproxy_sync_full_proxy_rules_duration_seconds_sum{ip_family=\"IPv4\"} 2\n"),
        "{text}"
    );
    let others = text
        .lines()
        .filter(|line| line.contains("kubeproxy_") && line.contains("iptables_"));
    assert_eq!(others.count(), 0, "{text}");
}
