//! The folder: one file, replaced whole, that nobody but us (or root) can have written.

use super::format::Refusal;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

/// The file.
pub(super) const FILE: &str = "objects";
/// What is being written. One name, so that kills leave one at most.
const NEXT: &str = "objects.next";
/// Which file's objects the rules of this boot are made of.
const USED: &str = "used";

/// Bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// Why a folder is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiskError {
    #[error("cannot {attempted}: {source}")]
    Failed {
        attempted: &'static str,
        source: io::Error,
    },
    #[error("{0}")]
    Unsafe(#[from] Unsafe),
    #[error("another process writes there at the moment")]
    Taken,
}

/// Why a folder or file is not trusted.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unsafe {
    #[error("{what} is a symbolic link; give the file itself")]
    Link { what: &'static str },
    #[error("{what} is no {should}")]
    Type {
        what: &'static str,
        should: &'static str,
    },
    #[error("{what} can be written to by others (mode {mode:o}); chmod go-w it")]
    Writable { what: &'static str, mode: u32 },
    #[error("{what} belongs to user {owner}, not to this process's; chown it")]
    Owner { what: &'static str, owner: u32 },
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("there is none")]
    Missing,
    #[error(transparent)]
    Unsafe(#[from] Unsafe),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// Opens the file for reading.
pub(super) fn open(folder: &Path) -> Result<File, OpenError> {
    let missing = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NOENT => OpenError::Missing,
        rustix::io::Errno::LOOP => Unsafe::Link { what: "the file" }.into(),
        other => Refusal::Unreadable(other.into()).into(),
    };
    let folder = open_folder(folder).map_err(missing)?;
    check(&folder, FileType::Directory)?;
    // A pipe must not hold us up.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&folder, FILE, flags, Mode::empty()).map_err(missing)?;
    check(&file, FileType::RegularFile)?;
    Ok(File::from(file))
}

/// Replaces the file by what `put` writes. A process that is killed meanwhile leaves the old file or the new one.
pub(super) fn replace(folder: &Path, put: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), DiskError> {
    let folder = folder_for_writing(folder)?;
    match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        // During a rolling update two processes have one folder for a while.
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(DiskError::Taken),
        Err(error) => return Err(failed("lock the folder")(error.into())),
    }
    // Left by a process that was killed.
    let _ = rustix::fs::unlinkat(&folder, NEXT, AtFlags::empty());
    let written = write_next(&folder, put);
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&folder, NEXT, AtFlags::empty());
    }
    written
}

fn write_next(folder: &OwnedFd, put: impl FnOnce(&mut File) -> io::Result<()>) -> Result<(), DiskError> {
    let mut file = create(folder, NEXT)?;
    put(&mut file).map_err(failed("write"))?;
    file.sync_all().map_err(failed("bring to the disk"))?;
    rustix::fs::renameat(folder, NEXT, folder, FILE)
        .map_err(|error| failed("rename a finished file")(error.into()))?;
    rustix::fs::fsync(folder).map_err(|error| failed("bring the folder to the disk")(error.into()))
}

fn create(folder: &OwnedFd, name: &str) -> Result<File, DiskError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
        .map(File::from)
        .map_err(|error| failed("make a file")(error.into()))
}

/// Notes that rules of this boot are made of the file with this sum.
pub(super) fn note_use(folder: &Path, sum: &str) -> Result<(), DiskError> {
    let folder = folder_for_writing(folder)?;
    let _ = rustix::fs::unlinkat(&folder, USED, AtFlags::empty());
    let text = use_text(sum).map_err(failed("read the boot's id"))?;
    create(&folder, USED)?
        .write_all(text.as_bytes())
        .map_err(failed("write"))
}

/// Rules are made of something else from now on.
pub(super) fn forget_use(folder: &Path) {
    if let Ok(folder) = open_folder(folder) {
        // It may not be there.
        let _ = rustix::fs::unlinkat(&folder, USED, AtFlags::empty());
    }
}

/// Whether rules that are there are made of the file with this sum: noted in this boot, and not replaced since.
pub(super) fn is_used(folder: &Path, sum: &str) -> bool {
    let read = || -> Option<bool> {
        let folder = open_folder(folder).ok()?;
        check(&folder, FileType::Directory).ok()?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&folder, USED, flags, Mode::empty()).ok()?;
        check(&file, FileType::RegularFile).ok()?;
        let mut text = String::new();
        File::from(file).take(1024).read_to_string(&mut text).ok()?;
        Some(text == use_text(sum).ok()?)
    };
    read().unwrap_or(false)
}

fn use_text(sum: &str) -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(format!("boot {}\n{sum}", boot.trim()))
}

fn folder_for_writing(path: &Path) -> Result<OwnedFd, DiskError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(failed("make the folder"))?;
    let folder = open_folder(path).map_err(|error| failed("open the folder")(error.into()))?;
    check(&folder, FileType::Directory)?;
    Ok(folder)
}

fn open_folder(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty())
}

/// Whether nobody but us and root can have written it.
fn check(file: &OwnedFd, should: FileType) -> Result<(), Unsafe> {
    let (what, kind) = match should {
        FileType::Directory => ("the folder", "folder"),
        _ => ("the file", "regular file"),
    };
    let Ok(stat) = rustix::fs::fstat(file.as_fd()) else {
        return Err(Unsafe::Type { what, should: kind });
    };
    if FileType::from_raw_mode(stat.st_mode) != should {
        return Err(Unsafe::Type { what, should: kind });
    }
    if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(Unsafe::Owner {
            what,
            owner: stat.st_uid,
        });
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        return Err(Unsafe::Writable {
            what,
            mode: stat.st_mode & 0o7777,
        });
    }
    Ok(())
}

fn failed(attempted: &'static str) -> impl FnOnce(io::Error) -> DiskError {
    move |source| DiskError::Failed { attempted, source }
}

/// The file's path, for messages.
pub(super) fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

#[cfg(test)]
mod tests;
