//! Checks the compiler cannot make. Each reports every fault it finds, with file and line.

use crate::goldens;
use crate::packages;
use crate::run::root;
use anyhow::{Context, Result, bail};
use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest source file, in lines.
const MAX_LINES: usize = 520;

/// Runs all checks.
pub fn run() -> Result<()> {
    let mut faults = Vec::new();
    let architecture = read(&root().join("ARCHITECTURE.md"))?;
    crate_edges(&architecture, &mut faults)?;
    let sources = rust_sources()?;
    unsafe_code(&sources, &mut faults)?;
    tables_name_their_tests(&sources, &mut faults)?;
    for (path, text) in &sources {
        source_text(path, text, &mut faults);
    }
    every_source_is_reachable(&sources, &mut faults);
    goldens::orphans(&sources, &mut faults)?;
    if faults.is_empty() {
        eprintln!("tidy: {} source files, nothing to report", sources.len());
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("tidy found {} faults", faults.len())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Rows of the crate table: crate, ring, and the crates it may depend on.
fn allowed_edges(architecture: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut table = BTreeMap::new();
    for line in architecture.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [name, "pure" | "edge" | "shell" | "test", _, edges] = cells.as_slice() {
            let edges = edges
                .split(',')
                .map(|edge| edge.trim().trim_matches('`').to_owned());
            let edges = edges.filter(|edge| !edge.is_empty() && edge != "nobody");
            table.insert(name.trim_matches('`').to_owned(), edges.collect());
        }
    }
    table
}

fn crate_edges(architecture: &str, faults: &mut Vec<String>) -> Result<()> {
    let allowed = allowed_edges(architecture);
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let ours: BTreeSet<String> = metadata
        .packages
        .iter()
        .map(|package| package.name.to_string())
        .collect();
    for package in &metadata.packages {
        let name = package.name.to_string();
        let Some(edges) = allowed.get(&name) else {
            faults.push(format!(
                "ARCHITECTURE.md: crate `{name}` is not in the crate table"
            ));
            continue;
        };
        for dependency in &package.dependencies {
            let is_edge = dependency.kind == DependencyKind::Normal && ours.contains(&dependency.name);
            if is_edge && !edges.contains(&dependency.name) {
                faults.push(format!(
                    "{name} depends on {}, which ARCHITECTURE.md does not allow",
                    dependency.name
                ));
            }
        }
    }
    for name in allowed.keys().filter(|name| !ours.contains(*name)) {
        faults.push(format!(
            "ARCHITECTURE.md: the crate table has `{name}`, which does not exist"
        ));
    }
    Ok(())
}

/// The one crate that may have unsafe code, and there one block (ADR 39).
const UNSAFE: &str = "xtinfo";

/// Every other crate takes the workspace's lints, which forbid it, and no attribute can allow what is forbidden.
fn unsafe_code(sources: &BTreeMap<PathBuf, String>, faults: &mut Vec<String>) -> Result<()> {
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    for package in &metadata.packages {
        let manifest = read(package.manifest_path.as_std_path())?;
        let inherits = manifest.contains("\n[lints]\nworkspace = true\n");
        if !inherits && package.name != UNSAFE {
            faults.push(format!(
                "{}: Cargo.toml lacks the workspace's lints",
                package.name
            ));
        }
    }
    // In two pieces, so that this file is no hit of its own.
    let block = concat!("unsafe ", "{");
    let of_it = Path::new("crates").join(UNSAFE);
    let blocks = sources.iter().filter(|(path, _)| path.starts_with(&of_it));
    let count: usize = blocks.map(|(_, text)| text.matches(block).count()).sum();
    if count != 1 {
        faults.push(format!("{UNSAFE}: {count} unsafe blocks, not one"));
    }
    Ok(())
}

/// All Rust sources of the workspace with their text, by path relative to the root.
fn rust_sources() -> Result<BTreeMap<PathBuf, String>> {
    let mut sources = BTreeMap::new();
    let mut folders = vec![root().join("crates"), root().join("xtask"), root().join("tests")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten() {
            let path = entry?.path();
            if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let relative = path
                    .strip_prefix(root())
                    .expect("found below the root")
                    .to_path_buf();
                sources.insert(relative, read(&path)?);
            }
        }
    }
    Ok(sources)
}

