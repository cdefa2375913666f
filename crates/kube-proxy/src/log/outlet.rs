//! One stream, written by a thread of its own: whoever logs never waits for whoever reads.
//!
//! * Lines wait in one buffer, in order, while the thread writes another. A reader that stalls fills the one that waits;
//!   from then on lines are dropped and counted, until the thread can take the buffer. The gap is told where it is.
//! * What the stream refuses is counted as dropped, too. One that does not block is waited for.
//! * Without a thread, lines are written by whoever logs.

use super::mouth::{Gap, Mouth, Stream, flush, write_all};
use std::io::Write;
use std::mem;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How many bytes may wait. As many may be on their way at that time.
const ROOM: usize = 4 << 20;

/// How long the end of the process may be held up.
const PATIENCE: Duration = Duration::from_secs(1);

/// A stream.
pub(super) enum Outlet {
    /// With a thread that writes.
    Queued(Arc<Queue>),
    /// Written at once.
    Direct(Mutex<Box<dyn Stream>>),
}

impl Outlet {
    /// `open` gives the stream. A thread of this name is started for it.
    pub(super) fn new<W: Write + AsFd + Send + 'static>(name: &str, open: fn() -> W, gap: Gap) -> Outlet {
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
                // Nobody counts what is dropped here, and nobody would be told.
                let _ = write_all(&mut **stream, text);
                flush(&mut **stream);
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
    /// What had come when it was last taken is written.
    emptied: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines that found no room behind those that wait.
    dropped: u64,
    /// How often something came, and how much of that is done with.
    put: u64,
    written: u64,
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
        state.put += 1;
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
    fn serve(&self, stream: &mut impl Stream, gap: &Gap) {
        let mut mouth = Mouth::new(stream, gap);
        loop {
            let mut state = self.lock();
            while state.is_empty() {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let (text, dropped) = (mem::take(&mut state.waiting), mem::take(&mut state.dropped));
            let put = state.put;
            drop(state);
            mouth.say(&text, dropped);
            self.lock().written = put;
            self.emptied.notify_all();
        }
    }

    /// Waits for what has come by now. More may come all the time.
    fn flush(&self, patience: Duration) -> Flushed {
        let state = self.lock();
        let put = state.put;
        let (_state, waited) = self
            .emptied
            .wait_timeout_while(state, patience, |state| state.written < put)
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
    use std::io::{self, ErrorKind, Read};
    use std::sync::Weak;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
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

    impl Stream for Slow {
        fn wait(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A queue whose thread writes to a stream.
    fn serve(mut stream: impl Stream + 'static) -> Arc<Queue> {
        let queue = Arc::new(Queue::default());
        let served = queue.clone();
        thread::spawn(move || {
            let gap: Gap = Box::new(|lines| format!("{lines} dropped\n"));
            served.serve(&mut stream, &gap);
        });
        queue
    }

    /// A queue, whoever lets its reader read, and what was read.
    fn stalled() -> (Arc<Queue>, Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let (let_read, may) = channel();
        let read: Arc<Mutex<Vec<u8>>> = Arc::default();
        let queue = serve(Slow {
            may,
            read: read.clone(),
        });
        (queue, let_read, read)
    }

    fn put(queue: &Queue, numbers: std::ops::Range<u64>, width: usize) {
        for number in numbers {
            queue.put(format!("{number:0width$}\n").as_bytes(), 1);
        }
    }

    fn lines_of(read: &Mutex<Vec<u8>>) -> Vec<String> {
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
        assert_eq!(lines_of(&read), expected);
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

        let lines = lines_of(&read);
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
        assert_eq!(lines_of(&read), [long]);
    }

    /// While a line is written, another comes.
    struct Busy {
        queue: Arc<Mutex<Weak<Queue>>>,
        is_over: Arc<AtomicBool>,
    }

    impl Write for Busy {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if !self.is_over.load(Ordering::Relaxed)
                && let Some(queue) = self.queue.lock().unwrap().upgrade()
            {
                put(&queue, 0..1, 8);
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Busy {
        fn wait(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_comes_while_it_is_waited_is_not_waited_for() {
        let (to, is_over): (Arc<Mutex<Weak<Queue>>>, Arc<AtomicBool>) = Default::default();
        let queue = serve(Busy {
            queue: to.clone(),
            is_over: is_over.clone(),
        });
        *to.lock().unwrap() = Arc::downgrade(&queue);
        put(&queue, 0..1, 8);
        assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
        is_over.store(true, Ordering::Relaxed);
    }

    /// A stream of so much room.
    struct Disk {
        room: Arc<AtomicUsize>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.room.load(Ordering::Relaxed));
            if count == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room.fetch_sub(count, Ordering::Relaxed);
            self.written.lock().unwrap().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Disk {
        fn wait(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_stream_refuses_is_counted_and_told_where_it_is() {
        let (room, written): (Arc<AtomicUsize>, Arc<Mutex<Vec<u8>>>) = Default::default();
        let queue = serve(Disk {
            room: room.clone(),
            written: written.clone(),
        });
        for (has, expected) in [
            // Nothing, whole lines, and a line and a part of one.
            (0, "100 dropped\n100\n101\n"),
            (12, "000\n001\n002\n97 dropped\n100\n101\n"),
            (6, "000\n00\n99 dropped\n100\n101\n"),
        ] {
            written.lock().unwrap().clear();
            room.store(has, Ordering::Relaxed);
            put(&queue, 0..50, 3);
            assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
            put(&queue, 50..100, 3);
            assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
            room.store(1_000_000, Ordering::Relaxed);
            put(&queue, 100..102, 3);
            assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
            assert_eq!(
                String::from_utf8_lossy(&written.lock().unwrap()),
                expected,
                "{has}"
            );
        }
    }

    #[test]
    fn a_stream_that_does_not_block_is_waited_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&writer, true).unwrap();
        let queue = serve(writer);
        // More than a pipe holds.
        put(&queue, 0..200, 8_191);
        assert_eq!(queue.flush(Duration::ZERO), Flushed::Stalled);
        let mut text = vec![0; 200 * 8_192];
        reader.read_exact(&mut text).unwrap();
        assert_eq!(queue.flush(Duration::from_mins(1)), Flushed::Whole);
        let expected: Vec<String> = (0..200).map(|number| format!("{number:08191}")).collect();
        assert_eq!(lines_of(&Mutex::new(text)), expected);
    }
}
