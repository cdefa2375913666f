//! `trace --live`: real packets of a namespace, in both modes; what is broken by hand is found, and nothing is left behind.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use serde_json::Value;
use std::io::Write as _;
use std::process::Output;

/// What scripts do on the node.
const NODE: &str = r#"
iptables_mode() {
    rules
    iptables-nft-restore < rules
}
nftables_mode() {
    render --proxy-mode nftables > rules
    nft -f rules
}
# Waits until our own table is there.
followed() {
    for _ in $(seq 200); do
        nft list tables | grep -q kube-proxy-trace && return 0
        sleep 0.05
    done
    return 1
}
# Follows three packets to the DNS service while they are sent; what `$first` names is done before.
three() {
    "$0" trace --live --to 10.96.0.10:53 --proto udp --count "${count:-3}" --for 20s --output json ${check---check} "$@" > told 2> said &
    tracer=$!
    followed
    ${first:-true}
    for port in 5001 5002 5003; do ask "$port"; done
    status=0
    wait "$tracer" || status=$?
    cat told
    echo "$status"
    cat said >&2
}
"#;

fn sh(script: &str) -> Output {
    let root = rustix::process::geteuid().is_root();
    support::sh(if root { "-nm" } else { "-Urnm" }, &format!("{NODE}{script}"))
}

fn said(script: &str) -> String {
    let output = sh(script);
    let error = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{script}: {error}\n{text}");
    text
}

/// Whether all this can be done here. With `KPRS_REQUIRE_LIVE` set it must.
fn available() -> bool {
    let output = sh("nft list ruleset; iptables-nft -S; socat -V >/dev/null");
    let works = output.status.success();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        works || std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
        "{error}"
    );
    if !works {
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(
            std::io::stderr(),
            "SKIPPED: packets cannot be followed here: {error}"
        );
    }
    works
}

/// The packets, and the exit status.
fn followed(script: &str) -> (Vec<Value>, String) {
    let text = said(script);
    let (packets, status): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    let packets = packets.iter().map(|line| serde_json::from_str(line).unwrap());
    (packets.collect(), status.concat())
}

fn words<'a>(packet: &'a Value, field: &str) -> Vec<&'a str> {
    let steps = packet["steps"].as_array().unwrap().iter();
    steps.filter_map(|step| step[field].as_str()).collect()
}

#[test]
fn packets_are_told_rule_by_rule_with_what_nat_made_of_them_and_trace_gives_their_ways() {
    if !available() {
        return;
    }
    for (mode, masquerade) in [
        ("iptables_mode", "-j MASQUERADE --random-fully"),
        ("nftables_mode", "masquerade fully-random"),
    ] {
        let (packets, status) = followed(&format!(
            "{mode}\nthree --manifests \"$CASE/cluster.json\"\n! nft list tables | grep kube-proxy-trace"
        ));
        assert_eq!((packets.len(), status.as_str()), (3, "0"), "{mode}");
        for (packet, port) in packets.iter().zip(["5001", "5002", "5003"]) {
            support::is_told_of_dns(packet, port);
            let texts = words(packet, "text");
            assert!(texts.iter().any(|text| text.contains(masquerade)), "{packet}");
            // What NAT made of it is told of the rule that did it.
            let steps = packet["steps"].as_array().unwrap();
            let dnat = steps
                .iter()
                .find(|step| step["to_after"] == packet["to_after"])
                .unwrap();
            assert!(
                dnat["text"].as_str().unwrap().to_lowercase().contains("dnat"),
                "{packet}"
            );
        }
    }
}

#[test]
fn a_rule_that_was_broken_by_hand_after_the_dump_is_a_disagreement() {
    if !available() {
        return;
    }
    let broken = [
        // Of both endpoints, one gets another port.
        "iptables_mode\niptables-nft-save > dump\n\
         sed '/udp.*DNAT --to-destination 10.244..*:53$/ s/:53$/:54/' dump > other\n\
         iptables-nft-restore < other",
        "nftables_mode\nnft list ruleset > dump\n\
         sed 's/: 10.244.1.2 . 53/: 10.244.1.2 . 54/; s/: 10.244.2.2 . 53/: 10.244.2.2 . 54/' dump > other\n\
         nft flush ruleset\nnft -f other",
    ];
    for script in broken {
        let (packets, status) = followed(&format!("{script}\nthree --dump dump"));
        assert_eq!((packets.len(), status.as_str()), (3, "1"), "{script}");
        for packet in &packets {
            assert_eq!(packet["check"]["result"], "disagrees", "{packet}");
            let why = packet["check"]["why"].as_str().unwrap();
            assert!(why.contains("54") && why.contains("trace expects"), "{why}");
        }
        // Over the rules as they are, nothing is strange.
        let (packets, status) = followed(&format!("{script}\nthree"));
        assert_eq!((packets.len(), status.as_str()), (3, "0"), "{script}");
    }
}

