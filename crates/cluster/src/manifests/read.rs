//! Manifests as values: text, a file or a folder in; objects and everything that is wrong out.

use super::document::{Document, Hashed};
use crate::api::one_line;
use model::Note;
use model::object::{NotRead, Object, ObjectRef};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, SeekFrom};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// At most so many errors of one file are kept; more say nothing new.
const ERRORS: usize = 10;

/// At most so many parts of a document may come out of YAML aliases. Manifests have few; a document that multiplies
/// itself has billions.
const ALIASES: usize = 100_000;

/// What is wrong with a manifest. Each is one line that names the file and the place.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The file or folder cannot be read.
    #[error("{path}: cannot be read; check that it exists and that this process may read it")]
    Read {
        /// The file or folder, or what stands for it.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The document is no YAML or JSON, or no Kubernetes object.
    #[error("{path}, document {document}: {reason}")]
    Document {
        /// The file, or what stands for it.
        path: String,
        /// The document in the file, counted from 1.
        document: usize,
        /// Why, with line and column where known.
        reason: String,
    },
    /// The file has no bytes.
    #[error("{path}: is empty, as if it were being written; remove it to remove its objects")]
    Empty {
        /// The file.
        path: String,
    },
    /// Another folder is in place of the one that was read, and not everything of it could be read yet.
    #[error("{path}: is another folder or file than before, and counts once all of it can be read: {why}")]
    Replaced {
        /// The folder.
        path: String,
        /// What keeps it from counting.
        why: String,
    },
    /// There are files, and none of them says anything.
    #[error("nothing can be read: {0}")]
    Nothing(String),
    /// A folder without manifests.
    #[error("{path}: no file in it ends in .yaml, .yml or .json")]
    NoFiles {
        /// The folder.
        path: String,
    },
}

/// What manifests hold.
#[derive(Debug, Default)]
pub struct Reading {
    /// The objects the proxy reads, in the order of the text, or for folders in the order of name. No two have the
    /// same name.
    pub objects: Vec<Object>,
    /// Parts of objects, or objects, that were left out.
    pub notes: Vec<Note>,
    /// Objects of kinds the proxy does not read.
    pub not_read: Vec<NotRead>,
    /// Documents and files that were left out.
    pub errors: Vec<ManifestError>,
    /// Objects that were said more than once, one line each.
    pub doubles: Vec<String>,
}

/// Reads YAML (any number of documents) or JSON. `name` stands for the text in messages.
pub fn read_str(name: &str, text: &str) -> Reading {
    let file: FileReading = read_from(name, Cursor::new(text.as_bytes()));
    file.into_reading(name)
}

/// Reads a file, all manifests of a folder, or standard input when the path is `-`.
///
/// # Errors
/// When there is nothing to read at all; what is wrong inside a file is in [`Reading::errors`].
pub fn read_path(path: &Path) -> Result<Reading, ManifestError> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok(read_str("standard input", &standard_input()?));
    }
    if !fs::metadata(path).map_err(cannot_read(path.display()))?.is_dir() {
        let file: FileReading = read_file(path)?;
        return Ok(file.into_reading(&path.display().to_string()));
    }
    let files = manifests_in(path)?;
    if files.is_empty() {
        return Err(ManifestError::NoFiles {
            path: path.display().to_string(),
        });
    }
    Ok(read_folder(&files))
}

/// The path that stands for standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// The text of standard input.
pub(super) fn standard_input() -> Result<String, ManifestError> {
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(cannot_read("standard input"))?;
    if text.trim().is_empty() {
        // A program that failed writes nothing: that is no cluster without objects.
        let error = io::Error::other("holds nothing");
        return Err(cannot_read("standard input")(error));
    }
    Ok(text)
}

fn read_folder(files: &[PathBuf]) -> Reading {
    let mut reading = Reading::default();
    let mut objects: BTreeMap<ObjectRef, (Object, &Path)> = BTreeMap::new();
    for path in files {
        let file = match read_file::<FileReading>(path) {
            Ok(file) => file.into_reading(&path.display().to_string()),
            Err(error) => {
                reading.errors.push(error);
                continue;
            }
        };
        reading.notes.extend(file.notes);
        reading.not_read.extend(file.not_read);
        reading.errors.extend(file.errors);
        reading.doubles.extend(file.doubles);
        for object in file.objects {
            let name = object.reference();
            if let Some((_, first)) = objects.insert(name.clone(), (object, path)) {
                reading.doubles.push(double(&name, first, path));
            }
        }
    }
    reading.objects = objects.into_values().map(|(object, _)| object).collect();
    reading
}

/// The line about an object that two files have. The later file counts, as it does for `kubectl apply`.
pub(super) fn double(name: &ObjectRef, first: &Path, last: &Path) -> String {
    format!(
        "{} is in {} and in {}; the latter counts",
        printed(name),
        first.display(),
        last.display()
    )
}

fn printed(name: &ObjectRef) -> String {
    match name {
        ObjectRef::Service(name) => format!("Service {name}"),
        ObjectRef::Slice(name) => format!("EndpointSlice {name}"),
        ObjectRef::Node(name) => format!("Node {name}"),
        ObjectRef::ServiceCidr(name) => format!("ServiceCIDR {name}"),
    }
}

