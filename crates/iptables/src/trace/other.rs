//! Matches that the rule types keep word by word: those that can be decided from the packet are, all others are a
//! [`Condition`].

use super::criteria::{address_type, ct_state_in, mark_is, port_in, source_port_in};
use crate::ast::{AddrType, CtState, PortRange};
use ipnet::IpNet;
use std::net::IpAddr;
use std::sync::Arc;
use traced::{Condition, Sender, Site, State, Track, Truth};

/// One option of a match: `[!] --name value...`.
struct Opt<'a> {
    negated: bool,
    name: &'a str,
    values: Vec<&'a str>,
}

impl Opt<'_> {
    /// The option's only value.
    fn value(&self) -> Option<&str> {
        match self.values[..] {
            [one] => Some(one),
            _ => None,
        }
    }

    fn truth(&self, plain: Truth) -> Truth {
        if self.negated { !plain } else { plain }
    }
}

/// The truth of each part of the match; all must be true.
pub(super) fn truths(module: &Arc<str>, words: &[Arc<str>], state: &State, site: &Site<'_>) -> Vec<Truth> {
    let opts = options(words);
    let each = |decide: &dyn Fn(&Opt<'_>) -> Option<Truth>| each(module, &opts, decide);
    let decided = match &**module {
        "tcp" | "udp" | "sctp" | "udplite" | "dccp" if &**module != state.protocol.as_lower() => {
            Some(vec![Truth::Known(false)])
        }
        "tcp" | "udp" | "sctp" => Some(each(&|opt| ports(opt, state))),
        "multiport" => Some(each(&|opt| multiport(opt, state))),
        "iprange" => Some(each(&|opt| ip_range(opt, state))),
        "set" if !site.sets.is_empty() => Some(each(&|opt| set(opt, state, site))),
        "state" | "conntrack" if has_no_connection(state) => Some(vec![without_connection(&opts, state)]),
        "state" | "conntrack" => Some(each(&|opt| conntrack(opt, state))),
        "mark" => Some(each(&|opt| {
            let (value, mask) = value_and_mask(opt.value()?)?;
            Some(mark_is(state, value, mask))
        })),
        "connmark" => Some(each(&|opt| connmark(opt, state))),
        "addrtype" if !opts.iter().any(|opt| opt.name.starts_with("--limit-iface")) => {
            Some(each(&|opt| addrtype(opt, state, site)))
        }
        "statistic" => statistic(&opts),
        "owner" => owner(&opts, site),
        "icmp" | "icmp6" => Some(vec![Truth::Known(false)]),
        "recent" if opts.iter().any(|opt| opt.name == "--set" && !opt.negated) => Some(Vec::new()),
        "" => own_options(words, state),
        "comment" | "nfacct" => Some(Vec::new()),
        _ => None,
    };
    decided.unwrap_or_else(|| vec![undecided(module, words, &opts)])
}

/// Words before any `-m`: addresses under a mask that is no prefix, and `-f`.
fn own_options(words: &[Arc<str>], state: &State) -> Option<Vec<Truth>> {
    let mut truths = Vec::new();
    let mut words = words.iter().map(|word| &**word);
    while let Some(word) = words.next() {
        let negated = word == "!";
        let option = if negated { words.next()? } else { word };
        let plain = match option {
            "-s" => is_under_mask(state.src?, words.next()?)?,
            "-d" => is_under_mask(state.dst.ip(), words.next()?)?,
            // It asks for later fragments, which conntrack has put together before any rule.
            "-f" | "--fragment" => false,
            _ => return None,
        };
        truths.push(Truth::Known(plain != negated));
    }
    Some(truths)
}

/// `ADDRESS/MASK`, where the mask is written as an address.
fn is_under_mask(ip: IpAddr, text: &str) -> Option<bool> {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let (wanted, mask) = text.split_once('/')?;
    let (wanted, mask): (IpAddr, IpAddr) = (wanted.parse().ok()?, mask.parse().ok()?);
    if [wanted, mask].iter().any(|of| of.is_ipv4() != ip.is_ipv4()) {
        return None;
    }
    Some(bits(ip) & bits(mask) == bits(wanted) & bits(mask))
}

fn options<'a>(words: &'a [Arc<str>]) -> Vec<Opt<'a>> {
    let mut opts: Vec<Opt<'a>> = Vec::new();
    let mut negated = false;
    for word in words {
        match &**word {
            "!" => negated = true,
            name if name.starts_with("--") => {
                opts.push(Opt {
                    negated: std::mem::take(&mut negated),
                    name,
                    values: Vec::new(),
                });
            }
            value => match opts.last_mut() {
                Some(opt) => opt.values.push(value),
                // A value before any option: no iptables prints that, so nothing is made of the match.
                None => opts.push(Opt {
                    negated,
                    name: value,
                    values: Vec::new(),
                }),
            },
        }
    }
    opts
}

