//! What no step may ask for, checked before anything is run. The live and the fake kernel share it.

use crate::{CommitError, FailureKind};
use iptables::ast::TableName;
use iptables::plan::{Step, TableWrite};

/// Whether a chain of this name is built into the table.
pub fn is_builtin(table: TableName, chain: &str) -> bool {
    table.built_in().contains(&chain)
}

/// Refuses a step that would empty or delete a built-in chain.
///
/// `iptables-nft-restore` carries both out without a word, and strangers' rules would be gone with it.
///
/// # Errors
/// Names the chain.
pub fn check_step(step: &Step) -> Result<(), CommitError> {
    for (table, write) in &step.write {
        if let Some(chain) = emptied(write).find(|chain| is_builtin(*table, chain)) {
            return Err(refused(*table, chain));
        }
    }
    match step
        .retire
        .iter()
        .find(|(table, chain)| is_builtin(*table, chain.as_str()))
    {
        Some((table, chain)) => Err(refused(*table, chain.as_str())),
        None => Ok(()),
    }
}

/// The chains that a write empties or deletes.
fn emptied(write: &TableWrite) -> impl Iterator<Item = &str> {
    write
        .chains
        .keys()
        .chain(&write.remove)
        .map(iptables::ast::ChainName::as_str)
}

fn refused(table: TableName, chain: &str) -> CommitError {
    CommitError {
        attempted: "checking the step".to_owned(),
        kind: FailureKind::Refused,
        detail: format!("it would empty the built-in chain {chain} of table {table}"),
    }
}
