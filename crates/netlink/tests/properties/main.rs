//! Reading is total, and what is written is read back.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod expression;
mod refusals;
mod total;
mod written;

/// A message header in front of arbitrary bytes, so that decoders get past it.
fn framed(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(16 + payload.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(payload);
    bytes
}
