//! `trace --live` where iptables-legacy keeps the rules: packets are told as on `nf_tables`, and whatever is killed, rules
//! and setting do not stay, or are found.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use serde_json::Value;
use std::process::Output;

/// What scripts do on the node, which has rules of the cluster `clusterip` in legacy.
const NODE: &str = r#"
rules
iptables-legacy-restore < rules
iptables-legacy -t mangle -N KUBE-IPTABLES-HINT
V4=/proc/sys/net/netfilter/nf_log/2
V6=/proc/sys/net/netfilter/nf_log/10
# Waits until packets are followed, as this file says.
followed() {
    for _ in $(seq 400); do
        grep -q 'following up to' "$1" && return 0
        sleep 0.05
    done
    cat "$1" >&2
    return 1
}
# Follows three packets to the DNS service while they are sent.
three() {
    "$0" trace --live --to 10.96.0.10:53 --proto udp --count 3 --for 60s --output json --check "$@" > told 2> said &
    tracer=$!
    followed said
    for port in 5001 5002 5003; do ask "$port"; done
    status=0
    wait "$tracer" || status=$?
    cat told
    echo "status $status"
    cat said >&2
}
# Our own rules, and where traces go.
state() {
    iptables-legacy-save -t raw | grep -c KUBE-PROXY-RS-TRACE || true
    ip6tables-legacy-save -t raw | grep -c KUBE-PROXY-RS-TRACE || true
    cat "$V4" "$V6"
}
# Waits until the state is this again.
again() {
    for _ in $(seq 400); do
        [ "$(state)" = "$1" ] && return 0
        sleep 0.05
    done
    state >&2
    return 1
}
# The watchdog of a trace.
watchdog() {
    for stat in /proc/[0-9]*/stat; do
        read -r line < "$stat" || continue
        rest=${line##*) }
        set -- $rest
        if [ "$2" = "$tracer" ] && tr '\0' ' ' < "${stat%stat}cmdline" | grep -q trace-watchdog; then
            echo "${line%% *}"
            return 0
        fi
    done
    return 1
}
"#;

fn sh(script: &str) -> Output {
    support::sh("-nm", &format!("{NODE}{script}"))
}

fn said(script: &str) -> (String, String) {
    let output = sh(script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{script}: {error}\n{text}");
    (text, error)
}

fn available() -> bool {
    lab::live::available(&["iptables-legacy", "ip6tables-legacy", "nft", "socat"])
}

fn packets(text: &str) -> Vec<Value> {
    let lines = text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn packets_are_told_rule_by_rule_with_what_nat_made_of_them_and_trace_gives_their_ways() {
    if !available() {
        return;
    }
    let (text, error) =
        said("before=$(state)\nthree --manifests \"$CASE/cluster.json\"\n[ \"$(state)\" = \"$before\" ]");
    let packets = packets(&text);
    assert_eq!((packets.len(), text.contains("status 0")), (3, true), "{error}");
    for (packet, port) in packets.iter().zip(["5001", "5002", "5003"]) {
        support::is_told_of_dns(packet, port);
        let steps = packet["steps"].as_array().unwrap();
        let text = |step: &Value| step["text"].as_str().unwrap_or_default().to_owned();
        let of = |field: &str| steps.iter().find(|step| step[field] == packet[field]).map(text);
        assert!(
            of("to_after").unwrap().contains("-j DNAT --to-destination"),
            "{packet}"
        );
        assert!(of("from_after").unwrap().contains("-j MASQUERADE"), "{packet}");
        let marks: Vec<&Value> = steps.iter().filter(|step| step["mark"].is_number()).collect();
        assert_eq!(
            (marks[0]["chain"].as_str(), marks[0]["mark"].as_u64()),
            (Some("KUBE-MARK-MASQ"), Some(0x4000))
        );
        assert!(
            !steps
                .iter()
                .any(|step| step.to_string().contains("KUBE-PROXY-RS-TRACE")),
            "{packet}"
        );
    }
}

#[test]
fn a_rule_that_was_broken_by_hand_after_the_dump_is_a_disagreement_on_legacy() {
    if !available() {
        return;
    }
    // Of both endpoints, one gets another port.
    let broken = "iptables-legacy-save > dump\n\
                  sed '/udp.*DNAT --to-destination 10.244..*:53$/ s/:53$/:54/' dump > other\n\
                  iptables-legacy-restore < other";
    let (text, error) = said(&format!("{broken}\nthree --dump dump"));
    let packets = packets(&text);
    assert_eq!((packets.len(), text.contains("status 1")), (3, true), "{error}");
    for packet in &packets {
        assert_eq!(packet["check"]["result"], "disagrees", "{packet}");
        let why = packet["check"]["why"].as_str().unwrap();
        assert!(why.contains("54") && why.contains("trace expects"), "{why}");
    }
}

#[test]
fn a_dump_that_was_taken_while_packets_were_followed_is_compared_without_our_rules_on_legacy() {
    if !available() {
        return;
    }
    let (text, error) = said(
        "\"$0\" trace --live --to 10.96.0.10:53 --proto udp --for 60s > told 2> said &\ntracer=$!\nfollowed said\n\
         iptables-legacy-save > dump\ngrep -q KUBE-PROXY-RS-TRACE dump\nkill -TERM $tracer\nwait $tracer\nthree --dump dump",
    );
    let packets = packets(&text);
    assert_eq!((packets.len(), text.contains("status 0")), (3, true), "{error}");
    for packet in &packets {
        assert_eq!(packet["check"]["result"], "agrees", "{packet}");
    }
}

#[test]
fn rules_of_the_host_in_raw_are_told_by_the_numbers_that_they_have_without_ours() {
    if !available() {
        return;
    }
    // Rules without a match are called a chain's end by the kernel; here they are rules.
    let (text, error) = said(
        "iptables-legacy -t raw -A OUTPUT -p udp -m comment --comment mine\niptables-legacy -N ODD\n\
         iptables-legacy -A ODD -j RETURN\niptables-legacy -I OUTPUT 1 -j ODD\n\
         iptables-legacy -A OUTPUT -p udp -m udp --dport 53 -j DROP\nthree",
    );
    let packets = packets(&text);
    assert_eq!((packets.len(), text.contains("status 0")), (3, true), "{error}");
    for packet in packets {
        let steps = packet["steps"].as_array().unwrap();
        let find = |table: &str, chain: &str| {
            let is_it = |step: &&Value| step["table"] == table && step["chain"] == chain;
            steps.iter().find(is_it).unwrap_or_else(|| panic!("{packet}"))
        };
        let raw = find("raw", "OUTPUT");
        assert_eq!(
            (raw["number"].as_u64(), raw["text"].as_str()),
            (Some(1), Some("-p udp -m comment --comment mine"))
        );
        let odd = find("filter", "ODD");
        assert_eq!(
            (odd["number"].as_u64(), odd["text"].as_str()),
            (Some(1), Some("-j RETURN"))
        );
        assert_eq!(packet["end"], "dropped", "{packet}");
        assert_eq!(packet["check"]["result"], "agrees", "{packet}");
    }
}

#[test]
fn rules_that_were_changed_while_packets_are_followed_are_told_in_their_new_words() {
    if !available() {
        return;
    }
    // All numbers of the first chain move by one behind the first packet; packets are sent until one is told with certainty.
    let (text, error) = said(
        "\"$0\" trace --live --to 10.96.0.10:53 --proto udp --count 1000 --for 60s --output json --check > told 2> said &\n\
         tracer=$!\nfollowed said\nask 5001\nfor _ in $(seq 400); do [ -s told ] && break; sleep 0.05; done\n\
         iptables-legacy -t nat -I OUTPUT 1 -p udp -m comment --comment first\n\
         for port in $(seq 5002 5300); do\nask $port\nsleep 0.1\n\
         grep '\"rules_certain\":true' told | grep -q 'comment first' && break\ndone\nkill -TERM $tracer\nwait $tracer\ncat told",
    );
    let packets = packets(&text);
    let certain: Vec<&Value> = packets
        .iter()
        .filter(|packet| packet["rules_certain"] == true)
        .collect();
    let first = |packet: &Value| {
        let mut steps = packet["steps"].as_array().unwrap().iter();
        steps.find(|step| step["table"] == "nat").unwrap()["text"].clone()
    };
    let [before, after @ ..] = &certain[..] else {
        panic!("{error}")
    };
    assert_eq!(
        first(before),
        "-m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES"
    );
    assert!(!after.is_empty(), "{text}\n{error}");
    for packet in after {
        assert_eq!(first(packet), "-p udp -m comment --comment first", "{packet}");
    }
    for packet in &packets {
        let expected = if packet["rules_certain"] == true {
            "agrees"
        } else {
            "not-compared"
        };
        assert_eq!(packet["check"]["result"], expected, "{packet}");
    }
}

#[test]
fn killed_it_leaves_nothing_behind_on_legacy() {
    if !available() {
        return;
    }
    for signal in ["KILL", "INT", "TERM"] {
        let (text, error) = said(&format!(
            "before=$(state)\nset -m\n\"$0\" trace --live --for 60s > told 2> said &\ntracer=$!\nfollowed said\nstate\n\
             kill -{signal} $tracer\nwait $tracer || true\nagain \"$before\""
        ));
        // A jump from both hooks, the chain and its rule, of both families.
        assert_eq!(text, "4\n4\nnfnetlink_log\nnfnetlink_log\n", "{signal}: {error}");
    }
}

#[test]
fn rules_that_come_after_the_tool_was_killed_do_not_stay() {
    if !available() {
        return;
    }
    // A restore that waits for the lock goes on when nobody waits for it any more.
    said(
        r#"
before=$(state)
mkdir bin
cat > bin/iptables-legacy-restore <<LATE
#!/bin/sh
if [ -e late ]; then exec $(command -v iptables-legacy-restore) "\$@"; fi
touch late
sleep 2
$(command -v iptables-legacy-restore) "\$@"
touch came
LATE
chmod +x bin/iptables-legacy-restore
for tool in iptables-legacy iptables-legacy-save; do ln -s "$(command -v $tool)" bin/$tool; done
PATH=$PWD/bin:$PATH "$0" trace --live --to 10.96.0.10:53 --for 60s > told 2> said &
tracer=$!
until_there() {
    for _ in $(seq 800); do [ -e "$1" ] && return 0; sleep 0.05; done
    return 1
}
until_there late
dog=$(watchdog)
kill -KILL $tracer
until_there came
for _ in $(seq 800); do [ -e /proc/$dog ] || break; sleep 0.05; done
[ ! -e /proc/$dog ]
again "$before"
"#,
    );
}

#[test]
fn rules_go_as_soon_as_they_can_where_somebody_holds_the_lock_for_long() {
    if !available() {
        return;
    }
    // For longer than a tool waits for it.
    said(
        r#"
before=$(state)
"$0" trace --live --to 10.96.0.10:53 --for 60s > told 2> said &
tracer=$!
followed said
flock /run/xtables.lock sleep 7 &
while flock -n /run/xtables.lock true; do sleep 0.05; done
kill -KILL $tracer
wait $tracer || true
again "$before"
"#,
    );
}

#[test]
fn a_stopped_tool_does_not_trace_beyond_its_time() {
    if !available() {
        return;
    }
    said(
        "before=$(state)\n\"$0\" trace --live --for 1s > told 2> said &\ntracer=$!\nfollowed said\nkill -STOP $tracer\n\
         again \"$before\"\nkill -KILL $tracer",
    );
}

#[test]
fn rules_that_take_long_to_read_do_not_cost_the_time_of_the_trace() {
    if !available() {
        return;
    }
    // The watchdog is on guard, with a second and a little more, before all rules are read.
    let (text, error) = said(
        r#"
before=$(state)
mkdir bin
cat > bin/iptables-legacy-save <<SLOW
#!/bin/sh
case "\$*" in *raw*) ;; *) sleep 8 ;; esac
exec $(command -v iptables-legacy-save) "\$@"
SLOW
chmod +x bin/iptables-legacy-save
for tool in iptables-legacy iptables-legacy-restore; do ln -s "$(command -v $tool)" bin/$tool; done
PATH=$PWD/bin:$PATH "$0" trace --live --to 10.96.0.10:53 --for 1s > told 2> said || echo "status $?"
cat said >&2
[ "$(state)" = "$before" ]
"#,
    );
    assert_eq!(text, "", "{error}");
    assert!(error.contains("no packet came by"), "{error}");
}

#[test]
fn without_its_watchdog_the_tool_ends_and_cleans_up_itself() {
    if !available() {
        return;
    }
    let (text, _) = said(
        "before=$(state)\n\"$0\" trace --live --for 60s > told 2> said &\ntracer=$!\nfollowed said\nkill -KILL \"$(watchdog)\"\n\
         status=0\nwait $tracer || status=$?\necho \"status $status\"\ncat said\nagain \"$before\"",
    );
    assert!(text.contains("status 2"), "{text}");
    assert!(text.contains("the process that cleans up has ended"), "{text}");
}

/// Kills both.
const BOTH: &str = "before=$(state)\n\"$0\" trace --live --for 60s > told 2> said &\ntracer=$!\nfollowed said\ndog=$(watchdog)\n\
                    kill -STOP $dog\nkill -KILL $tracer $dog\nwait $tracer || true\n";

#[test]
fn what_stays_when_both_were_killed_is_found_by_doctor_and_removed_by_the_next_trace() {
    if !available() {
        return;
    }
    let (text, error) = said(&format!(
        "{BOTH}state\n\"$0\" doctor --output json > report || true\ncat report\n\
         \"$0\" trace --live --for 100ms > passed\nagain \"$before\""
    ));
    let (state, report) = text.split_once('{').unwrap();
    assert_eq!(state, "4\n4\nnfnetlink_log\nnfnetlink_log\n");
    let report: Value = serde_json::from_str(&format!("{{{report}")).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let left = findings.iter().find(|finding| finding["id"] == "trace-left");
    let left = left.unwrap_or_else(|| panic!("{report}")).to_string();
    for word in [
        "KUBE-PROXY-RS-TRACE",
        "trace --live --for 1s",
        "net.netfilter.nf_log.2=nf_log_ipv4",
    ] {
        assert!(left.contains(word), "{word}: {left}");
    }
    assert!(
        error.contains("an earlier trace --live had left its rules"),
        "{error}"
    );
}

#[test]
fn what_stays_when_both_were_killed_is_removed_by_cleanup() {
    if !available() {
        return;
    }
    let (_, error) = said(&format!("{BOTH}\"$0\" --cleanup\nagain \"$before\""));
    assert!(
        error.contains("rules of trace --live in table raw (IPv4)"),
        "{error}"
    );
}

#[test]
fn two_at_once_do_not_harm_each_other() {
    if !available() {
        return;
    }
    let (text, error) = said(
        "before=$(state)\n\"$0\" trace --live --to 10.96.0.10:53 --proto udp --count 1 --for 60s --output json > told 2> said &\n\
         tracer=$!\nfollowed said\nduring=$(state)\nstatus=0\n\"$0\" trace --live --for 1s || status=$?\necho \"status $status\"\n\
         status=0\n\"$0\" --cleanup 2> cleaned || status=$?\necho \"cleanup $status\"\ncat cleaned >&2\n\
         [ \"$(state)\" = \"$during\" ]\niptables-legacy-restore < rules\nask 5001\nwait $tracer\ncat told\nagain \"$before\"",
    );
    assert!(text.contains("status 2") && text.contains("cleanup 1"), "{text}");
    assert!(error.contains("another trace --live"), "{error}");
    assert_eq!(packets(&text).len(), 1, "{text}");
}

#[test]
fn where_the_kernel_or_the_host_does_not_allow_it_that_is_said_and_nothing_stays() {
    if !available() {
        return;
    }
    let hindered = [
        // As in a container.
        (
            "mount -o bind,ro /proc/sys /proc/sys",
            "a /proc/sys that can be written to",
        ),
        // A tool that refuses, as it does without the module.
        (
            "mkdir bin\nprintf '#!/bin/sh\\necho \"Couldn'\"'\"'t load target TRACE\" >&2; exit 2\\n' > bin/iptables-legacy-restore\n\
             chmod +x bin/iptables-legacy-restore\nfor tool in iptables-legacy iptables-legacy-save; do ln -s \"$(command -v $tool)\" bin/$tool; done\n\
             export PATH=$PWD/bin:$PATH",
            "xt_TRACE",
        ),
    ];
    for (hindrance, word) in hindered {
        let (text, error) = said(&format!(
            "{hindrance}\nbefore=$(state)\nstatus=0\n\"$0\" trace --live --to 10.96.0.10:53 --for 1s || status=$?\n\
             echo \"status $status\"\nagain \"$before\""
        ));
        assert!(text.contains("status 2"), "{word}: {text}{error}");
        assert!(error.contains(word), "{word}: {error}");
    }
}
