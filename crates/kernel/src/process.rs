//! Running one tool: no shell, a fixed locale, a deadline, input fed and output streamed in one loop.
//!
//! A tool leads a process group of its own. When it has ended or its time is over, whatever is left of the group is
//! killed: a wrapper's children do not go on writing rules that nobody waits for.

mod complaints;

use crate::shortage;
use complaints::Complaints;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How much a tool may print that is asked for little, in bytes: a version, or the rules of one chain.
pub(crate) const LITTLE: usize = 4 << 20;

/// How often it is looked whether a tool has ended while somebody else holds its pipes open.
const GLANCE: Duration = Duration::from_millis(250);

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Invocation<'a> {
    /// The program.
    pub program: &'a PathBuf,
    /// Its arguments.
    pub args: Vec<&'a str>,
    /// What it reads.
    pub input: &'a [u8],
    /// Added to the environment.
    pub environment: &'a [(OsString, OsString)],
    /// When it is killed.
    pub timeout: Duration,
}

/// How a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// The exit status; `None` if a signal ended it.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// What it complained about, trimmed.
    pub stderr: String,
}

impl Finished {
    /// Whether the tool says that all went well.
    pub(crate) fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}

/// A tool that could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// It could not be started.
    #[error("could not be started")]
    Start(#[source] io::Error),
    /// It could not be talked to.
    #[error("broke off")]
    Talk(#[source] io::Error),
    /// It was killed, since nobody wants so much.
    #[error("printed more than {0} bytes, which it should not, and was killed; check what program this is")]
    TooMuch(usize),
    /// It was killed at its deadline.
    #[error("was still running after {0:?} and was killed")]
    TimedOut(Duration),
}

impl RunError {
    /// The error, its cause, and what to do where the system ran short of something.
    pub(crate) fn words(&self) -> String {
        match self {
            RunError::Start(cause) | RunError::Talk(cause) => {
                format!("{self}: {}", shortage::with_advice(cause))
            }
            RunError::TooMuch(_) | RunError::TimedOut(_) => self.to_string(),
        }
    }
}

impl Invocation<'_> {
    /// Runs the tool and hands its output on as it comes, however much it is.
    pub(crate) fn run(&self, output: &mut dyn FnMut(&[u8])) -> Result<Finished, RunError> {
        self.run_until(&mut |bytes| {
            output(bytes);
            Wanted::More
        })
        .map(|(finished, _)| finished)
    }

    /// Runs the tool and hands its output on as it comes; kills it when no more is wanted.
    fn run_until(&self, output: &mut Output<'_>) -> Result<(Finished, Wanted), RunError> {
        let mut child = Command::new(self.program)
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(RunError::Start)?;
        crate::ours::remember(child.id());
        let group = Pid::from_child(&child);
        let deadline = Instant::now() + self.timeout;
        let ended = Talk::with(&mut child, self.input)
            .and_then(|mut talk| {
                let timely = talk.run(group, deadline, output)?;
                Ok((timely, talk.complaints))
            })
            .map_err(RunError::Talk);
        let (timely, complaints) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                let _ = end(&mut child, group);
                return Err(error);
            }
        };
        if timely == Timely::Enough {
            let status = end(&mut child, group).map_err(RunError::Talk)?;
            return Ok((finished(status, complaints), Wanted::NoMore));
        }
        match wait(&mut child, group, deadline, timely) {
            Ok(Some(status)) => Ok((finished(status, complaints), Wanted::More)),
            Ok(None) => Err(RunError::TimedOut(self.timeout)),
            Err(error) => Err(RunError::Talk(error)),
        }
    }

    /// Runs the tool and returns all of its output, which is to be so many bytes at most.
    pub(crate) fn text(&self, most: usize) -> Result<(Finished, String), RunError> {
        let mut output = Vec::new();
        let (finished, wanted) = self.run_until(&mut |bytes| {
            if output.len() + bytes.len() > most {
                return Wanted::NoMore;
            }
            output.extend_from_slice(bytes);
            Wanted::More
        })?;
        match wanted {
            Wanted::More => Ok((finished, String::from_utf8_lossy(&output).into_owned())),
            Wanted::NoMore => Err(RunError::TooMuch(most)),
        }
    }
}

/// Takes output as it comes, and says whether more is wanted.
type Output<'o> = dyn FnMut(&[u8]) -> Wanted + 'o;

/// Whether more of a tool's output is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    More,
    NoMore,
}

fn finished(status: ExitStatus, complaints: Complaints) -> Finished {
    Finished {
        code: status.code(),
        signal: status.signal(),
        stderr: complaints.text(),
    }
}

