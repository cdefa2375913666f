//! A network namespace of one's own, for tests that write rules.
//!
//! A test runs itself again under util-linux' `unshare` and does its work there. Nothing of the machine's own network
//! namespace is touched, and everything is gone with the process. Without root, a user namespace is made as well.

#![allow(dead_code, reason = "each test crate uses its part")]

use iptables::ast::{Ruleset, TableName};
use std::io::Write as _;
pub mod entries;
pub mod random;

use kernel::probe::{Choice, Probe, Tools};
use kernel::{Backend, ChainSink, LiveKernel, ObserveError, RuleKernel, Scope};
use model::Family;
use std::ffi::OsString;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says that the process is the inner one.
const INSIDE: &str = "KPRS_TEST_INSIDE";

/// Runs `work` in a new network namespace: `test` is the running test's full name.
///
/// With `KPRS_REQUIRE_LIVE` set, an environment that does not allow it is a failure; else the test is skipped.
pub fn in_namespace(test: &str, work: impl FnOnce()) {
    in_namespace_with(test, &[], work);
}

/// As [`in_namespace`], with more flags for `unshare`.
pub fn in_namespace_with(test: &str, flags: &[&str], work: impl FnOnce()) {
    if std::env::var(INSIDE).is_ok_and(|inside| inside == test) {
        return work();
    }
    if let Err(reason) = possible(flags) {
        assert!(
            std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
            "{test} cannot run: {reason}"
        );
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
        return;
    }
    let program = std::env::current_exe().expect("a test is a program");
    let output = unshare(flags)
        .arg(program)
        .args([test, "--exact", "--nocapture", "--include-ignored"])
        .env(INSIDE, test)
        .output()
        .expect("unshare ran before");
    let [said, wrong] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    // With the failure: in a log of many tests the two are far apart.
    assert!(
        output.status.success(),
        "{test} failed in its namespace: {}\n{said}{wrong}",
        output.status
    );
    print!("{said}");
    eprint!("{wrong}");
}

fn unshare(flags: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    // A mount namespace with its own /run keeps even a legacy tool's lock away from the machine's.
    command.args(["--net", "--mount"]).args(flags);
    command
}

fn possible(flags: &[&str]) -> Result<(), String> {
    let output = unshare(flags)
        .args([
            "sh",
            "-c",
            "mount -t tmpfs none /run && iptables-nft -t nat -S POSTROUTING >&2",
        ])
        .output()
        .map_err(|error| format!("no unshare: {error}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

/// Says that it is over once it goes, by a panic too: a scope waits for its threads.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Puts an empty file system over `/run`.
pub fn own_run() {
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "none", "/run"])
        .status()
        .expect("mount");
    assert!(status.success(), "tmpfs on /run");
}

/// The kernel of this namespace.
pub fn live(backend: Backend) -> LiveKernel {
    live_with(backend, Vec::new())
}

/// The kernel of this namespace, with more environment for its tools.
pub fn live_with(backend: Backend, environment: Vec<(OsString, OsString)>) -> LiveKernel {
    let tools = Tools::find(std::env::var_os("PATH").as_ref(), environment);
    LiveKernel::new(Probe::new(&tools, Choice::Use(backend)).expect("the tools are installed"))
}

/// What a kernel says that it holds.
pub fn observed(kernel: &mut dyn RuleKernel, family: Family, scope: &Scope) -> Result<Ruleset, ObserveError> {
    let mut ruleset = Ruleset::default();
    let mut sink: Box<ChainSink<'_>> = Box::new(|table, name, chain| {
        let before = ruleset
            .tables
            .entry(table)
            .or_default()
            .chains
            .insert(name.clone(), chain);
        assert!(before.is_none(), "{name} reported twice");
    });
    kernel.observe(family, scope, &mut *sink)?;
    drop(sink);
    Ok(ruleset)
}

/// Adds the built-in chains that a text of `iptables-save` leaves out.
pub fn with_builtin(mut ruleset: Ruleset) -> Ruleset {
    for table in [TableName::Mangle, TableName::Filter, TableName::Nat] {
        let chains = &mut ruleset.tables.entry(table).or_default().chains;
        for name in table.built_in() {
            let name = iptables::ast::ChainName::new(name).expect("a legal name");
            chains.entry(name).or_insert_with(|| iptables::ast::Chain {
                policy: Some(iptables::ast::Policy::Accept),
                rules: Vec::new(),
            });
        }
    }
    ruleset
}

/// Runs a tool, feeds it and returns what it prints. It must succeed.
pub fn tool(words: &[&str], input: &str) -> String {
    use std::process::Stdio;
    let mut child = Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{words:?}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(input.as_bytes()).expect("the tool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("the tool ends");
    assert!(
        output.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("tools print text")
}
