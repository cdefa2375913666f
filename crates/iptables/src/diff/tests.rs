use super::batch::{Batch, StepOrder};
use super::compact::{ChainId, Digest, DispatchRule, Place, owner};
use super::have::Have;
use super::node::NodeDifference;
use super::observe::Observation;
use super::service::{Difference, GoneChains};
use super::sweep::sweep;
use crate::ast::{Chain, ChainName, Match, Policy, Rule, TableName, Target};
use crate::build::{Dispatch, Jump, NodeRules, ServiceRules, jumps};
use crate::plan::Step;
use model::{Family, ServiceName};

const SVC: &str = "KUBE-SVC-XPGD46QRK7WJZT7O";
const SVL: &str = "KUBE-SVL-XPGD46QRK7WJZT7O";
const SEP_A: &str = "KUBE-SEP-SXIVWICOYRO3J4NJ";
const SEP_B: &str = "KUBE-SEP-SNQ3ZNILQDEJNDQO";

fn name(text: &str) -> ChainName {
    ChainName::new(text).unwrap()
}

fn jump(to: &str, comment: &str) -> Rule {
    Rule {
        matches: vec![Match::Comment(comment.into())],
        ..Rule::new(Target::Jump(name(to)))
    }
}

fn dispatch(place: Place, rule: Rule) -> Dispatch {
    Dispatch {
        table: place.table(),
        chain: place.chain(),
        rule,
    }
}

/// A service with a chain that leads to these endpoints.
fn service(chain: &str, endpoints: &[&str]) -> ServiceRules {
    let mut rules = ServiceRules::default();
    let to_endpoints = endpoints.iter().map(|to| jump(to, "ns1/svc1:p80 -> x")).collect();
    rules.chains.insert(name(chain), to_endpoints);
    for endpoint in endpoints {
        let rule = Rule::new(Target::Dnat("10.180.0.1:80".parse().unwrap()));
        rules.chains.insert(name(endpoint), vec![rule]);
    }
    let rule = jump(chain, "ns1/svc1:p80 cluster IP");
    rules.dispatch.push(dispatch(Place::NatServices, rule));
    rules
}

fn svc1() -> ServiceName {
    ServiceName::new("ns1", "svc1")
}

/// The step for what is wanted, remembered as done.
fn commit(have: &mut Have, want: ServiceRules) -> Step {
    let mut batch = Batch::new();
    let difference = Difference::new(svc1(), want, have, GoneChains::Deleted);
    if difference.is_empty() {
        return Step::default();
    }
    batch.add(difference);
    let (step, _) = batch.take_steps(StepOrder::AtOnce);
    have.remember(batch);
    step
}

fn with(want: ServiceRules) -> Have {
    let mut have = Have::new(Family::V4);
    commit(&mut have, want);
    have
}

fn user_chain(rules: Vec<Rule>) -> Chain {
    Chain { policy: None, rules }
}

#[test]
fn a_chain_takes_nineteen_bytes_of_memory() {
    assert_eq!(size_of::<(ChainId, Digest)>(), 19);
}

#[test]
fn short_forms_of_names_give_the_names_back() {
    for text in [
        SVC,
        SVL,
        SEP_A,
        "KUBE-EXT-4SW47YFZTEDKD3PK",
        "KUBE-FW-4SW47YFZTEDKD3PK",
    ] {
        assert_eq!(ChainId::of(&name(text)).unwrap().name().as_str(), text);
    }
    for text in [
        "KUBE-SVC-SHORT",
        "KUBE-SVC-xpgd46qrk7wjzt7o",
        "KUBE-SERVICES",
        "KUBE-SVC-XPGD46QRK7WJZT7O7",
    ] {
        assert_eq!(ChainId::of(&name(text)), None, "{text}");
    }
}

