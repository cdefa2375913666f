//! Drift: healthy hosts have none, whatever is damaged is named where it belongs, and it is what the daemon repairs.

mod support;

use difference::drift::{Difference, Drift, Owner, Sign, What, recovered, remarks, spared};
use difference::screen::{Extent, drift as screen};
use engine::rehearsal::Write;
use iptables::ast::{Chain, ChainName, Match, Rule, Ruleset, TableName, Target};
use iptables::names::{Owner as Whose, owner_of};
use iptables::parse;
use kernel::{Backend, FakeKernel, RuleKernel as _};
use model::Family;
use nftables::listed;
use support::{CAPABILITIES, World, world, worlds};

#[test]
fn golden_hosts_of_either_mode_have_no_drift() {
    for (case, of) in scenario::golden_cases().into_iter().zip(worlds()) {
        for family in Family::ALL {
            let upstreams = parse::save(case.saved.get(family), family).ruleset;
            for found in [upstreams, of.rules(family)] {
                let drift = of.drift(family, &found);
                assert!(
                    drift.is_none() && drift.remarks.is_empty(),
                    "{} {family}: {drift:#?}",
                    case.name
                );
            }
            let table = of.table(family);
            let drift = of.table_drift(family, Some(&table));
            assert!(
                drift.is_none() && drift.remarks.is_empty(),
                "{} {family}: {drift:#?}",
                case.name
            );
        }
    }
}

/// What is printed and read again is the same, as `nft` words it.
#[test]
fn what_nft_prints_of_a_golden_host_has_no_drift() {
    for of in worlds() {
        let ruleset = listed::Ruleset {
            tables: vec![of.table(Family::V4)],
        };
        let read = nftables::parse::ruleset(&ruleset.to_string()).expect("what is printed is read");
        let drift = of.table_drift(Family::V4, read.tables.first());
        assert!(drift.is_none(), "{}: {drift:#?}", of.name);
    }
}

/// Upstream's rules of a cluster, held against what they say themselves.
#[test]
fn upstreams_rules_of_golden_clusters_agree_with_themselves() {
    for case in scenario::golden_cases() {
        for family in Family::ALL {
            let found = parse::save(case.saved.get(family), family).ruleset;
            let of = of_itself(&found, family);
            let drift = of.drift(family, &found);
            assert!(
                drift.is_none(),
                "{} {family}: {:#?}",
                case.name,
                drift.differences
            );
            // It would show.
            if !["policy", "loadbalancer", "terminating"].contains(&&*case.name) {
                continue;
            }
            let damaged = damage(&found, &mut |_, _, chain| drop(chain.rules.pop()));
            for (place, damaged) in damaged
                .into_iter()
                .filter(|(place, _)| place.contains("KUBE-SVC-"))
            {
                let drift = of_itself(&damaged, family).drift(family, &damaged);
                assert!(!drift.is_none(), "{} {place}", case.name);
            }
        }
    }
}

fn of_itself(found: &Ruleset, family: Family) -> World {
    let recovered = recovered(found, family, "this-node").expect("rules of kube-proxy");
    let mut facts = model::NodeFacts {
        name: "this-node".into(),
        interface_addresses: recovered.addresses.clone(),
        ..model::NodeFacts::default()
    };
    if let Some(node) = recovered.objects.node("this-node") {
        node.tell(&mut facts);
    }
    let desired = model::PerFamily::from_fn(|family| {
        model::Desired::from_snapshot(&recovered.objects, family, &facts, &recovered.settings).0
    });
    World {
        name: "itself".to_owned(),
        snapshot: recovered.objects,
        facts,
        settings: recovered.settings,
        desired,
    }
}

/// The rules with one of our chains changed, once for each of them.
fn damage(
    found: &Ruleset,
    change: &mut dyn FnMut(TableName, &ChainName, &mut Chain),
) -> Vec<(String, Ruleset)> {
    let mut all = Vec::new();
    for (table, content) in &found.tables {
        for (name, chain) in &content.chains {
            if owner_of(*table, name.as_str()) != Whose::Ours {
                continue;
            }
            let mut changed = chain.clone();
            change(*table, name, &mut changed);
            if changed != *chain {
                let mut damaged = found.clone();
                let chains = &mut damaged.tables.get_mut(table).expect("it was just seen").chains;
                chains.insert(name.clone(), changed);
                all.push((format!("{table} {name}"), damaged));
            }
        }
    }
    all
}

fn place(difference: &Difference) -> String {
    format!("{} {}", difference.table, difference.name)
}

fn signs(drift: &Drift, wanted: &str) -> Vec<Sign> {
    let of_place = drift
        .differences
        .iter()
        .filter(|difference| place(difference) == wanted);
    of_place
        .flat_map(|difference| difference.lines.iter().map(|line| line.sign))
        .collect()
}

fn bare(rule: &Rule) -> Rule {
    let mut rule = rule.clone();
    rule.matches.retain(|one| !matches!(one, Match::Comment(_)));
    rule
}

