//! Named network namespaces: making, entering, removing, and finding who is in them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::LabError;

/// Where `ip netns` keeps names.
const NAMES: &str = "/run/netns";

/// Where a lab keeps its files, in a folder of its prefix.
const STATE: &str = "/run/kube-proxy-lab";

/// The name the reaper of a lab runs under (`$0` of its shell).
pub(crate) const REAPER_NAME: &str = "kube-proxy-lab-reaper";

/// The file in the lab's folder that holds the reaper's process id.
pub(crate) const REAPER_PID: &str = "reaper.pid";

/// How long a killed process may take to let go of its namespace.
const DEATH: Duration = Duration::from_secs(3);

/// A named network namespace, as `ip netns exec NAME` knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// The namespace of this name; nothing is opened yet.
    pub fn named(name: impl Into<String>) -> Self {
        Self { name: name.into() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file that stands for it.
    pub fn path(&self) -> PathBuf {
        Path::new(NAMES).join(&self.name)
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it.
    ///
    /// Sockets opened there stay there, and processes started there run there.
    ///
    /// # Errors
    /// When the namespace is gone or may not be entered.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let path = self.path();
        thread::scope(|scope| {
            let thread = scope.spawn(|| enter(&path).map(|()| work()));
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `ip -batch` with these lines inside.
    pub(crate) fn batch(&self, lines: &[String]) -> Result<(), LabError> {
        if lines.is_empty() {
            return Ok(());
        }
        self.run(|| ip_batch(&self.name, lines))?
    }
}

/// Moves the calling thread into a namespace; threads and processes it starts are born there.
///
/// # Errors
/// When the namespace is gone or may not be entered.
pub fn enter(path: &Path) -> Result<(), LabError> {
    let attempt = || format!("enter the network namespace {}", path.display());
    let file = File::open(path).map_err(|source| LabError::system(attempt(), source))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|source| LabError::system(attempt(), source))
}

/// Makes the namespaces with one process.
pub(crate) fn create(names: &[String]) -> Result<(), LabError> {
    let lines: Vec<String> = names.iter().map(|name| format!("netns add {name}")).collect();
    ip_batch("no namespace", &lines)
}

/// Runs `ip -batch` in the calling thread's namespace.
fn ip_batch(place: &str, lines: &[String]) -> Result<(), LabError> {
    let attempt = |what: &str| format!("{what} `ip -batch` ({place})");
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| LabError::system(attempt("start"), source))?;
    let mut text = lines.join("\n");
    text.push('\n');
    let stdin = child.stdin.take().expect("invariant: stdin is piped");
    // It stops reading at the first line it cannot do; its message says more than the broken pipe.
    let written = { stdin }.write_all(text.as_bytes());
    let output = child
        .wait_with_output()
        .map_err(|source| LabError::system(attempt("wait for"), source))?;
    if output.status.success() {
        return written.map_err(|source| LabError::system(attempt("write to"), source));
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let failed = stderr
        .rsplit(':')
        .next()
        .and_then(|number| number.trim().parse::<usize>().ok());
    let line = failed
        .and_then(|number| lines.get(number.saturating_sub(1)))
        .map_or("", String::as_str);
    Err(LabError::Tool {
        tool: format!("ip ({place})"),
        stderr: format!("{} [{line}]", stderr.trim()),
    })
}

/// The folder of a lab's files.
pub(crate) fn state_folder(prefix: &str) -> PathBuf {
    Path::new(STATE).join(prefix)
}

/// The namespaces of a lab, sorted.
pub(crate) fn namespaces_of(prefix: &str) -> Result<Vec<Namespace>, LabError> {
    let start = format!("{prefix}-");
    let entries = match fs::read_dir(NAMES) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(source) => return Err(LabError::system(format!("list {NAMES}"), source)),
    };
    let mut found: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(&start))
        .collect();
    found.sort();
    Ok(found.into_iter().map(Namespace::named).collect())
}

/// Removes everything a lab of this prefix has left: processes in its namespaces, the namespaces with their links,
/// and its files. Says how many namespaces there were.
///
/// # Errors
/// When a process will not die or a name cannot be removed; the rest is removed all the same.
pub fn sweep(prefix: &str) -> Result<usize, LabError> {
    end_reaper(prefix);
    let namespaces = namespaces_of(prefix)?;
    let mut first_error = end_processes_in(&namespaces).err();
    for namespace in &namespaces {
        if let Err(error) = remove(namespace) {
            first_error.get_or_insert(error);
        }
    }
    let folder = state_folder(prefix);
    match fs::remove_dir_all(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            first_error.get_or_insert(LabError::system(format!("remove {}", folder.display()), source));
        }
    }
    first_error.map_or(Ok(namespaces.len()), Err)
}

/// A reaper that is at work would take down the next lab of the same prefix as well.
fn end_reaper(prefix: &str) {
    let pid = fs::read_to_string(state_folder(prefix).join(REAPER_PID));
    let Some(pid) = pid.ok().and_then(|text| text.trim().parse::<i32>().ok()) else {
        return;
    };
    // The number may have been given to somebody else since.
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = cmdline
        .split(|byte| *byte == 0)
        .skip_while(|word| *word != REAPER_NAME.as_bytes());
    let is_ours = words.next().is_some() && words.next() == Some(prefix.as_bytes());
    if let (true, Some(pid)) = (is_ours, Pid::from_raw(pid)) {
        let _gone = rustix::process::kill_process(pid, Signal::KILL);
    }
}

pub(crate) fn remove(namespace: &Namespace) -> Result<(), LabError> {
    let path = namespace.path();
    // A lab that crashed between making the file and mounting on it leaves a plain file.
    let _not_mounted = rustix::mount::unmount(&path, UnmountFlags::DETACH);
    match fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(LabError::system(format!("remove {}", path.display()), source))
        }
        _ => Ok(()),
    }
}

/// What tells one namespace from another: device and inode of its file.
type Identity = (u64, u64);

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path)
        .ok()
        .map(|metadata| (metadata.dev(), metadata.ino()))
}

fn end_processes_in(namespaces: &[Namespace]) -> Result<(), LabError> {
    let own = identity(Path::new("/proc/self/ns/net"));
    let wanted: BTreeSet<Identity> = namespaces
        .iter()
        .filter_map(|namespace| identity(&namespace.path()))
        .collect();
    // A name that stands for our own namespace was not made by a lab.
    let wanted: BTreeSet<Identity> = wanted.into_iter().filter(|found| Some(*found) != own).collect();
    let deadline = Instant::now() + DEATH;
    loop {
        let pids = if wanted.is_empty() {
            vec![]
        } else {
            processes_in(&wanted)
        };
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            let stuck = io::Error::from(io::ErrorKind::TimedOut);
            return Err(LabError::system(format!("end the processes {pids:?}"), stuck));
        }
        for pid in pids {
            // It may have ended by itself.
            let _gone = rustix::process::kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Processes whose first thread is in one of the namespaces. A process that has ended has none.
fn processes_in(wanted: &BTreeSet<Identity>) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return vec![];
    };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| u32::try_from(*pid) != Ok(std::process::id()))
        .filter(|pid| {
            let found = identity(Path::new(&format!("/proc/{pid}/ns/net")));
            found.is_some_and(|found| wanted.contains(&found))
        })
        .filter_map(Pid::from_raw)
        .collect()
}
