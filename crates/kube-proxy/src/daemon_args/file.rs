//! The configuration file: read, with a warning for each oddity, but not for each of thousands.

use anyhow::{Context, Result, anyhow};
use config::KubeProxyConfiguration;
use std::path::Path;

/// How many oddities of one kind are named one by one.
const NAMED: usize = 20;
/// How much of a name is repeated, in characters.
const QUOTED: usize = 200;

/// Reads a configuration file; what is ignored of it becomes warnings.
///
/// # Errors
/// Names the file, the field and the reason.
pub fn load_config(path: &Path, warnings: &mut Vec<String>) -> Result<KubeProxyConfiguration> {
    let file = path.display();
    let text = read_config(path).with_context(|| {
        format!("cannot read --config {file}; check that it exists and that this process may read it")
    })?;
    let decoded = config::decode(&text).map_err(|err| anyhow!("failed to decode: {file}: {err}"))?;
    let doubled = decoded.doubled_key.iter();
    warnings
        .extend(doubled.map(|words| format!("{file}: {words}; the last value counts, remove the others")));
    match decoded.further_documents {
        0 => {}
        more => warnings.push(format!(
            "{file}: the first YAML document counts, and {more} more after a line of --- are ignored; remove them"
        )),
    }
    warnings.extend(first_few(
        &decoded.unknown_fields,
        |field| format!("{file}: unknown field {field:?} is ignored; check its spelling"),
        |more| format!("{file}: {more} more unknown fields are ignored; check that it is the right file"),
    ));
    Ok(decoded.config)
}

fn read_config(path: &Path) -> std::io::Result<String> {
    let content = proxy::read_config(path)?;
    String::from_utf8(content).map_err(|_| std::io::Error::other("is no UTF-8"))
}

/// A line for each of these names, or for the first few of them and one for the others.
pub fn first_few<'n>(
    all: &'n [String],
    line: impl Fn(&str) -> String + 'n,
    others: impl Fn(usize) -> String,
) -> impl Iterator<Item = String> + 'n {
    let more = all.len().saturating_sub(NAMED);
    let others = (more > 0).then(|| others(more));
    let first = all.iter().take(NAMED);
    first.map(move |name| line(&shortened(name))).chain(others)
}

fn shortened(name: &str) -> String {
    match name.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}
