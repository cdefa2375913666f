//! The layout, by its names (ADR 50).
//!
//! A *frontend* is an address, protocol and port that clients use; for a node port, protocol and port alone. Each has one
//! or two lists of endpoints: the one that most traffic uses, and under externalTrafficPolicy Local another for clients
//! from outside. So there are four [`Kind`]s of lists, and everything below exists once for each.
//!
//! A list's endpoints lie in *slots*: the endpoint of slot i of every frontend is an element of the map `slot-i`.
//! A list whose slots all lie below `n`, a power of two, is *within* `n`: its frontend is an element of the set
//! `within-n`, and `pick/n` throws a die with n sides until the slot that came up is taken.
//!
//! A list that is balanced by the client's address has no slots: its frontend is an element of `hashed`, `hash` hashes the
//! source address, and the endpoint of bucket b of every such frontend is an element of the map `bucket-b` (ADR 56).
//!
//! Names of base chains are upstream's, and so are those of sets that mean the same as upstream's. Every other chain's
//! name has a `/`, so that upstream, started over our table, takes it for a chain of a service that has gone and deletes it.
//! No set or map has a name that upstream gives to an object of another type.

use crate::ast::{Data, Name, Part};
use std::fmt::Display;
use std::sync::OnceLock;

/// The table's name, in both families.
pub const TABLE: &str = "kube-proxy";

/// Addresses of Services inside the cluster. Upstream has the same set.
pub const CLUSTER_IPS: &str = "cluster-ips";
/// Addresses on which node ports are served, unless on all. Upstream has the same set.
pub const NODEPORT_IPS: &str = "nodeport-ips";
/// Endpoints that reach themselves through a service. Upstream has the same set.
pub const HAIRPIN: &str = "hairpin-connections";
/// Load-balancer addresses that not everybody may use.
pub const GUARDED: &str = "guarded";
/// Who may use them.
pub const ALLOWED: &str = "allowed-sources";

/// The key of an address that clients use.
pub const SERVICE_KEY: &[Part] = &[Part::Destination, Part::Protocol, Part::Port];
/// The key of a node port.
pub const NODEPORT_KEY: &[Part] = &[Part::Protocol, Part::Port];
/// The key of a client of an address.
pub const SERVICE_CLIENT_KEY: &[Part] = &[Part::Source, Part::Destination, Part::Protocol, Part::Port];
/// The key of a client of a node port.
pub const NODEPORT_CLIENT_KEY: &[Part] = &[Part::Source, Part::Protocol, Part::Port];
/// The key of [`HAIRPIN`] and [`ALLOWED`].
pub const CONNECTION_KEY: &[Part] = SERVICE_CLIENT_KEY;

/// Names of slots that have been asked for: each endpoint of each list asks again whenever its service changes.
static SLOTS: [[OnceLock<Name>; 1024]; 4] = [const { [const { OnceLock::new() }; 1024] }; 4];