/// The truth of every option, for matches whose options must all be true, each for itself.
fn each(module: &Arc<str>, opts: &[Opt<'_>], decide: &dyn Fn(&Opt<'_>) -> Option<Truth>) -> Vec<Truth> {
    opts.iter()
        .map(|opt| {
            let plain = decide(opt).unwrap_or_else(|| {
                let words = std::iter::once(opt.name).chain(opt.values.iter().copied());
                let condition = Condition::Match {
                    module: module.clone(),
                    words: words.map(Arc::from).collect(),
                };
                Truth::Hangs(condition, true)
            });
            opt.truth(plain)
        })
        .collect()
}

/// A match that nothing is known of. `! --x` and `--x` are one question with two answers, when it is the only option.
fn undecided(module: &Arc<str>, words: &[Arc<str>], opts: &[Opt<'_>]) -> Truth {
    let negated = opts.len() == 1 && opts[0].negated;
    let words = if negated {
        words.iter().filter(|word| &***word != "!").cloned().collect()
    } else {
        words.to_vec()
    };
    Truth::Hangs(
        Condition::Match {
            module: module.clone(),
            words,
        },
        !negated,
    )
}

fn ports(opt: &Opt<'_>, state: &State) -> Option<Truth> {
    match opt.name {
        "--dport" | "--destination-port" => {
            Some(Truth::Known(port_in(port_range(opt.value()?)?, state.dst.port())))
        }
        "--sport" | "--source-port" => Some(source_port_in(port_range(opt.value()?)?, state)),
        "--tcp-flags" => tcp_flags(opt, state),
        "--syn" => tcp_flags_are("FIN,SYN,RST,ACK", "SYN", state),
        _ => None,
    }
}

/// `--tcp-flags MASK SET`, as words or as the numbers that `iptables-nft-save` may print.
fn tcp_flags(opt: &Opt<'_>, state: &State) -> Option<Truth> {
    let [mask, set] = opt.values[..] else { return None };
    tcp_flags_are(mask, set, state)
}

/// A new connection's first TCP packet has SYN and no other flag; of later packets nothing is known.
fn tcp_flags_are(mask: &str, set: &str, state: &State) -> Option<Truth> {
    let (mask, set) = (flag_bits(mask)?, flag_bits(set)?);
    let syn = flag_bits("SYN")?;
    (state.connection.track == Track::New).then_some(Truth::Known(syn & mask == set))
}

/// The flags' bits in the TCP header.
fn flag_bits(text: &str) -> Option<u32> {
    text.split(',').try_fold(0, |bits, word| {
        Some(
            bits | match word {
                "FIN" => 0x01,
                "SYN" => 0x02,
                "RST" => 0x04,
                "PSH" => 0x08,
                "ACK" => 0x10,
                "URG" => 0x20,
                "ALL" => 0x3f,
                "NONE" => 0,
                other => number(other)?,
            },
        )
    })
}

fn port_range(text: &str) -> Option<PortRange> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    let first = if first.is_empty() { 0 } else { first.parse().ok()? };
    let last = if last.is_empty() {
        u16::MAX
    } else {
        last.parse().ok()?
    };
    Some(PortRange { first, last })
}

fn multiport(opt: &Opt<'_>, state: &State) -> Option<Truth> {
    let ranges: Vec<PortRange> = opt.value()?.split(',').map(port_range).collect::<Option<_>>()?;
    let among = |port: u16| ranges.iter().any(|range| port_in(*range, port));
    match opt.name {
        "--dports" | "--destination-ports" => Some(Truth::Known(among(state.dst.port()))),
        "--sports" | "--source-ports" => Some(Truth::Known(among(state.src_port?))),
        "--ports" => Some(Truth::Known(among(state.dst.port()) || among(state.src_port?))),
        _ => None,
    }
}

fn ip_range(opt: &Opt<'_>, state: &State) -> Option<Truth> {
    let (first, last) = opt
        .value()?
        .split_once('-')
        .unwrap_or((opt.value()?, opt.value()?));
    let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    let ip = match opt.name {
        "--src-range" => state.src?,
        "--dst-range" => state.dst.ip(),
        _ => return None,
    };
    Some(Truth::Known((first..=last).contains(&ip)))
}

fn has_no_connection(state: &State) -> bool {
    matches!(
        state.connection.track,
        Track::Unseen | Track::Invalid | Track::Untracked
    )
}

