//! A list of a table as if the table had been read by netlink.

use super::frame::{of_chain, of_set};
use super::{Contents, Element, Expr, Rule, Set, Table, Value};
use crate::ast::{self, Data, Frame, Name};
use crate::build::Shapes;
use crate::names::{self, Form, Role};
use crate::pool::Pool;
use crate::step::{Seen, SeenChain, SeenFrame, SeenSet};
use crate::wire::{self, End};
use model::{Family, Protocol};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// A list that leaves out elements of a set, so that nobody knows what is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotWhole {
    /// The set.
    pub set: Arc<str>,
}

impl fmt::Display for NotWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the elements of set {} are not in the list", self.set)
    }
}

impl std::error::Error for NotWhole {}

/// What a list shows of the table. `wanted` is the frame for the shapes that it has: a rule that is none of the frame's is
/// not of our kind.
///
/// # Errors
/// When elements of a set of ours were left out of the list.
pub fn seen(table: &Table, family: Family, wanted: impl FnOnce(&Shapes) -> Frame) -> Result<Seen, NotWhole> {
    let mut frame = SeenFrame::default();
    for set in &table.sets {
        frame
            .sets
            .insert(Name::new(set.name.clone()), seen_set(set, family));
    }
    let wanted = wanted(&frame.shapes());
    for chain in &table.chains {
        let name = Name::new(chain.name.clone());
        let want = wanted.chains.iter().find(|want| want.name == name);
        let known = want.map(|want| (want, of_chain(family, want).rules));
        let read = |rule: &Rule| {
            let (want, listed) = known.as_ref()?;
            let at = listed
                .iter()
                .position(|other| other.statements == rule.statements)?;
            want.rules.get(at).cloned()
        };
        let seen = SeenChain {
            base: want.and_then(|want| want.base),
            rules: chain.rules.iter().map(read).collect(),
        };
        frame.chains.insert(name, seen);
    }
    let mut elements = Pool::default();
    for set in &table.sets {
        let name = Name::new(set.name.clone());
        if frame.sets.get(&name) == Some(&SeenSet::Ours) {
            read_set(set, &name, &mut elements)?;
        }
    }
    Ok(Seen { frame, elements })
}

/// Whether a set is what its name says.
fn seen_set(set: &Set, family: Family) -> SeenSet {
    let Some(form) = names::form_of(&set.name) else {
        return SeenSet::Strange;
    };
    let flags = match form.role {
        Role::Clients(_) => ast::Flags::Clients { size: 0 },
        _ if &*set.name == names::ALLOWED => ast::Flags::Interval,
        _ => ast::Flags::Plain,
    };
    let ours = ast::Set {
        name: Name::new(set.name.clone()),
        key: form.key,
        data: form.data,
        flags,
        comment: "",
    };
    let ours = of_set(family, &ours, Vec::new());
    let has = |flag: &str| set.flags.iter().any(|has| &**has == flag);
    let alike = (&ours.key, &ours.data) == (&set.key, &set.data)
        && has("interval") == (flags == ast::Flags::Interval)
        // The JSON of nft 1.0 leaves `dynamic` out.
        && (has("dynamic") || has("timeout")) == matches!(flags, ast::Flags::Clients { .. });
    if alike { SeenSet::Ours } else { SeenSet::Strange }
}

fn read_set(set: &Set, name: &Name, pool: &mut Pool) -> Result<(), NotWhole> {
    let Some(form) = names::form_of(&set.name).filter(|form| !matches!(form.role, Role::Clients(_))) else {
        // What packets put there is not ours to keep.
        return Ok(());
    };
    let Contents::Listed(elements) = &set.elements else {
        return Err(NotWhole {
            set: set.name.clone(),
        });
    };
    for element in elements {
        // Elements that cannot be ours are as good as absent: what they stand in the way of is put in their place.
        if let Some((key, data)) = read_element(element, &form, name) {
            pool.add(name, key, data);
        }
    }
    Ok(())
}

/// A key and its data, as the kernel keeps them.
type Raw = (Box<[u8]>, Box<[u8]>);

fn read_element(element: &Element, form: &Form, set: &Name) -> Option<Raw> {
    let parts = match &element.key {
        Expr::Concat(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    if parts.len() != form.key.len() {
        return None;
    }
    let mut lower = Vec::new();
    let mut upper = Vec::new();
    for (part, of) in parts.iter().zip(form.key) {
        let (low, high) = ends(part, *of)?;
        lower.extend(wire::key(&[low], End::Lower));
        upper.extend(wire::key(&[high], End::Upper));
    }
    if set.as_str() == names::ALLOWED {
        lower.extend(upper);
    } else if lower != upper {
        return None;
    }
    let data = match form.data {
        Data::None => Vec::new(),
        Data::Endpoint => wire::endpoint(endpoint(element.data.as_ref()?)?),
    };
    Some((lower.into(), data.into()))
}

/// The first and the last value of a part of a key.
fn ends(part: &Expr, of: ast::Part) -> Option<(ast::Value, ast::Value)> {
    match part {
        Expr::Range(both) => Some((value(&both.0, of)?, value(&both.1, of)?)),
        one => {
            let value = value(one, of)?;
            Some((value, value))
        }
    }
}

fn value(part: &Expr, of: ast::Part) -> Option<ast::Value> {
    let Expr::Value(value) = part else {
        return None;
    };
    Some(match (value, of) {
        (Value::Address(ip), ast::Part::Source | ast::Part::Destination) => ast::Value::Address(*ip),
        (Value::Network(net), ast::Part::Source | ast::Part::Destination) => ast::Value::Network(*net),
        (Value::Number(number), ast::Part::Port) => ast::Value::Port(u16::try_from(*number).ok()?),
        (Value::Word(word), ast::Part::Protocol) => ast::Value::Protocol(protocol(word)?),
        _ => return None,
    })
}

fn protocol(word: &str) -> Option<Protocol> {
    Protocol::ALL.into_iter().find(|known| known.as_lower() == word)
}

fn endpoint(data: &Expr) -> Option<SocketAddr> {
    let Expr::Concat(parts) = data else {
        return None;
    };
    let [Expr::Value(Value::Address(ip)), Expr::Value(Value::Number(port))] = parts.as_slice() else {
        return None;
    };
    let ip: IpAddr = *ip;
    Some(SocketAddr::new(ip, u16::try_from(*port).ok()?))
}
