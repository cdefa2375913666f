//! What a trace in legacy has changed, and how it is taken back.

use super::rules::Hand;
use super::{LegacyTraceError, setting};
use crate::probe::{Choice, Probe, Tools};
use crate::{Backend, CommitError, LiesIn};
use iptables::live_trace;
use model::Family;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// How long it is tried: somebody may hold legacy's lock, or be at the same table.
const PATIENCE: Duration = Duration::from_mins(2);
const PAUSE: Duration = Duration::from_millis(200);

/// What is to be taken back of one family. Its text is a word of the watchdog's command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undo {
    /// The family.
    pub family: Family,
    /// The value of the setting before.
    pub before: String,
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.family, self.before)
    }
}

impl FromStr for Undo {
    type Err = String;

    fn from_str(text: &str) -> Result<Undo, String> {
        let parts = text
            .split_once('=')
            .filter(|(_, before)| live_trace::is_value(before));
        let found = parts.and_then(|(word, before)| {
            let family = Family::ALL
                .into_iter()
                .find(|family| family.to_string() == word)?;
            Some(Undo {
                family,
                before: before.to_owned(),
            })
        });
        found.ok_or_else(|| format!("{text:?} is not a family and a value of its setting nf_log"))
    }
}

/// Whether rules may come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// All are there that will be.
    Settled,
    /// Whoever was putting them in was killed. His tool may live on, wait for the lock, and put them in all the same.
    MayCome,
}

/// So long a tool that nobody waits for any more may take: it waits for the lock for five seconds.
const STRAGGLING: Duration = Duration::from_secs(10);

/// The tools of legacy, for families that they serve.
pub(super) fn probe() -> Result<Probe, LegacyTraceError> {
    Probe::new(&tools(), Choice::Use(Backend::Legacy)).map_err(LegacyTraceError::NoTools)
}

/// The tools of legacy for taking rules out, whether or not they can be used just now: somebody may hold the lock. Nothing
/// is made where legacy is not in use.
pub(super) fn untried() -> Result<Probe, LegacyTraceError> {
    Probe::untried(&tools(), Backend::Legacy).map_err(LegacyTraceError::NoTools)
}

fn tools() -> Tools {
    Tools::find(std::env::var_os("PATH").as_ref(), Vec::new())
}

/// Takes all of it back: first the rules, then the setting. Where rules have to stay, the setting stays with them: without
/// a listener it costs little, and the kernel's log is not filled.
///
/// # Errors
/// The first failure; the other family is done all the same.
pub fn undo(all: &[Undo], rules: Rules) -> Result<(), LegacyTraceError> {
    let probe = untried()?;
    let until = match rules {
        Rules::Settled => Instant::now(),
        Rules::MayCome => Instant::now() + STRAGGLING,
    };
    loop {
        let mut first = None;
        for one in all {
            if let Err(error) = undo_one(&probe, one) {
                first = first.or(Some(error));
            }
        }
        if Instant::now() >= until {
            return first.map_or(Ok(()), Err);
        }
        std::thread::sleep(PAUSE);
    }
}

fn undo_one(probe: &Probe, Undo { family, before }: &Undo) -> Result<(), LegacyTraceError> {
    if let Some(hand) = Hand::of(probe, *family) {
        take_out(&hand).map_err(|source| LegacyTraceError::Stays {
            family: *family,
            source,
        })?;
    }
    setting::put_back(*family, before).map_err(|source| LegacyTraceError::SettingStays {
        family: *family,
        before: before.clone(),
        source,
    })?;
    Ok(())
}

fn take_out(hand: &Hand<'_>) -> Result<(), CommitError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let taken = match hand.look() {
            Ok(None) => return Ok(()),
            // It is looked again: somebody may have changed the table between.
            Ok(Some(found)) => hand.take_out(&found),
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => return Ok(()),
            Err(error) if error.kind.lies_in() == LiesIn::Host || Instant::now() > until => {
                return Err(error);
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// What a trace left that was killed with its watchdog, family by family. Nobody else may be tracing: hold the group.
pub(super) fn left(probe: &Probe) -> Result<Vec<Left>, LegacyTraceError> {
    let mut all = Vec::new();
    for family in Family::ALL {
        let Some(hand) = Hand::of(probe, family) else {
            continue;
        };
        let found = hand
            .look()
            .map_err(|source| LegacyTraceError::Unread { family, source })?;
        all.extend(found.map(|found| Left {
            family,
            before: found.before,
        }));
    }
    Ok(all)
}

/// Rules that a trace left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The family.
    pub family: Family,
    /// What the setting was before, where the rules tell it.
    pub before: Option<String>,
}

impl Left {
    pub(super) fn undo(&self) -> Undo {
        Undo {
            family: self.family,
            // With nothing known of before, the setting stays.
            before: self
                .before
                .clone()
                .unwrap_or_else(|| setting::TO_PROGRAMS.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_taken_back_reads_as_it_is_written() {
        for family in Family::ALL {
            let undo = Undo {
                family,
                before: "nf_log_ipv4".to_owned(),
            };
            assert_eq!(undo.to_string().parse(), Ok(undo));
        }
        for text in ["", "IPv4", "IPv4=", "IPv5=NONE", "IPv4=../x", "=NONE", "IPv4=a b"] {
            assert!(text.parse::<Undo>().is_err(), "{text}");
        }
    }
}