/// Puts through what would be repaired, and looks again.
fn is_repaired(of: &World, family: Family, damaged: &Ruleset) -> bool {
    let mut kernel = FakeKernel::new(Backend::NfTables);
    kernel.load(family, damaged.clone());
    for step in of.steps(family, damaged, CAPABILITIES) {
        if let Write::Iptables(step) = step.write {
            kernel.commit(family, &step).expect("the kernel takes the repair");
        }
    }
    of.drift(family, kernel.ruleset(family)).is_none()
}

#[test]
fn each_rule_that_is_lost_is_named_in_its_chain_and_repaired() {
    for of in [world("policy"), world("loadbalancer"), world("nodeport-cidrs")] {
        let found = of.rules(Family::V4);
        for at in 0..4 {
            let mut lost = Vec::new();
            let damaged = damage(&found, &mut |_, _, chain| {
                if at < chain.rules.len() {
                    lost.push(chain.rules.remove(at));
                }
            });
            assert_eq!(damaged.len(), lost.len());
            for ((chain, damaged), lost) in damaged.into_iter().zip(lost) {
                let drift = of.drift(Family::V4, &damaged);
                assert_eq!(
                    signs(&drift, &chain),
                    [Sign::Missing],
                    "{}: {chain} lost {lost:?}: {drift:#?}",
                    of.name
                );
                assert_eq!(drift.differences.len(), 1, "{drift:#?}");
                let text = &drift.differences[0].lines[0].text;
                assert_eq!(bare(&parse::rule(text, Family::V4).expect("a rule")), bare(&lost));
                assert!(is_repaired(&of, Family::V4, &damaged), "{chain}");
            }
        }
    }
}

#[test]
fn each_strange_rule_in_a_chain_of_ours_is_named_with_its_number() {
    let of = world("policy");
    let found = of.rules(Family::V4);
    let strange = parse::rule("-s 203.0.113.7/32 -j ACCEPT", Family::V4).expect("a rule");
    let damaged = damage(&found, &mut |_, _, chain| chain.rules.insert(0, strange.clone()));
    assert!(damaged.len() > 40, "{}", damaged.len());
    for (chain, damaged) in damaged {
        let drift = of.drift(Family::V4, &damaged);
        // A canary says something by being there; what is in it does nothing.
        if chain.ends_with("CANARY") {
            continue;
        }
        let wanted = drift
            .differences
            .iter()
            .find(|difference| place(difference) == chain);
        let lines = &wanted.unwrap_or_else(|| panic!("{chain}: {drift:#?}")).lines;
        assert_eq!(lines.len(), 1, "{chain}: {lines:#?}");
        assert_eq!(
            (lines[0].sign, lines[0].number),
            (Sign::Extra, Some(1)),
            "{chain}"
        );
        assert_eq!(lines[0].text, "-s 203.0.113.7/32 -j ACCEPT");
        assert!(is_repaired(&of, Family::V4, &damaged), "{chain}");
    }
}

#[test]
fn lost_and_left_chains_are_named_with_their_owner() {
    let of = world("policy");
    let found = of.rules(Family::V4);
    let owner = |name: &str| Owner::Port(name.to_owned());
    let endpoint = "KUBE-SEP-3XXQZGTLXSR5S3XM";
    let mut damaged = found.clone();
    let nat = damaged.tables.get_mut(&TableName::Nat).expect("nat");
    nat.chains.remove(endpoint);
    let left = ChainName::new("KUBE-SVC-AAAAAAAAAAAAAAAA").expect("a name");
    let rule = parse::rule(
        "-m comment --comment \"old/gone:http -> 10.9.9.9:80\" -j RETURN",
        Family::V4,
    );
    nat.chains.insert(
        left,
        Chain {
            policy: None,
            rules: vec![rule.expect("a rule")],
        },
    );
    let drift = of.drift(Family::V4, &damaged);
    let told: Vec<_> = drift
        .differences
        .iter()
        .map(|one| (one.owner.clone(), one.name.as_str(), one.what, one.about.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                owner("default/both-local:http"),
                endpoint,
                What::Missing,
                "endpoint 10.244.1.12:8080"
            ),
            (
                owner("old/gone:http"),
                "KUBE-SVC-AAAAAAAAAAAAAAAA",
                What::Extra,
                ""
            ),
        ]
    );
}

