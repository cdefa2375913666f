//! Sets, maps and their elements.

use super::expr::{self, Expr};
use super::expr_write;
use super::objects::Counters;
use super::request::NAME_LIMIT;
use super::uapi::{self, msg};
use super::verdict::Verdict;
use crate::attr::{Attr, Attrs, Fields};
use crate::error::{DecodeError, EncodeError};
use crate::message::{Message, flags};
use crate::nfnl::{Body, Family, Operation, Subsystem, begin};
use crate::write::MessageWriter;

/// `NFT_SET_*`: what a set is, as bits.
pub mod set_flags {
    /// It has no name of its own and goes with the rule that uses it.
    pub const ANONYMOUS: u32 = 1;
    /// Its elements do not change.
    pub const CONSTANT: u32 = 2;
    /// Its keys are ranges.
    pub const INTERVAL: u32 = 4;
    /// Its elements have data.
    pub const MAP: u32 = 8;
    /// Its elements may have a timeout.
    pub const TIMEOUT: u32 = 0x10;
    /// Rules put elements in.
    pub const EVAL: u32 = 0x20;
    /// Its ranges are ranges in each field of the key.
    pub const CONCAT: u32 = 0x80;
}

/// Number that `nft` gives to the type of a key; the kernel passes it on unread. A concatenation has six bits for each.
pub mod data_type {
    /// A number in the machine's byte order.
    pub const INTEGER: u32 = 4;
    /// An IPv4 address.
    pub const IPV4_ADDR: u32 = 7;
    /// An IPv6 address.
    pub const IPV6_ADDR: u32 = 8;
    /// A protocol number.
    pub const INET_PROTO: u32 = 12;
    /// A port.
    pub const INET_SERVICE: u32 = 13;

    /// The type of a concatenation.
    pub fn concat(types: impl IntoIterator<Item = u32>) -> u32 {
        types.into_iter().fold(0, |all, one| all << 6 | one)
    }
}

/// What the elements of a map hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetData {
    /// A verdict.
    Verdict,
    /// Bytes of a type, so many.
    Value {
        /// As `nft` numbers types.
        kind: u32,
        /// Bytes.
        length: u32,
    },
}

/// `NFT_DATA_VERDICT`.
const VERDICT_TYPE: u32 = 0xffff_ff00;

/// A set or map, to be made or as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set<'a> {
    /// Family of its table.
    pub family: Family,
    /// Its table.
    pub table: &'a str,
    /// Name; of an anonymous one, a template such as `__map%d`.
    pub name: &'a str,
    /// Number by which rules of the same batch find it; the kernel does not report it.
    pub id: Option<u32>,
    /// [`set_flags`].
    pub flags: u32,
    /// Type of the key ([`data_type`]).
    pub key_type: u32,
    /// Bytes of the key.
    pub key_length: u32,
    /// What elements hold, for maps.
    pub data: Option<SetData>,
    /// Elements that fit in; unbounded without.
    pub size: Option<u32>,
    /// Bytes of each field of a key of ranges.
    pub fields: Vec<u32>,
    /// Milliseconds after which elements go.
    pub timeout: Option<u64>,
    /// What the maker stored with it.
    pub userdata: &'a [u8],
    /// Elements that are in it, expired ones not yet gone included; reported by kernels from 6.16, never asked for.
    pub held: Option<u32>,
}

impl<'a> Set<'a> {
    pub(super) fn read(family: Family, attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        use uapi::set as at;
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let description = match fields.nest(at::DESCRIPTION, "set description") {
            Some(nest) => Fields::<{ at::description::COUNT }>::read(nest)?,
            None => Fields::read(Attrs::new(&[], "set description", 0))?,
        };
        let list = description.nest(at::description::CONCAT, "fields of a set's key");
        Ok(Self {
            family,
            table: fields.need(at::TABLE, fields.text(at::TABLE)?)?,
            name: fields.need(at::NAME, fields.text(at::NAME)?)?,
            id: fields.u32(at::ID)?,
            flags: fields.u32(at::FLAGS)?.unwrap_or_default(),
            key_type: fields.u32(at::KEY_TYPE)?.unwrap_or_default(),
            key_length: fields.u32(at::KEY_LENGTH)?.unwrap_or_default(),
            data: fields.u32(at::DATA_TYPE)?.map(|kind| {
                let length = fields.u32(at::DATA_LENGTH).ok().flatten().unwrap_or_default();
                match kind {
                    VERDICT_TYPE => SetData::Verdict,
                    kind => SetData::Value { kind, length },
                }
            }),
            size: description.u32(at::description::SIZE)?,
            fields: list.map(read_fields).transpose()?.unwrap_or_default(),
            timeout: fields.u64(at::TIMEOUT)?,
            userdata: fields.bytes(at::USERDATA).unwrap_or_default(),
            held: fields.u32(at::HELD)?,
        })
    }

