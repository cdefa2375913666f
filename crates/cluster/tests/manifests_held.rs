//! Manifests that do not count yet: damaged ones at a start, and those of a folder in the place of another.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod support;

use cluster::SourceEvent;
use cluster::manifests::{ManifestOptions, Source};
use cluster::state::KernelRules;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use support::watched::{CONNECTED, Watched, replace, service};

/// What is done to a path, and how.
type Deed = (&'static str, fn(&Path));

/// What may be wrong with a file, and how it is done to one that is not there.
const DAMAGES: [Deed; 5] = [
    ("cut off", |path| fs::write(path, &service("b", 2)[..40]).unwrap()),
    ("a bad document", |path| {
        fs::write(path, service("b", 2) + "---\nkind: [\n").unwrap();
    }),
    ("empty", |path| fs::write(path, "").unwrap()),
    ("a link that leads nowhere", |path| {
        symlink("nowhere", path).unwrap();
    }),
    ("no regular file", |path| symlink("/dev/null", path).unwrap()),
];

#[tokio::test]
async fn a_damaged_file_at_the_start_completes_nothing_while_the_kernel_has_rules() {
    for (what, damage) in DAMAGES {
        for is_mended in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let b = dir.path().join("b.yaml");
            fs::write(dir.path().join("a.yaml"), service("a", 1)).unwrap();
            damage(&b);
            let poll = Duration::from_millis(20);
            let mut said = Watched::start_beside(dir.path(), poll, || KernelRules::Present);
            let (mut lines, until) = (
                Vec::new(),
                tokio::time::Instant::now() + Duration::from_millis(400),
            );
            while let Ok(Some(event)) = tokio::time::timeout_at(until, said.events.recv()).await {
                assert!(!matches!(event, SourceEvent::Synced(_)), "{what}: {lines:?}");
                lines.extend(support::short(&event));
            }
            let failing = lines.iter().find(|line| line.starts_with("Failing"));
            let names = |line: &String| line.contains("b.yaml") && line.contains("rules stay as they are");
            assert!(failing.is_some_and(names), "{what}: {lines:?}");
            fs::remove_file(&b).unwrap();
            if is_mended {
                replace(&b, &service("c", 3));
            }
            while !said.round().await.iter().any(|line| line == "apply default/c") && is_mended {}
        }
    }
}

#[tokio::test]
async fn a_damaged_file_at_the_start_holds_up_nothing_when_the_kernel_has_no_rules() {
    for (what, damage) in DAMAGES {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), service("a", 1)).unwrap();
        damage(&dir.path().join("b.yaml"));
        let mut said = Watched::start(dir.path());
        let first = said.round().await;
        assert!(
            first.iter().any(|line| line == "apply default/a"),
            "{what}: {first:?}"
        );
    }
}

/// How often the kernel was asked; of one test.
static ASKED: AtomicUsize = AtomicUsize::new(0);

/// By a clock that runs ahead whenever everybody waits.
#[tokio::test(start_paused = true)]
async fn while_a_start_is_held_the_kernel_is_asked_once_a_minute_and_never_for_an_empty_folder() {
    let rules = || {
        ASKED.fetch_add(1, Ordering::Relaxed);
        KernelRules::Present
    };
    let nothing: Deed = ("no file", |_| {});
    for (what, damage) in DAMAGES.into_iter().chain([nothing]) {
        let dir = tempfile::tempdir().unwrap();
        // A look comes each five seconds.
        let expected = if what == nothing.0 { 0..=0 } else { 55..=60 };
        if what != nothing.0 {
            fs::write(dir.path().join("a.yaml"), service("a", 1)).unwrap();
        }
        damage(&dir.path().join("b.yaml"));
        ASKED.store(0, Ordering::Relaxed);
        let mut said = Watched::start_beside(dir.path(), Duration::from_secs(5), rules);
        let until = tokio::time::Instant::now() + Duration::from_secs(3_570);
        while let Ok(Some(event)) = tokio::time::timeout_at(until, said.events.recv()).await {
            assert!(!matches!(event, SourceEvent::Synced(_)), "{what}");
        }
        let asked = ASKED.load(Ordering::Relaxed);
        assert!(expected.contains(&asked), "{what}: {asked}");
    }
}

