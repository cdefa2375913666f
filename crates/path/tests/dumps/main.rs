//! Rules of other software, in the shape that it gives them: nothing of them is lost, and packets go where they say.
//! A new folder in `scenarios/dumps` needs nothing here.

mod live;
mod loss;
mod packets;

use iptables::ast::Ruleset;
use iptables::parse;
use model::{Family, PerFamily};
use nftables::listed;
use path::{Host, HostInterface, LocalAddresses, Route};
use scenario::Dump;
use scenario::dump::Order;

/// The programs that a dump has to be there of; several have more than one.
const PROGRAMS: usize = 24;

#[test]
fn many_programs_are_covered() {
    let dumps = scenario::dumps();
    assert!(dumps.len() >= PROGRAMS, "only {}", dumps.len());
    let asked: usize = dumps.iter().map(|dump| dump.expect.packets.len()).sum();
    assert!(asked >= 4 * PROGRAMS, "only {asked} packets");
}

/// What a saved text says, of which nothing may be left over.
fn saved(name: &str, text: &str, family: Family) -> Ruleset {
    let save = parse::save(text, family);
    assert_eq!(save.opaque, [], "{name}");
    save.ruleset
}

fn native(name: &str, text: &str) -> listed::Ruleset {
    nftables::parse::ruleset(text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The host with the program's rules and, where it says so, those of kube-proxy.
fn host(dump: &Dump, own: &PerFamily<Ruleset>, native: &listed::Ruleset) -> Host {
    let expect = &dump.expect;
    let interfaces = expect.interfaces.iter().map(|(name, addresses)| HostInterface {
        name: name.as_str().into(),
        addresses: addresses.clone(),
    });
    let routes = expect.routes.iter().map(|route| Route {
        to: route.to,
        via: route.via,
        interface: route.interface.as_str().into(),
    });
    Host {
        rules: PerFamily::from_fn(|family| beside(dump, own.get(family), family)),
        native: native.clone(),
        addresses: LocalAddresses::Unknown,
        interfaces: interfaces.collect(),
        routes: Some(routes.collect()),
        sockets: None,
        sets: path::IpSets::default(),
    }
}

/// The program's rules together with those that kube-proxy wrote for a golden cluster.
fn beside(dump: &Dump, own: &Ruleset, family: Family) -> Ruleset {
    let mut all = own.clone();
    let Some(kube_proxy) = &dump.expect.kube_proxy else {
        return all;
    };
    let golden = scenario::root().join("golden").join(&kube_proxy.golden);
    let golden = scenario::read_golden_case(&golden).unwrap_or_else(|error| panic!("{}: {error}", dump.name));
    let theirs = saved(&golden.name, golden.saved.get(family), family);
    for (name, table) in theirs.tables {
        let here = all.tables.entry(name).or_default();
        for (name, chain) in table.chains {
            let known = here.chains.entry(name).or_default();
            known.policy = known.policy.or(chain.policy);
            let at = match kube_proxy.order {
                Order::First => 0,
                Order::Last => known.rules.len(),
            };
            known.rules.splice(at..at, chain.rules);
        }
    }
    all
}

/// What the saved texts of a folder say.
fn own_rules(dump: &Dump) -> PerFamily<Ruleset> {
    PerFamily::from_fn(|family| {
        let text = dump.saved.get(family).as_deref();
        text.map_or_else(Ruleset::default, |text| saved(&dump.name, text, family))
    })
}
