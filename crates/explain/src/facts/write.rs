//! Writes facts in the form that [`HostFacts::read`] reads.

use super::{
    ClockFacts, ConntrackFacts, HostFacts, InterfaceFacts, Listening, Lock, Module, RouteFacts, RouteKind,
};
use serde_json::{Map, Value, json};

impl HostFacts {
    /// The document. What is not known is left out.
    pub fn write(&self) -> Value {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Value| {
            let is_empty = match &value {
                Value::Null => true,
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            if !is_empty {
                fields.insert(name.to_owned(), value);
            }
        };
        put("hostname", json!(self.hostname));
        put("kernel", json!(self.kernel));
        put("tools", json!(self.tools));
        put("broken", json!(self.broken));
        let modules = self.modules.iter();
        put(
            "modules",
            modules
                .map(|(name, module)| (name.clone(), word_of(&Module::ALL, *module)))
                .collect(),
        );
        put(
            "interfaces",
            self.interfaces.iter().map(interface).collect::<Vec<_>>().into(),
        );
        let lines = |routes: &Vec<RouteFacts>| routes.iter().map(route).collect::<Vec<_>>();
        put("routes", json!(self.routes.as_ref().map(lines)));
        let rules = self.policy_rules.as_ref();
        put(
            "rules",
            json!(rules.map(|rules| rules.iter().map(|rule| &rule.text).collect::<Vec<_>>())),
        );
        put("sysctl", json!(self.sysctl));
        let sockets = |all: &Vec<Listening>| all.iter().map(listening).collect::<Vec<_>>();
        put("listening", json!(self.listening.as_ref().map(sockets)));
        let marks = self.wireguard.iter();
        put(
            "wireguard",
            marks
                .map(|(name, mark)| (name.clone(), Value::from(format!("{mark:#x}"))))
                .collect(),
        );
        put("conntrack", json!(self.conntrack.as_ref().map(conntrack)));
        put("counters", json!(self.counters));
        put("clock", clock(self.clock));
        put(
            "xtables_lock",
            self.xtables_lock
                .map_or(Value::Null, |lock| word_of(&Lock::ALL, lock)),
        );
        put("config", self.config.clone());
        Value::Object(fields)
    }
}

fn word_of<T: Copy + PartialEq>(all: &[(T, &'static str)], of: T) -> Value {
    let mut found = all.iter().filter(|(one, _)| *one == of);
    found.next().map_or(Value::Null, |(_, word)| json!(word))
}

/// A map without the fields of which nothing is known.
fn known(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        other => other,
    }
}

fn interface(of: &InterfaceFacts) -> Value {
    let addresses: Vec<String> = of.addresses.iter().map(ToString::to_string).collect();
    known(json!({
        "name": &*of.name,
        "type": of.kind,
        "addresses": addresses,
        "bridge": of.bridge.as_deref(),
        "hairpin": of.hairpin,
    }))
}

/// A route as `ip route` prints it. The default route of IPv6 is written as `::/0`, which needs no other word to be known.
fn route(of: &RouteFacts) -> String {
    let mut words = Vec::new();
    match of.kind {
        RouteKind::Unicast => {}
        RouteKind::Nowhere => words.push("blackhole".to_owned()),
        RouteKind::Throw => words.push("throw".to_owned()),
        RouteKind::Own => words.push("local".to_owned()),
    }
    words.push(match of.route.to.to_string() {
        all if all == "0.0.0.0/0" => "default".to_owned(),
        net => net,
    });
    words.extend(of.route.via.map(|ip| format!("via {ip}")));
    if !of.route.interface.is_empty() {
        words.push(format!("dev {}", of.route.interface));
    }
    words.extend(of.table.as_ref().map(|table| format!("table {table}")));
    words.extend(of.made_by.as_ref().map(|made_by| format!("proto {made_by}")));
    words.extend(of.source.map(|ip| format!("src {ip}")));
    words.join(" ")
}

fn listening(of: &Listening) -> Value {
    known(json!({
        "proto": of.socket.protocol.as_lower(),
        "address": of.socket.address.ip().to_string(),
        "port": of.socket.address.port(),
        "process": of.process,
    }))
}

fn conntrack(of: &ConntrackFacts) -> Value {
    json!({
        "entries": of.entries,
        "limit": of.limit,
        "insert_failed": of.insert_failed,
        "drop": of.drop,
        "early_drop": of.early_drop,
        "invalid": of.invalid,
    })
}

fn clock(of: ClockFacts) -> Value {
    known(json!({"synchronised": of.is_synchronised, "ahead": of.ahead}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_as_itself() {
        let facts = HostFacts::read(&json!({
            "hostname": "node-a",
            "kernel": "6.1.0-13-amd64",
            "tools": {"iptables-nft": "iptables v1.8.9 (nf_tables)"},
            "broken": {"ip6tables-nft": "table `nat' is \u{1b}[2J incompatible"},
            "modules": {"br_netfilter": "absent", "nf_nat": "loaded", "xt_recent": "available"},
            "interfaces": [
                {"name": "eth0", "addresses": ["192.0.2.11/24", "2001:db8::11/64"]},
                {"name": "cni0", "type": "bridge", "addresses": ["10.244.1.1/24"]},
                {"name": "veth1", "type": "veth", "addresses": [], "bridge": "cni0", "hairpin": false},
            ],
            "routes": [
                "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.11",
                "::/0 via fe80::1 dev eth0 proto ra",
                "blackhole 10.244.1.0/26 proto bird",
                "default dev wg0 table 51820",
            ],
            "rules": ["32765: not from all fwmark 0xca6c lookup 51820"],
            "sysctl": {"net.ipv4.ip_forward": "1", "net.bridge.bridge-nf-call-iptables": "absent"},
            "listening": [{"proto": "udp", "address": "10.96.0.10", "port": 53, "process": "node-cache"}],
            "wireguard": {"wg0": "0xca6c"},
            "conntrack": {"entries": 5, "limit": 10, "insert_failed": 1, "drop": 2, "early_drop": 3, "invalid": 4},
            "counters": {"IPReversePathFilter": 7},
            "clock": {"synchronised": false, "ahead": -90},
            "xtables_lock": "folder",
            "config": {"mode": "nftables"},
        }));
        let facts = facts.expect("good facts");
        let written = facts.write();
        assert_eq!(HostFacts::read(&written), Ok(facts.clone()), "{written:#}");
        let nothing = HostFacts::default();
        assert_eq!(HostFacts::read(&nothing.write()), Ok(nothing));
    }
}