#[test]
fn chains_are_ordered_callers_first() {
    let mut ids: Vec<ChainId> = [
        SEP_A,
        SVL,
        SVC,
        "KUBE-FW-4SW47YFZTEDKD3PK",
        "KUBE-EXT-4SW47YFZTEDKD3PK",
    ]
    .iter()
    .map(|text| ChainId::of(&name(text)).unwrap())
    .collect();
    ids.sort();
    let order: Vec<String> = ids.iter().map(|id| id.name().as_str()[5..8].to_owned()).collect();
    assert_eq!(order, ["FW-", "EXT", "SVC", "SVL", "SEP"]);
}

#[test]
fn digests_see_everything_but_comments() {
    let of = |rules: &[Rule]| Digest::of(rules);
    let plain = Rule::new(Target::Jump(name(SEP_A)));
    assert_eq!(of(&[jump(SEP_A, "a")]), of(std::slice::from_ref(&plain)));
    assert_ne!(of(&[jump(SEP_A, "a")]), of(&[jump(SEP_B, "a")]));
    assert_ne!(of(&[plain.clone(), plain.clone()]), of(&[plain]));
    let (one, other) = (jump(SEP_A, "a"), jump(SEP_B, "a"));
    assert_ne!(of(&[one.clone(), other.clone()]), of(&[other, one]));
}

#[test]
fn dispatch_rules_name_their_service() {
    let of = |comment: &str| owner(&jump(SVC, comment));
    assert_eq!(of("ns1/svc1:p80 cluster IP"), Some(svc1()));
    assert_eq!(of("ns1/svc1 has no endpoints"), Some(svc1()));
    assert_eq!(of("ns1/svc1:p80"), Some(svc1()));
    for comment in [
        "kubernetes service nodeports; NOTE: ...",
        "",
        "/svc1",
        "ns1/",
        "a/b/c",
    ] {
        assert_eq!(of(comment), None, "{comment:?}");
    }
}

#[test]
fn kept_dispatch_rules_can_be_said_again() {
    let rule = jump(SVC, "ns1/svc1:p80 \"quoted\" cluster IP");
    assert_eq!(
        DispatchRule::new(Family::V4, Place::NatServices, &rule).rule(),
        rule
    );
}

#[test]
fn a_removed_endpoint_goes_in_the_transaction_that_rewrites_its_caller() {
    let mut have = with(service(SVC, &[SEP_A, SEP_B]));
    let step = commit(&mut have, service(SVC, &[SEP_A]));
    let nat = &step.write[&TableName::Nat];
    assert_eq!(
        nat.chains.keys().map(ChainName::as_str).collect::<Vec<_>>(),
        [SVC]
    );
    assert_eq!(nat.remove, [name(SEP_B)]);
    assert_eq!((&nat.insert[..], &nat.append[..]), (&[][..], &[][..]));
    assert_eq!((&step.delete[..], &step.retire[..]), (&[][..], &[][..]));
}

#[test]
fn a_chain_that_dispatch_still_leads_to_goes_after_the_dispatch() {
    let mut have = with(service(SVC, &[SEP_A, SEP_B]));
    let step = commit(&mut have, service(SVL, &[SEP_A]));
    let nat = &step.write[&TableName::Nat];
    assert_eq!(
        nat.chains.keys().map(ChainName::as_str).collect::<Vec<_>>(),
        [SVL]
    );
    assert_eq!(
        nat.insert,
        [(Place::NatServices.chain(), jump(SVL, "ns1/svc1:p80 cluster IP"))]
    );
    assert_eq!(nat.remove, []);
    let old = jump(SVC, "ns1/svc1:p80 cluster IP");
    assert_eq!(step.delete, [(TableName::Nat, Place::NatServices.chain(), old)]);
    assert_eq!(
        step.retire,
        [(TableName::Nat, name(SVC)), (TableName::Nat, name(SEP_B))]
    );
}

#[test]
fn a_service_that_goes_loses_dispatch_first_and_chains_last() {
    let mut have = with(service(SVC, &[SEP_A]));
    let step = commit(&mut have, ServiceRules::default());
    assert!(step.write.is_empty());
    assert_eq!(step.delete.len(), 1);
    assert_eq!(step.retire.len(), 2);
    assert_eq!(have.services().count(), 0);
}

