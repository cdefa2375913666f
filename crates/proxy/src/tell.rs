//! What the log says: one line per fact, with the object it is about.

use cluster::{Health, SourceEvent};
use engine::{About, Report, RunKind};
use model::{Note, Severity};
use std::time::Duration;

/// Tells one report of the engine.
pub(crate) fn report(report: Report, now: Duration) {
    match report {
        Report::Applied {
            family,
            services,
            size,
        } => {
            tracing::debug!(%family, services = services.len(), ?size, "rules written");
        }
        Report::Failed {
            family,
            failure,
            in_a_row,
            about,
            retry_at,
        } => {
            let retry_in = retry_at.saturating_sub(now);
            let about = match about {
                About::Reading => "reading".to_owned(),
                About::Step => "step".to_owned(),
                About::Service(name) => name.to_string(),
            };
            tracing::error!(%family, %about, in_a_row, ?retry_in, reason = %failure.text, "rules stay as they were");
        }
        Report::Recovered { family, after } => {
            tracing::info!(%family, failures = after, "rules are written again");
        }
        Report::InSync { family, since, run } => {
            let run = if run == RunKind::Full { "full" } else { "changes" };
            let took_ms = now.saturating_sub(since).as_millis();
            tracing::info!(%family, run, took_ms, "rules are in sync");
        }
        damaged @ Report::Damaged { .. } => self::damaged(&damaged),
        Report::Stuck {
            family,
            chains,
            failure,
        } => {
            let chains: Vec<String> = chains.iter().map(ToString::to_string).collect();
            let chains = chains.join(", ");
            tracing::warn!(%family, %chains, reason = %failure.text, "chains that nobody wants cannot be deleted");
        }
        Report::Noted { notes, .. } => notes.iter().for_each(note),
        Report::EndpointComments { family, comments } => {
            tracing::info!(%family, ?comments, "comments of endpoints, in rules written from now on");
        }
    }
}

fn damaged(report: &Report) {
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
    match backing_off {
        None => {
            tracing::warn!(%family, %by, services, %what, "rules were changed by somebody else; repairing");
        }
        Some(wait) => {
            tracing::warn!(%family, %by, services, %what, ?wait, "rules are changed by somebody else again and again; repairing, less and less often");
        }
    }
}

fn note(note: &Note) {
    match note.severity {
        Severity::Info => tracing::info!("{note}"),
        Severity::Warning => tracing::warn!("{note}"),
        Severity::Error => tracing::error!("{note}"),
    }
}

/// Tells what a source said, unless it is an object or the end of a list.
pub(crate) fn source(event: &SourceEvent) {
    match event {
        SourceEvent::Notes(notes) => notes.iter().for_each(note),
        SourceEvent::LeftOut(line) => tracing::warn!("{line}"),
        SourceEvent::NotRead(not_read) => tracing::debug!(objects = not_read.len(), "objects of other kinds"),
        SourceEvent::Health(kind, health) => self::health(&format!("{kind:?}"), health),
        SourceEvent::Change(_) | SourceEvent::Synced(_) => {}
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
