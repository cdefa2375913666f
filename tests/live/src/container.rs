//! The container that `deploy/daemonset.yaml` asks for, made by hand: a pid namespace of its own, the node's network, no
//! file that can be written but the lock, and the capabilities that the manifest names.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// As a container runtime does it. `/proc/sys` cannot be written in a container that is not privileged; `/run` is the
/// container's own, with the lock in it. `$1` are capabilities for `setpriv`; the command follows.
const SCRIPT: &str = r#"
mount --make-rprivate /
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
mount -t tmpfs tmpfs /run
touch /run/xtables.lock
mount --bind /run/xtables.lock /run/xtables.lock
mount -o remount,bind,ro /run
mount -o remount,bind,ro /
capabilities=$1; shift
exec setpriv --bounding-set="$capabilities" --inh-caps=-all --no-new-privs "$@"
"#;

/// Words that start a command in such a container, with these capabilities (`NET_ADMIN`) and no others.
pub fn start(capabilities: &[String]) -> Vec<String> {
    let mut set = "-all".to_owned();
    // Nobody can give what he has not got himself.
    for one in capabilities.iter().filter(|one| is_held(one)) {
        set.push_str(",+");
        set.push_str(&one.to_lowercase());
    }
    let words = [
        "unshare",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount",
        "--mount-proc",
    ];
    let script = ["sh", "-e", "-c", SCRIPT, "sh", &set];
    words.into_iter().chain(script).map(str::to_owned).collect()
}

/// Whether this process may pass a capability on.
pub fn is_held(capability: &str) -> bool {
    let name = format!("cap_{}", capability.to_lowercase());
    let mine = Command::new("capsh").arg("--print").output();
    let mine = mine.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_bounding = |line: &&str| line.starts_with("Bounding set");
    mine.is_ok_and(|text| {
        let line = text.lines().find(is_bounding).unwrap_or_default();
        line.split(['=', ',']).any(|word| word.trim() == name)
    })
}

/// The manifest's text.
///
/// # Panics
/// When it is not there.
pub fn manifest() -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/daemonset.yaml");
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// What a key of the manifest lists, such as `add: [NET_ADMIN]`.
///
/// # Panics
/// When there is no such line.
pub fn listed(manifest: &str, key: &str) -> Vec<String> {
    let lines = manifest.lines().map(str::trim_start);
    let list = lines.filter_map(|line| line.strip_prefix(key)).find_map(|rest| {
        let list = rest.trim_start().strip_prefix('[')?;
        list.split(']').next()
    });
    let list = list.unwrap_or_else(|| panic!("no line with {key} in the manifest"));
    list.split(',').map(|word| word.trim().to_owned()).collect()
}

/// The process in the container: the only child of the command that [`start`] begins with.
pub fn inner(outer: u32) -> Option<u32> {
    let children = PathBuf::from(format!("/proc/{outer}/task/{outer}/children"));
    fs::read_to_string(children).ok()?.trim().parse().ok()
}

/// A field of a process's status, such as `CapEff`.
pub fn status(pid: u32, field: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_default().trim().to_owned()
}
