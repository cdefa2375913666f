//! Scenarios for tests: folders of cluster objects, a node and expectations, read into [`model`] values.
//!
//! * What it is: [`golden_cases`] reads `scenarios/golden/` (clusters, and what upstream wrote for them);
//!   [`truth_tables`] reads `scenarios/truth/` (packets, and what should become of them); [`transitions`] reads
//!   `scenarios/transitions/` (clusters before and after a change); [`case()`] reads objects of `scenarios/cases/`;
//!   [`dumps`] reads `scenarios/dumps/` (rules of other software, and what becomes of packets that meet them);
//!   [`stage::check`] holds a text against a golden file
//!   of `scenarios/stages/` or `scenarios/transitions/`.
//! * What it deliberately does not know: backends. Only tests and tools for developers depend on this crate.
//! * Where to start reading: `scenarios/README.md`, then [`golden`].
//!
//! Broken data is a bug in the repository: the functions without `read_` in their names panic with the file and the
//! reason.

pub mod case;
pub mod dump;
pub mod error;
pub mod golden;
mod host;
pub mod stage;
pub mod transition;
pub mod truth;

pub use case::{Case, read_case};
pub use dump::{Dump, read_dump};
pub use error::ScenarioError;
pub use golden::{GoldenCase, read_golden_case};
pub use transition::{Transition, read_transition};
pub use truth::{Flow, TruthTable, Variant, read_truth_table};

use std::path::{Path, PathBuf};

/// The folder of all scenarios.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

/// All golden cases, by name.
pub fn golden_cases() -> Vec<GoldenCase> {
    load(&root().join("golden"), Path::is_dir, read_golden_case)
}

/// All truth tables, by file name.
pub fn truth_tables() -> Vec<TruthTable> {
    let is_table = |path: &Path| path.extension().is_some_and(|extension| extension == "yaml");
    load(&root().join("truth"), is_table, read_truth_table)
}

/// All transitions, by name.
pub fn transitions() -> Vec<Transition> {
    load(&root().join("transitions"), Path::is_dir, read_transition)
}

/// All dumps of other software, by program.
pub fn dumps() -> Vec<Dump> {
    load(&root().join("dumps"), Path::is_dir, read_dump)
}

/// A file of objects of a case, by the case's folder.
pub fn case(folder: &str, file: &str) -> Case {
    read_case(&root().join("cases").join(folder).join(file)).unwrap_or_else(|err| panic!("{err}"))
}

fn load<T>(
    folder: &Path,
    is_wanted: impl Fn(&Path) -> bool,
    read: impl Fn(&Path) -> Result<T, ScenarioError>,
) -> Vec<T> {
    let paths = error::list(folder).map(|paths| paths.into_iter().filter(|path| is_wanted(path)));
    let loaded: Result<Vec<T>, ScenarioError> =
        paths.and_then(|paths| paths.map(|path| read(&path)).collect());
    match loaded {
        Ok(loaded) if loaded.is_empty() => panic!("{}: no scenario there", folder.display()),
        Ok(loaded) => loaded,
        Err(err) => panic!("{err}"),
    }
}
