//! A network namespace for one test, in which the real tools run.

use crate::netns::{self, Namespace};
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A network namespace without anything in it, deleted when dropped.
#[derive(Debug)]
pub struct Scratch(Namespace);

impl Scratch {
    /// A new one, named after its test; `None`, said aloud, where there can be none.
    ///
    /// # Panics
    /// Instead of skipping, where `KPRS_REQUIRE_LIVE` is set.
    pub fn new(stem: &str) -> Option<Scratch> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("kprs-{stem}-{}-{n}", std::process::id());
        match netns::create(std::slice::from_ref(&name)) {
            Ok(()) => Some(Scratch(Namespace::named(name))),
            Err(error) => {
                crate::live::skip(&format!("no network namespace: {}", error.chain()));
                None
            }
        }
    }

    /// The namespace, to enter it.
    pub fn namespace(&self) -> &Namespace {
        &self.0
    }

    /// Runs a tool with this input.
    ///
    /// # Panics
    /// When it cannot be started, or does not read its input.
    pub fn run(&self, tool: &[&str], input: &str) -> Output {
        let mut child = Command::new("ip")
            .args(["netns", "exec", self.0.name()])
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

    /// What a tool prints, which must do what it is asked.
    ///
    /// # Panics
    /// With its words, when it does not.
    pub fn must(&self, tool: &[&str], input: &str) -> String {
        let output = self.run(tool, input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool:?}: {}\n{input}", said.trim());
        String::from_utf8(output.stdout).expect("tools print UTF-8")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = netns::remove(&self.0) {
            eprintln!(
                "network namespace {} is left over: {}",
                self.0.name(),
                error.chain()
            );
        }
    }
}
