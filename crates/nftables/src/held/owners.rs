//! Whose frontends are, and how many services hold what they may share: a few words for each service of a cluster.

use super::Frontend;
use crate::ast::{ElementKey, Value};
use crate::names::{self, Kind};
use model::{Protocol, ServiceName};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The service that the elements under each frontend belong to.
#[derive(Debug, Default)]
pub(super) struct Owners(BTreeMap<Packed, ServiceName>);

/// How many services hold an element that several may want.
#[derive(Debug, Default)]
pub(super) struct Shared(BTreeMap<Packed, u32>);

/// A key without a heap of its own. `what` tells keys apart that lie in different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packed {
    what: u8,
    address: Option<IpAddr>,
    protocol: Option<Protocol>,
    port: u16,
}

impl Packed {
    fn of(what: u8, values: &[Value]) -> Packed {
        let mut packed = Packed {
            what,
            address: None,
            protocol: None,
            port: 0,
        };
        for value in values {
            match value {
                Value::Address(ip) => packed.address = Some(*ip),
                Value::Protocol(protocol) => packed.protocol = Some(*protocol),
                Value::Port(port) => packed.port = *port,
                Value::Network(_) => unreachable!("invariant: ranges are neither frontends nor shared"),
            }
        }
        packed
    }

    fn of_frontend((kind, key): &Frontend) -> Packed {
        let what = match kind {
            Kind::Service | Kind::ServiceLocal => 0,
            Kind::NodePort | Kind::NodePortLocal => 1,
        };
        Packed::of(what, key)
    }

    /// An endpoint that reaches itself is source and destination alike, so one address says it.
    fn of_shared(key: &ElementKey) -> Packed {
        Packed::of(u8::from(key.set.as_str() == names::HAIRPIN), &key.key)
    }
}

impl Owners {
    pub(super) fn get(&self, frontend: &Frontend) -> Option<&ServiceName> {
        self.0.get(&Packed::of_frontend(frontend))
    }

    pub(super) fn insert(&mut self, frontend: &Frontend, owner: &ServiceName) {
        self.0.insert(Packed::of_frontend(frontend), owner.clone());
    }

    pub(super) fn remove(&mut self, frontend: &Frontend) {
        self.0.remove(&Packed::of_frontend(frontend));
    }

    pub(super) fn compact(&mut self) {
        self.0 = std::mem::take(&mut self.0).into_iter().collect();
    }
}

impl Shared {
    pub(super) fn holders(&self, key: &ElementKey) -> u32 {
        self.0.get(&Packed::of_shared(key)).copied().unwrap_or(0)
    }

    pub(super) fn hold(&mut self, key: &ElementKey) {
        *self.0.entry(Packed::of_shared(key)).or_default() += 1;
    }

    pub(super) fn release(&mut self, key: &ElementKey) {
        let key = Packed::of_shared(key);
        if let Some(count) = self.0.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&key);
            }
        }
    }

    /// Nobody holds it any more, whatever was believed.
    pub(super) fn remove(&mut self, key: &ElementKey) {
        self.0.remove(&Packed::of_shared(key));
    }

    pub(super) fn compact(&mut self) {
        self.0 = std::mem::take(&mut self.0).into_iter().collect();
    }
}
