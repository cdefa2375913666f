//! How answers are shown.

use clap::ValueEnum;
use std::io::IsTerminal as _;

/// The form of an answer, and its width.
#[derive(clap::Args, Clone, Debug)]
pub struct ShownArgs {
    /// Columns to fit the text into; without it the terminal's, at most 100, and 80 where there is none.
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Form of the answer.
    #[arg(long, short, default_value = "text")]
    pub output: Form,
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl ShownArgs {
    /// Columns to fit text into.
    pub fn columns(&self) -> usize {
        const USUAL: usize = 80;
        const WIDEST: usize = 100;
        let of_shell = || std::env::var("COLUMNS").ok()?.parse::<usize>().ok();
        match self.width {
            Some(width) => width,
            None if std::io::stdout().is_terminal() => of_shell().unwrap_or(USUAL).min(WIDEST),
            None => USUAL,
        }
    }
}
