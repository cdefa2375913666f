//! The body of an answer, by line or by piece, with a limit on how long nothing may come.

use super::trouble::Trouble;
use crate::scan::MAX_ITEM;
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// A buffer that once held a large object is not kept for the small ones, in bytes.
const KEEP: usize = 256 << 10;

/// An answer that is being read.
pub(crate) struct Body {
    stream: Pin<Box<dyn AsyncBufRead + Send>>,
    silence: Duration,
    line: Vec<u8>,
}

impl Body {
    /// Reads from `stream`, and gives up when nothing came for `silence`.
    pub(crate) fn new(stream: impl AsyncBufRead + Send + 'static, silence: Duration) -> Self {
        Body {
            stream: Box::pin(stream),
            silence,
            line: Vec::new(),
        }
    }

    /// The next bytes, handed to `take`; `None` at the end.
    pub(crate) async fn piece<R>(&mut self, take: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, Trouble> {
        let bytes = next_bytes(&mut self.stream, self.silence).await?;
        let count = bytes.len();
        if count == 0 {
            return Ok(None);
        }
        let taken = take(bytes);
        self.stream.consume_unpin(count);
        Ok(Some(taken))
    }

    /// The next line without its end; `None` when the body ends. A last line that was not ended is half an event and
    /// not given out.
    pub(crate) async fn line(&mut self) -> Result<Option<&[u8]>, Trouble> {
        self.line.clear();
        self.line.shrink_to(KEEP);
        loop {
            let bytes = next_bytes(&mut self.stream, self.silence).await?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(bytes.len(), |end| end + 1);
            self.line.extend_from_slice(&bytes[..end.unwrap_or(count)]);
            self.stream.consume_unpin(count);
            if self.line.len() > MAX_ITEM {
                return Err(Trouble::Garbled("an event larger than any API object".to_owned()));
            }
            if end.is_some() {
                return Ok(Some(&self.line));
            }
        }
    }
}

async fn next_bytes(
    stream: &mut Pin<Box<dyn AsyncBufRead + Send>>,
    silence: Duration,
) -> Result<&[u8], Trouble> {
    match timeout(silence, stream.fill_buf()).await {
        Err(_) => Err(Trouble::Silent(silence)),
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(Trouble::Broken(super::trouble::root_causes(&error))),
    }
}
