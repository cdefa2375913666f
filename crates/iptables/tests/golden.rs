//! What we build for the golden clusters is what upstream wrote into the kernel for them.

use iptables::ast::{ChainName, Match, Ports, Rule, Ruleset, TableName, Target};
use iptables::build::{self, BuildContext, Capabilities, EndpointComments, InvalidPackets, Nfacct};
use iptables::compare::differences;
use iptables::names::{Owner, is_dispatch, owner_of};
use iptables::parse;
use model::crossing::ListedEndpoints;
use model::{Desired, Family, ServiceName};
use scenario::{GoldenCase, golden_cases};
use std::collections::BTreeMap;

/// The kernel and tools that upstream was run on.
const CAPABILITIES: Capabilities = Capabilities {
    masquerade_ports: Ports::RandomFully,
    nfacct: Nfacct::Present,
};

fn context(desired: &Desired) -> BuildContext {
    BuildContext {
        capabilities: CAPABILITIES,
        endpoint_comments: EndpointComments::for_cluster(&ListedEndpoints::of(desired)),
        invalid: InvalidPackets::Dropped,
    }
}

fn built(case: &GoldenCase, family: Family) -> Ruleset {
    let desired = case.desired.get(family);
    build::ruleset(desired, &context(desired))
}

fn upstreams(case: &GoldenCase, family: Family) -> Ruleset {
    let save = parse::save(case.saved.get(family), family);
    assert_eq!(save.opaque, [], "{} {family}", case.name);
    save.ruleset
}

#[test]
fn golden_clusters_get_upstreams_rules() {
    let mut report = Vec::new();
    for case in golden_cases() {
        for family in Family::ALL {
            let found = differences(&upstreams(&case, family), &built(&case, family));
            report.extend(
                found
                    .iter()
                    .map(|d| format!("{} {family}: {}", case.name, d.text(family))),
            );
        }
    }
    assert!(
        report.is_empty(),
        "{} differences:\n{}",
        report.len(),
        report.join("\n")
    );
}

fn rulesets() -> impl Iterator<Item = (String, Ruleset)> {
    golden_cases()
        .into_iter()
        .flat_map(|case| Family::ALL.map(|family| (format!("{} {family}", case.name), built(&case, family))))
}

/// iptables-restore refuses a table with a jump to nowhere.
#[test]
fn every_jump_lands() {
    for (what, ruleset) in rulesets() {
        for (name, table) in &ruleset.tables {
            for rule in table.chains.values().flat_map(|chain| &chain.rules) {
                if let Target::Jump(to) = &rule.target {
                    assert!(table.chains.contains_key(to), "{what}: {name} {rule:?}");
                }
            }
        }
    }
}

#[test]
fn every_chain_we_make_is_known_as_ours_by_its_name() {
    for (what, ruleset) in rulesets() {
        for (name, table) in &ruleset.tables {
            for (chain, content) in &table.chains {
                let owner = owner_of(*name, chain.as_str());
                let expected = match (content.policy, chain.as_str()) {
                    (Some(_), _) => Owner::Foreign,
                    (None, "KUBE-FIREWALL") => Owner::Kubelet,
                    (None, _) => Owner::Ours,
                };
                assert_eq!(owner, expected, "{what}: {name} {chain}");
            }
        }
    }
}

/// Shared chains get rules from several services, own chains from one.
#[test]
fn no_two_services_share_a_chain_of_their_own() {
    for case in golden_cases() {
        let desired = &case.desired.v4;
        let mut owners: BTreeMap<ChainName, &ServiceName> = BTreeMap::new();
        for (name, service) in &desired.services {
            let rules = build::service(service, &desired.node, &context(desired));
            for chain in rules.chains.into_keys() {
                assert_eq!(owners.insert(chain, name), None, "{}: {name}", case.name);
            }
            for dispatch in rules.dispatch {
                assert!(
                    is_dispatch(dispatch.table, &dispatch.chain),
                    "{}: {dispatch:?}",
                    case.name
                );
            }
        }
    }
}

#[test]
fn without_nfacct_no_rule_names_it_and_the_rest_is_the_same() {
    for case in golden_cases() {
        let desired = &case.desired.v4;
        let mut context = context(desired);
        context.capabilities.nfacct = Nfacct::Absent;
        let mut want = upstreams(&case, Family::V4);
        let counts = |m: &Match| matches!(m, Match::Nfacct(_));
        for chain in want
            .tables
            .values_mut()
            .flat_map(|table| table.chains.values_mut())
        {
            // The loopback rule is there for its counter alone; the INVALID drop only loses it.
            chain
                .rules
                .retain(|rule| rule.target == Target::Drop || !rule.matches.iter().any(counts));
            chain
                .rules
                .iter_mut()
                .for_each(|rule| rule.matches.retain(|m| !counts(m)));
        }
        assert_eq!(
            differences(&want, &build::ruleset(desired, &context)),
            [],
            "{}",
            case.name
        );
    }
}

#[test]
fn a_liberal_conntrack_needs_no_rule_for_invalid_packets() {
    let case = &golden_cases()[0];
    let mut context = context(&case.desired.v4);
    context.invalid = InvalidPackets::Passed;
    let ruleset = build::ruleset(&case.desired.v4, &context);
    let forward = ruleset
        .chain(TableName::Filter, "KUBE-FORWARD")
        .expect("it is static");
    assert_eq!(forward.rules.len(), 2);
    assert!(forward.rules.iter().all(|rule| rule.target == Target::Accept));
}

/// Seeded faults: what the comparison must not let pass.
#[test]
fn the_comparison_sees_a_lost_rule_a_turned_pair_and_a_changed_word() {
    let case = golden_cases()
        .into_iter()
        .find(|case| case.name == "nodeport")
        .expect("it is there");
    let want = upstreams(&case, Family::V4);
    let faults: [fn(&mut Vec<Rule>); 3] = [
        |rules| drop(rules.pop()),
        |rules| rules.swap(0, 1),
        |rules| rules[0].target = Target::Accept,
    ];
    for fault in faults {
        for (table, chain) in [(TableName::Nat, "KUBE-NODEPORTS"), (TableName::Filter, "INPUT")] {
            let mut have = built(&case, Family::V4);
            let table = have.tables.get_mut(&table).expect("it is there");
            fault(&mut table.chains.get_mut(chain).expect("it is there").rules);
            assert_ne!(differences(&want, &have), [], "{chain}");
        }
    }
}
