//! Manifests as a source: read at the start and whenever something changes.
//!
//! inotify says when to look; what changed is found by looking. A look now and then catches what inotify cannot see (a
//! network file system, a folder that was replaced, no inotify watches left).

use super::folder::{Folder, Held, Scan};
use super::place::Place;
use super::read::{ManifestError, cannot_read};
use super::unrest::{Stir, Unrest};
use crate::state::KernelRules;
use crate::{Delivery, Health, Kind, SourceEvent};
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use std::collections::BTreeSet;
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
    folder: Folder,
    /// What the first reading said.
    first: Vec<SourceEvent>,
    kernel_rules: fn() -> KernelRules,
}

/// How the last look went.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Nothing,
    Connected,
    Failing {
        error: String,
        failures: u32,
        since: Instant,
    },
}

impl Source {
    /// A source for a path that is there now, which is read here. What goes away later is waited for.
    ///
    /// # Errors
    /// When there is no such file or folder, or it may not be read, or there are files in it and nothing can be read of
    /// any.
    pub fn new(options: ManifestOptions) -> Result<Self, ManifestError> {
        let wrong = || cannot_read(options.path.display());
        if std::fs::metadata(&options.path).map_err(wrong())?.is_dir() {
            std::fs::read_dir(&options.path).map_err(wrong())?;
        } else {
            std::fs::File::open(&options.path).map_err(wrong())?;
        }
        let mut folder = Folder::new(options.path.clone(), options.node_name.clone());
        let mut first = Vec::new();
        let scan = folder.scan(&BTreeSet::new(), &mut |event| {
            first.push(event);
            Ok::<(), std::convert::Infallible>(())
        });
        if let Scan::Held(Held::Unreadable(wrong)) = scan.unwrap_or_else(|never| match never {})?
            && folder.is_all_wrong()
        {
            return Err(ManifestError::Nothing(wrong));
        }
        Ok(Source {
            options,
            folder,
            first,
            kernel_rules: || KernelRules::Absent,
        })
    }

    /// The same, asked at the start whether somebody would lose by what cannot be read: while the kernel has rules and a
    /// file is damaged, nothing is said to be complete, so that nothing is taken away.
    #[must_use]
    pub fn beside(self, kernel_rules: fn() -> KernelRules) -> Self {
        Source { kernel_rules, ..self }
    }

    /// Reads and watches until the receiver is dropped.
    pub async fn run(self, out: Sender<SourceEvent>) {
        let Source {
            options,
            mut folder,
            first,
            kernel_rules,
        } = self;
        for event in first {
            if out.send(event).await.is_err() {
                return;
            }
        }
        let mut looker = Looker {
            told: Told::Nothing,
            kernel_rules,
            asked: None,
            out,
        };
        let mut ear = Ear::on(&options.path);
        let mut unrest = Unrest::default();
        let mut restless = BTreeSet::new();
        loop {
            if !ear.is_on(&options.path) {
                ear = Ear::on(&options.path);
                unrest.note_folder(Instant::now(), &options);
                restless.insert(PathBuf::new());
            }
            let Some(seen) = looker.look(folder, restless).await else {
                return;
            };
            folder = seen;
            tokio::select! {
                left = settled(&mut ear.stirs, &mut unrest, &options) => restless = left,
                () = looker.out.closed() => return,
            }
        }
    }
}

/// An inotify watch on a folder.
struct Ear {
    /// The folder; one that was put in its place is another, of which the watch hears nothing.
    place: Option<Place>,
    /// Keeps the watch up. `None` without inotify.
    _watcher: Option<RecommendedWatcher>,
    stirs: UnboundedReceiver<(PathBuf, Stir)>,
}

impl Ear {
    fn on(path: &Path) -> Self {
        let place = watched_place(path);
        let (watcher, stirs) = watch(folder_of(path));
        Ear {
            place,
            _watcher: watcher,
            stirs,
        }
    }

