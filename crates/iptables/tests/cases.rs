//! Objects after public reports (`scenarios/cases`): their rules load whatever stands in one object, and the kernel prints
//! what was written, so that nobody takes it for drift.

mod support;

use iptables::ast::{Ports, Ruleset};
use iptables::build::{self, BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use iptables::compare::differences;
use iptables::parse;
use iptables::render::{RestoreText, SaveText};
use model::Family;
use scenario::{Case, case};
use support::namespace::{Kind, Namespace};

const CONTEXT: BuildContext = BuildContext {
    capabilities: Capabilities {
        masquerade_ports: Ports::RandomFully,
        nfacct: Nfacct::Absent,
    },
    endpoint_comments: EndpointComments::Kept,
    invalid: InvalidPackets::Dropped,
};

fn rules(case: &Case, family: Family) -> Ruleset {
    build::ruleset(case.desired.get(family), &CONTEXT)
}

/// What the kernel holds once both backends' tools have loaded it; nothing where there is no namespace to be had.
#[track_caller]
fn loads_without_drift(case: &Case) {
    for family in Family::ALL {
        let ruleset = rules(case, family);
        for kind in [Kind::Nft, Kind::Legacy] {
            let Some(namespace) = Namespace::new() else { return };
            let text = RestoreText {
                ruleset: &ruleset,
                family,
            };
            namespace.restore(kind, family, &text.to_string());
            let have = parse::save(&namespace.save(kind, family), family).ruleset;
            let found = differences(&ruleset, &have);
            assert!(found.is_empty(), "{kind:?} {family}: {found:#?}");
        }
    }
}

fn text(case: &Case, family: Family) -> String {
    SaveText::new(&rules(case, family), family).to_string()
}

#[test]
fn case_17_a_wrong_address_does_not_spoil_the_batch() {
    let case = case("17-slices-of-the-wrong-family", "objects-bad-text.yaml");
    let six = text(&case, Family::V6);
    assert!(six.contains("--to-destination [2001:db8:244:2::172]:80"), "{six}");
    assert!(
        six.contains(r#"--comment "default/two has no endpoints""#),
        "{six}"
    );
    for family in Family::ALL {
        let text = text(&case, family);
        assert!(!text.contains("10.244.2.171"), "{text}");
    }
    loads_without_drift(&case);
}

#[test]
fn case_47_addresses_are_written_in_one_spelling() {
    let case = case("47-non-canonical-addresses", "objects.yaml");
    let (four, six) = (text(&case, Family::V4), text(&case, Family::V6));
    for word in ["10.96.7.191/32", "203.0.113.41/32", "10.244.2.191:8080"] {
        assert!(four.contains(word), "{word}: {four}");
    }
    for word in [
        "2001:db8:96::190/128",
        "2001:db8:70::a00:22/128",
        "[2001:db8:244:2::90]:8080",
    ] {
        assert!(six.contains(word), "{word}: {six}");
    }
    loads_without_drift(&case);
}

#[test]
fn case_48_comments_of_full_length_are_whole_and_chains_are_apart() {
    let case = case("48-very-long-names", "objects.yaml");
    let four = text(&case, Family::V4);
    let long = "tenant-example-analytics-platform-preproduction-eu-central-1-bl/billing-reconciliation-gateway-x-analytics-x-shared-virtual-cl2:https-alternate cluster IP";
    assert!(four.contains(&format!("--comment \"{long}\"")), "{four}");
    let chains = four.lines().filter(|line| line.starts_with(":KUBE-SVC-")).count();
    assert_eq!(chains, 2, "one for each service with an endpoint");
    loads_without_drift(&case);
}