/// Documents with a table whose rows each end with the name of a test in backquotes, and the heading it stands under.
const TESTED_TABLES: [(&str, &str); 2] = [
    ("ARCHITECTURE.md", "## Invariants"),
    ("docs/quirks.md", "# Quirks"),
];

/// Each such test must exist, and a table names it once: a second row is what a merge left.
fn tables_name_their_tests(sources: &BTreeMap<PathBuf, String>, faults: &mut Vec<String>) -> Result<()> {
    for (document, heading) in TESTED_TABLES {
        let text = read(&root().join(document))?;
        let section = text.split(heading).nth(1).unwrap_or_default();
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows: Vec<&str> = section
            .lines()
            .filter(|line| line.starts_with('|') && line.contains('`'))
            .collect();
        if rows.is_empty() {
            faults.push(format!("{document}: no rows with tests under `{heading}`"));
        }
        let mut seen = BTreeSet::new();
        for row in rows {
            let named = row
                .trim_end_matches(['|', ' '])
                .rsplit('`')
                .nth(1)
                .unwrap_or_default();
            let wanted = format!("fn {named}(");
            if named.is_empty() || !sources.values().any(|text| text.contains(&wanted)) {
                faults.push(format!(
                    "{document}: a row names test `{named}`, which does not exist"
                ));
            }
            if !seen.insert(named) {
                faults.push(format!("{document}: two rows name test `{named}`"));
            }
        }
    }
    Ok(())
}

/// Notes on upstream that readers do not have. In two pieces, so that this file is no hit of its own.
const NOTES: [&str; 6] = [
    concat!("control", ".md"),
    concat!("iptables", ".md"),
    concat!("ipvs", ".md"),
    concat!("nftables", ".md"),
    concat!("kernel-facts", ".md"),
    concat!("users", ".md"),
];

/// Whether a line sends its reader to a page that is not part of this repository.
fn cites_notes(line: &str) -> bool {
    NOTES.iter().any(|page| {
        let mut places = line.match_indices(page);
        places.any(|(at, _)| {
            !line[..at].ends_with(|before: char| before.is_alphanumeric() || "-_/".contains(before))
        })
    })
}

fn source_text(path: &Path, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().count();
    if lines > MAX_LINES {
        faults.push(format!(
            "{}: {lines} lines, more than {MAX_LINES}; a file tells one story",
            path.display()
        ));
    }
    for tool in packages::unlisted(text) {
        faults.push(format!(
            "{}: a test needs {tool}, which xtask's packages.rs does not know the package of",
            path.display()
        ));
    }
    for (i, line) in text.lines().enumerate() {
        let mut fault = |what: &str| faults.push(format!("{}:{}: {what}", path.display(), i + 1));
        if line.ends_with([' ', '\t']) {
            fault("trailing space");
        }
        if line.contains('\t') {
            fault("tab");
        }
        if cites_notes(line) {
            fault(
                "cites a page that readers do not have; say what upstream does, or name its file or function",
            );
        }
        // In two pieces, so that this file is no hit of its own.
        for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
            if line.contains(word) && !line.contains('#') {
                fault("a to-do without an issue number");
            }
        }
    }
}

/// A source file must be a crate root, or be declared by a `mod` somewhere in its crate.
fn every_source_is_reachable(sources: &BTreeMap<PathBuf, String>, faults: &mut Vec<String>) {
    for path in sources.keys() {
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let parent = path
            .parent()
            .and_then(Path::file_name)
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        let is_root = ["lib", "main", "build"].contains(&stem)
            || ["tests", "benches", "examples", "bin"].contains(&parent);
        let module = if stem == "mod" { parent } else { stem };
        let krate: PathBuf = path.components().take(2).collect();
        let declared = sources
            .iter()
            .filter(|(other, _)| other.starts_with(&krate))
            .any(|(_, text)| {
                text.contains(&format!("mod {module};")) || text.contains(&format!("/{module}.rs\""))
            });
        if !is_root && !declared {
            faults.push(format!(
                "{}: no `mod {module};` reaches this file",
                path.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_readers_do_not_have_are_not_cited() {
        for page in NOTES {
            assert!(cites_notes(&format!("/// The limit ({page} 3.4).")), "{page}");
            assert!(cites_notes(&format!("/// {page} 3; other words")), "{page}");
        }
        for line in [
            "see docs/iptables-mode.md",
            "see docs/nftables.md",
            "control the .md files",
        ] {
            assert!(!cites_notes(line), "{line}");
        }
    }
}
