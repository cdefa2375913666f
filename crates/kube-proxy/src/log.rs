//! Lines in klog's two forms: `I0102 15:04:05.000000 1234567 file.rs:10] "message" key="value"`, or one JSON object.
//!
//! * In and out: events of the `tracing` crate in; lines on stderr out (or info lines on stdout, where that is asked for).
//! * Whoever logs never waits for a reader: `outlet` has the threads that write.
//! * How much is said: `level` knows klog's verbosity, which a line may name itself (`v = 4`), and `vmodule`.
//! * Where to start reading: `record`, which makes upstream's keys of ours.

mod form;
mod level;
mod mouth;
mod outlet;
mod pattern;
mod record;
mod streams;

pub use form::early_line;

use config::types::Logging;
use form::Form;
use level::Wanted;
use outlet::Flushed;
use proxy::Verbosity;
use record::Record;
use std::panic;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use streams::Streams;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Target of lines whose text is all there is: no quotes around it, as klog has it for formatted lines.
pub const PLAIN: &str = "plain";

/// Where lines go, once logging has started.
static STREAMS: OnceLock<Streams> = OnceLock::new();

/// Starts logging. What comes out changes how much is said from then on.
pub fn start(logging: &Logging) -> Verbosity {
    let verbosity = Verbosity::new(logging.verbosity);
    let lines = Lines {
        form: Form::of(&logging.format),
        wanted: Wanted::new(verbosity.clone(), &logging.vmodule),
        streams: STREAMS.get_or_init(|| Streams::of(logging)),
    };
    // Once is enough: a second start would be a bug of the caller, and no reason to end.
    if tracing_subscriber::registry().with(lines).try_init().is_ok() {
        write_before_panics();
    }
    verbosity
}

/// Writes what waits, before the process ends; a reader that has stalled is waited for a second.
pub fn flush() {
    if let Some(streams) = STREAMS.get() {
        let _ = streams.flush();
    }
}

/// A panic ends the process, and what led to it would not be written. Nor may its message wait for a stalled reader.
fn write_before_panics() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        if STREAMS.get().map(Streams::flush) != Some(Flushed::Stalled) {
            usual(panicked);
        }
    }));
}

/// What becomes of events.
struct Lines {
    form: Form,
    wanted: Wanted,
    streams: &'static Streams,
}

impl<S: Subscriber> Layer<S> for Lines {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // Asked each time: how much is said can change.
        Interest::sometimes()
    }

    fn enabled(&self, meta: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wanted.may_show(meta)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.wanted.most())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        let record = Record::of(event);
        if !self.wanted.shows(meta, record.verbosity) {
            return;
        }
        let line = self.form.line(since_epoch(), meta, record);
        self.streams.write(*meta.level() >= Level::INFO, &line);
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbosity_changes_while_the_process_runs() {
        let verbosity = Verbosity::new(0);
        let lines = Lines {
            form: Form::Text,
            wanted: Wanted::new(verbosity.clone(), &[]),
            streams: STREAMS.get_or_init(|| Streams::of(&Logging::default())),
        };
        let seen = || {
            [
                tracing::enabled!(Level::INFO),
                tracing::enabled!(Level::DEBUG),
                tracing::enabled!(Level::TRACE),
            ]
        };
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            assert_eq!(seen(), [true, false, false]);
            verbosity.set(2);
            assert_eq!(seen(), [true, true, false]);
            verbosity.set(9);
            assert_eq!(seen(), [true, true, true]);
            verbosity.set(1);
            assert_eq!(seen(), [true, false, false]);
        });
    }
}
