//! Manifests as a source: read at the start and whenever something changes.
//!
//! inotify says when to look; what changed is found by looking. A look now and then catches what inotify cannot see (a
//! network file system, a folder that was replaced, no inotify watches left).

use super::folder::{Folder, Scan};
use super::read::{ManifestError, cannot_read};
use super::unrest::{Stir, Unrest};
use crate::{Delivery, Health, Kind, SourceEvent};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};

/// All that the manifests source wants to know.
#[derive(Clone, Debug)]
pub struct ManifestOptions {
    /// A file, or a folder whose `.yaml`, `.yml` and `.json` files count (not those of folders in it).
    pub path: PathBuf,
    /// This node's name: other Nodes are not told. Empty tells all.
    pub node_name: Arc<str>,
    /// How long a file must be quiet after a complete change before it is read.
    pub settle: Duration,
    /// The same after a write to a file that is still open.
    pub settle_open: Duration,
    /// Time between looks that nothing asked for.
    pub poll: Duration,
}

impl ManifestOptions {
    /// The usual times.
    pub fn new(path: impl Into<PathBuf>, node_name: impl Into<Arc<str>>) -> Self {
        ManifestOptions {
            path: path.into(),
            node_name: node_name.into(),
            settle: Duration::from_millis(100),
            settle_open: Duration::from_secs(1),
            poll: Duration::from_secs(5),
        }
    }
}

/// A file or folder of manifests as a source of objects.
#[derive(Debug)]
pub struct Source {
    options: ManifestOptions,
}

/// How the last look went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Connected,
    Failing { failures: u32, since: Instant },
}

impl Source {
    /// A source for a path that is there now. What goes away later is waited for.
    ///
    /// # Errors
    /// When there is no such file or folder, or it may not be read.
    pub fn new(options: ManifestOptions) -> Result<Self, ManifestError> {
        let wrong = || cannot_read(options.path.display());
        if std::fs::metadata(&options.path).map_err(wrong())?.is_dir() {
            std::fs::read_dir(&options.path).map_err(wrong())?;
        } else {
            std::fs::File::open(&options.path).map_err(wrong())?;
        }
        Ok(Source { options })
    }

    /// Reads and watches until the receiver is dropped.
    pub async fn run(self, out: Sender<SourceEvent>) {
        let Source { options } = self;
        let mut folder = Folder::new(options.path.clone(), options.node_name.clone());
        let mut told = Told::Nothing;
        let mut ear = Ear::on(&options.path);
        let mut unrest = Unrest::default();
        let mut restless = BTreeSet::new();
        loop {
            if !ear.is_on(&options.path) {
                ear = Ear::on(&options.path);
            }
            let Some(looked) = look(folder, restless, &mut told, &out).await else {
                return;
            };
            folder = looked;
            tokio::select! {
                left = settled(&mut ear.stirs, &mut unrest, &options) => restless = left,
                () = out.closed() => return,
            }
        }
    }
}

/// An inotify watch on a folder.
struct Ear {
    /// Device and inode of the folder; a folder that was replaced has another.
    folder: Option<(u64, u64)>,
    /// Keeps the watch up. `None` without inotify.
    _watcher: Option<RecommendedWatcher>,
    stirs: UnboundedReceiver<(PathBuf, Stir)>,
}

impl Ear {
    fn on(path: &Path) -> Self {
        let folder = identity(path);
        let (watcher, stirs) = watch(folder_of(path));
        Ear {
            folder,
            _watcher: watcher,
            stirs,
        }
    }

    fn is_on(&self, path: &Path) -> bool {
        self.folder.is_some() && self.folder == identity(path)
    }
}

/// The folder to watch for a path: itself, or the one it is in.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        _ if path.is_dir() => path,
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(folder_of(path)).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Watches a folder. Without inotify, looking now and then must do.
fn watch(folder: &Path) -> (Option<RecommendedWatcher>, UnboundedReceiver<(PathBuf, Stir)>) {
    let (stir, stirs) = unbounded_channel();
    let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Some(kind) = stir_of(&event) else {
            return;
        };
        // What was lost, or is about no file, is about the folder.
        let paths = event.map(|event| event.paths).unwrap_or_default();
        let paths = if paths.is_empty() {
            vec![PathBuf::new()]
        } else {
            paths
        };
        for path in paths {
            // Nobody hears it: the watch is about to be dropped.
            let _ = stir.send((path, kind));
        }
    })
    .and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watcher {
        Ok(watcher) => (Some(watcher), stirs),
        Err(error) => {
            tracing::debug!(%error, folder = %folder.display(), "no inotify, looking now and then");
            (None, stirs)
        }
    }
}

/// What an event means; `None` for those that our own reading causes.
fn stir_of(event: &notify::Result<notify::Event>) -> Option<Stir> {
    match event {
        // Events were lost: look.
        Err(_) => Some(Stir::Complete),
        Ok(event) => match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => Some(Stir::Complete),
            EventKind::Access(_) => None,
            EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Any) => Some(Stir::Writing),
            _ => Some(Stir::Complete),
        },
    }
}

/// Waits until files that were touched are quiet, or until it is time for a look anyway. Gives the files that somebody is
/// still at.
async fn settled(
    stirs: &mut UnboundedReceiver<(PathBuf, Stir)>,
    unrest: &mut Unrest,
    options: &ManifestOptions,
) -> BTreeSet<PathBuf> {
    let poll = Instant::now() + options.poll;
    let mut open = true;
    loop {
        let until = unrest.look_at(options.settle).map_or(poll, |at| at.min(poll));
        tokio::select! {
            () = sleep_until(until) => break,
            stir = stirs.recv(), if open => match stir {
                Some((path, stir)) => unrest.note(path, stir, Instant::now(), options),
                None => open = false,
            }
        }
    }
    while let Ok((path, stir)) = stirs.try_recv() {
        unrest.note(path, stir, Instant::now(), options);
    }
    unrest.take(Instant::now())
}

/// Looks at the files that are not restless, on a thread that may block. `None` when nobody listens.
async fn look(
    mut folder: Folder,
    restless: BTreeSet<PathBuf>,
    told: &mut Told,
    out: &Sender<SourceEvent>,
) -> Option<Folder> {
    let sender = out.clone();
    let scan = tokio::task::spawn_blocking(move || {
        let scan = folder.scan(&restless, &mut |event| sender.blocking_send(event));
        (folder, scan)
    });
    let (folder, scan) = scan.await.expect("invariant: reading manifests does not panic");
    if let Some(health) = health(told, &scan.ok()?) {
        for kind in [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr] {
            out.send(SourceEvent::Health(kind, health.clone())).await.ok()?;
        }
    }
    Some(folder)
}

fn health(told: &mut Told, scan: &Result<Scan, ManifestError>) -> Option<Health> {
    match (scan, *told) {
        (Ok(_), Told::Connected) => None,
        (Ok(_), _) => {
            *told = Told::Connected;
            Some(Health::Connected {
                delivery: Delivery::Files,
            })
        }
        (Err(error), before) => {
            let now = Instant::now();
            let (failures, since) = match before {
                Told::Failing { failures, since } => (failures.saturating_add(1), since),
                Told::Nothing | Told::Connected => (1, now),
            };
            *told = Told::Failing { failures, since };
            failures.is_power_of_two().then(|| Health::Failing {
                error: format!("{}; what it said before stays in force", crate::chain(error)),
                failures,
                since: now - since,
            })
        }
    }
}