/// Without a connection `xt_conntrack` looks at the state alone, and without a wanted state it says no, `!` or not.
fn without_connection(opts: &[Opt<'_>], state: &State) -> Truth {
    opts.iter()
        .find_map(|opt| ct_states(opt).map(|wanted| opt.truth(Truth::Known(ct_state_in(&wanted, state)))))
        .unwrap_or(Truth::Known(false))
}

/// The states that the option asks for, when it is one that asks for states.
fn ct_states(opt: &Opt<'_>) -> Option<Vec<CtState>> {
    matches!(opt.name, "--ctstate" | "--state")
        .then(|| opt.value())
        .flatten()?
        .split(',')
        .map(CtState::from_word)
        .collect()
}

fn conntrack(opt: &Opt<'_>, state: &State) -> Option<Truth> {
    if let Some(wanted) = ct_states(opt) {
        return Some(Truth::Known(ct_state_in(&wanted, state)));
    }
    let connection = &state.connection;
    // How an established connection began is not known.
    if connection.track == Track::Established {
        return None;
    }
    let decided = match opt.name {
        "--ctdir" => opt.value()? == "ORIGINAL",
        "--ctproto" => {
            let wanted = opt.value()?;
            wanted.eq_ignore_ascii_case(state.protocol.as_lower())
                || wanted == state.protocol.number().to_string()
        }
        "--ctorigsrc" => network(opt.value()?)?.contains(&connection.original_src.ip()),
        "--ctorigdst" => network(opt.value()?)?.contains(&connection.original_dst.ip()),
        "--ctorigsrcport" => port_in(port_range(opt.value()?)?, connection.original_src.port()),
        "--ctorigdstport" => port_in(port_range(opt.value()?)?, connection.original_dst.port()),
        _ => return None,
    };
    Some(Truth::Known(decided))
}

/// `--match-set NAME src[,dst]`; other options ask what nobody counts.
fn set(opt: &Opt<'_>, state: &State, site: &Site<'_>) -> Option<Truth> {
    match (opt.name, opt.values.as_slice()) {
        ("--match-set", [name, flags]) => site.sets.have(name, flags, state).map(Truth::Known),
        _ => None,
    }
}

fn network(text: &str) -> Option<IpNet> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn connmark(opt: &Opt<'_>, state: &State) -> Option<Truth> {
    if has_no_connection(state) {
        // `xt_connmark` then says no before it looks at `!`.
        return Some(Truth::Known(opt.negated));
    }
    let (value, mask) = value_and_mask(opt.value()?)?;
    Some(match state.connection.mark.equals(value, mask) {
        Some(is) => Truth::Known(is),
        None => Truth::Hangs(Condition::ConnectionMark { value, mask }, true),
    })
}

/// `VALUE[/MASK]`, each decimal or `0x` hexadecimal.
pub(super) fn value_and_mask(text: &str) -> Option<(u32, u32)> {
    let (value, mask) = text.split_once('/').map_or((text, None), |(v, m)| (v, Some(m)));
    Some((number(value)?, mask.map_or(Some(u32::MAX), number)?))
}

pub(super) fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn addrtype(opt: &Opt<'_>, state: &State, site: &Site<'_>) -> Option<Truth> {
    let ip = match opt.name {
        "--dst-type" => state.dst.ip(),
        "--src-type" => state.src?,
        _ => return None,
    };
    let kinds = opt.value()?.split(',').map(|word| match word {
        "LOCAL" => AddrType::Local,
        word => AddrType::Other(word.into()),
    });
    any(kinds.map(|kind| address_type(&kind, ip, site)).collect())
}

/// Whether any is true; `None` when that hangs on more than one condition.
fn any(truths: Vec<Truth>) -> Option<Truth> {
    if truths.contains(&Truth::Known(true)) {
        return Some(Truth::Known(true));
    }
    let mut open = truths.into_iter().filter(|truth| *truth != Truth::Known(false));
    match (open.next(), open.next()) {
        (None, _) => Some(Truth::Known(false)),
        (Some(one), None) => Some(one),
        _ => None,
    }
}

fn statistic(opts: &[Opt<'_>]) -> Option<Vec<Truth>> {
    let find = |name| opts.iter().find(|opt| opt.name == name);
    if find("--mode")?.value()? != "random" {
        return None;
    }
    let chance = find("--probability")?;
    let probability: f64 = chance.value()?.parse().ok()?;
    (0.0..=1.0)
        .contains(&probability)
        .then(|| vec![chance.truth(Truth::Random(probability))])
}

/// A packet that no socket of this host sends has no owner, and `xt_owner` then matches only what asks for none.
fn owner(opts: &[Opt<'_>], site: &Site<'_>) -> Option<Vec<Truth>> {
    if site.sender == Sender::ThisHost || opts.is_empty() {
        return None;
    }
    Some(vec![Truth::Known(opts.iter().all(|opt| opt.negated))])
}
