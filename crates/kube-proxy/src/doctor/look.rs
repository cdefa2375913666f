//! Looks at this host. Nothing is written, and no table is made by asking.

use super::Seen;
use explain::HostFacts;
use explain::doctor::{Backend, NATIVE_TABLES, NotSeen, Weight};
use explain::facts::{ABSENT, ClockFacts, ConntrackFacts, InterfaceFacts, Listening, Lock, Module};
use kernel::host_state::{self, ModuleState};
use kernel::native::{self, Elements};
use kernel::printed::ListError;
use kernel::probe::Tools;
use kernel::{FailureKind, addresses, conntrack, ip_sets, links, listening, routes, saved, sysctl};
use model::Family;
use path::{IpSets, Socket};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;

/// The name of the file of nftables' tables.
pub(super) const NATIVE: &str = "nft-ruleset.json";

/// Everything that can be seen of this host.
pub(super) fn host() -> Seen {
    let mut seen = Seen::default();
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
    rules(&tools, &mut seen);
    sets(&mut seen);
    let facts = &mut seen.facts;
    facts.hostname =
        Some(sysctl::read("kernel/hostname").unwrap_or_default()).filter(|name| !name.is_empty());
    facts.kernel = Some(kernel::release::Release::running().to_string());
    facts.modules = modules();
    facts.conntrack = connections();
    facts.counters = host_state::netstat(RP_COUNTER)
        .map(|count| (RP_COUNTER.to_owned(), count))
        .into_iter()
        .collect();
    facts.clock = ClockFacts {
        is_synchronised: host_state::is_clock_synchronised(),
        ahead: None,
    };
    facts.xtables_lock = Some(lock());
    interfaces(&mut seen);
    ways(&mut seen);
    sysctls(&mut seen.facts);
    sockets(&mut seen);
    wireguard(&mut seen);
    seen
}

const RP_COUNTER: &str = "IPReversePathFilter";

fn part(what: &str, why: impl Into<String>) -> NotSeen {
    NotSeen {
        what: what.to_owned(),
        why: why.into(),
        weight: Weight::Part,
    }
}

fn rules(tools: &Tools, seen: &mut Seen) {
    let mut read = 0;
    let mut failed = Vec::new();
    for (backend, of_kernel) in [
        (Backend::NfTables, kernel::Backend::NfTables),
        (Backend::Legacy, kernel::Backend::Legacy),
    ] {
        for family in Family::ALL {
            let tool = backend.tool(family);
            if let Ok(found) = tools.of(of_kernel, family) {
                let version = format!("v{} ({})", found.version, backend.as_str());
                seen.facts.tools.insert(tool.clone(), version);
            }
            match saved::save(tools, of_kernel, family) {
                Ok(Some(text)) => {
                    read += 1;
                    seen.dumps.insert(format!("{tool}-save.txt"), text);
                }
                Ok(None) => {}
                Err(error) if error.kind == FailureKind::ToolMissing => failed.push((tool, error)),
                Err(error) => {
                    if error.kind != FailureKind::Denied {
                        seen.facts.broken.insert(tool.clone(), error.detail.clone());
                    }
                    failed.push((tool, error));
                }
            }
        }
    }
    read += usize::from(native_tables(seen));
    for (tool, error) in failed {
        let why = match error.kind {
            FailureKind::Denied => {
                "not allowed: reading rules needs root (CAP_NET_ADMIN, and CAP_NET_RAW for legacy)".to_owned()
            }
            _ => error.detail,
        };
        let weight = if read == 0 {
            Weight::Essential
        } else {
            Weight::Part
        };
        // What no table needs is not missed.
        if error.kind != FailureKind::ToolMissing || read == 0 {
            seen.unseen.push(NotSeen {
                what: format!("rules of {tool}"),
                why,
                weight,
            });
        }
    }
}

