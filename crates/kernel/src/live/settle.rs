//! What follows a restore on `nf_tables`, by netlink: dispatch rules deleted by handle, chains retired.
//!
//! `iptables -D` needs 96 ms and more to find a rule of a large chain.

use super::{LiveKernel, by_netlink};
use crate::nft::{self, Listed};
use crate::socket::{Socket, SocketError};
use crate::{CommitError, FailureKind};
use iptables::ast::{ChainName, Rule, TableName};
use iptables::plan::Step;
use iptables::render::RuleText;
use model::Family;
use netlink::Errno;
use netlink::nft::Change;
use std::collections::{BTreeMap, BTreeSet};

/// How often the work is laid out anew after somebody else has committed in between.
const ATTEMPTS: u32 = 10;
/// Operations of one batch. At under 100 bytes each, it fits the send buffer that an unprivileged socket gets.
const BATCH: usize = 1_500;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation<'a> {
    Rule {
        table: TableName,
        chain: &'a ChainName,
        handle: u64,
    },
    Empty {
        table: TableName,
        chain: &'a ChainName,
    },
    Delete {
        table: TableName,
        chain: &'a ChainName,
    },
}

impl Operation<'_> {
    fn change(&self, of: Family) -> Change<'_> {
        let family = nft::family(of);
        match self {
            Operation::Rule { table, chain, handle } => Change::DeleteRule {
                family,
                table: table.as_str(),
                chain: chain.as_str(),
                handle: *handle,
            },
            Operation::Empty { table, chain } => Change::FlushChain {
                family,
                table: table.as_str(),
                chain: chain.as_str(),
            },
            Operation::Delete { table, chain } => Change::DeleteChain {
                family,
                table: table.as_str(),
                name: chain.as_str(),
            },
        }
    }
}

/// The work as the rules stand now.
struct Work<'a> {
    generation: u32,
    operations: Vec<Operation<'a>>,
    /// Rules not found in chains of which this crate cannot tell every rule: the tool may find them.
    unclear: Vec<(TableName, &'a ChainName, &'a Rule)>,
}

impl LiveKernel {
    /// Deletes and retires. Operations that fit one batch are one transaction.
    pub(super) fn settle(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        if step.delete.is_empty() && step.retire.is_empty() {
            return Ok(());
        }
        let failed = |error: &SocketError| {
            let what = format!(
                "deleting {} rules and retiring {} chains of {family}",
                step.delete.len(),
                step.retire.len()
            );
            let mut error_out = by_netlink(&what, error);
            if error.errno() == Some(Errno::EBUSY) {
                // The chain is jumped to: waiting will not change that.
                error_out.kind = FailureKind::Refused;
            }
            error_out
        };
        for _ in 0..ATTEMPTS {
            let outcome = self.with_socket(|socket| {
                let work = lay_out(socket, family, step)?;
                carry_out(socket, family, &work)?;
                Ok(work.unclear)
            });
            match outcome {
                Ok(unclear) => return self.delete_by_tool(family, &unclear),
                // Somebody committed since; what is left is found anew.
                Err(error) if matches!(error.errno(), Some(Errno::ERESTART | Errno::ENOENT)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(failed(&SocketError::Restless))
    }

    fn delete_by_tool(
        &self,
        family: Family,
        unclear: &[(TableName, &ChainName, &Rule)],
    ) -> Result<(), CommitError> {
        for (table, chain, rule) in unclear {
            let text = format!("*{table}\n-D {chain} {}\nCOMMIT\n", RuleText { rule, family });
            match self.restore(family, &text) {
                Err(error) if !error.detail.contains("does a matching rule exist") => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

fn lay_out<'a>(socket: &mut Socket, family: Family, step: &'a Step) -> Result<Work<'a>, SocketError> {
    let mut work = Work {
        generation: nft::generation(socket)?,
        operations: Vec::new(),
        unclear: Vec::new(),
    };
    let mut by_chain: BTreeMap<(TableName, &ChainName), Vec<&Rule>> = BTreeMap::new();
    for (table, chain, rule) in &step.delete {
        by_chain.entry((*table, chain)).or_default().push(rule);
    }
    for ((table, chain), wanted) in by_chain {
        let listed = nft::rules(socket, family, table, chain)?;
        let opaque = listed.iter().any(|listed| listed.rule.is_err());
        let (handles, missing) = find(&listed, &wanted);
        work.operations.extend(
            handles
                .into_iter()
                .map(|handle| Operation::Rule { table, chain, handle }),
        );
        if opaque {
            work.unclear
                .extend(missing.into_iter().map(|rule| (table, chain, rule)));
        }
    }
    let retired: BTreeSet<_> = step.retire.iter().map(|(table, chain)| (*table, chain)).collect();
    let mut there = Vec::new();
    for (table, chain) in retired {
        if nft::chain(socket, family, table, chain)?.is_some() {
            there.push((table, chain));
        }
    }
    // All are emptied before the first is deleted, since they may jump to each other.
    work.operations.extend(
        there
            .iter()
            .map(|(table, chain)| Operation::Empty { table: *table, chain }),
    );
    work.operations.extend(
        there
            .iter()
            .map(|(table, chain)| Operation::Delete { table: *table, chain }),
    );
    Ok(work)
}

/// The handle of the last rule that equals each wanted one (the first may be new, and put where it belongs), none twice; and the wanted ones that were not found.
fn find<'r>(listed: &[Listed], wanted: &[&'r Rule]) -> (Vec<u64>, Vec<&'r Rule>) {
    let mut taken = BTreeSet::new();
    let mut missing = Vec::new();
    for rule in wanted {
        let found = listed
            .iter()
            .rev()
            .find(|listed| listed.rule.as_ref() == Ok(*rule) && !taken.contains(&listed.handle));
        match found {
            Some(listed) => {
                taken.insert(listed.handle);
            }
            None => missing.push(*rule),
        }
    }
    (taken.into_iter().collect(), missing)
}

fn carry_out(socket: &mut Socket, family: Family, work: &Work<'_>) -> Result<(), SocketError> {
    // Handles begin anew when somebody deletes a table and makes it again; the generation tells.
    let mut generation = Some(work.generation);
    for operations in work.operations.chunks(BATCH) {
        let mut batch = socket.batch(generation.take());
        for operation in operations {
            batch.push(&operation.change(family))?;
        }
        socket.commit(batch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use iptables::ast::Target;

    fn listed(handle: u64, target: Target) -> Listed {
        Listed {
            handle,
            rule: Ok(Rule::new(target)),
            words: nft::Words::Iptables,
        }
    }

    #[test]
    fn equal_rules_are_found_one_after_the_other() {
        let listed = [
            listed(4, Target::Accept),
            listed(5, Target::Drop),
            listed(6, Target::Accept),
        ];
        let accept = Rule::new(Target::Accept);
        assert_eq!(find(&listed, &[&accept]), (vec![6], vec![]));
        assert_eq!(find(&listed, &[&accept, &accept]), (vec![4, 6], vec![]));
        assert_eq!(
            find(&listed, &[&accept, &accept, &accept]),
            (vec![4, 6], vec![&accept])
        );
    }
}
