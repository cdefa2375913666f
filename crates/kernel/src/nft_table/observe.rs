//! Reading a table back.

use super::decode::{self, Dice};
use super::encode::Encoded;
use crate::nft::family;
use crate::socket::{Dumped, Socket, SocketError};
use model::Family;
use netlink::Errno;
use netlink::nft::{self, ElementData, Message, Request, Set as WireSet, SetRequest, Verdict, set_flags};
use nftables::ast::{Base, BaseKind, Element, ElementKey, Hook, Name};
use nftables::names::{self, Role, TABLE};
use nftables::pool::Pool;
use nftables::step::{Observation, Reading, Seen, SeenChain, SeenFrame, SeenSet};
use nftables::wire;
use std::collections::BTreeMap;

/// Reads what is asked for.
pub(super) fn observe(
    socket: &mut Socket,
    of: Family,
    reading: &Reading,
) -> Result<Observation, SocketError> {
    Ok(match reading {
        Reading::Frame => Observation::Frame(frame(socket, of)?.map(|(frame, _)| frame)),
        Reading::Everything => Observation::Everything(everything(socket, of)?),
        Reading::Elements(keys) => Observation::Elements(elements_by_key(socket, of, keys)?),
    })
}

fn everything(socket: &mut Socket, of: Family) -> Result<Option<Seen>, SocketError> {
    let Some((frame, own)) = frame(socket, of)? else {
        return Ok(None);
    };
    let mut elements = Pool::default();
    for name in own {
        read_set(socket, of, &name, &mut elements)?;
    }
    Ok(Some(Seen { frame, elements }))
}

/// Puts the elements of a set of ours into the pool. What packets put there is not read: it is not ours to keep.
///
/// A host where somebody commits all the time tears every reading of a large set (`NLM_F_DUMP_INTR`, which the kernel
/// says of commits to any table). Such a reading is taken as it is: nobody else writes into our sets as a rule, who does
/// is heard of, and what is believed wrongly is refused and then read by its key.
fn read_set(socket: &mut Socket, of: Family, name: &Name, pool: &mut Pool) -> Result<(), SocketError> {
    let form = names::form_of(name.as_str()).expect("invariant: only our sets are read");
    if matches!(form.role, Role::Clients(_)) {
        return Ok(());
    }
    let request = SetRequest::Elements {
        family: family(of),
        table: TABLE,
        set: name.as_str(),
    };
    let found = socket.dump_of(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewElements(elements) => Ok(Some(elements.elements.iter().map(raw).collect::<Vec<_>>())),
            _ => Ok(None),
        },
    )?;
    let (Dumped::Whole(found) | Dumped::Torn(found)) = found;
    for (key, data) in found.into_iter().flatten() {
        pool.add(name, key, data);
    }
    Ok(())
}

/// A key, in sets of ranges with its upper end behind it, and data.
fn raw(element: &nft::Element<'_>) -> (Box<[u8]>, Box<[u8]>) {
    let mut key = element.key.to_vec();
    key.extend(element.key_end.unwrap_or_default());
    let data = match element.data {
        Some(ElementData::Value(bytes)) => bytes,
        _ => &[],
    };
    (key.into(), data.into())
}

/// Sets and chains, and the names of the sets that are ours; `None` without a table.
fn frame(socket: &mut Socket, of: Family) -> Result<Option<(SeenFrame, Vec<Name>)>, SocketError> {
    if !has_table(socket, of)? {
        return Ok(None);
    }
    let mut frame = SeenFrame::default();
    let mut anonymous = Vec::new();
    sets(socket, of, &mut frame, &mut anonymous)?;
    let own = frame.sets.iter().filter(|(_, seen)| **seen == SeenSet::Ours);
    let own: Vec<Name> = own.map(|(name, _)| name.clone()).collect();
    let mut dice = Dice::new();
    for name in anonymous {
        let sides = die(socket, of, &name)?;
        dice.insert(name, sides);
    }
    chains(socket, of, &mut frame)?;
    rules(socket, of, &dice, &mut frame)?;
    Ok(Some((frame, own)))
}

fn has_table(socket: &mut Socket, of: Family) -> Result<bool, SocketError> {
    let request = Request::Tables { family: family(of) };
    let found = socket.dump(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewTable(table) if table.name == TABLE && table.family == family(of) => Ok(Some(())),
            _ => Ok(None),
        },
    )?;
    Ok(!found.is_empty())
}

fn sets(
    socket: &mut Socket,
    of: Family,
    frame: &mut SeenFrame,
    anonymous: &mut Vec<String>,
) -> Result<(), SocketError> {
    let request = SetRequest::Sets {
        family: family(of),
        table: TABLE,
    };
    let found = socket.dump(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewSet(set) => {
                let seen = (set.flags & set_flags::ANONYMOUS == 0).then(|| seen_set(&set, of));
                Ok(Some((set.name.to_owned(), seen)))
            }
            _ => Ok(None),
        },
    )?;
    for (name, seen) in found {
        match seen {
            Some(seen) => drop(frame.sets.insert(Name::new(name), seen)),
            None => anonymous.push(name),
        }
    }
    Ok(())
}

