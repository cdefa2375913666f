//! Following a dump over several receive buffers.

use thiserror::Error;

use crate::error::{DecodeError, KernelError};
use crate::message::{Message, Messages, Reply, flags};

/// How far a dump or a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More buffers will come.
    More,
    /// The end has come and what was read is consistent.
    Complete,
    /// The end has come, but something changed meanwhile (`NLM_F_DUMP_INTR`): throw away what was read and ask again.
    Interrupted,
}

/// Why a dump did not work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DumpError {
    /// The kernel refused it.
    #[error("the dump was refused")]
    Refused(#[source] KernelError),
    /// Bytes that make no sense.
    #[error("the dump could not be read")]
    Garbled(#[from] DecodeError),
    /// The kernel lost messages (`NLMSG_OVERRUN`).
    #[error("messages of the dump were lost")]
    Overrun,
}

/// Reads the answer to one request, buffer by buffer, and keeps nothing but where it is. The answer is a dump, or one
/// message alone (`Request::Generation` and the like), or an acknowledgement.
///
/// Messages with another sequence number (late answers, notifications) are passed over.
#[derive(Debug, Clone, Copy)]
pub struct Dump {
    sequence: u32,
    interrupted: bool,
}

impl Dump {
    /// Follows the request that was sent with this sequence number.
    pub const fn new(sequence: u32) -> Self {
        Self {
            sequence,
            interrupted: false,
        }
    }

    /// Reads one receive buffer and hands each message of the dump to `each`.
    ///
    /// # Errors
    /// A refusal, a garbled message, or what `each` returned.
    pub fn read<'a, E: From<DumpError>>(
        &mut self,
        buffer: &'a [u8],
        mut each: impl FnMut(Message<'a>) -> Result<(), E>,
    ) -> Result<Progress, E> {
        for message in Messages::new(buffer) {
            let message = message.map_err(DumpError::Garbled)?;
            if message.header.sequence != self.sequence {
                continue;
            }
            self.interrupted |= message.header.is_dump_interrupted();
            match Reply::read(message).map_err(DumpError::Garbled)? {
                Reply::Data(message) => {
                    each(message)?;
                    if message.header.flags & flags::MULTI == 0 {
                        return Ok(self.end());
                    }
                }
                Reply::Done(None) | Reply::Ack(_) => return Ok(self.end()),
                Reply::Done(Some(error)) | Reply::Refused(error) => {
                    return Err(DumpError::Refused(error).into());
                }
                Reply::Noop => {}
                Reply::Overrun => return Err(DumpError::Overrun.into()),
            }
        }
        Ok(Progress::More)
    }

    const fn end(self) -> Progress {
        if self.interrupted {
            Progress::Interrupted
        } else {
            Progress::Complete
        }
    }
}
