//! What several tests need.

use model::Family;
use std::fs;
use std::path::PathBuf;

/// The golden dumps, each with its path and family.
pub fn golden_dumps() -> Vec<(PathBuf, Family, String)> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/golden");
    let mut folders: Vec<PathBuf> = fs::read_dir(&root)
        .expect("scenarios/golden is part of the repository")
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    let both = [("iptables.txt", Family::V4), ("ip6tables.txt", Family::V6)];
    folders
        .iter()
        .flat_map(|folder| both.map(|(file, family)| (folder.join(file), family)))
        .map(|(path, family)| {
            let text = fs::read_to_string(&path).expect("each golden folder has both dumps");
            (path, family, text)
        })
        .collect()
}