    fn write(&self, writer: &mut MessageWriter<'_>) {
        use uapi::set as at;
        name(writer, at::TABLE, self.table);
        name(writer, at::NAME, self.name);
        writer.u32(at::FLAGS, self.flags);
        writer.u32(at::KEY_TYPE, self.key_type);
        writer.u32(at::KEY_LENGTH, self.key_length);
        match self.data {
            None => {}
            Some(SetData::Verdict) => writer.u32(at::DATA_TYPE, VERDICT_TYPE),
            Some(SetData::Value { kind, length }) => {
                writer.u32(at::DATA_TYPE, kind);
                writer.u32(at::DATA_LENGTH, length);
            }
        }
        // The kernel wants a number in every request.
        writer.u32(at::ID, self.id.unwrap_or_default());
        if self.size.is_some() || !self.fields.is_empty() {
            writer.nest(at::DESCRIPTION, |writer| self.write_description(writer));
        }
        if let Some(timeout) = self.timeout {
            writer.u64(at::TIMEOUT, timeout);
        }
        if !self.userdata.is_empty() {
            writer.bytes(at::USERDATA, self.userdata);
        }
    }

    fn write_description(&self, writer: &mut MessageWriter<'_>) {
        use uapi::set::description as at;
        if let Some(size) = self.size {
            writer.u32(at::SIZE, size);
        }
        if self.fields.is_empty() {
            return;
        }
        writer.nest(at::CONCAT, |writer| {
            for length in &self.fields {
                writer.nest(uapi::LIST_ELEM, |writer| writer.u32(at::FIELD_LENGTH, *length));
            }
        });
    }
}

fn read_fields(list: Attrs<'_>) -> Result<Vec<u32>, DecodeError> {
    use uapi::set::description as at;
    list.map(|field| {
        let inside = Fields::<2>::read(field?.nest("field of a set's key"))?;
        inside.need(at::FIELD_LENGTH, inside.u32(at::FIELD_LENGTH)?)
    })
    .collect()
}

/// What an element of a map holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementData<'a> {
    /// Bytes.
    Value(&'a [u8]),
    /// A verdict.
    Verdict(Verdict<'a>),
}

/// An element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// Key, or the lower end of each of its fields.
    pub key: &'a [u8],
    /// Upper end of each field, in sets of ranges.
    pub key_end: Option<&'a [u8]>,
    /// What it holds, in maps.
    pub data: Option<ElementData<'a>>,
    /// Milliseconds that are left to it, as reported.
    pub expires: Option<u64>,
    /// What the maker stored with it.
    pub userdata: &'a [u8],
    /// Its counter, which every lookup that finds it moves. Other things than a counter are not told.
    pub counter: Option<Counters>,
}

impl<'a> Element<'a> {
    /// An element of a plain set.
    pub const fn of(key: &'a [u8]) -> Self {
        Self {
            key,
            key_end: None,
            data: None,
            expires: None,
            userdata: &[],
            counter: None,
        }
    }

