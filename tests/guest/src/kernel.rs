//! A kernel with its modules, as Debian built it.

use crate::download::{self, Archive, said};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernels that tests know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    /// Older than nftables mode wants, and so stricter than any kernel that it has to serve on.
    #[value(name = "5.10")]
    V5_10,
    /// The oldest with long support that it has to serve on.
    #[default]
    #[value(name = "6.1")]
    V6_1,
    /// The newest with long support.
    #[value(name = "6.12")]
    V6_12,
}

impl Version {
    /// The release of Debian that it belongs to.
    fn release(self) -> &'static str {
        match self {
            Version::V5_10 => "bullseye",
            Version::V6_1 => "bookworm",
            Version::V6_12 => "trixie",
        }
    }
}

/// Modules that a guest may need, as folders and files under `kernel/`: all of them would be 300 MB.
const MODULES: [&str; 12] = [
    "net",
    "lib",
    "crypto",
    "arch/x86/crypto",
    "fs/9p",
    "fs/netfs",
    "fs/fscache",
    "fs/overlayfs",
    "drivers/virtio",
    "drivers/net/veth.ko*",
    "drivers/net/dummy.ko*",
    "drivers/net/tun.ko*",
];

/// A kernel, unpacked.
pub struct Kernel {
    /// What is booted.
    pub image: PathBuf,
    /// The folder of its modules, called by its release (`uname -r`).
    pub modules: PathBuf,
    /// A busybox without libraries, to begin with.
    pub busybox: PathBuf,
}

impl Kernel {
    /// Fetches and unpacks it, unless that was done before.
    pub fn fetch(version: Version) -> Result<Kernel> {
        let cache = target().join("guest");
        fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
        // Two that want it at once fetch it once.
        let lock = File::create(cache.join("lock"))?;
        lock.lock().context("cannot lock the folder of kernels")?;
        let busybox = busybox(&cache)?;
        let folder = cache.join(version.release());
        if !folder.exists() {
            eprintln!(
                "guest: fetching the kernel of Debian's release {}",
                version.release()
            );
            // Whole or not at all.
            let half = cache.join(format!("{}.half", version.release()));
            _ = fs::remove_dir_all(&half);
            unpack(version, &half)?;
            fs::rename(&half, &folder)?;
        }
        let modules = only_entry(&folder.join("root/lib/modules"))?;
        let release = modules.file_name().unwrap_or_default().to_string_lossy();
        let image = folder.join(format!("root/boot/vmlinuz-{release}"));
        Ok(Kernel {
            image,
            modules,
            busybox,
        })
    }
}

fn unpack(version: Version, folder: &Path) -> Result<()> {
    let archive = Archive::open(&folder.join("apt"), version.release())?;
    let names = archive.dependencies("linux-image-amd64")?;
    let name = names
        .iter()
        .find(|name| name.starts_with("linux-image-"))
        .context("linux-image-amd64 names no kernel")?;
    let package = archive.download(name)?;
    let root = folder.join("root");
    let modules = MODULES.map(|path| format!("./lib/modules/*/kernel/{path}"));
    let others = ["./boot/vmlinuz-*", "./lib/modules/*/modules.*"];
    // Releases differ in what they have, and where /lib is.
    let wanted = modules.iter().map(String::as_str).chain(others);
    let wanted: Vec<String> = wanted
        .flat_map(|path| [path.to_owned(), path.replacen("./lib", "./usr/lib", 1)])
        .collect();
    extract(&package, &root, &wanted)?;
    if root.join("usr/lib").exists() {
        fs::rename(root.join("usr/lib"), root.join("lib"))?;
    }
    fs::remove_file(&package)?;
    let modules = only_entry(&root.join("lib/modules"))?;
    let release = modules.file_name().unwrap_or_default();
    said(Command::new("depmod").arg("-b").arg(&root).arg(release))?;
    Ok(())
}

fn busybox(cache: &Path) -> Result<PathBuf> {
    let busybox = cache.join("busybox");
    if !busybox.exists() {
        let half = cache.join("busybox.half");
        _ = fs::remove_dir_all(&half);
        let package = download::own(&half, "busybox-static")?;
        extract(
            &package,
            &half,
            &["./bin/busybox".to_owned(), "./usr/bin/busybox".to_owned()],
        )?;
        let unpacked = [half.join("bin/busybox"), half.join("usr/bin/busybox")];
        let there = unpacked.iter().find(|path| path.exists());
        fs::rename(there.context("busybox-static has no busybox")?, &busybox)?;
        fs::remove_dir_all(&half)?;
    }
    Ok(busybox)
}

/// Unpacks the members of a package that match; `tar` complains of those that match nothing.
fn extract(package: &Path, into: &Path, members: &[String]) -> Result<()> {
    fs::create_dir_all(into)?;
    let script = r#"package=$1 into=$2; shift 2
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$into" --wildcards "$@" 2>"$into/unmatched" || :"#;
    said(
        Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(package)
            .arg(into)
            .args(members),
    )?;
    _ = fs::remove_file(into.join("unmatched"));
    Ok(())
}

fn only_entry(folder: &Path) -> Result<PathBuf> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let entry = entries
        .next()
        .with_context(|| format!("{} is empty", folder.display()))?;
    Ok(entry?.path())
}

/// Cargo's folder for what can be made again.
pub fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    std::path::absolute(&target).unwrap_or(target)
}
