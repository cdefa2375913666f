//! Broken setups made after public reports (`scenarios/cases`), with their connection tables as `conntrack -L` prints
//! them. By source port: what is deleted, and what is kept.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use conntrack::{Flow, FrontendKey, Keep, REMEMBERED_ENDPOINTS, Stale, TcpOption, Verdict, decide};
use model::{Family, Protocol};
use std::net::Ipv4Addr;
use support::{World, documents};

fn verdicts(case: &str) -> Vec<(u16, Verdict)> {
    let folder = scenario::root().join("cases").join(case);
    let read = |name| std::fs::read_to_string(folder.join(name)).expect("the case is there");
    let mut world = World::new(&["127.0.0.1".parse().unwrap(), "192.0.2.11".parse().unwrap()]);
    world.set_objects(&documents(&read("objects.yaml")));
    let expectation = world.expectation(Family::V4, TcpOption::Never);
    read("conntrack.txt")
        .lines()
        .map(|line| {
            Flow::parse_line(line)
                .expect("a line of conntrack")
                .expect("with ports")
        })
        .map(|flow| (flow.client.port(), decide(&expectation, &flow)))
        .collect()
}

#[test]
fn case_53_eleven_flows_have_eleven_reasons() {
    let want = [
        (50001, Verdict::Keep(Keep::EndpointServes)),
        (50002, Verdict::Delete(Stale::EndpointGone)),
        (50003, Verdict::Keep(Keep::EndpointServes)),
        (50004, Verdict::Delete(Stale::BlackHole)),
        (50005, Verdict::Delete(Stale::EndpointGone)),
        (50006, Verdict::Delete(Stale::EndpointGone)),
        // Upstream keeps it (ADR 10).
        (50007, Verdict::Delete(Stale::NoEndpoints)),
        (50008, Verdict::Keep(Keep::NoFrontend)),
        (50009, Verdict::Keep(Keep::NoFrontend)),
        // Upstream deletes it (ADR 10).
        (50010, Verdict::Keep(Keep::NotServedHere)),
        (50011, Verdict::Keep(Keep::Protocol)),
    ];
    assert_eq!(verdicts("53-udp-entries-one-by-one"), want);
}

#[test]
fn case_16_ready_endpoints_that_do_not_serve_keep_their_flows() {
    let want = [
        // Upstream deletes it, over and over (ADR 10).
        (40001, Verdict::Keep(Keep::EndpointServes)),
        (40002, Verdict::Keep(Keep::EndpointServes)),
    ];
    assert_eq!(verdicts("16-publish-not-ready-addresses"), want);
}

#[test]
fn a_service_deleted_while_nobody_watched_is_known_by_the_rules_it_left() {
    let gone = support::flow("UDP 10.0.0.1:1 -> 10.96.0.77:53 => 10.244.9.9:5353");
    let other = support::flow("UDP 10.0.0.1:1 -> 10.96.0.77:53 => 10.244.9.8:5353");
    let mut expectation = World::new(&[]).expectation(Family::V4, TcpOption::Never);
    assert_eq!(decide(&expectation, &gone), Verdict::Keep(Keep::NoFrontend));
    let key = FrontendKey::Address(gone.destination.ip(), 53, Protocol::Udp);
    expectation.remember_gone(key, gone.answerer);
    assert_eq!(decide(&expectation, &gone), Verdict::Delete(Stale::FrontendGone));
    assert_eq!(decide(&expectation, &other), Verdict::Keep(Keep::NotOurDoing));
}

#[test]
fn what_is_remembered_is_bounded_and_forgotten_after_two_whole_sweeps() {
    let mut expectation = World::new(&[]).expectation(Family::V4, TcpOption::Never);
    let key = FrontendKey::NodePort(Family::V4, 30053, Protocol::Udp);
    let wanted = u32::try_from(REMEMBERED_ENDPOINTS).unwrap() + 10;
    for number in 0..wanted {
        let endpoint = (Ipv4Addr::from_bits(0x0a00_0000 + number), 53).into();
        expectation.remember_gone(key, endpoint);
        expectation.remember_gone(key, endpoint);
    }
    assert_eq!(expectation.remembered(), REMEMBERED_ENDPOINTS);
    for left in [REMEMBERED_ENDPOINTS, 0] {
        let sweep = expectation.begin_sweep();
        expectation.complete_sweep(sweep);
        assert_eq!(expectation.remembered(), left);
    }
}
