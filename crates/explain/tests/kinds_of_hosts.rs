//! Faults of hosts as kinds: what the folders of `scenarios` show one shape of, in others, and what only looks like them.

#[path = "support/small_host.rs"]
mod small_host;

use explain::Reach;
use serde_json::json;
use small_host::{Host, NONE};

#[test]
fn any_jump_into_kube_proxys_chains_may_be_gone_and_may_go_through_others() {
    let with = |nat| {
        Host {
            nat,
            ..Host::healthy()
        }
        .told()
    };
    assert_eq!(Host::healthy().told(), NONE);
    for (nat, place) in [
        (
            "-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n",
            "PREROUTING",
        ),
        (
            "-A PREROUTING -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n",
            "OUTPUT",
        ),
        (
            "-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n",
            "POSTROUTING",
        ),
    ] {
        assert_eq!(with(nat), ["jump-missing"], "{place}");
        let report = Host {
            nat,
            ..Host::healthy()
        }
        .report();
        assert!(
            report.findings[0].what.contains(place),
            "{}",
            report.findings[0].what
        );
    }
    let through = "-A PREROUTING -j MINE\n-A MINE -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n";
    assert_eq!(with(through), NONE);
}

#[test]
fn who_sends_packets_for_services_elsewhere_is_told_whatever_the_tool() {
    let jumps = Host::healthy().nat;
    let host = |nat: String, native: &'static str| {
        let nat: &'static str = nat.leak();
        Host {
            nat,
            native,
            ..Host::healthy()
        }
        .told()
    };
    let before = "-A PREROUTING -i cni0 -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 3128\n";
    assert_eq!(host(format!("{before}{jumps}"), ""), ["foreign-dnat"]);
    // Behind ours it never sees a Service's packet.
    assert_eq!(host(format!("{jumps}{before}"), ""), NONE);
    let of_host = "-A OUTPUT -p tcp -m tcp --dport 80 -j DNAT --to-destination 127.0.0.1:3128\n";
    assert_eq!(host(format!("{of_host}{jumps}"), ""), ["foreign-dnat"]);
    let native = "table ip proxy {\n\tchain pre {\n\t\ttype nat hook prerouting priority -110; policy accept;\n\
                  \t\ttcp dport 80 dnat to 192.0.2.99:3128\n\t}\n}\n";
    assert_eq!(host(jumps.to_owned(), native), ["foreign-dnat"]);
}

#[test]
fn node_ports_that_are_closed_for_some_are_nobodys_fault() {
    let mangle = |rule: &'static str| {
        Host {
            mangle: rule,
            ..Host::healthy()
        }
        .told()
    };
    assert_eq!(
        mangle("-A PREROUTING -p tcp -m tcp --dport 30080 -j DROP\n"),
        ["node-port-dropped"]
    );
    assert_eq!(
        mangle("-A PREROUTING ! -s 192.0.2.0/24 -p tcp -m tcp --dport 30000:32767 -j DROP\n"),
        NONE
    );
    assert_eq!(
        mangle("-A PREROUTING -i cni0 -p tcp -m tcp --dport 30000:32767 -j DROP\n"),
        NONE
    );
    let native = |native| {
        Host {
            native,
            ..Host::healthy()
        }
        .told()
    };
    let early = "table inet hard {\n\tchain pre {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\
                 \t\ttcp dport 30000-32767 drop\n\t}\n}\n";
    assert_eq!(native(early), ["node-port-dropped"]);
    // Rules of INPUT do not see what was translated.
    let late = "table inet hard {\n\tchain in {\n\t\ttype filter hook input priority 0; policy accept;\n\
                \t\ttcp dport 30000-32767 drop\n\t}\n}\n";
    assert_eq!(native(late), NONE);
}

#[test]
fn a_filter_of_what_the_host_sends_is_told_by_either_tool() {
    let jump = Host::healthy().filter;
    let filter = |rules: &str| {
        let filter: &'static str = format!("{jump}{rules}").leak();
        Host {
            filter,
            ..Host::healthy()
        }
        .told()
    };
    let drop = "-A OUTPUT -o eth0 -p tcp -m tcp --dport 8080 -j DROP\n";
    assert_eq!(filter(drop), ["host-traffic-dropped"]);
    assert_eq!(
        filter(&format!("-A OUTPUT -d 10.244.0.0/16 -j ACCEPT\n{drop}")),
        NONE
    );
    // What it says of the Service's port is never asked.
    assert_eq!(filter("-A OUTPUT -p tcp -m tcp --dport 80 -j DROP\n"), NONE);
}

