//! `kube-proxy trace --live`: real packets, followed through the rules of this host as they pass.
//!
//! [`PacketWatch`] tells which rules a packet met; [`rulebook`] gives each its words, [`names`] knows the objects,
//! [`check`] compares with what [`path::trace`] says, [`tell`] prints. Nothing is left behind: the table that asks the
//! kernel for traces is owned by a socket of this process (ADR 62).

mod check;
mod names;
mod rulebook;
mod tell;

use super::args::{Form, PacketArgs, TraceArgs};
use super::{dump, live};
use crate::failure::Answer;
use anyhow::{Context as _, Result, bail, ensure};
use check::Check;
use kernel::passage::Passage;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, PacketWatch, Share, Traced};
use model::{Family, Protocol};
use names::Names;
use path::Host;
use rulebook::{Rulebook, Witnessed};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Packets that are traced in a second, for each protocol and direction: with more, tracing would be a load of its own.
const RATE: u64 = 100;
/// How often a look is taken at whether it is time to end.
const STEP: Duration = Duration::from_millis(100);

/// A packet that was followed to its end.
struct Followed {
    /// Its number, from 1.
    number: usize,
    /// Since the beginning.
    after: Duration,
    passage: Passage,
    /// The interface it came in through, and the one it goes out through.
    interfaces: [Option<String>; 2],
    met: Vec<Witnessed>,
    check: Option<Check>,
}

/// Follows packets until there were enough, or the time is over.
///
/// # Errors
/// When `nf_tables` cannot be asked, or rules could not be read.
pub(super) fn run(args: &TraceArgs, manifests: Option<&Path>, out: &mut dyn Write) -> Result<Answer> {
    ensure!(
        matches!(args.output, Form::Text | Form::Json),
        "--live tells of packets as they pass: --output is text or json then"
    );
    ensure!(
        args.dump.is_empty() || args.live.check,
        "--live follows packets through this host's own rules; with --check, those of --dump are compared with"
    );
    let names = manifests.map(Names::read).transpose()?.unwrap_or_default();
    let families = families(&args.packet)?;
    refuse_legacy(&families)?;
    let own = format!("kube-proxy-trace-{}", std::process::id());
    let mut live = Live {
        args,
        names,
        rulebook: Rulebook::read(&families, &own)?,
        expected: expected(args, &families)?,
        interfaces: kernel::addresses::interface_names().context("cannot read this host's interfaces")?,
        begun: Instant::now(),
        told: 0,
        disagreements: 0,
    };
    let traced = live.traced()?;
    let watch = PacketWatch::start(&families, &own, &traced, Share::PerSecond(RATE));
    let mut watch =
        watch.context("cannot ask nf_tables to trace packets; this needs root (CAP_NET_ADMIN)")?;
    live.begun = Instant::now();
    anstream::eprintln!(
        "following up to {} packets for {:?}: {}",
        args.live.count,
        args.live.time,
        words(&args.packet)
    );
    live.follow(&mut watch, out)?;
    live.summary(&watch);
    let found = live.disagreements > 0;
    Ok(if found { Answer::Findings } else { Answer::Clean })
}

/// What is known while packets are followed.
struct Live<'a> {
    args: &'a TraceArgs,
    names: Names,
    rulebook: Rulebook,
    /// The rules to compare with, where those are others than this host's.
    expected: BTreeMap<Family, Host>,
    interfaces: BTreeMap<u32, String>,
    begun: Instant,
    told: usize,
    disagreements: usize,
}

