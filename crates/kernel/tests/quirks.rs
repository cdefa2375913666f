//! What iptables 1.8.9 does that one would not guess, each with the backends that do it. `docs/quirks.md` lists them.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use std::process::{Command, Output, Stdio};
use support::{in_namespace, own_run, tool};

/// Restores a text without emptying tables; it may fail.
fn restore(backend: &str, text: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new(format!("iptables-{backend}-restore"))
        .arg("--noflush")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn taken(backend: &str, text: &str) -> bool {
    restore(backend, text).status.success()
}

fn saved(backend: &str, table: &str) -> String {
    tool(&[&format!("iptables-{backend}-save"), "-t", table], "")
}

#[test]
fn inverted_network_of_everything_is_refused_by_nf_tables_and_taken_by_legacy() {
    in_namespace(
        "inverted_network_of_everything_is_refused_by_nf_tables_and_taken_by_legacy",
        || {
            own_run();
            let text = "*nat\n-A POSTROUTING ! -s 0.0.0.0/0 -j ACCEPT\nCOMMIT\n";
            assert!(!taken("nft", text));
            assert!(taken("legacy", text));
        },
    );
}

#[test]
fn tables_of_one_restore_are_committed_in_the_order_of_the_text() {
    in_namespace(
        "tables_of_one_restore_are_committed_in_the_order_of_the_text",
        || {
            own_run();
            let text =
                "*filter\n:FIRST - [0:0]\nCOMMIT\n*nat\n:SECOND - [0:0]\n-A OUTPUT -j NOT-THERE\nCOMMIT\n";
            for backend in ["nft", "legacy"] {
                assert!(!taken(backend, text), "{backend}");
                assert!(saved(backend, "filter").contains(":FIRST"), "{backend}");
                assert!(!saved(backend, "nat").contains(":SECOND"), "{backend}");
            }
        },
    );
}

#[test]
fn builtin_chain_of_nf_tables_is_deleted_without_a_word() {
    in_namespace("builtin_chain_of_nf_tables_is_deleted_without_a_word", || {
        own_run();
        let fill = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\nCOMMIT\n";
        let delete = "*filter\n-F INPUT\n-X INPUT\nCOMMIT\n";
        for backend in ["nft", "legacy"] {
            assert!(taken(backend, fill), "{backend}");
            assert_eq!(taken(backend, delete), backend == "nft", "{backend}");
        }
        // The rules are gone, and with them the chain.
        assert!(!tool(&["nft", "list", "table", "ip", "filter"], "").contains("chain INPUT"));
        assert!(saved("legacy", "filter").contains("-A INPUT -i lo -j ACCEPT"));
    });
}

#[test]
fn comment_is_cut_to_255_bytes_without_a_word() {
    in_namespace("comment_is_cut_to_255_bytes_without_a_word", || {
        own_run();
        let comment = "x".repeat(300);
        let text = format!("*filter\n-A INPUT -m comment --comment {comment} -j ACCEPT\nCOMMIT\n");
        for backend in ["nft", "legacy"] {
            assert!(taken(backend, &text), "{backend}");
            let saved = saved(backend, "filter");
            let kept = saved.chars().filter(|c| *c == 'x').count();
            assert_eq!(kept, 255, "{backend}: {saved}");
        }
    });
}

/// A restore cannot say "make it if it is missing, and leave it alone else".
#[test]
fn chain_line_empties_a_chain_and_a_new_chain_must_not_be_there() {
    in_namespace(
        "chain_line_empties_a_chain_and_a_new_chain_must_not_be_there",
        || {
            own_run();
            for backend in ["nft", "legacy"] {
                let fill = "*filter\n:A - [0:0]\n-A A -j ACCEPT\nCOMMIT\n";
                assert!(taken(backend, fill));
                assert!(!taken(backend, "*filter\n-N A\nCOMMIT\n"), "{backend}");
                assert!(saved(backend, "filter").contains("-A A -j ACCEPT"), "{backend}");
                assert!(taken(backend, "*filter\n:A - [0:0]\nCOMMIT\n"), "{backend}");
                assert!(!saved(backend, "filter").contains("-A A"), "{backend}");
            }
        },
    );
}

#[test]
fn legacy_does_not_look_behind_an_unconditional_verdict() {
    in_namespace("legacy_does_not_look_behind_an_unconditional_verdict", || {
        own_run();
        // MASQUERADE must not be reached from PREROUTING.
        let hidden =
            "*nat\n:A - [0:0]\n-A A -j MASQUERADE\n-A PREROUTING -j ACCEPT\n-A PREROUTING -j A\nCOMMIT\n";
        assert!(!taken("nft", hidden));
        assert!(taken("legacy", hidden));
        // So a deletion may be refused for a rule that has stood there all along.
        assert!(!taken("legacy", "*nat\n-D PREROUTING -j ACCEPT\nCOMMIT\n"));
    });
}
