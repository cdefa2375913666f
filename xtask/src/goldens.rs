//! Golden files of our own stages that nothing reads any more.

use crate::run::root;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The folders of our own goldens, and the files that tests read in each of theirs.
const READ: [(&str, &[&str]); 2] = [
    (
        "scenarios/stages",
        &["desired.v4.txt", "desired.v6.txt", "first-plan.txt"],
    ),
    (
        "scenarios/transitions",
        &["before.yaml", "after.yaml", "plan.txt"],
    ),
];

/// Reports files that no test reads: those of a folder that no test names, and those with other names.
pub fn orphans(sources: &BTreeMap<PathBuf, String>, faults: &mut Vec<String>) -> Result<()> {
    for (folder, names) in READ {
        for case in entries(Path::new(folder))? {
            if !root().join(&case).is_dir() {
                faults.push(format!("{}: no test reads it", case.display()));
                continue;
            }
            let named = is_named(&file_name(&case), sources);
            for file in entries(&case)? {
                if !named {
                    faults.push(format!("{}: no test names its folder", file.display()));
                } else if !names.contains(&file_name(&file).as_str()) {
                    faults.push(format!("{}: no test reads it", file.display()));
                }
            }
        }
    }
    Ok(())
}

/// Whether a test's source has the name as a string.
fn is_named(name: &str, sources: &BTreeMap<PathBuf, String>) -> bool {
    let quoted = format!("\"{name}\"");
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str() == "tests");
    let mut tests = sources.iter().filter(|(path, _)| is_test(path));
    tests.any(|(_, text)| text.contains(&quoted))
}

/// A folder's entries, sorted, by path relative to the root.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let path = root().join(folder);
    let read = || format!("cannot read {}", path.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&path).with_context(read)? {
        found.push(folder.join(entry.with_context(read)?.file_name()));
    }
    found.sort();
    Ok(found)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::{is_named, orphans};
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    #[test]
    fn only_a_test_that_has_the_name_as_a_string_counts() {
        let sources = |path: &str, text: &str| BTreeMap::from([(PathBuf::from(path), text.to_owned())]);
        assert!(is_named(
            "policy",
            &sources("crates/a/tests/b.rs", "[\"policy\"]")
        ));
        assert!(!is_named("policy", &sources("crates/a/tests/b.rs", "policy")));
        assert!(!is_named("policy", &sources("crates/a/src/b.rs", "\"policy\"")));
    }

    #[test]
    fn without_tests_every_golden_is_an_orphan() {
        let mut faults = Vec::new();
        orphans(&BTreeMap::new(), &mut faults).expect("the folders are there");
        for orphan in [
            "stages/policy/first-plan.txt",
            "transitions/endpoint-added/plan.txt",
        ] {
            assert!(faults.iter().any(|fault| fault.contains(orphan)), "{faults:?}");
        }
    }
}
