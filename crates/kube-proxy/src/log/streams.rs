//! Where lines go: all to stderr, as upstream's do; or information to stdout and the rest to stderr, if the alpha options
//! of the log's format say so.

use config::types::Logging;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The streams.
pub(super) enum Streams {
    /// Everything to stderr, at once.
    Stderr,
    /// Information to stdout, held back until there is this much of it.
    Split {
        /// What is held back.
        held: Mutex<Vec<u8>>,
        /// How many bytes may be held back.
        room: usize,
    },
}

impl Streams {
    /// Also starts the thread that writes what is held back, if anything is.
    pub(super) fn of(logging: &Logging) -> Streams {
        let options = config::stream_options(logging);
        if !options.split_stream {
            return Streams::Stderr;
        }
        let room = usize::try_from(config::info_buffer_bytes(options)).unwrap_or(0);
        if room > 0 {
            flush_every(logging.flush_frequency.to_std());
        }
        Streams::Split {
            held: Mutex::default(),
            room,
        }
    }

    /// A stream that nobody reads is no reason to end.
    pub(super) fn write(&self, is_info: bool, line: &str) {
        match self {
            Streams::Split { held, room } if is_info => {
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                held.extend_from_slice(line.as_bytes());
                if held.len() >= *room {
                    empty(&mut held);
                }
            }
            _ => drop(io::stderr().lock().write_all(line.as_bytes())),
        }
    }

    pub(super) fn flush(&self) {
        if let Streams::Split { held, .. } = self {
            empty(&mut held.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

fn empty(held: &mut Vec<u8>) {
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(held).and_then(|()| stdout.flush());
    held.clear();
}

fn flush_every(period: Duration) {
    let period = period.max(Duration::from_millis(1));
    let flush = move || loop {
        thread::sleep(period);
        super::flush();
    };
    // Without it lines are written when there are enough of them.
    drop(thread::Builder::new().name("log-flush".to_owned()).spawn(flush));
}
