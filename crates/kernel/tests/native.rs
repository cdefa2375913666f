//! What `nft` lists of a host, and what is said when it cannot.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use kernel::native::{Elements, list, list_by};
use kernel::printed::ListError;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::{in_namespace, tool};

/// More than any script here needs.
const PATIENCE: Duration = Duration::from_secs(20);

const TABLES: &str = "
table ip kube-proxy {
  set service-within-1 { type ipv4_addr . inet_proto . inet_service; elements = { 10.96.0.1 . tcp . 443 } }
  chain nat-prerouting { type nat hook prerouting priority -100; }
}
table inet firewall {
}
";

#[test]
fn all_tables_of_a_namespace_are_listed_with_their_elements_and_none_of_another() {
    in_namespace(
        "all_tables_of_a_namespace_are_listed_with_their_elements_and_none_of_another",
        || {
            let before = list().unwrap();
            assert_eq!(tables(&before.json), Vec::<String>::new());
            tool(&["nft", "-f", "-"], TABLES);
            let after = list().unwrap();
            assert_eq!(tables(&after.json), ["ip kube-proxy", "inet firewall"]);
            assert_eq!(after.elements, Elements::Listed);
            assert!(after.json.contains("10.96.0.1"), "{}", after.json);
        },
    );
}

fn tables(json: &str) -> Vec<String> {
    let read: Value = serde_json::from_str(json).unwrap();
    let objects = read["nftables"].as_array().unwrap();
    let tables = objects.iter().filter_map(|object| object.get("table"));
    let title = |table: &Value| {
        let word = |name: &str| table[name].as_str().unwrap().to_owned();
        format!("{} {}", word("family"), word("name"))
    };
    tables.map(title).collect()
}

/// A program in place of `nft`.
fn program(folder: &Path, script: &str) -> PathBuf {
    let path = folder.join("nft");
    lab::live::put_program(&path, format!("#!/bin/sh\n{script}\n").as_bytes());
    path
}

#[test]
fn a_list_that_takes_too_long_is_had_without_elements() {
    let folder = tempfile::tempdir().unwrap();
    let slow = program(
        folder.path(),
        "case \"$*\" in '-j -t list ruleset') echo terse ;; *) echo begun; sleep 60 ;; esac",
    );
    let listed = list_by(&slow, Duration::from_secs(2)).unwrap();
    assert_eq!(
        (listed.json.as_str(), listed.elements),
        ("terse\n", Elements::LeftOut)
    );
}

#[test]
fn a_list_that_is_never_done_says_what_was_run_and_how_long() {
    let folder = tempfile::tempdir().unwrap();
    let stuck = program(folder.path(), "sleep 60");
    let error = list_by(&stuck, Duration::from_millis(200)).unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("nft -j -t list ruleset was not done after 200ms"),
        "{said}"
    );
}

#[test]
fn a_refusal_is_told_in_the_words_of_nft_and_a_missing_tool_as_missing() {
    let folder = tempfile::tempdir().unwrap();
    let refusing = program(
        folder.path(),
        "echo 'Operation not permitted (you must be root)' >&2; echo 'netlink: Error: no cache' >&2; exit 1",
    );
    let error = list_by(&refusing, PATIENCE).unwrap_err();
    assert_eq!(
        error.to_string(),
        "nft -j list ruleset failed: Operation not permitted (you must be root) netlink: Error: no cache"
    );
    let missing = list_by(&folder.path().join("not-there"), PATIENCE).unwrap_err();
    assert!(matches!(missing, ListError::NotInstalled { .. }), "{missing}");
}