#[test]
fn rules_of_nat_are_deleted_before_those_of_filter() {
    let mut want = service(SVC, &[SEP_A]);
    for place in [Place::FilterFirewall, Place::FilterServices, Place::NatNodePorts] {
        want.dispatch
            .insert(0, dispatch(place, jump(SVC, "ns1/svc1:p80")));
    }
    let mut have = with(want);
    let step = commit(&mut have, ServiceRules::default());
    let tables: Vec<&str> = step.delete.iter().map(|(table, _, _)| table.as_str()).collect();
    assert_eq!(tables, ["nat", "nat", "filter", "filter"]);
}

#[test]
fn on_legacy_filter_rules_are_deleted_by_a_second_step() {
    let refusing = ServiceRules {
        dispatch: vec![dispatch(
            Place::FilterServices,
            jump(SVC, "ns1/svc1:p80 has no endpoints"),
        )],
        ..ServiceRules::default()
    };
    let have = with(refusing);
    let mut batch = Batch::new();
    batch.add(Difference::new(
        svc1(),
        service(SVC, &[SEP_A]),
        &have,
        GoneChains::Deleted,
    ));
    let (first, second) = batch.take_steps(StepOrder::FilterDeletionsApart);
    assert_eq!(first.delete, []);
    assert!(first.write.contains_key(&TableName::Nat));
    assert_eq!(second.unwrap().delete.len(), 1);
}

#[test]
fn only_comments_of_chains_are_no_difference() {
    let mut have = with(service(SVC, &[SEP_A]));
    let mut want = service(SVC, &[SEP_A]);
    for rule in want.chains.values_mut().flatten() {
        rule.matches.retain(|part| !matches!(part, Match::Comment(_)));
    }
    assert_eq!(commit(&mut have, want), Step::default());
}

#[test]
fn what_is_there_is_adopted_whatever_its_order_and_the_rest_is_swept() {
    let want = service(SVC, &[SEP_A]);
    let mut seen = Observation::new(Family::V4);
    for (chain, rules) in &want.chains {
        seen.record(TableName::Nat, chain, &user_chain(rules.clone()));
    }
    seen.record(TableName::Nat, &name(SEP_B), &user_chain(Vec::new()));
    seen.record(TableName::Nat, &name("KUBE-SVC-ODD"), &user_chain(Vec::new()));
    seen.record(TableName::Nat, &name("CNI-CHAIN"), &user_chain(Vec::new()));
    let stray = jump("KUBE-MARK-MASQ", "nobody's");
    let rules = vec![stray.clone(), want.dispatch[0].rule.clone()];
    seen.record(TableName::Nat, &Place::NatServices.chain(), &user_chain(rules));

    let mut have = Have::new(Family::V4);
    have.adopt(seen);
    let difference = Difference::new(svc1(), want, &have, GoneChains::Deleted);
    assert!(difference.is_empty(), "{difference:#?}");
    let (name_, holding) = difference.into_settled();
    have.settle(name_, holding);

    assert_eq!(have.leftovers(), 3);
    let batch = sweep(&have, 100);
    assert_eq!(
        batch.step.delete,
        [(TableName::Nat, Place::NatServices.chain(), stray)]
    );
    let retired: Vec<&str> = batch
        .step
        .retire
        .iter()
        .map(|(_, chain)| chain.as_str())
        .collect();
    assert_eq!(retired, ["KUBE-SVC-ODD", SEP_B]);
}

#[test]
fn a_doubled_dispatch_rule_is_deleted_once() {
    let want = service(SVC, &[SEP_A]);
    let mut seen = Observation::new(Family::V4);
    for (chain, rules) in &want.chains {
        seen.record(TableName::Nat, chain, &user_chain(rules.clone()));
    }
    let rule = want.dispatch[0].rule.clone();
    let twice = user_chain(vec![rule.clone(), rule.clone()]);
    seen.record(TableName::Nat, &Place::NatServices.chain(), &twice);
    let mut have = Have::new(Family::V4);
    have.adopt(seen);
    let step = commit(&mut have, want);
    assert_eq!(step.delete, [(TableName::Nat, Place::NatServices.chain(), rule)]);
    assert!(step.write.is_empty());
}

