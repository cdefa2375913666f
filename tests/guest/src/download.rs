//! Packages of Debian's releases by apt, beside this machine's own: nothing is installed, and apt's own state is not
//! touched.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The keys that all of Debian's releases are signed with (package debian-archive-keyring).
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One release's security updates, from the archive that this machine's own packages come from: its newest kernel is
/// there, and the list of its packages is short.
pub struct Archive {
    folder: PathBuf,
}

impl Archive {
    /// Reads the release's list of packages; `folder` holds it.
    pub fn open(folder: &Path, release: &str) -> Result<Archive> {
        let archive = Archive {
            folder: folder.to_path_buf(),
        };
        fs::create_dir_all(folder.join("lists/partial"))?;
        fs::create_dir_all(folder.join("cache/archives/partial"))?;
        let sources: Vec<String> = security_sites()?
            .iter()
            .map(|site| format!("deb [signed-by={KEYS}] {site} {release}-security main\n"))
            .collect();
        fs::write(folder.join("sources.list"), sources.concat())?;
        said(archive.apt("apt-get").arg("update"))
            .with_context(|| format!("no list of the security updates of Debian's release {release}"))?;
        Ok(archive)
    }

    /// What the newest version of a package depends on, by name.
    pub fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let told = said(self.apt("apt-cache").args(["depends", "--important", package]))?;
        let names = told
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "));
        Ok(names.map(str::to_owned).collect())
    }

    /// Downloads a package; where it is.
    pub fn download(&self, package: &str) -> Result<PathBuf> {
        said(
            self.apt("apt-get")
                .args(["download", package])
                .current_dir(&self.folder),
        )?;
        downloaded(&self.folder, package)
    }

    /// A command of apt that knows this archive alone.
    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let at = |name: &str| self.folder.join(name).display().to_string();
        for option in [
            format!("Dir::Etc::sourcelist={}", at("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::lists={}", at("lists")),
            "Dir::State::status=/dev/null".to_owned(),
            format!("Dir::Cache={}", at("cache")),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Languages=none".to_owned(),
        ] {
            command.arg("-o").arg(option);
        }
        command
    }
}

/// Downloads a package of this machine's own release into a folder; where it is.
pub fn own(folder: &Path, package: &str) -> Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let download = || {
        let mut command = Command::new("apt-get");
        command.args(["-o", "APT::Sandbox::User=root", "download", package]);
        said(command.current_dir(folder))
    };
    // A machine that never asked has no list of packages yet.
    if download().is_err() {
        said(Command::new("apt-get").arg("update"))?;
        download()?;
    }
    downloaded(folder, package)
}

fn downloaded(folder: &Path, package: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!("{package}_")) && name.ends_with(".deb") {
            return Ok(path);
        }
    }
    bail!(
        "apt-get said that it downloaded {package}, and it is not in {}",
        folder.display()
    )
}

/// Where this machine's security updates come from: the same place has other releases' as well.
fn security_sites() -> Result<BTreeSet<String>> {
    let format = ["--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"];
    let told = said(Command::new("apt-get").arg("indextargets").args(format))?;
    let sites: BTreeSet<String> = told
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(_, release)| release.ends_with("-security"))
        .map(|(site, _)| site.to_owned())
        .collect();
    if sites.is_empty() {
        bail!(
            "this machine has no source of Debian's security updates in /etc/apt, where the kernel would come from"
        );
    }
    Ok(sites)
}

/// What a program printed, if it was content.
pub fn said(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .env("LC_ALL", "C")
        .output()
        .with_context(|| format!("{name} could not be started"))?;
    if !status.success() {
        bail!(
            "{name} failed: {status}\n{}",
            String::from_utf8_lossy(&stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
