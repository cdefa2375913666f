//! The configuration file, watched by looking at it: replacements and symlink swaps show as well as writes.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Largest configuration file that is read, in bytes. It comes from a `ConfigMap`, which holds a megabyte.
const LARGEST: u64 = 4 << 20;

/// The content of a configuration file. Never waits, and never holds more than a configuration can be.
///
/// # Errors
/// When it is no regular file, too large, or cannot be read.
pub fn read_config(path: &Path) -> io::Result<Vec<u8>> {
    // Asked before it is opened as well: to open a device may do something.
    can_be_config(&fs::metadata(path)?)?;
    // A pipe that has taken the file's place since then would make us wait for whoever writes.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(no_wait).open(path)?;
    can_be_config(&file.metadata()?)?;
    let mut content = Vec::new();
    // A file that grows, or one of `/proc`, has more than its size says.
    file.take(LARGEST + 1).read_to_end(&mut content)?;
    if content.len() as u64 > LARGEST {
        return Err(too_large());
    }
    Ok(content)
}

/// A folder passes: to read it fails with better words.
fn can_be_config(meta: &Metadata) -> io::Result<()> {
    if !meta.is_file() && !meta.is_dir() {
        return Err(io::Error::other("is no regular file"));
    }
    if meta.len() > LARGEST {
        return Err(too_large());
    }
    Ok(())
}

fn too_large() -> io::Error {
    io::Error::other("is larger than a configuration can be")
}

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
    let content = read_config(&path).ok();
    let mut seen = look(&path);
    let mut told = Told::Nothing;
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = look(&path);
        if now.is_none() || now == seen {
            continue;
        }
        seen = now;
        match read_config(&path) {
            Ok(now) if Some(&now) != content.as_ref() => return,
            Ok(_) => told = Told::Nothing,
            // Gone between the look and the reading.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => told = told.unreadable(&path, &error),
        }
    }
}

/// A file that cannot be read is told once, not with each look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Unreadable,
}