    fn read(element: Attr<'a>) -> Result<Self, DecodeError> {
        use uapi::element as at;
        let fields = Fields::<{ at::COUNT }>::read(element.nest("set element"))?;
        let value = |kind, what| -> Result<Option<&'a [u8]>, DecodeError> {
            let Some(nest) = fields.nest(kind, what) else {
                return Ok(None);
            };
            let inside = Fields::<{ uapi::data::COUNT }>::read(nest)?;
            Ok(inside.bytes(uapi::data::VALUE))
        };
        let data = match fields.nest(at::DATA, "element data") {
            None => None,
            Some(nest) => {
                let inside = Fields::<{ uapi::data::COUNT }>::read(nest)?;
                match inside.nest(uapi::data::VERDICT, "element verdict") {
                    Some(verdict) => Some(ElementData::Verdict(Verdict::read(verdict)?)),
                    None => inside.bytes(uapi::data::VALUE).map(ElementData::Value),
                }
            }
        };
        Ok(Self {
            // The element that closes an interval set has no key of its own.
            key: value(at::KEY, "element key")?.unwrap_or_default(),
            key_end: value(at::KEY_END, "element key end")?,
            data,
            expires: fields.u64(at::EXPIRATION)?,
            userdata: fields.bytes(at::USERDATA).unwrap_or_default(),
            counter: match fields.nest(at::EXPRESSION, "element expression") {
                Some(nest) => match expr::read_one(nest)? {
                    Expr::Counter(counters) => Some(counters),
                    _ => None,
                },
                None => None,
            },
        })
    }

    fn write(&self, writer: &mut MessageWriter<'_>) {
        use uapi::element as at;
        let bytes = |writer: &mut MessageWriter<'_>, kind, bytes: &[u8]| {
            writer.nest(kind, |writer| writer.bytes(uapi::data::VALUE, bytes));
        };
        bytes(writer, at::KEY, self.key);
        if let Some(end) = self.key_end {
            bytes(writer, at::KEY_END, end);
        }
        match self.data {
            None => {}
            Some(ElementData::Value(data)) => bytes(writer, at::DATA, data),
            Some(ElementData::Verdict(verdict)) => writer.nest(at::DATA, |writer| {
                writer.nest(uapi::data::VERDICT, |writer| verdict.write(writer));
            }),
        }
        if !self.userdata.is_empty() {
            writer.bytes(at::USERDATA, self.userdata);
        }
        if let Some(counters) = self.counter {
            writer.nest(at::EXPRESSION, |writer| {
                expr_write::write(writer, &Expr::Counter(counters));
            });
        }
    }
}

/// Elements of one set, as the kernel reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements<'a> {
    /// Family of the set's table.
    pub family: Family,
    /// The set's table.
    pub table: &'a str,
    /// The set.
    pub set: &'a str,
    /// Its elements, or some of them.
    pub elements: Vec<Element<'a>>,
}

impl<'a> Elements<'a> {
    pub(super) fn read(family: Family, attrs: Attrs<'a>) -> Result<Self, DecodeError> {
        use uapi::elements as at;
        let fields = Fields::<{ at::COUNT }>::read(attrs)?;
        let list = fields.nest(at::LIST, "set elements");
        let elements = list.map(|list| list.map(|element| Element::read(element?)).collect());
        Ok(Self {
            family,
            table: fields.need(at::TABLE, fields.text(at::TABLE)?)?,
            set: fields.need(at::SET, fields.text(at::SET)?)?,
            elements: elements.transpose()?.unwrap_or_default(),
        })
    }
}

/// The set and the element of it that lie at a byte of a message that puts elements in or takes them out: where a
/// refusal says that the offending attribute starts ([`crate::KernelError::offset`]). `None` when nothing of the kind
/// lies there.
///
/// # Errors
/// Bytes that are no such message.
pub fn element_at(message: Message<'_>, offset: u32) -> Result<Option<(&str, Element<'_>)>, DecodeError> {
    use uapi::elements as at;
    let body = Body::read(message, Subsystem::Nftables)?;
    if !matches!(body.operation, msg::NEWSETELEM | msg::DELSETELEM) {
        return Ok(None);
    }
    let fields = Fields::<{ at::COUNT }>::read(body.attrs("set elements"))?;
    let set = fields.need(at::SET, fields.text(at::SET)?)?;
    let Some(list) = fields.nest(at::LIST, "set elements") else {
        return Ok(None);
    };
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    for element in list {
        let element = element?;
        let starts = element.offset - ATTRIBUTE_HEADER;
        if (starts..element.offset + element.value.len()).contains(&offset) {
            return Ok(Some((set, Element::read(element)?)));
        }
    }
    Ok(None)
}

/// Bytes before an attribute's payload.
const ATTRIBUTE_HEADER: usize = 4;

/// Bytes of elements that fit into one message: its list is one attribute, whose length has 16 bits.
pub const ELEMENTS_LIMIT: usize = 60_000;

