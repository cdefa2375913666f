//! How full the connection table is, and what it had to refuse.

use crate::sysctl::{self, SysctlError};
use std::io;

/// Entries in this network namespace.
const COUNT: &str = "net/netfilter/nf_conntrack_count";
/// The most entries, in all network namespaces together.
const MAX: &str = "net/netfilter/nf_conntrack_max";
/// Counters of each CPU, in hexadecimal columns under a line of names.
const PER_CPU: &str = "/proc/net/stat/nf_conntrack";

/// How full the table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Entries there are.
    pub entries: u64,
    /// Entries there may be; 0 is no limit.
    pub limit: u64,
}

impl Fill {
    /// Between 0 and 1, more if the limit was lowered meanwhile; 0 without a limit.
    pub fn ratio(&self) -> f64 {
        if self.limit == 0 {
            return 0.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "tables have fewer than 2^52 entries")]
        let (entries, limit) = (self.entries as f64, self.limit as f64);
        entries / limit
    }
}

/// What went wrong in the table since the namespace was made, summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets of which nothing could be made.
    pub invalid: u64,
    /// New flows that collided with one that was confirmed meanwhile, such as two with the same source port after NAT.
    pub insert_failed: u64,
    /// Packets dropped because the table was full, or memory short.
    pub drop: u64,
    /// Entries thrown out early to make room.
    pub early_drop: u64,
}

/// Numbers that could not be had.
#[derive(Debug, thiserror::Error)]
pub enum StatsError {
    /// A sysctl.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A sysctl that is no number.
    #[error("{name} holds {text:?}, which is no number")]
    NoNumber {
        /// Which.
        name: &'static str,
        /// What it holds.
        text: String,
    },
    /// The file of counters; a kernel without `CONFIG_NF_CONNTRACK_PROCFS` has none.
    #[error("could not read {PER_CPU}")]
    Counters(#[source] io::Error),
    /// The file of counters has another form.
    #[error("{PER_CPU} has no column {0}")]
    NoColumn(&'static str),
}

/// How full the table is.
///
/// # Errors
/// When conntrack is not there, or hidden.
pub fn fill() -> Result<Fill, StatsError> {
    Ok(Fill {
        entries: number(COUNT)?,
        limit: number(MAX)?,
    })
}

/// What went wrong so far.
///
/// # Errors
/// When the kernel does not tell it this way.
pub fn counters() -> Result<Counters, StatsError> {
    let text = std::fs::read_to_string(PER_CPU).map_err(StatsError::Counters)?;
    read_counters(&text)
}

fn number(name: &'static str) -> Result<u64, StatsError> {
    let text = sysctl::read(name)?;
    text.parse().map_err(|_| StatsError::NoNumber { name, text })
}

/// Columns have come and gone over the kernel's versions, so they are found by their names.
fn read_counters(text: &str) -> Result<Counters, StatsError> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    let cpus: Vec<Vec<&str>> = lines
        .map(|line| line.split_ascii_whitespace().collect())
        .collect();
    let sum = |name: &'static str| {
        let column = names.iter().position(|each| *each == name);
        let column = column.ok_or(StatsError::NoColumn(name))?;
        let values = cpus.iter().filter_map(|cpu| cpu.get(column));
        Ok::<u64, StatsError>(values.filter_map(|hex| u64::from_str_radix(hex, 16).ok()).sum())
    };
    Ok(Counters {
        invalid: sum("invalid")?,
        insert_failed: sum("insert_failed")?,
        drop: sum("drop")?,
        early_drop: sum("early_drop")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a 6.18 kernel, numbers changed.
    const TEXT: &str = "\
entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  expect_new expect_create expect_delete search_restart
00000005  00000000 00000000 00000000 0000001a 00000000 00000000 00000000 00000000 00000002 00000010 00000001 00000000  00000000 00000000 00000000 00000000
00000005  00000000 00000000 00000000 00000001 00000000 00000000 00000000 00000000 00000003 00000001 00000000 00000000  00000000 00000000 00000000 00000000
";

    #[test]
    fn counters_are_hexadecimal_and_summed_over_cpus() {
        let want = Counters {
            invalid: 27,
            insert_failed: 5,
            drop: 17,
            early_drop: 1,
        };
        assert_eq!(read_counters(TEXT).unwrap(), want);
    }

    #[test]
    fn a_file_of_another_form_is_an_error_that_names_the_column() {
        let error = read_counters("entries found\n00000000 00000000\n").unwrap_err();
        assert!(error.to_string().contains("invalid"), "{error}");
    }

    #[test]
    fn the_table_is_four_fifths_full_at_80_of_100() {
        let fill = |entries, limit| Fill { entries, limit }.ratio();
        assert!((fill(80, 100) - 0.8).abs() < 1e-9);
        assert!(fill(1, 0).abs() < 1e-9);
    }
}
