//! The hooks in order, and what the kernel does between them.

use crate::answer::{Answer, End, Leg, Listener, Routed, Way};
use crate::hooks::Order;
use crate::host::{Exit, Host};
use ipnet::IpNet;
use model::{Origin, Packet};
use std::net::IpAddr;
use std::sync::Arc;
use traced::{Condition, Detail, Event, History, Hook, Interface, LocalAddresses, Name, Sender, Site, State};

/// The loopback interface.
const LOOPBACK: &str = "lo";

/// Follows a packet through the host.
///
/// A packet of an established connection is not shown to nat, since the connection has its translation already; which
/// one that is no rule says, so the packet is followed as if there were none.
pub fn trace(host: &Host, packet: &Packet, detail: Detail) -> Answer {
    let given = Given {
        host,
        packet,
        local: host.local_addresses(),
        networks: host.networks(),
        order: Order::of(host, packet.family()),
    };
    let mut walk = Walk {
        given,
        history: History::new(detail),
        waiting: Vec::new(),
        ways: Vec::new(),
    };
    let first = walk.given.beginning();
    let first = walk.past_frames(first, "ingress");
    walk.waiting.extend(first);
    while let Some(traveller) = walk.waiting.pop() {
        walk.go_on(traveller);
    }
    Answer {
        packet: packet.clone(),
        ways: walk.ways,
        history: walk.history,
    }
}

/// The packet somewhere on its way.
#[derive(Clone)]
pub(crate) struct Traveller {
    pub(crate) state: State,
    pub(crate) legs: Vec<Leg>,
    pub(crate) at: At,
    pub(crate) in_interface: Interface,
    pub(crate) exit: Exit,
    /// The last routing decision.
    pub(crate) here: bool,
    /// What became of it, once something did.
    pub(crate) end: Option<End>,
}

/// Where a packet is about to be.
#[derive(Clone, Copy)]
pub(crate) enum At {
    /// At this group of those that the hook calls.
    Group(Hook, usize),
    /// Past all of the hook.
    Past(Hook),
}

/// What does not change while the packet is followed.
pub(crate) struct Given<'a> {
    host: &'a Host,
    pub(crate) packet: &'a Packet,
    local: LocalAddresses,
    networks: Vec<IpNet>,
    pub(crate) order: Order<'a>,
}

pub(crate) struct Walk<'a> {
    pub(crate) given: Given<'a>,
    pub(crate) history: History,
    pub(crate) waiting: Vec<Traveller>,
    pub(crate) ways: Vec<Way>,
}

impl Given<'_> {
    fn beginning(&self) -> Traveller {
        let nowhere = Exit {
            interface: Interface::Absent,
            next_hop: None,
        };
        let mut traveller = Traveller {
            state: State::new(self.packet),
            legs: Vec::new(),
            at: At::Group(Hook::Prerouting, 0),
            in_interface: Interface::Absent,
            exit: nowhere,
            here: false,
            end: None,
        };
        match &self.packet.origin {
            Origin::Host => {
                traveller.at = At::Group(Hook::Output, 0);
                traveller.exit = self.first_exit();
            }
            Origin::Interface(name) if name.is_empty() => traveller.in_interface = Interface::Unknown,
            Origin::Interface(name) => traveller.in_interface = Interface::Named(name.clone()),
        }
        traveller
    }

    /// Where a packet made here is going before OUTPUT is asked. Rules may still change that; what hooks of OUTPUT see
    /// as outgoing interface stays.
    fn first_exit(&self) -> Exit {
        let unknown = Exit {
            interface: Interface::Unknown,
            next_hop: None,
        };
        match self.local.has(self.packet.dst.ip()) {
            Some(true) => loopback(),
            None => unknown,
            Some(false) => self.host.exit(self.packet.dst.ip()).unwrap_or(Exit {
                interface: Interface::Absent,
                next_hop: None,
            }),
        }
    }

    fn sender(&self) -> Sender {
        match self.packet.origin {
            Origin::Host => Sender::ThisHost,
            Origin::Interface(_) => Sender::Elsewhere,
        }
    }

    /// A socket's packet needs a route before any hook sees it.
    fn cannot_be_sent(&self, traveller: &Traveller) -> bool {
        self.packet.origin == Origin::Host && traveller.exit.interface == Interface::Absent
    }

    pub(crate) fn site(&self, traveller: &Traveller, hook: Hook, table: Name) -> Site<'_> {
        let made_here = self.sender() == Sender::ThisHost;
        let in_interface = match hook {
            Hook::Output => Interface::Absent,
            Hook::Postrouting if made_here => Interface::Absent,
            _ => traveller.in_interface.clone(),
        };
        let out_interface = match hook {
            Hook::Prerouting | Hook::Input => Interface::Absent,
            _ => traveller.exit.interface.clone(),
        };
        let dst = traveller.state.dst.ip();
        let redirect_to = match hook {
            Hook::Output => Some(loopback_address(dst)),
            _ => self.host.primary_address(&in_interface, dst),
        };
        Site {
            hook,
            table,
            in_interface,
            out_interface,
            sender: self.sender(),
            local: &self.local,
            networks: &self.networks,
            masquerade_as: self.host.masquerade_as(&traveller.exit, dst),
            redirect_to,
            sets: &self.host.sets,
        }
    }
}

