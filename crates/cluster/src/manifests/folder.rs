//! What a folder of manifests says, reading by reading.
//!
//! * A file that becomes malformed keeps what it said before, with one warning; the same is said again with each doubling of how often
//!   it was found, while somebody goes on writing to the file.
//! * A file that goes takes its objects with it. A folder that goes does not, nor one that another is put in place of:
//!   what was said stays until every file of the new one has been read and nobody is at any.
//! * At the start nothing is complete while a file cannot be read, unless [`Folder::let_go`] says so.
//! * An object in two files is what the later file in order of name says, as after `kubectl apply`.
//!
//! Objects are not kept, only hashes of their text: a file is read again for an object that another file had covered.

use super::complaints::Complaints;
use super::place::Place;
use super::read::{FileReading, ManifestError, double, manifests_in, read_file, twice};
use crate::{Kind, SourceEvent};
use model::object::{Object, ObjectRef};
use model::snapshot::Change;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file's identity and version. A file replaced by rename has another inode; one written to has another time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// What one file said when it last could be read.
#[derive(Debug, Default)]
struct FileState {
    /// Of the last attempt; `None` when the file could not even be looked at.
    stamp: Option<Stamp>,
    /// The hash of each object. `None` before the first success.
    said: Option<BTreeMap<ObjectRef, u64>>,
    /// What was wrong at the last attempt.
    wrong: Option<String>,
    /// What was said to be wrong since it was last whole.
    complaints: Complaints,
}

/// What is not said is taken away from whoever has it. That is no answer to a file that is damaged at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Everything has been said only once every file could be read.
    On,
    /// What can be read is everything, and is to be said to be.
    LetGo,
    /// It was said; from now on a damaged file keeps what it said.
    Over,
}

/// A file or folder being followed.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    node: Arc<str>,
    /// Where what was said comes from; `None` before the first scan.
    place: Option<Place>,
    /// What was found in its place, as of the last scan.
    next: Option<Place>,
    hold: Hold,
    files: BTreeMap<Arc<Path>, FileState>,
    /// What was told, and from which file.
    told: BTreeMap<ObjectRef, (u64, Arc<Path>)>,
}

/// Whether a scan found something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scan {
    /// All files are as they were.
    Same,
    /// At least one file was read or went.
    News,
    /// It is not known yet what there is.
    Held(Held),
}

/// Why it is not known yet what there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// There are no files: there is no rest that could be served without what is missing.
    NoFiles(String),
    /// What is wrong with the first of the files that cannot be read.
    Unreadable(String),
}

impl Held {
    pub(super) fn words(&self) -> &str {
        match self {
            Held::NoFiles(words) | Held::Unreadable(words) => words,
        }
    }
}

/// Objects read in this scan.
type Fresh = BTreeMap<ObjectRef, (Arc<Path>, Object)>;

impl Folder {
    /// A file or folder that has not been read. With a node name, other Nodes are not told.
    pub(super) fn new(path: PathBuf, node: Arc<str>) -> Self {
        Folder {
            path,
            node,
            place: None,
            next: None,
            hold: Hold::On,
            files: BTreeMap::new(),
            told: BTreeMap::new(),
        }
    }

    /// Nobody loses by what cannot be read: the rest is complete.
    pub(super) fn let_go(&mut self) {
        self.hold = Hold::LetGo;
    }

    /// Whether nothing at all could be read, of files that are there.
    pub(super) fn is_all_wrong(&self) -> bool {
        let said_nothing = |state: &FileState| state.said.as_ref().is_none_or(BTreeMap::is_empty);
        let wrong = |state: &FileState| state.wrong.is_some() && said_nothing(state);
        !self.files.is_empty() && self.files.values().all(wrong)
    }

