//! Manifests that are watched: what files do, and what the source says.

#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell everywhere"
)]

mod support;

use cluster::SourceEvent;
use cluster::manifests::{ManifestOptions, Source};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;
use support::watched::{CONNECTED, Watched, replace, service};

#[tokio::test]
async fn files_come_change_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yml"));
    fs::write(&a, service("a", 1) + &service("x", 9)).unwrap();
    let mut said = Watched::start(dir.path());
    assert_eq!(said.round().await, ["apply default/a", "apply default/x"]);
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);

    fs::write(&b, service("b", 2)).unwrap();
    assert_eq!(said.round().await, ["apply default/b"]);
    // Only what changed is said.
    fs::write(&a, service("a", 3) + &service("x", 9)).unwrap();
    assert_eq!(said.round().await, ["apply default/a"]);
    replace(&a, &service("x", 9));
    assert_eq!(said.round().await, ["delete default/a"]);
    fs::remove_file(&b).unwrap();
    assert_eq!(said.round().await, ["delete default/b"]);
    fs::write(dir.path().join("notes.txt"), "not ours").unwrap();
    said.quiet().await;
}

#[tokio::test]
async fn a_half_written_file_keeps_what_it_said_and_warns_once() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    fs::write(&a, service("a", 1)).unwrap();
    fs::write(&b, service("b", 2)).unwrap();
    let mut said = Watched::start(dir.path());
    said.round().await;
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);

    fs::write(&a, &service("a", 7)[..40]).unwrap();
    let warned = said.round().await;
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("a.yaml") && warned[0].contains("stays in force"),
        "{warned:?}"
    );
    // Another file goes on, without a second warning about the first.
    fs::write(&b, service("b", 3)).unwrap();
    assert_eq!(said.round().await, ["apply default/b"]);

    fs::write(&a, "").unwrap();
    let warned = said.round().await;
    assert!(warned.len() == 1 && warned[0].contains("is empty"), "{warned:?}");
    fs::write(&a, service("a", 7)).unwrap();
    assert_eq!(said.round().await, ["apply default/a"]);
}

#[tokio::test]
async fn a_file_being_written_is_left_alone_until_it_is_closed() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.yaml");
    fs::write(&a, service("a", 1)).unwrap();
    let mut said = Watched::start(dir.path());
    said.round().await;
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);
    let mut file = fs::File::create(&a).unwrap();
    for part in service("a", 2).as_bytes().chunks(20) {
        file.write_all(part).unwrap();
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    drop(file);
    assert_eq!(said.round().await, ["apply default/a"]);
}

/// One that is written anew all the time, slowly.
#[tokio::test]
async fn a_file_that_flaps_holds_up_no_other_and_keeps_what_it_said() {
    let dir = tempfile::tempdir().unwrap();
    let (flaps, good) = (dir.path().join("flaps.yaml"), dir.path().join("good.yaml"));
    fs::write(&flaps, service("flaps", 1)).unwrap();
    fs::write(&good, service("good", 2)).unwrap();
    let mut said = Watched::start(dir.path());
    said.round().await;
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);
    let text = service("flaps", 1);
    let writer = tokio::spawn(async move {
        loop {
            let mut file = fs::File::create(&flaps).unwrap();
            for part in text.as_bytes().chunks(30) {
                std::io::Write::write_all(&mut file, part).unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    for ip in 3..8 {
        replace(&good, &service("good", ip));
        // Whenever the one that flaps is read in the end, it says what it said, or is left aside.
        loop {
            let round = said.round().await;
            assert!(!round.iter().any(|line| line.contains("delete")), "{round:?}");
            if round.contains(&"apply default/good".to_owned()) {
                break;
            }
        }
    }
    writer.abort();
}

#[tokio::test]
async fn a_bad_file_at_the_start_harms_only_its_bad_documents() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), service("a", 1) + "---\nkind: [\n").unwrap();
    fs::write(dir.path().join("b.yaml"), service("b", 2)).unwrap();
    let mut said = Watched::start(dir.path());
    let first = said.round().await;
    assert!(first[0].contains("a.yaml, document 2"), "{first:?}");
    assert_eq!(first[1..], ["apply default/a", "apply default/b"]);
}

#[tokio::test]
async fn an_object_in_two_files_is_what_the_later_says() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.yaml"), dir.path().join("b.yaml"));
    fs::write(&a, service("s", 1)).unwrap();
    fs::write(&b, service("s", 2)).unwrap();
    let mut said = Watched::start(dir.path());
    let first = said.round().await;
    assert!(
        first[0].contains("Service default/s is in") && first.len() == 2,
        "{first:?}"
    );
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);
    // The hidden one changes: nothing to tell.
    fs::write(&a, service("s", 3)).unwrap();
    assert_eq!(said.round().await, Vec::<String>::new());
    // The later one goes: the earlier one, unchanged, counts again.
    fs::remove_file(&b).unwrap();
    assert_eq!(said.round().await, ["apply default/s"]);
    fs::remove_file(&a).unwrap();
    assert_eq!(said.round().await, ["delete default/s"]);
}

