//! A table beside nftables mode's own that counts new connections by the address they are made to (ADR 63).
//!
//! It is owned by the socket that made it: nobody else can change it, and the kernel removes it with the process, however
//! that ends. It has no verdict, so that nothing it holds can send a packet elsewhere.

use super::expressions::{Expressions, Words};
use crate::nft::family;
use crate::socket::{Socket, SocketError};
use model::Family;
use netlink::EncodeError;
use netlink::nfnl::Batch;
use netlink::nft::{
    Change, Counters, Element, Hook, Message, NewBase, Place, Policy, Set, SetChange, SetRequest,
    TABLE_OWNER, data_type,
};
use nftables::ast::{Match, Name, Part, Value};
use nftables::names::{NODEPORT_KEY, SERVICE_KEY};
use nftables::wire::{self, End};

/// The table's name, in both families.
const TABLE: &str = "kube-proxy-rs-counters";
const ADDRESSES: &str = "addresses";
const NODE_PORTS: &str = "node-ports";

/// Before the chains of nftables mode (-100), which translate. That is their order among chains of `nat`: all of these come
/// behind its chain of `filter` for source ranges. Chains of `nat` see the first packet of a connection and
/// no other, once some rule has asked for conntrack, as those of nftables mode do.
const BEFORE_SERVICES: i32 = -110;

/// Elements of one message; each has about 100 bytes.
const OF_MESSAGE: usize = 250;
/// Elements of one batch, which fits into the buffer of a process without rights on the host.
const OF_BATCH: usize = 1000;

/// One family's table of counters. Dropping it removes it from the kernel.
pub struct CounterTable {
    socket: Socket,
    family: Family,
}

impl CounterTable {
    /// Makes the table, with nothing to count yet.
    ///
    /// # Errors
    /// When the kernel refuses it, or it is another process's.
    pub fn new(family: Family) -> Result<CounterTable, SocketError> {
        let mut table = CounterTable {
            socket: Socket::netfilter()?,
            family,
        };
        let mut batch = table.socket.batch(None);
        table.frame(&mut batch)?;
        table.socket.commit(batch)?;
        Ok(table)
    }

    fn frame(&self, batch: &mut Batch) -> Result<(), EncodeError> {
        let family = family(self.family);
        batch.push(&Change::NewTable {
            family,
            name: TABLE,
            flags: TABLE_OWNER,
        })?;
        for (name, key) in [(ADDRESSES, SERVICE_KEY), (NODE_PORTS, NODEPORT_KEY)] {
            batch.push(&SetChange::New(self.set(name, key)))?;
        }
        for (chain, hook) in [("prerouting", Hook::Prerouting), ("output", Hook::Output)] {
            batch.push(&Change::NewChain {
                family,
                table: TABLE,
                name: chain,
                base: Some(NewBase {
                    hook,
                    priority: BEFORE_SERVICES,
                    kind: "nat",
                    policy: Policy::Accept,
                }),
            })?;
            for matches in self.rules() {
                self.rule(batch, chain, &matches)?;
            }
        }
        Ok(())
    }

