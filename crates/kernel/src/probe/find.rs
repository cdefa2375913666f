//! Where the tools are.

use super::version::{Version, backend_of};
use super::{FamilyTools, SMALL_CALL, Tool, Unavailable};
use crate::Backend;
use crate::process::LITTLE;
use model::{Family, PerFamily};
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Folders that are looked through after those of `PATH`: an unprivileged `PATH` often lacks them.
const SYSTEM_FOLDERS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// All tools that were found.
#[derive(Clone, Debug)]
pub struct Tools {
    nf_tables: PerFamily<Result<FamilyTools, Unavailable>>,
    legacy: PerFamily<Result<FamilyTools, Unavailable>>,
    /// Added to the environment of every tool.
    pub environment: Vec<(OsString, OsString)>,
}

impl Tools {
    /// Looks through `path` (the environment's `PATH`) and the system's folders. `environment` is added to that of
    /// every tool, such as `XTABLES_LOCKFILE`.
    pub fn find(path: Option<&OsString>, environment: Vec<(OsString, OsString)>) -> Tools {
        let mut folders: Vec<PathBuf> = path
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default();
        folders.extend(SYSTEM_FOLDERS.iter().map(PathBuf::from));
        // A relative folder in PATH would let the working directory choose what runs as root.
        folders.retain(|folder| folder.is_absolute());
        let of = |backend| PerFamily::from_fn(|family| family_tools(&folders, backend, family, &environment));
        Tools {
            nf_tables: of(Backend::NfTables),
            legacy: of(Backend::Legacy),
            environment,
        }
    }

    /// The tools of one backend and family.
    ///
    /// # Errors
    /// Names the missing tool.
    pub fn of(&self, backend: Backend, family: Family) -> Result<&FamilyTools, Unavailable> {
        let families = match backend {
            Backend::NfTables => &self.nf_tables,
            Backend::Legacy => &self.legacy,
        };
        families.get(family).as_ref().map_err(Clone::clone)
    }

    /// Whether a backend has the tools of any family.
    pub fn has(&self, backend: Backend) -> bool {
        Family::ALL
            .into_iter()
            .any(|family| self.of(backend, family).is_ok())
    }
}

/// The tool's plain name.
fn plain(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// From a suffix (`-save`) to the tool.
type Way<'a> = &'a dyn Fn(&str) -> Option<Tool>;

/// In the order of preference: a name that says its backend, one program for all, the plain name.
fn family_tools(
    folders: &[PathBuf],
    backend: Backend,
    family: Family,
    environment: &[(OsString, OsString)],
) -> Result<FamilyTools, Unavailable> {
    let plain = plain(family);
    let word = match backend {
        Backend::NfTables => "nft",
        Backend::Legacy => "legacy",
    };
    let named = |suffix: &str| on_path(folders, &format!("{plain}-{word}{suffix}")).map(single);
    let multi = |suffix: &str| {
        let program = on_path(folders, &format!("xtables-{word}-multi"))?;
        Some(Tool {
            program,
            applet: Some(format!("{plain}{suffix}")),
        })
    };
    let bare = |suffix: &str| on_path(folders, &format!("{plain}{suffix}")).map(single);
    for way in [&named as Way<'_>, &multi, &bare] {
        let (Some(iptables), Some(save), Some(restore)) = (way(""), way("-save"), way("-restore")) else {
            continue;
        };
        if let Some(version) = version_of(&iptables, backend, environment) {
            return Ok(FamilyTools {
                iptables,
                save,
                restore,
                version,
            });
        }
    }
    Err(Unavailable::NoTool(match (backend, family) {
        (Backend::NfTables, Family::V4) => "iptables of the nf_tables kind",
        (Backend::NfTables, Family::V6) => "ip6tables of the nf_tables kind",
        (Backend::Legacy, Family::V4) => "iptables of the legacy kind",
        (Backend::Legacy, Family::V6) => "ip6tables of the legacy kind",
    }))
}

fn single(program: PathBuf) -> Tool {
    Tool {
        program,
        applet: None,
    }
}

fn on_path(folders: &[PathBuf], name: &str) -> Option<PathBuf> {
    folders
        .iter()
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The tool's version, if it runs and is of this backend.
fn version_of(tool: &Tool, backend: Backend, environment: &[(OsString, OsString)]) -> Option<Version> {
    let (finished, text) = tool
        .invocation(&["--version"], b"", environment, SMALL_CALL)
        .text(LITTLE)
        .ok()?;
    if !finished.succeeded() || backend_of(&text) != backend {
        return None;
    }
    Version::parse(&text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A tool that prints its version and nothing else.
    fn script(folder: &Path, name: &str, version: &str) {
        let file = folder.join(name);
        lab::live::put_program(&file, format!("#!/bin/sh\necho '{version}'\n").as_bytes());
    }

    fn plain_tools(folder: &Path, version: &str) {
        for suffix in ["", "-save", "-restore"] {
            script(folder, &format!("iptables{suffix}"), version);
        }
    }

    #[test]
    fn plain_name_is_of_the_backend_that_its_version_says() {
        let folder = tempfile::tempdir().unwrap();
        plain_tools(folder.path(), "iptables v1.8.9 (legacy)");
        let folders = [folder.path().to_owned()];
        let found = family_tools(&folders, Backend::Legacy, Family::V4, &[]).unwrap();
        assert_eq!(found.version, Version::of(1, 8, 9));
        assert!(family_tools(&folders, Backend::NfTables, Family::V4, &[]).is_err());
        assert!(family_tools(&folders, Backend::Legacy, Family::V6, &[]).is_err());
    }

    #[test]
    fn all_in_one_program_is_called_by_applet() {
        let folder = tempfile::tempdir().unwrap();
        script(folder.path(), "xtables-nft-multi", "iptables v1.8.11 (nf_tables)");
        let found = family_tools(&[folder.path().to_owned()], Backend::NfTables, Family::V6, &[]).unwrap();
        assert_eq!(found.restore.applet.as_deref(), Some("ip6tables-restore"));
        assert_eq!(found.restore.to_string(), "xtables-nft-multi ip6tables-restore");
    }

    #[test]
    fn file_that_may_not_run_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        plain_tools(folder.path(), "iptables v1.8.9 (nf_tables)");
        fs::set_permissions(
            folder.path().join("iptables-save"),
            fs::Permissions::from_mode(0o644),
        )
        .unwrap();
        assert!(family_tools(&[folder.path().to_owned()], Backend::NfTables, Family::V4, &[]).is_err());
    }

    #[test]
    fn old_tools_get_no_flags_they_do_not_know() {
        let folder = tempfile::tempdir().unwrap();
        plain_tools(folder.path(), "iptables v1.6.1");
        let found = family_tools(&[folder.path().to_owned()], Backend::Legacy, Family::V4, &[]).unwrap();
        assert_eq!(found.wait_flags(), ["-w", "5"]);
        assert_eq!(found.restore_wait_flags(), [""; 0]);
    }
}
