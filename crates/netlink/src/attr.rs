//! Attributes (`struct nlattr`): reading them without trust.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::error::{DecodeError, DecodeErrorKind};

/// Bytes of an attribute's header.
pub(crate) const HEADER: usize = 4;
/// `NLA_F_NESTED`. The kernel's `nf_tables` dumps leave it away, so no reader may rely on it.
pub(crate) const NESTED: u16 = 0x8000;
/// Without the two flag bits.
const TYPE_MASK: u16 = 0x3fff;

/// The next multiple of four.
pub(crate) const fn align(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// One attribute of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Type, without the flag bits.
    pub kind: u16,
    /// Payload without padding.
    pub value: &'a [u8],
    /// Where the payload starts, in bytes from the message's header.
    pub offset: usize,
}

impl<'a> Attr<'a> {
    /// The attributes inside this one.
    pub fn nest(&self, what: &'static str) -> Attrs<'a> {
        Attrs::new(self.value, what, self.offset)
    }
}

/// Iterator over a run of attributes. It ends after the first error.
#[derive(Debug, Clone)]
pub struct Attrs<'a> {
    rest: &'a [u8],
    what: &'static str,
    offset: usize,
}

impl<'a> Attrs<'a> {
    /// Reads `bytes` as attributes of the structure called `what`, which start `offset` bytes into the message.
    pub const fn new(bytes: &'a [u8], what: &'static str, offset: usize) -> Self {
        Self {
            rest: bytes,
            what,
            offset,
        }
    }

    fn fail(&mut self, kind: DecodeErrorKind) -> DecodeError {
        self.rest = &[];
        DecodeError::new(self.what, self.offset, kind)
    }
}

impl Attrs<'_> {
    /// Where the next attribute begins, in bytes from the message's start.
    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let available = self.rest.len();
        let Some((header, _)) = self.rest.split_first_chunk::<HEADER>() else {
            return Some(Err(self.fail(DecodeErrorKind::Truncated {
                needed: HEADER,
                available,
            })));
        };
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & TYPE_MASK;
        if length < HEADER || length > available {
            return Some(Err(self.fail(DecodeErrorKind::BadLength(length))));
        }
        let attr = Attr {
            kind,
            value: &self.rest[HEADER..length],
            offset: self.offset + HEADER,
        };
        // The last attribute of a nest may come without its padding.
        let step = align(length).min(available);
        self.rest = &self.rest[step..];
        self.offset += step;
        Some(Ok(attr))
    }
}

/// The attributes of one structure, by type. Types from `N` on are counted as strangers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a, const N: usize> {
    slots: [Option<Attr<'a>>; N],
    what: &'static str,
    offset: usize,
    /// An attribute of an unknown type, or one that came twice: then `slots` is not the whole truth.
    stranger: Option<Attr<'a>>,
}

impl<'a, const N: usize> Fields<'a, N> {
    /// Sorts attributes by type; of repeated ones the last stays, as in the kernel.
    pub(crate) fn read(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let mut fields = Self {
            slots: [None; N],
            what: attrs.what,
            offset: attrs.offset,
            stranger: None,
        };
        for attr in attrs {
            let attr = attr?;
            match fields.slots.get_mut(usize::from(attr.kind)) {
                Some(slot) => {
                    if slot.replace(attr).is_some() {
                        fields.stranger = Some(attr);
                    }
                }
                None => fields.stranger = Some(attr),
            }
        }
        Ok(fields)
    }

    /// As `read`, but an error if an attribute is malformed, of an unknown type or there twice.
    pub(crate) fn exact(attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        let fields = Self::read(attrs)?;
        match fields.stranger {
            None => Ok(fields),
            Some(attr) => Err(DecodeError::new(
                fields.what,
                attr.offset,
                DecodeErrorKind::Stranger(attr.kind),
            )),
        }
    }

    /// Whether any attribute of the given type is there.
    pub(crate) fn has(&self, kind: u16) -> bool {
        self.attr(kind).is_some()
    }

