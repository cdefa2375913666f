//! Which files somebody is at, so that each is read when it is quiet and none waits long for another.

use super::source::ManifestOptions;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// Whether a change is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stir {
    /// A file was closed, renamed, deleted.
    Complete,
    /// Somebody writes to a file and has not closed it.
    Writing,
}

/// A file at which somebody is may be written for so many times [`ManifestOptions::settle_open`], and is read then:
/// what is malformed is left aside anyway.
const LONGEST: u32 = 10;

/// A quiet file waits for so many times [`ManifestOptions::settle`] for others, since what is written together (a
/// Service and its slices) is best read together.
const TOGETHER: u32 = 5;

/// The files that were touched and not read since.
#[derive(Debug, Default)]
pub(super) struct Unrest {
    /// When each was touched first, and when it is quiet.
    files: BTreeMap<PathBuf, (Instant, Instant)>,
    /// The same by when they are quiet.
    order: BTreeSet<(Instant, PathBuf)>,
}

impl Unrest {
    /// The folder is a new one: nobody knows what will be put into it, so it counts as a file that is open.
    pub(super) fn note_folder(&mut self, now: Instant, options: &ManifestOptions) {
        self.touch(PathBuf::new(), Stir::Writing, now, options);
    }

    /// Something happened to a file.
    pub(super) fn note(&mut self, path: PathBuf, stir: Stir, now: Instant, options: &ManifestOptions) {
        if self.files.contains_key(Path::new("")) {
            // Whoever fills a new folder is not done.
            self.note_folder(now, options);
        }
        self.touch(path, stir, now, options);
    }

    fn touch(&mut self, path: PathBuf, stir: Stir, now: Instant, options: &ManifestOptions) {
        let begun = match self.files.get(&path) {
            Some((begun, quiet)) => {
                self.order.remove(&(*quiet, path.clone()));
                *begun
            }
            None => now,
        };
        let wait = match stir {
            Stir::Complete => options.settle,
            Stir::Writing => options.settle_open,
        };
        let quiet = (now + wait).min(begun + options.settle_open * LONGEST);
        self.order.insert((quiet, path.clone()));
        self.files.insert(path, (begun, quiet));
    }

    /// When to look: when all files are quiet, or one has been for a while.
    pub(super) fn look_at(&self, settle: Duration) -> Option<Instant> {
        let (first, _) = self.order.first()?;
        let (last, _) = self.order.last()?;
        Some((*first + settle * TOGETHER).min(*last))
    }

    /// It is looked now: the files that are not to be read yet. The others are forgotten.
    pub(super) fn take(&mut self, now: Instant) -> BTreeSet<PathBuf> {
        while let Some((quiet, path)) = self.order.pop_first() {
            if quiet > now {
                self.order.insert((quiet, path));
                break;
            }
            self.files.remove(&path);
        }
        self.files.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn options() -> ManifestOptions {
        ManifestOptions::new("/m", "n")
    }

    /// What is looked at, and when (ms): `(time, file, stir)` is what happens, `until` the end.
    fn looks(happens: &[(u32, &str, Stir)], until: u32) -> Vec<(u32, Vec<String>)> {
        let (start, options) = (Instant::now(), options());
        let mut unrest = Unrest::default();
        let mut looks = Vec::new();
        let mut happens = happens.iter().peekable();
        for ms in 0..until {
            let now = start + MS * ms;
            while let Some((_, path, stir)) = happens.next_if(|(at, ..)| *at == ms) {
                unrest.note(path.into(), *stir, now, &options);
            }
            if unrest.look_at(options.settle).is_some_and(|at| at <= now) {
                let before: BTreeSet<PathBuf> = unrest.files.keys().cloned().collect();
                let left = unrest.take(now);
                let read = before.difference(&left).map(|path| path.display().to_string());
                looks.push((ms, read.collect()));
            }
        }
        looks
    }

    #[test]
    fn files_that_are_written_together_are_read_together() {
        let happens = [
            (0, "a", Stir::Complete),
            (50, "b", Stir::Complete),
            (120, "c", Stir::Complete),
        ];
        assert_eq!(
            looks(&happens, 1000),
            [(220, ["a", "b", "c"].map(str::to_owned).to_vec())]
        );
    }

    #[test]
    fn a_file_that_is_written_all_the_time_holds_up_no_other_and_is_read_in_the_end() {
        let mut happens: Vec<(u32, &str, Stir)> =
            (0..150).map(|n| (n * 100, "flaps", Stir::Writing)).collect();
        happens.insert(5, (450, "good", Stir::Complete));
        let looks = looks(&happens, 12_000);
        // Quiet from 550 on, and half a second for others.
        assert_eq!(looks[0], (1_050, vec!["good".to_owned()]));
        assert_eq!(looks[1], (10_000, vec!["flaps".to_owned()]));
    }

    #[test]
    fn a_new_folder_is_restless_until_nothing_was_done_in_it_for_as_long_as_an_open_file_may_be_quiet() {
        let (start, options) = (Instant::now(), options());
        let mut unrest = Unrest::default();
        unrest.note_folder(start, &options);
        for n in 1..=5 {
            let now = start + MS * (n * 900);
            assert!(!unrest.take(now).is_empty(), "{n}");
            unrest.note(format!("{n}.yaml").into(), Stir::Complete, now, &options);
        }
        assert!(!unrest.take(start + MS * 5_400).is_empty());
        assert!(unrest.take(start + MS * 5_500).is_empty());
    }

    #[test]
    fn a_hundred_thousand_changes_are_noted_one_by_one() {
        let (start, options) = (Instant::now(), options());
        let mut unrest = Unrest::default();
        for n in 0..100_000_u32 {
            unrest.note(format!("{n}.yaml").into(), Stir::Complete, start, &options);
            assert!(unrest.look_at(options.settle).is_some());
        }
        assert_eq!(unrest.take(start + options.settle), BTreeSet::new());
        assert_eq!(unrest.look_at(options.settle), None);
    }
}
