use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn write(&self, text: &str) {
        replace(&self.folder(), |file| file.write_all(text.as_bytes())).unwrap();
    }

    fn text(&self) -> String {
        let mut text = String::new();
        open(&self.folder()).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[track_caller]
    fn refuses(&self, words: &str) {
        let error = open(&self.folder()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn folder_and_file_are_ours_alone() {
    let place = Place::new();
    place.write("one");
    assert_eq!(mode(&place.folder()), 0o700);
    assert_eq!(mode(&path(&place.folder())), 0o600);
    place.write("two");
    assert_eq!(place.text(), "two");
    assert_eq!(
        fs::read_dir(place.folder()).unwrap().count(),
        1,
        "nothing else is left"
    );
}

#[test]
fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
    let place = Place::new();
    place.write("old");
    let failed = replace(&place.folder(), |file| {
        file.write_all(b"ne")?;
        Err(io::Error::other("no space"))
    });
    assert!(failed.unwrap_err().to_string().contains("no space"));
    assert_eq!(place.text(), "old");
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 1);
}

#[test]
fn what_a_killed_writer_left_is_overwritten() {
    let place = Place::new();
    place.write("old");
    fs::write(place.folder().join(NEXT), "half").unwrap();
    place.write("new");
    assert_eq!(place.text(), "new");
    assert_eq!(fs::read_dir(place.folder()).unwrap().count(), 1);
}

#[test]
fn two_writers_do_not_meet() {
    let place = Place::new();
    let second = std::cell::RefCell::new(None);
    replace(&place.folder(), |file| {
        *second.borrow_mut() = Some(replace(&place.folder(), |file| file.write_all(b"second")));
        file.write_all(b"first")
    })
    .unwrap();
    assert!(matches!(second.take(), Some(Err(DiskError::Taken))));
    assert_eq!(place.text(), "first");
}

#[test]
fn no_file_is_told_from_one_that_cannot_be_used() {
    let place = Place::new();
    assert!(matches!(open(&place.folder()), Err(OpenError::Missing)));
    fs::create_dir(place.folder()).unwrap();
    assert!(matches!(open(&place.folder()), Err(OpenError::Missing)));
}

#[test]
fn links_pipes_and_what_others_can_write_are_refused() {
    let place = Place::new();
    place.write("good");
    let file = path(&place.folder());
    fs::set_permissions(&file, Permissions::from_mode(0o602)).unwrap();
    place.refuses("the file can be written to by others (mode 602)");
    fs::set_permissions(&file, Permissions::from_mode(0o620)).unwrap();
    place.refuses("(mode 620)");
    fs::remove_file(&file).unwrap();
    let elsewhere = place.0.path().join("elsewhere");
    fs::write(&elsewhere, "good").unwrap();
    symlink(&elsewhere, &file).unwrap();
    place.refuses("symbolic link");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    place.refuses("no regular file");
    fs::remove_dir(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
    assert!(made.success());
    place.refuses("no regular file");
}

#[test]
fn a_folder_that_others_can_write_to_is_neither_read_nor_written() {
    let place = Place::new();
    place.write("good");
    fs::set_permissions(place.folder(), Permissions::from_mode(0o1777)).unwrap();
    place.refuses("the folder can be written to by others");
    let error = replace(&place.folder(), |_| Ok(())).unwrap_err().to_string();
    assert!(
        error.contains("the folder can be written to by others"),
        "{error}"
    );
}

#[test]
fn a_write_does_not_follow_a_link_in_its_way() {
    let place = Place::new();
    place.write("good");
    let elsewhere = place.0.path().join("elsewhere");
    fs::write(&elsewhere, "untouched").unwrap();
    for name in [NEXT, FILE, USED] {
        let _ = fs::remove_file(place.folder().join(name));
        symlink(&elsewhere, place.folder().join(name)).unwrap();
    }
    place.write("new");
    note_use(&place.folder(), "sha256 ab\n").unwrap();
    assert_eq!(place.text(), "new");
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "untouched");
}

#[test]
fn rules_made_of_a_file_are_known_until_it_is_another() {
    let place = Place::new();
    assert!(!is_used(&place.folder(), "sha256 ab\n"));
    note_use(&place.folder(), "sha256 ab\n").unwrap();
    note_use(&place.folder(), "sha256 ab\n").unwrap();
    assert!(is_used(&place.folder(), "sha256 ab\n"));
    assert!(!is_used(&place.folder(), "sha256 cd\n"));
    forget_use(&place.folder());
    assert!(!is_used(&place.folder(), "sha256 ab\n"));
    note_use(&place.folder(), "sha256 ab\n").unwrap();
    let used = place.folder().join(USED);
    let text = fs::read_to_string(&used).unwrap().replace("boot ", "boot 0");
    fs::write(&used, text).unwrap();
    assert!(
        !is_used(&place.folder(), "sha256 ab\n"),
        "another boot's rules are gone"
    );
}
