//! The kinds of change that are measured in nftables mode.

use super::special;
use crate::objects::{Objects, cluster_ip};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One endpoint in place of another.
    Replaced,
    /// One more.
    Added,
    /// One less.
    Removed,
    /// A service with its slice.
    ServiceAdded,
    /// It goes again.
    ServiceDeleted,
    /// An endpoint of a service with ten addresses replaced.
    TenFrontends,
    /// The first service with an affinity of its timeout.
    NewShape,
    /// The first service of its size: 17 endpoints, 33, 65, ...
    NewSize,
    /// An endpoint of a service with 1,000 replaced.
    Thousand,
    /// The same with 3,000.
    ThreeThousand,
}

impl Kind {
    /// In the order in which they are measured: those that leave shapes behind come late.
    pub const ALL: [Kind; 10] = [
        Kind::Replaced,
        Kind::Added,
        Kind::Removed,
        Kind::ServiceAdded,
        Kind::ServiceDeleted,
        Kind::TenFrontends,
        Kind::NewShape,
        Kind::NewSize,
        Kind::Thousand,
        Kind::ThreeThousand,
    ];

    /// What it is called.
    pub fn words(self) -> &'static str {
        match self {
            Kind::Replaced => "one endpoint replaced",
            Kind::Added => "one endpoint added",
            Kind::Removed => "one endpoint removed",
            Kind::ServiceAdded => "one service added",
            Kind::ServiceDeleted => "one service deleted",
            Kind::TenFrontends => "one endpoint replaced, 10 frontends",
            Kind::NewShape => "first service of a new shape (affinity)",
            Kind::NewSize => "first service of a new size (17 to 513 endpoints)",
            Kind::Thousand => "one endpoint replaced of 1,000",
            Kind::ThreeThousand => "one endpoint replaced of 3,000",
        }
    }

    /// How often it can be made.
    pub fn most(self) -> usize {
        match self {
            Kind::NewShape => 20,
            Kind::NewSize => special::SIZES.len() / 2,
            _ => usize::MAX,
        }
    }

    /// Whether there is something to reach afterwards that was not there before.
    pub fn has_new_endpoint(self) -> bool {
        !matches!(self, Kind::Removed | Kind::ServiceDeleted)
    }
}

/// What to send, and how to see from outside that it is in force.
pub struct Change {
    /// Kinds of event with their objects.
    pub events: Vec<(&'static str, Value)>,
    /// A frontend, and the endpoint that is new, or any.
    pub reached: Option<(SocketAddr, Option<IpAddr>)>,
}

/// The cluster as it is.
pub struct Cluster {
    objects: Objects,
    round: usize,
    shapes: usize,
    sizes: usize,
    special: Vec<special::Special>,
}

impl Cluster {
    /// As the API server listed it.
    pub fn new(objects: Objects) -> Cluster {
        Cluster {
            objects,
            round: 0,
            shapes: 0,
            sizes: 0,
            special: Vec::new(),
        }
    }

    /// What has to be there before the first change of a kind.
    pub fn prepare(&mut self, kind: Kind) -> Vec<(&'static str, Value)> {
        self.round = 0;
        let special = match kind {
            Kind::TenFrontends => special::Special::new(0, 10, 9),
            Kind::Thousand => special::Special::new(1, 1_000, 0),
            Kind::ThreeThousand => special::Special::new(2, 3_000, 0),
            _ => return Vec::new(),
        };
        let events = special.all();
        self.special.push(special);
        events
    }

    /// The next change of a kind.
    pub fn make(&mut self, kind: Kind) -> Change {
        let i = self.round * 37 % self.objects.count();
        self.round += 1;
        let slice = |objects: &Objects, slice: Value| Change {
            events: vec![("MODIFIED", slice)],
            reached: Some((service(cluster_ip(i)), Some(objects.newest(i).into()))),
        };
        match kind {
            Kind::Replaced => {
                let new = self.objects.replace_endpoint(i);
                slice(&self.objects, new)
            }
            Kind::Added => {
                let new = self.objects.add_endpoint(i);
                slice(&self.objects, new)
            }
            Kind::Removed => {
                let new = self.objects.remove_endpoint(i);
                slice(&self.objects, new)
            }
            Kind::ServiceAdded => {
                let (slice, object) = self.objects.add_service();
                Change {
                    events: vec![("ADDED", slice), ("ADDED", object)],
                    reached: Some((service(cluster_ip(self.objects.count() - 1)), None)),
                }
            }
            Kind::ServiceDeleted => {
                let (object, slice) = self.objects.remove_service();
                Change {
                    events: vec![("DELETED", slice), ("DELETED", object)],
                    reached: None,
                }
            }
            Kind::NewShape => {
                self.shapes += 1;
                added(&special::shape_objects(self.shapes - 1))
            }
            Kind::NewSize => {
                self.sizes += 1;
                added(&special::size_objects(self.sizes - 1))
            }
            Kind::TenFrontends | Kind::Thousand | Kind::ThreeThousand => {
                let special = self.special.last_mut().expect("it was prepared");
                let (slice, new) = special.replace();
                Change {
                    events: vec![("MODIFIED", slice)],
                    reached: Some((service(special.ip()), Some(new.into()))),
                }
            }
        }
    }
}

fn added(special: &special::Special) -> Change {
    Change {
        events: special.all(),
        reached: Some((service(special.ip()), None)),
    }
}

fn service(ip: std::net::Ipv4Addr) -> SocketAddr {
    SocketAddr::new(ip.into(), 80)
}
