//! `kube-proxy trace`: where a packet goes on a host, and why.
//!
//! Reads rules and facts into a [`path::Host`], asks [`path::trace`], and prints the answer as text or JSON. Exit
//! status: 0 when the question was answered, 2 when it could not be.

mod args;
pub(crate) mod describe;
mod json;
mod live;
mod text;

#[cfg(test)]
mod tests;

use crate::failure::Answer;
use crate::input::{ClusterArgs, EVERY_CAPABILITY};
use args::{Form, TraceArgs};

use anyhow::Context;
use iptables::trace::LocalAddresses;
use model::{Family, Origin, Packet};
use path::{Detail, Host};
use std::io::{BufWriter, Read, Write};
use std::net::IpAddr;

/// Show every way a packet can take, rule by rule, with its chance, and where it ends.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Rules come from --dump, or are rendered from --manifests, or are this host's own.

Examples:
  kube-proxy trace --manifests ./cluster --node node-a --from 10.244.1.7 --to 10.1.68.7:8080
  iptables-save | kube-proxy trace --dump - --from 203.0.113.9 --to 192.168.50.238:31080 --in-interface eth0
  kube-proxy trace --from 10.244.1.7 --to 10.96.0.10:53 --proto udp --output json"
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Answers one question on standard output.
///
/// # Errors
/// When rules could not be read, the question makes no sense, or stdout is closed.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let mut out = BufWriter::new(anstream::stdout().lock());
    answer_into(&args.trace, |family| args.host(family), &mut out)?;
    Ok(Answer::Clean)
}

impl Args {
    /// The host whose rules are meant: rendered from manifests, or this one.
    fn host(&self, family: Family) -> anyhow::Result<Host> {
        if self.cluster.manifests.is_none() {
            return live::host(family);
        }
        let interfaces = self
            .trace
            .interface
            .iter()
            .map(|interface| interface.address.addr());
        let own: Vec<IpAddr> = self
            .trace
            .local_address
            .iter()
            .copied()
            .chain(interfaces)
            .collect();
        let world = self.cluster.load(&own)?;
        let mut host = Host {
            addresses: LocalAddresses::Known(world.facts.interface_addresses.iter().copied().collect()),
            ..Host::default()
        };
        *host.rules.get_mut(family) = world.ruleset(family, EVERY_CAPABILITY);
        Ok(host)
    }
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
    let text = read_dump(file)?;
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
    let last = text.lines().rev().find(|line| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    anyhow::ensure!(
        last.is_some_and(|line| line.trim() == "COMMIT"),
        "{file} does not end with COMMIT: its end is missing"
    );
    let mut host = Host::default();
    *host.rules.get_mut(family) = saved.ruleset;
    Ok(host)
}

/// Largest dump that is read, in bytes; a million rules take 200 MB.
const LARGEST_DUMP: u64 = 256 << 20;

/// The text of a dump. Comments may be in any encoding: what is not UTF-8 in them decides nothing.
fn read_dump(file: &str) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let context = || format!("reading rules from {file}");
    let input: Box<dyn Read> = match file {
        "-" => Box::new(std::io::stdin().lock()),
        path => Box::new(std::fs::File::open(path).with_context(context)?),
    };
    input
        .take(LARGEST_DUMP + 1)
        .read_to_end(&mut bytes)
        .with_context(context)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    anyhow::ensure!(
        length <= LARGEST_DUMP,
        "{file} is larger than {} MB: cut out the tables that matter",
        LARGEST_DUMP >> 20
    );
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
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
