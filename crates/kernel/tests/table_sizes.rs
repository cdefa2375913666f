//! The sizes of legacy's tables: which edits they show, and which they do not.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use kernel::table_sizes::{SizeReader, TableSizes};
use model::Family;
use rustix::thread::{CapabilitySet, CapabilitySets};
use support::{in_namespace, own_run, tool};

fn legacy(family: Family, words: &str) {
    let program = match family {
        Family::V4 => "iptables-legacy",
        Family::V6 => "ip6tables-legacy",
    };
    let words: Vec<&str> = std::iter::once(program).chain(words.split(' ')).collect();
    tool(&words, "");
}

/// A chain with a jump to it, in each of the tables that are ours to watch.
fn some_rules(family: Family) {
    own_run();
    for words in [
        "-t mangle -N KUBE-IPTABLES-HINT",
        "-t filter -A INPUT -j ACCEPT",
        "-t nat -N KUBE-SERVICES",
        "-t nat -A PREROUTING -j KUBE-SERVICES",
        "-t nat -A KUBE-SERVICES -p tcp --dport 80 -j ACCEPT",
    ] {
        legacy(family, words);
    }
}

fn sizes(reader: &SizeReader) -> TableSizes {
    reader.read().unwrap()
}

#[test]
fn every_rule_that_comes_or_goes_moves_the_sizes() {
    in_namespace("every_rule_that_comes_or_goes_moves_the_sizes", || {
        own_run();
        for family in Family::ALL {
            some_rules(family);
            let reader = SizeReader::new(family).unwrap();
            let mut before = sizes(&reader);
            assert_eq!(sizes(&reader), before, "they move by themselves");
            for words in [
                "-t nat -D KUBE-SERVICES 1",
                "-t nat -D PREROUTING 1",
                "-t nat -A KUBE-SERVICES -j RETURN",
                "-t nat -F",
                "-t nat -X",
                "-t filter -F",
                "-t mangle -X",
            ] {
                legacy(family, words);
                let after = sizes(&reader);
                assert_ne!(after, before, "{family}: {words} is not seen");
                assert!(
                    after.since(&before).contains("entries ("),
                    "{}",
                    after.since(&before)
                );
                before = after;
            }
        }
    });
}

#[test]
fn asking_for_the_size_of_a_table_makes_it() {
    in_namespace("asking_for_the_size_of_a_table_makes_it", || {
        own_run();
        let tables = || std::fs::read_to_string("/proc/net/ip_tables_names").unwrap_or_default();
        assert!(!tables().contains("nat"), "{}", tables());
        sizes(&SizeReader::new(Family::V4).unwrap());
        assert!(tables().contains("nat"), "{}", tables());
    });
}

#[test]
fn an_edit_that_keeps_number_and_length_is_not_seen() {
    in_namespace("an_edit_that_keeps_number_and_length_is_not_seen", || {
        own_run();
        some_rules(Family::V4);
        let reader = SizeReader::new(Family::V4).unwrap();
        let before = sizes(&reader);
        for words in [
            "-t nat -R KUBE-SERVICES 1 -p tcp --dport 81 -j ACCEPT",
            "-t nat -E KUBE-SERVICES RENAMED",
            "-t filter -P FORWARD DROP",
        ] {
            legacy(Family::V4, words);
            assert_eq!(
                sizes(&reader),
                before,
                "{words} is seen; the documents say that it is not"
            );
        }
    });
}

#[test]
fn net_admin_is_all_that_asking_needs() {
    in_namespace("net_admin_is_all_that_asking_needs", || {
        own_run();
        some_rules(Family::V4);
        let alone = |capability: CapabilitySet| {
            let sets = CapabilitySets {
                effective: capability,
                permitted: capability,
                inheritable: CapabilitySet::empty(),
            };
            // Of one thread: the capabilities go with it.
            std::thread::spawn(move || {
                rustix::thread::set_capabilities(None, sets).unwrap();
                SizeReader::new(Family::V4).unwrap().read().map(drop)
            })
            .join()
            .unwrap()
        };
        alone(CapabilitySet::NET_ADMIN).unwrap();
        let error = alone(CapabilitySet::NET_RAW).unwrap_err();
        assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    });
}