    pub(crate) fn attr(&self, kind: u16) -> Option<Attr<'a>> {
        self.slots.get(usize::from(kind)).copied().flatten()
    }

    pub(crate) fn bytes(&self, kind: u16) -> Option<&'a [u8]> {
        self.attr(kind).map(|attr| attr.value)
    }

    pub(crate) fn array<const L: usize>(&self, kind: u16) -> Result<Option<[u8; L]>, DecodeError> {
        let Some(attr) = self.attr(kind) else {
            return Ok(None);
        };
        let size = DecodeErrorKind::BadSize {
            attribute: kind,
            length: attr.value.len(),
        };
        attr.value
            .try_into()
            .map(Some)
            .map_err(|_| DecodeError::new(self.what, attr.offset, size))
    }

    pub(crate) fn u8(&self, kind: u16) -> Result<Option<u8>, DecodeError> {
        Ok(self.array::<1>(kind)?.map(|[byte]| byte))
    }

    /// Big-endian, as are nearly all numbers of nfnetlink.
    pub(crate) fn u16(&self, kind: u16) -> Result<Option<u16>, DecodeError> {
        Ok(self.array(kind)?.map(u16::from_be_bytes))
    }

    pub(crate) fn u32(&self, kind: u16) -> Result<Option<u32>, DecodeError> {
        Ok(self.array(kind)?.map(u32::from_be_bytes))
    }

    pub(crate) fn u64(&self, kind: u16) -> Result<Option<u64>, DecodeError> {
        Ok(self.array(kind)?.map(u64::from_be_bytes))
    }

    pub(crate) fn i32(&self, kind: u16) -> Result<Option<i32>, DecodeError> {
        Ok(self.array(kind)?.map(i32::from_be_bytes))
    }

    /// In the machine's byte order; acknowledgements use it.
    pub(crate) fn u32_native(&self, kind: u16) -> Result<Option<u32>, DecodeError> {
        Ok(self.array(kind)?.map(u32::from_ne_bytes))
    }

    pub(crate) fn ipv4(&self, kind: u16) -> Result<Option<Ipv4Addr>, DecodeError> {
        Ok(self.array::<4>(kind)?.map(Ipv4Addr::from))
    }

    pub(crate) fn ipv6(&self, kind: u16) -> Result<Option<Ipv6Addr>, DecodeError> {
        Ok(self.array::<16>(kind)?.map(Ipv6Addr::from))
    }

    /// Text up to the first NUL.
    pub(crate) fn text(&self, kind: u16) -> Result<Option<&'a str>, DecodeError> {
        let Some(attr) = self.attr(kind) else {
            return Ok(None);
        };
        let not_utf8 = DecodeError::new(self.what, attr.offset, DecodeErrorKind::NotUtf8(kind));
        std::str::from_utf8(until_nul(attr.value))
            .map(Some)
            .map_err(|_| not_utf8)
    }

    /// The nest of the given type.
    pub(crate) fn nest(&self, kind: u16, what: &'static str) -> Option<Attrs<'a>> {
        self.attr(kind).map(|attr| attr.nest(what))
    }

    /// Turns an absence into an error that names the attribute.
    pub(crate) fn need<T>(&self, kind: u16, value: Option<T>) -> Result<T, DecodeError> {
        value.ok_or_else(|| DecodeError::new(self.what, self.offset, DecodeErrorKind::Missing(kind)))
    }

    /// An error about a number that has no meaning here.
    pub(crate) fn unknown(&self, kind: u16, value: impl Into<u64>) -> DecodeError {
        let offset = self.attr(kind).map_or(self.offset, |attr| attr.offset);
        DecodeError::new(
            self.what,
            offset,
            DecodeErrorKind::UnknownValue {
                attribute: kind,
                value: value.into(),
            },
        )
    }
}

/// The bytes before the first NUL, or all of them.
pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}
