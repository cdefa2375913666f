//! Golden files of our own stages: compared, or written anew when `KPRS_BLESS` is set (`cargo xtask bless`).
//!
//! Only `scenarios/stages/` and `scenarios/transitions/` are ever written; upstream's goldens never are.

use crate::error::{ScenarioError, read};
use std::fmt::Write as _;
use std::path::Path;

/// The folders that may be written.
const OURS: [&str; 2] = ["stages", "transitions"];

/// Lines of a difference that are shown.
const SHOWN: usize = 40;

/// What comparing with a golden file gives: `Err` says what differs, in words.
pub type Compared = Result<(), String>;

/// Compares a text with a golden file, named by its path below `scenarios/`.
///
/// With `KPRS_BLESS` set and not empty, the file is written instead, and what changed is printed.
///
/// # Errors
/// What differs, or why the file cannot be read or written.
///
/// # Panics
/// When the path is not in one of the folders of stage goldens.
pub fn check(golden: &str, text: &str) -> Compared {
    let bless = std::env::var_os("KPRS_BLESS").is_some_and(|value| !value.is_empty());
    check_in(
        &crate::root(),
        golden,
        text,
        if bless { Mode::Bless } else { Mode::Compare },
    )
}

/// What is done with a golden file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Compare,
    Bless,
}

fn check_in(root: &Path, golden: &str, text: &str, mode: Mode) -> Compared {
    assert!(
        OURS.iter()
            .any(|folder| golden.starts_with(&format!("{folder}/")))
            && !golden.contains(".."),
        "{golden}: only goldens of our own stages are compared here"
    );
    let path = root.join(golden);
    let found = read(&path);
    match (&found, mode) {
        (Ok(found), _) if found == text => Ok(()),
        (Ok(found), Mode::Compare) => Err(format!(
            "scenarios/{golden} differs (`cargo xtask bless` writes it anew):\n{}",
            difference(found, text)
        )),
        (Err(error), Mode::Compare) => Err(format!("{error} (`cargo xtask bless` writes it)")),
        (_, Mode::Bless) => {
            let told = match &found {
                Ok(found) => difference(found, text),
                Err(_) => format!("  new, {} lines\n", text.lines().count()),
            };
            print!("blessed scenarios/{golden}:\n{told}");
            write(&path, text).map_err(|error| error.to_string())
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), ScenarioError> {
    let failed = |source| ScenarioError::Write {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    std::fs::write(path, text).map_err(failed)
}

/// The lines between the common beginning and the common end of two texts.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let same = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(&new).take_while(same).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    let mut text = format!("  from line {}:\n", head + 1);
    for (sign, lines) in [("-", old), ("+", new)] {
        for line in lines.iter().take(SHOWN) {
            let _ = writeln!(text, "  {sign} {line}");
        }
        if lines.len() > SHOWN {
            let _ = writeln!(text, "  {sign} and {} lines more", lines.len() - SHOWN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Mode, check_in, difference};
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("scenario-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a scratch folder");
        folder
    }

    #[test]
    fn a_difference_is_shown_without_what_is_common() {
        let text = difference("a\nb\nc\nd\n", "a\nx\ny\nd\n");
        assert_eq!(text, "  from line 2:\n  - b\n  - c\n  + x\n  + y\n");
    }

    #[test]
    fn a_golden_is_compared_and_written_only_when_blessed() {
        let root = scratch("bless");
        let check = |text: &str, mode| check_in(&root, "stages/one/plan.txt", text, mode);
        assert!(check("a\n", Mode::Compare).is_err_and(|text| text.contains("bless")));
        assert!(!root.join("stages").exists());
        assert_eq!(check("a\n", Mode::Bless), Ok(()));
        assert_eq!(check("a\n", Mode::Compare), Ok(()));
        let differs = check("b\n", Mode::Compare).expect_err("it differs");
        assert!(differs.contains("- a") && differs.contains("+ b"), "{differs}");
        assert_eq!(check("a\n", Mode::Compare), Ok(()));
        std::fs::remove_dir_all(&root).expect("the scratch folder is ours");
    }

    #[test]
    #[should_panic(expected = "only goldens of our own stages")]
    fn upstreams_goldens_are_never_written() {
        let _ = check_in(
            &scratch("upstream"),
            "golden/nodeport/iptables.txt",
            "",
            Mode::Bless,
        );
    }
}
