//! The configuration file, watched by looking at it: replacements and symlink swaps show as well as writes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// What a look shows. The content decides; the rest spares reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Look {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

fn look(path: &Path) -> Option<Look> {
    // Follows symlinks: a ConfigMap volume swaps the one in the middle.
    let meta = fs::metadata(path).ok()?;
    Some(Look {
        device: meta.dev(),
        inode: meta.ino(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        size: meta.len(),
    })
}

/// Ends when the file's content has changed; never without a file.
///
/// A file that is gone for a while is no change: it is on its way to being replaced, or nobody can tell what it would say.
pub async fn file_changes(path: Option<PathBuf>) {
    let Some(path) = path else {
        return std::future::pending().await;
    };
    let content = fs::read(&path).ok();
    let mut seen = look(&path);
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = look(&path);
        if now.is_none() || now == seen {
            continue;
        }
        seen = now;
        if let Ok(now) = fs::read(&path)
            && Some(&now) != content.as_ref()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    async fn notices(path: &Path, change: impl FnOnce()) -> bool {
        let watch = tokio::spawn(file_changes(Some(path.to_owned())));
        tokio::time::sleep(Duration::from_millis(200)).await;
        change();
        let ended = tokio::time::timeout(Duration::from_secs(3), watch).await;
        ended.is_ok()
    }

    #[tokio::test]
    async fn swapped_symlink_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["one", "two"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("config.yaml"), name).unwrap();
        }
        symlink("one", at("..data")).unwrap();
        symlink("..data/config.yaml", at("config.yaml")).unwrap();
        assert!(
            notices(&at("config.yaml"), || {
                symlink("two", at("..data_tmp")).unwrap();
                fs::rename(at("..data_tmp"), at("..data")).unwrap();
            })
            .await
        );
    }

    #[tokio::test]
    async fn atomic_replacement_is_noticed_and_a_touch_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        fs::write(&path, "a").unwrap();
        assert!(!notices(&path, || fs::write(&path, "a").unwrap()).await);
        assert!(
            notices(&path, || {
                fs::write(folder.path().join("new"), "b").unwrap();
                fs::rename(folder.path().join("new"), &path).unwrap();
            })
            .await
        );
    }
}