/// Whether the tables of nftables could be read.
fn native_tables(seen: &mut Seen) -> bool {
    if let Some(version) = host_state::nft_version() {
        seen.facts.tools.insert("nft".to_owned(), version);
    }
    let what = NATIVE_TABLES;
    match native::list() {
        Ok(listed) => {
            if listed.elements == Elements::LeftOut {
                seen.unseen.push(part(
                    "elements of nftables' sets",
                    "they are too many to be listed",
                ));
            }
            seen.dumps.insert(NATIVE.to_owned(), listed.json);
            true
        }
        Err(ListError::NotInstalled { .. }) => {
            seen.unseen.push(part(
                what,
                "nft is not installed: firewalls that use it are not seen",
            ));
            false
        }
        Err(error) => {
            seen.unseen.push(part(what, error.to_string()));
            false
        }
    }
}

/// The sets that rules ask. Without such a rule nobody runs `ipset`, which would load the kernel's module.
fn sets(seen: &mut Seen) {
    if !seen.dumps.values().any(|text| text.contains("--match-set")) {
        return;
    }
    let read = ip_sets::save()
        .map_err(|error| error.to_string())
        .and_then(|text| Ok((IpSets::read(&text)?, text)));
    match read {
        Ok((sets, text)) => {
            seen.facts.sets = sets;
            seen.sets = Some(text);
        }
        Err(why) => seen.unseen.push(part("sets of ipset, which rules ask", why)),
    }
}

/// Modules that somebody may miss, and another name that each had.
const MODULES: [(&str, &str); 11] = [
    ("br_netfilter", ""),
    ("nf_conntrack", ""),
    ("nf_nat", ""),
    ("xt_comment", ""),
    ("xt_conntrack", ""),
    ("xt_mark", ""),
    ("xt_addrtype", ""),
    ("xt_nat", ""),
    ("xt_MASQUERADE", "ipt_MASQUERADE"),
    ("xt_statistic", ""),
    ("xt_recent", ""),
];

fn modules() -> BTreeMap<String, Module> {
    let names: Vec<&str> = MODULES
        .iter()
        .flat_map(|(name, before)| [*name, *before])
        .filter(|name| !name.is_empty())
        .chain(["ip_vs"])
        .collect();
    let found = host_state::modules(&names);
    let word = |state: &ModuleState| match state {
        ModuleState::Loaded => Module::Loaded,
        ModuleState::Available => Module::Available,
        ModuleState::Absent => Module::Absent,
    };
    let is_there = |name: &str| found.get(name).filter(|state| **state != ModuleState::Absent);
    let all = MODULES.iter().chain(&[("ip_vs", "")]);
    all.filter_map(|(name, before)| {
        let state = is_there(name)
            .or_else(|| is_there(before))
            .or_else(|| found.get(*name))?;
        Some(((*name).to_owned(), word(state)))
    })
    .collect()
}

fn connections() -> Option<ConntrackFacts> {
    let fill = conntrack::fill().ok()?;
    let counters = conntrack::counters().unwrap_or_default();
    Some(ConntrackFacts {
        entries: fill.entries,
        limit: fill.limit,
        insert_failed: counters.insert_failed,
        drop: counters.drop,
        early_drop: counters.early_drop,
        invalid: counters.invalid,
    })
}

fn lock() -> Lock {
    match fs::metadata("/run/xtables.lock") {
        Ok(found) if found.is_dir() => Lock::Folder,
        Ok(_) => Lock::File,
        Err(_) => Lock::Absent,
    }
}

fn interfaces(seen: &mut Seen) {
    let found = links::links().and_then(|links| Ok((links, addresses::interface_addresses()?)));
    let (links, addresses) = match found {
        Ok(found) => found,
        Err(error) => {
            seen.unseen.push(part("interfaces", error.to_string()));
            return;
        }
    };
    let names: BTreeMap<u32, &str> = links
        .iter()
        .map(|link| (link.index, link.name.as_str()))
        .collect();
    seen.facts.interfaces = links
        .iter()
        .map(|link| InterfaceFacts {
            name: link.name.as_str().into(),
            kind: link.kind.clone(),
            addresses: addresses
                .iter()
                .filter(|of| of.interface == link.name)
                .map(|of| of.address)
                .collect(),
            bridge: link
                .master
                .and_then(|master| names.get(&master))
                .map(|name| (*name).into()),
            hairpin: link.hairpin,
        })
        .collect();
}

