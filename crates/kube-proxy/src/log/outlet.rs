//! One stream, written by a thread of its own: whoever logs never waits for whoever reads.
//!
//! * Lines wait in one buffer, in order, while the thread writes another. A reader that stalls fills the one that waits;
//!   from then on lines are dropped and counted, until the thread can take the buffer. The gap is told where it is.
//! * Without a thread, lines are written by whoever logs.

use std::io::Write;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How many bytes may wait. As many may be on their way at that time.
const ROOM: usize = 4 << 20;

/// How long the end of the process may be held up.
const PATIENCE: Duration = Duration::from_secs(1);

/// The line that tells of a gap of so many lines.
pub(super) type Gap = Box<dyn Fn(u64) -> String + Send>;

/// A stream.
pub(super) enum Outlet {
    /// With a thread that writes.
    Queued(Arc<Queue>),
    /// Written at once.
    Direct(Mutex<Box<dyn Write + Send>>),
}

impl Outlet {
    /// `open` gives the stream. A thread of this name is started for it.
    pub(super) fn new<W: Write + Send + 'static>(name: &str, open: fn() -> W, gap: Gap) -> Outlet {
        let queue = Arc::new(Queue::default());
        let queued = queue.clone();
        let work = move || queued.serve(&mut open(), &gap);
        match thread::Builder::new().name(name.to_owned()).spawn(work) {
            Ok(_) => Outlet::Queued(queue),
            Err(_) => Outlet::Direct(Mutex::new(Box::new(open()))),
        }
    }

    /// A stream that nobody reads is no reason to end, nor to wait.
    pub(super) fn write(&self, text: &[u8], lines: u64) {
        match self {
            Outlet::Queued(queue) => queue.put(text, lines),
            Outlet::Direct(stream) => {
                let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = stream.write_all(text).and_then(|()| stream.flush());
            }
        }
    }

    /// Waits until everything is written, for as long as a process may take to end.
    pub(super) fn flush(&self) -> Flushed {
        match self {
            Outlet::Queued(queue) => queue.flush(PATIENCE),
            Outlet::Direct(_) => Flushed::Whole,
        }
    }
}

/// Whether everything was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// It was.
    Whole,
    /// Nobody reads.
    Stalled,
}

/// What waits to be written.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Something to write has come.
    filled: Condvar,
    /// Everything is written.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines that found no room behind those that wait.
    dropped: u64,
    is_writing: bool,
}

impl State {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.dropped == 0
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, text: &[u8], lines: u64) {
        let mut state = self.lock();
        let fits = state.waiting.is_empty() || state.waiting.len() + text.len() <= ROOM;
        // Behind a gap nothing is kept until it is told, or it would be told in the wrong place.
        if fits && state.dropped == 0 {
            state.waiting.extend_from_slice(text);
        } else {
            state.dropped += lines;
        }
        drop(state);
        self.filled.notify_one();
    }

    /// The thread.
    fn serve(&self, stream: &mut impl Write, gap: &Gap) {
        loop {
            let mut state = self.lock();
            state.is_writing = false;
            if state.is_empty() {
                self.emptied.notify_all();
            }
            while state.is_empty() {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.is_writing = true;
            let (text, dropped) = (mem::take(&mut state.waiting), mem::take(&mut state.dropped));
            drop(state);
            let _ = stream.write_all(&text);
            if dropped > 0 {
                let _ = stream.write_all(gap(dropped).as_bytes());
            }
            let _ = stream.flush();
        }
    }

    fn flush(&self, patience: Duration) -> Flushed {
        let unwritten = |state: &mut State| state.is_writing || !state.is_empty();
        let (_state, waited) = self
            .emptied
            .wait_timeout_while(self.lock(), patience, unwritten)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            Flushed::Stalled
        } else {
            Flushed::Whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A stream whose reader takes one writing each time it is told to, or all once it is gone.
    struct Slow {
        may: Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.may.recv();
            self.read.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A queue, whoever lets its reader read, and what was read.
    fn stalled() -> (Arc<Queue>, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (let_read, may) = channel();
        let read: Arc<Mutex<Vec<u8>>> = Arc::default();
        let mut stream = Slow {
            may,
            read: read.clone(),
        };
        let queue = Arc::new(Queue::default());
        let served = queue.clone();
        thread::spawn(move || {
            let gap: Gap = Box::new(|lines| format!("{lines} dropped\n"));
            served.serve(&mut stream, &gap);
        });
        (queue, let_read, read)
    }

    fn put(queue: &Queue, numbers: std::ops::Range<u64>, width: usize) {
        for number in numbers {
            queue.put(format!("{number:0width$}\n").as_bytes(), 1);
        }
    }

    fn lines(read: &Mutex<Vec<u8>>) -> Vec<String> {
        let text = String::from_utf8(read.lock().unwrap().clone()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_whole_and_in_order_and_none_is_lost_while_there_is_room() {
        let (queue, let_read, read) = stalled();
        put(&queue, 0..10_000, 8);
        drop(let_read);
        put(&queue, 10_000..20_000, 8);
        assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
        let expected: Vec<String> = (0..20_000).map(|number| format!("{number:08}")).collect();
        assert_eq!(lines(&read), expected);
    }

    #[test]
    fn with_a_stalled_reader_memory_is_bounded_and_the_gap_is_told_where_it_is() {
        let (queue, let_read, read) = stalled();
        let width = 1_023;
        // Three times what fits, even if one buffer is on its way.
        let many = 6 * ROOM as u64 / 1_024;
        put(&queue, 0..many, width);
        assert!(queue.lock().waiting.len() <= ROOM);
        assert_eq!(queue.flush(Duration::ZERO), Flushed::Stalled);
        drop(let_read);
        assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
        put(&queue, many..many + 3, width);
        assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);

        let lines = lines(&read);
        let kept = lines.len() as u64 - 4;
        let number = |number: u64| format!("{number:0width$}");
        let mut expected: Vec<String> = (0..kept).map(number).collect();
        expected.push(format!("{} dropped", many - kept));
        expected.extend((many..many + 3).map(number));
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_line_longer_than_the_room_is_kept() {
        let (queue, let_read, read) = stalled();
        drop(let_read);
        let long = "x".repeat(2 * ROOM);
        queue.put(long.as_bytes(), 1);
        assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
        assert_eq!(lines(&read), [long]);
    }
}
