//! Who is asked at one priority, and what it makes of the packet.

use crate::answer::{End, Leg};
use crate::hooks::{Asked, CONNTRACK, Rules};
use crate::orders::orders;
use crate::walk::{Traveller, Walk};
use std::sync::Arc;
use traced::{Condition, Event, Hook, Interface, Limits, Name, Nat, State, Track, Verdict};

impl Walk<'_> {
    /// Shows the packet to all of one priority. Where their order would make a difference it is a fork.
    pub(crate) fn group(&mut self, mut traveller: Traveller, hook: Hook, index: usize) -> Vec<Traveller> {
        let group = self.given.order.groups(hook)[index].clone();
        if group.priority > CONNTRACK && traveller.state.connection.track == Track::Unseen {
            traveller.state.connection.track = self.given.packet.state.into();
        }
        let (matter, idle): (Vec<_>, Vec<_>) = group.members.into_iter().partition(|one| one.matters(hook));
        let idle = self.in_turn(traveller, hook, &idle, Walk::asked);
        let titles: Vec<Arc<str>> = matter.iter().map(|one| one.title().into()).collect();
        let mut found = Vec::new();
        for traveller in idle {
            found.extend(self.in_some_order(traveller, hook, &matter, (&titles, Walk::asked)));
        }
        found
    }

    /// Shows the packet to one after another, as long as it goes on.
    fn in_turn<T>(
        &mut self,
        traveller: Traveller,
        hook: Hook,
        all: &[T],
        ask: Ask<Self, T>,
    ) -> Vec<Traveller> {
        let mut here = vec![traveller];
        for one in all {
            let mut next = Vec::new();
            for traveller in here {
                match traveller.end {
                    Some(_) => next.push(traveller),
                    None => next.extend(ask(self, traveller, hook, one)),
                }
            }
            here = next;
        }
        here
    }

    /// Shows the packet to those of one priority: in every order that makes a difference.
    fn in_some_order<T: Clone>(
        &mut self,
        traveller: Traveller,
        hook: Hook,
        all: &[T],
        (titles, ask): (&[Arc<str>], Ask<Self, T>),
    ) -> Vec<Traveller> {
        let Some(orders) = orders(all.len()) else {
            let why = format!(
                "{} base chains of one priority at {hook}: {}",
                all.len(),
                titles.join(", ")
            );
            return vec![Traveller {
                end: Some(End::Undecided(why.into())),
                ..traveller
            }];
        };
        let condition = |order: &[usize]| Condition::Order {
            hook,
            chains: order.iter().map(|at| titles[*at].clone()).collect(),
        };
        let mut different: Vec<(Vec<usize>, Vec<Traveller>)> = Vec::new();
        for order in orders {
            if self.history.answer(traveller.state.last, &condition(&order)) == Some(false) {
                continue;
            }
            let members: Vec<T> = order.iter().map(|at| all[*at].clone()).collect();
            let found = self.in_turn(traveller.clone(), hook, &members, ask);
            let known = different.iter().any(|(_, known)| same_ends(known, &found));
            if !known {
                different.push((order, found));
            }
        }
        if different.len() < 2 {
            return different.pop().map(|(_, found)| found).unwrap_or_default();
        }
        // Asked again, so that what each way stands on comes before what it meets.
        let mut forks = Vec::new();
        let mut left = traveller;
        let last = different.len() - 1;
        for (number, (order, _)) in different.into_iter().enumerate() {
            let mut fork = left.clone();
            if number < last {
                self.assume(&mut fork, condition(&order), true);
                self.assume(&mut left, condition(&order), false);
            }
            let members: Vec<T> = order.iter().map(|at| all[*at].clone()).collect();
            forks.extend(self.in_turn(fork, hook, &members, ask));
        }
        forks
    }

    pub(crate) fn assume(&mut self, traveller: &mut Traveller, condition: Condition, holds: bool) {
        let event = Event::Assumed { condition, holds };
        traveller.state.last = Some(self.history.push(traveller.state.last, event));
    }

    fn asked(&mut self, traveller: Traveller, hook: Hook, one: &Asked<'_>) -> Vec<Traveller> {
        match one {
            Asked::Filter(rules) => self.rules(&traveller, hook, rules),
            Asked::Nat(groups) if nat_is_asked(&traveller.state, hook) => {
                let mut found = self.in_turn(traveller, hook, groups, Walk::nat_group);
                for traveller in &mut found {
                    settle_nat(&mut traveller.state, hook);
                }
                found
            }
            Asked::Nat(_) => vec![traveller],
        }
    }

    /// Those that translate and have one priority.
    fn nat_group(&mut self, traveller: Traveller, hook: Hook, group: &Vec<Rules<'_>>) -> Vec<Traveller> {
        let (matter, idle): (Vec<_>, Vec<_>) = group.iter().cloned().partition(|rules| rules.matter(hook));
        let titles: Vec<Arc<str>> = matter.iter().map(|rules| rules.title().into()).collect();
        let mut found = Vec::new();
        for traveller in self.in_turn(traveller, hook, &idle, Walk::translating) {
            found.extend(self.in_some_order(traveller, hook, &matter, (&titles, Walk::translating)));
        }
        found
    }

    /// The first that translates is the last that is asked.
    fn translating(&mut self, traveller: Traveller, hook: Hook, rules: &Rules<'_>) -> Vec<Traveller> {
        if nat_is_asked(&traveller.state, hook) {
            self.rules(&traveller, hook, rules)
        } else {
            vec![traveller]
        }
    }

    /// Shows the packet to one table of iptables, or one base chain.
    fn rules(&mut self, traveller: &Traveller, hook: Hook, rules: &Rules<'_>) -> Vec<Traveller> {
        let limits = Limits {
            branches: Limits::default()
                .branches
                .saturating_sub(self.waiting.len() + self.ways.len()),
        };
        let name = match rules {
            Rules::Iptables(name, _) => Name::from(name.as_str()),
            Rules::Native { table, .. } => Name::from(table.title()),
        };
        let site = self.given.site(traveller, hook, name.clone());
        let history = &mut self.history;
        let found = match rules {
            Rules::Iptables(_, table) => {
                iptables::trace::walk(table, traveller.state, &site, limits, history)
            }
            Rules::Native { table, chain } => match self.given.order.indexed.get(&table.title()) {
                Some(indexed) => {
                    nftables::trace::walk((indexed, chain), traveller.state, &site, limits, history)
                }
                None => Vec::new(),
            },
        };
        let after = found.into_iter().map(|(state, verdict)| {
            let mut next = Traveller {
                state,
                end: end_by(verdict),
                ..traveller.clone()
            };
            next.legs.push(Leg::Table {
                hook,
                table: name.clone(),
                until: state.last,
            });
            next
        });
        after.collect()
    }

    /// Frames pass chains that nobody follows here: bridges', and those at devices. Either they let it go on, or nobody
    /// knows.
    pub(crate) fn past_frames(&mut self, mut traveller: Traveller, at: &str) -> Vec<Traveller> {
        let device = match at {
            "ingress" => traveller.in_interface.clone(),
            _ => traveller.exit.interface.clone(),
        };
        if device == Interface::Absent {
            return vec![traveller];
        }
        let mut ways = Vec::new();
        for (table, chain) in self.given.order.frames.clone() {
            let Some(base) = &chain.base else {
                continue;
            };
            let elsewhere = match &device {
                Interface::Named(name) => !base.devices.is_empty() && !base.devices.contains(name),
                _ => false,
            };
            let bridged = !matches!(&*base.hook, "ingress" | "egress") && at == "ingress";
            if elsewhere || (&*base.hook != at && !bridged) {
                continue;
            }
            let text: Arc<str> =
                format!("chain {} of table {} at {}", chain.name, table.title(), base.hook).into();
            let mut lost = traveller.clone();
            self.assume(&mut lost, Condition::LetsGoOn(text.clone()), false);
            lost.end = Some(End::Undecided(text.clone()));
            self.assume(&mut traveller, Condition::LetsGoOn(text), true);
            ways.push(lost);
        }
        ways.insert(0, traveller);
        ways
    }
}