fn ways(seen: &mut Seen) {
    let lines = |all: Vec<String>| all.into_iter().map(serde_json::Value::String).collect::<Vec<_>>();
    let routes = routes::routes().map(|all| lines(all.iter().map(ToString::to_string).collect()));
    let rules = routes::rules().map(|all| lines(all.iter().map(ToString::to_string).collect()));
    let mut document = serde_json::Map::new();
    match routes {
        Ok(routes) => drop(document.insert("routes".to_owned(), routes.into())),
        Err(error) => seen.unseen.push(part("routes", error.to_string())),
    }
    match rules {
        Ok(rules) => drop(document.insert("rules".to_owned(), rules.into())),
        Err(error) => seen
            .unseen
            .push(part("rules of policy routing", error.to_string())),
    }
    match HostFacts::read(&document.into()) {
        Ok(read) => {
            seen.facts.routes = read.routes;
            seen.facts.policy_rules = read.policy_rules;
        }
        Err(error) => seen.unseen.push(part("routes", error.to_string())),
    }
}

/// Settings of the whole namespace.
const SYSCTLS: [&str; 10] = [
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.forwarding",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.all.route_localnet",
    "net.netfilter.nf_conntrack_max",
    "net.netfilter.nf_conntrack_tcp_be_liberal",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.vs.conn_reuse_mode",
];

/// Settings that are not there without a module.
const OF_BRIDGES: [&str; 2] = [
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
];

/// Settings of interfaces with addresses, of which a host has few.
const OF_INTERFACES: [(&str, &str); 4] = [
    ("ipv4", "rp_filter"),
    ("ipv4", "route_localnet"),
    ("ipv4", "forwarding"),
    ("ipv6", "accept_ra"),
];

fn sysctls(facts: &mut HostFacts) {
    let mut found = BTreeMap::new();
    for name in SYSCTLS {
        if let Ok(value) = sysctl::read(&name.replace('.', "/")) {
            found.insert(name.to_owned(), value);
        }
    }
    for name in OF_BRIDGES {
        match sysctl::read(&name.replace('.', "/")) {
            Ok(value) => drop(found.insert(name.to_owned(), value)),
            Err(error) if error.source.kind() == ErrorKind::NotFound => {
                found.insert(name.to_owned(), ABSENT.to_owned());
            }
            Err(_) => {}
        }
    }
    for interface in facts.interfaces.iter().filter(|of| !of.addresses.is_empty()) {
        for (family, name) in OF_INTERFACES {
            let interface = &interface.name;
            if let Ok(value) = sysctl::read(&format!("net/{family}/conf/{interface}/{name}")) {
                found.insert(format!("net.{family}.conf.{interface}.{name}"), value);
            }
        }
    }
    facts.sysctl = found;
}

fn sockets(seen: &mut Seen) {
    let found = match listening::listening_sockets() {
        Ok(found) => found,
        Err(error) => {
            seen.unseen.push(part("listening sockets", error.to_string()));
            return;
        }
    };
    let inodes: BTreeSet<u32> = found.iter().map(|socket| socket.inode).collect();
    let owners = listening::owners(&inodes);
    let sockets = found.iter().map(|of| Listening {
        socket: Socket {
            protocol: of.protocol,
            address: of.address,
        },
        process: owners.get(&of.inode).map(|owner| owner.name.clone()),
    });
    seen.facts.listening = Some(sockets.collect());
}

fn wireguard(seen: &mut Seen) {
    let is_there = |of: &InterfaceFacts| of.kind.as_deref() == Some("wireguard");
    if !seen.facts.interfaces.iter().any(is_there) {
        return;
    }
    let marks = host_state::wireguard_marks().map(|marks| HostFacts::read(&json!({"wireguard": marks})));
    match marks {
        Some(Ok(read)) => seen.facts.wireguard = read.wireguard,
        _ => seen
            .unseen
            .push(part("marks of WireGuard", "wg is not installed, or not allowed")),
    }
}
