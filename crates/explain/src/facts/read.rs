//! Reads facts out of a document.

use super::{
    ClockFacts, ConntrackFacts, HostFacts, InterfaceFacts, Listening, Lock, Module, PolicyRule, RouteFacts,
    lines,
};
use ipnet::IpNet;
use model::Protocol;
use path::Socket;
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// A part of the facts that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFacts {
    /// The field.
    pub field: &'static str,
    /// What was found.
    pub found: String,
    /// What is wanted there.
    pub wanted: &'static str,
}

impl std::fmt::Display for BadFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} is not {}", self.field, self.found, self.wanted)
    }
}

impl std::error::Error for BadFacts {}

impl HostFacts {
    /// Reads the form above. Fields that are not listed there are refused, so that a slip of the pen is not silence.
    ///
    /// # Errors
    /// Names the field, what was found, and what is wanted.
    pub fn read(document: &Value) -> Result<HostFacts, BadFacts> {
        let Value::Object(fields) = document else {
            return Err(bad("the file", document, "a map of facts"));
        };
        let mut facts = HostFacts::default();
        let mut loose = Vec::new();
        for (field, value) in fields {
            match field.as_str() {
                "hostname" => facts.hostname = Some(word(value)),
                "addresses" => loose = nets("addresses", value)?,
                "interfaces" => facts.interfaces = interfaces(value)?,
                "routes" => facts.routes = Some(routes(value)?),
                "sysctl" => facts.sysctl = sysctl(value)?,
                "listening" => facts.listening = Some(sockets(value)?),
                "rules" => facts.policy_rules = Some(policy_rules(value)?),
                "kernel" => facts.kernel = Some(word(value)),
                "tools" => facts.tools = words("tools", value)?,
                "broken" => facts.broken = words("broken", value)?,
                "modules" => facts.modules = modules(value)?,
                "wireguard" => facts.wireguard = marks(value)?,
                "conntrack" => facts.conntrack = Some(conntrack(value)?),
                "counters" => facts.counters = counters(value)?,
                "clock" => facts.clock = clock(value)?,
                "xtables_lock" => facts.xtables_lock = Some(lock(value)?),
                "config" => facts.config = value.clone(),
                _ => {
                    return Err(bad(
                        "the file",
                        &Value::String(field.clone()),
                        "a fact that is known here",
                    ));
                }
            }
        }
        facts.give_to_uplink(loose);
        Ok(facts)
    }
}

fn bad(field: &'static str, found: &Value, wanted: &'static str) -> BadFacts {
    BadFacts {
        field,
        found: found.to_string().chars().take(80).collect(),
        wanted,
    }
}

/// A scalar as text.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn items<'v>(field: &'static str, value: &'v Value) -> Result<&'v [Value], BadFacts> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        other => Err(bad(field, other, "a list")),
    }
}

fn nets(field: &'static str, value: &Value) -> Result<Vec<IpNet>, BadFacts> {
    let net = |value: &Value| {
        let text = word(value);
        let parsed = text.parse::<IpNet>().ok();
        parsed
            .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
            .ok_or_else(|| bad(field, value, "an address with the length of its network"))
    };
    items(field, value)?.iter().map(net).collect()
}

fn interfaces(value: &Value) -> Result<Vec<InterfaceFacts>, BadFacts> {
    let interface = |value: &Value| {
        let name = value.get("name").map(word);
        let name = name.ok_or_else(|| bad("interfaces", value, "an interface with a name"))?;
        Ok(InterfaceFacts {
            name: name.into(),
            kind: value.get("type").map(word),
            addresses: value
                .get("addresses")
                .map_or(Ok(Vec::new()), |value| nets("interfaces", value))?,
            bridge: value.get("bridge").map(|name| word(name).into()),
            hairpin: value.get("hairpin").and_then(Value::as_bool),
        })
    };
    items("interfaces", value)?.iter().map(interface).collect()
}

fn routes(value: &Value) -> Result<Vec<RouteFacts>, BadFacts> {
    const WANTED: &str = "a route as `ip route` prints it, such as: 10.0.0.0/8 via 192.0.2.1 dev eth0";
    let route = |value: &Value| lines::route(&word(value)).ok_or_else(|| bad("routes", value, WANTED));
    items("routes", value)?.iter().map(route).collect()
}

fn policy_rules(value: &Value) -> Result<Vec<PolicyRule>, BadFacts> {
    let rules = items("rules", value)?.iter();
    Ok(rules.map(|value| lines::policy_rule(&word(value))).collect())
}