/// How one of several is asked.
type Ask<W, T> = fn(&mut W, Traveller, Hook, &T) -> Vec<Traveller>;

/// Whether two sets of ways, found in different orders, come to the same.
fn same_ends(some: &[Traveller], others: &[Traveller]) -> bool {
    let alike = |one: &Traveller, other: &Traveller| {
        let mut state = one.state;
        state.last = other.state.last;
        state == other.state && one.end == other.end
    };
    let found = |one: &Traveller| others.iter().any(|other| alike(one, other));
    some.len() == others.len() && some.iter().all(found)
}

/// The end that a table's verdict means; `None` when the packet goes on.
fn end_by(verdict: Verdict) -> Option<End> {
    match verdict {
        Verdict::Accept => None,
        Verdict::Drop => Some(End::Dropped),
        Verdict::Reject(with) => Some(End::Rejected(with)),
        Verdict::Undecided(why) => Some(End::Undecided(why)),
    }
}

/// Which translation a hook's nat chain decides.
fn side(state: &mut State, hook: Hook) -> &mut Nat {
    match hook {
        Hook::Prerouting | Hook::Output | Hook::Forward => &mut state.connection.dnat,
        Hook::Input | Hook::Postrouting => &mut state.connection.snat,
    }
}

/// Nat sees the first packet of a connection, and decides each side once (`nf_nat_inet_fn`).
fn nat_is_asked(state: &State, hook: Hook) -> bool {
    let mut state = *state;
    state.connection.track == Track::New && *side(&mut state, hook) == Nat::Undecided
}

/// What nat left as it was stays so for the whole connection.
fn settle_nat(state: &mut State, hook: Hook) {
    let side = side(state, hook);
    if *side == Nat::Undecided {
        *side = Nat::Kept;
    }
}
