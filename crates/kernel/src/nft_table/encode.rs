//! From the values of `nftables` to operations of netlink.
//!
//! Expressions and registers are those that `nft` itself uses, since `nft list` reads a rule back by its form.

use super::expressions::{ANONYMOUS_MAP, Expressions, Words};
use crate::nft::family;
use model::Family;
use netlink::EncodeError;
use netlink::nfnl::Batch;
use netlink::nft::{
    Change, ELEMENTS_LIMIT, Element as WireElement, ElementData, Hook, NewBase, Place, Policy,
    Set as WireSet, SetChange, SetData, Verdict, data_type, set_flags,
};
use nftables::ast::{
    Action, Base, BaseKind, Chain, Data, Element, ElementKey, Flags, Name, Part, Rule, Set, Value,
};
use nftables::names::TABLE;
use nftables::wire::{self, End};

/// Bytes of an address.
pub(super) fn address_length(of: Family) -> u32 {
    match of {
        Family::V4 => 4,
        Family::V6 => 16,
    }
}

/// Fields of a key are padded to whole words.
pub(super) const WORD: u32 = 4;

pub(super) fn length_of(part: Part, of: Family) -> u32 {
    match part {
        Part::Source | Part::Destination => address_length(of),
        Part::Protocol => 1,
        Part::Port => 2,
    }
}

fn type_of(part: Part, of: Family) -> u32 {
    match (part, of) {
        (Part::Source | Part::Destination, Family::V4) => data_type::IPV4_ADDR,
        (Part::Source | Part::Destination, Family::V6) => data_type::IPV6_ADDR,
        (Part::Protocol, _) => data_type::INET_PROTO,
        (Part::Port, _) => data_type::INET_SERVICE,
    }
}

/// `NFTNL_UDATA_SET_COMMENT`; for rules and elements a comment is user data of type 0.
const SET_COMMENT: u8 = 7;

pub(super) fn comment(kind: u8, text: &str) -> Vec<u8> {
    if text.is_empty() {
        return Vec::new();
    }
    let length = u8::try_from(text.len() + 1).expect("invariant: comments are short");
    let mut bytes = vec![kind, length];
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes
}

/// Adds a set.
pub(super) fn set(batch: &mut Batch, of: Family, set: &Set) -> Result<(), EncodeError> {
    let lengths = || set.key.iter().map(|part| length_of(*part, of));
    let data = match set.data {
        Data::None => None,
        Data::Endpoint => Some(SetData::Value {
            kind: data_type::concat([type_of(Part::Destination, of), data_type::INET_SERVICE]),
            length: address_length(of) + WORD,
        }),
    };
    let (flags, size, fields) = match set.flags {
        Flags::Plain => (0, None, Vec::new()),
        Flags::Interval => (set_flags::INTERVAL | set_flags::CONCAT, None, lengths().collect()),
        Flags::Clients { size } => (set_flags::TIMEOUT | set_flags::EVAL, Some(size), Vec::new()),
    };
    let map = if data.is_some() { set_flags::MAP } else { 0 };
    let key_length = match set.key {
        [one] => length_of(*one, of),
        _ => lengths().map(|length| length.next_multiple_of(WORD)).sum(),
    };
    batch.push(&SetChange::New(WireSet {
        family: family(of),
        table: TABLE,
        name: set.name.as_str(),
        id: None,
        flags: flags | map,
        key_type: data_type::concat(set.key.iter().map(|part| type_of(*part, of))),
        key_length,
        data,
        size,
        fields,
        timeout: None,
        userdata: &comment(SET_COMMENT, set.comment),
        held: None,
    }))?;
    Ok(())
}

/// Adds a chain without its rules.
pub(super) fn chain(batch: &mut Batch, of: Family, chain: &Chain) -> Result<(), EncodeError> {
    batch.push(&Change::NewChain {
        family: family(of),
        table: TABLE,
        name: chain.name.as_str(),
        base: chain.base.map(base),
    })?;
    Ok(())
}

fn base(base: Base) -> NewBase<'static> {
    let hook = match base.hook {
        nftables::ast::Hook::Prerouting => Hook::Prerouting,
        nftables::ast::Hook::Input => Hook::Input,
        nftables::ast::Hook::Forward => Hook::Forward,
        nftables::ast::Hook::Output => Hook::Output,
        nftables::ast::Hook::Postrouting => Hook::Postrouting,
    };
    let kind = match base.kind {
        BaseKind::Filter => "filter",
        BaseKind::Nat => "nat",
    };
    NewBase {
        hook,
        priority: base.priority,
        kind,
        policy: Policy::Accept,
    }
}

/// Adds a rule at the end of a chain. `next_id` numbers sets without a name.
pub(super) fn rule(
    batch: &mut Batch,
    of: Family,
    chain: &Name,
    rule: &Rule,
    next_id: &mut u32,
) -> Result<(), EncodeError> {
    let mut words = Words {
        of,
        bytes: Vec::new(),
    };
    // Expressions borrow their bytes, so those come first.
    rule.matches.iter().for_each(|part| words.of_match(part));
    rule.actions.iter().for_each(|action| words.of_action(action));
    let mut expressions = Expressions {
        of,
        bytes: words.bytes.iter(),
        all: Vec::new(),
    };
    rule.matches.iter().for_each(|part| expressions.matched(part));
    for action in &rule.actions {
        match action {
            Action::JumpRandom(chains) => {
                *next_id += 1;
                die(batch, of, chains, *next_id)?;
                expressions.thrown(chains.len(), *next_id);
            }
            Action::JumpHashed(chains) => {
                *next_id += 1;
                die(batch, of, chains, *next_id)?;
                expressions.hashed(chains.len(), *next_id);
            }
            _ => expressions.acted(action),
        }
    }
    batch.push(&Change::NewRule {
        family: family(of),
        table: TABLE,
        chain: chain.as_str(),
        place: Place::Last,
        expressions: &expressions.all,
        userdata: &comment(0, rule.comment.unwrap_or_default()),
    })?;
    Ok(())
}

