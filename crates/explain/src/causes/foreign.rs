//! Causes in rules that are not kube-proxy's: they stop the packet, or send it elsewhere, or keep it from kube-proxy's.

use super::host::{Sent, quoted};
use super::of_service;
use crate::doctor::{jumps, plain_tool};
use crate::fate::{Ended, Fate, RuleLine};
use crate::finding::{Advice, Cause, Finding};
use crate::policy;
use crate::world::Rules;
use model::{Family, Origin};

/// A rule that is not kube-proxy's ends the way.
pub(super) fn stops(fate: &Fate, rule: &RuleLine, family: Family) -> Finding {
    let verb = match fate.end {
        Ended::Dropped => "drops",
        _ => "refuses",
    };
    let place = rule.place();
    let what = match rule.number {
        None => format!("the {place} {verb} the packet"),
        Some(_) => format!("{place} {verb} the packet; it is not kube-proxy's"),
    };
    let translated = match fate.to {
        Some(to) => format!("kube-proxy's rules did their part (to {to}). "),
        None => String::new(),
    };
    let pods = ["-s POD-CIDR".to_owned(), "-d POD-CIDR".to_owned()];
    let elsewhere = policy::elsewhere(rule, plain_tool(family), &pods);
    let is_policy_of_forward = policy::is_forward(rule);
    let why = if let Some(told) = &elsewhere {
        format!("{translated}{}", told.why)
    } else if is_policy_of_forward {
        format!(
            "{translated}kube-proxy accepts what carries its mark and replies; a pod's packet to a cluster IP has no mark, so the \
             policy decides. Accepting pods' traffic is the network plugin's part."
        )
    } else if rule.number.is_none() {
        format!("{translated}No rule of the chain accepts the packet, so its policy decides.")
    } else {
        format!("{translated}{}", quoted(rule))
    };
    let advice = if let Some(told) = &elsewhere {
        &told.advice
    } else if is_policy_of_forward {
        "have the network plugin accept pods' traffic, for example: iptables -A FORWARD -s POD-CIDR -j ACCEPT and -d POD-CIDR"
    } else {
        "find whose chain it is (firewall, network plugin, NetworkPolicy) and allow this traffic there"
    };
    Finding::fault(Cause::ForeignRule, what)
        .because(why)
        .advise(Advice::act(advice))
}

impl Sent<'_> {
    /// Rules of others that stop the packet if something is so that nobody told.
    pub(crate) fn perhaps_stopped(&self) -> Vec<Finding> {
        let rules = self.fates.iter().flat_map(|fate| &fate.perhaps);
        let mut found: Vec<Finding> = Vec::new();
        for rule in rules {
            let what = format!(
                "whether {} stops the packet hangs on what nobody told",
                rule.place()
            );
            if found.iter().all(|other| other.what != what) {
                found.push(Finding::remark(Cause::ForeignRule, what).because(quoted(rule)));
            }
        }
        found
    }

    /// What keeps a packet for a Service from kube-proxy's rules: a rule that takes it before, or a jump that is gone.
    pub(crate) fn kept_away(&self) -> Option<Finding> {
        let is_observed = self.world.rules == Rules::Observed;
        let known = self.target.known.as_ref().filter(|_| is_observed)?;
        // A cache of the node may answer for a cluster IP, on purpose.
        let is_cached = known.ip.is_some_and(|ip| self.world.is_local(ip));
        if is_cached {
            return None;
        }
        self.redirected().or_else(|| self.no_jump())
    }

    /// A rule of others gives the packet its destination, whichever way it goes.
    fn redirected(&self) -> Option<Finding> {
        let first = self
            .fates
            .first()
            .filter(|_| self.fates.iter().all(Fate::is_translated_by_others))?;
        let (rule, to) = (first.to_by.as_ref()?, first.to?);
        let what = format!(
            "{} sends the packet to {to}; it is not kube-proxy's",
            rule.place()
        );
        let finding = Finding::fault(Cause::ForeignDnat, what).because(format!(
            "{} It is asked before kube-proxy's rules, and a connection is translated once.",
            quoted(rule)
        ));
        let finding = match &self.target.service {
            Some(name) => finding.about(of_service(name)),
            None => finding,
        };
        Some(finding.advise(Advice::act(
            "leave pods and cluster IPs out of that rule (! -s POD-CIDR, or a destination of its own), or put it after the jump to KUBE-SERVICES",
        )))
    }

    /// The built-in chain that the packet meets leads into none of kube-proxy's.
    fn no_jump(&self) -> Option<Finding> {
        let family = Family::of(self.target.at.ip());
        let from = match self.sender.origin {
            Origin::Host => "OUTPUT",
            Origin::Interface(_) => "PREROUTING",
        };
        if self.fates.iter().any(Fate::is_translated) {
            return None;
        }
        let rules = self.world.host.rules.get(family);
        jumps::missing_from(rules, from, family, plain_tool(family))
    }
}
