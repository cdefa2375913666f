//! What can be wrong with scenario data.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a scenario could not be read.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// A file or folder could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file or folder could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file does not have the form it should have.
    #[error("{}: {reason}", path.display())]
    Form {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

impl ScenarioError {
    pub(crate) fn form(path: &Path, reason: &dyn std::fmt::Display) -> Self {
        ScenarioError::Form {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// A file's text.
pub(crate) fn read(path: &Path) -> Result<String, ScenarioError> {
    std::fs::read_to_string(path).map_err(|source| ScenarioError::Read {
        path: path.to_owned(),
        source,
    })
}

/// A folder's entries, sorted.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, ScenarioError> {
    let failed = |source| ScenarioError::Read {
        path: folder.to_owned(),
        source,
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// A path's last part without extension.
pub(crate) fn stem(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}
