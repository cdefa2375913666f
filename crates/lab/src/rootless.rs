//! The lab without root: the same process again inside a user namespace.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::LabError;

/// Set inside, so that a namespace that does not make us root is not entered for ever.
const INSIDE: &str = "KUBE_PROXY_LAB_ROOTLESS";

/// `/run` belongs to the real root. A tmpfs of our own there holds `/run/netns`, the lab's files and xtables' lock.
const SCRIPT: &str = r#"mount -t tmpfs -o mode=755 tmpfs /run && exec "$@""#;

/// As whom the process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Root of the machine, or somebody else's container.
    Root,
    /// Root of a user namespace made by [`reexec_rootless`].
    Rootless,
}

/// Makes sure that a lab can be built: for root it does nothing; otherwise it replaces the process by itself
/// (same arguments) under `unshare -Urnm` with a tmpfs on `/run`, where it returns [`Privilege::Rootless`].
///
/// Call it first in `main`: the process starts anew. A rootless lab is visible only from inside and ends with the
/// processes inside.
///
/// # Errors
/// [`LabError::Rootless`] where user namespaces are forbidden, with what `unshare` said.
pub fn reexec_rootless() -> Result<Privilege, LabError> {
    let is_root = rustix::process::geteuid().is_root();
    match (is_root, env::var_os(INSIDE).is_some()) {
        (true, true) => return Ok(Privilege::Rootless),
        (true, false) => return Ok(Privilege::Root),
        (false, true) => return refused("the user namespace did not make us root"),
        (false, false) => {}
    }
    try_unshare()?;
    let program = env::current_exe().map_err(|source| LabError::system("find our own program", source))?;
    // Returns only if it fails.
    let source = unshare(SCRIPT)
        .arg(program)
        .args(env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(LabError::system("run unshare", source))
}

/// One rehearsal, because after `exec` nobody is left to explain.
fn try_unshare() -> Result<(), LabError> {
    let output = unshare(SCRIPT).arg("true").output();
    let output = output.map_err(|source| LabError::system("run unshare (util-linux)", source))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    refused(&format!(
        "{}; see user.max_user_namespaces and kernel.unprivileged_userns_clone",
        said.trim()
    ))
}

fn unshare(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["-U", "-r", "-n", "-m", "--", "sh", "-c", script, "sh"])
        .env("LC_ALL", "C");
    // An unprivileged user's PATH often lacks the folders of ip, iptables and nft.
    let path = env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    command
}

fn refused<T>(why: &str) -> Result<T, LabError> {
    Err(LabError::Rootless(why.to_owned()))
}
