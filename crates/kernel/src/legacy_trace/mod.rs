//! Real packets, followed through the rules of iptables-legacy as they pass (ADR 64).
//!
//! * Rules of ours in the host's table raw ask for traces ([`rules`]); a setting sends these to programs ([`setting`]); one
//!   socket of the network namespace is given them ([`group`]).
//! * None of it goes by itself when the tool is killed. A second process takes it back ([`watchdog`], [`undo`]); what is left
//!   when both were killed is found by the rules' chain.

mod group;
mod rules;
mod setting;
mod undo;
mod watchdog;

pub use undo::{Left, Rules, Undo, undo};
pub use watchdog::{line_to_the_tool, says_following};

use crate::losses::{Heard, Losses};
use crate::passage::{LoggedPassages, Passage, Seen};
use crate::probe::NoTools;
use crate::socket::{Socket, SocketError};
use crate::sysctl::SysctlError;
use crate::trace_table::{Share, Traced};
use crate::{CommitError, conntrack};
use group::LogGroup;
use iptables::live_trace::{self, CHAIN};
use model::Family;
use netlink::conntrack::{Entry, Layer4, Tuple};
use netlink::nflog::Logged;
use netlink::packet::PacketView;
use rules::Hand;
use std::io;
use std::time::Instant;
use watchdog::Watchdog;

/// Why packets cannot be followed, or something stays.
#[derive(Debug, thiserror::Error)]
pub enum LegacyTraceError {
    /// There are no tools.
    #[error(transparent)]
    NoTools(NoTools),
    /// Somebody else has the group.
    #[error(
        "the kernel hands the traces of iptables-legacy to one listener of NFLOG group 0, and another program is it (netlink port \
         {port}, which is a process id as a rule): another trace --live, or a collector such as ulogd; wait for it, or end it"
    )]
    Taken {
        /// Its netlink port.
        port: u32,
    },
    /// The group cannot be had.
    #[error(
        "cannot listen to NFLOG group 0, to which the kernel hands the traces of iptables-legacy; this needs root (CAP_NET_ADMIN) and \
         the kernel module nfnetlink_log"
    )]
    Listen(#[source] SocketError),
    /// The setting cannot be read or written.
    #[error(
        "traces of iptables-legacy come to programs only with net.netfilter.nf_log.2 (10 for IPv6) set to nfnetlink_log; this needs \
         the kernel modules nfnetlink_log and nf_log_syslog, and a /proc/sys that can be written to"
    )]
    Setting(#[source] SysctlError),
    /// The rules cannot be put in.
    #[error(
        "cannot put the rules that ask for traces into table raw ({family}); this needs the kernel modules iptable_raw (ip6table_raw), \
         xt_TRACE, xt_limit and xt_comment"
    )]
    Rules {
        /// The family.
        family: Family,
        /// Why not.
        #[source]
        source: CommitError,
    },
    /// No family can be followed.
    #[error("iptables-legacy serves no family that is asked for: {0}")]
    NoFamily(String),
    /// Whether something is left cannot be told.
    #[error("cannot look for what an earlier trace left in table raw ({family})")]
    Unread {
        /// The family.
        family: Family,
        /// Why not.
        #[source]
        source: CommitError,
    },
    /// The rules cannot be taken out.
    #[error(
        "the rules that ask for traces stay in table raw ({family}), chain {CHAIN}; the next trace --live removes them"
    )]
    Stays {
        /// The family.
        family: Family,
        /// Why.
        #[source]
        source: CommitError,
    },
    /// The setting cannot be put back.
    #[error(
        "{setting} stays as a trace needs it, and was {before} before: sysctl -w {setting}={before} puts it back",
        setting = live_trace::setting(*.family)
    )]
    SettingStays {
        /// The family.
        family: Family,
        /// What it was.
        before: String,
        /// Why.
        #[source]
        source: SysctlError,
    },
    /// The watchdog does not start.
    #[error("the process that would clean up after this one cannot be started, so nothing was changed")]
    NoWatchdog(#[source] io::Error),
    /// The watchdog has ended.
    #[error("the process that cleans up has ended, and with it the rules that ask for traces")]
    WatchdogGone,
    /// The kernel would not say.
    #[error("cannot read what the kernel logs of packets")]
    Read(#[source] SocketError),
}

/// Follows packets for as long as it lives.
pub struct LegacyWatch {
    // The watchdog is waited for before the group is let go.
    watchdog: Watchdog,
    group: LogGroup,
    conntrack: Socket,
    passages: LoggedPassages,
    families: Vec<Family>,
    left: Vec<Left>,
    losses: Losses,
}

/// Which packets are followed.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Of these families.
    pub families: &'a [Family],
    /// That match any of these.
    pub traced: &'a [Traced],
    /// The name of the interface that these name by its index.
    pub interface: Option<&'a str>,
    /// So many of them.
    pub share: Share,
}

