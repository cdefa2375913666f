//! Where lines go: all to stderr, as upstream's do; or information to stdout and the rest to stderr, if the alpha options
//! of the log's format say so.

use super::form::Form;
use super::mouth::Gap;
use super::outlet::{Flushed, Outlet};
use config::types::Logging;
use std::io::{stderr, stdout};
use std::mem;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The streams.
pub(super) struct Streams {
    stderr: Outlet,
    /// Where information goes, if not to stderr.
    info: Option<Info>,
}

/// Information on stdout, held back until there is enough of it.
struct Info {
    stdout: Outlet,
    held: Mutex<Held>,
    /// How many bytes may be held back.
    room: usize,
}

#[derive(Default)]
struct Held {
    text: Vec<u8>,
    lines: u64,
}

impl Streams {
    /// Also starts the threads that write.
    pub(super) fn of(logging: &Logging) -> Streams {
        let form = Form::of(&logging.format);
        let gap = move || -> Gap { Box::new(move |lines| form.gap(lines)) };
        let options = config::stream_options(logging);
        let info = options.split_stream.then(|| Info {
            stdout: Outlet::new("log-stdout", stdout, gap()),
            held: Mutex::default(),
            room: usize::try_from(config::info_buffer_bytes(options)).unwrap_or(0),
        });
        if info.as_ref().is_some_and(|info| info.room > 0) {
            flush_every(logging.flush_frequency.to_std());
        }
        Streams {
            stderr: Outlet::new("log-stderr", stderr, gap()),
            info,
        }
    }

    pub(super) fn write(&self, is_info: bool, line: &str) {
        match &self.info {
            Some(info) if is_info => info.write(line),
            _ => self.stderr.write(line.as_bytes(), 1),
        }
    }

    /// Hands on what is held back.
    fn hand_on(&self) {
        if let Some(info) = &self.info {
            info.hand_on(&mut info.held.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Waits until everything is written, if somebody reads it.
    pub(super) fn flush(&self) -> Flushed {
        self.hand_on();
        if let Some(info) = &self.info {
            // Who reads one stream may not read the other.
            let _ = info.stdout.flush();
        }
        self.stderr.flush()
    }
}

impl Info {
    fn write(&self, line: &str) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.text.extend_from_slice(line.as_bytes());
        held.lines += 1;
        if held.text.len() >= self.room {
            self.hand_on(&mut held);
        }
    }

    fn hand_on(&self, held: &mut Held) {
        let held = mem::take(held);
        if held.lines > 0 {
            self.stdout.write(&held.text, held.lines);
        }
    }
}

fn flush_every(period: Duration) {
    let period = period.max(Duration::from_millis(1));
    let hand_on = move || loop {
        thread::sleep(period);
        if let Some(streams) = super::STREAMS.get() {
            streams.hand_on();
        }
    };
    // Without it lines are written when there are enough of them.
    drop(thread::Builder::new().name("log-flush".to_owned()).spawn(hand_on));
}
