//! `kube-proxy trace`: where a packet goes on a host, and why.
//!
//! Reads rules and facts into a [`path::Host`], asks [`path::trace`], and prints the answer as text or JSON. Exit
//! status: 0 when the question was answered, 2 when it could not be.

mod args;
mod describe;
mod json;
mod text;

#[cfg(test)]
mod tests;

pub use args::{Form, TraceArgs};

use anyhow::Context;
use iptables::trace::LocalAddresses;
use model::{Family, Origin, Packet};
use path::{Detail, Host};
use std::io::{Read, Write};
use std::process::ExitCode;

/// Could not answer.
const NO_ANSWER: u8 = 2;

/// Answers one question on standard output.
///
/// Without `--dump`, `load` says what host it is about: its rules and facts of the packet's family.
pub fn run(args: &TraceArgs, load: impl FnOnce(Family) -> anyhow::Result<Host>) -> ExitCode {
    let mut out = anstream::stdout().lock();
    match answer_into(args, load, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has read enough.
        Err(err) if is_closed_pipe(&err) => ExitCode::SUCCESS,
        Err(err) => {
            let _ = writeln!(anstream::stderr(), "kube-proxy trace: {err:#}");
            ExitCode::from(NO_ANSWER)
        }
    }
}

fn is_closed_pipe(err: &anyhow::Error) -> bool {
    err.downcast_ref::<std::io::Error>()
        .is_some_and(|err| err.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Answers one question into `out`.
///
/// # Errors
/// When rules could not be read, the question makes no sense, or `out` could not be written.
pub fn answer_into(
    args: &TraceArgs,
    load: impl FnOnce(Family) -> anyhow::Result<Host>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let family = Family::of(args.to.ip());
    anyhow::ensure!(
        Family::of(args.from.ip) == family,
        "--from {} and --to {} are of different families",
        args.from.ip,
        args.to
    );
    let mut host = match &args.dump {
        Some(file) => dumped(file, family)?,
        None => load(family)?,
    };
    args.add_facts(&mut host);
    let packet = packet(args, &host);
    let detail = if args.evaluated {
        Detail::Everything
    } else {
        Detail::Met
    };
    let answer = path::trace(&host, &packet, detail);
    match args.output {
        Form::Text => text::write(out, &host, &answer, args)?,
        Form::Json => json::write(out, &host, &answer)?,
    }
    out.flush()?;
    Ok(())
}

/// The rules of an `iptables-save` file, on a host of which nothing else is known.
fn dumped(file: &str, family: Family) -> anyhow::Result<Host> {
    let mut text = String::new();
    if file == "-" {
        std::io::stdin()
            .read_to_string(&mut text)
            .context("reading rules from standard input")?;
    } else {
        text = std::fs::read_to_string(file).with_context(|| format!("reading rules from {file}"))?;
    }
    let saved = iptables::parse::save(&text, family);
    // A rule that was not understood may be the one that decides, and shifts the numbers of those behind it.
    let rule = saved.opaque.iter().find(|line| line.text.contains("-A "));
    if let Some(line) = rule {
        anyhow::bail!(
            "{file}, line {}: not a rule of iptables-save: {}",
            line.line,
            line.text
        );
    }
    anyhow::ensure!(
        !saved.ruleset.tables.is_empty(),
        "{file} holds no table of iptables-save"
    );
    let mut host = Host::default();
    *host.rules.get_mut(family) = saved.ruleset;
    Ok(host)
}

/// The packet that was asked about. A source that is the host's own, without an interface, means that the host sends it.
fn packet(args: &TraceArgs, host: &Host) -> Packet {
    let own = match &host.addresses {
        LocalAddresses::Known(all) => all.contains(&args.from.ip),
        LocalAddresses::Unknown => false,
    };
    let own = own
        || args.from.ip.is_loopback()
        || host
            .interfaces
            .iter()
            .any(|i| i.addresses.iter().any(|net| net.addr() == args.from.ip));
    let origin = match &args.in_interface {
        Some(name) => Origin::Interface(name.as_str().into()),
        None if own || args.sent_here => Origin::Host,
        None => Origin::Interface("".into()),
    };
    let mut packet = Packet::new(args.from.ip, args.to, args.proto.into(), origin);
    if let Some(port) = args.from.port {
        packet.src_port = port;
    }
    packet.mark = args.mark.unwrap_or(0);
    packet
}
