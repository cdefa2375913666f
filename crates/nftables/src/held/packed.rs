//! One service's elements in few bytes: a cluster has ten for each endpoint's hundred bytes of JSON.
//!
//! Elements with the same key lie together, so that a frontend's key is there once however many endpoints it has:
//! how many there are, the numbers of their sets, the key, and what those of them hold that are in maps.

use crate::ast::{Data, Element, ElementKey, Elements, Name, Value};
use crate::names::{self, Form};
use crate::wire::{self, End};
use model::Family;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

/// Numbers for the names of sets.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    names: Vec<(Name, Form)>,
    numbers: BTreeMap<Name, u16>,
}

/// The elements of some sets with one key.
struct Group<'a> {
    key: Arc<[Value]>,
    /// Their sets.
    sets: Vec<&'a (Name, Form)>,
    /// What they hold: those in maps, one after the other.
    endpoints: &'a [u8],
}

impl Numbers {
    fn number(&mut self, name: &Name) -> u16 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let form = names::form_of(name.as_str()).expect("invariant: only our sets are held");
        let number = u16::try_from(self.names.len()).expect("invariant: there are few sets");
        self.names.push((name.clone(), form));
        self.numbers.insert(name.clone(), number);
        number
    }

    /// Packs elements of one family.
    pub(super) fn pack(&mut self, elements: &Elements) -> Box<[u8]> {
        let mut groups: BTreeMap<&[Value], Vec<(u16, Option<SocketAddr>)>> = BTreeMap::new();
        for (key, element) in elements {
            let number = self.number(&key.set);
            let group = groups.entry(&key.key).or_default();
            group.push((number, element.endpoint));
        }
        let mut bytes = Vec::new();
        for (key, group) in groups {
            let count = u32::try_from(group.len()).expect("invariant: there are few sets");
            bytes.extend(count.to_ne_bytes());
            for (number, _) in &group {
                bytes.extend(number.to_ne_bytes());
            }
            bytes.extend(wire::key(key, End::Lower));
            if is_range(key) {
                bytes.extend(wire::key(key, End::Upper));
            }
            for endpoint in group.iter().filter_map(|(_, endpoint)| *endpoint) {
                bytes.extend(wire::endpoint(endpoint));
            }
        }
        bytes.into()
    }

    fn groups<'a>(&'a self, family: Family, packed: &'a [u8]) -> impl Iterator<Item = Group<'a>> {
        let mut rest = packed;
        std::iter::from_fn(move || {
            (!rest.is_empty()).then(|| {
                self.group(family, &mut rest)
                    .expect("invariant: it was packed here")
            })
        })
    }

    fn group<'a>(&'a self, family: Family, rest: &mut &'a [u8]) -> Option<Group<'a>> {
        let mut take = |length: usize| {
            let (bytes, later) = rest.split_at_checked(length)?;
            *rest = later;
            Some(bytes)
        };
        let count = u32::from_ne_bytes(take(4)?.try_into().ok()?) as usize;
        let set = |number: &[u8]| {
            let number = u16::from_ne_bytes([number[0], number[1]]);
            &self.names[usize::from(number)]
        };
        let sets: Vec<&(Name, Form)> = take(2 * count)?.chunks_exact(2).map(set).collect();
        let (name, form) = sets.first()?;
        let length = wire::key_length(form.key, family);
        let lower = take(length)?;
        let upper = if name.as_str() == names::ALLOWED {
            Some(take(length)?)
        } else {
            None
        };
        let key = wire::read_key(form.key, family, lower, upper)?.into();
        let in_maps = sets.iter().filter(|(_, form)| form.data == Data::Endpoint);
        let endpoints = take(in_maps.count() * wire::endpoint_length(family))?;
        Some(Group { key, sets, endpoints })
    }

    /// The elements again, without their comments.
    pub(super) fn unpack(&self, family: Family, packed: &[u8]) -> Elements {
        let mut elements = Elements::new();
        for group in self.groups(family, packed) {
            let mut endpoints = group.endpoints.chunks_exact(wire::endpoint_length(family));
            for (set, form) in group.sets {
                let endpoint = match form.data {
                    Data::None => None,
                    Data::Endpoint => endpoints.next().and_then(wire::read_endpoint),
                };
                let key = ElementKey {
                    set: set.clone(),
                    key: group.key.clone(),
                };
                let element = Element {
                    endpoint,
                    comment: None,
                };
                elements.insert(key, element);
            }
        }
        elements
    }

    /// One key of each group, which says what all of the group lie under.
    pub(super) fn keys<'a>(&'a self, family: Family, packed: &'a [u8]) -> impl Iterator<Item = ElementKey> {
        self.groups(family, packed).map(|group| ElementKey {
            set: group.sets[0].0.clone(),
            key: group.key,
        })
    }
}

/// Whether a key is that of a set of ranges.
fn is_range(key: &[Value]) -> bool {
    key.iter().any(|value| matches!(value, Value::Network(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Bound, Kind};
    use model::Protocol;

    #[test]
    fn what_was_packed_is_unpacked_as_it_was() {
        let ip: std::net::IpAddr = "10.96.0.1".parse().expect("an address");
        let net: ipnet::IpNet = "192.168.0.0/16".parse().expect("a network");
        let rest = [Value::Protocol(Protocol::Tcp), Value::Port(80)];
        let service = [&[Value::Address(ip)], &rest[..]].concat();
        let mut elements = Elements::new();
        let mut put = |set: Name, key: &[Value], endpoint: Option<&str>| {
            let element = Element {
                endpoint: endpoint.map(|endpoint| endpoint.parse().expect("an endpoint")),
                comment: None,
            };
            let key = key.into();
            elements.insert(ElementKey { set, key }, element);
        };
        let bound = Bound::of(2).expect("a bound");
        put(Name::new(names::CLUSTER_IPS), &[Value::Address(ip)], None);
        put(Kind::Service.within(bound), &service, None);
        put(Kind::Service.slot(0), &service, Some("10.0.0.1:8080"));
        put(Kind::Service.slot(1), &service, Some("10.0.0.2:8080"));
        put(Kind::ServiceLocal.slot(0), &service, Some("10.0.0.2:8080"));
        put(Kind::NodePort.slot(0), &rest, Some("10.0.0.1:8080"));
        let allowed = [&[Value::Network(net)], &service[..]].concat();
        put(Name::new(names::ALLOWED), &allowed, None);
        let hairpin = [&[Value::Address(ip)], &service[..]].concat();
        put(Name::new(names::HAIRPIN), &hairpin, None);
        let mut numbers = Numbers::default();
        let packed = numbers.pack(&elements);
        assert_eq!(numbers.unpack(Family::V4, &packed), elements);
        assert_eq!(numbers.keys(Family::V4, &packed).count(), 5);
    }
}