#[test]
fn files_of_which_nothing_can_be_read_are_an_error_at_once() {
    for (what, damage) in DAMAGES.into_iter().filter(|(what, _)| *what != "a bad document") {
        let dir = tempfile::tempdir().unwrap();
        let b = dir.path().join("b.yaml");
        damage(&b);
        for path in [dir.path(), &b] {
            let error = Source::new(ManifestOptions::new(path, "n")).expect_err(what);
            assert!(cluster::chain(&error).contains("b.yaml"), "{what}: {error}");
        }
    }
}

/// What may come in place of a folder.
const PLACES: [Deed; 5] = [
    ("an empty folder", |path| fs::create_dir(path).unwrap()),
    ("a folder of other files", |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("notes.txt"), "not ours").unwrap();
    }),
    ("a folder of damaged files", |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("a.yaml"), &service("a", 1)[..40]).unwrap();
    }),
    ("a folder of which one file is damaged", |path| {
        fs::create_dir(path).unwrap();
        fs::write(path.join("b.yaml"), service("b", 2)).unwrap();
        fs::write(path.join("c.yaml"), &service("c", 1)[..40]).unwrap();
    }),
    ("a file", |path| fs::write(path, "no manifest").unwrap()),
];

#[tokio::test]
async fn another_folder_in_place_of_the_first_counts_once_all_of_it_has_been_read() {
    for (what, put) in PLACES {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("m");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.yaml"), service("a", 1)).unwrap();
        let mut said = Watched::start_with(&folder, Duration::from_millis(20));
        assert_eq!(said.round().await, ["apply default/a"]);
        assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);

        let next = dir.path().join("next");
        put(&next);
        fs::rename(&folder, dir.path().join("elsewhere")).unwrap();
        fs::rename(&next, &folder).unwrap();
        let mut lines = Vec::new();
        while let Some(line) = said.next(Duration::from_millis(400)).await {
            assert!(!line.starts_with("delete") && line != "synced", "{what}: {line}");
            lines.push(line);
            if lines.len() > 5 {
                break;
            }
        }
        let names = |line: &String| line.starts_with("Failing") && line.contains("/m: is another folder");
        assert!(lines.iter().any(names), "{what}: {lines:?}");

        fs::rename(&folder, &next).unwrap();
        fs::create_dir(&folder).unwrap();
        replace(&folder.join("b.yaml"), &service("b", 2));
        let mut rounds = Vec::new();
        while !rounds.contains(&"apply default/b".to_owned()) {
            rounds.extend(said.round().await);
        }
        assert!(
            rounds.contains(&"delete default/a".to_owned()),
            "{what}: {rounds:?}"
        );
    }
}

/// As `mkdir m; cp *.yaml m/` does it, slowly.
#[tokio::test]
async fn a_folder_that_is_filled_file_by_file_in_place_of_the_first_loses_nothing() {
    for poll in [Duration::from_millis(20), Duration::from_hours(1)] {
        let dir = tempfile::tempdir().unwrap();
        let (folder, before) = (dir.path().join("m"), dir.path().join("before"));
        let names: Vec<String> = (1..=10).map(|ip| format!("s{ip}")).collect();
        fs::create_dir(&folder).unwrap();
        for (ip, name) in (1..).zip(&names) {
            fs::write(folder.join(format!("{name}.yaml")), service(name, ip)).unwrap();
        }
        let mut options = ManifestOptions::new(&folder, "node-a");
        (options.settle, options.settle_open, options.poll) =
            (Duration::from_millis(20), Duration::from_secs(2), poll);
        let mut said = Watched::of(options, || KernelRules::Absent);
        assert_eq!(said.round().await.len(), names.len());
        assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);

        fs::rename(&folder, &before).unwrap();
        let fill = async {
            fs::create_dir(&folder).unwrap();
            for name in &names {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let file = format!("{name}.yaml");
                fs::copy(before.join(&file), folder.join(&file)).unwrap();
            }
            fs::write(folder.join("t.yaml"), service("t", 99)).unwrap();
        };
        let follow = async {
            let mut lines = Vec::new();
            while !lines.contains(&"apply default/t".to_owned()) {
                lines.extend(said.round().await);
            }
            lines
        };
        let ((), lines) = tokio::join!(fill, follow);
        let is_lost = |line: &String| line.starts_with("delete");
        assert!(!lines.iter().any(is_lost), "{poll:?}: {lines:?}");
    }
}
