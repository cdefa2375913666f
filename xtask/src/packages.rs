//! The Debian packages that demo, lab and live tests need.

use crate::run;
use anyhow::{Result, bail};
use std::path::Path;

/// A tool that must be there, and the package that brings it.
const TOOLS: [(&str, &str); 8] = [
    ("iptables-nft-restore", "iptables"),
    ("iptables-legacy-restore", "iptables"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
    ("sysctl", "procps"),
    ("dnsmasq", "dnsmasq-base"),
];

/// What a guest takes besides.
const GUEST_TOOLS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("modprobe", "kmod"),
    ("xz", "xz-utils"),
    ("setpriv", "util-linux"),
];

/// Folders searched beside PATH: as an ordinary user PATH often lacks them.
const SYSTEM_FOLDERS: [&str; 4] = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"];

/// Whether this process may install packages and make namespaces without asking.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
}

/// Installs what is missing as root; otherwise says which one command does.
pub fn ensure() -> Result<()> {
    ensure_all(&TOOLS)
}

/// As [`ensure`], for virtual machines too.
pub fn ensure_for_guests() -> Result<()> {
    ensure_all(&[&TOOLS[..], &GUEST_TOOLS].concat())
}

fn ensure_all(tools: &[(&str, &'static str)]) -> Result<()> {
    let missing = missing_packages(tools);
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get update && apt-get install -y {}", missing.join(" "));
    if !is_root() {
        bail!("Debian packages are missing. Run this once, then try again:\n\n  sudo sh -c '{install}'\n");
    }
    run::program(
        "sh",
        &[
            "-c".to_owned(),
            format!("export DEBIAN_FRONTEND=noninteractive; {install}"),
        ],
    )
}

fn missing_packages(tools: &[(&str, &'static str)]) -> Vec<&'static str> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders: Vec<&str> = path.split(':').chain(SYSTEM_FOLDERS).collect();
    let there = |tool: &str| folders.iter().any(|folder| Path::new(folder).join(tool).exists());
    let mut packages: Vec<&str> = tools
        .iter()
        .filter(|(tool, _)| !there(tool))
        .map(|(_, package)| *package)
        .collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}
