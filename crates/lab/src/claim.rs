//! Who has a prefix: two labs of one prefix would remove each other.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::{LabError, netns};

/// Says that a lab is to stay although its maker has gone. It is in the lab's folder.
const DETACHED: &str = "detached";

/// A prefix that is ours until this is dropped, or the process has ended in any way.
pub(crate) struct Claim {
    prefix: String,
    path: PathBuf,
    _locked: File,
}

impl Claim {
    /// Takes a prefix. What a crashed lab left does not hold it.
    ///
    /// # Errors
    /// [`LabError::AlreadyUp`] when a lab of this prefix is up.
    pub(crate) fn take(prefix: &str) -> Result<Claim, LabError> {
        let claim = lock(prefix)?.ok_or_else(|| already_up(prefix, "its owner still runs"))?;
        let is_detached = netns::state_folder(prefix).join(DETACHED).exists();
        if is_detached && !netns::namespaces_of(prefix)?.is_empty() {
            let why = format!("remove it with `kube-proxy lab down --prefix {prefix}`");
            return Err(already_up(prefix, &why));
        }
        Ok(claim)
    }

    /// Leaves the prefix to the lab itself.
    pub(crate) fn detach(self) -> Result<(), LabError> {
        let file = netns::state_folder(&self.prefix).join(DETACHED);
        fs::write(&file, "").map_err(|e| LabError::system(format!("write {}", file.display()), e))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Whoever opened it before finds that it has no name any more, and tries again.
        let _gone = fs::remove_file(&self.path);
    }
}

fn already_up(prefix: &str, why: &str) -> LabError {
    LabError::AlreadyUp {
        prefix: prefix.to_owned(),
        why: why.to_owned(),
    }
}

/// Locks a prefix's file; `None` when somebody else has it.
fn lock(prefix: &str) -> Result<Option<Claim>, LabError> {
    // Beside the lab's folder, which goes with each lab.
    let path = netns::state_folder(&format!("{prefix}.lock"));
    let failed = |source: io::Error| LabError::system(format!("lock {}", path.display()), source);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    loop {
        let file = File::create(&path).map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(failed(error.into())),
        }
        // Its name may have been removed between opening and locking.
        if is_at(&file, &path) {
            return Ok(Some(Claim {
                prefix: prefix.to_owned(),
                path,
                _locked: file,
            }));
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let found = fs::metadata(path).map(|named| named.ino());
    let ours = file.metadata().map(|open| open.ino());
    matches!((found, ours), (Ok(found), Ok(ours)) if found == ours)
}
