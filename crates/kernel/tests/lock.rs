//! Somebody holds the lock of iptables-legacy, as kubelet or a firewall script does for a moment.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use iptables::ast::{ChainName, TableName};
use iptables::plan::{Step, TableWrite};
use kernel::{Backend, FailureKind, RuleKernel, Scope};
use model::Family;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use support::{in_namespace, live_with, observed};

/// A lock that is let go when this is dropped.
fn hold(path: &Path) -> File {
    let file = File::create(path).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}

fn step(chain: &str) -> Step {
    let chains = [(ChainName::new(chain).unwrap(), Vec::new())].into();
    Step {
        write: [(
            TableName::Filter,
            TableWrite {
                chains,
                ..TableWrite::default()
            },
        )]
        .into(),
        ..Step::default()
    }
}

#[test]
fn held_lock_is_waited_for_and_then_told_as_busy() {
    in_namespace("held_lock_is_waited_for_and_then_told_as_busy", || {
        // The lock's place is the machine's; a file of our own keeps out of everybody's way.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("xtables.lock");
        let environment = vec![("XTABLES_LOCKFILE".into(), path.clone().into())];
        let mut kernel = live_with(Backend::Legacy, environment);

        let lock = hold(&path);
        let begun = Instant::now();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(2));
            drop(lock);
        });
        assert_eq!(kernel.commit(Family::V4, &step("A")), Ok(()));
        assert!(begun.elapsed() >= Duration::from_secs(2), "it did not wait");
        holder.join().unwrap();

        let before = observed(&mut kernel, Family::V4, &Scope::Everything).unwrap();
        let lock = hold(&path);
        let error = kernel.commit(Family::V4, &step("B")).unwrap_err();
        assert_eq!(error.kind, FailureKind::Busy, "{error}");
        drop(lock);
        assert_eq!(
            observed(&mut kernel, Family::V4, &Scope::Everything).unwrap(),
            before
        );
        assert_eq!(kernel.commit(Family::V4, &step("B")), Ok(()));
    });
}

#[test]
fn nf_tables_takes_no_lock() {
    in_namespace("nf_tables_takes_no_lock", || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("xtables.lock");
        let environment = vec![("XTABLES_LOCKFILE".into(), path.clone().into())];
        let mut kernel = live_with(Backend::NfTables, environment);
        let lock = hold(&path);
        assert_eq!(kernel.commit(Family::V4, &step("A")), Ok(()));
        drop(lock);
    });
}
