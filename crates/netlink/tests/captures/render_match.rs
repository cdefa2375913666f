//! Matches and targets of xtables in the words of iptables-save.

use std::net::IpAddr;

use netlink::nfnl::Family;
use netlink::xt::{
    AddrType, Conntrack, IfaceLimit, Match, Multiport, MultiportSide, NatRange, PortRange, Recent,
    RecentCheck, RecentSide, Sctp, Set, Statistic, Target,
};

/// Sets in the order in which the capture made them.
const SETS: [&str; 2] = ["NLX-SET", "NLX-SET6"];

fn not(inverted: bool) -> &'static str {
    if inverted { "! " } else { "" }
}

fn quoted(text: &str) -> String {
    let plain = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if plain {
        text.to_owned()
    } else {
        format!("\"{}\"", text.replace('"', "\\\""))
    }
}

/// `-m NAME ...`
pub fn match_text(family: Family, name: &str, revision: u32, info: &[u8]) -> String {
    let options = match Match::read(family, name, revision, info) {
        Match::Comment(text) => format!(" --comment {}", quoted(text)),
        Match::Nfacct(object) => format!(" --nfacct-name  {object}"),
        Match::Tcp(tcp) => {
            assert!(tcp.flags.mask == 0 && tcp.option == 0);
            ports("sport", Some(tcp.source)) + &ports("dport", Some(tcp.destination))
        }
        Match::Udp(udp) => ports("sport", Some(udp.source)) + &ports("dport", Some(udp.destination)),
        Match::Sctp(Sctp {
            source,
            destination,
            chunks: false,
        }) => ports("sport", source) + &ports("dport", destination),
        Match::Icmp(icmp) if name == "icmp" => format!(" --icmp-type {}", icmp.kind),
        Match::Icmp(icmp) => format!(" --icmpv6-type {}", icmp.kind),
        Match::Statistic(statistic) => statistic_text(statistic),
        Match::AddrType(types) => addrtype_text(types),
        Match::Recent(recent) => recent_text(recent),
        Match::Set(set) => set_text(set),
        Match::Multiport(ports) => multiport_text(&ports),
        Match::Conntrack(conntrack) if conntrack.is_state_alias => {
            return format!("-m state{}", conntrack_text(conntrack));
        }
        Match::Conntrack(conntrack) => conntrack_text(conntrack),
        Match::Other { name: "physdev", .. } => " ?".to_owned(),
        other @ (Match::Sctp(_) | Match::Mark(_) | Match::Other { .. }) => panic!("unexpected {other:?}"),
    };
    format!("-m {name}{options}")
}

/// `-j NAME ...`
pub fn target_text(family: Family, name: &str, revision: u32, info: &[u8]) -> String {
    let options = match Target::read(family, name, revision, info) {
        Target::Dnat(range) => format!(" --to-destination {}{}", nat_text(range), nat_flags(range)),
        Target::Snat(range) => format!(" --to-source {}{}", nat_text(range), nat_flags(range)),
        Target::Masquerade(range) | Target::Redirect(range) => {
            let ports = range.ports.map_or(String::new(), |ports| {
                format!(" --to-ports {}", port_pair(ports, "-"))
            });
            ports + &nat_flags(range)
        }
        Target::Mark(mark) => format!(" --set-xmark {:#x}/{:#x}", mark.value, mark.mask),
        Target::Reject(with) => format!(" --reject-with {}", with.name()),
        Target::Other {
            name: "CONNMARK" | "LOG",
            ..
        } => " ?".to_owned(),
        Target::Other { .. } => panic!("{name} is not read"),
    };
    format!("-j {name}{options}")
}

fn port_pair((first, last): (u16, u16), between: &str) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}{between}{last}")
    }
}

fn ports(side: &str, range: Option<PortRange>) -> String {
    match range {
        Some(range) if !range.is_any() => {
            let PortRange {
                first,
                last,
                inverted,
            } = range;
            format!(" {}--{side} {}", not(inverted), port_pair((first, last), ":"))
        }
        _ => String::new(),
    }
}

