//! Deleting entries, many with one system call.

use crate::socket::{Socket, SocketError};
use netlink::conntrack::{Direction, Entry, Request};
use netlink::{Errno, KernelError};

/// Answers wait in the socket while the kernel works through what was sent. A default receive buffer (212,992 bytes,
/// when it may not be enlarged) holds about 270 of them at some 800 bytes each, so half of that is asked at once.
const AT_ONCE: usize = 128;

/// What became of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is gone.
    Deleted,
    /// It had gone by itself before, or become another flow's.
    GoneAlready,
    /// The answer was lost, or was no.
    Unanswered,
}

/// Deletes over a socket of its own, so that a dump on another one goes on meanwhile.
pub(super) struct Deleter {
    socket: Socket,
}

impl Deleter {
    pub(super) fn new() -> Result<Self, SocketError> {
        let socket = Socket::netfilter()?;
        Ok(Deleter { socket })
    }

    /// Deletes these entries, and tells for each, by its index, what became of it.
    pub(super) fn delete<'a>(
        &mut self,
        entries: impl Iterator<Item = &'a Entry>,
        mut tell: impl FnMut(usize, Fate),
    ) -> Result<(), SocketError> {
        let mut requests = entries.map(request).enumerate().peekable();
        while let Some((first, _)) = requests.peek() {
            let first = *first;
            let chunk = requests.by_ref().take(AT_ONCE).map(|(_, request)| request);
            self.delete_at_once(chunk, |index, fate| tell(first + index, fate))?;
        }
        Ok(())
    }

    fn delete_at_once(
        &mut self,
        requests: impl Iterator<Item = Request>,
        mut tell: impl FnMut(usize, Fate),
    ) -> Result<(), SocketError> {
        let mut refused = None;
        let mut answered = [false; AT_ONCE];
        let mut count = 0;
        let counted = requests.inspect(|_| count += 1);
        let questions =
            counted.map(|request| move |sequence, bytes: &mut Vec<u8>| request.encode(sequence, bytes));
        let ended = self.socket.ask_many(questions, |index, answer| {
            answered[index] = true;
            match answer {
                Ok(()) => tell(index, Fate::Deleted),
                Err(KernelError {
                    errno: Errno::ENOENT, ..
                }) => tell(index, Fate::GoneAlready),
                Err(error) => {
                    tell(index, Fate::Unanswered);
                    refused.get_or_insert(error);
                }
            }
        });
        for index in (0..count).filter(|index| !answered[*index]) {
            tell(index, Fate::Unanswered);
        }
        match (ended, refused) {
            // The deletions were worked through; only answers are missing. A new socket has no late ones.
            (Err(SocketError::Lost), None) => {
                self.socket = Socket::netfilter()?;
                Ok(())
            }
            (_, Some(error)) => Err(SocketError::Refused(error)),
            (ended, None) => ended,
        }
    }
}

fn request(entry: &Entry) -> Request {
    Request::Delete {
        direction: Direction::Original,
        tuple: entry.original,
        id: entry.id,
        zone: entry.zone,
    }
}
