//! The daemon as a process: started, measured from outside, killed.

use crate::{Backend, Mode};
use anyhow::{Context, Result};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running daemon and its scratch folder; both go when dropped.
pub struct Daemon {
    child: Child,
    folder: PathBuf,
}

/// What the daemon has cost so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// CPU of the daemon's own threads, from schedstat.
    pub own: Duration,
    /// CPU of the tools it ran, to the clock tick.
    pub tools: Duration,
}

impl Daemon {
    /// Starts the daemon against an API server without TLS, with a minimum period that does not hide costs.
    pub fn start(binary: &Path, server: SocketAddr, backend: Backend, mode: Mode) -> Result<Daemon> {
        let folder = std::env::temp_dir().join(format!("kube-proxy-bench-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        fs::write(
            folder.join("kubeconfig"),
            format!(
                "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"http://{server}\"}}}}]\nusers: [{{name: u, user: {{}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
            ),
        )?;
        let mode = match mode {
            Mode::Iptables => "iptables",
            Mode::Nftables => "nftables",
        };
        fs::write(
            folder.join("config"),
            format!(
                "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: {mode}\nhostnameOverride: {}\nclusterCIDR: 11.0.0.0/8\nclientConnection: {{kubeconfig: {}/kubeconfig}}\n{mode}: {{minSyncPeriod: 10ms}}\nconntrack: {{maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}}\n",
                crate::objects::NODE,
                folder.display()
            ),
        )?;
        let log = fs::File::create(folder.join("log"))?;
        let tools = backend_path(&folder, backend)?;
        let child = Command::new(binary)
            // Syncs of changes are told from 2 on.
            .args(["-v", "2", "--config"])
            .arg(folder.join("config"))
            .env("PATH", tools)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Daemon { child, folder })
    }

    /// Resident memory in MiB.
    pub fn resident_mib(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").trim().parse::<f64>()? / 1024.0)
    }

    /// What it has cost until now.
    pub fn cost(&self) -> Result<Cost> {
        let mut own = Duration::ZERO;
        for task in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            own += Duration::from_nanos(text.split(' ').next().unwrap_or_default().parse().unwrap_or(0));
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        // After the name: field 16 and 17 of proc(5) are cutime and cstime, in ticks of 10 ms.
        let ticks: u64 = fields
            .get(13..15)
            .unwrap_or_default()
            .iter()
            .filter_map(|f| f.parse::<u64>().ok())
            .sum();
        Ok(Cost {
            own,
            tools: Duration::from_millis(ticks * 10),
        })
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        // After the name: the state, Z for one that nobody has waited for.
        stat.rsplit(')')
            .next()
            .is_none_or(|rest| rest.trim_start().starts_with('Z'))
    }

    /// Waits until the log has more than `before` lines with this word, and gives the time it was seen.
    pub fn log_line(&self, word: &str, before: usize, at_most: Duration) -> Result<Instant> {
        let end = Instant::now() + at_most;
        while self.log_lines(word) <= before {
            anyhow::ensure!(
                Instant::now() < end,
                "no log line with {word:?} within {at_most:?}:\n{}",
                self.log_tail()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(Instant::now())
    }

    /// How many log lines have this word.
    pub fn log_lines(&self, word: &str) -> usize {
        fs::read_to_string(self.folder.join("log"))
            .unwrap_or_default()
            .lines()
            .filter(|line| line.contains(word))
            .count()
    }

    /// The last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}

/// A PATH whose `iptables` tools are of one backend.
fn backend_path(folder: &Path, backend: Backend) -> Result<String> {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin)?;
    let suffix = if backend == Backend::Legacy {
        "legacy"
    } else {
        "nft"
    };
    for family in ["iptables", "ip6tables"] {
        for part in ["", "-save", "-restore"] {
            let target = format!("/usr/sbin/{family}-{suffix}{part}");
            for name in [format!("{family}{part}"), format!("{family}-{suffix}{part}")] {
                // A second case in one folder finds them there already.
                let _ = std::os::unix::fs::symlink(&target, bin.join(name));
            }
        }
    }
    // Upstream's nftables mode runs it.
    let _ = std::os::unix::fs::symlink("/usr/sbin/nft", bin.join("nft"));
    Ok(bin.display().to_string())
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
