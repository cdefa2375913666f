//! Chains, sets and dice.

use super::{state, walked, walked_within};

fn base(rules: &str) -> String {
    format!("chain b {{\ntype nat hook prerouting priority dstnat; policy accept;\n{rules}\n}}\n")
}

#[test]
fn jumps_come_back_and_gotos_do_not() {
    let chains = "chain j { ip daddr 10.96.0.10 return; drop; }\nchain g { meta mark set 0x00000001; }\n";
    assert_eq!(
        walked(&format!("{chains}{}", base("jump j\nreject")), state()).told(),
        ["1.0000 reject port-unreachable"]
    );
    assert_eq!(
        walked(&format!("{chains}{}", base("goto g\nreject")), state()).told(),
        ["1.0000 accept"]
    );
    let drop = "chain b {\ntype filter hook forward priority filter; policy drop;\ngoto g\naccept\n}\n";
    let ways = walked(&format!("{chains}{drop}"), state());
    assert_eq!(ways.told(), ["1.0000 drop"], "the policy decides what comes back");
    let nested = "chain o { goto j; drop; }\n";
    let rules = base("jump o\nreject");
    let told = walked(&format!("{chains}{nested}{rules}"), state()).told();
    assert_eq!(
        told,
        ["1.0000 reject port-unreachable"],
        "back to where o was jumped from"
    );
}

#[test]
fn loops_and_deep_chains_end() {
    let told = walked(&format!("chain x {{ jump b; }}\n{}", base("jump x")), state()).told();
    assert_eq!(
        told,
        ["1.0000 undecided: chain b leads to itself; the kernel refuses such rules"]
    );
    let deep: Vec<String> = (0..40)
        .map(|i| format!("chain c{i} {{ jump c{}; }}\n", i + 1))
        .collect();
    let mut deep = deep.concat();
    deep.push_str(&base("jump c0"));
    let told = walked(&deep, state()).told();
    assert!(told[0].contains("more than 16 chains lead to"), "{told:?}");
}

#[test]
fn a_named_map_shows_the_element_that_was_found() {
    let map = "map m {\ntype ipv4_addr . inet_proto . inet_service : verdict\n\
        elements = { 10.96.0.10 . tcp . 80 comment \"default/web:http\" : goto s }\n}\nchain s { drop; }\n";
    let walked = walked(
        &format!("{map}{}", base("ip daddr . meta l4proto . th dport vmap @m")),
        state(),
    );
    let events = walked.history.between(None, walked.ways[0].0.last);
    let found = events.iter().find_map(|event| match event {
        traced::Event::Found { set, element, .. } => Some(format!("@{set} {element}")),
        _ => None,
    });
    assert_eq!(
        found.as_deref(),
        Some("@m 10.96.0.10 . tcp . 80 comment \"default/web:http\" : goto s")
    );
    assert_eq!(walked.told(), ["1.0000 drop"]);
}

/// A die that is thrown up to 16 times for slots of which the last is empty.
#[test]
fn throws_that_come_to_nothing_are_one_branch_until_the_next() {
    let mut all = Vec::new();
    for slot in 0..8 {
        let elements = match slot {
            0..5 => format!("elements = {{ 10.96.0.10 : 10.0.0.{slot} . 80 }}"),
            _ => String::new(),
        };
        all.push(format!(
            "map m{slot} {{\ntype ipv4_addr : ipv4_addr . inet_service\n{elements}\n}}\n"
        ));
        all.push(format!(
            "chain to{slot} {{ dnat ip to ip daddr map @m{slot}; }}\n"
        ));
    }
    let sides: Vec<String> = (0..8).map(|side| format!("{side} : jump to{side}")).collect();
    all.push(format!(
        "chain try {{ numgen random mod 8 vmap {{ {} }}; }}\n",
        sides.join(", ")
    ));
    all.push(base(&"jump try\n".repeat(16)));
    let walked = walked(&all.concat(), state());
    assert_eq!(
        walked.ways.len(),
        6,
        "five endpoints, and no luck in sixteen throws"
    );
    let missed = (3.0_f64 / 8.0).powi(16);
    for (state, _) in &walked.ways[..5] {
        assert!(
            (state.chance - (1.0 - missed) / 5.0).abs() < 1e-12,
            "{}",
            state.chance
        );
    }
    assert!((walked.ways[5].0.chance - missed).abs() < 1e-15);
    assert!((walked.sum() - 1.0).abs() < 1e-12);
}

#[test]
fn sets_that_packets_or_time_change_can_be_forgotten_and_others_stay() {
    let set = |name: &str, words: &str| {
        format!("set {name} {{\ntype ipv4_addr\n{words}\nelements = {{ 10.0.0.2 }}\n}}\n")
    };
    let text = [
        "table ip t {\n".to_owned(),
        set("dynamic", "size 9\nflags dynamic"),
        set("timed", "flags timeout"),
        // What lists leave out of some sets, the rules say.
        set("updated", "size 9"),
        set("fixed", ""),
        "chain c {\nupdate @updated { ip saddr }\nip saddr @fixed drop\n}\n}\n".to_owned(),
    ];
    let mut ruleset = crate::parse::ruleset(&text.concat()).unwrap();
    ruleset.forget_what_moves();
    let is_known = |set: &crate::listed::Set| set.elements != crate::listed::Contents::NotListed;
    let known = ruleset.tables[0].sets.iter().filter(|set| is_known(set));
    let known: Vec<&str> = known.map(|set| &*set.name).collect();
    assert_eq!(known, ["fixed"]);
}