/// A map of scalars.
fn words(field: &'static str, value: &Value) -> Result<BTreeMap<String, String>, BadFacts> {
    let Value::Object(fields) = value else {
        return Err(bad(field, value, "a map of names and values"));
    };
    Ok(fields
        .iter()
        .map(|(name, value)| (name.clone(), word(value)))
        .collect())
}

fn sysctl(value: &Value) -> Result<BTreeMap<String, String>, BadFacts> {
    let all = words("sysctl", value)?.into_iter();
    Ok(all.map(|(name, value)| (name.replace('/', "."), value)).collect())
}

fn modules(value: &Value) -> Result<BTreeMap<String, Module>, BadFacts> {
    let all = words("modules", value)?.into_iter();
    let known = |text: &str| Module::ALL.into_iter().find(|(_, word)| *word == text);
    all.map(|(name, text)| match known(&text) {
        Some((module, _)) => Ok((name, module)),
        None => Err(bad("modules", value, "a map to loaded, available or absent")),
    })
    .collect()
}

fn marks(value: &Value) -> Result<BTreeMap<String, u32>, BadFacts> {
    let all = words("wireguard", value)?.into_iter();
    // `off` is what wg prints for none.
    let wanted = all.filter(|(_, text)| text != "off");
    wanted
        .map(|(name, text)| match lines::number(&text) {
            Some(mark) => Ok((name, mark)),
            None => Err(bad("wireguard", value, "a map of interfaces to marks")),
        })
        .collect()
}

fn counters(value: &Value) -> Result<BTreeMap<String, u64>, BadFacts> {
    let all = words("counters", value)?.into_iter();
    all.map(|(name, text)| match text.parse() {
        Ok(count) => Ok((name, count)),
        Err(_) => Err(bad("counters", value, "a map of names to counts")),
    })
    .collect()
}

fn conntrack(value: &Value) -> Result<ConntrackFacts, BadFacts> {
    let mut facts = ConntrackFacts::default();
    for (name, text) in words("conntrack", value)? {
        let count = text
            .parse()
            .map_err(|_| bad("conntrack", value, "a map of counts"))?;
        match name.as_str() {
            "entries" => facts.entries = count,
            "limit" => facts.limit = count,
            "insert_failed" => facts.insert_failed = count,
            "drop" => facts.drop = count,
            "early_drop" => facts.early_drop = count,
            "invalid" => facts.invalid = count,
            _ => {
                let wanted = "one of entries, limit, insert_failed, drop, early_drop, invalid";
                return Err(bad("conntrack", &Value::String(name), wanted));
            }
        }
    }
    Ok(facts)
}

fn clock(value: &Value) -> Result<ClockFacts, BadFacts> {
    if !value.is_object() {
        return Err(bad("clock", value, "a map with synchronised and ahead"));
    }
    Ok(ClockFacts {
        is_synchronised: value.get("synchronised").and_then(Value::as_bool),
        ahead: value.get("ahead").and_then(Value::as_i64),
    })
}

fn lock(value: &Value) -> Result<Lock, BadFacts> {
    let text = word(value);
    let known = Lock::ALL.into_iter().find(|(_, word)| *word == text);
    known
        .map(|(lock, _)| lock)
        .ok_or_else(|| bad("xtables_lock", value, "file, folder or absent"))
}

fn sockets(value: &Value) -> Result<Vec<Listening>, BadFacts> {
    const WANTED: &str = "a socket with proto, address and port";
    let socket = |value: &Value| {
        let protocol = value.get("proto").map_or_else(|| "tcp".to_owned(), word);
        let protocol = Protocol::ALL
            .into_iter()
            .find(|p| p.as_lower() == protocol.to_lowercase());
        let port = value.get("port").and_then(Value::as_u64);
        let port = port.and_then(|port| u16::try_from(port).ok());
        let ip = value.get("address").map_or_else(|| "::".to_owned(), word);
        let ip = ip.parse::<IpAddr>().ok();
        match (protocol, ip, port) {
            (Some(protocol), Some(ip), Some(port)) => Ok(Listening {
                socket: Socket {
                    protocol,
                    address: SocketAddr::new(ip, port),
                },
                process: value.get("process").map(word),
            }),
            _ => Err(bad("listening", value, WANTED)),
        }
    };
    items("listening", value)?.iter().map(socket).collect()
}
