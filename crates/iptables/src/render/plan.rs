//! Plans and steps for people, in the manner of a diff.

use super::{RuleText, Written};
use crate::ast::Rule;
use crate::plan::{Plan, Step, TableWrite};
use model::Family;
use std::fmt;

/// A plan: its steps, each under a line with its number and the services it settles.
///
/// The lines of a step, in the order in which they take effect: `+` for what is there afterwards, `-` for what is not.
///
/// ```text
/// step 1: shop/web
/// + write nat KUBE-SVC-XPGD46QRK7WJZT7O
/// +     -m comment --comment "shop/web -> 10.244.1.5:8080" -j KUBE-SEP-6E7XQMQ4RAYOWTTM
/// + insert nat KUBE-SERVICES -d 10.96.0.9/32 -p tcp ... -j KUBE-SVC-XPGD46QRK7WJZT7O
/// + append nat KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS
/// + ensure filter KUBE-PROXY-CANARY
/// - remove nat KUBE-SEP-SXIVWICOYRO3J4NJ
/// - delete filter KUBE-SERVICES -d 10.96.0.9/32 ... -j REJECT
/// - retire nat KUBE-SVC-ERIFXISQEP7F7OF4
/// ```
///
/// `write` empties a chain and fills it; `insert` and `append` add a rule at head or end; `ensure` makes a chain if it
/// is missing; `remove` deletes a chain together with the writing; `delete` takes a rule out and `retire` a chain, after
/// all that.
#[derive(Clone, Copy, Debug)]
pub struct PlanText<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The family, on which a rule's words depend.
    pub family: Family,
}

impl fmt::Display for PlanText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        for (at, step) in self.plan.steps.iter().enumerate() {
            write!(f, "step {}:", at + 1)?;
            for (i, service) in step.services.iter().enumerate() {
                write!(f, "{} {service}", if i == 0 { "" } else { "," })?;
            }
            writeln!(f)?;
            self.step(f, step)?;
        }
        Ok(())
    }
}

impl PlanText<'_> {
    fn step(&self, f: &mut fmt::Formatter<'_>, step: &Step) -> Written {
        for (table, write) in &step.write {
            self.table(f, table.as_str(), write)?;
        }
        for (table, chain, rule) in &step.delete {
            self.rule(f, &format!("- delete {table} {chain}"), rule)?;
        }
        for (table, chain) in &step.retire {
            writeln!(f, "- retire {table} {chain}")?;
        }
        Ok(())
    }

    fn table(&self, f: &mut fmt::Formatter<'_>, table: &str, write: &TableWrite) -> Written {
        for chain in &write.ensure {
            writeln!(f, "+ ensure {table} {chain}")?;
        }
        for (chain, rules) in &write.chains {
            writeln!(f, "+ write {table} {chain}")?;
            for rule in rules {
                writeln!(f, "+     {}", self.words(rule))?;
            }
        }
        for (chain, rule) in &write.insert {
            self.rule(f, &format!("+ insert {table} {chain}"), rule)?;
        }
        for (chain, rule) in &write.append {
            self.rule(f, &format!("+ append {table} {chain}"), rule)?;
        }
        for chain in &write.remove {
            writeln!(f, "- remove {table} {chain}")?;
        }
        Ok(())
    }

    fn rule(&self, f: &mut fmt::Formatter<'_>, what: &str, rule: &Rule) -> Written {
        writeln!(f, "{what} {}", self.words(rule))
    }

    fn words<'a>(&self, rule: &'a Rule) -> RuleText<'a> {
        let family = self.family;
        RuleText { rule, family }
    }
}
