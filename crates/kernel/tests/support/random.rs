//! Random steps, valid and invalid, from a seed.

use iptables::ast::{
    AddrType, ChainName, CtState, Is, Match, PortRange, Ports, Proto, Recent, RecentAction, Rule, Ruleset,
    TableName, Target,
};
use iptables::plan::{Step, TableWrite};
use model::{Family, Protocol};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Numbers from a seed (splitmix64), so that a failure can be had again.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn is<T>(&mut self, value: T) -> Is<T> {
        if self.percent(25) {
            Is::Not(value)
        } else {
            Is::Equal(value)
        }
    }
}

/// The longest legal name, a short one, kube-proxy's, and one with signs.
const USER_CHAINS: [&str; 8] = [
    "A",
    "b.b",
    "KUBE-SVC-XPGD46QRK7WJZT7O",
    "KUBE-SEP-SXIVWICOYRO3J4NJ",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZAB",
    "cali-PREROUTING",
    "KUBE-SERVICES",
    "C_3",
];

pub const TABLES: [TableName; 3] = [TableName::Mangle, TableName::Filter, TableName::Nat];

fn chain(name: &str) -> ChainName {
    ChainName::new(name).unwrap()
}

/// A user's chain.
fn user_chain(random: &mut Random) -> ChainName {
    match random.below(100) {
        0 => chain("KUBE-SVC-SELDOM0000000000"),
        _ => chain(random.pick::<&str>(&USER_CHAINS)),
    }
}

/// A chain that is there, nearly always, and seldom one that might close a loop.
fn known_chain(random: &mut Random, scene: &Scene<'_>, from: &ChainName) -> ChainName {
    let later: Vec<&ChainName> = scene
        .known
        .iter()
        .filter(|name| rank(name) > rank(from))
        .collect();
    if random.percent(96) && !later.is_empty() {
        (**random.pick(&later)).clone()
    } else if random.percent(80) && !scene.known.is_empty() {
        random.pick(scene.known).clone()
    } else {
        user_chain(random)
    }
}

/// Built-in chains come first.
fn rank(name: &ChainName) -> Option<usize> {
    USER_CHAINS.iter().position(|chain| *chain == name.as_str())
}

/// Where a rule is made for.
pub struct Scene<'a> {
    pub family: Family,
    pub table: TableName,
    /// User chains that are there.
    pub known: &'a [ChainName],
}

fn builtin_chain(random: &mut Random, table: TableName) -> ChainName {
    chain(random.pick::<&str>(table.built_in()))
}

/// A chain that rules are added to.
fn filled_chain(random: &mut Random, scene: &Scene<'_>) -> ChainName {
    if random.percent(60) || scene.known.is_empty() {
        builtin_chain(random, scene.table)
    } else if random.percent(97) {
        random.pick(scene.known).clone()
    } else {
        user_chain(random)
    }
}

fn address(random: &mut Random, family: Family) -> IpAddr {
    let family = match (random.percent(1), family) {
        (false, family) => family,
        (true, Family::V4) => Family::V6,
        (true, Family::V6) => Family::V4,
    };
    let bits = random.next();
    match family {
        Family::V4 => IpAddr::from([
            10,
            bits.to_ne_bytes()[0],
            bits.to_ne_bytes()[1],
            bits.to_ne_bytes()[2],
        ]),
        Family::V6 => IpAddr::V6(((0xfd00 << 112) | u128::from(bits)).into()),
    }
}

fn network(random: &mut Random, family: Family) -> ipnet::IpNet {
    let address = address(random, family);
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = if random.percent(50) {
        longest
    } else {
        1 + random.below(longest - 1)
    };
    ipnet::IpNet::new(address, u8::try_from(length).unwrap())
        .unwrap()
        .trunc()
}

fn ports(random: &mut Random) -> PortRange {
    let first = u16::try_from(random.next() & 0x7fff).unwrap() + 1;
    // All ports is no condition, and not printed: never that.
    let last = if random.percent(70) {
        first
    } else {
        first + 1 + u16::try_from(random.below(30_000)).unwrap()
    };
    PortRange { first, last }
}

fn protocol(random: &mut Random) -> Protocol {
    *random.pick(&Protocol::ALL)
}

fn proto_of(protocol: Protocol) -> Proto {
    match protocol {
        Protocol::Tcp => Proto::Tcp,
        Protocol::Udp => Proto::Udp,
        Protocol::Sctp => Proto::Sctp,
    }
}

const STATES: [CtState; 7] = [
    CtState::Invalid,
    CtState::New,
    CtState::Related,
    CtState::Established,
    CtState::Untracked,
    CtState::Snat,
    CtState::Dnat,
];

