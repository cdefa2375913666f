//! Manifests as they are written: for tools that look at more of an object than the proxy does.

use super::read::{
    ManifestError, STANDARD_INPUT, Take, cannot_read, manifests_in, read_file, read_from, standard_input,
};
use serde_json::Value;
use std::fs;
use std::io::Cursor;
use std::path::Path;

/// What manifests hold, as written.
#[derive(Debug, Default)]
pub struct Values {
    /// Objects and lists of objects, in the order of the text, or for folders in the order of name.
    pub values: Vec<Value>,
    /// Documents and files that were left out.
    pub errors: Vec<ManifestError>,
}

impl Take for Values {
    type Document = Value;

    fn take(&mut self, document: Value) -> Result<(), String> {
        match &document {
            Value::Null => Ok(()),
            Value::Object(fields) if fields.get("kind").is_some_and(Value::is_string) => {
                self.values.push(document);
                Ok(())
            }
            _ => Err("it has no kind, so it is no Kubernetes object, or its end is missing".to_owned()),
        }
    }

    fn errors(&mut self) -> &mut Vec<ManifestError> {
        &mut self.errors
    }
}

/// Reads a file, all manifests of a folder, or standard input when the path is `-`.
///
/// # Errors
/// When there is nothing to read at all; what is wrong inside a file is in [`Values::errors`].
pub fn values_in(path: &Path) -> Result<Values, ManifestError> {
    if path == Path::new(STANDARD_INPUT) {
        return Ok(read_from(
            "standard input",
            Cursor::new(standard_input()?.as_bytes()),
        ));
    }
    if !fs::metadata(path).map_err(cannot_read(path.display()))?.is_dir() {
        return read_file(path);
    }
    let files = manifests_in(path)?;
    if files.is_empty() {
        return Err(ManifestError::NoFiles {
            path: path.display().to_string(),
        });
    }
    let mut all = Values::default();
    for file in &files {
        match read_file::<Values>(file) {
            Ok(found) => {
                all.values.extend(found.values);
                all.errors.extend(found.errors);
            }
            Err(error) => all.errors.push(error),
        }
    }
    Ok(all)
}
