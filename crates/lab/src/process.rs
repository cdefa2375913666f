//! Commands and daemons inside a namespace.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::LabError;
use crate::netns::Namespace;

/// What a command did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed, with what is not UTF-8 replaced.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

/// What an HTTP server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// The status code.
    pub status: u16,
    /// The body, with what is not UTF-8 replaced.
    pub body: String,
}

/// Runs a command to its end.
pub(crate) fn exec(namespace: &Namespace, argv: &[&str]) -> Result<Finished, LabError> {
    let output =
        namespace.run(|| command(argv).and_then(|mut command| command.stdin(Stdio::null()).output()))?;
    let output = output.map_err(|source| LabError::system(attempt("run", argv, namespace), source))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Finished {
        status: output.status,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    })
}

/// Starts a command that goes on; its output goes to `log`.
pub(crate) fn spawn(namespace: &Namespace, argv: &[&str], log: &Path) -> Result<LabProcess, LabError> {
    let started = || -> io::Result<Child> {
        let out = File::create(log)?;
        let err = out.try_clone()?;
        command(argv)?
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
    };
    let child = namespace.run(started)?;
    let child = child.map_err(|source| LabError::system(attempt("start", argv, namespace), source))?;
    Ok(LabProcess {
        child,
        log: log.to_owned(),
    })
}

fn command(argv: &[&str]) -> io::Result<Command> {
    let (program, rest) = argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    // A group of its own: Ctrl-C is for the lab's owner, who ends the rest in order.
    command.args(rest).env("LC_ALL", "C").process_group(0);
    Ok(command)
}

fn attempt(verb: &str, argv: &[&str], namespace: &Namespace) -> String {
    format!("{verb} `{}` in {}", argv.join(" "), namespace.name())
}

/// A process in a namespace, killed when dropped.
#[derive(Debug)]
pub struct LabProcess {
    child: Child,
    log: PathBuf,
}

impl LabProcess {
    /// Lets it run on without an owner; a sweep of the lab ends it.
    pub fn leave_running(self) {
        std::mem::forget(self);
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far, both streams in one. Empty once the lab is gone.
    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, LabError> {
        self.child
            .try_wait()
            .map_err(|source| LabError::system(format!("ask for process {}", self.pid()), source))
    }

    /// Sends a signal, if it still runs.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<(), LabError> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        // Not waited for yet, so the id is still its own.
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal)
            .map_err(|source| LabError::system(format!("signal process {}", self.pid()), source))
    }

    /// Asks it to end (SIGTERM), waits, and kills it when the time is over.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn stop(mut self, patience: Duration) -> Result<ExitStatus, LabError> {
        self.signal(Signal::TERM)?;
        if let Some(status) = self.wait(patience)? {
            return Ok(status);
        }
        self.kill()
    }

    /// Kills it (SIGKILL) without warning.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn kill(&mut self) -> Result<ExitStatus, LabError> {
        self.signal(Signal::KILL)?;
        self.child
            .wait()
            .map_err(|source| LabError::system(format!("wait for process {}", self.pid()), source))
    }

    /// Waits for its end; `None` when it runs on.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn wait(&mut self, patience: Duration) -> Result<Option<ExitStatus>, LabError> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.ended()?;
            if ended.is_some() || Instant::now() > deadline {
                return Ok(ended);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until its log contains `text`; false when the time is over or it has ended without saying so.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn wait_for_log(&mut self, text: &str, patience: Duration) -> Result<bool, LabError> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.ended()?.is_some();
            if self.log().contains(text) {
                return Ok(true);
            }
            if ended || Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for LabProcess {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A plain HTTP/1.0 GET from the namespace.
pub(crate) fn http_get(
    namespace: &Namespace,
    server: SocketAddr,
    path: &str,
    timeout: Duration,
) -> Result<HttpAnswer, LabError> {
    let attempt = || format!("get http://{server}{path} from {}", namespace.name());
    let exchange = || -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&server, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n").as_bytes())?;
        let mut answer = vec![];
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = namespace
        .run(exchange)?
        .map_err(|source| LabError::system(attempt(), source))?;
    let text = String::from_utf8_lossy(&answer);
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    match (status, body) {
        (Some(status), Some(body)) => Ok(HttpAnswer { status, body }),
        _ => Err(LabError::system(
            attempt(),
            io::Error::from(io::ErrorKind::InvalidData),
        )),
    }
}
