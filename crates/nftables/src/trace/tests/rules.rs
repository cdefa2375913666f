//! Single rules.

use super::{at, ip, rules, state, walked};
use traced::{Bits, Nat, Track};

/// A rule, and whether it drops the packet.
const RULES: &[(&str, bool)] = &[
    ("ip saddr 10.0.0.0/8 drop", true),
    ("ip saddr != 10.0.0.0/8 drop", false),
    ("ip saddr 10.0.0.0-10.0.0.2 drop", true),
    ("ip daddr { 10.96.0.1, 10.96.0.8/29 } drop", true),
    ("ip6 daddr fd00::1 drop", false),
    ("ip6 daddr != fd00::1 drop", false),
    ("tcp dport 80 drop", true),
    ("tcp dport { 1-79, 81-90 } drop", false),
    ("udp dport 80 drop", false),
    ("udp dport != 81 drop", false),
    ("th dport >= 80 th dport < 81 drop", true),
    ("meta l4proto { tcp, udp } drop", true),
    ("meta l4proto 6 drop", true),
    ("ip protocol icmp drop", false),
    (
        "ip daddr . meta l4proto . th dport { 10.96.0.10 . tcp . 80 } drop",
        true,
    ),
    (
        "ip daddr . meta l4proto . th dport { 10.96.0.0/24 . udp . 80, 10.96.0.0/24 . tcp . 81 } drop",
        false,
    ),
    ("iifname \"cali*\" drop", true),
    ("iifname != { \"eth0\", \"cali1\" } drop", false),
    ("oifname \"eth0\" drop", false),
    ("oifname != \"eth0\" drop", true),
    ("ct state new drop", true),
    ("ct state established,related drop", false),
    ("ct state { new, untracked } drop", true),
    ("ct state vmap { established : accept, new : drop }", true),
    ("ct status dnat drop", false),
    ("ct status & dnat == dnat drop", false),
    ("ct direction original drop", true),
    ("ct original ip daddr 10.96.0.10 drop", true),
    ("ct original proto-dst 81 drop", false),
    ("tcp flags syn / fin,syn,rst,ack drop", true),
    ("tcp flags & (fin | syn) != syn drop", false),
    ("tcp flags ! fin,rst drop", true),
    ("tcp flags ! syn,rst drop", false),
    ("ct status ! snat,dnat drop", true),
    ("ct state ! new drop", false),
    ("ct state ! established drop", true),
    ("xt match comment drop", true),
    ("meta mark 0 drop", true),
    ("meta mark & 0x00004000 != 0x00000000 drop", false),
    (
        "meta mark set 0x00004001 meta mark & 0x00004000 == 0x00004000 drop",
        true,
    ),
    (
        "meta mark set meta mark | 0x00000003 meta mark set meta mark ^ 0x00000001 meta mark 0x00000002 drop",
        true,
    ),
    (
        "ct mark set 0x00000007 meta mark set ct mark meta mark 7 drop",
        true,
    ),
    ("fib daddr type local drop", false),
    ("fib saddr type local drop", false),
    ("fib daddr type != local drop", true),
    ("icmp type echo-request drop", false),
    (
        "counter packets 1 bytes 2 log prefix \"x \" drop comment \"y\"",
        true,
    ),
    ("continue drop", false),
    ("return\ndrop", false),
];

#[test]
fn what_can_be_decided_is_decided() {
    for (rule, drops) in RULES.iter().copied() {
        let expected = if drops { "1.0000 drop" } else { "1.0000 accept" };
        assert_eq!(rules(rule).told(), [expected], "{rule}");
    }
}

#[test]
fn what_cannot_is_a_fork_with_its_condition() {
    let one = |rule: &str, condition: &str| {
        let expected = [
            format!("1.0000 if {condition} drop"),
            format!("1.0000 unless {condition} accept"),
        ];
        assert_eq!(rules(rule).told(), expected, "{rule}");
    };
    one(
        "limit rate 10/second burst 5 packets drop",
        "limit rate 10/second burst 5 packets holds",
    );
    one("xt match \"string\" drop", "xt match \"string\" holds");
    one("# xt_tcp drop", "# xt_tcp holds");
    one("tcp dport { ssh, 9022 } drop", "tcp dport { ssh, 9022 } holds");
    one(
        "meter m { ip saddr limit rate 1/second } drop",
        "meter m { ip saddr limit rate 1/second } holds",
    );
    // One answer of a module is none for the next rule that asks it.
    let twice = rules("xt match \"set\" meta mark set 0x00000001\nxt match \"set\" drop");
    assert_eq!(twice.told().len(), 4, "{:?}", twice.told());
    one("meta skuid 1000 drop", "meta skuid 1000 holds");
    one("ip dscp ef drop", "ip dscp ef holds");
    let same = rules("ip dscp ef meta mark set 0x00000001\nip dscp ef drop");
    assert_eq!(
        same.told(),
        [
            "1.0000 if ip dscp ef holds drop",
            "1.0000 unless ip dscp ef holds accept"
        ]
    );
    let rate = rules("limit rate over 10/second drop");
    let holds = "limit rate 10/second holds";
    assert_eq!(
        rate.told(),
        [
            format!("1.0000 unless {holds} drop"),
            format!("1.0000 if {holds} accept")
        ]
    );
    assert_eq!(
        rules("limit rate 1/second log prefix \"x\"").told(),
        ["1.0000 accept"],
        "nothing hangs on it"
    );
}

