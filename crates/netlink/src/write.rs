//! Writing messages and attributes.

use crate::attr::{HEADER, NESTED, align};
use crate::error::EncodeError;
use crate::message::HEADER_LENGTH;

/// Writes one message at the end of a buffer. Mistakes are kept until [`MessageWriter::finish`], which then takes
/// the unfinished message back out of the buffer.
#[derive(Debug)]
pub struct MessageWriter<'b> {
    buffer: &'b mut Vec<u8>,
    start: usize,
    error: Option<EncodeError>,
}

impl<'b> MessageWriter<'b> {
    /// Starts a message. `flags` are `NLM_F_*` bits ([`crate::message::flags`]).
    pub fn begin(buffer: &'b mut Vec<u8>, kind: u16, flags: u16, sequence: u32) -> Self {
        let start = buffer.len();
        buffer.extend_from_slice(&[0; 4]);
        buffer.extend_from_slice(&kind.to_ne_bytes());
        buffer.extend_from_slice(&flags.to_ne_bytes());
        buffer.extend_from_slice(&sequence.to_ne_bytes());
        // The kernel fills in the sender's port.
        buffer.extend_from_slice(&[0; 4]);
        debug_assert_eq!(buffer.len() - start, HEADER_LENGTH);
        Self {
            buffer,
            start,
            error: None,
        }
    }

    /// Fixed bytes between the header and the attributes; their length must be a multiple of four.
    pub fn fixed(&mut self, bytes: &[u8]) {
        debug_assert_eq!(bytes.len() % 4, 0);
        self.buffer.extend_from_slice(bytes);
    }

    /// An attribute with a raw payload.
    pub fn bytes(&mut self, kind: u16, payload: &[u8]) {
        let at = self.open(kind);
        self.buffer.extend_from_slice(payload);
        self.close(kind, at);
    }

    /// Text with a closing NUL.
    pub fn text(&mut self, kind: u16, text: &str) {
        if text.bytes().any(|byte| byte == 0) {
            self.error.get_or_insert(EncodeError::NulInText(kind));
        }
        let at = self.open(kind);
        self.buffer.extend_from_slice(text.as_bytes());
        self.buffer.push(0);
        self.close(kind, at);
    }

    /// One byte.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.bytes(kind, &[value]);
    }

    /// Big-endian 16 bits.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Big-endian 32 bits.
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Big-endian 64 bits.
    pub fn u64(&mut self, kind: u16, value: u64) {
        self.bytes(kind, &value.to_be_bytes());
    }

    /// Attributes inside an attribute.
    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) {
        let at = self.open(kind | NESTED);
        inside(self);
        self.close(kind, at);
    }

    /// Remembers a mistake; the first one counts.
    pub(crate) fn refuse(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    fn open(&mut self, kind: u16) -> usize {
        let at = self.buffer.len();
        self.buffer.extend_from_slice(&[0; 2]);
        self.buffer.extend_from_slice(&kind.to_ne_bytes());
        debug_assert_eq!(self.buffer.len() - at, HEADER);
        at
    }

    fn close(&mut self, kind: u16, at: usize) {
        let length = self.buffer.len() - at;
        match u16::try_from(length) {
            Ok(short) => self.buffer[at..at + 2].copy_from_slice(&short.to_ne_bytes()),
            Err(_) => self.refuse(EncodeError::AttributeTooLong {
                attribute: kind,
                length,
            }),
        }
        self.buffer.resize(at + align(length), 0);
    }

    /// Completes the message.
    ///
    /// # Errors
    /// The first value that could not be written; the buffer is then as it was before `begin`.
    pub fn finish(self) -> Result<(), EncodeError> {
        let length = self.buffer.len() - self.start;
        let error = match (self.error, u32::try_from(length)) {
            (None, Ok(short)) => {
                self.buffer[self.start..self.start + 4].copy_from_slice(&short.to_ne_bytes());
                return Ok(());
            }
            (Some(error), _) => error,
            (None, Err(_)) => EncodeError::MessageTooLong(length),
        };
        self.buffer.truncate(self.start);
        Err(error)
    }
}
