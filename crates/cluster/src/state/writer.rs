//! The thread that writes the file, and when it does.

use super::book::{Book, Lines};
use super::format::{self, Header, LARGEST_FILE};
use super::{StateOptions, StateTiming, disk};
use crate::{Remembered, SourceEvent};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc::Sender;

/// The file is written anew at least this many times in the time after which it would be too old, though nothing has
/// changed.
const PER_MAX_AGE: u32 = 24;

/// When to write. Times are of the process's clock; what the server confirmed is a time of day.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    timing: StateTiming,
    /// How much younger a confirmation must be to be worth a write.
    refresh: Duration,
    /// When the first change came that is not on disk.
    changed: Option<Duration>,
    last: Option<Last>,
    on_disk: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug)]
enum Last {
    Written(Duration),
    Failed(Duration),
}

impl Pace {
    pub(super) fn new(timing: StateTiming, max_age: Duration) -> Pace {
        Pace {
            refresh: (max_age / PER_MAX_AGE).max(timing.interval),
            timing,
            changed: None,
            last: None,
            on_disk: None,
        }
    }

    pub(super) fn changed(&mut self, now: Duration) {
        self.changed.get_or_insert(now);
    }

    /// When the next write is due: now, if that time has passed.
    pub(super) fn due(&self, confirmed: SystemTime) -> Option<Duration> {
        let from = match (self.changed, self.on_disk) {
            (Some(changed), _) => changed + self.timing.settle,
            (None, Some(on_disk)) if is_worth_it(on_disk, confirmed, self.refresh) => Duration::ZERO,
            _ => return None,
        };
        let not_before = match self.last {
            None => Duration::ZERO,
            Some(Last::Written(at)) => at + self.timing.interval,
            Some(Last::Failed(at)) => at + self.timing.retry,
        };
        Some(from.max(not_before))
    }

    /// What there is now is being written; what changes from now on is not in it.
    pub(super) fn begins(&mut self) {
        self.changed = None;
    }

    pub(super) fn written(&mut self, now: Duration, confirmed: SystemTime) {
        self.last = Some(Last::Written(now));
        self.on_disk = Some(confirmed);
    }

    pub(super) fn failed(&mut self, now: Duration) {
        self.last = Some(Last::Failed(now));
        self.changed.get_or_insert(now);
    }
}

/// A clock that was set back is as good a reason as time that has passed: the file would seem to be of the future.
fn is_worth_it(on_disk: SystemTime, confirmed: SystemTime, refresh: Duration) -> bool {
    match confirmed.duration_since(on_disk) {
        Ok(younger) => younger >= refresh,
        Err(older) => older.duration() >= refresh,
    }
}

/// Starts the thread; it ends with the book. Without one nothing is written, and that is told.
pub(super) async fn start(book: Arc<Book>, options: StateOptions, out: Sender<SourceEvent>) {
    let path = disk::path(&options.folder);
    let told = out.clone();
    let mut writer = Writer {
        book,
        options,
        out,
        told: Told::Nothing,
    };
    let thread = std::thread::Builder::new().name("state".to_owned());
    if let Err(error) = thread.spawn(move || writer.run()) {
        let line = format!(
            "{}: cannot start a thread; raise the limit of processes and start again: {error}",
            path.display()
        );
        // Nobody listens any more only at the end.
        let _ = told
            .send(SourceEvent::Remembered(Remembered::NotWritten(line)))
            .await;
    }
}

struct Writer {
    book: Arc<Book>,
    options: StateOptions,
    out: Sender<SourceEvent>,
    told: Told,
}

/// What was last told.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Written,
    NotWritten(String),
}

impl Writer {
    fn run(&mut self) {
        while let Some(lines) = self.book.wait() {
            let (confirmed, count) = (lines.confirmed, lines.all.len());
            let written = write(&self.options, &lines);
            self.book
                .wrote(written.as_ref().map(|()| confirmed).map_err(|_| ()));
            self.tell(written, count);
        }
    }

    /// Each fact once: a read-only root would be told of every minute otherwise.
    fn tell(&mut self, written: Result<(), String>, count: usize) {
        let path = disk::path(&self.options.folder);
        let (told, event) = match written {
            Ok(()) => {
                let line = format!("{count} objects in {}", path.display());
                (Told::Written, Remembered::Written(line))
            }
            Err(reason) => {
                let line = format!("{}: {reason}", path.display());
                (Told::NotWritten(reason), Remembered::NotWritten(line))
            }
        };
        if self.told != told {
            self.told = told;
            // Nobody listens any more only at the end.
            let _ = self.out.blocking_send(SourceEvent::Remembered(event));
        }
    }
}

fn write(options: &StateOptions, lines: &Lines) -> Result<(), String> {
    // The header and the sum take less than the slack.
    if lines.bytes > LARGEST_FILE - (1 << 20) {
        return Err(format!(
            "{} bytes of objects are more than the {LARGEST_FILE} that are read back",
            lines.bytes
        ));
    }
    let header = Header::new(&options.node_name, options.identity.clone(), lines.confirmed);
    disk::replace(&options.folder, |file| {
        format::write(file, &header, lines.all.iter().map(AsRef::as_ref))
    })
    .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + secs(seconds)
    }

    fn pace() -> Pace {
        Pace::new(StateTiming::default(), Duration::from_hours(24))
    }

    #[test]
    fn a_change_is_written_soon_and_a_stream_of_them_every_ten_seconds() {
        let mut pace = pace();
        assert_eq!(pace.due(at(0)), None);
        pace.changed(secs(5));
        pace.changed(secs(6));
        assert_eq!(pace.due(at(6)), Some(secs(6)));
        pace.begins();
        pace.changed(secs(7));
        pace.written(secs(8), at(6));
        assert_eq!(
            pace.due(at(7)),
            Some(secs(18)),
            "what came meanwhile is not forgotten"
        );
        pace.begins();
        pace.written(secs(18), at(18));
        assert_eq!(pace.due(at(19)), None);
        pace.changed(secs(100));
        assert_eq!(
            pace.due(at(100)),
            Some(secs(101)),
            "a first change after a quiet time does not wait"
        );
    }

    #[test]
    fn a_confirmation_without_a_change_is_written_once_an_hour() {
        let mut pace = pace();
        pace.changed(secs(0));
        pace.begins();
        pace.written(secs(1), at(1000));
        assert_eq!(pace.due(at(1000 + 3599)), None);
        assert!(pace.due(at(1000 + 3600)).is_some_and(|due| due <= secs(3600)));
        assert!(
            pace.due(at(1000) - secs(3600)).is_some(),
            "the clock was set back"
        );
    }

    #[test]
    fn failures_are_retried_slowly_and_not_forgotten() {
        let mut pace = pace();
        pace.changed(secs(0));
        pace.begins();
        pace.failed(secs(2));
        assert_eq!(pace.due(at(2)), Some(secs(62)));
        pace.changed(secs(30));
        assert_eq!(pace.due(at(30)), Some(secs(62)));
    }
}
