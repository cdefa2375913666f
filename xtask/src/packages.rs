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

/// What tests run besides. A tool that a test names as one it needs ([`unlisted`]) is here or above.
const TEST_TOOLS: [(&str, &str); 16] = [
    ("iptables", "iptables"),
    ("ip6tables", "iptables"),
    ("iptables-restore", "iptables"),
    ("iptables-nft", "iptables"),
    ("ip6tables-nft", "iptables"),
    ("iptables-legacy", "iptables"),
    ("ip6tables-legacy", "iptables"),
    ("ipset", "ipset"),
    ("socat", "socat"),
    ("curl", "curl"),
    ("capsh", "libcap2-bin"),
    ("prlimit", "util-linux"),
    ("timeout", "coreutils"),
    ("mkfifo", "coreutils"),
    ("bash", "bash"),
    ("depmod", "kmod"),
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

/// As [`ensure`], with what only tests run. Those that need it are left out without root, so it is not asked for then.
pub fn ensure_for_tests() -> Result<()> {
    if !is_root() {
        return ensure();
    }
    ensure_all(&[&TOOLS[..], &TEST_TOOLS].concat())
}

/// The tools that a test says it needs, of which no package is known here: where they are missing it would be left out, or fail.
pub fn unlisted(source: &str) -> Vec<&str> {
    let lists = source.split(concat!("available(", "&[")).skip(1);
    let lists = lists.filter_map(|rest| rest.split_once(']').map(|(list, _)| list));
    let known = [&TOOLS[..], &TEST_TOOLS].concat();
    lists
        .flat_map(|list| list.split(','))
        .filter_map(|word| word.trim().strip_prefix('"')?.strip_suffix('"'))
        .filter(|word| known.iter().all(|(tool, _)| tool != word))
        .collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_of_a_test_that_no_package_is_known_of_is_named() {
        // In two pieces, so that this file is no hit of its own.
        let source = |list: &str| format!("if !lab::live::available{}{list}]) {{ return; }}", "(&[");
        assert_eq!(unlisted(&source("\"nft\", \"socat\"")), Vec::<&str>::new());
        let two = source("\"nft\", \"tcpdump\"") + &source("\"hping3\", lab::dns::PROGRAM");
        assert_eq!(unlisted(&two), ["tcpdump", "hping3"]);
    }
}
