//! Others' rules are nobody's business, and ours come back when somebody else removes them.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{Daemon, Setup, configuration};
use live::manifests::{Manifests, service};
use live::traffic::{all_answered, on_web, rules_say, web_answers};
use live::{rules, within};
use model::Family;
use serde_json::json;
use std::time::{Duration, Instant};

/// The period within which repairs are made, in these tests.
const SYNC_PERIOD: Duration = Duration::from_secs(2);

/// Reading back takes its time on a busy machine.
const SLACK: Duration = Duration::from_secs(1);

fn start(lab: &Lab, manifests: &Manifests) -> Daemon {
    let mut setup = Setup::new(lab, NODE, manifests);
    setup.config = configuration(&json!({"iptables": {"minSyncPeriod": "10ms", "syncPeriod": "2s"}}));
    setup.start()
}

fn run(lab: &Lab, words: &str) {
    lab.must_exec(NODE, &words.split(' ').collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("{}", error.chain()));
}

/// Rules before, between and after our jumps, and chains of their own, in each table and both families.
fn strangers_move_in(lab: &Lab) {
    for tool in ["iptables", "ip6tables"] {
        for (table, hook) in [
            ("nat", "PREROUTING"),
            ("nat", "OUTPUT"),
            ("nat", "POSTROUTING"),
            ("filter", "INPUT"),
            ("filter", "FORWARD"),
            ("filter", "OUTPUT"),
        ] {
            for (place, number) in [("-I {hook} 1", 1), ("-I {hook} 3", 2), ("-A {hook}", 3)] {
                let place = place.replace("{hook}", hook);
                let comment = format!("stranger-{hook}-{number}");
                let exists = format!(
                    "{tool} -t {table} {place} -m mark --mark 0x77 -m comment --comment {comment} -j ACCEPT"
                );
                // There may be only one rule to be between of.
                if lab
                    .exec(NODE, &exists.split(' ').collect::<Vec<_>>())
                    .is_ok_and(|done| !done.status.success())
                {
                    run(lab, &exists.replace(" 3 ", " 2 "));
                }
            }
        }
        for table in ["nat", "filter", "mangle"] {
            run(lab, &format!("{tool} -t {table} -N STRANGER"));
            run(
                lab,
                &format!("{tool} -t {table} -A STRANGER -m mark --mark 0x78 -j RETURN"),
            );
            run(
                lab,
                &format!("{tool} -t {table} -A STRANGER -m mark --mark 0x79 -j RETURN"),
            );
            run(lab, &format!("{tool} -t {table} -A OUTPUT -j STRANGER"));
        }
    }
}

/// All rules of the built-in chains, ours among them, and of the stranger's own.
fn built_in_and_strangers(lab: &Lab) -> Vec<String> {
    let mut lines = vec![];
    for family in Family::ALL {
        let saved = rules::saved(lab, NODE, family);
        let is_wanted = |line: &&str| {
            let ours = line.starts_with("-A KUBE-") || line.starts_with(":KUBE-");
            (line.starts_with("-A ") || line.starts_with(":STRANGER") || line.starts_with('*')) && !ours
        };
        lines.extend(saved.lines().filter(is_wanted).map(ToOwned::to_owned));
    }
    lines
}

#[test]
fn strangers_rules_survive_a_hundred_syncs() {
    if !available(&["iptables", "ip6tables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("guests"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    strangers_move_in(&lab);
    let before = built_in_and_strangers(&lab);
    let guests = |lines: &[String]| lines.iter().filter(|line| line.contains("stranger-")).count();
    assert_eq!(guests(&before), 36, "{}", before.join("\n"));

    let begun = Instant::now();
    for change in 1..=100 {
        let address = format!("10.1.9.{change}");
        let mut objects = web(1 + change % 4);
        objects.push(service("turning", &address, 80, 8080));
        if change % 10 == 0 {
            // A new process knows nothing and looks at everything.
            daemon.kill();
            daemon = start(&lab, &manifests);
        }
        manifests.put("web.json", &objects);
        rules_say(&lab, &format!("{address}/32"), &daemon);
        assert_eq!(built_in_and_strangers(&lab), before, "after change {change}");
    }
    println!("100 changes in {:?}", begun.elapsed());
}

/// Rules of nftables in tables of iptables, which has no words for them: Tailscale writes such.
const WITHOUT_WORDS: [&str; 6] = [
    "add table ip filter",
    "add chain ip filter INPUT { type filter hook input priority filter; }",
    "add chain ip filter FORWARD { type filter hook forward priority filter; }",
    "add chain ip filter ts-forward",
    "add rule ip filter ts-forward meta mark set meta mark & 0xff00ffff ^ 0x00040000 comment \"stranger\"",
    "add rule ip filter INPUT fib daddr type broadcast accept comment \"stranger\"",
];

#[test]
fn rules_that_iptables_has_no_words_for_hold_up_nothing_and_stay() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("wordless"), Manifests::new());
    let nft = |words: &[&str]| {
        let words = [&["nft"], words].concat();
        lab.must_exec(NODE, &words)
            .unwrap_or_else(|error| panic!("{}", error.chain()))
    };
    for command in WITHOUT_WORDS {
        nft(&[command]);
    }
    let guests = || {
        nft(&["list", "table", "ip", "filter"])
            .matches("stranger")
            .count()
    };
    assert_eq!(guests(), 2);
    manifests.put("web.json", &web(4));
    let mut daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    for address in ["10.1.9.1", "10.1.9.2"] {
        let mut objects = web(4);
        objects.push(service("turning", address, 80, 8080));
        manifests.put("web.json", &objects);
        let is_in = || nft(&["list", "table", "ip", "filter"]).contains(address);
        let took = within(Duration::from_secs(20), is_in);
        assert!(took.is_some(), "{address} is not refused:\n{}", daemon.log());
        assert_eq!(guests(), 2);
        // A new process knows nothing and looks at everything.
        daemon.kill();
        daemon = start(&lab, &manifests);
        web_answers(&lab, &daemon);
    }
}

