use super::*;
use engine::{Cause, Failure, StepSize};
use model::object::{ObjectRef, SliceName};

const START: i64 = 1_000;

fn programming() -> Programming {
    let mut programming = Programming::since(Duration::from_secs(1_000));
    programming.serves(Family::V4);
    programming
}

fn second(number: i64) -> TriggerTime {
    let time = format!("1970-01-01T00:{:02}:{:02}Z", number / 60, number % 60);
    TriggerTime::parse(&time).unwrap()
}

fn slice(name: &str, service: &str, family: Family, time: i64) -> Change {
    Change::Apply(Object::Slice(Box::new(Slice {
        name: slice_name(name),
        service: Some(ServiceName::new("ns", service)),
        skipped: None,
        family: Some(family),
        triggered: Some(second(time)),
        ports: Box::default(),
        endpoints: Box::default(),
    })))
}

fn slice_name(name: &str) -> SliceName {
    SliceName::new("ns", name)
}

fn applied(services: &[&str]) -> Report {
    Report::Applied {
        family: Family::V4,
        services: services
            .iter()
            .map(|name| ServiceName::new("ns", *name))
            .collect(),
        size: StepSize::default(),
    }
}

fn failed(about: About) -> Report {
    let failure = Failure {
        cause: Cause::Content,
        text: String::new(),
    };
    Report::Failed {
        family: Family::V4,
        failure,
        in_a_row: 1,
        about,
        retry_at: Duration::ZERO,
    }
}

/// Which seconds come out.
fn out(programming: &mut Programming, report: &Report) -> Vec<i64> {
    let times = programming.report(report).map(|(_, times)| times);
    times
        .unwrap_or_default()
        .iter()
        .map(|time| time.since_1970() / 1_000_000_000)
        .collect()
}

fn idle(programming: &mut Programming, refused: usize) -> Vec<i64> {
    let times = programming.idle(Family::V4, refused);
    times
        .iter()
        .map(|time| time.since_1970() / 1_000_000_000)
        .collect()
}

const fn at(second: u64) -> Duration {
    Duration::from_secs(second)
}

#[test]
fn a_time_comes_out_with_the_step_that_knows_of_it() {
    let mut programming = programming();
    programming.given(&slice("a-1", "a", Family::V4, START + 1), at(1));
    programming.step(Family::V4, at(2));
    // This one comes while the step is on its way.
    programming.given(&slice("a-1", "a", Family::V4, START + 3), at(3));
    assert_eq!(out(&mut programming, &applied(&["a"])), [START + 1]);
    programming.step(Family::V4, at(4));
    assert_eq!(out(&mut programming, &applied(&["b"])), [0_i64; 0]);
    programming.step(Family::V4, at(5));
    assert_eq!(out(&mut programming, &applied(&["a"])), [START + 3]);
}

#[test]
fn the_second_half_of_a_step_knows_no_more_than_the_first() {
    let mut programming = programming();
    programming.step(Family::V4, at(1));
    programming.given(&slice("a-1", "a", Family::V4, START + 2), at(2));
    programming.step(Family::V4, at(3));
    assert_eq!(out(&mut programming, &applied(&["a"])), [0_i64; 0]);
}

#[test]
fn a_failed_step_loses_no_time() {
    let mut programming = programming();
    programming.given(&slice("a-1", "a", Family::V4, START + 1), at(1));
    programming.step(Family::V4, at(2));
    assert_eq!(out(&mut programming, &failed(About::Step)), [0_i64; 0]);
    programming.given(&slice("a-2", "a", Family::V4, START + 3), at(3));
    programming.step(Family::V4, at(4));
    assert_eq!(out(&mut programming, &applied(&["a"])), [START + 1, START + 3]);
}

#[test]
fn what_needs_no_write_is_there_once_nothing_is_queued() {
    let mut programming = programming();
    programming.given(&slice("a-1", "a", Family::V4, START + 1), at(1));
    programming.given(&slice("b-1", "b", Family::V4, START + 2), at(1));
    programming.step(Family::V4, at(2));
    let refused = About::Service(ServiceName::new("ns", "a"));
    assert_eq!(out(&mut programming, &failed(refused)), [0_i64; 0]);
    assert_eq!(idle(&mut programming, 1), [START + 2]);
    assert_eq!(idle(&mut programming, 0), [START + 1]);
    assert_eq!(idle(&mut programming, 0), [0_i64; 0]);
}

#[test]
fn a_time_counts_once_and_only_if_it_is_later_than_our_start() {
    let mut programming = programming();
    for time in [START - 1, START, START + 1, START + 1] {
        programming.given(&slice("a-1", "a", Family::V4, time), at(1));
    }
    assert_eq!(idle(&mut programming, 0), [START + 1]);
    programming.given(&slice("a-1", "a", Family::V4, START + 1), at(2));
    assert_eq!(idle(&mut programming, 0), [0_i64; 0]);
}

#[test]
fn times_of_a_family_that_this_host_lacks_do_not_wait() {
    let mut programming = programming();
    programming.given(&slice("a-1", "a", Family::V6, START + 1), at(1));
    assert!(programming.slices.is_empty());
    assert_eq!(programming.idle(Family::V6, 0), []);
}

#[test]
fn a_slice_that_goes_takes_its_services_times_along() {
    let mut programming = programming();
    let gone = |name| Change::Delete(ObjectRef::Slice(slice_name(name)));
    programming.given(&slice("a-1", "a", Family::V4, START + 1), at(1));
    programming.given(&gone("a-1"), at(2));
    assert_eq!(idle(&mut programming, 0), [0_i64; 0]);
    programming.given(&slice("a-1", "a", Family::V4, START + 2), at(3));
    let Change::Apply(other) = slice("b-1", "b", Family::V4, START + 3) else {
        unreachable!()
    };
    let all = Change::ReplaceAll {
        kind: model::object::Kind::Slice,
        objects: vec![other],
    };
    programming.given(&all, at(4));
    assert_eq!(idle(&mut programming, 0), [START + 3]);
    programming.given(&gone("b-1"), at(5));
    assert!(programming.slices.is_empty(), "nothing is kept of what is gone");
}

#[test]
fn no_more_wait_than_have_room() {
    let mut programming = programming();
    for number in 0..2 * MOST {
        programming.given(&slice(&format!("s-{number}"), "a", Family::V4, START + 1), at(1));
    }
    assert_eq!(idle(&mut programming, 0).len(), MOST);
    programming.given(&slice("s-x", "a", Family::V4, START + 1), at(1));
    assert_eq!(idle(&mut programming, 0).len(), 1);
}
