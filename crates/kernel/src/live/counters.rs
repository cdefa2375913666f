//! The counters of our rules.
//!
//! On `nf_tables` the five chains whose rules name services are read, each as of one moment; on legacy the tool prints
//! both tables whole. Neither takes a lock: what is read beside a commit is what the kernel has then.

use super::{LONGEST_CALL, LiveKernel, Missing, reading};
use crate::{Backend, FailureKind, LineSplitter, ObserveError, classify, nft};
use iptables::ast::{Rule, TableName};
use iptables::counted::CHAINS;
use iptables::parse;
use model::Family;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A rule and its counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// Whose counter it is: another number is another rule, or the same one written anew. On legacy, which has no name for
    /// a rule, equal rules of one chain have one number.
    pub id: u64,
    /// Its table.
    pub table: TableName,
    /// The rule.
    pub rule: Rule,
    /// Packets that met it.
    pub packets: u64,
}

impl LiveKernel {
    /// Reads the counters of the rules of [`CHAINS`].
    ///
    /// # Errors
    /// When the kernel or the tool would not say; what was read before is of no use then.
    pub fn rule_counts(&mut self, family: Family) -> Result<Vec<RuleCount>, ObserveError> {
        match self.probe.backend {
            Backend::NfTables => self.counts_by_netlink(family),
            Backend::Legacy => {
                let mut all = self.counts_by_tool(family, TableName::Nat)?;
                all.extend(self.counts_by_tool(family, TableName::Filter)?);
                Ok(all)
            }
        }
    }

    fn counts_by_netlink(&mut self, family: Family) -> Result<Vec<RuleCount>, ObserveError> {
        let mut all = Vec::new();
        for (table, chain) in CHAINS {
            let found = self
                .with_socket(|socket| nft::counted(socket, family, table, chain.as_str()))
                .map_err(|error| {
                    reading(
                        &format!("the counters of {family} chain {}", chain.as_str()),
                        &error,
                    )
                })?;
            all.extend(found.into_iter().map(|counted| RuleCount {
                id: number(&(table, counted.handle)),
                table,
                rule: counted.rule,
                packets: counted.packets,
            }));
        }
        Ok(all)
    }

    fn counts_by_tool(&self, family: Family, table: TableName) -> Result<Vec<RuleCount>, ObserveError> {
        let tools = self.tools(family).map_err(Missing::for_observe)?;
        let args = ["-c", "-t", table.as_str()];
        let mut all = Vec::new();
        let mut take = |line: &str| all.extend(count_of(table, family, line));
        let mut lines = LineSplitter::default();
        let outcome = tools
            .save
            .invocation(&args, b"", &self.probe().environment, LONGEST_CALL)
            .run(&mut |bytes| lines.feed(bytes, &mut take));
        lines.end(&mut take);
        let failed = |kind: FailureKind, detail: String| ObserveError {
            attempted: format!("{} {}", tools.save, args.join(" ")),
            kind,
            detail,
        };
        match outcome {
            Ok(finished) if finished.succeeded() => Ok(all),
            Ok(finished) => Err(failed(
                classify::tool_failure(&finished),
                classify::detail(&finished, ""),
            )),
            Err(error) => Err(failed(classify::run_failure(&error), error.words())),
        }
    }
}

/// The count that a line of `-save -c` tells, if it is of a chain whose rules count. Other rules, which are nearly all, are not
/// looked at any closer.
fn count_of(table: TableName, family: Family, line: &str) -> Option<RuleCount> {
    let counted = parse::counted_line(line)?;
    let is_ours = CHAINS
        .iter()
        .any(|(of, chain)| *of == table && chain.as_str() == counted.chain);
    let rule = is_ours.then(|| parse::rule(counted.words, family))??;
    Some(RuleCount {
        id: number(&(table, counted.chain, counted.words)),
        table,
        rule,
        packets: counted.packets,
    })
}

/// A number for what names a rule; the same for the same name while the process lives.
fn number(name: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
