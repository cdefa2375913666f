//! Whether tests that need a lab can run here. Skips are loud, and failures where `KPRS_REQUIRE_LIVE` is set.

use std::env;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Set in CI: what would be skipped fails.
const REQUIRE: &str = "KPRS_REQUIRE_LIVE";

/// Set where everything is slow, as in a virtual machine without KVM: how often as long tests wait.
const PATIENCE: &str = "KPRS_PATIENCE";

/// True if the process is root and has these tools; otherwise it says `SKIPPED` and why.
///
/// # Panics
/// Instead of skipping, where `KPRS_REQUIRE_LIVE` is set.
#[must_use]
pub fn available(tools: &[&str]) -> bool {
    let Some(reason) = missing(tools) else { return true };
    assert!(env::var_os(REQUIRE).is_none(), "{REQUIRE} is set, but {reason}");
    // Past the capture of the test harness: a skip has to be seen.
    _ = writeln!(std::io::stderr(), "SKIPPED: {reason}");
    false
}

fn missing(tools: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    let lacks = |tool: &&&str| {
        let mut command = Command::new(tool);
        command
            .arg("-V")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_err()
    };
    let tool = ["ip"].iter().chain(tools).find(lacks)?;
    Some(format!("the tool {tool} is missing"))
}

/// A prefix that no other process uses: `STEM_PID`. Tests of one process need different stems.
pub fn prefix(stem: &str) -> String {
    format!("{stem}_{}", std::process::id())
}

/// Whether this kernel has SCTP, which some leave out.
pub fn has_sctp() -> bool {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    socket(AddressFamily::INET, SocketType::STREAM, Some(ipproto::SCTP)).is_ok()
}

/// How long to wait for what takes at most this long on an idle machine of its own.
pub fn patience(usual: Duration) -> Duration {
    let times = env::var(PATIENCE).ok().and_then(|text| text.parse().ok());
    usual * times.unwrap_or(1)
}
