//! One machine: booted, watched until its command has ended or its time is over, and gone in any case.

use crate::command;
use crate::initramfs;
use crate::kernel::{Kernel, target};
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A label that the kernel puts before none of its own lines.
const MARK: &str = "guest-ended";

/// Boots, runs the command, prints what it prints; its status.
pub fn run(kernel: &Kernel, command: &[String], patience: Duration) -> Result<u8> {
    let scratch = Scratch::new()?;
    let script = scratch.0.join("script");
    fs::write(&script, command::script(command)?)?;
    initramfs::write(kernel, &scratch.0)?;
    // No output of a command is taken for the end of it.
    let mark = format!("{MARK}-{}", scratch.unique());
    let words = [
        // On a busy machine the kernel would find that its timer does not tick, and stop.
        "console=ttyS0 panic=-1 quiet loglevel=4 no_timer_check mitigations=off random.trust_cpu=on"
            .to_owned(),
        format!("guest.modules={}", kernel.modules.display()),
        format!("guest.script={}", script.display()),
        format!("guest.mark={mark}"),
    ];
    let mut machine = Machine::start(kernel, &scratch.0, &words.join(" "))?;
    let ended = watch(&machine.output, &mark, patience);
    machine.stop();
    ended.with_context(|| {
        let console = fs::read(scratch.0.join("console")).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        let lines: Vec<&str> = console.lines().collect();
        let last = lines[lines.len().saturating_sub(40)..].join("\n");
        format!(
            "no status of {command:?} on {}; the last of its console:\n{last}\n",
            kernel.image.display()
        )
    })
}

/// A folder for one machine, removed with it. Not in `/tmp`, `/run` or `/dev`, which a guest has of its own.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let nanoseconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .subsec_nanos();
        let name = format!("{}-{nanoseconds}", std::process::id());
        let folder = target().join("guest/machines").join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Scratch(folder))
    }

    fn unique(&self) -> String {
        self.0
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

struct Machine {
    process: Child,
    output: Receiver<Vec<u8>>,
}

impl Machine {
    /// Two serial lines: the kernel's console goes to a file, what the command prints to us.
    fn start(kernel: &Kernel, folder: &Path, words: &str) -> Result<Machine> {
        let mut qemu = Command::new("setpriv");
        // It never outlives us.
        qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args([
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max",
            "-smp",
            "2",
            "-m",
            "2G",
        ]);
        qemu.args(["-nodefaults", "-no-user-config", "-nographic", "-no-reboot"]);
        qemu.arg("-kernel").arg(&kernel.image);
        qemu.arg("-initrd").arg(folder.join("initramfs"));
        qemu.args(["-append", words]);
        qemu.args([
            "-fsdev",
            "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        ]);
        qemu.args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"]);
        qemu.arg("-serial")
            .arg(format!("file:{}", folder.join("console").display()));
        qemu.args(["-serial", "stdio", "-monitor", "none"]);
        qemu.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = qemu.spawn().context(
            "setpriv or qemu-system-x86_64 could not be started; install util-linux and qemu-system-x86",
        )?;
        let stdout = process.stdout.take().context("invariant: its output is piped")?;
        Ok(Machine {
            process,
            output: listen(stdout),
        })
    }

    fn stop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn listen(mut from: ChildStdout) -> Receiver<Vec<u8>> {
    let (out, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length) = from.read(&mut buffer) {
            if length == 0 || out.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    heard
}

/// Prints line by line until the line with the mark; the status behind it.
fn watch(output: &Receiver<Vec<u8>>, mark: &str, patience: Duration) -> Result<u8> {
    let deadline = Instant::now() + patience;
    let mut pending: Vec<u8> = vec![];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match output.recv_timeout(left) {
            Ok(bytes) => pending.extend(bytes),
            Err(RecvTimeoutError::Timeout) => bail!("switched off after {} s", patience.as_secs()),
            Err(RecvTimeoutError::Disconnected) => bail!("the machine went down by itself"),
        }
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            if let Some(status) = status(&line, mark) {
                return Ok(status);
            }
            std::io::stdout().write_all(&line)?;
        }
        std::io::stdout().flush()?;
    }
}

/// The status in the line with the mark. What the command printed last may lack the end of its line.
fn status(line: &[u8], mark: &str) -> Option<u8> {
    let line = String::from_utf8_lossy(line);
    let (before, status) = line.trim_end().rsplit_once(' ')?;
    let status = status.parse().ok()?;
    let before = before.strip_suffix(mark)?;
    if !before.is_empty() {
        println!("{before}");
    }
    Some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(pieces: &[&str], patience: Duration) -> Result<u8> {
        let (out, heard) = mpsc::channel();
        for piece in pieces {
            out.send(piece.as_bytes().to_vec()).unwrap();
        }
        let _still_on = (patience < Duration::from_secs(1)).then_some(out);
        watch(&heard, "mark-1", patience)
    }

    #[test]
    fn the_status_is_the_one_behind_the_mark_however_it_arrives() {
        let patience = Duration::from_mins(1);
        assert_eq!(watched(&["mark-2 0\nmark", "-1 7\n"], patience).unwrap(), 7);
        assert_eq!(watched(&["no end of the linemark-1 0\n"], patience).unwrap(), 0);
    }

    #[test]
    fn a_machine_that_goes_down_or_says_nothing_is_a_failure() {
        let down = watched(&["mark-1\n"], Duration::from_mins(1)).unwrap_err();
        assert_eq!(down.to_string(), "the machine went down by itself");
        let silent = watched(&["mark-1 "], Duration::from_millis(1)).unwrap_err();
        assert_eq!(silent.to_string(), "switched off after 0 s");
    }
}