    fn set(&self, name: &'static str, key: &[Part]) -> Set<'static> {
        let address = match self.family {
            Family::V4 => data_type::IPV4_ADDR,
            Family::V6 => data_type::IPV6_ADDR,
        };
        let kind = |part: &Part| match part {
            Part::Source | Part::Destination => address,
            Part::Protocol => data_type::INET_PROTO,
            Part::Port => data_type::INET_SERVICE,
        };
        let length = wire::key_length(key, self.family);
        Set {
            family: family(self.family),
            table: TABLE,
            name,
            id: None,
            flags: 0,
            key_type: data_type::concat(key.iter().map(kind)),
            key_length: u32::try_from(length).expect("invariant: keys are short"),
            data: None,
            size: None,
            fields: Vec::new(),
            timeout: None,
            userdata: &[],
            held: None,
        }
    }

    /// Addresses, and node ports on any address of this host but loopback, where this mode never serves them.
    fn rules(&self) -> [Vec<Match>; 2] {
        let loopback = match self.family {
            Family::V4 => "127.0.0.0/8",
            Family::V6 => "::1/128",
        };
        let loopback = loopback.parse().expect("invariant: a literal network");
        [
            vec![Match::In(SERVICE_KEY, Name::new(ADDRESSES))],
            vec![
                Match::DestinationIsLocal,
                Match::DestinationNotIn(loopback),
                Match::In(NODEPORT_KEY, Name::new(NODE_PORTS)),
            ],
        ]
    }

    fn rule(&self, batch: &mut Batch, chain: &str, matches: &[Match]) -> Result<(), EncodeError> {
        let mut words = Words {
            of: self.family,
            bytes: Vec::new(),
        };
        for part in matches {
            words.of_match(part);
        }
        let mut expressions = Expressions {
            of: self.family,
            bytes: words.bytes.iter(),
            all: Vec::new(),
        };
        for part in matches {
            expressions.matched(part);
        }
        batch.push(&Change::NewRule {
            family: family(self.family),
            table: TABLE,
            chain,
            place: Place::Last,
            expressions: &expressions.all,
            userdata: &[],
        })?;
        Ok(())
    }

    /// Counts connections to these from now on.
    ///
    /// # Errors
    /// When the kernel refuses; some of them may be counted.
    pub fn count(&mut self, keys: &[Vec<Value>]) -> Result<(), SocketError> {
        self.each_batch(keys, Some(Counters::default()), |set, elements| SetChange::Add {
            family: set.family,
            table: TABLE,
            set: set.name,
            id: None,
            elements,
        })
    }

    /// Counts connections to these no more.
    ///
    /// # Errors
    /// When the kernel refuses; some of them may be gone.
    pub fn forget(&mut self, keys: &[Vec<Value>]) -> Result<(), SocketError> {
        self.each_batch(keys, None, |set, elements| SetChange::Remove {
            family: set.family,
            table: TABLE,
            set: set.name,
            elements,
        })
    }

    fn each_batch(
        &mut self,
        keys: &[Vec<Value>],
        counter: Option<Counters>,
        change: impl for<'a> Fn(&Set<'static>, &'a [Element<'a>]) -> SetChange<'a>,
    ) -> Result<(), SocketError> {
        for (name, parts) in [(ADDRESSES, SERVICE_KEY), (NODE_PORTS, NODEPORT_KEY)] {
            let set = self.set(name, parts);
            let own: Vec<Vec<u8>> = keys
                .iter()
                .filter(|key| key.len() == parts.len())
                .map(|key| wire::key(key, End::Lower))
                .collect();
            for some in own.chunks(OF_BATCH) {
                let mut batch = self.socket.batch(None);
                for few in some.chunks(OF_MESSAGE) {
                    let elements: Vec<Element<'_>> = few
                        .iter()
                        .map(|key| Element {
                            counter,
                            ..Element::of(key)
                        })
                        .collect();
                    batch.push(&change(&set, &elements))?;
                }
                self.socket.commit(batch)?;
            }
        }
        Ok(())
    }

    /// What was counted so far, each set as of one moment.
    ///
    /// # Errors
    /// When the kernel does not say, or others commit all the time.
    pub fn read(&mut self) -> Result<Vec<(Vec<Value>, u64)>, SocketError> {
        let mut all = Vec::new();
        for (set, parts) in [(ADDRESSES, SERVICE_KEY), (NODE_PORTS, NODEPORT_KEY)] {
            let (of, request) = (
                self.family,
                SetRequest::Elements {
                    family: family(self.family),
                    table: TABLE,
                    set,
                },
            );
            let found = self.socket.dump(
                |sequence, bytes| request.encode(sequence, bytes),
                |message| match Message::read(message)? {
                    Message::NewElements(elements) => {
                        let read = |element: &Element<'_>| {
                            let key = wire::read_key(parts, of, element.key, None)?;
                            Some((key, element.counter?.packets))
                        };
                        Ok(Some(
                            elements.elements.iter().filter_map(read).collect::<Vec<_>>(),
                        ))
                    }
                    _ => Ok(None),
                },
            )?;
            all.extend(found.into_iter().flatten());
        }
        Ok(all)
    }
}

impl Drop for CounterTable {
    fn drop(&mut self) {
        let mut batch = self.socket.batch(None);
        let gone = batch.push(&Change::DeleteTable {
            family: family(self.family),
            name: TABLE,
        });
        if gone.is_ok() {
            // If it fails, closing the socket removes the table all the same.
            let _ = self.socket.commit(batch);
        }
    }
}
