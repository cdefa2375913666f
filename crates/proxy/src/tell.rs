//! What the log says: one line per fact, with the object it is about.

mod repeats;
mod slow;

use crate::serve::kind_word;
use cluster::{Health, Remembered, SourceEvent};
use engine::{About, Report, RunKind, StepSize};
use iptables::build::EndpointComments;
use kernel::LONGEST_CALL;
use model::object::ObjectRef;
use model::snapshot::Change;
use model::{Family, Note, PerFamily, ServiceName, Severity};
use repeats::{Repeats, Say};
use slow::Slow;
use std::fmt;
use std::time::Duration;

/// What the control loop does, told in the log. What repeats is summed up.
pub(crate) struct Teller {
    carrier: Carrier,
    repeats: Repeats<Subject>,
    running: PerFamily<Slow>,
}

/// Who carries a step out, and may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// A tool, which is killed after a time.
    Tool,
    /// The kernel itself (nftables mode), which ends when it ends.
    Kernel,
}

/// What a line is about that may come again and again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Reading(Family),
    Step(Family),
    Service(Family, ServiceName),
    /// Repairs that are made when they are due, or ones that wait.
    Damage(Family, Repairs),
    Stuck(Family, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Repairs {
    Prompt,
    Waiting,
}

impl Teller {
    pub(crate) fn new(carrier: Carrier) -> Teller {
        Teller {
            carrier,
            repeats: Repeats::new(),
            running: PerFamily::default(),
        }
    }

    /// A family was given something to do.
    pub(crate) fn began(&mut self, family: Family, now: Duration) {
        self.running.get_mut(family).began(now);
    }

    /// It answered.
    pub(crate) fn answered(&mut self, family: Family, now: Duration) {
        if let Some(took) = self.running.get_mut(family).ended(now) {
            let took_s = took.as_secs();
            match self.carrier {
                Carrier::Tool => tracing::info!(%family, took_s, "the tool has ended"),
                Carrier::Kernel => tracing::info!(%family, took_s, "the kernel has answered"),
            }
        }
    }

    /// Tells of what takes long.
    pub(crate) fn look(&mut self, now: Duration) {
        for family in Family::ALL {
            if let Some(long) = self.running.get_mut(family).look(now) {
                let (for_s, limit_s) = (long.as_secs(), LONGEST_CALL.as_secs());
                match self.carrier {
                    Carrier::Tool => {
                        tracing::warn!(%family, for_s, limit_s, "still running; a tool that takes longer than the limit is killed");
                    }
                    Carrier::Kernel => {
                        tracing::warn!(%family, for_s, "the kernel is still at it; it walks all chains for a list of a new size, and other changes wait");
                    }
                }
            }
        }
    }

    /// When [`Teller::look`] may have something to tell.
    pub(crate) fn next(&self) -> Option<Duration> {
        let next = Family::ALL
            .into_iter()
            .filter_map(|family| self.running.get(family).next());
        next.min()
    }

    /// Tells one report of the engine.
    pub(crate) fn report(&mut self, report: Report, now: Duration) {
        match report {
            Report::Applied {
                family,
                services,
                size,
            } => {
                written(family, &services, &size);
                for service in services {
                    self.written(family, service);
                }
            }
            Report::AsItIs { .. } => {}
            failed @ Report::Failed { .. } => self.failed(failed, now),
            Report::Recovered { family, after } => {
                self.repeats
                    .keep(|subject| subject.failing_family() != Some(family));
                tracing::info!(%family, failures = after, "rules are written again");
            }
            Report::InSync { family, since, run } => {
                let took_ms = now.saturating_sub(since).as_millis();
                // The first one after the start is a full one, and those after it are an hour apart.
                match run {
                    RunKind::Full => tracing::info!(%family, run = "full", took_ms, "rules are in sync"),
                    RunKind::Changes => {
                        tracing::debug!(%family, run = "changes", took_ms, "rules are in sync");
                    }
                }
            }
            damaged @ Report::Damaged { .. } => self.damaged(&damaged, now),
            Report::Stuck {
                family,
                chains,
                failure,
            } => {
                let chains: Vec<String> = chains.iter().map(ToString::to_string).collect();
                let chains = chains.join(", ");
                let subject = Subject::Stuck(family, chains.clone());
                match self.repeats.heard(subject, &failure.text, now) {
                    Say::Nothing => {}
                    Say::Whole => {
                        tracing::warn!(%family, %chains, reason = %failure.text, "chains that nobody wants cannot be deleted");
                    }
                    Say::Summary { times, since } => {
                        tracing::warn!(%family, %chains, times, since_s = since.as_secs(), "chains that nobody wants still cannot be deleted");
                    }
                }
            }
            Report::Noted { notes, .. } => notes.iter().for_each(note),
            Report::EndpointComments { family, comments } => {
                comments_from_now_on(family, comments);
            }
        }
    }

    fn failed(&mut self, report: Report, now: Duration) {
        let Report::Failed {
            family,
            failure,
            in_a_row,
            about,
            retry_at,
        } = report
        else {
            return;
        };
        let retry_in = retry_at.saturating_sub(now);
        let (about, subject) = match about {
            About::Reading => ("reading".to_owned(), Subject::Reading(family)),
            About::Step => ("step".to_owned(), Subject::Step(family)),
            About::Service(name) => (name.to_string(), Subject::Service(family, name)),
        };
        match self.repeats.heard(subject, &failure.text, now) {
            Say::Nothing => {
                tracing::debug!(%family, %about, in_a_row, ?retry_in, reason = %failure.text, "rules stay as they were");
            }
            Say::Whole => {
                tracing::error!(%family, %about, in_a_row, ?retry_in, reason = %failure.text, "rules stay as they were");
            }
            Say::Summary { times, since } => {
                let since_s = since.as_secs();
                tracing::error!(%family, %about, times, since_s, ?retry_in, reason = %failure.text, "rules still stay as they were, for the same reason");
            }
        }
    }

    /// A service whose rules were refused has them now.
    fn written(&mut self, family: Family, service: ServiceName) {
        let subject = Subject::Service(family, service);
        if let Some(failures) = self.repeats.over(&subject)
            && let Subject::Service(_, service) = subject
        {
            tracing::info!(%family, %service, failures, "rules of the service are written at last");
        }
    }

    fn damaged(&mut self, report: &Report, now: Duration) {
        let Report::Damaged {
            family,
            services,
            what,
            by,
            backing_off,
        } = report
        else {
            return;
        };
        let by = by.as_deref().unwrap_or("unknown");
        let repairs = backing_off.map_or(Repairs::Prompt, |_| Repairs::Waiting);
        // Until the next repair at least.
        let wait_s = backing_off.unwrap_or_default().as_secs();
        let subject = Subject::Damage(*family, repairs);
        match self.repeats.heard(subject, &format!("{by} {what}"), now) {
            Say::Nothing => {
                tracing::debug!(%family, %by, services, %what, wait_s, "rules were changed by somebody else; repairing");
            }
            Say::Whole if repairs == Repairs::Prompt => {
                tracing::warn!(%family, %by, services, %what, "rules were changed by somebody else; repairing");
            }
            Say::Whole => {
                tracing::warn!(%family, %by, services, %what, wait_s, "rules are changed by somebody else again and again; repairing, less and less often");
            }
            Say::Summary { times, since } => {
                let since_s = since.as_secs();
                tracing::warn!(%family, %by, services, %what, wait_s, times, since_s, "rules are still changed by somebody else again and again; repairing");
            }
        }
    }
}

impl Subject {
    /// The family, of a failure that ends when the family recovers.
    fn failing_family(&self) -> Option<Family> {
        match self {
            Subject::Reading(family) | Subject::Step(family) | Subject::Service(family, _) => Some(*family),
            Subject::Damage(..) | Subject::Stuck(..) => None,
        }
    }
}

fn written(family: Family, services: &[ServiceName], size: &StepSize) {
    let StepSize {
        chains,
        rules,
        deleted,
        removed,
    } = size;
    if let [service] = services {
        tracing::debug!(%family, %service, chains, rules, deleted, removed, "rules written");
    } else {
        let services = services.len();
        tracing::debug!(%family, services, chains, rules, deleted, removed, "rules written");
    }
}

fn comments_from_now_on(family: Family, comments: EndpointComments) {
    match comments {
        EndpointComments::Kept => {
            tracing::info!(%family, "rules written from now on name their endpoints in comments");
        }
        EndpointComments::Omitted => {
            tracing::info!(%family, "the cluster is large: rules written from now on do not name their endpoints in comments");
        }
    }
}

fn note(note: &Note) {
    let Note { subject, kind, .. } = note;
    match note.severity {
        Severity::Info => tracing::info!(object = %subject, "{kind}"),
        Severity::Warning => tracing::warn!(object = %subject, "{kind}"),
        Severity::Error => tracing::error!(object = %subject, "{kind}"),
    }
}

/// Tells what a source said, unless it is an object or the end of a list.
pub(crate) fn source(event: &SourceEvent) {
    match event {
        SourceEvent::Notes(notes) => notes.iter().for_each(note),
        SourceEvent::LeftOut(line) => tracing::warn!("{line}"),
        SourceEvent::NotRead(not_read) => tracing::debug!(objects = not_read.len(), "objects of other kinds"),
        SourceEvent::Health(kind, health) => self::health(kind_word(*kind), health),
        SourceEvent::Synced(kind) => tracing::debug!(v = 3, kind = kind_word(*kind), "list complete"),
        SourceEvent::Change(change) => self::change(change),
        SourceEvent::Together(changes) => changes.iter().for_each(change),
        SourceEvent::Remembered(what) => remembered(what),
    }
}

fn change(change: &Change) {
    match change {
        Change::Apply(object) => {
            tracing::debug!(v = 3, object = %Named(&object.reference()), "came or changed");
        }
        Change::Delete(object) => tracing::debug!(v = 3, object = %Named(object), "deleted"),
        Change::ReplaceAll { kind, objects } => {
            let (kind, objects) = (kind_word(*kind), objects.len());
            tracing::debug!(v = 3, kind, objects, "all there are");
        }
    }
}

/// An object as a note names it.
struct Named<'a>(&'a ObjectRef);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = kind_word(self.0.kind());
        match self.0 {
            ObjectRef::Service(name) => write!(f, "{kind} {name}"),
            ObjectRef::Slice(name) => write!(f, "{kind} {name}"),
            ObjectRef::Node(name) | ObjectRef::ServiceCidr(name) => write!(f, "{kind} {name}"),
        }
    }
}

