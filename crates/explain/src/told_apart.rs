//! Networks that a Service's source ranges or somebody's rules tell apart, and one address for each way to lie in them: in
//! a network and in none of the smaller ones that it holds, or in none at all.

use crate::stand_in::{POD_V4, POD_V6, within};
use crate::target::Target;
use crate::world::{Rules, World};
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use iptables::ast::{Is, Ruleset};
use model::Family;
use nftables::listed::{Chain, Contents, Expr, Set, Statement, Table, TableFamily, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

/// Addresses that clusters have for pods, which stand for one in no network before others do.
const USUAL_V4: [Ipv4Addr; 3] = [
    Ipv4Addr::new(172, 31, 255, 254),
    Ipv4Addr::new(192, 168, 255, 254),
    Ipv4Addr::new(100, 127, 255, 254),
];

/// The networks that senders to this destination are told apart by.
pub(crate) fn networks(world: &World, family: Family, target: &Target) -> BTreeSet<IpNet> {
    let service = target.service.as_ref();
    let service = service.and_then(|name| world.snapshot.service(name));
    let ranges = service.into_iter().flat_map(|service| &service.source_ranges);
    let mut all: BTreeSet<IpNet> = ranges.copied().collect();
    if world.rules == Rules::Observed {
        let native = native_sources(world, family, target.at.ip());
        let of_rules = sources(world.host.rules.get(family)).chain(native);
        all.extend(of_rules.filter(is_of_some_size));
    }
    all.retain(|net| Family::of(net.addr()) == family);
    all
}

/// Single hosts in rules are nodes, gateways and the like, and no pod that nobody knows.
fn is_of_some_size(net: &IpNet) -> bool {
    net.max_prefix_len() - net.prefix_len() >= 4 && net.prefix_len() > 0
}

/// Networks that rules of iptables take packets from.
fn sources(rules: &Ruleset) -> impl Iterator<Item = IpNet> {
    let chains = rules.tables.values().flat_map(|table| table.chains.values());
    let rules = chains.flat_map(|chain| &chain.rules);
    rules.filter_map(|rule| match &rule.src {
        Some(Is::Equal(net) | Is::Not(net)) => Some(*net),
        None => None,
    })
}

/// Networks that rules of native tables take packets from: written out, or in sets.
fn native_sources(world: &World, family: Family, to: IpAddr) -> Vec<IpNet> {
    let families = [TableFamily::of(family), TableFamily::Inet];
    let tables = world.host.native.tables.iter();
    let mut found = Vec::new();
    for table in tables.filter(|table| families.contains(&table.family)) {
        for statement in table.chains.iter().flat_map(statements) {
            match statement {
                Statement::Match { left, right, .. } => of_match(table, left, right, to, &mut found),
                Statement::VerdictMap { key, map } => of_match(table, key, map, to, &mut found),
                _ => {}
            }
        }
    }
    found
}

fn statements(chain: &Chain) -> impl Iterator<Item = &Statement> {
    chain.rules.iter().flat_map(|rule| &rule.statements)
}

/// What a match compares the source with.
fn of_match(table: &Table, left: &Expr, right: &Expr, to: IpAddr, found: &mut Vec<IpNet>) {
    let is_source = |expr: &Expr| match expr {
        Expr::Field(words) => words.iter().any(|word| &**word == "saddr"),
        _ => false,
    };
    let parts = match left {
        Expr::Concat(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let Some(place) = parts.iter().position(is_source) else {
        return;
    };
    for key in keys(table, right) {
        let of_key = match key {
            Expr::Concat(parts) => parts.as_slice(),
            one => std::slice::from_ref(one),
        };
        // An element for another destination says nothing of this one.
        let is_others = |(at, expr): (usize, &Expr)| {
            let address = |ip: &IpAddr| at != place && *ip != to;
            matches!(expr, Expr::Value(Value::Address(ip)) if address(ip))
        };
        if !of_key.iter().enumerate().any(is_others) {
            found.extend(of_key.get(place).map(nets).unwrap_or_default());
        }
    }
}

/// The keys of a set, or the one that stands there by itself.
fn keys<'a>(table: &'a Table, right: &'a Expr) -> Vec<&'a Expr> {
    let named = |set: &'a Set| match &set.elements {
        Contents::Listed(elements) => elements.as_slice(),
        Contents::NotListed => &[],
    };
    let elements = match right {
        Expr::Set(elements) => elements,
        Expr::Named(name) => table.set(name).map_or(&[][..], named),
        one => return vec![one],
    };
    elements.iter().map(|element| &element.key).collect()
}

/// A network, or those that make up a range.
fn nets(expr: &Expr) -> Vec<IpNet> {
    let address = |expr: &Expr| match expr {
        Expr::Value(Value::Address(ip)) => Some(*ip),
        _ => None,
    };
    match expr {
        Expr::Value(Value::Network(net)) => vec![net.trunc()],
        Expr::Value(Value::Address(ip)) => vec![IpNet::from(*ip)],
        Expr::Range(ends) => match (address(&ends.0), address(&ends.1)) {
            (Some(IpAddr::V4(first)), Some(IpAddr::V4(last))) => {
                Ipv4Subnets::new(first, last, 0).map(IpNet::V4).collect()
            }
            (Some(IpAddr::V6(first)), Some(IpAddr::V6(last))) => {
                Ipv6Subnets::new(first, last, 0).map(IpNet::V6).collect()
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// For each network an address that is in it and in no smaller one, and for `None` one that is in no network. Every such
/// part begins or ends where a network does, so those ends are all that has to be looked at.
pub(crate) fn addresses(family: Family, nets: &BTreeSet<IpNet>) -> BTreeMap<Option<IpNet>, IpAddr> {
    let usual: Vec<IpAddr> = match family {
        Family::V4 => {
            let usual = USUAL_V4.into_iter().map(IpAddr::V4);
            [IpAddr::from(POD_V4)].into_iter().chain(usual).collect()
        }
        Family::V6 => vec![IpAddr::V6(POD_V6)],
    };
    let ends = nets.iter().flat_map(|net| {
        let (first, last) = (net.network(), net.broadcast());
        [near(last, 1), near(first, -1), Some(first), Some(last)]
    });
    let nice = nets.iter().map(within).chain(usual).map(Some);
    let mut found = BTreeMap::new();
    for ip in nice.chain(ends).flatten().filter(may_send) {
        let around = nets.iter().filter(|net| net.contains(&ip));
        let smallest = around.max_by_key(|net| net.prefix_len()).copied();
        found.entry(smallest).or_insert(ip);
    }
    found
}

/// The address after this one, or before it.
fn near(ip: IpAddr, by: i8) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => u32::from(ip)
            .checked_add_signed(by.into())
            .map(|ip| IpAddr::V4(ip.into())),
        IpAddr::V6(ip) => u128::from(ip)
            .checked_add_signed(by.into())
            .map(|ip| IpAddr::V6(ip.into())),
    }
}

fn may_send(ip: &IpAddr) -> bool {
    let is_reserved = matches!(ip, IpAddr::V4(ip) if ip.octets()[0] == 0 || ip.octets()[0] >= 224);
    !(is_reserved || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}
