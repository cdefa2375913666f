//! Whether tests that need a lab can run here. Skips are loud, and failures where `KPRS_REQUIRE_LIVE` is set.

use std::io::Write as _;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io};

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
    skip(&reason);
    false
}

/// Says that something is skipped, and why.
///
/// # Panics
/// Instead, where `KPRS_REQUIRE_LIVE` is set.
pub fn skip(reason: &str) {
    assert!(env::var_os(REQUIRE).is_none(), "{REQUIRE} is set, but {reason}");
    // Past the capture of the test harness: a skip has to be seen.
    _ = writeln!(io::stderr(), "SKIPPED: {reason}");
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

/// Puts a program there for tests to run: a script, or whatever may be run.
///
/// Another process writes the file. In this one a thread that starts a program at that moment would hand the open file on, and
/// the kernel runs nothing that somebody has open for writing (`ETXTBSY`, execve(2)).
///
/// # Panics
/// When it cannot be written.
pub fn put_program(path: &Path, program: &[u8]) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh runs");
    let mut input = writer.stdin.take().expect("it is piped");
    input.write_all(program).expect("cat reads");
    drop(input);
    let status = writer.wait().expect("sh ends");
    assert!(status.success(), "cannot write {}: {status}", path.display());
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

/// Receives a datagram within the socket's timeout, as [`UdpSocket::recv`], on a machine that may be paused meanwhile.
///
/// A process that was stopped and goes on finds its `recv` with a timeout interrupted, without any handler of
/// signals (signal(7)); so does one on a machine that was frozen. That says nothing about the packet.
///
/// # Errors
/// Those of the socket, but for that one.
pub fn recv(socket: &UdpSocket, answer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(answer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            heard => return heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::Pid;

    #[test]
    fn a_pause_is_no_answer_and_no_failure() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = socket.local_addr().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let this = rustix::process::getpid();
        let pauses = format!(
            "sleep 0.2; for i in 1 2 3; do kill -STOP {0}; sleep 0.05; kill -CONT {0}; sleep 0.05; done",
            Pid::as_raw(Some(this))
        );
        let mut pausing = Command::new("sh").args(["-c", &pauses]).spawn().unwrap();
        let answering = std::thread::spawn(move || {
            pausing.wait().unwrap();
            UdpSocket::bind("127.0.0.1:0")
                .unwrap()
                .send_to(b"here", to)
                .unwrap();
        });
        let mut answer = [0; 8];
        assert_eq!(recv(&socket, &mut answer).unwrap(), 4);
        answering.join().unwrap();
    }
}
