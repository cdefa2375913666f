//! Translations.

use super::act::{address, undecided};
use super::datum::number;
use super::indexed::Indexed;
use super::lookup::{Asked, When, answers};
use super::walk::{Branch, Step};
use crate::listed::{Expr, Nat, NatKind};
use std::net::{IpAddr, SocketAddr};
use traced::{Did, Nat as Side, Site, State, Verdict};

/// What a translation does to the packet: one answer, or one for each element that its map may give, in order.
pub(super) fn translate(
    nat: &Nat,
    branch: &Branch,
    site: &Site<'_>,
    indexed: &Indexed<'_>,
) -> Vec<(When, Branch, Step)> {
    let whole = |mut branch: Branch, to: Option<&Expr>| {
        let step = apply(nat, to, &mut branch.state, site);
        (branch, step.unwrap_or_else(|| undecided(nat.to_string())))
    };
    let (key, map) = match &nat.to {
        Some(Expr::Map(both)) => (&both.0, &both.1),
        to => {
            let (branch, step) = whole(branch.clone(), to.as_ref());
            return vec![(When::Always, branch, step)];
        }
    };
    let choices = Asked::of(map, indexed).and_then(|asked| answers(key, &asked, &branch.state, site));
    let Some(choices) = choices else {
        return vec![(When::Always, branch.clone(), undecided(nat.to_string()))];
    };
    let answer = |choice: super::lookup::Choice<'_>| {
        let mut branch = branch.clone();
        let Some(element) = choice.element else {
            // Without an element the rule does not match.
            return (choice.when, branch, Step::Fails);
        };
        if let Expr::Named(name) = map {
            branch.found.push((name.clone(), element.to_string().into()));
        }
        let (branch, step) = whole(branch, element.data.as_ref());
        (choice.when, branch, step)
    };
    choices.into_iter().map(answer).collect()
}

fn apply(nat: &Nat, to: Option<&Expr>, state: &mut State, site: &Site<'_>) -> Option<Step> {
    let (ip, port) = match to {
        Some(Expr::Concat(parts)) => match parts.as_slice() {
            [ip, port] => (Some(ip), Some(port)),
            _ => return None,
        },
        to => (to, nat.port.as_ref()),
    };
    let random = nat.flags.iter().any(|flag| flag.ends_with("random"));
    match nat.kind {
        NatKind::Dnat => dnat(ip, port, state),
        NatKind::Redirect => {
            let port = match port {
                None => state.dst.port(),
                Some(port) => one_port(port)?,
            };
            Some(to_destination(SocketAddr::new(site.redirect_to?, port), state))
        }
        NatKind::Masquerade => {
            let kept = (!random && port.is_none()).then_some(state.src_port).flatten();
            Some(to_source(site.masquerade_as, kept, state))
        }
        NatKind::Snat => {
            let ip = address(ip?)?;
            if ip.is_ipv4() != state.dst.is_ipv4() {
                return Some(Step::Fails);
            }
            let port = match port {
                _ if random => None,
                None => state.src_port,
                Some(port) => one_port(port),
            };
            Some(to_source(Some(ip), port, state))
        }
    }
}

fn one_port(port: &Expr) -> Option<u16> {
    match port {
        Expr::Value(value) => u16::try_from(number(value)?).ok(),
        _ => None,
    }
}

fn dnat(ip: Option<&Expr>, port: Option<&Expr>, state: &mut State) -> Option<Step> {
    let ip = match ip {
        None => state.dst.ip(),
        Some(ip) => address(ip)?,
    };
    if ip.is_ipv4() != state.dst.is_ipv4() {
        return Some(Step::Fails);
    }
    let port = match port {
        None => state.dst.port(),
        Some(port) => one_port(port)?,
    };
    Some(to_destination(SocketAddr::new(ip, port), state))
}

fn to_destination(to: SocketAddr, state: &mut State) -> Step {
    let from = std::mem::replace(&mut state.dst, to);
    // Conntrack sets the bit of a translation only when something changes.
    state.connection.dnat = if from == to { Side::Kept } else { Side::Changed };
    Step::Ends(Did::Dnat { from, to }, Verdict::Accept)
}

fn to_source(to: Option<IpAddr>, port: Option<u16>, state: &mut State) -> Step {
    let from = std::mem::replace(&mut state.src, to);
    let unchanged = to.is_some() && from == to && port.is_some() && state.src_port == port;
    state.src_port = port;
    state.connection.snat = if unchanged { Side::Kept } else { Side::Changed };
    Step::Ends(Did::Snat { from, to }, Verdict::Accept)
}
