//! What a host is looked at for, in namespaces: links, routes, rules of policy routing, and what `iptables-save` prints.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use kernel::probe::{Tools, has_legacy_tables};
use kernel::{Backend, links, routes, saved};
use model::Family;
use support::{in_namespace, own_run, tool};

fn ip(words: &str) {
    let mut all = vec!["ip"];
    all.extend(words.split(' '));
    tool(&all, "");
}

#[test]
fn links_have_their_type_their_bridge_and_hairpin_mode() {
    in_namespace("links_have_their_type_their_bridge_and_hairpin_mode", || {
        ip("link add cni0 type bridge");
        for port in ["one", "two"] {
            ip(&format!("link add {port} type veth peer name {port}-far"));
            ip(&format!("link set {port} master cni0"));
        }
        ip("link set two type bridge_slave hairpin on");
        let found = links::links().unwrap();
        let link = |name: &str| found.iter().find(|link| link.name == name).unwrap();
        assert_eq!(link("lo").kind, None);
        let bridge = link("cni0");
        assert_eq!((bridge.kind.as_deref(), bridge.master), (Some("bridge"), None));
        let (one, two) = (link("one"), link("two"));
        assert_eq!(
            (one.kind.as_deref(), one.master),
            (Some("veth"), Some(bridge.index))
        );
        assert_eq!((one.hairpin, two.hairpin), (Some(false), Some(true)));
        assert_eq!(link("one-far").hairpin, None);
    });
}

#[test]
fn routes_of_every_kind_are_printed_as_ip_prints_them() {
    in_namespace("routes_of_every_kind_are_printed_as_ip_prints_them", || {
        ip("link add eth0 type veth peer name far");
        ip("addr add 192.0.2.11/24 dev eth0");
        ip("addr add 2001:db8::11/64 dev eth0 nodad");
        ip("link set eth0 up");
        ip("link set far up");
        ip("route add default via 192.0.2.1 dev eth0");
        ip("route add 10.244.2.0/24 via 192.0.2.12 dev eth0 proto static src 192.0.2.11");
        ip("route add blackhole 10.244.1.0/26 proto bird");
        ip("route add 10.0.0.0/8 dev eth0 table 51820");
        ip("route add throw 10.244.0.0/16 table 51820");
        ip("route add 10.244.3.0/24 nexthop via 192.0.2.13 dev eth0 nexthop via 192.0.2.14 dev eth0");
        ip("-6 route add default via 2001:db8::1 dev eth0");
        let found: Vec<String> = routes::routes()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        for want in [
            "default via 192.0.2.1 dev eth0 proto boot",
            "192.0.2.0/24 dev eth0 proto kernel src 192.0.2.11",
            "10.244.2.0/24 via 192.0.2.12 dev eth0 proto static src 192.0.2.11",
            "blackhole 10.244.1.0/26 proto bird",
            "10.0.0.0/8 dev eth0 table 51820 proto boot",
            "throw 10.244.0.0/16 table 51820 proto boot",
            "10.244.3.0/24 via 192.0.2.13 dev eth0 proto boot",
            "::/0 via 2001:db8::1 dev eth0 proto boot",
            "2001:db8::/64 dev eth0 proto kernel",
        ] {
            assert!(found.iter().any(|line| line == want), "{want}: {found:#?}");
        }
        // Nothing of table local.
        assert!(
            !found.iter().any(|line| line.contains("192.0.2.11/32")),
            "{found:#?}"
        );
    });
}

#[test]
fn rules_of_policy_routing_are_printed_as_ip_prints_them() {
    in_namespace("rules_of_policy_routing_are_printed_as_ip_prints_them", || {
        assert_eq!(routes::rules().unwrap(), []);
        ip("rule add not fwmark 0xca6c table 51820 priority 32765");
        ip("rule add fwmark 0x200/0xf00 table main priority 9");
        ip("-6 rule add fwmark 0x4000/0x4000 table 7 priority 10");
        ip("rule add from 10.0.0.0/8 table 8 priority 11");
        ip("rule add from 10.1.0.7 to 198.51.100.0/24 iif eth9 table 8 priority 12");
        ip("rule add ipproto udp dport 53 table 8 priority 13");
        ip("rule add unreachable fwmark 0x80000/0xff0000 priority 5250");
        ip("rule add table 52 priority 5270");
        ip("rule add table main suppress_prefixlength 0 priority 32764");
        let found: Vec<String> = routes::rules().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "9: from all fwmark 0x200/0xf00 lookup main",
                "10: from all fwmark 0x4000/0x4000 lookup 7",
                "11: from 10.0.0.0/8 lookup 8",
                "12: from 10.1.0.7/32 to 198.51.100.0/24 iif eth9 lookup 8",
                "13: from all and-more lookup 8",
                "5250: from all fwmark 0x80000/0xff0000 unreachable",
                "5270: from all lookup 52",
                "32764: from all lookup main suppress_prefixlength 0",
                "32765: not from all fwmark 0xca6c lookup 51820",
            ]
        );
    });
}

#[test]
fn rules_are_saved_as_the_tools_print_them_and_no_table_is_made_by_asking() {
    in_namespace(
        "rules_are_saved_as_the_tools_print_them_and_no_table_is_made_by_asking",
        || {
            own_run();
            let tools = Tools::find(std::env::var_os("PATH").as_ref(), Vec::new());
            let save = |backend| saved::save(&tools, backend, Family::V4).unwrap();
            assert!(!save(Backend::NfTables).unwrap_or_default().contains("*filter"));
            assert_eq!(save(Backend::Legacy), None);
            assert_eq!(tool(&["nft", "list", "ruleset"], ""), "");
            assert!(!has_legacy_tables(Family::V4));
            tool(&["iptables-nft", "-A", "FORWARD", "-j", "ACCEPT"], "");
            tool(&["iptables-legacy", "-A", "FORWARD", "-j", "DROP"], "");
            assert!(save(Backend::NfTables).unwrap().contains("-A FORWARD -j ACCEPT"));
            assert!(save(Backend::Legacy).unwrap().contains("-A FORWARD -j DROP"));
        },
    );
}