fn statistic_text(statistic: Statistic) -> String {
    match statistic {
        Statistic::Random {
            probability,
            inverted,
        } => {
            let share = f64::from(probability) / 2_147_483_648.0;
            format!(" --mode random {}--probability {share:.11}", not(inverted))
        }
        Statistic::Nth {
            every,
            packet,
            inverted,
        } => {
            format!(" --mode nth {}--every {every} --packet {packet}", not(inverted))
        }
    }
}

fn addrtype_text(types: AddrType) -> String {
    let mut text = String::new();
    let sides = [
        ("src", types.source, types.source_inverted),
        ("dst", types.destination, types.destination_inverted),
    ];
    for (side, mask, inverted) in sides {
        if mask.0 != 0 {
            let names = mask.names().collect::<Vec<_>>().join(",");
            text += &format!(" {}--{side}-type {names}", not(inverted));
        }
    }
    text + match types.limit {
        IfaceLimit::None => "",
        IfaceLimit::In => " --limit-iface-in",
        IfaceLimit::Out => " --limit-iface-out",
    }
}

fn recent_text(recent: Recent<'_>) -> String {
    let mut text = format!(" {}", not(recent.inverted));
    text += match recent.check {
        RecentCheck::Check => "--rcheck",
        RecentCheck::Set => "--set",
        RecentCheck::Update => "--update",
        RecentCheck::Remove => "--remove",
    };
    if recent.seconds != 0 {
        text += &format!(" --seconds {}", recent.seconds);
    }
    if recent.reap {
        text += " --reap";
    }
    let side = match recent.side {
        RecentSide::Source => "--rsource",
        RecentSide::Destination => "--rdest",
    };
    text + &format!(" --name {} --mask {} {side}", recent.name, recent.mask.unwrap())
}

fn set_text(set: Set) -> String {
    let sides = (0..set.dimensions).map(|n| if set.is_source(n) { "src" } else { "dst" });
    let sides = sides.collect::<Vec<_>>().join(",");
    format!(
        " {}--match-set {} {sides}",
        not(set.is_inverted()),
        SETS[usize::from(set.index)]
    )
}

fn multiport_text(multiport: &Multiport) -> String {
    let side = match multiport.side {
        MultiportSide::Source => "sports",
        MultiportSide::Destination => "dports",
        MultiportSide::Either => "ports",
    };
    let ports = multiport
        .ranges()
        .iter()
        .map(|pair| port_pair(*pair, ":"))
        .collect::<Vec<_>>();
    format!(" {}--{side} {}", not(multiport.inverted), ports.join(","))
}

fn conntrack_text(conntrack: Conntrack) -> String {
    let mut text = String::new();
    if let Some(state) = conntrack.state {
        let flag = if conntrack.is_state_alias {
            "state"
        } else {
            "ctstate"
        };
        let names = state.value.names().collect::<Vec<_>>().join(",");
        text += &format!(" {}--{flag} {names}", not(state.inverted));
    }
    if let Some(destination) = conntrack.original_destination {
        text += &format!(
            " {}--ctorigdst {}",
            not(destination.inverted),
            destination.value.address
        );
    }
    text += &ports("ctorigdstport", conntrack.ports.original_destination);
    if let Some(status) = conntrack.status {
        assert_eq!(status.value, 4);
        text += &format!(" {}--ctstatus ASSURED", not(status.inverted));
    }
    text
}

/// iptables-save puts IPv6 addresses in brackets when ports follow.
fn nat_text(range: NatRange) -> String {
    let addresses = match range.addresses {
        Some((first, last)) if first == last => first.to_string(),
        Some((first, last)) => format!("{first}-{last}"),
        None => String::new(),
    };
    let is_v6 = matches!(range.addresses, Some((IpAddr::V6(_), _)));
    match range.ports {
        Some(ports) if is_v6 => format!("[{addresses}]:{}", port_pair(ports, "-")),
        Some(ports) => format!("{addresses}:{}", port_pair(ports, "-")),
        None => addresses,
    }
}

fn nat_flags(range: NatRange) -> String {
    let names = [
        (NatRange::PROTO_RANDOM, " --random"),
        (NatRange::PROTO_RANDOM_FULLY, " --random-fully"),
        (NatRange::PERSISTENT, " --persistent"),
    ];
    names
        .iter()
        .filter(|(bit, _)| range.has(*bit))
        .map(|(_, name)| *name)
        .collect()
}