/// How talking to a tool ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timely {
    /// The pipes were closed in time.
    Yes,
    /// Time was up.
    No,
    /// No more of its output is wanted.
    Enough,
}

/// Waits for a tool whose pipes are closed or of no more use; kills it at the deadline. Ends its group either way.
fn wait(child: &mut Child, group: Pid, deadline: Instant, timely: Timely) -> io::Result<Option<ExitStatus>> {
    const PAUSE: Duration = Duration::from_millis(1);
    let mut ended = false;
    while timely == Timely::Yes && !ended && Instant::now() < deadline {
        ended = has_ended(group)?;
        if !ended {
            std::thread::sleep(PAUSE);
        }
    }
    let status = end(child, group)?;
    Ok(ended.then_some(status))
}

/// Whether the leader of a group has ended. It is not reaped, so that the group's number stays its own.
fn has_ended(leader: Pid) -> io::Result<bool> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    Ok(waitid(WaitId::Pid(leader), options)?.is_some())
}

/// Kills what is left of a group, and reaps its leader.
fn end(child: &mut Child, group: Pid) -> io::Result<ExitStatus> {
    // Nothing may be left of it, which is as good.
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()
}

/// The three pipes of a running tool.
struct Talk<'a> {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    input: &'a [u8],
    complaints: Complaints,
}

impl<'a> Talk<'a> {
    fn with(child: &mut Child, input: &'a [u8]) -> io::Result<Self> {
        let talk = Talk {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
            stderr: child.stderr.take(),
            input,
            complaints: Complaints::default(),
        };
        if let Some(stdin) = &talk.stdin {
            rustix::io::ioctl_fionbio(stdin, true)?;
        }
        Ok(talk)
    }

    /// Feeds and reads until the tool closes its outputs, has ended, or time is up.
    fn run(&mut self, leader: Pid, deadline: Instant, output: &mut Output<'_>) -> io::Result<Timely> {
        let mut buffer = vec![0; 64 * 1024];
        while self.stdout.is_some() || self.stderr.is_some() {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return Ok(Timely::No);
            };
            let ready = self.ready(left.min(GLANCE))?;
            if ready.is_none() && has_ended(leader)? {
                // All that it said has been read: the pipes are open in a child that it left behind.
                return Ok(Timely::Yes);
            }
            if ready.stdin {
                self.feed()?;
            }
            if ready.stdout {
                let mut wanted = Wanted::More;
                read_once(&mut self.stdout, &mut buffer, &mut |bytes| wanted = output(bytes))?;
                if wanted == Wanted::NoMore {
                    return Ok(Timely::Enough);
                }
            }
            if ready.stderr {
                let kept = &mut self.complaints;
                read_once(&mut self.stderr, &mut buffer, &mut |bytes| kept.add(bytes))?;
            }
        }
        Ok(Timely::Yes)
    }

    fn ready(&self, left: Duration) -> io::Result<Ready> {
        let mut fds = Vec::with_capacity(3);
        let stdin = place(&mut fds, self.stdin.as_ref().map(AsFd::as_fd), PollFlags::OUT);
        let stdout = place(&mut fds, self.stdout.as_ref().map(AsFd::as_fd), PollFlags::IN);
        let stderr = place(&mut fds, self.stderr.as_ref().map(AsFd::as_fd), PollFlags::IN);
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| !fds[at].revents().is_empty());
        Ok(Ready {
            stdin: is_ready(stdin),
            stdout: is_ready(stdout),
            stderr: is_ready(stderr),
        })
    }

    fn feed(&mut self) -> io::Result<()> {
        let Some(stdin) = &mut self.stdin else {
            return Ok(());
        };
        match stdin.write(self.input) {
            Ok(count) => self.input = &self.input[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // It has heard enough and will say why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => self.input = &[],
            Err(error) => return Err(error),
        }
        if self.input.is_empty() {
            self.stdin = None;
        }
        Ok(())
    }
}

/// Adds a pipe that is still open and says at which place.
fn place<'f>(fds: &mut Vec<PollFd<'f>>, fd: Option<BorrowedFd<'f>>, flags: PollFlags) -> Option<usize> {
    fds.push(PollFd::from_borrowed_fd(fd?, flags));
    Some(fds.len() - 1)
}

