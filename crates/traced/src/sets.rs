//! Sets of `ipset`, as `ipset save` prints them: what rules ask with `-m set`.

use crate::State;
use ipnet::{IpNet, Ipv4Subnets, Ipv6Subnets};
use model::Protocol;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// Lists that are in lists are followed so deep.
const DEPTH: u8 = 8;

/// Sets by name. What is not known of a set, such as one of a type that is not understood, is no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpSets(BTreeMap<Arc<str>, Members>);

/// None.
pub static NO_SETS: IpSets = IpSets(BTreeMap::new());

/// What a set holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Members {
    /// Addresses and networks, with or without a port.
    Networks(Networks),
    /// Other sets.
    Sets(Vec<Arc<str>>),
    /// Something that is not understood.
    Other,
}

/// A protocol and its port, where the type has one.
type Port = Option<(Protocol, u16)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Networks {
    has_port: bool,
    /// The length that every address is cut to.
    netmask: Option<u8>,
    /// Whether the entry says yes: one with `nomatch` takes something out of a larger network.
    entries: BTreeMap<(IpNet, Port), bool>,
    lengths: BTreeSet<u8>,
}

/// Which side of the packet a set is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
}

impl IpSets {
    /// Reads what `ipset save` prints.
    ///
    /// # Errors
    /// Says which line is none of it.
    pub fn read(text: &str) -> Result<IpSets, String> {
        let mut sets = IpSets::default();
        for (number, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_read = match words.as_slice() {
                [] => Some(()),
                [first, ..] if first.starts_with('#') => Some(()),
                ["create", name, kind, options @ ..] => sets.create(name, kind, options),
                ["add", name, entry, options @ ..] => sets.add(name, entry, options),
                _ => None,
            };
            is_read.ok_or_else(|| format!("line {} is none of ipset save", number + 1))?;
        }
        Ok(sets)
    }

    /// Whether a text looks like that.
    pub fn is_text(text: &str) -> bool {
        let mut lines = text.lines().map(str::trim);
        let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
        let mut words = first.unwrap_or_default().split_whitespace();
        words.next() == Some("create") && words.nth(1).is_some_and(|kind| kind.contains(':'))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of another text.
    pub fn extend(&mut self, more: IpSets) {
        self.0.extend(more.0);
    }

    /// Whether a set has the packet, asked with flags such as `src` or `src,dst`; `None` when that is not known.
    pub fn have(&self, set: &str, flags: &str, state: &State) -> Option<bool> {
        let side = |word: &str| match word {
            "src" => Some(Side::Source),
            "dst" => Some(Side::Destination),
            _ => None,
        };
        let sides: Vec<Side> = flags.split(',').map(side).collect::<Option<_>>()?;
        self.ask(set, &sides, state, DEPTH)
    }

    fn ask(&self, set: &str, sides: &[Side], state: &State, depth: u8) -> Option<bool> {
        match self.0.get(set)? {
            Members::Other => None,
            Members::Networks(networks) => networks.have(sides, state),
            Members::Sets(members) => {
                let depth = depth.checked_sub(1)?;
                let mut is_open = false;
                for member in members {
                    match self.ask(member, sides, state, depth) {
                        Some(true) => return Some(true),
                        Some(false) => {}
                        None => is_open = true,
                    }
                }
                (!is_open).then_some(false)
            }
        }
    }

    fn create(&mut self, name: &str, kind: &str, options: &[&str]) -> Option<()> {
        let (method, parts) = kind.split_once(':')?;
        let option = |wanted: &str| {
            let mut pairs = options.windows(2);
            pairs.find_map(|pair| (pair[0] == wanted).then_some(pair[1]))
        };
        let networks = |has_port| {
            Members::Networks(Networks {
                has_port,
                netmask: option("netmask").and_then(|length| length.parse().ok()),
                ..Networks::default()
            })
        };
        let members = match (method, parts) {
            ("list", "set") => Members::Sets(Vec::new()),
            // A mask need be no length of a prefix.
            _ if option("bitmask").is_some() => Members::Other,
            ("hash" | "bitmap", "ip" | "net") => networks(false),
            ("hash", "ip,port" | "net,port") => networks(true),
            _ => Members::Other,
        };
        self.0.insert(name.into(), members);
        Some(())
    }

    fn add(&mut self, name: &str, entry: &str, options: &[&str]) -> Option<()> {
        let is_in = !options.contains(&"nomatch");
        match self.0.get_mut(name)? {
            Members::Other => Some(()),
            Members::Sets(members) => {
                members.push(entry.into());
                Some(())
            }
            Members::Networks(networks) => networks.add(entry, is_in),
        }
    }
}

impl Networks {
    fn add(&mut self, entry: &str, is_in: bool) -> Option<()> {
        let (address, port) = match entry.split_once(',') {
            Some((address, port)) if self.has_port => (address, Some(port_of(port)?)),
            None if !self.has_port => (entry, None),
            _ => return None,
        };
        for network in networks_of(address)? {
            let cut = self.netmask.filter(|length| *length < network.prefix_len());
            let network = match cut {
                Some(length) => IpNet::new(network.addr(), length).ok()?,
                None => network,
            };
            self.lengths.insert(network.prefix_len());
            self.entries.insert((network.trunc(), port), is_in);
        }
        Some(())
    }

