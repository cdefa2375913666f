//! Matches of xtables inside a rule of `nf_tables`.

use super::decode::{Decoded, Draft, Undecodable};
use iptables::ast::{AddrType, CtState, Is, Match, PortRange, Recent, RecentAction};
use model::Protocol;
use netlink::nfnl::Family;
use netlink::xt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn decode(draft: &Draft<'_>, found: &xt::Match<'_>) -> Decoded<Match> {
    match found {
        xt::Match::Comment(text) => Ok(Match::Comment((*text).into())),
        xt::Match::Nfacct(name) => Ok(Match::Nfacct((*name).into())),
        xt::Match::Tcp(tcp) if tcp.option == 0 && !tcp.option_inverted && is_no_flag(tcp.flags) => {
            ports(draft, Protocol::Tcp, Some(tcp.source), Some(tcp.destination))
        }
        xt::Match::Udp(udp) => ports(draft, Protocol::Udp, Some(udp.source), Some(udp.destination)),
        xt::Match::Sctp(sctp) if !sctp.chunks => ports(draft, Protocol::Sctp, sctp.source, sctp.destination),
        xt::Match::Statistic(xt::Statistic::Random {
            probability,
            inverted: false,
        }) => Ok(Match::Probability(*probability)),
        xt::Match::Mark(mark) => {
            let pair = (mark.value, mark.mask);
            Ok(Match::Mark {
                is: is(mark.inverted, pair),
            })
        }
        xt::Match::AddrType(addrtype) => address_type(*addrtype),
        xt::Match::Conntrack(conntrack) => connection_state(conntrack),
        xt::Match::Recent(recent) => recently(draft.family, recent),
        _ => Err(Undecodable),
    }
}

fn is<T>(inverted: bool, value: T) -> Is<T> {
    if inverted {
        Is::Not(value)
    } else {
        Is::Equal(value)
    }
}

fn is_no_flag(flags: xt::TcpFlags) -> bool {
    flags.mask == 0 && flags.set == 0 && !flags.inverted
}

/// The rule must ask for the same protocol, as the tool demands; else the structure means something else.
fn ports(
    draft: &Draft<'_>,
    module: Protocol,
    src: Option<xt::PortRange>,
    dst: Option<xt::PortRange>,
) -> Decoded<Match> {
    if draft.transport()? != module {
        return Err(Undecodable);
    }
    let side = |range: Option<xt::PortRange>| {
        range.filter(|range| !range.is_any()).map(|range| {
            is(
                range.inverted,
                PortRange {
                    first: range.first,
                    last: range.last,
                },
            )
        })
    };
    Ok(Match::Ports {
        module,
        src: side(src),
        dst: side(dst),
    })
}

fn address_type(addrtype: xt::AddrType) -> Decoded<Match> {
    if addrtype.limit != xt::IfaceLimit::None {
        return Err(Undecodable);
    }
    let src = one_type(addrtype.source, addrtype.source_inverted)?;
    let dst = one_type(addrtype.destination, addrtype.destination_inverted)?;
    if src.is_none() && dst.is_none() {
        return Err(Undecodable);
    }
    Ok(Match::AddrType { src, dst })
}

fn one_type(mask: xt::TypeMask, inverted: bool) -> Decoded<Option<Is<AddrType>>> {
    if mask.0 == 0 {
        return if inverted { Err(Undecodable) } else { Ok(None) };
    }
    if mask.0.count_ones() != 1 {
        return Err(Undecodable);
    }
    let kind = match mask.names().next().ok_or(Undecodable)? {
        "LOCAL" => AddrType::Local,
        other => AddrType::Other(other.into()),
    };
    Ok(Some(is(inverted, kind)))
}

/// The state alone; any other condition is left to the tool.
fn connection_state(conntrack: &xt::Conntrack) -> Decoded<Match> {
    let Some(state) = conntrack.state else {
        return Err(Undecodable);
    };
    let only_state = xt::Conntrack {
        state: Some(state),
        status: None,
        protocol: None,
        original_source: None,
        original_destination: None,
        reply_source: None,
        reply_destination: None,
        ports: xt::ConntrackPorts::default(),
        expires: None,
        direction: None,
        is_state_alias: false,
    };
    if *conntrack != only_state {
        return Err(Undecodable);
    }
    let states: Vec<CtState> = state
        .value
        .names()
        .map(CtState::from_word)
        .collect::<Option<_>>()
        .ok_or(Undecodable)?;
    if states.is_empty() {
        return Err(Undecodable);
    }
    Ok(Match::CtState(is(state.inverted, states)))
}

/// As kube-proxy uses it; everything else is left to the tool.
fn recently(family: Family, recent: &xt::Recent<'_>) -> Decoded<Match> {
    let whole = match family {
        Family::Ipv4 => IpAddr::V4(Ipv4Addr::BROADCAST),
        _ => IpAddr::V6(Ipv6Addr::from(u128::MAX)),
    };
    let plain = recent.hit_count == 0
        && !recent.same_ttl
        && !recent.inverted
        && recent.side == xt::RecentSide::Source
        && recent.mask == Some(whole);
    let action = match (recent.check, recent.seconds, recent.reap) {
        (xt::RecentCheck::Set, 0, false) => RecentAction::Set,
        (xt::RecentCheck::Check, seconds @ 1.., true) => RecentAction::RcheckReap { seconds },
        _ => return Err(Undecodable),
    };
    if !plain {
        return Err(Undecodable);
    }
    Ok(Match::Recent(Recent {
        name: recent.name.into(),
        action,
    }))
}