#[test]
fn clients_are_known_or_not_unless_they_are_listed() {
    let set = |elements: &str| {
        format!("set s {{\ntype ipv4_addr\nsize 65535\nflags dynamic,timeout\n{elements}\n}}\n")
    };
    let rules = base("ip saddr @s drop\nupdate @s { ip saddr timeout 3h }\nreject");
    let condition = "ip t @s has 10.0.0.2";
    assert_eq!(
        walked(&format!("{}{rules}", set("")), state()).told(),
        [
            format!("1.0000 if {condition} drop"),
            format!("1.0000 unless {condition} reject port-unreachable"),
        ]
    );
    let listed = "elements = { 10.0.0.2 timeout 3h expires 2h59m }";
    assert_eq!(
        walked(&format!("{}{rules}", set(listed)), state()).told(),
        ["1.0000 drop"]
    );
    let forgotten = base("ip saddr @s drop\ndelete @s { ip saddr }\nip saddr @s drop\nreject");
    assert_eq!(
        walked(&format!("{}{forgotten}", set("")), state()).told(),
        [
            format!("1.0000 if {condition} drop"),
            format!("1.0000 unless {condition} reject port-unreachable"),
        ]
    );
    let full = base("update @s { ip saddr } drop\nreject");
    assert_eq!(
        walked(&format!("{}{full}", set("")), state()).told(),
        [
            "1.0000 if ip t @s has room holds drop",
            "1.0000 unless ip t @s has room holds reject port-unreachable",
        ]
    );
}

#[test]
fn hashes_have_one_value_for_one_packet() {
    let rules = base(
        "jhash ip saddr mod 2 vmap { 0 : jump x, 1 : jump x }\n\
         jhash ip saddr mod 3 vmap { 0 : drop, 1 : accept }\n\
         jhash ip saddr mod 3 vmap { 0 : drop, 2 : reject-chain-none }",
    );
    let told = walked(&format!("chain x {{ }}\n{rules}"), state()).told();
    let hash = "jhash ip saddr mod 3";
    assert!(
        told.iter()
            .any(|way| way.contains(&format!("if {hash} is 0")) && way.ends_with("drop")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|way| way.contains(&format!("if {hash} is 1")) && way.ends_with("accept")),
        "{told:?}"
    );
    let rules = base("numgen inc mod 2 vmap { 0 : drop, 1 : accept }");
    assert_eq!(
        walked(&rules, state()).told(),
        [
            "1.0000 if numgen inc mod 2 is 0 drop",
            "1.0000 unless numgen inc mod 2 is 0 accept",
        ]
    );
}

/// The numbers are those of the kernel's `jhash` and `reciprocal_scale`, reckoned apart from this project.
#[test]
fn the_hash_of_a_known_client_with_a_known_seed_is_known() {
    let told = |hash: &str, number: u32| {
        let rules = format!("{hash} vmap {{ {number} : drop }}\naccept");
        walked(&base(&rules), state()).told()
    };
    for (hash, number) in [
        ("jhash ip saddr mod 256 seed 0x6b707273", 219),
        ("jhash ip saddr mod 3 seed 0x1", 1),
        ("jhash ip saddr mod 3 seed 0x1 offset 7", 8),
    ] {
        assert_eq!(told(hash, number), ["1.0000 drop"], "{hash}");
        assert_eq!(told(hash, number + 1), ["1.0000 accept"], "{hash}");
    }
}

#[test]
fn chance_in_a_match_and_in_a_key() {
    assert_eq!(
        walked(&base("numgen random mod 4 < 3 drop"), state()).told(),
        ["0.7500 drop", "0.2500 accept"]
    );
    let map = "map m {\ntype ipv4_addr . mark : ipv4_addr . inet_service\nelements = {\n\
        10.96.0.10 . 0 : 10.0.0.1 . 80, 10.96.0.10 . 1 : 10.0.0.2 . 80 }\n}\n";
    let rules = base("dnat ip to ip daddr . numgen random mod 3 map @m");
    assert_eq!(
        walked(&format!("{map}{rules}"), state()).told(),
        ["0.3333 to 10.0.0.1:80", "0.3333 to 10.0.0.2:80", "0.3333 accept"]
    );
}

/// Rules in a row that nobody can decide have a power of ways. What those cost goes with their number and not with its
/// square, so that what is allowed is used up by following ways and not by comparing them.
#[test]
fn ways_cost_what_they_are_and_not_what_comparing_each_with_each_would() {
    let lines = |count: usize, rule: &dyn Fn(usize) -> String, chain: &dyn Fn(usize) -> String| {
        let all = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
        format!("{}{}", all(chain), base(&all(rule)))
    };
    // The same packet on different grounds: each key has three answers.
    let keys = lines(
        8,
        &|i| format!("meta unheard{i} vmap {{ 0 : jump x{i}, 1 : jump x{i} }}\n"),
        &|i| format!("chain x{i} {{ counter; }}\n"),
    );
    // Different packets on the same ground: each throw leaves a mark or none.
    let marks = lines(
        13,
        &|i| format!("numgen random mod 2 vmap {{ 0 : jump x{i} }}\n"),
        &|i| format!("chain x{i} {{ meta mark set meta mark | {:#010x}; }}\n", 1 << i),
    );
    for (lines, ways, work) in [(keys, 6561, 180_000_000), (marks, 8192, 70_000_000)] {
        let walked = walked_within(work, &lines, state());
        let told = walked.told();
        assert_eq!(told.len(), ways);
        let lost = told
            .iter()
            .filter(|way| way.contains("too much to follow"))
            .count();
        assert_eq!(lost, 0, "of {ways} ways");
    }
}