/// Whether a set is what its name says, by the sizes and flags that the kernel goes by.
fn seen_set(set: &WireSet<'_>, of: Family) -> SeenSet {
    let Some(form) = names::form_of(set.name) else {
        return SeenSet::Strange;
    };
    let key_length = wire::key_length(form.key, of);
    let data_length = match form.data {
        nftables::ast::Data::None => None,
        nftables::ast::Data::Endpoint => Some(wire::endpoint_length(of)),
    };
    let found_length = match set.data {
        None => None,
        Some(nft::SetData::Verdict) => return SeenSet::Strange,
        Some(nft::SetData::Value { length, .. }) => usize::try_from(length).ok(),
    };
    let interval = set.flags & set_flags::INTERVAL != 0;
    let dynamic = set.flags & set_flags::EVAL != 0;
    let alike = usize::try_from(set.key_length).ok() == Some(key_length)
        && found_length == data_length
        && interval == (set.name == names::ALLOWED)
        && dynamic == matches!(form.role, Role::Clients(_));
    if alike { SeenSet::Ours } else { SeenSet::Strange }
}

/// The chains that the sides of a die lead to; empty when the map is no die.
fn die(socket: &mut Socket, of: Family, name: &str) -> Result<Vec<Name>, SocketError> {
    let request = SetRequest::Elements {
        family: family(of),
        table: TABLE,
        set: name,
    };
    let found = socket.dump(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewElements(elements) => Ok(Some(
                elements.elements.iter().filter_map(side).collect::<Vec<_>>(),
            )),
            _ => Ok(None),
        },
    )?;
    let sides: BTreeMap<u32, Name> = found.into_iter().flatten().collect();
    let whole = (0..).zip(sides.keys()).all(|(at, side): (u32, _)| at == *side);
    Ok(if whole {
        sides.into_values().collect()
    } else {
        Vec::new()
    })
}

fn side(element: &nft::Element<'_>) -> Option<(u32, Name)> {
    let Some(ElementData::Verdict(Verdict::Jump(chain))) = element.data else {
        return None;
    };
    let side = u32::from_ne_bytes(element.key.try_into().ok()?);
    Some((side, Name::new(chain)))
}

fn chains(socket: &mut Socket, of: Family, frame: &mut SeenFrame) -> Result<(), SocketError> {
    let request = Request::Chains { family: family(of) };
    let found = socket.dump(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewChain(chain) if chain.table == TABLE => {
                let base = chain.base.as_ref().and_then(base);
                Ok(Some((Name::new(chain.name), base)))
            }
            _ => Ok(None),
        },
    )?;
    let seen = |base| SeenChain {
        base,
        rules: Vec::new(),
    };
    frame.chains = found.into_iter().map(|(name, base)| (name, seen(base))).collect();
    Ok(())
}

fn base(base: &nft::Base<'_>) -> Option<Base> {
    let hook = match nft::Hook::from_code(base.hook)? {
        nft::Hook::Prerouting => Hook::Prerouting,
        nft::Hook::Input => Hook::Input,
        nft::Hook::Forward => Hook::Forward,
        nft::Hook::Output => Hook::Output,
        nft::Hook::Postrouting => Hook::Postrouting,
        nft::Hook::Ingress => return None,
    };
    let kind = match base.kind {
        "filter" => BaseKind::Filter,
        "nat" => BaseKind::Nat,
        _ => return None,
    };
    Some(Base {
        kind,
        hook,
        priority: base.priority,
    })
}

fn rules(socket: &mut Socket, of: Family, dice: &Dice, frame: &mut SeenFrame) -> Result<(), SocketError> {
    let request = Request::TableRules {
        family: family(of),
        table: TABLE,
    };
    let found = socket.dump(
        |sequence, bytes| request.encode(sequence, bytes),
        |message| match Message::read(message)? {
            Message::NewRule(rule) => {
                let read = decode::rule(of, &rule.expressions, rule.userdata, dice);
                Ok(Some((Name::new(rule.chain), read)))
            }
            _ => Ok(None),
        },
    )?;
    for (chain, rule) in found {
        frame.chains.entry(chain).or_default().rules.push(rule);
    }
    Ok(())
}

/// Each element by its key.
fn elements_by_key(
    socket: &mut Socket,
    of: Family,
    keys: &[ElementKey],
) -> Result<Vec<(ElementKey, Option<Element>)>, SocketError> {
    let mut read = Vec::with_capacity(keys.len());
    for key in keys {
        let encoded = Encoded::of(key, &Element::default());
        let wanted = [encoded.wire_key()];
        let request = SetRequest::Get {
            family: family(of),
            table: TABLE,
            set: key.set.as_str(),
            elements: &wanted,
        };
        let answer = socket.ask(
            |sequence, bytes| request.encode(sequence, bytes),
            |message| Ok(element(&Message::read(message)?)),
        );
        let found = match answer {
            Ok(found) => found.flatten(),
            Err(error) if error.errno() == Some(Errno::ENOENT) => None,
            Err(error) => return Err(error),
        };
        read.push((key.clone(), found));
    }
    Ok(read)
}

fn element(message: &Message<'_>) -> Option<Element> {
    let Message::NewElements(elements) = message else {
        return None;
    };
    let endpoint = match elements.elements.first()?.data {
        Some(ElementData::Value(bytes)) => wire::read_endpoint(bytes),
        _ => None,
    };
    Some(Element {
        endpoint,
        comment: None,
    })
}