/// User data of a set: its key is in the machine's byte order (`NFTNL_UDATA_SET_KEYBYTEORDER`, host endian).
const HOST_ORDER: [u8; 6] = [0, 4, 1, 0, 0, 0];

fn die(batch: &mut Batch, of: Family, chains: &[Name], id: u32) -> Result<(), EncodeError> {
    batch.push(&SetChange::New(WireSet {
        family: family(of),
        table: TABLE,
        name: ANONYMOUS_MAP,
        id: Some(id),
        flags: set_flags::ANONYMOUS | set_flags::CONSTANT | set_flags::MAP,
        key_type: data_type::INTEGER,
        key_length: WORD,
        data: Some(SetData::Verdict),
        size: u32::try_from(chains.len()).ok(),
        fields: Vec::new(),
        timeout: None,
        userdata: &HOST_ORDER,
        held: None,
    }))?;
    let sides: Vec<[u8; 4]> = (0_u32..).take(chains.len()).map(u32::to_ne_bytes).collect();
    let elements: Vec<WireElement<'_>> = sides
        .iter()
        .zip(chains)
        .map(|(side, chain)| WireElement {
            data: Some(ElementData::Verdict(Verdict::Jump(chain.as_str()))),
            ..WireElement::of(side)
        })
        .collect();
    for some in in_messages(&elements) {
        batch.push(&SetChange::Add {
            family: family(of),
            table: TABLE,
            set: ANONYMOUS_MAP,
            id: Some(id),
            elements: some,
        })?;
    }
    Ok(())
}

/// Parts of a list of elements that each fit into a message.
fn in_messages<'e, 'b>(elements: &'e [WireElement<'b>]) -> impl Iterator<Item = &'e [WireElement<'b>]> {
    let mut rest = elements;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest
            .iter()
            .take_while(|element| {
                bytes += bytes_of(element);
                bytes <= ELEMENTS_LIMIT
            })
            .count();
        let (now, later) = rest.split_at(fits);
        rest = later;
        (!now.is_empty()).then_some(now)
    })
}

/// More than an element takes: each of its parts has up to three headers and padding.
fn bytes_of(element: &WireElement<'_>) -> usize {
    const HEADERS: usize = 16;
    let data = match element.data {
        None => 0,
        Some(ElementData::Value(bytes)) => bytes.len() + HEADERS,
        Some(ElementData::Verdict(verdict)) => verdict.target().map_or(0, str::len) + 2 * HEADERS,
    };
    let end = element.key_end.map_or(0, |end| end.len() + HEADERS);
    element.key.len() + end + data + element.userdata.len() + 2 * HEADERS
}

/// What bytes say of one element.
pub(super) struct Encoded {
    key: Vec<u8>,
    key_end: Option<Vec<u8>>,
    data: Option<Vec<u8>>,
    userdata: Vec<u8>,
}

impl Encoded {
    pub(super) fn of(key: &ElementKey, element: &Element) -> Encoded {
        let ranges = key.key.iter().any(|value| matches!(value, Value::Network(_)));
        Encoded {
            key: wire::key(&key.key, End::Lower),
            key_end: ranges.then(|| wire::key(&key.key, End::Upper)),
            data: element.endpoint.map(wire::endpoint),
            userdata: comment(0, element.comment.as_deref().unwrap_or_default()),
        }
    }

    pub(super) fn wire(&self) -> WireElement<'_> {
        WireElement {
            key: &self.key,
            key_end: self.key_end.as_deref(),
            data: self.data.as_deref().map(ElementData::Value),
            expires: None,
            userdata: &self.userdata,
            counter: None,
        }
    }

    /// An element to take out: its key alone.
    pub(super) fn wire_key(&self) -> WireElement<'_> {
        WireElement {
            data: None,
            userdata: &[],
            ..self.wire()
        }
    }
}

/// Adds operations that put elements of one set in.
pub(super) fn add(
    batch: &mut Batch,
    of: Family,
    set: &Name,
    elements: &[Encoded],
) -> Result<(), EncodeError> {
    let wire: Vec<WireElement<'_>> = elements.iter().map(Encoded::wire).collect();
    for some in in_messages(&wire) {
        batch.push(&SetChange::Add {
            family: family(of),
            table: TABLE,
            set: set.as_str(),
            id: None,
            elements: some,
        })?;
    }
    Ok(())
}

/// Adds operations that take elements of one set out.
pub(super) fn remove(
    batch: &mut Batch,
    of: Family,
    set: &Name,
    elements: &[Encoded],
) -> Result<(), EncodeError> {
    let wire: Vec<WireElement<'_>> = elements.iter().map(Encoded::wire_key).collect();
    for some in in_messages(&wire) {
        batch.push(&SetChange::Remove {
            family: family(of),
            table: TABLE,
            set: set.as_str(),
            elements: some,
        })?;
    }
    Ok(())
}