fn tail(comment: &str) -> Rule {
    jump("KUBE-NODEPORTS", comment)
}

fn node_step(have: &mut Have, want: NodeRules) -> Step {
    let mut batch = Batch::new();
    let difference = NodeDifference::new(want, have);
    if difference.is_empty() {
        return Step::default();
    }
    batch.add_node(difference);
    let (step, _) = batch.take_steps(StepOrder::AtOnce);
    have.remember(batch);
    step
}

fn node_rules(tails: &[&str]) -> NodeRules {
    NodeRules {
        jumps: jumps(),
        tail: tails.iter().map(|text| tail(text)).collect(),
        ..NodeRules::default()
    }
}

#[test]
fn the_nodes_part_is_written_once() {
    let mut have = Have::new(Family::V4);
    let first = node_step(&mut have, node_rules(&["a"]));
    assert_eq!(
        first.write[&TableName::Nat].append,
        [(Place::NatServices.chain(), tail("a"))]
    );
    assert_eq!(node_step(&mut have, node_rules(&["a"])), Step::default());
}

#[test]
fn new_jumps_to_the_node_ports_are_appended_and_old_ones_deleted() {
    let mut have = Have::new(Family::V4);
    node_step(&mut have, node_rules(&["a", "b"]));
    let step = node_step(&mut have, node_rules(&["b", "c"]));
    assert_eq!(
        step.write[&TableName::Nat].append,
        [(Place::NatServices.chain(), tail("c"))]
    );
    assert_eq!(
        step.delete,
        [(TableName::Nat, Place::NatServices.chain(), tail("a"))]
    );
}

#[test]
fn a_jump_to_the_node_ports_that_is_not_last_is_moved_to_the_end() {
    let mut have = Have::new(Family::V4);
    node_step(&mut have, node_rules(&["a"]));
    let mut seen = Observation::new(Family::V4);
    let rules = vec![tail("a"), jump(SVC, "ns1/svc1:p80 cluster IP")];
    seen.record(TableName::Nat, &Place::NatServices.chain(), &user_chain(rules));
    have.absorb(seen);
    let step = node_step(&mut have, node_rules(&["a"]));
    assert_eq!(
        step.write[&TableName::Nat].append,
        [(Place::NatServices.chain(), tail("a"))]
    );
    assert_eq!(
        step.delete,
        [(TableName::Nat, Place::NatServices.chain(), tail("a"))]
    );
}

/// A stranger's rules around a jump, and the jump's place among them, mean nothing.
#[test]
fn a_jump_may_stand_anywhere_and_a_missing_one_goes_to_the_head() {
    let wanted: Vec<Jump> = jumps();
    let input: Vec<Rule> = wanted
        .iter()
        .filter(|jump| jump.from.as_str() == "INPUT")
        .map(|jump| jump.rule.clone())
        .collect();
    let mut shuffled = vec![jump("CNI-INPUT", "a stranger's")];
    shuffled.extend(input.iter().rev().cloned());
    let missing = shuffled.pop().unwrap();
    let mut seen = Observation::new(Family::V4);
    let chain = Chain {
        policy: Some(Policy::Accept),
        rules: shuffled,
    };
    seen.record(TableName::Filter, &name("INPUT"), &chain);
    let mut have = Have::new(Family::V4);
    have.adopt(seen);
    let step = node_step(&mut have, node_rules(&[]));
    let into_input: Vec<&Rule> = step.write[&TableName::Filter]
        .insert
        .iter()
        .filter(|(chain, _)| chain.as_str() == "INPUT")
        .map(|(_, rule)| rule)
        .collect();
    assert_eq!(into_input, [&missing]);
}