#[test]
fn a_jump_that_is_lost_is_of_all_services_and_others_rules_are_no_difference() {
    let of = world("nodeport");
    let mut found = of.rules(Family::V4);
    let foreign = parse::rule("-p tcp -m tcp --dport 22 -j ACCEPT", Family::V4).expect("a rule");
    for (table, chain) in [(TableName::Filter, "INPUT"), (TableName::Nat, "PREROUTING")] {
        let table = found.tables.get_mut(&table).expect("a table of ours");
        let chain = table.chains.get_mut(chain).expect("a built-in chain");
        chain.rules.insert(0, foreign.clone());
    }
    let own = ChainName::new("cali-INPUT").expect("a name");
    let theirs = Chain {
        policy: None,
        rules: vec![foreign],
    };
    found
        .tables
        .get_mut(&TableName::Filter)
        .expect("filter")
        .chains
        .insert(own, theirs);
    assert!(of.drift(Family::V4, &found).is_none());
    let nat = found.tables.get_mut(&TableName::Nat).expect("nat");
    let chain = nat.chains.get_mut("PREROUTING").expect("a built-in chain");
    chain
        .rules
        .retain(|rule| !matches!(&rule.target, Target::Jump(to) if to.as_str() == "KUBE-SERVICES"));
    let drift = of.drift(Family::V4, &found);
    let [difference] = drift.differences.as_slice() else {
        panic!("{drift:#?}");
    };
    assert_eq!(
        (&difference.owner, place(difference)),
        (&Owner::Node, "nat PREROUTING".to_owned())
    );
    assert_eq!(difference.lines[0].text, "-j KUBE-SERVICES");
}

#[test]
fn comments_and_the_order_of_services_are_no_difference() {
    let of = world("policy");
    let mut found = of.rules(Family::V4);
    for (name, table) in &mut found.tables {
        for (chain, content) in &mut table.chains {
            for rule in &mut content.rules {
                let is_dispatch = iptables::names::is_dispatch(*name, chain);
                for one in rule.matches.iter_mut().filter(|_| !is_dispatch) {
                    if let Match::Comment(text) = one {
                        *text = "another comment".into();
                    }
                }
            }
        }
    }
    let services = found.tables.get_mut(&TableName::Nat).expect("nat");
    let services = services.chains.get_mut("KUBE-SERVICES").expect("the chain");
    let last = services.rules.len() - 1;
    services.rules[..last].sort_by_key(|rule| {
        let port = rule.comment().and_then(|text| text.split(' ').next());
        std::cmp::Reverse(port.map(str::to_owned))
    });
    let drift = of.drift(Family::V4, &found);
    let moved: Vec<Sign> = drift
        .differences
        .iter()
        .flat_map(|one| one.lines.iter().map(|line| line.sign))
        .collect();
    assert!(moved.is_empty(), "{drift:#?}");
    assert!(
        drift
            .remarks
            .iter()
            .any(|remark| remark.contains("KUBE-MARK-MASQ") || remark.contains("KUBE-POSTROUTING"))
    );
}

#[test]
fn rules_after_the_jump_to_node_ports_are_named_as_out_of_place() {
    let of = world("nodeport");
    let mut found = of.rules(Family::V4);
    let nat = found.tables.get_mut(&TableName::Nat).expect("nat");
    let services = nat.chains.get_mut("KUBE-SERVICES").expect("the chain");
    let tail = services.rules.pop().expect("the jump");
    services.rules.insert(0, tail);
    let drift = of.drift(Family::V4, &found);
    assert_eq!(signs(&drift, "nat KUBE-SERVICES"), [Sign::Moved], "{drift:#?}");
    assert_eq!(drift.differences[0].owner, Owner::Node);
}

#[test]
fn a_raw_rule_that_hides_a_service_from_nat_is_a_remark_and_no_drift() {
    let path = scenario::root().join("cases/22-notrack-hides-packets-from-nat/iptables-save-both.txt");
    let text = std::fs::read_to_string(path).expect("the case");
    let found = parse::save(&text, Family::V4).ruleset;
    let of = of_itself(&found, Family::V4);
    let drift = spared(of.drift(Family::V4, &found), &found);
    assert!(drift.is_none(), "{drift:#?}");
    let remarks = remarks(of.desired.get(Family::V4), &found);
    assert!(
        remarks.iter().any(|remark| {
            remark.contains("notrack")
                && remark.contains("10.96.0.10:53/udp")
                && remark.contains("raw PREROUTING")
        }),
        "{remarks:?}"
    );
}

#[test]
fn names_of_others_cannot_steer_a_terminal_and_lines_fit() {
    let of = world("policy");
    let mut found = of.rules(Family::V4);
    let nat = found.tables.get_mut(&TableName::Nat).expect("nat");
    let chain = nat.chains.get_mut("KUBE-MARK-MASQ").expect("the chain");
    let mut rule = Rule::new(Target::Return);
    rule.matches.push(Match::Other {
        module: "string".into(),
        words: vec!["--string".into(), "\u{1b}]0;owned\u{7}\u{1b}[2J".into()],
    });
    chain.rules.push(rule);
    let drifts = [of.drift(Family::V4, &found)];
    let text = screen(&drifts, "a test", 80, Extent::Some);
    let plain = anstyle_stripped(&text);
    assert!(!plain.contains('\u{1b}') && !plain.contains('\u{7}'), "{plain:?}");
    assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
}

/// Without the styles that the screen itself puts in.
fn anstyle_stripped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = match after.split_once('m') {
            Some((style, after)) if style.chars().all(|c| c.is_ascii_digit() || c == ';') => after,
            _ => return format!("{plain}\u{1b}[{after}"),
        };
    }
    plain + rest
}