/// What somebody does by hand to rules that were as rendered, and what the report of each packet then says.
const BROKEN: [(&str, &str, &str); 9] = [
    (
        "iptables_mode",
        "iptables-nft-save | sed '/udp.*DNAT/ s/to-destination 10.244..*:53$/to-destination 10.9.9.9:53/' > other\n\
         iptables-nft-restore < other",
        "10.9.9.9:53",
    ),
    (
        "iptables_mode",
        "iptables-nft-save | grep -v 'udp.*DNAT --to-destination 10.244..*:53$' > other\niptables-nft-restore < other",
        "DNAT",
    ),
    (
        "iptables_mode",
        "iptables-nft -t nat -D KUBE-SERVICES \"$(iptables-nft -t nat -L KUBE-SERVICES --line-numbers -n \
         | grep 'dns:dns cluster IP' | cut -d ' ' -f 1)\"",
        "KUBE-SVC-",
    ),
    (
        "iptables_mode",
        "iptables-nft -I OUTPUT -d 10.244.0.0/16 -j DROP",
        "DROP",
    ),
    (
        "nftables_mode",
        "nft list ruleset | sed 's/: 10.244.1.2 . 53/: 10.9.9.9 . 53/; s/: 10.244.2.2 . 53/: 10.9.9.8 . 53/' > other\n\
         nft flush ruleset\nnft -f other",
        "10.9.9.",
    ),
    (
        "nftables_mode",
        "nft flush chain ip kube-proxy service/to/0\nnft flush chain ip kube-proxy service/to/1",
        "service/to/",
    ),
    (
        "nftables_mode",
        "nft delete element ip kube-proxy service-within-2 '{ 10.96.0.10 . udp . 53 }'",
        "service-within-2",
    ),
    (
        "nftables_mode",
        "nft insert rule ip kube-proxy filter-output ip daddr 10.244.0.0/16 drop",
        "drop",
    ),
    (
        "nftables_mode",
        "nft delete table ip kube-proxy",
        "no further rule",
    ),
];

#[test]
fn a_host_whose_rules_are_not_what_was_rendered_for_it_disagrees() {
    if !available() {
        return;
    }
    for (mode, harm, word) in BROKEN {
        let (packets, status) = followed(&format!("{mode}\n{harm}\nthree --dump rules"));
        assert_eq!((packets.len(), status.as_str()), (3, "1"), "{harm}");
        for packet in &packets {
            assert_eq!(packet["check"]["result"], "disagrees", "{harm}: {packet}");
            let why = packet["check"]["why"].as_str().unwrap();
            assert!(
                why.contains(word) && why.contains("trace expects"),
                "{harm}: {why}"
            );
        }
    }
    for mode in ["iptables_mode", "nftables_mode"] {
        let (packets, status) = followed(&format!("{mode}\nthree --dump rules"));
        assert_eq!((packets.len(), status.as_str()), (3, "0"), "{mode}");
        let agrees = |packet: &Value| packet["check"]["result"] == "agrees";
        assert!(packets.iter().all(agrees), "{mode}: {packets:?}");
    }
}

#[test]
fn what_changes_while_packets_are_followed_is_no_disagreement() {
    if !available() {
        return;
    }
    let changes = [
        // Endpoints are elements of maps: no rule comes or goes.
        (
            "nftables_mode",
            "for slot in 0 1; do\n\
             echo \"delete element ip kube-proxy service-slot-$slot { 10.96.0.10 . udp . 53 }\"\n\
             echo \"add element ip kube-proxy service-slot-$slot { 10.96.0.10 . udp . 53 : 10.9.9.$slot . 53 }\"\n\
             done | nft -f -",
            "10.9.9.",
        ),
        // The service goes: there is no rule to be met.
        (
            "iptables_mode",
            "iptables-nft-save | grep -v kube-system/dns > other\niptables-nft-restore < other",
            "10.96.0.10:53",
        ),
    ];
    for (mode, change, to) in changes {
        let (packets, status) = followed(&format!(
            "{mode}\nask_first() {{\nask 5000\nuntil [ -s told ]; do sleep 0.05; done\n{change}\n}}\n\
             first=ask_first count=4\nthree"
        ));
        assert_eq!((packets.len(), status.as_str()), (4, "0"), "{change}");
        for packet in &packets {
            assert_eq!(packet["check"]["result"], "agrees", "{change}: {packet}");
        }
        let after = packets[3]["to_after"].as_str().unwrap();
        assert!(after.starts_with(to), "{change}: {after}");
    }
}