/// The kubelet writes into `KUBE-FIREWALL` as well.
#[test]
fn the_kubelets_rules_in_a_shared_chain_stay() {
    let firewall = name("KUBE-FIREWALL");
    let kubelets = Rule::new(Target::Drop);
    let ours = jump("KUBE-MARK-MASQ", "block incoming localnet connections");
    let mut want = node_rules(&[]);
    want.chains
        .entry(TableName::Filter)
        .or_default()
        .insert(firewall.clone(), vec![ours.clone()]);
    let mut seen = Observation::new(Family::V4);
    seen.record(TableName::Filter, &firewall, &user_chain(vec![kubelets]));
    let mut have = Have::new(Family::V4);
    have.adopt(seen);
    let step = node_step(&mut have, want);
    let filter = &step.write[&TableName::Filter];
    assert!(!filter.chains.contains_key(&firewall));
    assert_eq!(filter.append, [(firewall, ours)]);
}

#[test]
fn what_a_failed_step_touched_is_read_again() {
    let mut have = with(service(SVC, &[SEP_A]));
    let mut batch = Batch::new();
    batch.add(Difference::new(
        svc1(),
        service(SVC, &[SEP_B]),
        &have,
        GoneChains::Deleted,
    ));
    have.doubt(&batch);
    let doubted: Vec<String> = have.doubted_chains().map(|id| id.name().to_string()).collect();
    assert_eq!(doubted, [SVC, SEP_B, SEP_A]);

    // It turns out that the step had been carried out.
    let want = service(SVC, &[SEP_B]);
    let mut seen = Observation::new(Family::V4);
    for (chain, rules) in &want.chains {
        seen.record(TableName::Nat, chain, &user_chain(rules.clone()));
    }
    let rules = vec![want.dispatch[0].rule.clone()];
    seen.record(TableName::Nat, &Place::NatServices.chain(), &user_chain(rules));
    assert!(have.absorb(seen).services.contains(&svc1()));
    assert_eq!(commit(&mut have, want), Step::default());
}

/// Three rules of one service in one place; `which` of them are wanted, in this order.
fn three(which: &[usize]) -> ServiceRules {
    let texts = ["cluster IP", "external IP", "loadbalancer IP"];
    let mut rules = ServiceRules::default();
    rules.chains.insert(name(SVC), vec![]);
    for &one in which {
        let rule = jump(SVC, &format!("ns1/svc1:p80 {}", texts[one]));
        rules.dispatch.push(dispatch(Place::NatServices, rule));
    }
    rules
}

/// What the step does to a chain that has these rules, as the two backends do it.
fn carried_out(mut chain: Vec<Rule>, step: &Step, is_legacy: bool) -> Vec<Rule> {
    let inserted = step.write.get(&TableName::Nat).map(|write| &write.insert[..]);
    let inserted: Vec<Rule> = inserted
        .unwrap_or_default()
        .iter()
        .map(|(_, rule)| rule.clone())
        .collect();
    let delete = |chain: &mut Vec<Rule>| {
        for (_, _, rule) in &step.delete {
            let at = if is_legacy {
                chain.iter().position(|have| have == rule)
            } else {
                chain.iter().rposition(|have| have == rule)
            };
            chain.remove(at.unwrap());
        }
    };
    if is_legacy {
        delete(&mut chain);
    }
    chain.splice(0..0, inserted);
    if !is_legacy {
        delete(&mut chain);
    }
    chain
}

#[test]
fn dispatch_rules_of_a_service_keep_their_order_whatever_comes_and_goes() {
    let wants: [&[usize]; 8] = [&[], &[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    let rules = |which: &[usize]| -> Vec<Rule> {
        let wanted = three(which).dispatch;
        wanted.into_iter().map(|dispatch| dispatch.rule).collect()
    };
    for before in wants {
        for after in wants {
            let mut have = with(three(before));
            let step = commit(&mut have, three(after));
            for is_legacy in [false, true] {
                let chain = carried_out(rules(before), &step, is_legacy);
                assert_eq!(chain, rules(after), "{before:?} to {after:?}, legacy {is_legacy}");
            }
        }
    }
}