/// Which frontends, and which of their lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Addresses.
    Service,
    /// Addresses, clients from outside under policy Local.
    ServiceLocal,
    /// Node ports.
    NodePort,
    /// Node ports, clients from outside under policy Local.
    NodePortLocal,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 4] = [
        Kind::Service,
        Kind::ServiceLocal,
        Kind::NodePort,
        Kind::NodePortLocal,
    ];

    const fn word(self) -> &'static str {
        match self {
            Kind::Service => "service",
            Kind::ServiceLocal => "local",
            Kind::NodePort => "nodeport",
            Kind::NodePortLocal => "nodeport-local",
        }
    }

    /// What a frontend is known by.
    pub const fn key(self) -> &'static [Part] {
        match self {
            Kind::Service | Kind::ServiceLocal => SERVICE_KEY,
            Kind::NodePort | Kind::NodePortLocal => NODEPORT_KEY,
        }
    }

    /// What a client of a frontend is known by.
    pub const fn client_key(self) -> &'static [Part] {
        match self {
            Kind::Service | Kind::ServiceLocal => SERVICE_CLIENT_KEY,
            Kind::NodePort | Kind::NodePortLocal => NODEPORT_CLIENT_KEY,
        }
    }

    fn set(self, what: impl Display) -> Name {
        Name::new(format!("{}-{what}", self.word()))
    }

    fn chain(self, what: impl Display) -> Name {
        Name::new(format!("{}/{what}", self.word()))
    }

    /// The map of the endpoints in one slot.
    pub fn slot(self, slot: u32) -> Name {
        let name = || self.set(format_args!("slot-{slot}"));
        let known = SLOTS[self as usize].get(slot as usize);
        known.map_or_else(name, |known| known.get_or_init(name).clone())
    }

    /// The set of frontends whose slots all lie below `bound`.
    pub fn within(self, bound: Bound) -> Name {
        self.set(format_args!("within-{bound}"))
    }

    /// The same for frontends whose clients stay with their endpoint for so many seconds.
    pub fn within_sticky(self, bound: Bound, timeout: u32) -> Name {
        self.set(format_args!("within-{bound}-sticky-{timeout}s"))
    }

    /// The map of the endpoints of one bucket of clients.
    pub fn bucket(self, bucket: u32) -> Name {
        self.set(format_args!("bucket-{bucket}"))
    }

    /// The set of frontends whose endpoints lie in buckets.
    pub fn hashed(self) -> Name {
        self.set("hashed")
    }

    /// The set of clients of the endpoints in one slot.
    pub fn clients(self, slot: u32) -> Name {
        self.set(format_args!("clients-{slot}"))
    }

    /// Frontends whose packets get the mark whoever sent them.
    pub fn masqueraded(self) -> Name {
        self.set("masqueraded")
    }

    /// Frontends with a list of its own for clients from outside.
    pub fn policy_local(self) -> Name {
        self.set("policy-local")
    }

    /// Frontends that refuse.
    pub fn rejected(self) -> Name {
        self.set("rejected")
    }

    /// Frontends that are silent.
    pub fn dropped(self) -> Name {
        self.set("dropped")
    }

    /// The chain that looks for a frontend in each `within` set.
    pub fn endpoints(self) -> Name {
        self.chain("endpoints")
    }

    /// The chain for frontends with a list of its own for clients from outside.
    pub fn by_source(self) -> Name {
        self.chain("by-source")
    }

    /// The chain that finds an endpoint among the slots below `bound`.
    pub fn pick(self, bound: Bound) -> Name {
        self.chain(format_args!("pick/{bound}"))
    }

    /// The chain that tries one slot below `bound`.
    pub fn try_one(self, bound: Bound) -> Name {
        self.chain(format_args!("try/{bound}"))
    }

    /// The chain that goes to the endpoint in a slot, if there is one.
    pub fn to(self, slot: u32) -> Name {
        self.chain(format_args!("to/{slot}"))
    }

    /// The chain that hashes clients into buckets.
    pub fn hash(self) -> Name {
        self.chain("hash")
    }

    /// The chain that goes to the endpoint of a bucket.
    pub fn to_bucket(self, bucket: u32) -> Name {
        self.chain(format_args!("bucket/{bucket}"))
    }

    /// [`Kind::pick`] for clients that stay.
    pub fn pick_sticky(self, bound: Bound, timeout: u32) -> Name {
        self.chain(format_args!("pick/{bound}/sticky/{timeout}s"))
    }

    /// [`Kind::try_one`] for clients that stay.
    pub fn try_one_sticky(self, bound: Bound, timeout: u32) -> Name {
        self.chain(format_args!("try/{bound}/sticky/{timeout}s"))
    }

    /// [`Kind::to`] for clients that stay.
    pub fn to_sticky(self, slot: u32, timeout: u32) -> Name {
        self.chain(format_args!("to/{slot}/sticky/{timeout}s"))
    }
}

/// What a set of ours looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// The lists it belongs to, if it belongs to some.
    pub kind: Option<Kind>,
    /// What it is for.
    pub role: Role,
    /// The parts of its key.
    pub key: &'static [Part],
    /// What elements hold.
    pub data: Data,
}

/// What a set of ours is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Something about the node, or about several services.
    Shared,
    /// [`GUARDED`] or [`ALLOWED`].
    Admission,
    /// [`Kind::slot`].
    Slot(u32),
    /// [`Kind::within`] and [`Kind::within_sticky`].
    Within(Bound, Option<u32>),
    /// [`Kind::bucket`].
    Bucket(u32),
    /// [`Kind::hashed`].
    Hashed,
    /// [`Kind::clients`].
    Clients(u32),
    /// [`Kind::masqueraded`] and [`Kind::policy_local`].
    Treated,
    /// [`Kind::rejected`] and [`Kind::dropped`].
    Refused,
}

/// What a set of this name is; `None` when it is none of ours.
pub fn form_of(name: &str) -> Option<Form> {
    let alone = |role, key| Form {
        kind: None,
        role,
        key,
        data: Data::None,
    };
    Some(match name {
        CLUSTER_IPS | NODEPORT_IPS => alone(Role::Shared, &[Part::Destination]),
        HAIRPIN => alone(Role::Shared, CONNECTION_KEY),
        GUARDED => alone(Role::Admission, SERVICE_KEY),
        ALLOWED => alone(Role::Admission, CONNECTION_KEY),
        _ => return of_kind(name),
    })
}