impl Told {
    fn unreadable(self, path: &Path, error: &io::Error) -> Told {
        if self == Told::Nothing {
            tracing::warn!(%error, "cannot read {} any more; the configuration stays as it was read at start; put a readable file there", path.display());
        }
        Told::Unreadable
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::{Arc, Mutex};
    use tempfile::TempDir;
    use tokio::task::JoinHandle;

    /// Long enough for any machine; ends as soon as the change is noticed.
    const PATIENCE: Duration = Duration::from_mins(1);
    /// Several looks. A change that must not be noticed is given this long.
    const QUIET: Duration = Duration::from_secs(4);

    /// A folder with `config.yaml`, watched.
    struct Watched {
        folder: TempDir,
        watch: JoinHandle<()>,
    }

    impl Watched {
        async fn new(make: impl FnOnce(&Path)) -> Watched {
            let folder = tempfile::tempdir().unwrap();
            make(folder.path());
            let path = folder.path().join("config.yaml");
            let watch = tokio::spawn(file_changes(Some(path)));
            // On this test's one thread it has had its first look when it waits for the second.
            tokio::task::yield_now().await;
            Watched { folder, watch }
        }

        async fn plain() -> Watched {
            Watched::new(|folder| fs::write(folder.join("config.yaml"), "old").unwrap()).await
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        async fn notices(&mut self) {
            let ended = tokio::time::timeout(PATIENCE, &mut self.watch).await;
            assert!(ended.is_ok(), "the change is not noticed");
        }

        async fn stays_calm(&mut self) {
            let ended = tokio::time::timeout(QUIET, &mut self.watch).await;
            assert!(ended.is_err(), "nothing changed, and yet it ended");
        }
    }

    #[tokio::test]
    async fn what_is_written_in_place_is_noticed() {
        let mut file = Watched::plain().await;
        fs::write(file.at("config.yaml"), "new").unwrap();
        file.notices().await;
    }

    #[tokio::test]
    async fn a_file_renamed_over_it_is_noticed() {
        let mut file = Watched::plain().await;
        fs::write(file.at("next"), "new").unwrap();
        fs::rename(file.at("next"), file.at("config.yaml")).unwrap();
        file.notices().await;
    }

    /// As the kubelet makes the folder of a `ConfigMap`: the file is a link through `..data`, which is a link itself.
    fn config_map(folder: &Path) {
        generation(folder, "..2026_01", "old");
        symlink("..2026_01", folder.join("..data")).unwrap();
        symlink("..data/config.yaml", folder.join("config.yaml")).unwrap();
    }

    fn generation(folder: &Path, name: &str, text: &str) {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("config.yaml"), text).unwrap();
    }

    /// The kubelet's steps: a new folder, the link renamed over, the old folder removed.
    fn swap(folder: &Path, text: &str) {
        generation(folder, "..2026_02", text);
        symlink("..2026_02", folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
        fs::remove_dir_all(folder.join("..2026_01")).unwrap();
    }

    #[tokio::test]
    async fn a_config_map_that_the_kubelet_swaps_is_noticed() {
        let mut file = Watched::new(config_map).await;
        swap(file.folder.path(), "new");
        file.notices().await;
    }

    #[tokio::test]
    async fn a_config_map_swapped_with_the_same_text_is_no_change() {
        let mut file = Watched::new(config_map).await;
        swap(file.folder.path(), "old");
        file.stays_calm().await;
    }

    #[tokio::test]
    async fn a_file_that_goes_is_no_change_and_one_that_comes_back_is_judged_by_its_text() {
        let mut file = Watched::plain().await;
        fs::remove_file(file.at("config.yaml")).unwrap();
        file.stays_calm().await;
        fs::write(file.at("config.yaml"), "old").unwrap();
        file.stays_calm().await;
        fs::remove_file(file.at("config.yaml")).unwrap();
        fs::write(file.at("config.yaml"), "new").unwrap();
        file.notices().await;
    }

    #[tokio::test]
    async fn another_time_or_other_rights_are_no_change() {
        let mut file = Watched::plain().await;
        let path = file.at("config.yaml");
        let touched = File::options().append(true).open(&path).unwrap();
        touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        file.stays_calm().await;
        fs::write(&path, "old").unwrap();
        file.stays_calm().await;
    }

    #[tokio::test]
    async fn a_file_that_could_not_be_read_at_start_is_noticed_when_it_comes() {
        let mut file = Watched::new(|_| {}).await;
        fs::write(file.at("config.yaml"), "new").unwrap();
        file.notices().await;
    }

    /// The lines that are logged on this thread.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl tracing::field::Visit for Lines {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            if *event.metadata().level() <= tracing::Level::WARN {
                event.record(&mut self.clone());
            }
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    /// Renames over the file what can never be a configuration.
    fn spoil(folder: &Path, make: impl FnOnce(&Path)) {
        let next = folder.join("next");
        make(&next);
        fs::rename(next, folder.join("config.yaml")).unwrap();
    }

    fn pipe(path: &Path) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    fn endless(path: &Path) {
        symlink("/dev/zero", path).unwrap();
    }

    fn huge(path: &Path) {
        File::create(path).unwrap().set_len(20 << 30).unwrap();
    }

    #[test]
    fn what_can_be_no_configuration_is_refused_at_once_and_unread() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        for (make, words) in [
            (pipe as fn(&Path), "is no regular file"),
            (endless, "is no regular file"),
            (huge, "is larger than a configuration can be"),
            (|path| fs::create_dir(path).unwrap(), "Is a directory"),
        ] {
            make(&path);
            let error = read_config(&path).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
            let _ = fs::remove_file(&path);
        }
    }

    #[tokio::test]
    async fn what_can_be_no_configuration_is_no_change_and_a_file_after_it_is_noticed() {
        for make in [pipe as fn(&Path), endless, huge] {
            let mut file = Watched::plain().await;
            spoil(file.folder.path(), make);
            file.stays_calm().await;
            spoil(file.folder.path(), |path| fs::write(path, "old").unwrap());
            file.stays_calm().await;
            spoil(file.folder.path(), make);
            file.stays_calm().await;
            spoil(file.folder.path(), |path| fs::write(path, "new").unwrap());
            file.notices().await;
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_is_told_once_by_its_name() {
        let log = Lines::default();
        let _kept = tracing::subscriber::set_default(log.clone());
        let mut file = Watched::plain().await;
        for make in [pipe as fn(&Path), endless, huge] {
            spoil(file.folder.path(), make);
            file.stays_calm().await;
        }
        let lines = log.0.lock().unwrap().clone();
        assert_eq!(lines.len(), 1, "{lines:?}");
        let path = file.at("config.yaml").display().to_string();
        assert!(lines[0].contains(&path), "{lines:?}");
    }
}