impl Live<'_> {
    /// What the kernel is asked for: a rule for each protocol, since ports are those of a protocol.
    fn traced(&self) -> Result<Vec<Traced>> {
        let packet = &self.args.packet;
        let in_interface = match &packet.in_interface {
            None => None,
            Some(name) => {
                let found = self.interfaces.iter().find(|(_, known)| *known == name);
                Some(
                    *found
                        .with_context(|| format!("--in-interface {name}: this host has none of that name"))?
                        .0,
                )
            }
        };
        let one = |protocol: Option<Protocol>| Traced {
            source: packet.from.map(|from| from.ip),
            source_port: packet.from.and_then(|from| from.port),
            destination: packet.to.map(|to| to.ip),
            port: packet.to.and_then(|to| to.port),
            protocol: protocol.map(Protocol::number),
            in_interface,
        };
        let has_port = [packet.from, packet.to]
            .iter()
            .flatten()
            .any(|side| side.port.is_some());
        Ok(match packet.proto {
            Some(protocol) => vec![one(Some(protocol.into()))],
            None if has_port => Protocol::ALL
                .into_iter()
                .map(|protocol| one(Some(protocol)))
                .collect(),
            None => vec![one(None)],
        })
    }

    fn follow(&mut self, watch: &mut PacketWatch, out: &mut dyn Write) -> Result<()> {
        let end = self.begun + self.args.live.time;
        while self.told < self.args.live.count && Instant::now() < end {
            let until = end.min(Instant::now() + STEP);
            let passages = watch.wait(until).context("cannot read what nf_tables tells")?;
            self.tell(passages, out)?;
        }
        let rest = watch.rest();
        self.tell(rest, out)
    }

    fn tell(&mut self, passages: Vec<Passage>, out: &mut dyn Write) -> Result<()> {
        for passage in passages {
            let is_wanted = !self.args.packet.sent_here || passage.sent_here;
            if self.told >= self.args.live.count || !is_wanted {
                continue;
            }
            self.told += 1;
            let followed = self.followed(passage)?;
            if let Some(Check::Disagrees(_)) = followed.check {
                self.disagreements += 1;
            }
            match self.args.output {
                Form::Json => tell::json(out, &followed, &self.names)?,
                _ => tell::text(out, &followed, &self.names, self.args)?,
            }
            out.flush()?;
        }
        Ok(())
    }

    fn followed(&mut self, passage: Passage) -> Result<Followed> {
        let family = Family::of(passage.before.destination);
        let met = self.rulebook.words(family, &passage)?;
        let interfaces = [passage.in_interface, passage.out_interface];
        let interfaces = interfaces.map(|index| self.interfaces.get(&index?).cloned());
        let host = self.expected.get(&family).or_else(|| self.rulebook.host(family));
        let check = match (self.args.live.check, host) {
            (true, Some(host)) => Some(check::check(host, &passage, interfaces[0].as_deref(), &met)),
            _ => None,
        };
        Ok(Followed {
            number: self.told,
            after: passage.began.saturating_duration_since(self.begun),
            passage,
            interfaces,
            met,
            check,
        })
    }

    /// The last lines, beside what was asked for.
    fn summary(&self, watch: &PacketWatch) {
        match self.told {
            0 => anstream::eprintln!(
                "no packet came by that fits. Those of connections that the fast path of a network card or of a flow table carries are not seen"
            ),
            told => anstream::eprintln!("{told} packets followed"),
        }
        if watch.losses() > 0 {
            anstream::eprintln!(
                "warning: the kernel had more to tell than could be taken, {} times (ENOBUFS): ways may have gaps; narrow it down with --from, --to and --proto",
                watch.losses()
            );
        }
        if watch.strangers() > 0 {
            anstream::eprintln!(
                "note: {} steps of other packets were told and left out: somebody else traces as well, or their beginnings were lost",
                watch.strangers()
            );
        }
        if self.args.live.check {
            anstream::eprintln!("{} took a way that trace does not give", self.disagreements);
        }
    }
}

/// What is followed, in words.
fn words(packet: &PacketArgs) -> String {
    let side = |word: &str, side: Option<super::args::Source>| {
        side.map(|side| match side.port {
            Some(port) => format!("{word} {}", std::net::SocketAddr::new(side.ip, port)),
            None => format!("{word} {}", side.ip),
        })
    };
    let mut words = vec![match packet.proto {
        Some(protocol) => Protocol::from(protocol).as_lower().to_owned(),
        None => "any protocol".to_owned(),
    }];
    words.extend(side("from", packet.from));
    words.extend(side("to", packet.to));
    words.extend(packet.in_interface.as_ref().map(|name| format!("in {name}")));
    if packet.sent_here {
        words.push("sent by this host".to_owned());
    }
    words.join(" ")
}

/// The families that can be meant.
fn families(packet: &PacketArgs) -> Result<Vec<Family>> {
    let of = |side: Option<super::args::Source>| side.map(|side| Family::of(side.ip));
    match (of(packet.from), of(packet.to)) {
        (Some(one), Some(other)) if one != other => bail!("--from and --to are of different families"),
        (Some(one), _) | (None, Some(one)) => Ok(vec![one]),
        (None, None) => Ok(Family::ALL.to_vec()),
    }
}

/// The rules of --dump, on this host.
fn expected(args: &TraceArgs, families: &[Family]) -> Result<BTreeMap<Family, Host>> {
    if args.dump.is_empty() {
        return Ok(BTreeMap::new());
    }
    let of = |family: &Family| {
        let mut host = dump::host(&args.dump, *family)?;
        live::add_addresses(&mut host)?;
        args.add_facts(&mut host);
        Ok((*family, host))
    };
    families.iter().map(of).collect()
}

/// Rules of iptables-legacy are not in `nf_tables`, which alone tells of packets here.
fn refuse_legacy(families: &[Family]) -> Result<()> {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    for family in families {
        let Ok(probe) = Probe::new(&tools, Choice::Detect) else {
            return Ok(());
        };
        ensure!(
            probe.backend != Backend::Legacy || !live::has_iptables_rules(probe, *family)?,
            "this host's rules are kept by iptables-legacy, and nf_tables, which tells of packets, does not know them; \
             what these rules make of a packet is told by trace without --live"
        );
    }
    Ok(())
}
