use super::*;
use crate::Delivery;
use crate::state::StateTiming;
use model::object::{Object, decode};
use serde_json::json;
use std::time::Duration;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn book() -> Book {
    let timing = StateTiming {
        settle: Duration::ZERO,
        interval: Duration::ZERO,
        ..StateTiming::default()
    };
    Book::new(Pace::new(timing, Duration::from_hours(24)))
}

fn service(name: &str) -> Object {
    let document = json!({"kind": "Service", "metadata": {"namespace": "ns", "name": name}, "spec": {"clusterIP": "10.96.0.1"}});
    decode(document).objects.remove(0)
}

fn apply(object: Object) -> SourceEvent {
    SourceEvent::Change(Change::Apply(object))
}

fn synced(book: &Book, now: SystemTime) {
    for kind in NEEDED {
        book.note(&SourceEvent::Synced(kind), now);
    }
}

fn is_due(book: &Book) -> bool {
    book.lock().due().is_some()
}

#[test]
fn nothing_is_written_before_every_list_has_come_that_rules_need() {
    let book = book();
    book.note(&apply(service("a")), at(1));
    for kind in &NEEDED[1..] {
        book.note(&SourceEvent::Synced(*kind), at(1));
    }
    assert!(!is_due(&book));
    book.note(&SourceEvent::Synced(NEEDED[0]), at(1));
    assert_eq!(book.wait().unwrap().all.len(), 1);
}

#[test]
fn what_changes_nothing_is_not_written() {
    let book = book();
    book.note(&apply(service("a")), at(1));
    synced(&book, at(1));
    let lines = book.wait().unwrap();
    book.wrote(Ok(lines.confirmed));
    book.note(&apply(service("a")), at(2));
    assert!(!is_due(&book));
    book.note(&apply(service("b")), at(3));
    assert!(is_due(&book));
    let lines = book.wait().unwrap();
    let bytes: usize = lines.all.iter().map(|line| line.len() + 1).sum();
    assert_eq!((lines.all.len(), lines.bytes), (2, bytes as u64));
}

#[test]
fn an_object_that_goes_takes_its_line_with_it() {
    let book = book();
    let all = Change::ReplaceAll {
        kind: Kind::Service,
        objects: vec![service("a"), service("b"), service("c")],
    };
    book.note(&SourceEvent::Change(all), at(1));
    synced(&book, at(1));
    book.note(
        &SourceEvent::Change(Change::Delete(service("a").reference())),
        at(2),
    );
    let rest = Change::ReplaceAll {
        kind: Kind::Service,
        objects: vec![service("c")],
    };
    book.note(&SourceEvent::Change(rest), at(3));
    let lines = book.wait().unwrap();
    assert_eq!(lines.all.len(), 1);
    assert_eq!(lines.bytes, lines.all[0].len() as u64 + 1);
}

#[test]
fn the_watch_that_has_been_quiet_longest_says_when_all_was_confirmed() {
    let book = book();
    synced(&book, at(100));
    let connected = Health::Connected {
        delivery: Delivery::StreamingList,
    };
    book.note(&SourceEvent::Health(Kind::Service, Health::Bookmark), at(300));
    book.note(&SourceEvent::Health(Kind::Slice, connected), at(200));
    assert_eq!(
        book.wait().unwrap().confirmed,
        at(100),
        "the Node's watch is quiet"
    );
    book.note(&SourceEvent::Health(Kind::Node, Health::Bookmark), at(250));
    assert_eq!(book.lock().confirmed(), Some(at(200)));
    let silent = Health::Silent {
        quiet: Duration::from_mins(2),
    };
    book.note(&SourceEvent::Health(Kind::Slice, silent), at(400));
    assert_eq!(
        book.lock().confirmed(),
        Some(at(200)),
        "a silent watch confirms nothing"
    );
}

#[test]
fn the_writer_ends_with_the_book() {
    let book = Arc::new(book());
    let waits = std::thread::spawn({
        let book = book.clone();
        move || book.wait()
    });
    book.end();
    assert_eq!(waits.join().unwrap(), None);
}
