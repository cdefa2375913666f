//! `kube-proxy lab`: the crate `lab` does it all; here is only its place on the command line. The demonstration
//! and the tour alone are ours: they know rules and `trace`, which the lab does not.

use crate::failure::Answer;
use crate::{demo, tour};
use anyhow::Result;

/// A small cluster out of network namespaces, to try things with real packets.
#[derive(clap::Args, Debug)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Words for the lab; `kube-proxy lab` alone lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The lab's own commands. People who saw one leave the word `lab` out.
pub(crate) const COMMANDS: [&str; 8] = ["demo", "tour", "up", "run", "down", "show", "probe", "exec"];

/// Hands the words to the lab; it ends the process with a status of its own.
///
/// # Errors
/// When this program's own path can't be told.
pub fn run(args: &Args) -> Result<Answer> {
    match args.words.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        Some(("demo", rest)) => return demo::run(rest),
        Some(("tour", rest)) => return tour::run(rest),
        _ => {}
    }
    let program = std::env::current_exe()?;
    let ourselves = [program.to_string_lossy().into_owned(), "lab".to_owned()];
    match lab::cli::run(&args.words, &ourselves) {
        0 => Ok(Answer::Clean),
        1 => Ok(Answer::Findings),
        status => std::process::exit(i32::from(status)),
    }
}