    fn is_on(&self, path: &Path) -> bool {
        self.place.is_some() && self.place == watched_place(path)
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

fn watched_place(path: &Path) -> Option<Place> {
    std::fs::metadata(folder_of(path))
        .ok()
        .map(|meta| Place::of(&meta))
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

/// Looks at the files, and tells how it went.
struct Looker {
    told: Told,
    kernel_rules: fn() -> KernelRules,
    /// When the kernel was last asked whether it has rules.
    asked: Option<Instant>,
    out: Sender<SourceEvent>,
}

impl Looker {
    /// To look into the kernel costs more than to look at files.
    const ASK_AGAIN: Duration = Duration::from_mins(1);

    /// Looks at the files that are not restless. `None` when nobody listens.
    async fn look(&mut self, folder: Folder, restless: BTreeSet<PathBuf>) -> Option<Folder> {
        let restless = Arc::new(restless);
        let (mut folder, mut scan) = self.scan(folder, restless.clone()).await?;
        if matches!(scan, Ok(Scan::Held(Held::Unreadable(_)))) && self.nobody_loses().await {
            folder.let_go();
            (folder, scan) = self.scan(folder, restless).await?;
        }
        let Some(health) = health(&mut self.told, &scan) else {
            return Some(folder);
        };
        let kinds = match health {
            // It is one folder: one line tells of it.
            Health::Failing { .. } => &[Kind::Service][..],
            _ => &[Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr],
        };
        for kind in kinds {
            let event = SourceEvent::Health(*kind, health.clone());
            self.out.send(event).await.ok()?;
        }
        Some(folder)
    }

    /// On a thread that may block.
    async fn scan(
        &self,
        mut folder: Folder,
        restless: Arc<BTreeSet<PathBuf>>,
    ) -> Option<(Folder, Result<Scan, ManifestError>)> {
        let out = self.out.clone();
        let scan = tokio::task::spawn_blocking(move || {
            let scan = folder.scan(&restless, &mut |event| out.blocking_send(event));
            scan.ok().map(|scan| (folder, scan))
        });
        scan.await.expect("invariant: reading manifests does not panic")
    }

    /// Whether it is known that the kernel has no rules, which could be those of what cannot be read.
    async fn nobody_loses(&mut self) -> bool {
        let now = Instant::now();
        if self.asked.is_some_and(|asked| now < asked + Self::ASK_AGAIN) {
            return false;
        }
        self.asked = Some(now);
        let rules = tokio::task::spawn_blocking(self.kernel_rules).await;
        rules.expect("invariant: asking the kernel does not panic") == KernelRules::Absent
    }
}

fn health(told: &mut Told, scan: &Result<Scan, ManifestError>) -> Option<Health> {
    let error = match scan {
        Ok(Scan::Same | Scan::News) if *told == Told::Connected => return None,
        Ok(Scan::Same | Scan::News) => {
            *told = Told::Connected;
            return Some(Health::Connected {
                delivery: Delivery::Files,
            });
        }
        Ok(Scan::Held(held)) => format!("{}; until it can be read, rules stay as they are", held.words()),
        Err(error) => format!("{}; what it said before stays in force", crate::chain(error)),
    };
    let now = Instant::now();
    let (is_new, failures, since) = match told {
        Told::Failing {
            error: before,
            failures,
            since,
        } => (*before != error, failures.saturating_add(1), *since),
        Told::Nothing | Told::Connected => (true, 1, now),
    };
    *told = Told::Failing {
        error: error.clone(),
        failures,
        since,
    };
    (is_new || failures.is_power_of_two()).then(|| Health::Failing {
        error,
        failures,
        since: now - since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The number of a folder that went is often given to the next one.
    #[test]
    fn a_watch_is_not_on_a_folder_that_was_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m");
        for attempt in 0..5 {
            fs::create_dir(&path).unwrap();
            let ear = Ear::on(&path);
            assert!(ear.is_on(&path), "{attempt}");
            // File systems' clocks tick every few milliseconds.
            std::thread::sleep(Duration::from_millis(20));
            fs::remove_dir(&path).unwrap();
            fs::create_dir(&path).unwrap();
            assert!(!ear.is_on(&path), "{attempt}");
            fs::remove_dir(&path).unwrap();
        }
    }
}