/// What a set holds, how many came before, what the time is, who sends, and whether the way back is the same.
#[test]
fn a_rule_that_asks_what_nobody_told_is_no_fault_unless_nothing_gets_past_it() {
    let jump = Host::healthy().filter;
    let host = |rules: &str, mangle: &'static str| {
        let filter: &'static str = format!("{rules}{jump}").leak();
        Host {
            filter,
            mangle,
            ..Host::healthy()
        }
    };
    let asks = [
        "-m set --match-set blocklist dst -j DROP",
        "-m set ! --match-set allowed src -j REJECT --reject-with icmp-port-unreachable",
        "-p tcp -m connlimit --connlimit-above 500 --connlimit-mask 32 --connlimit-saddr -j DROP",
        "-m hashlimit --hashlimit-above 1000/sec --hashlimit-burst 100 --hashlimit-name x -j DROP",
        "-m time --timestart 03:00:00 --timestop 04:00:00 -j DROP",
        "-m string --string evil --algo bm --to 65535 -j DROP",
    ];
    for words in asks {
        let rules = format!("-A FORWARD {words}\n-A OUTPUT {words}\n");
        assert_eq!(host(&rules, "").told(), NONE, "{words}");
        let shut = format!("{rules}-A FORWARD -j DROP\n");
        let told = host(&shut, "").told();
        assert!(told.contains(&"pod-traffic-dropped"), "{words}: {told:?}");
    }
    let of_some = "-A OUTPUT -m owner --uid-owner 65534 -j REJECT --reject-with icmp-port-unreachable\n";
    assert_eq!(host(of_some, "").told(), NONE);
    let way_back = "-A PREROUTING -m rpfilter --validmark --invert -j DROP\n";
    assert_eq!(host("", way_back).told(), NONE);
    let answer = host("", way_back).answer("pod:10.244.1.5", "10.96.8.10:80");
    assert_eq!(answer.reach, Reach::Yes, "{:?}", answer.findings);
    let remark = answer
        .findings
        .iter()
        .find(|finding| finding.cause.as_str() == "foreign-rule");
    let remark = remark.expect("it is told, since it may be");
    assert_eq!(remark.severity, explain::Severity::Remark);
    assert!(remark.why.contains("-m rpfilter"), "{}", remark.why);
}

/// Asked about one packet, `explain` names the same causes, and does not take them for kube-proxy's doing.
#[test]
fn what_keeps_a_packet_from_kube_proxys_rules_is_named_before_the_rules_are_blamed() {
    let objects = vec![
        json!({"kind": "Service", "metadata": {"name": "cart", "namespace": "shop"}, "spec": {"type": "NodePort",
            "clusterIP": "10.96.8.10", "clusterIPs": ["10.96.8.10"], "ports": [{"name": "http", "port": 80, "nodePort": 30080}]}}),
        json!({"kind": "EndpointSlice", "metadata": {"name": "cart-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"}},
            "addressType": "IPv4", "ports": [{"name": "http", "port": 8080}], "endpoints": [{"addresses": ["10.244.2.9"], "conditions": {}}]}),
    ];
    let jumps = Host::healthy().nat;
    let asked = |host: Host, from: &str, to: &str| {
        let host = Host {
            objects: objects.clone(),
            ..host
        };
        let answer = host.answer(from, to);
        let kinds: Vec<&str> = answer
            .findings
            .iter()
            .map(|finding| finding.cause.as_str())
            .collect();
        assert!(!kinds.contains(&"rules-differ"), "{kinds:?}");
        (kinds.first().copied().unwrap_or_default(), answer.reach)
    };
    let (pod, cluster_ip) = ("pod:10.244.1.5", "10.96.8.10:80");
    assert_eq!(asked(Host::healthy(), pod, cluster_ip), ("", Reach::Yes));
    let nat = "-A OUTPUT -j KUBE-SERVICES\n-A POSTROUTING -j KUBE-POSTROUTING\n";
    let gone = || Host {
        nat,
        ..Host::healthy()
    };
    assert_eq!(asked(gone(), pod, cluster_ip), ("jump-missing", Reach::No));
    // Processes of the host go by OUTPUT, whose jump is there.
    assert_eq!(asked(gone(), "node", cluster_ip).1, Reach::Yes);
    let nat: &'static str =
        format!("-A PREROUTING -p tcp -m tcp --dport 80 -j DNAT --to-destination 192.0.2.99:3128\n{jumps}")
            .leak();
    let redirected = Host {
        nat,
        ..Host::healthy()
    };
    assert_eq!(asked(redirected, pod, cluster_ip), ("foreign-dnat", Reach::No));
    let mangle = "-A PREROUTING -i cni0 -p tcp -m tcp --dport 80 -j DROP\n";
    let dropped = Host {
        mangle,
        ..Host::healthy()
    };
    assert_eq!(asked(dropped, pod, cluster_ip), ("foreign-rule", Reach::No));
}

/// A healthy host with a policy that drops.
fn with_policy(table: &str, chain: &str) -> Host {
    let policy = format!(":{chain} DROP [0:0]\n");
    let healthy = Host::healthy();
    match table {
        "filter" => Host {
            filter: format!("{policy}{}", healthy.filter).leak(),
            ..healthy
        },
        "mangle" => Host {
            mangle: policy.leak(),
            ..healthy
        },
        other => Host {
            mangle: format!("COMMIT\n*{other}\n{policy}").leak(),
            ..healthy
        },
    }
}