fn of_kind(name: &str) -> Option<Form> {
    // The longer words first: one begins with another.
    let kinds = [
        Kind::NodePortLocal,
        Kind::NodePort,
        Kind::ServiceLocal,
        Kind::Service,
    ];
    let (kind, rest) = kinds.into_iter().find_map(|kind| {
        let rest = name.strip_prefix(kind.word())?.strip_prefix('-')?;
        Some((kind, rest))
    })?;
    let role = role_of(rest)?;
    let endpoints = matches!(role, Role::Slot(_) | Role::Bucket(_));
    let clients = matches!(role, Role::Clients(_));
    Some(Form {
        kind: Some(kind),
        role,
        key: if clients { kind.client_key() } else { kind.key() },
        data: if endpoints { Data::Endpoint } else { Data::None },
    })
}

fn role_of(rest: &str) -> Option<Role> {
    let number = |text: &str| {
        // As we print them: no sign, no zero in front.
        let is_plain = text == "0" || !text.starts_with(['0', '+']);
        text.parse::<u32>().ok().filter(|_| is_plain)
    };
    if let Some(slot) = rest.strip_prefix("slot-") {
        return number(slot).map(Role::Slot);
    }
    if let Some(bucket) = rest.strip_prefix("bucket-") {
        return number(bucket).map(Role::Bucket);
    }
    if let Some(slot) = rest.strip_prefix("clients-") {
        return number(slot).map(Role::Clients);
    }
    if let Some(within) = rest.strip_prefix("within-") {
        let (bound, sticky) = match within.split_once("-sticky-") {
            None => (within, None),
            Some((bound, timeout)) => (bound, Some(number(timeout.strip_suffix('s')?)?)),
        };
        let bound = number(bound).filter(|bound| bound.is_power_of_two())?;
        return Some(Role::Within(Bound(bound), sticky));
    }
    match rest {
        "masqueraded" | "policy-local" => Some(Role::Treated),
        "rejected" | "dropped" => Some(Role::Refused),
        "hashed" => Some(Role::Hashed),
        _ => None,
    }
}

/// Whether upstream has no chain of this name: such a chain can be made beside what serves.
pub fn is_ours_alone(chain: &Name) -> bool {
    chain.as_str().contains('/')
}

/// Whether a chain is one of those that choose an endpoint, which packets come to from a list's chain alone
/// ([`Kind::endpoints`]): nothing that packets meet changes when it is made before that leads to it, once or twice.
pub fn is_below_lists(chain: &Name) -> bool {
    let Some((kind, rest)) = chain.as_str().split_once('/') else {
        return false;
    };
    let what = rest.split('/').next().unwrap_or_default();
    Kind::ALL.iter().any(|known| known.word() == kind)
        && ["pick", "try", "to", "hash", "bucket"].contains(&what)
}

/// A power of two that all slots of a list lie below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bound(u32);

impl Bound {
    /// The smallest one for a list with so many slots; `None` for none.
    pub fn of(slots: usize) -> Option<Bound> {
        let slots = u32::try_from(slots).ok().filter(|slots| *slots > 0)?;
        slots.checked_next_power_of_two().map(Bound)
    }

    /// The number of slots.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The next smaller one.
    pub fn half(self) -> Option<Bound> {
        (self.0 > 1).then_some(Bound(self.0 / 2))
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_ours_is_known_by_its_name() {
        for kind in Kind::ALL {
            let bound = Bound::of(9).expect("some slots");
            for (name, role) in [
                (kind.slot(0), Role::Slot(0)),
                (kind.slot(77), Role::Slot(77)),
                (kind.bucket(0), Role::Bucket(0)),
                (kind.bucket(255), Role::Bucket(255)),
                (kind.hashed(), Role::Hashed),
                (kind.clients(3), Role::Clients(3)),
                (kind.within(bound), Role::Within(bound, None)),
                (
                    kind.within_sticky(bound, 10_800),
                    Role::Within(bound, Some(10_800)),
                ),
                (kind.masqueraded(), Role::Treated),
                (kind.policy_local(), Role::Treated),
                (kind.rejected(), Role::Refused),
                (kind.dropped(), Role::Refused),
            ] {
                let form = form_of(name.as_str()).unwrap_or_else(|| panic!("{name}"));
                assert_eq!((form.kind, form.role), (Some(kind), role), "{name}");
            }
        }
    }

    #[test]
    fn other_names_are_nobodys() {
        for name in [
            "service-ips",
            "service-nodeports",
            "no-endpoint-services",
            "affinity-ABC",
            "service-slot-01",
            "service-within-3",
            "service-slot-",
            "service-slot-+1",
            "service-slot-00",
            "service-within-+4",
            "__map0",
        ] {
            assert_eq!(form_of(name), None, "{name}");
        }
    }
}
