//! What is read out of `EndpointSlices`.

use super::*;

#[test]
fn slices_read_names_conditions_and_hints_with_their_defaults() {
    let (slice, notes) = slice_with(json!({
        "ports": [{"port": 80}, {"name": "dns", "protocol": "UDP", "port": 53}],
        "endpoints": [
            {"addresses": ["10.0.0.1", "10.9.9.9"]},
            {"addresses": ["10.0.0.2"], "nodeName": "node-a", "conditions": {"ready": false, "serving": true, "terminating": true},
             "hints": {"forZones": [{"name": "b"}, {"name": "a"}], "forNodes": [{"name": "node-a"}]}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": null}},
        ],
    }));
    assert_eq!(notes, Vec::<String>::new());
    assert_eq!(slice.service, Some(ServiceName::new("default", "a")));
    let ports: Vec<(&str, Protocol, u16)> = slice
        .ports
        .iter()
        .map(|port| (&*port.name, port.protocol, port.port))
        .collect();
    assert_eq!(ports, [("", Protocol::Tcp, 80), ("dns", Protocol::Udp, 53)]);
    let ready = Conditions {
        ready: true,
        serving: true,
        terminating: false,
    };
    assert_eq!(slice.endpoints[0].conditions, ready);
    assert_eq!(slice.endpoints[0].hints, None);
    assert_eq!(
        slice.endpoints[1].conditions,
        Conditions {
            ready: false,
            serving: true,
            terminating: true
        }
    );
    let hints = slice.endpoints[1].hints.as_deref().unwrap();
    assert_eq!(
        (&*hints.zones, &*hints.nodes),
        (&["a".into(), "b".into()][..], &["node-a".into()][..])
    );
    assert_eq!(slice.endpoints[2].conditions, ready);
}

/// Case 17: upstream hands the IPv4 text to the IPv6 tables and loses all of that family.
#[test]
fn an_address_of_the_other_family_costs_one_endpoint() {
    let (slice, notes) = slice_with(json!({
        "addressType": "IPv6", "ports": [{"port": 80}],
        "endpoints": [{"addresses": ["10.244.2.171"]}, {"addresses": ["::ffff:10.244.2.171"]}, {"addresses": ["2001:db8::1"]}],
    }));
    assert_eq!(
        slice
            .endpoints
            .iter()
            .map(|endpoint| endpoint.ip)
            .collect::<Vec<_>>(),
        ips(["2001:db8::1"])
    );
    assert_eq!(
        notes[0],
        "EndpointSlice default/a-1: endpoints[0].addresses[0]: \"10.244.2.171\" left out: is IPv4, and addressType says IPv6"
    );
    assert_eq!(notes.len(), 2);
}

#[test]
fn bad_parts_of_slices_are_left_out_one_by_one() {
    let (slice, notes) = slice_with(json!({
        "ports": [{"name": "ok", "port": 80}, {"name": "ok2"}, {"port": 0}, {"name": "A", "port": 1}, {"name": "p", "port": 2, "protocol": "X"}, 5],
        "endpoints": [{"addresses": []}, {"addresses": ["x"]}, {"addresses": [5]}, "y", {"addresses": "10.0.0.9"},
                      {"addresses": ["10.0.0.1"], "nodeName": 7, "conditions": {"ready": "yes"}, "hints": {"forZones": [{"name": 1}]}}],
    }));
    assert_eq!(slice.ports.len(), 1);
    assert_eq!(slice.endpoints.len(), 1);
    assert_eq!(
        (&slice.endpoints[0].node, &slice.endpoints[0].hints),
        (&None, &None)
    );
    assert_eq!(notes.len(), 13, "{notes:#?}");
}

#[test]
fn a_slice_says_when_what_changed_it_happened_and_a_bad_time_costs_nothing_else() {
    let triggered = |time: Value| {
        let mut document = json!({"kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "a-1", "labels": {"kubernetes.io/service-name": "a"}},
            "endpoints": [{"addresses": ["10.0.0.1"]}]});
        document["metadata"]["annotations"] =
            json!({"endpoints.kubernetes.io/last-change-trigger-time": time});
        let (slice, notes) = slice(document);
        assert_eq!(slice.endpoints.len(), 1);
        (slice.triggered.map(TriggerTime::since_1970), notes.len())
    };
    assert_eq!(
        triggered(json!("2026-12-01T08:00:00.123456789Z")),
        (Some(1_796_112_000_123_456_789), 0)
    );
    assert_eq!(
        triggered(json!("1970-01-01T01:00:01+01:00")),
        (Some(1_000_000_000), 0)
    );
    for bad in [
        json!("yesterday"),
        json!(""),
        json!("9000-01-01T00:00:00Z"),
        json!(7),
    ] {
        assert_eq!(triggered(bad.clone()), (None, 1), "{bad}");
    }
    let none = slice_with(json!({}));
    assert_eq!((none.0.triggered, none.1.len()), (None, 0));
}

#[test]
fn slices_that_are_not_ours_are_skipped_with_the_reason() {
    let skipped = |labels: Value, address_type: &str| {
        let document = json!({"kind": "EndpointSlice", "metadata": {"name": "a-1", "labels": labels}, "addressType": address_type});
        slice(document).0.skipped
    };
    let owner = || json!({"kubernetes.io/service-name": "a"});
    assert_eq!(skipped(owner(), "IPv4"), None);
    assert_eq!(skipped(owner(), "FQDN"), Some(SliceSkip::AddressType));
    assert_eq!(skipped(owner(), "Morse"), Some(SliceSkip::AddressType));
    assert_eq!(skipped(json!({}), "IPv4"), Some(SliceSkip::NoOwner));
    assert_eq!(
        skipped(json!({"kubernetes.io/service-name": ""}), "IPv4"),
        Some(SliceSkip::NoOwner)
    );
    assert_eq!(
        skipped(json!({"kubernetes.io/service-name": "No Name"}), "IPv4"),
        Some(SliceSkip::NoOwner)
    );
    // Case 5: the label stays behind when a Service stops being headless.
    let headless = json!({"kubernetes.io/service-name": "a", "service.kubernetes.io/headless": ""});
    assert_eq!(skipped(headless, "IPv4"), Some(SliceSkip::Headless));
}

/// Upstream's API server lets none of them in; files do not ask it.
#[test]
fn addresses_that_no_api_server_takes_cost_one_endpoint_each() {
    for (address_type, good, special) in [
        (
            "IPv4",
            "10.0.0.1",
            &["127.0.0.1", "0.0.0.0", "224.0.0.1", "169.254.169.254"][..],
        ),
        ("IPv6", "fd00::1", &["::1", "::", "ff02::1", "fe80::1"]),
    ] {
        let all = [&[good], special].concat();
        let endpoints: Vec<Value> = all.iter().map(|ip| json!({"addresses": [ip]})).collect();
        let (slice, notes) =
            slice_with(json!({"addressType": address_type, "ports": [{"port": 80}], "endpoints": endpoints}));
        let kept: Vec<_> = slice.endpoints.iter().map(|endpoint| endpoint.ip).collect();
        assert_eq!(kept, ips([good]));
        assert_eq!(notes.len(), special.len(), "{notes:?}");
        for (i, ip) in special.iter().enumerate() {
            let start = format!(
                "EndpointSlice default/a-1: endpoints[{}].addresses[0]: \"{ip}\" left out: is ",
                i + 1
            );
            assert!(notes[i].starts_with(&start), "{notes:?}");
        }
    }
}
