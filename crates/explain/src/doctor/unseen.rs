//! What nobody gave, though something that is looked for may be there: without it, silence is no health.

use super::{Backend, NotSeen, Patient, Saved, Weight, leftovers};
use iptables::ast::{Ruleset, TableName};
use model::Family;
use nftables::listed::TableFamily;

/// What is not seen where nobody gave what `nft list ruleset` prints.
pub const NATIVE_TABLES: &str = "tables of nftables";

/// What is missing of what was given.
pub(super) fn gaps(patient: &Patient) -> Vec<NotSeen> {
    let mut found: Vec<NotSeen> = Family::ALL
        .into_iter()
        .flat_map(|family| tables(patient, family))
        .collect();
    found.extend(rules(patient));
    found.extend(kube_proxys(patient));
    found.extend(facts(patient));
    // Where somebody looked, he said why he did not see it.
    found.retain(|gap| patient.not_seen.iter().all(|known| known.what != gap.what));
    found
}

/// Whether table filter of a family was left out of what was saved: kube-proxy never has chains in nat alone.
pub(super) fn lacks_filter(saved: &[Saved], family: Family) -> bool {
    lacks(saved, family, TableName::Filter)
}

/// Whether kube-proxy has chains in some tables, and this one was left out, where it always has some.
fn lacks(saved: &[Saved], family: Family, table: TableName) -> bool {
    let of_family = || saved.iter().filter(|saved| saved.family == family);
    let others = [TableName::Nat, TableName::Filter];
    let mut others = others.into_iter().filter(|other| *other != table);
    let has_others = others.any(|other| of_family().any(|saved| is_kube_proxys(&saved.rules, other)));
    has_others && !of_family().any(|saved| saved.rules.tables.contains_key(&table))
}

fn is_kube_proxys(rules: &Ruleset, table: TableName) -> bool {
    let chain = match table {
        TableName::Nat => "KUBE-SERVICES",
        // The kubelet has KUBE-FIREWALL there.
        _ => "KUBE-FORWARD",
    };
    rules.chain(table, chain).is_some()
}

/// Tables of iptables that are not among the rules, though kube-proxy has chains in them.
fn tables(patient: &Patient, family: Family) -> Vec<NotSeen> {
    let native = &patient.world.host.native;
    let is_legacy = |saved: &Saved| saved.family == family && saved.backend == Backend::Legacy;
    let is_legacy = patient.saved.iter().any(is_legacy);
    let mut found = Vec::new();
    for (table, has) in [(TableName::Filter, "nat"), (TableName::Nat, "filter")] {
        let is_listed = native.table(TableFamily::of(family), table.as_str()).is_some();
        // A list of nftables has whatever nf_tables has.
        let is_known = is_listed || !(native.tables.is_empty() || is_legacy);
        if !is_known && lacks(&patient.saved, family, table) {
            found.push(NotSeen {
                what: format!("table {table} of {family}"),
                why: format!(
                    "it is not among the rules given, and kube-proxy that has chains in {has} has some there; firewalls may have, too. Give \
                     what iptables-save prints without -t"
                ),
                weight: Weight::Essential,
            });
        }
    }
    found
}

/// A family with Services or pods of which no rules were given, where those of the other were.
fn rules(patient: &Patient) -> Vec<NotSeen> {
    let is_saved = |family: Family| patient.saved.iter().any(|saved| saved.family == family);
    let is_any = Family::ALL.into_iter().any(is_saved);
    let is_listed = !patient.world.host.native.tables.is_empty();
    let missing = patient.families().into_iter().filter(|family| !is_saved(*family));
    let missing = missing.filter(|_| is_any && !is_listed);
    missing
        .map(|family| NotSeen {
            what: format!("rules of {family}"),
            why: format!(
                "there are Services or pods of {family}: give what {}-save prints",
                super::plain_tool(family)
            ),
            weight: Weight::Part,
        })
        .collect()
}

/// Whether rules were given, and none of them of nftables: where nobody gave a list of it, its mode of kube-proxy is not seen.
pub(super) fn lacks_rules(patient: &Patient) -> bool {
    let is_missing = patient.not_seen.iter().any(|known| known.what == NATIVE_TABLES);
    patient.saved.is_empty() && patient.world.host.native.tables.is_empty() || is_missing
}

/// Rules of iptables without any of kube-proxy's, where those of nftables were not given.
fn kube_proxys(patient: &Patient) -> Option<NotSeen> {
    let is_any = patient.saved.iter().any(|saved| !saved.rules.tables.is_empty());
    (is_any && lacks_rules(patient) && !leftovers::is_served(patient)).then(|| NotSeen {
        what: "rules of kube-proxy".to_owned(),
        why: "there are none among those given; in nftables mode they are in what nft list ruleset prints, and where kube-proxy has not \
              started there are none at all"
            .to_owned(),
        weight: Weight::Essential,
    })
}

/// Facts without which packets cannot be sent through rules, or settings not be looked at.
fn facts(patient: &Patient) -> Option<NotSeen> {
    let facts = &patient.world.host_facts;
    let told = |what: &str| patient.not_seen.iter().any(|known| known.what == what);
    let missing: Vec<&str> = [
        (facts.interfaces.is_empty(), "interfaces"),
        (facts.routes.is_none(), "routes"),
        (facts.sysctl.is_empty(), "sysctls"),
    ]
    .into_iter()
    .filter(|(is_missing, what)| *is_missing && !told(what))
    .map(|(_, what)| what)
    .collect();
    (!missing.is_empty()).then(|| NotSeen {
        what: missing.join(", "),
        why: "nobody gave them, and much of what is looked for shows in them: kube-proxy doctor --save writes them as facts.yaml".to_owned(),
        weight: Weight::Part,
    })
}