/// The manifests of a folder, in the order of their names. Hidden files and other kinds of file are not among them.
pub(super) fn manifests_in(folder: &Path) -> Result<Vec<PathBuf>, ManifestError> {
    let wrong = || cannot_read(folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong())? {
        let path = entry.map_err(wrong())?.path();
        if is_manifest(&path) && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn is_manifest(path: &Path) -> bool {
    let hidden = path
        .file_name()
        .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
    !hidden
        && ["yaml", "yml", "json"]
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
}

/// One file's documents.
#[derive(Debug, Default)]
pub(super) struct FileReading {
    pub(super) objects: Vec<Hashed>,
    pub(super) notes: Vec<Note>,
    pub(super) not_read: Vec<NotRead>,
    pub(super) errors: Vec<ManifestError>,
}

impl FileReading {
    fn into_reading(self, name: &str) -> Reading {
        let mut places: BTreeMap<ObjectRef, usize> = BTreeMap::new();
        let mut objects: Vec<Object> = Vec::with_capacity(self.objects.len());
        let mut doubles = Vec::new();
        for Hashed { object, .. } in self.objects {
            let reference = object.reference();
            if let Some(place) = places.get(&reference) {
                doubles.push(twice(&reference, name));
                objects[*place] = object;
            } else {
                places.insert(reference, objects.len());
                objects.push(object);
            }
        }
        Reading {
            objects,
            notes: self.notes,
            not_read: self.not_read,
            errors: self.errors,
            doubles,
        }
    }
}

/// What a file's documents are put into.
pub(super) trait Take: Default {
    /// What a document is read as.
    type Document: DeserializeOwned;

    /// Takes a document in, or says what is wrong with it.
    fn take(&mut self, document: Self::Document) -> Result<(), String>;

    /// What was wrong so far.
    fn errors(&mut self) -> &mut Vec<ManifestError>;

    /// Notes that a document was left out.
    fn fail(&mut self, path: &str, document: usize, reason: String) {
        if self.errors().len() < ERRORS {
            self.errors().push(ManifestError::Document {
                path: path.to_owned(),
                document,
                reason,
            });
        }
    }
}

impl Take for FileReading {
    type Document = Document;

    fn take(&mut self, document: Document) -> Result<(), String> {
        self.objects.extend(document.objects);
        self.notes.extend(document.notes);
        self.not_read.extend(document.not_read);
        Ok(())
    }

    fn errors(&mut self) -> &mut Vec<ManifestError> {
        &mut self.errors
    }
}

/// The line about an object that one file has twice.
pub(super) fn twice(name: &ObjectRef, path: &str) -> String {
    format!(
        "{} is more than once in {path}; the last one counts",
        printed(name)
    )
}

/// Reads one file, without holding its text.
pub(super) fn read_file<T: Take>(path: &Path) -> Result<T, ManifestError> {
    let name = path.display().to_string();
    // Asked before it is opened: to open a pipe waits for whoever writes to it.
    let meta = fs::metadata(path).map_err(cannot_read(&name))?;
    if !meta.is_file() {
        let error = io::Error::other("is no regular file");
        return Err(cannot_read(&name)(error));
    }
    if meta.len() == 0 {
        return Err(ManifestError::Empty { path: name });
    }
    let file = File::open(path).map_err(cannot_read(&name))?;
    Ok(read_from(&name, BufReader::with_capacity(64 << 10, file)))
}

pub(super) fn read_from<T: Take, R: io::BufRead + io::Seek>(name: &str, mut input: R) -> T {
    if !looks_like_json(&mut input) {
        return read_yaml(name, input);
    }
    let mut json: T = read_json(name, &mut input);
    if json.errors().is_empty() {
        return json;
    }
    // YAML may begin with a brace too.
    if input.seek(SeekFrom::Start(0)).is_err() {
        return json;
    }
    let mut yaml: T = read_yaml(name, input);
    if yaml.errors().is_empty() { yaml } else { json }
}

/// Whether the first character that counts is a brace. Leaves the input at its start.
fn looks_like_json<R: io::BufRead>(input: &mut R) -> bool {
    input
        .fill_buf()
        .is_ok_and(|bytes| bytes.trim_ascii_start().starts_with(b"{"))
}

fn read_json<T: Take, R: Read>(name: &str, input: R) -> T {
    let mut file = T::default();
    let documents = serde_json::Deserializer::from_reader(input).into_iter::<T::Document>();
    for (i, document) in documents.enumerate() {
        let taken = match document {
            Ok(document) => file.take(document),
            Err(error) => {
                file.fail(name, i + 1, one_line(&error.to_string()));
                break;
            }
        };
        if let Err(reason) = taken {
            file.fail(name, i + 1, reason);
        }
    }
    file
}

fn read_yaml<T: Take, R: Read>(name: &str, mut input: R) -> T {
    let mut file = T::default();
    // A budget would refuse a large cluster. What expands aliases keeps its limits.
    let options = serde_saphyr::options! {
        budget: None,
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIASES },
        emit_comments: false,
        with_snippet: false,
    };
    for (i, document) in serde_saphyr::read_with_options::<_, T::Document>(&mut input, options).enumerate() {
        let taken = document.map_err(|error| one_line(&error.to_string()));
        if let Err(reason) = taken.and_then(|document| file.take(document)) {
            file.fail(name, i + 1, reason);
        }
    }
    file
}

pub(super) fn cannot_read(path: impl ToString) -> impl FnOnce(io::Error) -> ManifestError {
    move |source| ManifestError::Read {
        path: path.to_string(),
        source,
    }
}
