//! `kube-proxy completion` and `kube-proxy man`: what `--help` says, for shells and for `man`.
//!
//! Both are made from the very command that reads the arguments, so that they cannot tell of flags that are not there.

use crate::failure::Answer;
use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What the lab does; it reads its words itself.
const LAB: [(&str, &str); 8] = [
    ("tour", "What Services are, step by step, with real packets"),
    (
        "demo",
        "Three requests through a Service, every rule predicted and observed",
    ),
    ("up", "Build a lab that stays until `lab down`"),
    ("run", "Build a lab for one command"),
    ("down", "Remove everything of a lab"),
    ("show", "Say what a running lab consists of"),
    ("probe", "Connect from a place of a running lab"),
    ("exec", "Run a command at a place of a running lab"),
];

/// Print what a shell needs to complete commands and flags.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  kube-proxy completion bash > /etc/bash_completion.d/kube-proxy
  kube-proxy completion zsh > \"${fpath[1]}/_kube-proxy\"
  kube-proxy completion fish > ~/.config/fish/completions/kube-proxy.fish")]
pub struct CompletionArgs {
    /// The shell.
    shell: Shell,
}

/// Print the manual page, or write one for every command.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  kube-proxy man | man -l -
  kube-proxy man --dir /usr/local/share/man/man8")]
pub struct ManArgs {
    /// The command whose page to print; without it, the daemon's.
    #[arg(value_name = "COMMAND", conflicts_with = "dir")]
    command: Option<String>,
    /// Write all pages into this folder, which has to be there.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the completions of `command`.
///
/// # Errors
/// When stdout cannot be written.
pub fn complete(args: &CompletionArgs, command: Command) -> Result<Answer> {
    let mut lab = command.find_subcommand("lab").map_or_else(
        || Command::new("lab"),
        |lab| Command::new("lab").about(lab.get_about().cloned().unwrap_or_default()),
    );
    lab = lab.subcommands(LAB.map(|(name, about)| Command::new(name).about(about)));
    // Into memory first: the generator panics where it cannot write.
    let mut text = Vec::new();
    let mut whole = command.mut_subcommand("lab", |_| lab);
    clap_complete::generate(args.shell, &mut whole, "kube-proxy", &mut text);
    io::stdout()
        .write_all(&text)
        .context("printing the completions")?;
    Ok(Answer::Clean)
}

/// Prints a page, or writes them all.
///
/// # Errors
/// When there is no such command, or a page cannot be written.
pub fn man(args: &ManArgs, command: &Command) -> Result<Answer> {
    match (&args.dir, &args.command) {
        (Some(dir), _) => write_all(dir, command)?,
        (None, None) => {
            let page = page(command.clone(), "kube-proxy")?;
            io::stdout().write_all(&page).context("printing the page")?;
        }
        (None, Some(name)) => {
            let known = || {
                let names: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
                format!("there is no command {name:?}; there are {}", names.join(", "))
            };
            let tool = command.find_subcommand(name).with_context(known)?;
            let page = page(tool.clone(), &page_name(tool))?;
            io::stdout().write_all(&page).context("printing the page")?;
        }
    }
    Ok(Answer::Clean)
}

fn write_all(dir: &Path, command: &Command) -> Result<()> {
    let tools = command.get_subcommands().filter(|tool| !tool.is_hide_set());
    let pages = tools.map(|tool| (tool.clone(), page_name(tool)));
    for (command, name) in std::iter::once((command.clone(), "kube-proxy".to_owned())).chain(pages) {
        let path = dir.join(format!("{name}.8"));
        fs::write(&path, page(command, &name)?).with_context(|| format!("writing {}", path.display()))?;
        anstream::println!("{}", path.display());
    }
    Ok(())
}

fn page_name(tool: &Command) -> String {
    format!("kube-proxy-{}", tool.get_name())
}

/// One page of section 8, for those who run a system.
fn page(command: Command, name: &str) -> Result<Vec<u8>> {
    let usage = name.replacen("kube-proxy-", "kube-proxy ", 1);
    let command = command.name(name.to_owned()).display_name(name).bin_name(usage);
    let mut page = Vec::new();
    Man::new(command)
        .section("8")
        .manual("kube-proxy-rs")
        .render(&mut page)
        .with_context(|| format!("making the page {name}"))?;
    Ok(page)
}