/// How the kubelet updates a mounted `ConfigMap`: `..data` points elsewhere, by rename.
#[tokio::test]
async fn a_config_map_swap_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for (version, ip) in [("..v1", 1), ("..v2", 2)] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("a.yaml"), service("a", ip)).unwrap();
    }
    symlink("..v1", at("..data")).unwrap();
    symlink("..data/a.yaml", at("a.yaml")).unwrap();
    for path in [dir.path().to_owned(), at("a.yaml")] {
        let mut said = Watched::start(&path);
        assert_eq!(said.round().await, ["apply default/a"]);
        assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);
        let next = if fs::read_link(at("..data")).unwrap() == Path::new("..v1") {
            "..v2"
        } else {
            "..v1"
        };
        symlink(next, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        assert_eq!(said.round().await, ["apply default/a"]);
    }
}

#[tokio::test]
async fn a_folder_that_goes_away_leaves_everything_in_force_until_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("m");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.yaml"), service("a", 1)).unwrap();
    let mut said = Watched::start_with(&folder, Duration::from_millis(50));
    assert_eq!(said.round().await, ["apply default/a"]);
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);

    fs::rename(&folder, dir.path().join("elsewhere")).unwrap();
    let text = said.next(Duration::from_secs(10)).await.unwrap();
    assert!(
        text.starts_with("Failing") && text.contains("stays in force"),
        "{text}"
    );
    fs::create_dir(&folder).unwrap();
    replace(&folder.join("a.yaml"), &service("b", 2));
    loop {
        let round = said.round().await;
        if round.iter().any(|text| text == "apply default/b") {
            assert!(
                round.iter().all(|text| text.starts_with("Failing")
                    || text.ends_with("/b")
                    || text.ends_with("/a")
                    || text == CONNECTED),
                "{round:?}"
            );
            break;
        }
    }
}

#[tokio::test]
async fn a_link_that_leads_nowhere_any_more_keeps_what_it_said_and_warns_once() {
    let dir = tempfile::tempdir().unwrap();
    let a = dir.path().join("a.yaml");
    fs::write(&a, service("a", 1)).unwrap();
    let mut said = Watched::start_with(dir.path(), Duration::from_millis(20));
    assert_eq!(said.round().await, ["apply default/a"]);
    assert_eq!(said.next(Duration::from_secs(10)).await.unwrap(), CONNECTED);

    let link = dir.path().join("link");
    symlink("nowhere", &link).unwrap();
    fs::rename(&link, &a).unwrap();
    let warned = said.round().await;
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert!(
        warned[0].contains("a.yaml") && warned[0].contains("stays in force"),
        "{warned:?}"
    );
    said.quiet().await;
    fs::write(dir.path().join("nowhere"), service("a", 2)).unwrap();
    assert_eq!(said.round().await, ["apply default/a"]);
}

/// Somebody's program may go on writing to a file that is damaged.
#[tokio::test]
async fn a_damaged_file_that_grows_is_told_once_and_again_once_it_was_whole() {
    for starts_whole in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let a = dir.path().join("a.yaml");
        fs::write(dir.path().join("b.yaml"), service("b", 1)).unwrap();
        let whole = service("a", 1);
        let mut damaged = whole.clone() + "---\nkind: Service\nspec: [\n";
        fs::write(&a, if starts_whole { &whole } else { &damaged }).unwrap();
        let mut said = Watched::start_with(dir.path(), Duration::from_millis(20));
        let mut warned = said.round().await;
        for _ in 0..8 {
            damaged += "- more: 1\n";
            replace(&a, &damaged);
            warned.extend(said.round().await);
        }
        warned.retain(|line| line.contains("a.yaml"));
        // With the first reading, and with the first after something of the file was in force.
        assert!(!warned.is_empty() && warned.len() <= 2, "{warned:?}");
        replace(&a, &whole);
        said.round().await;
        replace(&a, &damaged);
        let again = said.round().await;
        assert!(again.iter().any(|line| line.contains("a.yaml")), "{again:?}");
    }
}

#[tokio::test]
async fn only_the_own_node_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let node = |name: &str| format!("---\napiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
    fs::write(dir.path().join("n.yaml"), node("node-a") + &node("node-b")).unwrap();
    let mut said = Watched::start(dir.path());
    let mut nodes = Vec::new();
    loop {
        match said.events.recv().await.unwrap() {
            SourceEvent::Change(change) => nodes.push(format!("{change:?}")),
            SourceEvent::Synced(cluster::Kind::Node) => break,
            _ => {}
        }
    }
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert!(nodes[0].contains("node-a"));
}

#[test]
fn a_path_that_is_not_there_is_an_error_at_once() {
    let error = Source::new(ManifestOptions::new("/nonexistent/dir", "n")).unwrap_err();
    let line = cluster::chain(&error);
    assert!(
        line.contains("/nonexistent/dir") && line.contains("No such file"),
        "{line}"
    );
}