impl Walk<'_> {
    fn go_on(&mut self, mut traveller: Traveller) {
        if let Some(end) = traveller.end.take() {
            self.finish(traveller, end);
            return;
        }
        match traveller.at {
            At::Group(Hook::Output, 0) if self.given.cannot_be_sent(&traveller) => {
                traveller.legs.push(Leg::Routed {
                    to: Routed::Nowhere,
                    until: traveller.state.last,
                });
                self.finish(traveller, End::NoRoute);
            }
            At::Group(hook, index) if index < self.given.order.groups(hook).len() => {
                traveller.at = At::Group(hook, index + 1);
                let found = self.group(traveller, hook, index);
                // Ways wait on a stack: the one pushed last is followed first.
                self.waiting.extend(found.into_iter().rev());
            }
            At::Group(hook, _) => {
                traveller.at = At::Past(hook);
                self.waiting.push(traveller);
            }
            At::Past(Hook::Prerouting) => self.route(traveller, Hook::Input, Hook::Forward),
            At::Past(Hook::Output) => self.route(traveller, Hook::Postrouting, Hook::Postrouting),
            At::Past(Hook::Forward) => {
                traveller.at = At::Group(Hook::Postrouting, 0);
                self.waiting.push(traveller);
            }
            At::Past(Hook::Postrouting) if traveller.here => {
                // A packet to this host itself comes in again through the loopback interface, with its connection.
                traveller.in_interface = Interface::Named(LOOPBACK.into());
                traveller.at = At::Group(Hook::Prerouting, 0);
                self.waiting.push(traveller);
            }
            At::Past(Hook::Postrouting) => {
                let Exit { interface, next_hop } = traveller.exit.clone();
                for mut way in self.past_frames(traveller, "egress") {
                    let left = End::Left {
                        interface: interface.clone(),
                        next_hop,
                    };
                    let end = way.end.take().unwrap_or(left);
                    self.finish(way, end);
                }
            }
            At::Past(Hook::Input) => {
                let listener = match self
                    .given
                    .host
                    .listens(traveller.state.protocol, traveller.state.dst)
                {
                    None => Listener::Unknown,
                    Some(true) => Listener::Present,
                    Some(false) => Listener::Absent,
                };
                self.finish(traveller, End::Local(listener));
            }
        }
    }

    fn finish(&mut self, traveller: Traveller, end: End) {
        let way = Way::new(traveller.state, end, traveller.legs, &self.history);
        self.ways.push(way);
    }

    /// Decides where the packet goes, and sends it to one of these hooks.
    fn route(&mut self, traveller: Traveller, when_here: Hook, when_elsewhere: Hook) {
        let dst = traveller.state.dst.ip();
        let condition = Condition::Local(dst);
        let known = self
            .given
            .local
            .has(dst)
            .or_else(|| self.history.answer(traveller.state.last, &condition));
        if let Some(here) = known {
            self.routed(traveller, here, when_here, when_elsewhere);
            return;
        }
        for here in [true, false] {
            let mut branch = traveller.clone();
            let event = Event::Assumed {
                condition: condition.clone(),
                holds: here,
            };
            branch.state.last = Some(self.history.push(branch.state.last, event));
            self.routed(branch, here, when_here, when_elsewhere);
        }
    }

    fn routed(&mut self, mut traveller: Traveller, here: bool, when_here: Hook, when_elsewhere: Hook) {
        traveller.here = here;
        let exit = if here {
            Some(loopback())
        } else {
            self.given.host.exit(traveller.state.dst.ip())
        };
        let to = match &exit {
            _ if here => Routed::Here,
            Some(exit) => Routed::Out(exit.interface.clone()),
            None => Routed::Nowhere,
        };
        traveller.legs.push(Leg::Routed {
            to,
            until: traveller.state.last,
        });
        let Some(exit) = exit else {
            traveller.end = Some(End::NoRoute);
            self.waiting.push(traveller);
            return;
        };
        traveller.exit = exit;
        traveller.at = At::Group(if here { when_here } else { when_elsewhere }, 0);
        self.waiting.push(traveller);
    }
}

fn loopback() -> Exit {
    Exit {
        interface: Interface::Named(Arc::from(LOOPBACK)),
        next_hop: None,
    }
}

fn loopback_address(family_of: IpAddr) -> IpAddr {
    match family_of {
        IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(_) => IpAddr::from(std::net::Ipv6Addr::LOCALHOST),
    }
}
