//! Who tells of packets, and who knows the words of what they met: `nf_tables`, or iptables-legacy.

use super::numbered::NumberedRules;
use super::rulebook::{Rulebook, Witnessed};
use super::stop::Stop;
use crate::trace::{live, watchdog};
use anyhow::{Context as _, Result};
use kernel::legacy_trace::{self, LegacyWatch};
use kernel::passage::Passage;
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, PacketWatch, Share, TRACE_TABLES, Traced, saved};
use model::Family;
use path::Host;
use std::time::{Duration, Instant};

/// Packets that are traced in a second, for each protocol and direction: with more, tracing would be a load of its own.
const RATE: u64 = 100;
/// The watchdog of legacy has so much more time than the tool.
const MORE: Duration = Duration::from_secs(5);

/// Whoever keeps this host's rules.
pub(super) enum Source {
    NfTables(Box<NfTables>),
    Legacy(Box<Legacy>),
}

/// Steps by handles, and the rules that have them.
pub(super) struct NfTables {
    watch: PacketWatch,
    rules: Rulebook,
}

/// Steps by numbers, and the rules that have them.
pub(super) struct Legacy {
    watch: LegacyWatch,
    rules: NumberedRules,
    stop: Stop,
}

/// What is followed.
pub(super) struct Asked<'a> {
    pub(super) families: &'a [Family],
    pub(super) traced: &'a [Traced],
    pub(super) interface: Option<&'a str>,
    pub(super) time: Duration,
}

/// What a packet met.
pub(super) struct Words {
    pub(super) met: Vec<Witnessed>,
    /// Whether these are the rules that there were while it passed.
    pub(super) certain: bool,
}

impl Source {
    /// Begins to follow packets.
    pub(super) fn start(asked: &Asked<'_>) -> Result<Source> {
        let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
        if is_kept_by_legacy(&tools, asked.families)? {
            return Self::legacy(tools, asked);
        }
        tell_of_legacy(&tools, asked.families);
        let own = format!("{TRACE_TABLES}{}", std::process::id());
        let rules = Rulebook::read(asked.families)?;
        let watch = PacketWatch::start(asked.families, &own, asked.traced, Share::PerSecond(RATE));
        let watch =
            watch.context("cannot ask nf_tables to trace packets; this needs root (CAP_NET_ADMIN)")?;
        Ok(Source::NfTables(Box::new(NfTables { watch, rules })))
    }

    fn legacy(tools: Tools, asked: &Asked<'_>) -> Result<Source> {
        let wanted = legacy_trace::Wanted {
            families: asked.families,
            traced: asked.traced,
            interface: asked.interface,
            share: Share::PerSecond(RATE),
        };
        let seconds = (asked.time + MORE).as_secs().to_string();
        let stop = Stop::listen()?;
        let watch = LegacyWatch::start(&wanted, &[watchdog::NAME, "--seconds", &seconds])?;
        for left in watch.left() {
            anstream::eprintln!(
                "note: an earlier trace --live had left its rules in table raw ({}), since it was killed together with its watchdog; they are \
                 removed",
                left.family
            );
        }
        let rules = NumberedRules::read(tools, watch.families())?;
        watch.begin();
        if let Some(tables) = rules.native_tables() {
            anstream::eprintln!(
                "note: tables of nftables are on the way, too, and what packets meet in them is not told: {tables}"
            );
        }
        Ok(Source::Legacy(Box::new(Legacy { watch, rules, stop })))
    }

    /// The packets that came to their end, until this time at the latest.
    pub(super) fn wait(&mut self, until: Instant) -> Result<Vec<Passage>> {
        match self {
            Source::NfTables(native) => native
                .watch
                .wait(until)
                .context("cannot read what nf_tables tells"),
            Source::Legacy(legacy) => Ok(legacy.watch.wait(until)?),
        }
    }

    /// Hears of rules that were changed, between packets.
    pub(super) fn keep_up(&mut self) -> Result<()> {
        match self {
            // A handle that is not known tells of a change.
            Source::NfTables(_) => Ok(()),
            Source::Legacy(legacy) => legacy.rules.keep_up(),
        }
    }

    /// The packets that are on their way still.
    pub(super) fn rest(&mut self) -> Result<Vec<Passage>> {
        match self {
            Source::NfTables(native) => Ok(native.watch.rest()),
            Source::Legacy(legacy) => Ok(legacy.watch.rest()?),
        }
    }

    /// What a packet met, in words. What became of it hangs on these words in legacy, whose traces tell no verdicts.
    pub(super) fn words(&mut self, family: Family, passage: &mut Passage) -> Result<Words> {
        match self {
            Source::NfTables(native) => Ok(Words {
                met: native.rules.words(family, passage)?,
                certain: true,
            }),
            Source::Legacy(legacy) => legacy.rules.words(family, passage),
        }
    }

    /// Reads the rules anew, unless that was done since the packet of this time came. Whether they were.
    pub(super) fn renew(&mut self, came: Instant) -> Result<bool> {
        match self {
            Source::NfTables(native) => native.rules.renew(came),
            // Changes are heard of as they come.
            Source::Legacy(_) => Ok(false),
        }
    }

    /// The host as one family sees it.
    pub(super) fn host(&self, family: Family) -> Option<&Host> {
        match self {
            Source::NfTables(native) => native.rules.host(family),
            Source::Legacy(legacy) => legacy.rules.host(family),
        }
    }

    /// Whether steps in tables of nftables are told.
    pub(super) fn tells_of_native(&self) -> bool {
        matches!(self, Source::NfTables(_))
    }

    /// Whether somebody has asked for an end.
    pub(super) fn is_stopped(&self) -> bool {
        match self {
            // Nothing is left of it, and the signal ends the process.
            Source::NfTables(_) => false,
            Source::Legacy(legacy) => legacy.stop.is_asked(),
        }
    }

    /// How often the kernel had more to tell than could be held.
    pub(super) fn losses(&self) -> u64 {
        match self {
            Source::NfTables(native) => native.watch.losses(),
            Source::Legacy(legacy) => legacy.watch.losses(),
        }
    }

    /// What was told of other packets.
    pub(super) fn strangers(&self) -> u64 {
        match self {
            Source::NfTables(native) => native.watch.strangers(),
            Source::Legacy(legacy) => legacy.watch.strangers(),
        }
    }

    /// Ends it, and says when something stays.
    pub(super) fn end(self) -> Result<()> {
        match self {
            Source::NfTables(_) => Ok(()),
            Source::Legacy(legacy) => Ok(legacy.watch.end()?),
        }
    }
}

/// Whether iptables-legacy keeps the rules of one of these families.
fn is_kept_by_legacy(tools: &Tools, families: &[Family]) -> Result<bool> {
    let Ok(probe) = Probe::new(tools, Choice::Detect) else {
        return Ok(false);
    };
    if probe.backend != Backend::Legacy {
        return Ok(false);
    }
    for family in families {
        if live::has_iptables_rules(probe.clone(), *family)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Says so when rules of legacy are on the way as well.
fn tell_of_legacy(tools: &Tools, families: &[Family]) {
    for family in families {
        let text = saved::save(tools, Backend::Legacy, *family).ok().flatten();
        let rules = text.map_or(0, |text| {
            text.lines().filter(|line| line.starts_with("-A ")).count()
        });
        if rules > 0 {
            anstream::eprintln!(
                "note: iptables-legacy has {rules} rules of {family} on this host, too. What packets meet in them is not told here; the kernel may log it"
            );
        }
    }
}
