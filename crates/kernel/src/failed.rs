//! What the last failing restore of each family was given, kept for whoever looks into it.

use crate::CommitError;
use model::{Family, PerFamily};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// How much of an input is kept, in bytes.
const KEPT: usize = 1 << 20;

/// The input of a restore that failed.
#[derive(Clone, Debug)]
pub struct FailedInput {
    /// When.
    pub at: SystemTime,
    /// What was attempted and what was answered.
    pub error: CommitError,
    /// The input, or its first lines.
    pub input: String,
    /// How many bytes of it were left out at the end.
    pub cut: usize,
}

/// The last of each family. Its clones are the same.
#[derive(Clone, Debug, Default)]
pub struct FailedInputs(Arc<Mutex<PerFamily<Option<FailedInput>>>>);

impl FailedInputs {
    /// The last of a family, if a restore of it has ever failed.
    pub fn last(&self, family: Family) -> Option<FailedInput> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(family)
            .clone()
    }

    pub(crate) fn keep(&self, family: Family, input: &str, error: &CommitError) {
        let mut end = input.len().min(KEPT);
        if end < input.len() {
            let bytes = &input.as_bytes()[..end];
            end = bytes
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
        }
        let failed = FailedInput {
            at: SystemTime::now(),
            error: error.clone(),
            input: input[..end].to_owned(),
            cut: input.len() - end,
        };
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *families.get_mut(family) = Some(failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FailureKind;

    fn kept(input: &str) -> FailedInput {
        let inputs = FailedInputs::default();
        let error = CommitError {
            attempted: "a restore".to_owned(),
            kind: FailureKind::Refused,
            detail: "no".to_owned(),
        };
        inputs.clone().keep(Family::V4, input, &error);
        assert!(inputs.last(Family::V6).is_none());
        inputs.last(Family::V4).expect("kept")
    }

    #[test]
    fn a_small_input_is_kept_whole() {
        let failed = kept("*nat\nCOMMIT\n");
        assert_eq!((failed.input.as_str(), failed.cut), ("*nat\nCOMMIT\n", 0));
    }

    #[test]
    fn of_a_large_input_whole_lines_are_kept() {
        let input = "-A KUBE-SERVICES -j \u{e9}\n".repeat(100_000);
        let failed = kept(&input);
        assert!(failed.input.len() <= KEPT && failed.input.ends_with('\n'));
        assert_eq!(failed.input.len() + failed.cut, input.len());
    }
}