impl LegacyWatch {
    /// Begins to follow packets. `watchdog` are the words by which this program becomes one that calls [`undo`] when
    /// [`line_to_the_tool`] ends; what to undo is added to them. Before it is on guard, nothing is changed but what a
    /// dead trace left.
    ///
    /// # Errors
    /// When somebody else follows packets in this network namespace, or the kernel or the tools cannot do it; nothing is
    /// left then.
    pub fn start(wanted: &Wanted<'_>, watchdog: &[&str]) -> Result<LegacyWatch, LegacyTraceError> {
        let group = LogGroup::listen()?;
        let probe = undo::probe()?;
        let left = sweep()?;
        let hands: Vec<(Family, Hand<'_>)> = wanted
            .families
            .iter()
            .filter_map(|family| Some((*family, Hand::of(&probe, *family)?)))
            .collect();
        if hands.is_empty() {
            let reasons = wanted
                .families
                .iter()
                .filter_map(|family| probe.families.get(*family).as_ref().err());
            let reasons: Vec<String> = reasons.map(ToString::to_string).collect();
            return Err(LegacyTraceError::NoFamily(reasons.join("; ")));
        }
        let before = |(family, _): &(Family, Hand<'_>)| {
            let before = setting::read(*family).map_err(LegacyTraceError::Setting)?;
            Ok(Undo {
                family: *family,
                before,
            })
        };
        let all: Vec<Undo> = hands.iter().map(before).collect::<Result<_, _>>()?;
        let conntrack = Socket::netfilter().map_err(LegacyTraceError::Listen)?;
        let watchdog = Watchdog::start(watchdog, all.clone(), &group)?;
        let watch = LegacyWatch {
            watchdog,
            group,
            conntrack,
            passages: LoggedPassages::new(CHAIN, wanted.traced),
            families: all.iter().map(|undo| undo.family).collect(),
            left,
            losses: Losses::default(),
        };
        let all_in = hands
            .iter()
            .zip(&all)
            .try_for_each(|((_, hand), undo)| put_in(hand, wanted, undo));
        // If it does not hear of it, it waits longer than it need.
        let _ = watch.watchdog.tell_settled();
        all_in?;
        Ok(watch)
    }

    /// Has the watchdog count the time of the trace from now. Before, rules were read, which may take long.
    pub fn begin(&self) {
        // A watchdog that has ended is told of by the first wait.
        let _ = self.watchdog.tell_following();
    }

    /// The families that are followed: those of the wanted ones that legacy serves here.
    pub fn families(&self) -> &[Family] {
        &self.families
    }

    /// What an earlier trace had left, and is gone now.
    pub fn left(&self) -> &[Left] {
        &self.left
    }

    /// The packets that came to their end, until this time at the latest; empty when there were none.
    ///
    /// # Errors
    /// When the kernel would not say, or the watchdog has ended. Lost steps are no error: see [`LegacyWatch::losses`].
    pub fn wait(&mut self, until: Instant) -> Result<Vec<Passage>, LegacyTraceError> {
        loop {
            if !self.watchdog.is_there() {
                return Err(LegacyTraceError::WatchdogGone);
            }
            self.read()?;
            let now = Instant::now();
            let finished = self.passages.finished(now);
            if !finished.is_empty() || now >= until {
                return self.complete(finished);
            }
            let due = self.passages.next_due().unwrap_or(until).min(until);
            self.group.readable(due).map_err(LegacyTraceError::Read)?;
        }
    }

    /// The packets that are on their way still.
    ///
    /// # Errors
    /// As [`LegacyWatch::wait`].
    pub fn rest(&mut self) -> Result<Vec<Passage>, LegacyTraceError> {
        let rest = self.passages.rest();
        self.complete(rest)
    }

    /// How often the kernel had more to tell than the socket could hold (`ENOBUFS`): then ways have gaps.
    pub fn losses(&self) -> u64 {
        self.losses.count()
    }

    /// What was logged of other packets.
    pub fn strangers(&self) -> u64 {
        self.passages.strangers()
    }

    /// Takes everything back, and says whether that went well.
    ///
    /// # Errors
    /// When something stays; it says what.
    pub fn end(mut self) -> Result<(), LegacyTraceError> {
        self.watchdog.end()
    }

    fn read(&mut self) -> Result<(), LegacyTraceError> {
        let passages = &mut self.passages;
        let mut take = |logged: &Logged<'_>| passages.take(logged, Instant::now());
        let read = self.group.take(&mut take);
        if self.losses.heard(read).map_err(LegacyTraceError::Read)? == Heard::WithGaps {
            self.passages.lose();
        }
        Ok(())
    }

    /// Asks conntrack what became of them behind source NAT, which is the last of all and so in no step.
    fn complete(&mut self, mut passages: Vec<Passage>) -> Result<Vec<Passage>, LegacyTraceError> {
        for passage in passages
            .iter_mut()
            .filter(|passage| passage.seen == Seen::Through)
        {
            let Some(tuple) = tuple(&passage.before) else {
                continue;
            };
            let known = conntrack::connection(&mut self.conntrack, tuple).map_err(LegacyTraceError::Read)?;
            if let Some(view) = known.and_then(|entry| leaving(&entry, tuple, &passage.after)) {
                passage.leaves_as(view);
            }
        }
        Ok(passages)
    }
}

/// Puts the rules of one family in, and has their traces come to programs.
fn put_in(hand: &Hand<'_>, wanted: &Wanted<'_>, undo: &Undo) -> Result<(), LegacyTraceError> {
    let what = (wanted.traced, wanted.interface);
    let text = rules::to_put_in(undo.family, what, wanted.share, &undo.before);
    hand.put_in(&text).map_err(|source| LegacyTraceError::Rules {
        family: undo.family,
        source,
    })?;
    setting::set(undo.family).map_err(LegacyTraceError::Setting)?;
    Ok(())
}

/// How a packet leaves that came in as this direction of a connection: as answers to it come in, turned round.
fn leaving(entry: &Entry, came: Tuple, view: &PacketView) -> Option<PacketView> {
    let answers = match came {
        _ if entry.original == came => entry.reply,
        _ if entry.reply == came => entry.original,
        _ => return None,
    };
    let Layer4::Ports { source, destination } = answers.layer4 else {
        return None;
    };
    Some(PacketView {
        source: answers.destination,
        destination: answers.source,
        source_port: Some(destination),
        destination_port: Some(source),
        ..*view
    })
}

fn tuple(view: &PacketView) -> Option<Tuple> {
    let layer4 = Layer4::Ports {
        source: view.source_port?,
        destination: view.destination_port?,
    };
    Some(Tuple {
        source: view.source,
        destination: view.destination,
        protocol: view.protocol,
        layer4,
        zone: None,
    })
}

/// Takes back what a trace left that was killed together with its watchdog.
fn sweep() -> Result<Vec<Left>, LegacyTraceError> {
    let left = undo::left(&undo::untried()?)?;
    let all: Vec<Undo> = left.iter().map(Left::undo).collect();
    if !all.is_empty() {
        undo(&all, Rules::Settled)?;
    }
    Ok(left)
}

/// Takes back what traces left in this network namespace, unless one is running; what it was.
///
/// # Errors
/// When somebody holds the group and there are such rules, or they cannot be taken out.
pub fn clean_up() -> Result<Vec<Left>, LegacyTraceError> {
    let Ok(probe) = undo::untried() else {
        return Ok(Vec::new());
    };
    // Most hosts never had a trace: they are not asked for more.
    if undo::left(&probe)?.is_empty() {
        return Ok(Vec::new());
    }
    let _group = LogGroup::listen()?;
    sweep()
}