    fn have(&self, sides: &[Side], state: &State) -> Option<bool> {
        let address = match sides.first()? {
            Side::Source => state.src?,
            Side::Destination => state.dst.ip(),
        };
        let port = match (self.has_port, sides.get(1)) {
            (false, _) => None,
            (true, Some(Side::Source)) => Some((state.protocol, state.src_port?)),
            (true, Some(Side::Destination)) => Some((state.protocol, state.dst.port())),
            (true, None) => return None,
        };
        // The narrowest network decides.
        let mut found = self.lengths.iter().rev().filter_map(|length| {
            let network = IpNet::new(address, *length).ok()?.trunc();
            self.entries.get(&(network, port)).copied()
        });
        Some(found.next().unwrap_or(false))
    }
}

/// `tcp:80`
fn port_of(text: &str) -> Option<(Protocol, u16)> {
    let (protocol, port) = text.split_once(':')?;
    let all = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];
    let protocol = all.into_iter().find(|one| one.as_lower() == protocol)?;
    Some((protocol, port.parse().ok()?))
}

/// An address, a network, or a range of addresses.
fn networks_of(text: &str) -> Option<Vec<IpNet>> {
    if let Some((first, last)) = text.split_once('-') {
        return match (first.parse().ok()?, last.parse().ok()?) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                Some(Ipv4Subnets::new(first, last, 0).map(IpNet::from).collect())
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                Some(Ipv6Subnets::new(first, last, 0).map(IpNet::from).collect())
            }
            _ => None,
        };
    }
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    Some(vec![network.ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Origin, Packet};

    fn state(from: &str, to: &str) -> State {
        let from = from.parse().expect("an address");
        let to = to.parse().expect("an address");
        State::new(&Packet::new(from, to, Protocol::Tcp, Origin::Host))
    }

    #[test]
    fn a_set_has_what_its_entries_say() {
        let sets = IpSets::read(
            "create ips hash:ip family inet hashsize 1024 maxelem 65536\nadd ips 10.0.0.1\nadd ips 10.0.0.8-10.0.0.11\n\
             create nets hash:net family inet\nadd nets 10.1.0.0/16 timeout 300\nadd nets 10.1.2.0/24 nomatch\n\
             create masked hash:ip family inet netmask 24\nadd masked 10.2.3.4\n\
             create ports hash:ip,port family inet\nadd ports 192.0.2.1,tcp:80\n\
             create six hash:ip family inet6\nadd six fd00::1\n\
             create macs hash:mac\nadd macs 02:00:00:00:00:01\n\
             create all list:set size 8\nadd all ips\nadd all nets\ncreate open list:set\nadd open ips\nadd open macs\n",
        )
        .expect("sets");
        for (set, flags, from, holds) in [
            ("ips", "src", "10.0.0.1", Some(true)),
            ("ips", "src", "10.0.0.9", Some(true)),
            ("ips", "src", "10.0.0.12", Some(false)),
            ("ips", "dst", "10.0.0.1", Some(false)),
            ("nets", "src", "10.1.9.9", Some(true)),
            ("nets", "src", "10.1.2.9", Some(false)),
            ("masked", "src", "10.2.3.200", Some(true)),
            ("masked", "src", "10.2.4.200", Some(false)),
            ("ports", "dst,dst", "10.0.0.1", Some(true)),
            ("ports", "dst,src", "10.0.0.1", Some(false)),
            ("ports", "dst", "10.0.0.1", None),
            ("six", "src", "10.0.0.1", Some(false)),
            ("macs", "src", "10.0.0.1", None),
            ("all", "src", "10.1.9.9", Some(true)),
            ("all", "src", "10.9.9.9", Some(false)),
            ("open", "src", "10.0.0.1", Some(true)),
            ("open", "src", "10.9.9.9", None),
            ("nobody", "src", "10.0.0.1", None),
        ] {
            let state = state(from, "192.0.2.1:80");
            assert_eq!(sets.have(set, flags, &state), holds, "{set} {flags} {from}");
        }
    }

    #[test]
    fn lists_that_hold_themselves_and_lines_that_are_none_end_well() {
        let sets = IpSets::read("create a list:set\ncreate b list:set\nadd a b\nadd b a\n").expect("sets");
        assert_eq!(sets.have("a", "src", &state("10.0.0.1", "192.0.2.1:80")), None);
        for wrong in [
            "flush",
            "add nobody 10.0.0.1",
            "create x hash:ip\nadd x nonsense",
            "table ip x {",
        ] {
            assert!(IpSets::read(wrong).is_err(), "{wrong}");
        }
        assert!(IpSets::is_text("# a comment\ncreate x hash:ip family inet\n"));
        for other in [
            "create table ip x\n",
            "*nat\nCOMMIT\n",
            "add rule ip x y accept\n",
            "",
        ] {
            assert!(!IpSets::is_text(other), "{other}");
        }
    }
}
