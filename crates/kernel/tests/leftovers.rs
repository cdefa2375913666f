//! What other modes leave is removed by its name, and nothing beside it.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use kernel::addresses::AddressWatch;
use kernel::leftovers::{
    LinkError, Removal, addresses_of, destroy_set, remove_link, remove_table, remove_virtual_servers,
};
use model::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use support::{in_namespace, tool};

const TABLES: &str = "
table ip kube-proxy {
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 443 : goto one } }
  chain one {
    meta l4proto tcp dnat to 10.244.0.9:6443
  }
  chain nat-prerouting {
    type nat hook prerouting priority -100;
    ip daddr . meta l4proto . th dport vmap @service-ips
  }
}
table ip6 kube-proxy {
}
table inet kube-proxy {
}
table ip kube-proxy-else {
}
";

#[test]
fn the_table_of_one_family_goes_with_all_that_is_in_it_and_no_other() {
    in_namespace(
        "the_table_of_one_family_goes_with_all_that_is_in_it_and_no_other",
        || {
            tool(&["nft", "-f", "-"], TABLES);
            assert_eq!(remove_table(Family::V4, "kube-proxy").unwrap(), Removal::Removed);
            let left = tool(&["nft", "list", "tables"], "");
            let left: Vec<&str> = left.lines().collect();
            assert_eq!(
                left,
                [
                    "table ip6 kube-proxy",
                    "table inet kube-proxy",
                    "table ip kube-proxy-else"
                ]
            );
            assert_eq!(remove_table(Family::V4, "kube-proxy").unwrap(), Removal::NotThere);
        },
    );
}

#[test]
fn a_set_that_a_rule_names_stays_and_says_so_and_others_are_not_touched() {
    in_namespace(
        "a_set_that_a_rule_names_stays_and_says_so_and_others_are_not_touched",
        || {
            for set in ["KUBE-CLUSTER-IP", "KUBE-6-CLUSTER-IP", "MINE"] {
                tool(&["ipset", "create", set, "hash:ip,port"], "");
            }
            tool(&["ipset", "add", "KUBE-CLUSTER-IP", "10.96.0.1,tcp:443"], "");
            let rule = "-t nat -A OUTPUT -m set --match-set KUBE-CLUSTER-IP dst,dst -j ACCEPT";
            let words: Vec<&str> = ["iptables-nft"].into_iter().chain(rule.split(' ')).collect();
            tool(&words, "");
            let error = destroy_set("KUBE-CLUSTER-IP").unwrap_err();
            assert_eq!(error.errno(), Some(netlink::ipset::IN_USE));
            tool(&["iptables-nft", "-t", "nat", "-F"], "");
            assert_eq!(destroy_set("KUBE-CLUSTER-IP").unwrap(), Removal::Removed);
            assert_eq!(destroy_set("KUBE-CLUSTER-IP").unwrap(), Removal::NotThere);
            let left = tool(&["ipset", "list", "-n"], "");
            assert_eq!(
                left.lines().collect::<BTreeSet<_>>(),
                ["KUBE-6-CLUSTER-IP", "MINE"].into()
            );
        },
    );
}

#[test]
fn an_interface_goes_only_when_its_type_is_right() {
    in_namespace("an_interface_goes_only_when_its_type_is_right", || {
        tool(&["ip", "link", "add", "kube-ipvs0", "type", "bridge"], "");
        tool(&["ip", "addr", "add", "10.96.0.1/32", "dev", "kube-ipvs0"], "");
        let at: BTreeSet<IpAddr> = [IpAddr::from([10, 96, 0, 1])].into();
        assert_eq!(addresses_of("kube-ipvs0").unwrap(), at);
        let error = remove_link("kube-ipvs0", "dummy").unwrap_err();
        assert!(
            matches!(&error, LinkError::OtherKind { found, .. } if found == "bridge"),
            "{error}"
        );
        assert_eq!(addresses_of("kube-ipvs0").unwrap(), at);
        // This kernel need not have dummies; the way is the same for any type.
        assert_eq!(remove_link("kube-ipvs0", "bridge").unwrap(), Removal::Removed);
        assert_eq!(remove_link("kube-ipvs0", "bridge").unwrap(), Removal::NotThere);
        assert_eq!(addresses_of("kube-ipvs0").unwrap(), BTreeSet::new());
        // The loopback has no type at all.
        assert!(remove_link("lo", "dummy").is_err());
    });
}

/// Where the kernel has IPVS, the same question finds no server of ours in a new namespace.
#[test]
fn without_virtual_servers_there_is_nothing_to_remove() {
    in_namespace("without_virtual_servers_there_is_nothing_to_remove", || {
        let at: BTreeSet<IpAddr> = [IpAddr::from([10, 96, 0, 1])].into();
        assert_eq!(remove_virtual_servers(&at).unwrap(), []);
    });
}

#[test]
fn addresses_that_come_and_go_are_told_and_links_are_not() {
    in_namespace("addresses_that_come_and_go_are_told_and_links_are_not", || {
        let mut watch = AddressWatch::new().unwrap();
        let told = |watch: &mut AddressWatch| watch.wait(Duration::from_secs(30)).unwrap();
        tool(&["ip", "link", "add", "kprs-b", "type", "bridge"], "");
        assert!(!watch.wait(Duration::ZERO).unwrap());
        for change in ["add", "del"] {
            for address in ["10.9.8.7/24", "fd00::7/64"] {
                let begun = Instant::now();
                tool(&["ip", "addr", change, address, "dev", "kprs-b"], "");
                assert!(
                    told(&mut watch),
                    "{change} {address}, after {:?}",
                    begun.elapsed()
                );
            }
        }
    });
}