fn remembered(what: &Remembered) {
    match what {
        Remembered::InUse {
            kinds, age, objects, ..
        } => {
            let age_s = age.as_secs();
            tracing::warn!(
                age_s,
                objects,
                ?kinds,
                "the API server does not answer; what it said to an earlier process counts until it does"
            );
        }
        Remembered::Over => tracing::info!("the API server has answered; nothing remembered counts any more"),
        Remembered::NotUsed(line) => tracing::warn!("the remembered state is not used: {line}"),
        Remembered::Nothing(line) => tracing::info!("there is no remembered state: {line}"),
        Remembered::RulesAreThere => tracing::info!(
            "the kernel has rules, which are as new as the remembered state; they stay as they are until the API server answers"
        ),
        Remembered::NotWritten(line) => {
            tracing::warn!("the remembered state cannot be written, serving goes on: {line}");
        }
        Remembered::Written(line) => tracing::info!("the remembered state is written: {line}"),
    }
}

fn health(kind: &str, health: &Health) {
    match health {
        Health::Connected { delivery } => tracing::info!(kind, ?delivery, "watching"),
        Health::Bookmark => tracing::trace!(kind, "bookmark"),
        Health::Silent { quiet } => tracing::info!(kind, ?quiet, "the watch was silent and is opened anew"),
        Health::Failing {
            error,
            failures,
            since,
        } => tracing::warn!(failures, since_s = since.as_secs(), "{error}"),
        Health::Absent => tracing::info!(kind, "the server does not have this kind; going on without"),
    }
}
