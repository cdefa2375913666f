//! What a host says of itself beside its rules: modules, counters, clock, versions. Nothing of it is written, and no module
//! is loaded by asking.

use crate::process::{Invocation, LITTLE, RunError};
use crate::release::Release;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a small tool may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a module of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleState {
    /// It is loaded, or built in.
    Loaded,
    /// The kernel can load it.
    Available,
    /// It is not there.
    Absent,
}

/// The state of modules, by name. Empty where nobody can tell which there are: a kernel without modules, or a container
/// without the host's `/lib/modules`.
pub fn modules(names: &[&str]) -> BTreeMap<String, ModuleState> {
    let folder = PathBuf::from("/lib/modules").join(Release::running().to_string());
    let loaded = fs::read_to_string("/proc/modules").unwrap_or_default();
    modules_in(names, &loaded, Path::new("/sys/module"), &folder)
}

fn modules_in(names: &[&str], loaded: &str, sys: &Path, folder: &Path) -> BTreeMap<String, ModuleState> {
    let list = |file: &str| fs::read_to_string(folder.join(file)).ok();
    let loaded: BTreeSet<&str> = loaded.lines().filter_map(|line| line.split(' ').next()).collect();
    let (builtin, on_disk) = (list("modules.builtin"), list("modules.dep"));
    let builtin = builtin.as_deref().map(module_names);
    let on_disk = on_disk.as_deref().map(module_names);
    let state = |name: &str| {
        let is_in = |list: &Option<BTreeSet<String>>| list.as_ref().map(|list| list.contains(name));
        if loaded.contains(name) || sys.join(name).exists() || is_in(&builtin) == Some(true) {
            return Some(ModuleState::Loaded);
        }
        match (is_in(&on_disk)?, is_in(&builtin)?) {
            (true, _) => Some(ModuleState::Available),
            _ => Some(ModuleState::Absent),
        }
    };
    let known = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), state(name)?)));
    known.collect()
}

/// Names of modules in a list of their files: `kernel/net/netfilter/xt_recent.ko.xz: ...`. Dashes are underscores.
fn module_names(text: &str) -> BTreeSet<String> {
    let files = text.lines().filter_map(|line| line.split([':', ' ']).next());
    let names = files.filter_map(|file| file.rsplit('/').next()?.split(".ko").next());
    names.map(|name| name.replace('-', "_")).collect()
}

/// A counter of `/proc/net/netstat`, by the name of its column.
pub fn netstat(name: &str) -> Option<u64> {
    counter(&fs::read_to_string("/proc/net/netstat").ok()?, name)
}

/// Each line of names is followed by one of values.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let at = pair[0].split(' ').position(|word| word == name)?;
        pair[1].split(' ').nth(at)?.parse().ok()
    })
}

/// Whether a time service keeps the clock, as one of them says; `None` when nobody does.
pub fn is_clock_synchronised() -> Option<bool> {
    let by_systemd = || match said("timedatectl", &["show", "-p", "NTPSynchronized", "--value"])?.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    };
    let by_chrony = || {
        let text = said("chronyc", &["-n", "tracking"])?;
        let leap = text.lines().find_map(|line| line.strip_prefix("Leap status"))?;
        Some(!leap.contains("Not synchronised"))
    };
    by_chrony().or_else(by_systemd)
}

/// The marks that interfaces of `WireGuard` put on what they send, as `wg` says.
pub fn wireguard_marks() -> Option<BTreeMap<String, String>> {
    let text = said("wg", &["show", "all", "fwmark"])?;
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    Some(
        pairs
            .map(|(name, mark)| (name.to_owned(), mark.to_owned()))
            .collect(),
    )
}

/// What `nft --version` says; `None` without one.
pub fn nft_version() -> Option<String> {
    Some(said("nft", &["--version"])?.trim().to_owned())
}

/// What a small tool prints; `None` when it is not there or says no.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let program = PathBuf::from(program);
    let invocation = Invocation {
        program: &program,
        args: args.to_vec(),
        input: &[],
        environment: &[],
        timeout: PATIENCE,
    };
    let answer: Result<_, RunError> = invocation.text(LITTLE);
    let (finished, text) = answer.ok()?;
    finished.succeeded().then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_loaded_built_in_on_disk_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(
            folder.path().join("modules.builtin"),
            "kernel/net/netfilter/nf_nat.ko\n",
        )
        .unwrap();
        fs::write(
            folder.path().join("modules.dep"),
            "kernel/net/bridge/br_netfilter.ko.xz: kernel/net/bridge/bridge.ko.xz\nkernel/net/netfilter/xt-mark.ko:\n",
        )
        .unwrap();
        let names = ["nf_nat", "br_netfilter", "xt_mark", "xt_recent", "nf_conntrack"];
        let nowhere = Path::new("/no/such/folder");
        let found = modules_in(&names, "nf_conntrack 1 2 - Live\n", nowhere, folder.path());
        let want = [
            ("br_netfilter", ModuleState::Available),
            ("nf_conntrack", ModuleState::Loaded),
            ("nf_nat", ModuleState::Loaded),
            ("xt_mark", ModuleState::Available),
            ("xt_recent", ModuleState::Absent),
        ];
        assert_eq!(found, want.map(|(name, state)| (name.to_owned(), state)).into());
        assert_eq!(modules_in(&names, "", nowhere, nowhere), BTreeMap::new());
    }

    #[test]
    fn a_counter_is_found_by_its_column() {
        let text = "TcpExt: SyncookiesSent IPReversePathFilter\nTcpExt: 3 17\nIpExt: InOctets\nIpExt: 9\n";
        assert_eq!(counter(text, "IPReversePathFilter"), Some(17));
        assert_eq!(counter(text, "InOctets"), Some(9));
        assert_eq!(counter(text, "Nothing"), None);
    }
}
