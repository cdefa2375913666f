//! What a path leads to, so that one that leads elsewhere is noticed.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::time::SystemTime;

/// What a path leads to. A file is replaced by renaming another over it, so that any file will do; a folder is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    File,
    /// Device, inode, and when it was made: an inode's number is given to the next folder.
    Folder(u64, u64, Option<SystemTime>),
}

impl Place {
    pub(super) fn of(meta: &Metadata) -> Self {
        if meta.is_dir() {
            Place::Folder(meta.dev(), meta.ino(), meta.created().ok())
        } else {
            Place::File
        }
    }
}
