//! What a node's kernel holds: rules, counters, generation.

use iptables::ast::{Policy, Ruleset, TableName};
use iptables::compare::differences;
use iptables::parse;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, LiveKernel, RuleKernel};
use lab::Lab;
use model::Family;
use std::collections::BTreeMap;

/// The tool that prints the rules of a family and backend.
pub fn save_tool(family: Family, backend: Backend) -> &'static str {
    match (family, backend) {
        (Family::V4, Backend::NfTables) => "iptables-nft-save",
        (Family::V6, Backend::NfTables) => "ip6tables-nft-save",
        (Family::V4, Backend::Legacy) => "iptables-legacy-save",
        (Family::V6, Backend::Legacy) => "ip6tables-legacy-save",
    }
}

/// The rules of a family on `nf_tables`, as text.
pub fn saved(lab: &Lab, node: &str, family: Family) -> String {
    saved_by(lab, node, family, Backend::NfTables)
}

/// The rules of a family and backend, as text.
pub fn saved_by(lab: &Lab, node: &str, family: Family, backend: Backend) -> String {
    lab.must_exec(node, &[save_tool(family, backend)])
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// The tables of `nf_tables` as `nft` lists them, read once as text and once as JSON.
///
/// # Panics
/// When a list is not understood.
pub fn native(lab: &Lab, node: &str) -> [nftables::listed::Ruleset; 2] {
    [&["nft", "list", "ruleset"][..], &["nft", "-j", "list", "ruleset"]].map(|command| {
        let text = lab
            .must_exec(node, command)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        nftables::parse::ruleset(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
    })
}

/// A saved text, understood; the built-in chains of every table are there, untouched ones as accepting everything.
///
/// # Panics
/// When a line is not understood.
pub fn parsed(text: &str, family: Family) -> Ruleset {
    let save = parse::save(text, family);
    assert_eq!(save.opaque, [], "in:\n{text}");
    let mut ruleset = save.ruleset;
    for table in [TableName::Mangle, TableName::Filter, TableName::Nat] {
        let chains = &mut ruleset.tables.entry(table).or_default().chains;
        for name in table.built_in() {
            let name = iptables::ast::ChainName::new(name).expect("a built-in chain has a legal name");
            chains.entry(name).or_insert_with(|| iptables::ast::Chain {
                policy: Some(Policy::Accept),
                rules: Vec::new(),
            });
        }
    }
    ruleset
}

/// Differences between two saved texts in words, a line each; empty when there are none.
pub fn differences_in_words(want: &str, have: &str, family: Family) -> String {
    let found = differences(&parsed(want, family), &parsed(have, family));
    let lines: Vec<String> = found.iter().map(|one| one.text(family).to_string()).collect();
    lines.join("\n")
}

/// Packets that each rule has counted, by the rule's line in `iptables-save -c` without its counters.
pub fn counters(lab: &Lab, node: &str, family: Family) -> BTreeMap<String, u64> {
    let text = lab
        .must_exec(node, &[save_tool(family, Backend::NfTables), "-c"])
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let mut counted = BTreeMap::new();
    for line in text.lines() {
        let Some((counters, rule)) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) else {
            continue;
        };
        let packets = counters.split(':').next().and_then(|number| number.parse().ok());
        *counted.entry(rule.to_owned()).or_default() += packets.unwrap_or(0_u64);
    }
    counted
}

/// The rules whose counters are higher now, with by how much.
pub fn moved(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = |(rule, packets): (&String, &u64)| {
        let grown = packets.saturating_sub(before.get(rule).copied().unwrap_or(0));
        (grown > 0).then(|| (rule.clone(), grown))
    };
    now.iter().filter_map(more).collect()
}

/// The `nf_tables` generation of a node, which moves with every commit by anyone.
pub fn generation(lab: &Lab, node: &str) -> u32 {
    let read = || {
        let tools = Tools::find(std::env::var_os("PATH").as_ref(), vec![]);
        let probe = Probe::new(&tools, Choice::Use(Backend::NfTables)).expect("the tools are installed");
        LiveKernel::new(probe).generation().expect("the kernel tells")
    };
    let namespace = lab
        .namespace(node)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let generation = namespace
        .run(read)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    generation.expect("nf_tables has a generation")
}
