//! The daemon: flags and configuration in, [`proxy`] out.

use crate::daemon_args::DaemonArgs;
use anyhow::{Result, bail};
use clap::ArgMatches;

/// Runs until killed.
///
/// # Errors
/// Anything that makes serving impossible at start.
pub fn run(matches: &ArgMatches) -> Result<()> {
    let args = DaemonArgs::from_matches(matches)?;
    bail!(
        "{} {:?} {:?} {:?} {:?}",
        args.node_name,
        args.master,
        args.manifests,
        args.warnings,
        args.config.mode
    )
}