    /// Looks at all files but the restless ones, at which somebody is; reads those that changed, and says what follows.
    /// `say` gives back an error when nobody listens.
    ///
    /// # Errors
    /// The outer one when nobody listens; the inner one when the folder itself cannot be read.
    pub(super) fn scan<E>(
        &mut self,
        restless: &BTreeSet<PathBuf>,
        say: &mut dyn FnMut(SourceEvent) -> Result<(), E>,
    ) -> Result<Result<Scan, ManifestError>, E> {
        let (place, paths) = match self.paths() {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        let (mut news, mut fresh) = (false, Fresh::new());
        for path in &paths {
            if !restless.contains(path) && self.look(&path.as_path().into(), &mut fresh, say)? == Scan::News {
                news = true;
            }
        }
        let is_other = self.place.is_some_and(|known| known != place);
        if is_other && let Some(why) = self.not_yet(place, &paths, restless) {
            self.next = Some(place);
            return Ok(Err(ManifestError::Replaced {
                path: self.path.display().to_string(),
                why,
            }));
        }
        (self.place, self.next) = (Some(place), None);
        let before = self.files.len();
        self.files.retain(|path, _| {
            let listed = paths.binary_search_by(|listed| listed.as_path().cmp(path));
            // One that is being replaced may be gone for a moment.
            listed.is_ok() || restless.contains(&**path)
        });
        if news || is_other || self.files.len() != before {
            self.tell(fresh, say)?;
        } else if self.hold == Hold::Over {
            return Ok(Ok(Scan::Same));
        }
        if let Some(held) = self.held_by() {
            return Ok(Ok(Scan::Held(held)));
        }
        self.hold = Hold::Over;
        for kind in [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr] {
            say(SourceEvent::Synced(kind))?;
        }
        Ok(Ok(Scan::News))
    }

    /// Why these files, of another place than before, do not count yet.
    fn not_yet(&self, place: Place, paths: &[PathBuf], restless: &BTreeSet<PathBuf>) -> Option<String> {
        // Whoever watches has to be on the new folder before it is known that nobody is at it.
        if self.next != Some(place) || !restless.is_empty() {
            return Some("somebody may still be writing".to_owned());
        }
        if paths.is_empty() {
            return Some(self.no_files());
        }
        paths.iter().find_map(|path| self.not_whole(path))
    }

    /// Why a file is not whole, as it is now.
    fn not_whole(&self, path: &Path) -> Option<String> {
        let now = fs::metadata(path).ok().map(|meta| Stamp::of(&meta));
        match self.files.get(path) {
            Some(state) if state.stamp == now => state.wrong.clone(),
            _ => Some(format!("{}: has just changed", path.display())),
        }
    }

    fn no_files(&self) -> String {
        let path = self.path.display().to_string();
        crate::chain(&ManifestError::NoFiles { path })
    }

    fn held_by(&self) -> Option<Held> {
        match self.hold {
            Hold::On | Hold::LetGo if self.files.is_empty() => Some(Held::NoFiles(self.no_files())),
            Hold::On => self.wrong().map(Held::Unreadable),
            Hold::LetGo | Hold::Over => None,
        }
    }

    /// What is wrong with the first of the files that cannot be read.
    fn wrong(&self) -> Option<String> {
        self.files.values().find_map(|state| state.wrong.clone())
    }

    fn paths(&self) -> Result<(Place, Vec<PathBuf>), ManifestError> {
        let meta = fs::metadata(&self.path).map_err(super::read::cannot_read(self.path.display()))?;
        let paths = if meta.is_dir() {
            manifests_in(&self.path)?
        } else {
            vec![self.path.clone()]
        };
        Ok((Place::of(&meta), paths))
    }

    /// Reads a file if it changed.
    fn look<E>(
        &mut self,
        path: &Arc<Path>,
        fresh: &mut Fresh,
        say: &mut dyn FnMut(SourceEvent) -> Result<(), E>,
    ) -> Result<Scan, E> {
        let stamp = match fs::metadata(path) {
            Ok(meta) => Some(Stamp::of(&meta)),
            // It went between listing and looking; the next scan will not list it. A link that leads nowhere stays.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
                return Ok(Scan::Same);
            }
            Err(_) => None,
        };
        let known = self.files.get(path);
        if known.is_some_and(|state| state.stamp == stamp) {
            return Ok(Scan::Same);
        }
        let first = known.is_none_or(|state| state.said.is_none());
        let state = self.files.entry(path.clone()).or_default();
        state.stamp = stamp;
        let (read, errors) = match read_file::<FileReading>(path) {
            Ok(mut file) => {
                let errors = std::mem::take(&mut file.errors);
                (Some(file), errors)
            }
            Err(error) => (None, vec![error]),
        };
        state.wrong = errors.first().map(|error| crate::chain(error));
        let consequence = if first {
            ""
        } else {
            "; what this file said before stays in force"
        };
        // One that is just being made is empty for a moment.
        let is_news = |error: &&ManifestError| !first || !matches!(error, ManifestError::Empty { .. });
        let lines = errors.iter().filter(is_news);
        let lines = lines.map(|error| format!("{}{consequence}", crate::chain(error)));
        for line in state.complaints.heard(lines.collect()) {
            say(SourceEvent::LeftOut(line))?;
        }
        if let Some(file) = read.filter(|_| first || errors.is_empty()) {
            let said = take_in(path, file, &self.told, fresh, say)?;
            state.said = Some(said);
        }
        Ok(Scan::News)
    }

