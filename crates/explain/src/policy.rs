//! Policies of built-in chains that stop packets: whose they are, and what accepts packets there.

use crate::fate::RuleLine;
use iptables::ast::TableName;

/// The chain of iptables whose policy a line is; `None` for a rule, and for a chain of nftables' own.
fn of_iptables(rule: &RuleLine) -> Option<(TableName, &str)> {
    if rule.number.is_some() {
        return None;
    }
    // A list of nftables has the tables of iptables-nft with their family.
    let table = match rule.table.split_once(' ') {
        Some(("ip" | "ip6", name)) => name,
        Some(_) => return None,
        None => &rule.table,
    };
    let is_built_in = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&&*rule.chain);
    let table = TableName::from_word(table).filter(|_| is_built_in)?;
    Some((table, &rule.chain))
}

/// Whether it is the one that kube-proxy and network plugins accept packets against: of FORWARD in table filter.
pub(crate) fn is_forward(rule: &RuleLine) -> bool {
    of_iptables(rule) == Some((TableName::Filter, "FORWARD"))
}

/// Of another table than filter: why rules that accept do not count, and what to do. `packets` are matches of iptables,
/// one for each rule that is wanted.
pub(crate) fn elsewhere(rule: &RuleLine, tool: &str, packets: &[String]) -> Option<Elsewhere> {
    let (table, chain) = of_iptables(rule).filter(|(table, _)| *table != TableName::Filter)?;
    let rules: Vec<String> = packets
        .iter()
        .map(|packets| format!("{tool} -t {table} -A {chain} {packets} -j ACCEPT"))
        .collect();
    Some(Elsewhere {
        why: format!(
            "Each table is asked for itself: what kube-proxy, network plugins and firewalls accept in table filter says nothing in table \
             {table}, where hardly anybody accepts anything."
        ),
        advice: format!(
            "take the policy back, since table {table} is not for filtering: {tool} -t {table} -P {chain} ACCEPT; or accept there what \
             should pass: {}",
            rules.join("; ")
        ),
    })
}

/// What is told of such a policy.
pub(crate) struct Elsewhere {
    pub(crate) why: String,
    pub(crate) advice: String,
}
