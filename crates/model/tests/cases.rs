//! Objects after public reports (`scenarios/cases`): where packets go, and what is said about the objects. The answers are
//! what kube-proxy 1.36.2 did with them, or, where that was a fault, what is right.

use model::{Origin, Outcome, Packet, Protocol, oracle};
use scenario::{Case, case};

/// What becomes of a packet that comes in through some interface.
fn answer(case: &Case, from: &str, to: &str, protocol: Protocol) -> Outcome {
    let from = from.parse().expect("a good address");
    let to = to.parse().expect("a good address");
    let packet = Packet::new(from, to, protocol, Origin::Interface("cni0".into()));
    let desired = case.desired.get(packet.family());
    oracle::outcome(desired, &case.facts, &packet)
}

#[track_caller]
fn tcp(case: &Case, from: &str, to: &str, want: &str) {
    assert_eq!(answer(case, from, to, Protocol::Tcp).to_string(), want);
}

#[track_caller]
fn says(case: &Case, words: &[&str]) {
    let said = case.said();
    let is_told = said
        .lines()
        .any(|line| words.iter().all(|word| line.contains(word)));
    assert!(is_told, "no line with {words:?} in:\n{said}");
}

const POD: &str = "10.244.1.5";

#[test]
fn case_01_slice_and_service_are_joined_by_the_names_of_ports() {
    let folder = "01-slice-port-name-mismatch";
    tcp(&case(folder, "objects.yaml"), POD, "10.96.7.10:5432", "REJECT");
    let fixed = case(folder, "objects-fixed.yaml");
    // Conditions that are not there count as ready.
    tcp(&fixed, POD, "10.96.7.10:5432", "10.244.2.20:5432");
}

#[test]
fn case_03_an_endpoints_object_is_not_read() {
    let case = case("03-endpoints-edited-slice-wins", "objects.yaml");
    tcp(&case, POD, "10.96.7.30:80", "10.244.1.30:8080");
}

#[test]
fn case_05_a_slice_that_is_labelled_headless_is_not_watched() {
    let case = case("05-externalname-became-clusterip", "objects.yaml");
    tcp(&case, "10.244.1.60", "10.96.7.50:80", "REJECT");
}

#[test]
fn case_12_a_port_is_known_by_number_and_protocol() {
    let case = case("12-patch-swallowed-the-udp-port", "objects.yaml");
    for (from, to) in [(POD, "10.96.7.120:53"), ("198.51.100.7", "192.0.2.11:31053")] {
        assert_eq!(answer(&case, from, to, Protocol::Udp), Outcome::Untouched, "{to}");
        assert_ne!(answer(&case, from, to, Protocol::Tcp), Outcome::Untouched, "{to}");
    }
}

#[test]
fn case_16_ready_decides_whatever_serving_says() {
    let case = case("16-publish-not-ready-addresses", "objects.yaml");
    let all = "10.244.1.160:9042, 10.244.2.160:9042, 10.244.3.160:9042";
    tcp(&case, POD, "10.96.7.160:9042", all);
}

#[test]
fn case_17_only_slices_of_the_family_count() {
    let case = case("17-slices-of-the-wrong-family", "objects.yaml");
    tcp(&case, POD, "10.96.7.170:80", "REJECT");
}

#[test]
fn case_17_an_address_that_lies_about_its_family_is_left_out_and_told() {
    let case = case("17-slices-of-the-wrong-family", "objects-bad-text.yaml");
    let pod = "2001:db8:244:1::5";
    tcp(&case, pod, "[2001:db8:96::171]:80", "REJECT");
    tcp(&case, pod, "[2001:db8:96::172]:80", "[2001:db8:244:2::172]:80");
    says(&case, &["default/two-k2x9q", "10.244.2.171"]);
}

#[test]
fn case_47_addresses_are_numbers_however_they_are_spelled() {
    let case = case("47-non-canonical-addresses", "objects.yaml");
    let six = "[2001:db8:244:2::90]:8080 (masqueraded)";
    tcp(&case, "2001:db8:1::2", "[2001:db8:70::a00:22]:80", six);
    tcp(
        &case,
        "2001:db8:244:1::5",
        "[2001:db8:96::190]:80",
        "[2001:db8:244:2::90]:8080",
    );
    tcp(&case, POD, "10.96.7.191:80", "10.244.2.191:8080");
    tcp(
        &case,
        "198.51.100.7",
        "203.0.113.41:80",
        "10.244.2.191:8080 (masqueraded)",
    );
    // Read as octal, it would be this one.
    tcp(&case, "198.51.100.7", "203.0.113.33:80", "untouched");
}

#[test]
fn case_48_names_of_full_length_are_two_services_and_a_small_one() {
    let case = case("48-very-long-names", "objects.yaml");
    tcp(&case, POD, "10.96.7.200:80", "10.244.2.200:80");
    tcp(&case, POD, "10.96.7.202:80", "REJECT");
    tcp(&case, POD, "10.96.7.201:80", "10.244.2.201:80");
    assert_eq!(case.said(), "", "there is nothing wrong with them");
}
