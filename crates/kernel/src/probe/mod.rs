//! What this host has: found and tried once, at start.

mod backend;
mod find;
mod version;

pub use backend::{Choice, Reason, has_legacy_tables, legacy_tables};
pub use find::Tools;
pub use version::Version;

use crate::process::{Invocation, LITTLE};
use crate::{Backend, FailureKind, classify};
use model::{Family, PerFamily};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// How long the small calls may take; the lock is waited for within it.
pub(crate) const SMALL_CALL: Duration = Duration::from_secs(30);
/// Seconds that a tool waits for the lock (`-w`), as upstream has it.
pub(crate) const LOCK_SECONDS: &str = "5";

/// One tool, and how to call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The program.
    pub program: PathBuf,
    /// Its first argument, when one program is all tools (`xtables-nft-multi iptables`).
    pub applet: Option<String>,
}

impl Tool {
    pub(crate) fn invocation<'a>(
        &'a self,
        args: &[&'a str],
        input: &'a [u8],
        environment: &'a [(OsString, OsString)],
        timeout: Duration,
    ) -> Invocation<'a> {
        let args = self
            .applet
            .iter()
            .map(String::as_str)
            .chain(args.iter().copied())
            .collect();
        Invocation {
            program: &self.program,
            args,
            input,
            environment,
            timeout,
        }
    }
}

/// The tool's file, for messages.
impl std::fmt::Display for Tool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = self
            .program
            .file_name()
            .unwrap_or_else(|| self.program.as_os_str());
        write!(f, "{}", file.display())?;
        match &self.applet {
            Some(applet) => write!(f, " {applet}"),
            None => Ok(()),
        }
    }
}

/// The tools of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyTools {
    /// `iptables` or `ip6tables`.
    pub iptables: Tool,
    /// `-save`.
    pub save: Tool,
    /// `-restore`.
    pub restore: Tool,
    /// Their version.
    pub version: Version,
}

impl FamilyTools {
    /// The wait flags of `iptables` itself (upstream `pkg/util/iptables`).
    pub fn wait_flags(&self) -> &'static [&'static str] {
        if self.version >= Version::WAIT_SECONDS {
            &["-w", LOCK_SECONDS]
        } else if self.version >= Version::WAIT {
            &["-w"]
        } else {
            &[]
        }
    }

    /// The wait flags of `iptables-restore`. Older ones take none, and this crate does not stand in for them: such a
    /// restore fails when somebody holds the lock, and is tried again.
    pub fn restore_wait_flags(&self) -> &'static [&'static str] {
        if self.version >= Version::RESTORE_WAIT {
            &["-w", LOCK_SECONDS]
        } else {
            &[]
        }
    }
}

/// Why a family cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// A tool is missing.
    #[error("no {0} found")]
    NoTool(&'static str),
    /// The kernel has no IPv6, or it is switched off.
    #[error("the kernel has no IPv6: {0}")]
    NoIpv6(&'static str),
    /// `iptables -S POSTROUTING -t nat` did not work.
    #[error("{tool} does not work: {detail}")]
    DoesNotWork {
        /// The tool.
        tool: String,
        /// What kind of failure.
        kind: FailureKind,
        /// Its words.
        detail: String,
    },
}

/// What was found, for as long as the process lives.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The backend that is used.
    pub backend: Backend,
    /// Why this one.
    pub reason: Reason,
    /// The tools of each family, or why there are none.
    pub families: PerFamily<Result<FamilyTools, Unavailable>>,
    /// Added to the environment of every tool.
    pub environment: Vec<(OsString, OsString)>,
}

impl Probe {
    /// Finds the tools, chooses the backend, and tries each family.
    ///
    /// # Errors
    /// When no family has tools of any backend, or none of the chosen one.
    pub fn new(tools: &Tools, choice: Choice) -> Result<Probe, NoTools> {
        let (backend, reason) = backend::choose(tools, choice)?;
        let families = PerFamily::from_fn(|family| {
            let found = tools.of(backend, family).cloned()?;
            ipv6_there(family)?;
            works(&found, &tools.environment)?;
            Ok(found)
        });
        Ok(Probe {
            backend,
            reason,
            families,
            environment: tools.environment.clone(),
        })
    }

    /// Finds the tools of a backend and does not try them: that makes legacy's table nat where there is none, and fails
    /// while somebody holds legacy's lock.
    ///
    /// # Errors
    /// When there are none.
    pub fn untried(tools: &Tools, backend: Backend) -> Result<Probe, NoTools> {
        let (backend, reason) = backend::choose(tools, Choice::Use(backend))?;
        Ok(Probe {
            backend,
            reason,
            families: PerFamily::from_fn(|family| tools.of(backend, family).cloned()),
            environment: tools.environment.clone(),
        })
    }

    /// Whether `MASQUERADE --random-fully` is known to the tools of every family that has any.
    pub fn has_random_fully(&self) -> bool {
        Family::ALL
            .into_iter()
            .filter_map(|family| self.families.get(family).as_ref().ok())
            .all(|found| found.version >= Version::RANDOM_FULLY)
    }
}

/// No usable tools at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no iptables tools of backend {wanted} in PATH or the system's own folders")]
pub struct NoTools {
    /// Which were looked for; any if `None`.
    wanted: Wanted,
}

/// For the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted(Option<Backend>);

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(backend) => backend.fmt(f),
            None => f.write_str("any kind"),
        }
    }
}

/// Whether the kernel has IPv6, when it is asked for.
fn ipv6_there(family: Family) -> Result<(), Unavailable> {
    if family == Family::V4 {
        return Ok(());
    }
    if !std::path::Path::new("/proc/net/if_inet6").exists() {
        return Err(Unavailable::NoIpv6("/proc/net/if_inet6 is missing"));
    }
    match crate::sysctl::read("net/ipv6/conf/all/disable_ipv6") {
        Ok(value) if value == "1" => Err(Unavailable::NoIpv6("net.ipv6.conf.all.disable_ipv6 is 1")),
        _ => Ok(()),
    }
}

/// Upstream's test of a family: the nat table can be listed.
fn works(found: &FamilyTools, environment: &[(OsString, OsString)]) -> Result<(), Unavailable> {
    let mut args = found.wait_flags().to_vec();
    args.extend(["-t", "nat", "-S", "POSTROUTING"]);
    let outcome = found
        .iptables
        .invocation(&args, b"", environment, SMALL_CALL)
        .text(LITTLE);
    let failed = |kind, detail| Unavailable::DoesNotWork {
        tool: found.iptables.to_string(),
        kind,
        detail,
    };
    match outcome {
        Ok((finished, _)) if finished.succeeded() => Ok(()),
        Ok((finished, _)) => Err(failed(
            classify::tool_failure(&finished),
            classify::detail(&finished, ""),
        )),
        Err(error) => Err(failed(classify::run_failure(&error), error.words())),
    }
}
