//! Commits on legacy: one restore per table holds all of a step, since each hands the whole table back to the kernel.

use super::{LiveKernel, Missing};
use crate::probe::SMALL_CALL;
use crate::{CommitError, classify};
use iptables::ast::TableName;
use iptables::plan::Step;
use iptables::render::{StepText, Tool as Reader};
use model::Family;

impl LiveKernel {
    pub(super) fn commit_legacy(&mut self, family: Family, step: &Step) -> Result<(), CommitError> {
        self.make_chains_by_tool(family, step)?;
        for table in TableName::ALL {
            self.restore_table(family, only(step, table))?;
        }
        Ok(())
    }

    /// `-N` fails for a chain that is there, and that is as good.
    fn make_chains_by_tool(&self, family: Family, step: &Step) -> Result<(), CommitError> {
        let tools = self.tools(family).map_err(Missing::for_commit)?;
        for (table, chain) in (StepText {
            step,
            family,
            tool: Reader::Legacy,
        })
        .chains_to_make_first()
        {
            let mut args = tools.wait_flags().to_vec();
            args.extend(["-t", table.as_str(), "-N", chain.as_str()]);
            match self.run(&tools.iptables, &args, "", SMALL_CALL) {
                Err(error) if !error.detail.contains("Chain already exists") => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Restores one table's part. The tool refuses to delete a rule that is not there and names the line, before
    /// anything has been changed: that line is left out then.
    fn restore_table(&self, family: Family, mut step: Step) -> Result<(), CommitError> {
        loop {
            let text = StepText {
                step: &step,
                family,
                tool: Reader::Legacy,
            }
            .to_string();
            let error = match self.restore(family, &text) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match refused_deletion(&error, &text) {
                Some(which) if which < step.delete.len() => {
                    step.delete.remove(which);
                }
                _ => return Err(self.kept(family, &text, error)),
            }
        }
    }
}

/// Which of the text's deletions, counted from zero, the tool could not find a rule for.
fn refused_deletion(error: &CommitError, text: &str) -> Option<usize> {
    let line = classify::named_line(&error.detail)?.checked_sub(1)?;
    let is_deletion = |line: &&str| line.starts_with("-D ");
    text.lines().nth(line).filter(is_deletion)?;
    Some(text.lines().take(line).filter(is_deletion).count())
}

/// A step's part in one table.
fn only(step: &Step, table: TableName) -> Step {
    Step {
        services: Vec::new(),
        write: step
            .write
            .get(&table)
            .map(|write| (table, write.clone()))
            .into_iter()
            .collect(),
        delete: step
            .delete
            .iter()
            .filter(|(t, _, _)| *t == table)
            .cloned()
            .collect(),
        retire: step.retire.iter().filter(|(t, _)| *t == table).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;

    #[test]
    fn only_a_deletion_line_is_left_out() {
        let text = "*nat\n:A - [0:0]\n-D B -j A\n-D C -j A\n-A A -j ACCEPT\nCOMMIT\n";
        let error = |detail: &str| CommitError {
            attempted: String::new(),
            kind: FailureKind::Refused,
            detail: detail.to_owned(),
        };
        assert_eq!(
            refused_deletion(&error("iptables-restore: line 4 failed"), text),
            Some(1)
        );
        assert_eq!(
            refused_deletion(&error("iptables-restore: line 3 failed"), text),
            Some(0)
        );
        assert_eq!(
            refused_deletion(&error("iptables-restore: line 5 failed"), text),
            None
        );
        assert_eq!(refused_deletion(&error("no line"), text), None);
    }
}