    /// Says the difference between what was told and what the files say now.
    fn tell<E>(
        &mut self,
        mut fresh: Fresh,
        say: &mut dyn FnMut(SourceEvent) -> Result<(), E>,
    ) -> Result<(), E> {
        let want = self.winners(say)?;
        let gone: Vec<ObjectRef> = self
            .told
            .keys()
            .filter(|name| !want.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            self.told.remove(&name);
            say(SourceEvent::Change(Change::Delete(name)))?;
        }
        // Files that were not read in this scan, but whose object is no longer covered by another file.
        let mut again: BTreeMap<Arc<Path>, Fresh> = BTreeMap::new();
        for (name, (hash, path)) in want {
            if self.told.get(&name).is_some_and(|(told, _)| *told == hash) {
                self.told.insert(name, (hash, path));
                continue;
            }
            let object = match fresh.remove(&name) {
                Some((from, object)) if from == path => Some(object),
                _ => again
                    .entry(path.clone())
                    .or_insert_with(|| read_again(&path))
                    .remove(&name)
                    .map(|(_, object)| object),
            };
            if let Some(object) = object {
                self.told.insert(name, (hash, path));
                say(SourceEvent::Change(Change::Apply(object)))?;
            }
        }
        Ok(())
    }

    /// Which file counts for each object.
    fn winners<E>(
        &self,
        say: &mut dyn FnMut(SourceEvent) -> Result<(), E>,
    ) -> Result<BTreeMap<ObjectRef, (u64, Arc<Path>)>, E> {
        let mut want: BTreeMap<ObjectRef, (u64, Arc<Path>)> = BTreeMap::new();
        for (path, state) in &self.files {
            for (name, hash) in state.said.iter().flatten() {
                if self.is_other_node(name) {
                    continue;
                }
                let Some((_, first)) = want.insert(name.clone(), (*hash, path.clone())) else {
                    continue;
                };
                let known = self.told.get(name).is_some_and(|(_, told)| told == path);
                if !known {
                    say(SourceEvent::LeftOut(double(name, &first, path)))?;
                }
            }
        }
        Ok(want)
    }

    fn is_other_node(&self, name: &ObjectRef) -> bool {
        matches!(name, ObjectRef::Node(name) if !self.node.is_empty() && *name != self.node)
    }
}

/// Says what is odd in a file, keeps its objects for now (unless they were told already), and gives back their hashes.
fn take_in<E>(
    path: &Arc<Path>,
    file: FileReading,
    told: &BTreeMap<ObjectRef, (u64, Arc<Path>)>,
    fresh: &mut Fresh,
    say: &mut dyn FnMut(SourceEvent) -> Result<(), E>,
) -> Result<BTreeMap<ObjectRef, u64>, E> {
    if !file.notes.is_empty() {
        say(SourceEvent::Notes(file.notes))?;
    }
    if !file.not_read.is_empty() {
        say(SourceEvent::NotRead(file.not_read))?;
    }
    let mut said = BTreeMap::new();
    for hashed in file.objects {
        let name = hashed.object.reference();
        if told.get(&name).is_none_or(|(hash, _)| *hash != hashed.hash) {
            fresh.insert(name.clone(), (path.clone(), hashed.object));
        }
        if said.insert(name.clone(), hashed.hash).is_some() {
            say(SourceEvent::LeftOut(twice(&name, &path.display().to_string())))?;
        }
    }
    Ok(said)
}

fn read_again(path: &Arc<Path>) -> Fresh {
    // When it cannot be read now, it has changed, and the next scan sees to it.
    let objects = read_file(path)
        .map(|file: FileReading| file.objects)
        .unwrap_or_default();
    objects
        .into_iter()
        .map(|hashed| (hashed.object.reference(), (path.clone(), hashed.object)))
        .collect()
}
