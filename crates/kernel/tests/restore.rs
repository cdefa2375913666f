//! Restores that do not do what they say, and what is kept of those that fail.

#![allow(clippy::unwrap_used, reason = "in a test, what is not there is a failure")]

mod support;

use iptables::ast::{ChainName, Rule, TableName, Target};
use iptables::plan::{Step, TableWrite};
use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, FailedInputs, FailureKind, LiesIn, LiveKernel, RuleKernel, Scope};
use model::Family;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::path::Path;
use support::{in_namespace, observed, own_run};

/// A chain with one rule.
fn step(chain: &str, target: Target) -> Step {
    let chains = [(ChainName::new(chain).unwrap(), vec![Rule::new(target)])].into();
    let write = TableWrite {
        chains,
        ..TableWrite::default()
    };
    Step {
        write: [(TableName::Filter, write)].into(),
        ..Step::default()
    }
}

/// Puts a stand-in before the real tool, which acts while the file `on` is there.
fn stand_in(folder: &Path, tool: &str, act: &str) {
    let file = folder.join(tool);
    let on = folder.join("on");
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *--version*) exec /usr/sbin/{tool} \"$@\";; esac\n\
         if [ -e {} ]; then {act}; fi\nexec /usr/sbin/{tool} \"$@\"\n",
        on.display()
    );
    lab::live::put_program(&file, script.as_bytes());
}

fn kernel_with(folder: &Path, backend: Backend) -> (LiveKernel, FailedInputs) {
    let mut path = folder.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let tools = Tools::find(Some(&path), vec![]);
    let probe = Probe::new(&tools, Choice::Use(backend)).expect("the tools are installed");
    let failed = FailedInputs::default();
    (LiveKernel::new(probe).keeping(failed.clone()), failed)
}

#[test]
fn a_restore_that_does_nothing_is_no_success() {
    in_namespace("a_restore_that_does_nothing_is_no_success", || {
        let folder = tempfile::tempdir().unwrap();
        stand_in(folder.path(), "iptables-nft-restore", "cat >/dev/null; exit 0");
        let (mut kernel, failed) = kernel_with(folder.path(), Backend::NfTables);
        kernel.commit(Family::V4, &step("A", Target::Accept)).unwrap();
        assert!(failed.last(Family::V4).is_none());

        fs::write(folder.path().join("on"), "").unwrap();
        let error = kernel.commit(Family::V4, &step("B", Target::Accept)).unwrap_err();
        assert_eq!(error.kind, FailureKind::NothingDone, "{error}");
        assert!(error.to_string().contains("as they were"), "{error}");
        let kept = failed.last(Family::V4).unwrap();
        assert!(kept.input.contains("-A B -j ACCEPT"), "{}", kept.input);

        fs::remove_file(folder.path().join("on")).unwrap();
        kernel.commit(Family::V4, &step("B", Target::Accept)).unwrap();
        let rules = observed(&mut kernel, Family::V4, &Scope::Everything).unwrap();
        let chain = &rules.tables[&TableName::Filter].chains[&ChainName::new("B").unwrap()];
        assert_eq!(chain.rules.len(), 1);
        // The same again is a write all the same, and not nothing.
        kernel.commit(Family::V4, &step("B", Target::Accept)).unwrap();
    });
}

#[test]
fn what_a_failing_restore_was_given_is_kept() {
    in_namespace("what_a_failing_restore_was_given_is_kept", || {
        own_run();
        for backend in [Backend::NfTables, Backend::Legacy] {
            let folder = tempfile::tempdir().unwrap();
            let (mut kernel, failed) = kernel_with(folder.path(), backend);
            let nowhere = Target::Jump(ChainName::new("NOWHERE").unwrap());
            let error = kernel.commit(Family::V6, &step("A", nowhere)).unwrap_err();
            let kept = failed.last(Family::V6).unwrap();
            assert!(
                kept.input.contains("-A A -j NOWHERE"),
                "{backend}: {}",
                kept.input
            );
            assert_eq!((kept.error, kept.cut), (error, 0), "{backend}");
            assert!(failed.last(Family::V4).is_none());
        }
    });
}

#[test]
fn a_tool_that_prints_without_end_is_ended_and_no_rule_is_blamed() {
    in_namespace(
        "a_tool_that_prints_without_end_is_ended_and_no_rule_is_blamed",
        || {
            for act in ["exec yes", "yes >&2 & exec yes"] {
                let folder = tempfile::tempdir().unwrap();
                stand_in(folder.path(), "iptables-nft-restore", act);
                let (mut kernel, _) = kernel_with(folder.path(), Backend::NfTables);
                fs::write(folder.path().join("on"), "").unwrap();
                let error = kernel.commit(Family::V4, &step("A", Target::Accept)).unwrap_err();
                assert_eq!(error.kind.lies_in(), LiesIn::Host, "{error}");
                assert!(error.to_string().contains("printed more than"), "{error}");

                fs::remove_file(folder.path().join("on")).unwrap();
                kernel.commit(Family::V4, &step("A", Target::Accept)).unwrap();
            }
        },
    );
}

/// From none that can be opened to all that are needed, by this process or the tool.
#[test]
fn too_few_files_are_the_hosts_fault_and_the_limit_is_named() {
    in_namespace("too_few_files_are_the_hosts_fault_and_the_limit_is_named", || {
        for backend in [Backend::NfTables, Backend::Legacy] {
            let folder = tempfile::tempdir().unwrap();
            own_run();
            let (mut kernel, _) = kernel_with(folder.path(), backend);
            kernel.commit(Family::V4, &step("A", Target::Accept)).unwrap();
            let whole = getrlimit(Resource::Nofile);
            let mut failures = 0;
            for limit in 0..40 {
                let few = Rlimit {
                    current: Some(limit),
                    ..whole
                };
                setrlimit(Resource::Nofile, few).unwrap();
                let ended = kernel.commit(Family::V4, &step("B", Target::Accept));
                setrlimit(Resource::Nofile, whole).unwrap();
                if let Err(error) = ended {
                    println!("{backend} {limit} {:?} {error}", error.kind);
                    assert_eq!(error.kind.lies_in(), LiesIn::Host, "{limit}: {error}");
                    assert!(error.to_string().contains("LimitNOFILE"), "{limit}: {error}");
                    failures += 1;
                }
            }
            assert!((1..40).contains(&failures), "{failures} of 40 failed");
            kernel.commit(Family::V4, &step("C", Target::Accept)).unwrap();
        }
    });
}
