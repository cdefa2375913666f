//! `kube-proxy trace --live`: real packets, followed through the rules of this host as they pass.
//!
//! A [`source`] tells which rules a packet met; [`rulebook`] or [`numbered`] gives each its words, [`names`] knows the
//! objects, [`check`] compares with what [`path::trace`] says, [`tell`] prints. Nothing is left behind: the table that asks
//! `nf_tables` for traces is owned by a socket of this process (ADR 62), and for legacy there is a watchdog (ADR 64).

mod check;
mod names;
mod numbered;
mod rulebook;
mod source;
mod stop;
mod tell;

use super::args::{Form, PacketArgs, TraceArgs};
use super::{dump, live};
use crate::failure::Answer;
use anyhow::{Context as _, Result, bail, ensure};
use check::{Check, Hosts};
use kernel::Traced;
use kernel::passage::Passage;
use model::{Family, Protocol};
use names::Names;
use path::Host;
use rulebook::Witnessed;
use source::{Asked, Source, Words};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How often a look is taken at whether it is time to end.
const STEP: Duration = Duration::from_millis(100);

/// Rules are not read anew more often than this: with many services that takes seconds.
const READ_AT_MOST_EACH: Duration = Duration::from_secs(1);

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
    /// Whether these are the rules that there were while it passed.
    certain: bool,
    check: Option<Check>,
}

/// Follows packets until there were enough, or the time is over.
///
/// # Errors
/// When the kernel cannot be asked, rules could not be read, or something stays behind.
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
    let interfaces = kernel::addresses::interface_names().context("cannot read this host's interfaces")?;
    let traced = traced(&args.packet, &interfaces)?;
    let asked = Asked {
        families: &families,
        traced: &traced,
        interface: args.packet.in_interface.as_deref(),
        time: args.live.time,
    };
    let expected = expected(args, &families)?;
    let mut live = Live {
        args,
        names,
        source: Source::start(&asked)?,
        expected,
        interfaces,
        begun: Instant::now(),
        told: 0,
        disagreements: 0,
    };
    anstream::eprintln!(
        "following up to {} packets for {:?}: {}",
        args.live.count,
        args.live.time,
        words(&args.packet)
    );
    live.follow(out)?;
    live.summary();
    live.source.end()?;
    let found = live.disagreements > 0;
    Ok(if found { Answer::Findings } else { Answer::Clean })
}

/// What is known while packets are followed.
struct Live<'a> {
    args: &'a TraceArgs,
    names: Names,
    source: Source,
    /// The rules to compare with, where those are others than this host's.
    expected: BTreeMap<Family, Host>,
    interfaces: BTreeMap<u32, String>,
    begun: Instant,
    told: usize,
    disagreements: usize,
}

impl Live<'_> {
    fn follow(&mut self, out: &mut dyn Write) -> Result<()> {
        let end = self.begun + self.args.live.time;
        while self.told < self.args.live.count && Instant::now() < end && !self.source.is_stopped() {
            let until = end.min(Instant::now() + STEP);
            let passages = self.source.wait(until)?;
            self.tell(passages, out)?;
            self.source.keep_up()?;
        }
        let rest = self.source.rest()?;
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

    fn followed(&mut self, mut passage: Passage) -> Result<Followed> {
        let family = Family::of(passage.before.destination);
        let interfaces = [passage.in_interface, passage.out_interface];
        let interfaces = interfaces.map(|index| self.interfaces.get(&index?).cloned());
        let mut words = self.source.words(family, &mut passage)?;
        let mut check = self.check(family, &passage, interfaces[0].as_deref(), &words);
        // What changed since the rules were read, such as elements of a map, is no disagreement.
        let is_expected = self.expected.contains_key(&family);
        if matches!(check, Some(Check::Disagrees(_))) && !is_expected && self.source.renew(passage.began)? {
            words = self.source.words(family, &mut passage)?;
            check = self.check(family, &passage, interfaces[0].as_deref(), &words);
        }
        let Words { met, certain } = words;
        Ok(Followed {
            number: self.told,
            after: passage.began.saturating_duration_since(self.begun),
            passage,
            interfaces,
            met,
            certain,
            check,
        })
    }

    fn check(
        &self,
        family: Family,
        passage: &Passage,
        interface: Option<&str>,
        words: &Words,
    ) -> Option<Check> {
        let own = self.source.host(family);
        let of_dump = self.expected.get(&family);
        if self.args.live.check && !self.args.dump.is_empty() && of_dump.is_none() {
            return Some(Check::NotCompared("--dump has no rules of its family"));
        }
        let expected = of_dump.or(own).filter(|_| self.args.live.check)?;
        if !words.certain {
            return Some(Check::NotCompared("rules were changed while it passed"));
        }
        let seen = check::Followed {
            passage,
            interface,
            met: &words.met,
            tells_of_native: self.source.tells_of_native(),
        };
        Some(check::check(Hosts { expected, own }, &seen))
    }

    /// The last lines, beside what was asked for.
    fn summary(&self) {
        match self.told {
            0 => anstream::eprintln!(
                "no packet came by that fits. Those of connections that the fast path of a network card or of a flow table carries are not seen"
            ),
            told => anstream::eprintln!("{told} packets followed"),
        }
        if self.source.losses() > 0 {
            anstream::eprintln!(
                "warning: the kernel had more to tell than could be taken, {} times (ENOBUFS): ways may have gaps; narrow it down with --from, --to and --proto",
                self.source.losses()
            );
        }
        if self.source.strangers() > 0 {
            anstream::eprintln!(
                "note: {} steps of other packets were told and left out: somebody else traces as well, or their beginnings were lost",
                self.source.strangers()
            );
        }
        if self.args.live.check {
            anstream::eprintln!("{} took a way that trace does not give", self.disagreements);
        }
    }
}

/// What the kernel is asked for: a rule for each protocol, since ports are those of a protocol.
fn traced(packet: &PacketArgs, interfaces: &BTreeMap<u32, String>) -> Result<Vec<Traced>> {
    let in_interface = match &packet.in_interface {
        None => None,
        Some(name) => {
            let found = interfaces.iter().find(|(_, known)| *known == name);
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
    let of = |family: &Family| -> Result<Option<(Family, Host)>> {
        let (mut host, other) = dump::host_or_other(&args.dump, *family)?;
        if other.is_some() {
            return Ok(None);
        }
        host.native.forget_what_moves();
        // Packets may have been followed when the dump was taken.
        numbered::without_ours(host.rules.get_mut(*family));
        live::add_addresses(&mut host)?;
        args.add_facts(&mut host);
        Ok(Some((*family, host)))
    };
    families
        .iter()
        .filter_map(|family| of(family).transpose())
        .collect()
}
