//! What a system can run short of: which limit, and how to raise it.

use rustix::io::Errno;
use std::io;

/// What to raise where no more threads or processes are to be had.
pub const MORE_PROCESSES: &str = "raise the limit of processes: pids.max of the cgroup (podPidsLimit of the kubelet, \
    TasksMax= of systemd), ulimit -u, or sysctl kernel.threads-max and kernel.pid_max";

/// What to raise where a system call failed for want of something; `None` for other failures.
pub(crate) fn advice(error: &io::Error) -> Option<&'static str> {
    match Errno::from_io_error(error)? {
        Errno::MFILE => Some("raise this process's limit of open files (ulimit -n, LimitNOFILE=)"),
        Errno::NFILE => Some("raise the host's limit of open files (sysctl fs.file-max)"),
        Errno::AGAIN => Some(MORE_PROCESSES),
        Errno::NOMEM => Some("give it more memory (memory.max of the cgroup)"),
        _ => None,
    }
}

/// The same for what a tool said of itself.
pub(crate) fn advice_for_words(words: &str) -> Option<&'static str> {
    let short_of = if words.contains("Too many open files in system") {
        Errno::NFILE
    } else if words.contains("Too many open files") {
        Errno::MFILE
    } else {
        return None;
    };
    advice(&short_of.into())
}

/// The error in words, and what to raise.
pub(crate) fn with_advice(error: &io::Error) -> String {
    match advice(error) {
        Some(advice) => format!("{error}; {advice}"),
        None => error.to_string(),
    }
}