/// One operation of a batch on a set or its elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetChange<'a> {
    /// Makes a set, or finds it there.
    New(Set<'a>),
    /// Deletes a set that no rule uses, with its elements.
    Delete {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
        /// Set.
        set: &'a str,
    },
    /// Puts elements in. One that is there already with other data is refused (`EEXIST`).
    Add {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
        /// Set.
        set: &'a str,
        /// The set's number, if it is of the same batch and has no name yet.
        id: Option<u32>,
        /// At most [`ELEMENTS_LIMIT`] bytes of them.
        elements: &'a [Element<'a>],
    },
    /// Takes elements out. One that is not there is refused (`ENOENT`).
    Remove {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
        /// Set.
        set: &'a str,
        /// At most [`ELEMENTS_LIMIT`] bytes of them.
        elements: &'a [Element<'a>],
    },
    /// Takes all elements out.
    Flush {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
        /// Set.
        set: &'a str,
    },
}

impl Operation for SetChange<'_> {
    fn encode(&self, sequence: u32, extra_flags: u16, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (operation, own_flags, family) = match self {
            Self::New(set) => (msg::NEWSET, flags::CREATE, set.family),
            Self::Delete { family, .. } => (msg::DELSET, 0, *family),
            Self::Add { family, .. } => (msg::NEWSETELEM, flags::CREATE, *family),
            Self::Remove { family, .. } | Self::Flush { family, .. } => (msg::DELSETELEM, 0, *family),
        };
        let kind = Subsystem::Nftables.kind(operation);
        let all_flags = flags::REQUEST | own_flags | extra_flags;
        let mut writer = begin(buffer, kind, all_flags, sequence, family);
        match self {
            Self::New(set) => set.write(&mut writer),
            Self::Delete { table, set, .. } => {
                name(&mut writer, uapi::set::TABLE, table);
                name(&mut writer, uapi::set::NAME, set);
            }
            Self::Flush { table, set, .. } => write_elements(&mut writer, table, set, None, &[]),
            Self::Remove {
                table, set, elements, ..
            } => write_elements(&mut writer, table, set, None, elements),
            Self::Add {
                table,
                set,
                id,
                elements,
                ..
            } => write_elements(&mut writer, table, set, *id, elements),
        }
        writer.finish()
    }
}

fn write_elements(
    writer: &mut MessageWriter<'_>,
    table: &str,
    set: &str,
    id: Option<u32>,
    elements: &[Element<'_>],
) {
    use uapi::elements as at;
    name(writer, at::TABLE, table);
    name(writer, at::SET, set);
    if let Some(id) = id {
        writer.u32(at::SET_ID, id);
    }
    if elements.is_empty() {
        return;
    }
    writer.nest(at::LIST, |writer| {
        for element in elements {
            writer.nest(uapi::LIST_ELEM, |writer| element.write(writer));
        }
    });
}

/// A question about sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetRequest<'a> {
    /// Dump of the sets of a table.
    Sets {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
    },
    /// Dump of a set's elements. Its cost grows with the square of their number.
    Elements {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
        /// Set.
        set: &'a str,
    },
    /// These elements: one answer each, and `ENOENT` for the first that is not there.
    Get {
        /// Family.
        family: Family,
        /// Table.
        table: &'a str,
        /// Set.
        set: &'a str,
        /// Elements, of which the keys count.
        elements: &'a [Element<'a>],
    },
}

impl SetRequest<'_> {
    /// Writes the question at the end of `buffer`.
    ///
    /// # Errors
    /// A name that netlink cannot carry; the buffer is then unchanged.
    pub fn encode(&self, sequence: u32, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (operation, more, family) = match *self {
            Self::Sets { family, .. } => (msg::GETSET, flags::DUMP, family),
            Self::Elements { family, .. } => (msg::GETSETELEM, flags::DUMP, family),
            Self::Get { family, .. } => (msg::GETSETELEM, 0, family),
        };
        let kind = Subsystem::Nftables.kind(operation);
        let mut writer = begin(buffer, kind, flags::REQUEST | more, sequence, family);
        match *self {
            Self::Sets { table, .. } => name(&mut writer, uapi::set::TABLE, table),
            Self::Elements { table, set, .. } => write_elements(&mut writer, table, set, None, &[]),
            Self::Get {
                table, set, elements, ..
            } => write_elements(&mut writer, table, set, None, elements),
        }
        writer.finish()
    }
}

/// A name within the kernel's limit.
fn name(writer: &mut MessageWriter<'_>, kind: u16, name: &str) {
    if name.len() > NAME_LIMIT {
        writer.refuse(EncodeError::NameTooLong {
            length: name.len(),
            limit: NAME_LIMIT,
        });
    }
    writer.text(kind, name);
}
