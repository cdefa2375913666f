//! Writes to a stream that may refuse: what it does not take is counted, and the gap is told once it takes something again.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

/// The line that tells of a gap of so many lines.
pub(super) type Gap = Box<dyn Fn(u64) -> String + Send>;

/// A stream, and what is yet to be told of what did not come through.
pub(super) struct Mouth<'a, S> {
    stream: &'a mut S,
    gap: &'a Gap,
    /// Lines that were dropped, or refused, since a gap was last told.
    lost: u64,
    line: Line,
}

/// How far the last line of a stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Whole,
    Begun,
}

impl<'a, S: Stream> Mouth<'a, S> {
    pub(super) fn new(stream: &'a mut S, gap: &'a Gap) -> Self {
        Mouth {
            stream,
            gap,
            lost: 0,
            line: Line::Whole,
        }
    }

    /// So many lines are missing behind the text.
    pub(super) fn say(&mut self, text: &[u8], dropped: u64) {
        self.tell();
        if self.lost > 0 {
            // Behind a gap that could not be told, it would be told in the wrong place.
            self.lost += lines(text);
        } else if let Err(rest) = self.write(text) {
            self.lost += lines(rest);
        }
        self.lost += dropped;
        self.tell();
        flush(self.stream);
    }

    /// Tells of a gap, if there is one and the stream takes it.
    fn tell(&mut self) {
        if self.lost == 0 {
            return;
        }
        let mut told = (self.gap)(self.lost);
        if self.line == Line::Begun {
            told.insert(0, '\n');
        }
        if self.write(told.as_bytes()).is_ok() {
            self.lost = 0;
        }
    }

    fn write<'t>(&mut self, text: &'t [u8]) -> Result<(), &'t [u8]> {
        let result = write_all(self.stream, text);
        let written = text.len() - result.err().map_or(0, <[u8]>::len);
        match text[..written].last() {
            Some(b'\n') => self.line = Line::Whole,
            Some(_) => self.line = Line::Begun,
            None => {}
        }
        result
    }
}

fn lines(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// A stream that can be written to and waited for.
pub(super) trait Stream: Write + Send {
    /// Waits until it takes something again.
    fn wait(&self) -> io::Result<()>;
}

impl<W: Write + AsFd + Send> Stream for W {
    fn wait(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(self, PollFlags::OUT)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Writes all of it. Where that fails, gives what was not written.
pub(super) fn write_all<'t>(stream: &mut (impl Stream + ?Sized), mut text: &'t [u8]) -> Result<(), &'t [u8]> {
    while !text.is_empty() {
        match stream.write(text) {
            Ok(0) => return Err(text),
            Ok(count) => text = &text[count..],
            Err(error) if may_go_on(stream, &error) => {}
            Err(_) => return Err(text),
        }
    }
    Ok(())
}

/// What cannot be flushed stays where it is, for the next time.
pub(super) fn flush(stream: &mut (impl Stream + ?Sized)) {
    while stream.flush().is_err_and(|error| may_go_on(stream, &error)) {}
}

/// Whether an error is none once the stream has been waited for. Whoever shares a stream can make it one that does not
/// block.
fn may_go_on(stream: &(impl Stream + ?Sized), error: &io::Error) -> bool {
    match error.kind() {
        ErrorKind::Interrupted => true,
        ErrorKind::WouldBlock => stream.wait().is_ok(),
        _ => false,
    }
}