/// How long until the rules are whole again.
fn repaired(lab: &Lab, whole: &str, daemon: &Daemon) -> Duration {
    let mut differences = String::new();
    let took = within(SYNC_PERIOD + SLACK, || {
        differences = rules::differences_in_words(whole, &rules::saved(lab, NODE, Family::V4), Family::V4);
        differences.is_empty()
    });
    took.unwrap_or_else(|| {
        panic!(
            "not repaired:\n{differences}\nlog of the daemon:\n{}",
            daemon.log()
        )
    })
}

#[test]
fn flushed_table_and_deleted_jump_are_repaired_within_the_sync_period() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("flush"), Manifests::new());
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    rules_say(&lab, "KUBE-POSTROUTING", &daemon);
    std::thread::sleep(Duration::from_secs(1));
    let whole = rules::saved(&lab, NODE, Family::V4);
    for harm in [
        "iptables -t nat -F",
        "iptables -t nat -D PREROUTING 1",
        "iptables -t nat -D POSTROUTING 1",
        "iptables -t filter -D FORWARD 1",
        "iptables -t nat -F KUBE-SERVICES",
    ] {
        run(&lab, harm);
        let took = repaired(&lab, &whole, &daemon);
        println!("{harm}: repaired after {took:?}");
    }
    web_answers(&lab, &daemon);
}

#[test]
fn chains_that_a_predecessor_left_are_removed_and_a_strangers_stay() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("stale"), Manifests::new());
    let left = manifests.file("left");
    std::fs::write(
        &left,
        "*nat\n:KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SEP-BBBBBBBBBBBBBBBB - [0:0]\n:KUBE-EXT-AAAAAAAAAAAAAAAA - [0:0]\n\
         :KUBE-SVL-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-FW-AAAAAAAAAAAAAAAA - [0:0]\n:KUBE-SERVICES - [0:0]\n:CNI-abc - [0:0]\n\
         :KUBE-ROUTER-X - [0:0]\n\
         -A KUBE-SERVICES -d 10.1.0.200/32 -j KUBE-SVC-AAAAAAAAAAAAAAAA\n\
         -A KUBE-SVC-AAAAAAAAAAAAAAAA -j KUBE-SEP-BBBBBBBBBBBBBBBB\n-A KUBE-EXT-AAAAAAAAAAAAAAAA -j KUBE-SVC-AAAAAAAAAAAAAAAA\n\
         -A CNI-abc -m mark --mark 0x1 -j RETURN\nCOMMIT\n",
    )
    .unwrap();
    run(
        &lab,
        &format!("iptables-nft-restore --noflush {}", left.display()),
    );
    manifests.put("web.json", &web(4));
    let daemon = start(&lab, &manifests);
    web_answers(&lab, &daemon);
    let prober = on_web(&lab);
    let gone = within(live::daemon::PATIENCE, || {
        let saved = rules::saved(&lab, NODE, Family::V4);
        !saved.contains("AAAAAAAAAAAAAAAA")
            && !saved.contains("BBBBBBBBBBBBBBBB")
            && !saved.contains("10.1.0.200")
    });
    assert!(
        gone.is_some(),
        "{}\nlog of the daemon:\n{}",
        rules::saved(&lab, NODE, Family::V4),
        daemon.log()
    );
    let saved = rules::saved(&lab, NODE, Family::V4);
    assert!(
        saved.contains("-A CNI-abc -m mark --mark 0x1 -j RETURN"),
        "{saved}"
    );
    assert!(saved.contains(":KUBE-ROUTER-X"), "{saved}");
    all_answered(prober, 1);
}