fn address_type(random: &mut Random) -> Is<AddrType> {
    let kind = match random.below(3) {
        0 => AddrType::Other("UNICAST".into()),
        1 => AddrType::Other("MULTICAST".into()),
        _ => AddrType::Local,
    };
    random.is(kind)
}

fn comment(random: &mut Random) -> Arc<str> {
    let long = "x".repeat(255);
    let texts = [
        "ns/svc:http cluster IP",
        "word",
        "it's \"quoted\" \\ here",
        "-j ACCEPT",
        "\u{e9}\u{e9}",
        &long,
    ];
    (*random.pick(&texts)).into()
}

fn one_match(random: &mut Random, rule: &Rule) -> Match {
    match random.below(9) {
        0 | 1 => Match::Comment(comment(random)),
        2 => port_match(random, rule),
        3 => state_match(random),
        4 => type_match(random),
        5 => {
            let masks = [0x4000, u32::MAX, 0xff00_0000];
            let mask = *random.pick(&masks);
            Match::Mark {
                is: random.is((0x4000 & mask, mask)),
            }
        }
        6 => Match::Probability(1 + u32::try_from(random.next() >> 33).unwrap()),
        7 => Match::Recent(Recent {
            name: "KUBE-SEP-SXIVWICOYRO3J4NJ".into(),
            action: if random.percent(50) {
                RecentAction::Set
            } else {
                RecentAction::RcheckReap { seconds: 10_800 }
            },
        }),
        _ => Match::Nfacct(
            if random.percent(95) {
                kernel::NFACCT_COUNTERS[0]
            } else {
                "no_such_counter"
            }
            .into(),
        ),
    }
}

/// Mostly of the protocol that the rule asks for.
fn port_match(random: &mut Random, rule: &Rule) -> Match {
    let module = match &rule.protocol {
        Some(Is::Equal(Proto::Tcp)) if random.percent(97) => Protocol::Tcp,
        Some(Is::Equal(Proto::Udp)) if random.percent(97) => Protocol::Udp,
        Some(Is::Equal(Proto::Sctp)) if random.percent(97) => Protocol::Sctp,
        _ if random.percent(10) => protocol(random),
        _ => return Match::Comment(comment(random)),
    };
    let side = |random: &mut Random| {
        let ports = ports(random);
        random.percent(60).then(|| random.is(ports))
    };
    Match::Ports {
        module,
        src: side(random),
        dst: side(random),
    }
}

fn state_match(random: &mut Random) -> Match {
    let mut states: Vec<CtState> = STATES.into_iter().filter(|_| random.percent(40)).collect();
    if states.is_empty() {
        states.push(CtState::New);
    }
    Match::CtState(random.is(states))
}

fn type_match(random: &mut Random) -> Match {
    let (src, dst) = (address_type(random), address_type(random));
    match random.below(3) {
        0 => Match::AddrType {
            src: Some(src),
            dst: None,
        },
        1 => Match::AddrType {
            src: None,
            dst: Some(dst),
        },
        _ => Match::AddrType {
            src: Some(src),
            dst: Some(dst),
        },
    }
}

/// Whether two matches are of one kind: the tools merge or refuse some that stand twice.
fn same_kind(a: &Match, b: &Match) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

fn target(random: &mut Random, scene: &Scene<'_>, from: &ChainName) -> Target {
    let Scene { family, table, .. } = *scene;
    let right_table = random.percent(98);
    match random.below(12) {
        0 => Target::Accept,
        1 if table != TableName::Nat || !right_table => Target::Drop,
        2 => Target::Return,
        3 if table == TableName::Filter || !right_table => Target::Reject(
            match (family, random.below(3)) {
                (_, 1) => "tcp-reset",
                (Family::V4, 0) => "icmp-host-prohibited",
                (Family::V4, _) => "icmp-port-unreachable",
                (Family::V6, 0) => "icmp6-adm-prohibited",
                (Family::V6, _) => "icmp6-port-unreachable",
            }
            .into(),
        ),
        4 | 5 if table == TableName::Nat || !right_table => {
            Target::Dnat(SocketAddr::new(address(random, family), ports(random).first))
        }
        6 if table == TableName::Nat || !right_table => Target::Masquerade(if random.percent(50) {
            Ports::Kept
        } else {
            Ports::RandomFully
        }),
        7 => Target::Mark {
            value: 0x4000,
            mask: *random.pick(&[0x4000, 0, u32::MAX]),
        },
        8 => Target::Goto(known_chain(random, scene, from)),
        9 => Target::None,
        10 if random.percent(3) => Target::Jump(builtin_chain(random, table)),
        _ => Target::Jump(known_chain(random, scene, from)),
    }
}

