//! What the health-check node ports count, and when it changes.

use super::*;
fn endpoint(ip: &str, node: &str, ready: bool) -> Value {
    json!({"addresses": [ip], "nodeName": node, "conditions": {"ready": ready, "serving": true, "terminating": !ready}})
}

fn snapshot(endpoints: &[Value]) -> Snapshot {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "lb", "namespace": "ns"},
        "spec": {
            "type": "LoadBalancer", "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
            "externalTrafficPolicy": "Local", "healthCheckNodePort": 30999,
            "ports": [
                {"name": "a", "port": 80, "nodePort": 30080, "protocol": "TCP"},
                {"name": "b", "port": 81, "nodePort": 30081, "protocol": "TCP"},
            ],
        },
    });
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {"name": "lb-1", "namespace": "ns", "labels": {"kubernetes.io/service-name": "lb"}},
        "ports": [{"name": "a", "port": 8080, "protocol": "TCP"}, {"name": "b", "port": 8081, "protocol": "TCP"}],
        "endpoints": endpoints,
    });
    let mut snapshot = Snapshot::new();
    for document in [service, slice] {
        let decoded = decode(document);
        for object in decoded.objects {
            snapshot.apply(Change::Apply(object));
        }
    }
    snapshot
}

fn counted(endpoints: &[Value]) -> local::Counted {
    let facts = NodeFacts {
        name: "n1".into(),
        ..NodeFacts::default()
    };
    let snapshot = snapshot(endpoints);
    let context = Context {
        family: Family::V4,
        node: &facts,
        settings: &model::Settings::default(),
        claims: snapshot.claims(),
    };
    local::count(&snapshot, &context)
}

#[test]
fn ready_addresses_of_this_node_count_once_over_all_ports_and_terminating_ones_do_not() {
    let counted = counted(&[
        endpoint("192.0.2.1", "n1", true),
        endpoint("192.0.2.2", "n1", true),
        endpoint("192.0.2.3", "n1", false),
        endpoint("192.0.2.4", "n2", true),
    ]);
    let expected = LocalCount {
        port: 30_999,
        endpoints: 2,
    };
    assert_eq!(counted.health.values().collect::<Vec<_>>(), [&expected]);
    assert_eq!(counted.all_dropped(), local::Dropped::default());
}

#[test]
fn when_the_last_local_endpoint_goes_the_port_counts_none_and_the_dropped_ports_are_counted() {
    let counted = counted(&[endpoint("192.0.2.4", "n2", true)]);
    assert_eq!(
        counted
            .health
            .values()
            .map(|count| count.endpoints)
            .collect::<Vec<_>>(),
        [0]
    );
    let expected = local::Dropped {
        internal: 0,
        external: 2,
    };
    assert_eq!(counted.all_dropped(), expected);
}

/// An engine of IPv4 on node n1 that knows this cluster.
fn engine_of(endpoints: &[Value]) -> Engine {
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
    let facts = NodeFacts {
        name: "n1".into(),
        ..NodeFacts::default()
    };
    let config = engine::EngineConfig::default();
    let mut engine = Engine::new(model::Settings::default(), facts, &host, &config);
    for object in snapshot(endpoints).into_objects() {
        engine.handle(engine::Event::Changed(Change::Apply(object)), Duration::ZERO);
    }
    for kind in [cluster::Kind::Service, cluster::Kind::Slice] {
        engine.handle(engine::Event::Listed(kind), Duration::ZERO);
    }
    engine
}

/// Lets the engine do what it wants at this time; the kernel says yes or no to all of it.
fn turn(serving: &Serving, engine: &mut Engine, second: u64, takes: bool) {
    let now = Duration::from_secs(second);
    while let Some(effect) = engine.next(Family::V4, now) {
        serving.began(Family::V4, &effect);
        let answer = match effect {
            Effect::Commit(_) if takes => engine::Answer::Committed,
            Effect::Commit(_) => engine::Answer::CommitFailed(engine::Failure {
                cause: engine::Cause::Host,
                text: "busy".into(),
            }),
            Effect::Observe { .. } => engine::Answer::Observed {
                generation: None,
                observation: Box::new(iptables::diff::observe::Observation::new(Family::V4)),
            },
            Effect::NftCommit(_) | Effect::NftObserve(_) => panic!("of nftables mode"),
        };
        serving.answered(Family::V4);
        engine.handle(engine::Event::Answer(Family::V4, answer), now);
    }
    for report in engine.take_reports() {
        serving.report(&report);
    }
    serving.look(engine, now);
}

#[test]
fn a_health_check_node_port_changes_its_count_when_the_rules_change_and_not_before() {
    let serving = serving();
    let local = || {
        serving
            .record()
            .local
            .v4
            .health
            .values()
            .map(|count| count.endpoints)
            .next()
    };
    let mut engine = engine_of(&[endpoint("192.0.2.1", "n1", true)]);
    turn(&serving, &mut engine, 0, false);
    assert_eq!(local(), None);
    assert!(serving.0.wanted.borrow().is_empty());
    turn(&serving, &mut engine, 20, true);
    assert_eq!(local(), Some(1));
    let wanted = serving.0.wanted.borrow().clone();
    let listener = Listener {
        port: 30_999,
        addresses: vec![IpAddr::from([0, 0, 0, 0])],
    };
    assert_eq!(wanted.into_values().collect::<Vec<_>>(), [listener]);
    for object in snapshot(&[endpoint("192.0.2.4", "n2", true)]).into_objects() {
        engine.handle(
            engine::Event::Changed(Change::Apply(object)),
            Duration::from_secs(30),
        );
    }
    turn(&serving, &mut engine, 32, false);
    assert_eq!(local(), Some(1), "the rules still send to the endpoint that was");
    turn(&serving, &mut engine, 60, true);
    assert_eq!(local(), Some(0));
}