#[test]
fn what_nobody_knows_is_named() {
    let text = "tproxy to :8080 meta mark set 0x00000001";
    let expected = [
        format!("1.0000 unless {text} lets it go on undecided: {text}"),
        format!("1.0000 if {text} lets it go on accept"),
    ];
    assert_eq!(rules(text).told(), expected);
    assert_eq!(
        rules("ip daddr set 10.0.0.1").told(),
        ["1.0000 undecided: ip daddr set 10.0.0.1"]
    );
    assert_eq!(
        rules("jump nowhere").told(),
        ["1.0000 undecided: chain nowhere of table ip t is not among the rules given"]
    );
    let queue = "queue to 3";
    let expected = [
        format!("1.0000 if {queue} lets it go on accept"),
        format!("1.0000 unless {queue} lets it go on undecided: {queue}"),
    ];
    assert_eq!(rules(queue).told(), expected);
}

#[test]
fn unknown_facts_are_asked_in_the_words_of_iptables() {
    let mut nameless = state();
    nameless.src = None;
    nameless.src_port = None;
    nameless.mark = Bits::unknown();
    let chain = |rule: &str| format!("chain b {{\ntype filter hook forward priority 0;\n{rule}\n}}");
    for (rule, condition) in [
        (
            "ip saddr 192.168.0.0/16 drop",
            "its translated source is in 192.168.0.0/16",
        ),
        (
            "tcp sport 1024-2048 drop",
            "its translated source port is 1024-2048",
        ),
        (
            "meta mark & 0x00004000 == 0x00004000 drop",
            "its mark is 0x4000/0x4000",
        ),
    ] {
        let told = walked(&chain(rule), nameless).told();
        let expected = [
            format!("1.0000 if {condition} drop"),
            format!("1.0000 unless {condition} accept"),
        ];
        assert_eq!(told, expected);
    }
    let elsewhere = walked(&chain("ip saddr 10.0.0.0/8 drop"), nameless);
    assert_eq!(
        elsewhere.told(),
        ["1.0000 accept"],
        "the host has no address there"
    );
}

#[test]
fn packets_without_a_connection_have_nothing_of_one() {
    let mut untracked = state();
    untracked.connection.track = Track::Untracked;
    let chain = |rule: &str| format!("chain b {{\ntype filter hook forward priority 0;\n{rule}\n}}");
    for (rule, expected) in [
        ("ct state untracked drop", "1.0000 drop"),
        ("ct state invalid drop", "1.0000 accept"),
        ("ct status dnat drop", "1.0000 accept"),
        ("ct mark != 1 drop", "1.0000 accept"),
    ] {
        assert_eq!(walked(&chain(rule), untracked).told(), [expected], "{rule}");
    }
    let mut translated = state();
    translated.connection.dnat = Nat::Changed;
    assert_eq!(
        walked(&chain("ct status dnat drop"), translated).told(),
        ["1.0000 drop"]
    );
}

#[test]
fn translations_are_those_of_the_map() {
    assert_eq!(rules("dnat to 10.0.0.9:8080").told(), ["1.0000 to 10.0.0.9:8080"]);
    assert_eq!(
        rules("dnat ip to ip daddr map { 10.96.0.10 : 10.0.0.9 }").told(),
        ["1.0000 to 10.0.0.9:80"]
    );
    assert_eq!(
        rules("dnat ip to ip daddr map { 10.96.0.11 : 10.0.0.9 }").told(),
        ["1.0000 accept"]
    );
    let random =
        "dnat ip to numgen random mod 3 map { 0 : 10.0.0.1 . 1, 1 : 10.0.0.2 . 2, 2 : 10.0.0.3 . 3 }";
    let expected = [
        "0.3333 to 10.0.0.1:1",
        "0.3333 to 10.0.0.2:2",
        "0.3333 to 10.0.0.3:3",
    ];
    assert_eq!(rules(random).told(), expected);
    let masqueraded = rules("masquerade fully-random");
    assert_eq!(masqueraded.ways[0].0.src, None);
    assert_eq!(masqueraded.ways[0].0.src_port, None);
    let kept = rules("snat to 192.0.2.1");
    assert_eq!(
        (kept.ways[0].0.src, kept.ways[0].0.src_port),
        (Some(ip("192.0.2.1")), state().src_port)
    );
    assert_eq!(
        rules("redirect to :8080").told(),
        ["1.0000 undecided: redirect to :8080"]
    );
    assert_eq!(
        rules("dnat to 10.0.0.1-10.0.0.5").told(),
        ["1.0000 undecided: dnat to 10.0.0.1-10.0.0.5"]
    );
    let same = rules("dnat to 10.96.0.10:80");
    assert_eq!(same.ways[0].0.connection.dnat, Nat::Kept);
    assert_eq!(same.ways[0].0.dst, at("10.96.0.10:80"));
}