/// Which pipes can be used without waiting.
struct Ready {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Ready {
    fn is_none(&self) -> bool {
        !(self.stdin || self.stdout || self.stderr)
    }
}

fn read_once<R: Read>(
    pipe: &mut Option<R>,
    buffer: &mut [u8],
    each: &mut dyn FnMut(&[u8]),
) -> io::Result<()> {
    let Some(open) = pipe else { return Ok(()) };
    match open.read(buffer) {
        Ok(0) => *pipe = None,
        Ok(count) => each(&buffer[..count]),
        Err(error) if error.kind() == ErrorKind::Interrupted => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation<'a>(program: &'a PathBuf, args: &[&'a str], input: &'a [u8], ms: u64) -> Invocation<'a> {
        Invocation {
            program,
            args: args.to_vec(),
            input,
            environment: &[],
            timeout: Duration::from_millis(ms),
        }
    }

    #[test]
    fn large_input_and_output_flow_at_the_same_time() {
        let input = vec![b'x'; 3_000_000];
        let cat = PathBuf::from("/bin/cat");
        let mut count = 0;
        let finished = invocation(&cat, &[], &input, 20_000)
            .run(&mut |bytes| count += bytes.len())
            .unwrap();
        assert!(finished.succeeded());
        assert_eq!(count, input.len());
    }

    #[test]
    fn tool_that_does_not_end_is_killed_at_its_deadline() {
        let sleep = PathBuf::from("/bin/sleep");
        let error = invocation(&sleep, &["30"], b"", 50).run(&mut |_| {}).unwrap_err();
        assert!(matches!(error, RunError::TimedOut(_)), "{error}");
    }

    fn shell(script: &str, ms: u64) -> Result<(Finished, String), RunError> {
        invocation(&PathBuf::from("/bin/sh"), &["-c", script], b"", ms).text(LITTLE)
    }

    /// Waits until a process has gone; a zombie has, too, and waits for whoever adopted it.
    fn goes(pid: &str) -> bool {
        let stat = format!("/proc/{pid}/stat");
        let until = Instant::now() + Duration::from_secs(30);
        while Instant::now() < until {
            let runs = std::fs::read_to_string(&stat)
                .is_ok_and(|text| !text.rsplit(')').next().unwrap_or_default().starts_with(" Z"));
            if !runs {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    #[test]
    fn no_grandchild_outlives_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let script = format!("sleep 600 & echo $! >{}; wait", file.display());
        let error = shell(&script, 2_000).unwrap_err();
        assert!(matches!(error, RunError::TimedOut(_)), "{error}");
        let pid = std::fs::read_to_string(file).unwrap();
        assert!(goes(pid.trim()), "{pid} still runs");
    }

    #[test]
    fn a_child_left_behind_is_not_waited_for_and_does_not_stay() {
        let begun = Instant::now();
        let (finished, text) = shell("sleep 600 & echo $!; echo oh >&2; exit 3", 300_000).unwrap();
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(3), "oh"));
        assert!(goes(text.trim()), "{text} still runs");
        assert!(begun.elapsed() < Duration::from_secs(200), "it was waited for");
    }

    #[test]
    fn tool_that_does_not_read_is_not_waited_for() {
        let input = vec![b'x'; 3_000_000];
        let program = PathBuf::from("/bin/false");
        let finished = invocation(&program, &[], &input, 20_000)
            .run(&mut |_| {})
            .unwrap();
        assert_eq!((finished.code, finished.signal), (Some(1), None));
    }

    #[test]
    fn a_tool_that_prints_without_end_is_ended_and_little_is_kept() {
        let yes = PathBuf::from("/usr/bin/yes");
        let error = invocation(&yes, &[], b"", 300_000).text(LITTLE).unwrap_err();
        assert!(matches!(error, RunError::TooMuch(LITTLE)), "{error}");
        let (finished, text) = shell("yes | head -c 30000000 >&2; echo done; exit 1", 300_000).unwrap();
        assert_eq!((finished.code, text.as_str()), (Some(1), "done\n"));
        assert!(finished.stderr.len() <= 3 * complaints::KEPT);
        // What just fits is taken.
        let (finished, text) = shell("yes | head -c 4194304", 300_000).unwrap();
        assert_eq!((finished.code, text.len()), (Some(0), LITTLE));
    }

    #[test]
    fn complaints_are_kept_in_the_c_locale() {
        let program = PathBuf::from("/bin/cat");
        let (finished, text) = invocation(&program, &["/no/such/file"], b"", 20_000)
            .text(LITTLE)
            .unwrap();
        assert_eq!(text, "");
        assert!(
            finished
                .stderr
                .ends_with("/no/such/file: No such file or directory"),
            "{}",
            finished.stderr
        );
    }

    #[test]
    fn program_that_is_not_there_is_told_apart() {
        let program = PathBuf::from("/no/such/program");
        let error = invocation(&program, &[], b"", 1_000)
            .run(&mut |_| {})
            .unwrap_err();
        assert!(matches!(error, RunError::Start(error) if error.kind() == ErrorKind::NotFound));
    }
}