fn interface(random: &mut Random) -> Arc<str> {
    (*random.pick(&["eth0", "cali+", "lo", "fifteen-letters"])).into()
}

/// A rule for a chain; interfaces mostly where they may be asked for.
pub fn rule(random: &mut Random, scene: &Scene<'_>, chain: &ChainName) -> Rule {
    let family = scene.family;
    let mut rule = Rule::new(target(random, scene, chain));
    if random.percent(30) {
        let net = network(random, family);
        rule.src = Some(random.is(net));
    }
    if random.percent(40) {
        let net = network(random, family);
        rule.dst = Some(random.is(net));
    }
    let odd = random.percent(2);
    let (no_in, no_out) = match chain.as_str() {
        "INPUT" | "PREROUTING" => (false, true),
        "OUTPUT" | "POSTROUTING" => (true, false),
        _ => (false, false),
    };
    if random.percent(10) && (odd || !no_in) {
        let name = interface(random);
        rule.in_interface = Some(random.is(name));
    }
    if random.percent(10) && (odd || !no_out) {
        let name = interface(random);
        rule.out_interface = Some(random.is(name));
    }
    if random.percent(60) || (matches!(rule.target, Target::Dnat(_)) && random.percent(97)) {
        let proto = proto_of(protocol(random));
        let is = if random.percent(95) {
            Is::Equal(proto)
        } else {
            Is::Not(proto)
        };
        rule.protocol = Some(is);
    }
    for _ in 0..random.below(4) {
        let found = one_match(random, &rule);
        if !rule.matches.iter().any(|have| same_kind(have, &found)) {
            rule.matches.push(found);
        }
    }
    rule
}

fn write(random: &mut Random, scene: &Scene<'_>) -> TableWrite {
    let mut write = TableWrite::default();
    let names: Vec<ChainName> = (0..random.below(5))
        .map(|_| {
            if random.percent(1) {
                chain("ACCEPT")
            } else {
                user_chain(random)
            }
        })
        .collect();
    let known: Vec<ChainName> = scene.known.iter().chain(&names).cloned().collect();
    let scene = &Scene {
        known: &known,
        ..*scene
    };
    for name in names {
        let rules = (0..random.below(4)).map(|_| rule(random, scene, &name)).collect();
        write.chains.insert(name, rules);
    }
    for _ in 0..random.below(3) {
        let name = filled_chain(random, scene);
        let rule = rule(random, scene, &name);
        write.append.push((name, rule));
    }
    for _ in 0..random.below(3) {
        let name = filled_chain(random, scene);
        let rule = rule(random, scene, &name);
        write.insert.push((name, rule));
    }
    if random.percent(15) {
        let name = user_chain(random);
        // A chain that is both written and removed has rules and is refused: now and then.
        if !write.chains.contains_key(&name) || random.percent(10) {
            write.remove.push(name);
        }
    }
    if random.percent(20) {
        let name = if random.percent(50) {
            chain("KUBE-PROXY-CANARY")
        } else {
            user_chain(random)
        };
        write.ensure.push(name);
    }
    if random.percent(1) {
        write
            .chains
            .insert(builtin_chain(random, scene.table), Vec::new());
    }
    write
}

/// A rule that is there, or one that is not.
fn deletion(random: &mut Random, scene: &Scene<'_>, have: &Ruleset) -> (TableName, ChainName, Rule) {
    let table = scene.table;
    let filled: Vec<_> = have
        .tables
        .get(&table)
        .into_iter()
        .flat_map(|table| &table.chains)
        .filter(|(_, chain)| !chain.rules.is_empty())
        .collect();
    if filled.is_empty() || random.percent(20) {
        let name = filled_chain(random, scene);
        let rule = rule(random, scene, &name);
        return (table, name, rule);
    }
    let (name, chain) = random.pick(&filled);
    (table, (*name).clone(), random.pick(&chain.rules).clone())
}

/// A step over some tables of a kernel that holds `have`.
pub fn step(random: &mut Random, family: Family, have: &Ruleset) -> Step {
    let mut step = Step::default();
    for table in TABLES {
        let chains = have
            .tables
            .get(&table)
            .into_iter()
            .flat_map(|table| &table.chains);
        let known: Vec<ChainName> = chains
            .filter(|(_, chain)| chain.policy.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        let scene = &Scene {
            family,
            table,
            known: &known,
        };
        if random.percent(45) {
            step.write.insert(table, write(random, scene));
        }
        if random.percent(20) {
            for _ in 0..=random.below(3) {
                step.delete.push(deletion(random, scene, have));
            }
        }
        if random.percent(8) {
            for _ in 0..=random.below(3) {
                step.retire.push((table, user_chain(random)));
            }
        }
    }
    step
}