#[test]
fn a_policy_that_drops_what_the_host_sends_is_named_with_its_own_table_and_chain() {
    for (table, chain) in [
        ("filter", "OUTPUT"),
        ("mangle", "OUTPUT"),
        ("mangle", "POSTROUTING"),
        ("raw", "OUTPUT"),
    ] {
        let report = with_policy(table, chain).report();
        let mut all = report.findings.iter();
        let found = all.find(|finding| finding.cause.as_str() == "host-traffic-dropped");
        let told = format!("{:?}", found.expect("it is found"));
        assert!(told.contains(&format!("policy of {table} {chain}")), "{told}");
        assert!(told.contains(&format!("iptables -t {table} -")), "{told}");
    }
}

/// A policy may be in any table; what would accept packets is a rule of that table and chain.
#[test]
fn a_policy_that_drops_is_named_with_its_own_table_and_chain() {
    for (table, chain) in [
        ("filter", "FORWARD"),
        ("mangle", "PREROUTING"),
        ("mangle", "FORWARD"),
        ("mangle", "POSTROUTING"),
        ("raw", "PREROUTING"),
        ("security", "FORWARD"),
    ] {
        let host = with_policy(table, chain);
        let of_table = match table {
            "filter" => String::new(),
            other => format!("-t {other} "),
        };
        let report = host.report();
        let first = report.findings.first().expect("it is found");
        let advice = first.advice.iter().map(|advice| advice.action.as_str());
        let told: String = [&*first.what, &*first.why].into_iter().chain(advice).collect();
        assert_eq!(
            first.cause.as_str(),
            "pod-traffic-dropped",
            "{table} {chain}: {told}"
        );
        assert!(told.contains(&format!("policy of {table} {chain}")), "{told}");
        let accepts = format!("iptables {of_table}-A {chain} -s ");
        assert!(told.contains(&accepts), "{table} {chain}: {told}");
        let answer = host.answer("10.244.1.254", "shop/cart");
        let told = format!("{:?}", answer.findings);
        assert!(told.contains(&format!("policy of {table} {chain}")), "{told}");
        assert!(told.contains(&accepts), "{table} {chain}: {told}");
    }
}

/// Sources by a range or a set: what is known decides, and what a set holds is not known.
#[test]
fn sources_by_a_range_decide_and_those_of_a_set_are_left_open() {
    let with = |rule: &str| {
        let filter = format!("-A FORWARD {rule} -j DROP\n{}", Host::healthy().filter);
        Host {
            filter: filter.leak(),
            ..Host::healthy()
        }
    };
    for (rule, is_stopped) in [
        ("-m iprange --src-range 10.244.1.200-10.244.1.255", Some(true)),
        ("-m iprange ! --src-range 10.244.1.200-10.244.1.255", Some(false)),
        ("-m iprange --src-range 10.244.1.0-10.244.1.9", Some(false)),
        ("-m iprange --dst-range 10.244.2.0-10.244.2.20", Some(true)),
        (
            "-m iprange --src-range 10.244.1.0-10.244.1.255 --dst-range 10.244.2.0-10.244.2.20",
            Some(true),
        ),
        ("-m set --match-set blocked src", None),
        ("-m set ! --match-set allowed src", None),
        ("-m set --match-set blocked src,dst", None),
    ] {
        let host = with(rule);
        let told = host.told();
        let answer = host.answer("10.244.1.254", "shop/cart");
        let words = format!("{:?}", answer.findings);
        match is_stopped {
            Some(true) => {
                assert_eq!(told.first().copied(), Some("pod-traffic-dropped"), "{rule}");
                assert_eq!(answer.reach, Reach::No, "{rule}: {words}");
            }
            Some(false) => {
                assert_eq!(told, NONE, "{rule}");
                assert_eq!(
                    (answer.reach, answer.findings.len()),
                    (Reach::Yes, 0),
                    "{rule}: {words}"
                );
            }
            None => {
                assert_eq!(told, NONE, "{rule}");
                assert_eq!(answer.reach, Reach::Yes, "{rule}: {words}");
                assert!(words.contains("hangs on what nobody told"), "{rule}: {words}");
            }
        }
    }
}

/// A rule may be about the addresses of some pods: those that rules send to are tried, too.
#[test]
fn what_drops_some_pods_only_is_found_where_their_addresses_are_known() {
    let told = |range: &str| {
        let healthy = Host::healthy();
        let local = "-A KUBE-SEP-LOCAL -p tcp -m tcp -j DNAT --to-destination 10.244.1.5:8080\n";
        Host {
            nat: format!("{}{local}", healthy.nat).leak(),
            filter: format!(
                "-A FORWARD -m iprange --src-range {range} -j DROP\n{}",
                healthy.filter
            )
            .leak(),
            ..healthy
        }
        .told()
    };
    assert_eq!(told("10.244.1.2-10.244.1.99"), ["pod-traffic-dropped"]);
    assert_eq!(told("10.244.1.100-10.244.1.110"), NONE);
}
