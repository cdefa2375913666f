//! What a case asks, out of the words people wrote it in.

use explain::{From, Question, To};
use model::Protocol;
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};

/// A sender in words: `pod 10.244.1.5 via cni0`, `node-a process`, `198.51.100.7`, `node-a 192.0.2.11:51820 with mark 0xca6c`.
#[derive(Clone, Debug, Default)]
pub struct FromWords {
    pub is_pod: bool,
    pub is_node: bool,
    pub address: Option<IpAddr>,
    pub port: Option<u16>,
    pub interface: Option<String>,
    pub mark: u32,
    /// What the words are when they are none of these: a name.
    pub name: Option<String>,
}

pub fn from(text: &str) -> FromWords {
    let mut found = FromWords::default();
    let mut words = text
        .split([' ', '(', ')'])
        .filter(|word| !word.is_empty())
        .peekable();
    while let Some(word) = words.next() {
        match word {
            "pod" => found.is_pod = true,
            "process" | "node" => found.is_node = true,
            "via" | "on" => found.interface = words.next().map(str::to_owned),
            // "0xca6d minus bit 14 = 0x8a6d": the result is what counts.
            "mark" | "=" => found.mark = hex(words.peek().copied().unwrap_or_default()),
            _ => address(&mut found, word),
        }
    }
    found
}

fn address(found: &mut FromWords, word: &str) {
    if let Ok(ip) = word.trim_matches(['[', ']']).parse() {
        found.address = found.address.or(Some(ip));
    } else if let Ok(both) = word.parse::<SocketAddr>() {
        found.address = Some(both.ip());
        found.port = Some(both.port());
    } else if word.starts_with("node") {
        found.is_node = true;
        found.name = Some(word.to_owned());
    } else if word.contains('/') || word == "outside" {
        found.name = Some(word.to_owned());
    }
}

fn hex(word: &str) -> u32 {
    let digits = word.strip_prefix("0x").unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or(0)
}

impl FromWords {
    pub fn sender(&self) -> From {
        match (self.address, &self.name) {
            (Some(ip), _) if self.is_pod => From::PodAddress(ip),
            (None, _) if self.is_node => From::Node,
            (Some(ip), _) => From::Address(ip),
            (None, Some(name)) => name.parse().unwrap_or_else(|err| panic!("{err}")),
            (None, None) => From::Pod,
        }
    }
}

pub fn protocol(ask: &Value) -> Option<Protocol> {
    let word = ask.get("proto")?.as_str()?;
    Protocol::ALL
        .into_iter()
        .find(|protocol| protocol.as_lower() == word)
}

/// The destination of an entry that has one.
pub fn to(ask: &Value) -> Option<String> {
    let host = ask.get("to")?.as_str()?;
    let port = ask.get("port").and_then(Value::as_u64);
    match (host.parse::<IpAddr>(), port) {
        (Ok(IpAddr::V6(ip)), Some(port)) => Some(format!("[{ip}]:{port}")),
        (_, Some(port)) => Some(format!("{host}:{port}")),
        (_, None) => Some(host.to_owned()),
    }
}

/// What an entry asks `explain`; a question in prose takes its destination from the case's earlier entries.
pub fn question(ask: &Value, earlier: &[Value]) -> Question {
    if let Value::String(prose) = ask {
        return in_prose(prose, earlier);
    }
    let sender = from(ask.get("from").and_then(Value::as_str).unwrap_or_default());
    let to = to(ask).unwrap_or_else(|| panic!("no destination in {ask}"));
    Question {
        from: sender.sender(),
        to: to.parse().unwrap_or_else(|err| panic!("{err}")),
        protocol: protocol(ask),
        in_interface: sender.interface.map(|name| name.as_str().into()),
    }
}

/// "why does team/metrics fail", "why does the pod not see 198.51.100.7", "on which addresses does node port 30777 answer".
fn in_prose(prose: &str, earlier: &[Value]) -> Question {
    let words: Vec<&str> = prose
        .split_whitespace()
        .map(|word| word.trim_matches(['?', ',', '.']))
        .collect();
    let port_of = |before: &str| {
        let at = words.iter().position(|word| *word == before)?;
        words.get(at + 1)?.parse::<u16>().ok()
    };
    let client = words.iter().find_map(|word| word.parse::<IpAddr>().ok());
    let service = words
        .iter()
        .find(|word| word.contains('/') && word.parse::<To>().is_ok());
    let to: Option<To> = match (service, port_of("port")) {
        (Some(service), _) => service.parse().ok(),
        (None, Some(port)) => Some(To::NodePort(port)),
        (None, None) => None,
    };
    let mut question = match (&to, earlier) {
        (None, [.., last]) => question(last, &[]),
        _ => Question {
            from: From::Outside,
            to: To::NodePort(1),
            protocol: None,
            in_interface: None,
        },
    };
    // A cluster's own Services are asked for from a pod unless somebody says otherwise.
    if let Some(to) = to {
        if matches!(to, To::Service(..)) {
            question.from = From::Pod;
        }
        question.to = to;
    }
    if let Some(ip) = client {
        question.from = From::Address(ip);
    }
    question
}
