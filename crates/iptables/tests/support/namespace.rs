//! A network namespace of the test's own, in which the real tools run.

use model::Family;
use std::fs::File;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Which kind of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `iptables-nft-...`
    Nft,
    /// `iptables-legacy-...`
    Legacy,
}

/// A network namespace, deleted when dropped.
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// A new one; `None`, said aloud, where this cannot be tested. With `KPRS_REQUIRE_LIVE` set that is a failure.
    pub fn new() -> Option<Namespace> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kprs-ipt-{}-{n}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).output();
        let lacking = match made {
            Ok(output) if output.status.success() => return Some(Namespace { name }),
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(err) => format!("ip: {err}"),
        };
        assert!(
            std::env::var_os("KPRS_REQUIRE_LIVE").is_none(),
            "no network namespace: {lacking}"
        );
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(std::io::stderr(), "SKIPPED: no network namespace: {lacking}");
        None
    }

    /// The namespace as a file, to enter it.
    pub fn open(&self) -> File {
        File::open(format!("/run/netns/{}", self.name)).expect("ip netns names namespaces there")
    }

    /// Runs a tool with this input.
    pub fn run(&self, tool: &[&str], input: &str) -> Output {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &self.name])
            .args(tool)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip starts");
        let mut stdin = child.stdin.take().expect("stdin is piped");
        stdin
            .write_all(input.as_bytes())
            .expect("the tool reads its input");
        drop(stdin);
        child.wait_with_output().expect("the tool ends")
    }

    /// `iptables-restore --noflush`, which must take the input.
    pub fn restore(&self, kind: Kind, family: Family, input: &str) {
        let output = self.run(&[&tool(kind, family, "restore"), "-w", "5", "--noflush"], input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{kind:?} {family} refused: {said}\n{input}"
        );
    }

    /// `iptables-save`.
    pub fn save(&self, kind: Kind, family: Family) -> String {
        let output = self.run(&[&tool(kind, family, "save")], "");
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("what we wrote is UTF-8")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let deleted = Command::new("ip").args(["netns", "del", &self.name]).status();
        if !deleted.is_ok_and(|status| status.success()) {
            eprintln!("network namespace {} is left over", self.name);
        }
    }
}

fn tool(kind: Kind, family: Family, verb: &str) -> String {
    let program = match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    };
    let kind = match kind {
        Kind::Nft => "nft",
        Kind::Legacy => "legacy",
    };
    format!("{program}-{kind}-{verb}")
}
