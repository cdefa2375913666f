//! Runs a command of this machine on an older kernel: a virtual machine without KVM and without network devices, whose
//! root is this machine's own file system, read-only, with a layer in memory over it.
//!
//! The kernel is a package of Debian's, fetched when it is first wanted and kept under `target/guest`.
//! Cargo runs tests by it when it is named as the runner; `cargo xtask guest` does that.

mod boot;
mod command;
mod download;
mod initramfs;
mod kernel;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use std::time::Duration;

/// Run a command on an older kernel, in a virtual machine.
#[derive(Parser)]
#[command(name = "guest")]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Fetch a kernel, and print where it is.
    Fetch {
        /// Which.
        #[arg(long, value_enum, default_value_t)]
        kernel: kernel::Version,
    },
    /// Boot a kernel and run a command on it, in this folder; what it prints is printed, and its status is passed on.
    Run {
        /// Which.
        #[arg(long, value_enum, default_value_t)]
        kernel: kernel::Version,
        /// After so many seconds the machine is switched off, and that is a failure.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// The command.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<ExitCode> {
    if std::env::consts::ARCH != "x86_64" {
        bail!("guests are x86-64 machines that run this machine's own programs, and this machine is not one");
    }
    match verb {
        Verb::Fetch { kernel } => {
            println!("{}", kernel::Kernel::fetch(kernel)?.image.display());
            Ok(ExitCode::SUCCESS)
        }
        Verb::Run {
            kernel,
            seconds,
            command,
        } => {
            let kernel = kernel::Kernel::fetch(kernel)?;
            let code = boot::run(&kernel, &command, Duration::from_secs(seconds))?;
            Ok(ExitCode::from(code))
        }
    }
}
