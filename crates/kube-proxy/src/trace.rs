//! `kube-proxy trace`: where a packet goes on a host, and why.
//!
//! Reads rules and facts into a [`path::Host`], asks [`path::trace`], and prints the answer as text, JSON or a drawing; or
//! follows real packets ([`observe`]). Exit status: 0 when the question was answered, 1 when a real packet took a way
//! that is not among those, 2 when there is no answer.

mod args;
pub(crate) mod describe;
mod drawing;
mod dump;
mod json;
mod live;
mod observe;
mod packets;
mod rendered;
mod text;
pub mod watchdog;

#[cfg(test)]
mod tests;

use crate::failure::Answer;
use crate::harmless::Harmless;
use crate::input::ClusterArgs;
use args::{Form, Question, TraceArgs};
use drawing::Language;
pub(crate) use dump::{add_native, ensure_is_native, is_native, left_out_of, read_dump, rules_of};

use model::{Family, Origin, Packet};
use path::{Detail, Host, LocalAddresses};
use std::io::{BufWriter, Write};
use std::net::IpAddr;

/// Show every way a packet can take, rule by rule, with its chance, and where it ends.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Rules come from --dump, or are rendered from --manifests, or are this host's own. With --live they are this host's,
and --manifests gives names.

Examples:
  kube-proxy trace --manifests ./cluster --node node-a --from 10.244.1.7 --to 10.1.68.7:8080
  iptables-save | kube-proxy trace --dump - --from 203.0.113.9 --to 192.168.50.238:31080 --in-interface eth0
  nft list ruleset | kube-proxy trace --dump - --from 10.244.1.7 --to 10.96.0.10:53 --proto udp
  kube-proxy trace --from 10.244.1.7 --to 10.96.0.10:53 --proto udp --output svg > way.svg
  kube-proxy trace --live --to 10.96.0.10:53 --proto udp --count 3 --manifests ./cluster

Rules that cannot be decided may have more ways than anybody can follow. Those beyond 65536, or beyond some seconds of work, are ways that
end \"cannot be decided\" and say so; what is shown of the others is whole.

Exit status: 0 the question was answered, even if a way cannot be decided; 1 with --live --check, a packet took another way; 2 no answer."
)]
pub struct Args {
    #[command(flatten)]
    trace: TraceArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Answers on standard output.
///
/// # Errors
/// When rules could not be read, the question makes no sense, or stdout is closed.
pub fn run(args: &Args) -> anyhow::Result<Answer> {
    let mut out = BufWriter::new(Harmless::new(anstream::stdout().lock()));
    if args.trace.live.live {
        return observe::run(&args.trace, args.cluster.manifests.as_deref(), &mut out);
    }
    answer_into(&args.trace, |family| args.host(family), &mut out)?;
    Ok(Answer::Clean)
}

impl Args {
    /// The host whose rules are meant: rendered from manifests, or this one.
    fn host(&self, family: Family) -> anyhow::Result<Host> {
        if self.cluster.manifests.is_none() {
            let mut host = live::host(family)?;
            live::add_sets(&mut host, family);
            return Ok(host);
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
        Ok(rendered::host(&world, family))
    }
}

/// Answers a question, or a file of them, into `out`.
///
/// # Errors
/// When rules could not be read, the question makes no sense, or `out` could not be written.
pub fn answer_into(
    args: &TraceArgs,
    load: impl Fn(Family) -> anyhow::Result<Host>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let load = |family| {
        let mut host = match args.dump.as_slice() {
            [] => load(family)?,
            files => dump::host(files, family)?,
        };
        args.add_facts(&mut host);
        Ok(host)
    };
    if let Some(file) = &args.packets {
        packets::answer(file, args, &load, out)?;
        return Ok(out.flush()?);
    }
    let question = args.packet.question()?;
    let host = load(question.family())?;
    let detail = if args.evaluated {
        Detail::Everything
    } else {
        Detail::Met
    };
    let answer = path::trace(&host, &packet(&question, &host), detail);
    match args.output {
        Form::Text => text::write(out, &host, &answer, args)?,
        Form::Json => json::write(out, &host, &answer, json::Room::of(args.full))?,
        Form::Mermaid => drawing::write(out, Language::Mermaid, (&host, &answer), args)?,
        Form::Dot => drawing::write(out, Language::Dot, (&host, &answer), args)?,
        Form::Svg => drawing::write(out, Language::Svg, (&host, &answer), args)?,
    }
    out.flush()?;
    Ok(())
}

/// The packet that was asked about. A source that is the host's own, without an interface, means that the host sends it.
fn packet(question: &Question, host: &Host) -> Packet {
    let from = question.from.ip;
    let own = match &host.addresses {
        LocalAddresses::Known(all) => all.contains(&from),
        LocalAddresses::Unknown => false,
    };
    let own = own
        || from.is_loopback()
        || host
            .interfaces
            .iter()
            .any(|i| i.addresses.iter().any(|net| net.addr() == from));
    let origin = match &question.in_interface {
        Some(name) => Origin::Interface(name.as_str().into()),
        None if own || question.sent_here => Origin::Host,
        None => Origin::Interface("".into()),
    };
    let mut packet = Packet::new(from, question.to, question.proto, origin);
    if let Some(port) = question.from.port {
        packet.src_port = port;
    }
    packet.mark = question.mark;
    packet
}