#[test]
fn the_client_that_a_packet_itself_put_into_a_list_was_not_known_before() {
    if !available() {
        return;
    }
    // A service with session affinity, whose endpoints change before its first packet comes.
    let (packets, status) = followed(
        "CASE=${CASE%/*}/policy\nnftables_mode\n\
         \"$0\" trace --live --to 10.96.40.7:80 --count 1 --for 20s --output json --check > told 2> said &\n\
         tracer=$!\nfollowed\nfor slot in 0 1; do\n\
         echo \"delete element ip kube-proxy service-slot-$slot { 10.96.40.7 . tcp . 80 }\"\n\
         echo \"add element ip kube-proxy service-slot-$slot { 10.96.40.7 . tcp . 80 : 10.9.9.$slot . 80 }\"\n\
         done | nft -f -\ntimeout 1 socat -u - TCP:10.96.40.7:80 || true\n\
         status=0\nwait $tracer || status=$?\ncat told\necho $status\ncat said >&2",
    );
    assert_eq!((packets.len(), status.as_str()), (1, "0"), "{packets:?}");
    assert_eq!(packets[0]["check"]["result"], "agrees", "{packets:?}");
    // Known at one endpoint, or at the other, or at none and chosen for.
    assert_eq!(packets[0]["check"]["ways"], 4, "{packets:?}");
    assert!(
        words(&packets[0], "text")
            .iter()
            .any(|text| text.contains("numgen")),
        "{packets:?}"
    );
}

#[test]
fn rules_are_told_in_their_own_words_though_others_came_before_them_meanwhile() {
    if !available() {
        return;
    }
    let (packets, _) = followed(
        "iptables_mode\nothers() {\n\
         iptables-nft -t nat -I KUBE-SERVICES -d 192.0.2.1 -j RETURN\n\
         # Rules are read once a second at most.\n\
         sleep 1.2\n}\nfirst=others check=\nthree",
    );
    assert_eq!(packets.len(), 3);
    for packet in &packets {
        let texts = words(packet, "text");
        let leads_on =
            |text: &&str| text.starts_with("-d 10.96.0.10/32 -p udp ") && text.contains("-j KUBE-SVC-");
        assert!(texts.iter().any(leads_on), "{packet}");
        assert!(texts.iter().all(|text| !text.contains("192.0.2.1")), "{packet}");
    }
}

#[test]
fn somebody_else_who_follows_packets_changes_no_answer() {
    if !available() {
        return;
    }
    for mode in ["iptables_mode", "nftables_mode"] {
        let (packets, status) = followed(&format!(
            "{mode}\n\"$0\" trace --live --for 60s --count 1000 > others 2>&1 &\nother=$!\nfollowed\n\
             asked() {{\n\"$0\" trace --from 192.168.50.238 --to 10.96.0.10:53 --proto udp --output json > answer\n}}\n\
             asked\n! grep -q limit answer\n\
             until [ \"$(nft list tables | grep -c kube-proxy-trace)\" = 2 ]; do sleep 0.05; done\n\
             both() {{\nuntil [ \"$(nft list tables | grep -c kube-proxy-trace)\" = 3 ]; do sleep 0.05; done\n}}\n\
             first=both\nthree\nkill $other"
        ));
        assert_eq!((packets.len(), status.as_str()), (3, "0"), "{mode}");
        for packet in &packets {
            assert_eq!(packet["check"]["result"], "agrees", "{mode}: {packet}");
            assert_eq!(packet["check"]["ways"], 2, "{mode}: {packet}");
            assert!(
                !packet.to_string().contains("kube-proxy-trace"),
                "{mode}: {packet}"
            );
        }
    }
}

#[test]
fn killed_it_leaves_nothing_behind() {
    if !available() {
        return;
    }
    let text = said(
        "iptables_mode\n\"$0\" trace --live --for 60s &\ntracer=$!\nfollowed\nnft list tables\n\
         kill -9 $tracer\nwait $tracer || true\nfor _ in $(seq 100); do\n\
         nft list tables | grep -q kube-proxy-trace || exit 0\nsleep 0.05\ndone\nexit 1",
    );
    assert!(text.contains("table ip kube-proxy-trace"), "{text}");
    assert!(text.contains("table ip6 kube-proxy-trace"), "{text}");
}

#[test]
fn it_ends_in_time_and_says_that_nothing_came_by() {
    if !available() {
        return;
    }
    let output = sh("nftables_mode\nexec timeout 20 \"$0\" trace --live --to 10.96.0.10 --for 300ms");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    assert!(error.contains("no packet came by"), "{error}");
}
