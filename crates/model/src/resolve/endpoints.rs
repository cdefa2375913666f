//! The endpoints that slices list for one port of a service.

use crate::object::{Conditions, Hints, ServicePort, Slice};
use crate::{Family, NodeFacts};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

/// One endpoint of a service port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Address and port.
    pub address: SocketAddr,
    /// State.
    pub conditions: Conditions,
    /// Whether it is on this node.
    pub is_local: bool,
    /// For whom it is meant, when said.
    pub hints: Option<&'a Hints>,
    /// The slice that lists it.
    pub slice: &'a Arc<str>,
}

/// The endpoints of one port of a service, and those listed more than once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedEndpoints<'a> {
    /// The endpoints, sorted by their printed form `ip:port` as text, without doubles.
    pub endpoints: Vec<Listed<'a>>,
    /// Addresses that were listed more than once, sorted the same way.
    pub duplicates: Vec<SocketAddr>,
}

/// Collects the endpoints of one port of a service: those of slices of the family whose port has the same *name* and
/// protocol, whatever the port's number. `slices` are the service's, sorted by name; skipped ones are
/// passed over.
///
/// An address and port listed twice counts once. Upstream lets a non-terminating entry replace a terminating one and
/// leaves the rest to chance; here the best entry wins: not terminating, then ready, then serving, then the one of
/// the first slice by name.
pub fn listed<'a>(
    port: &ServicePort,
    slices: &[&'a Slice],
    family: Family,
    node: &NodeFacts,
) -> ListedEndpoints<'a> {
    let mut endpoints = Vec::new();
    for slice in slices {
        if slice.skipped.is_some() || slice.family != Some(family) {
            continue;
        }
        for slice_port in &slice.ports {
            if (&slice_port.name, slice_port.protocol) == (&port.name, port.protocol) {
                endpoints.extend(of_slice(slice, slice_port.port, node));
            }
        }
    }
    merge(endpoints)
}

fn of_slice<'a>(slice: &'a Slice, port: u16, node: &NodeFacts) -> impl Iterator<Item = Listed<'a>> {
    slice.endpoints.iter().map(move |endpoint| Listed {
        address: SocketAddr::new(endpoint.ip, port),
        conditions: endpoint.conditions,
        is_local: !node.name.is_empty() && endpoint.node.as_deref() == Some(&*node.name),
        hints: endpoint.hints.as_deref(),
        slice: &slice.name.name,
    })
}

/// Sorts as text and drops doubles. The order of the input does not matter, except between entries of one slice.
fn merge(mut endpoints: Vec<Listed<'_>>) -> ListedEndpoints<'_> {
    endpoints.sort_by_cached_key(|endpoint| Printed::of(endpoint.address));
    let mut merged: Vec<Listed<'_>> = Vec::with_capacity(endpoints.len());
    let mut duplicates = Vec::new();
    for endpoint in endpoints {
        match merged.last_mut() {
            Some(last) if last.address == endpoint.address => {
                if duplicates.last() != Some(&endpoint.address) {
                    duplicates.push(endpoint.address);
                }
                if preference(&endpoint) < preference(last) {
                    *last = endpoint;
                }
            }
            _ => merged.push(endpoint),
        }
    }
    ListedEndpoints {
        endpoints: merged,
        duplicates,
    }
}

/// A printed address and port. Ordered as the text, without a heap of its own: some services have thousands.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Printed([u8; 56]);

impl Printed {
    fn of(address: SocketAddr) -> Printed {
        let mut text = [0; 56];
        if let SocketAddr::V4(address) = address {
            let mut end = 0;
            for (value, after) in address.ip().octets().into_iter().zip(*b"...:") {
                end = put(u16::from(value), &mut text, end);
                text[end] = after;
                end += 1;
            }
            put(address.port(), &mut text, end);
            return Printed(text);
        }
        // Zeros come before every character, so that a text comes before those that it begins.
        write!(&mut text[..], "{address}")
            .expect("invariant: an address and port have less than 56 characters");
        Printed(text)
    }
}

/// Writes a number in decimal, and says where it ends. With the formatter of the library, this was two fifths of the time that
/// a list of 1,000 endpoints took to resolve.
fn put(number: u16, text: &mut [u8; 56], mut end: usize) -> usize {
    let digit = |value: u16| b"0123456789"[usize::from(value % 10)];
    let powers = [10_000, 1_000, 100, 10].into_iter();
    for power in powers.skip_while(|power| number < *power) {
        text[end] = digit(number / power);
        end += 1;
    }
    text[end] = digit(number);
    end + 1
}

/// Lower is better.
fn preference<'a>(endpoint: &Listed<'a>) -> (bool, bool, bool, &'a Arc<str>) {
    let conditions = endpoint.conditions;
    (
        conditions.terminating,
        !conditions.ready,
        !conditions.serving,
        endpoint.slice,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::IpAddr;

    proptest! {
        #[test]
        fn what_is_compared_is_the_text(ip: IpAddr, port: u16) {
            let address = SocketAddr::new(ip, port);
            let mut text = [0; 56];
            write!(&mut text[..], "{address}").expect("there is room");
            prop_assert_eq!(Printed::of(address).0, text);
        }
    }

    #[test]
    fn every_number_is_written_as_the_library_writes_it() {
        for number in 0..=u16::MAX {
            let mut text = [0; 56];
            let end = put(number, &mut text, 0);
            assert_eq!(text[..end], *number.to_string().as_bytes());
        }
    }
}
