use super::*;
use model::ServiceName;

const TICK: Duration = Duration::from_secs(10);

fn port(name: &str) -> CountedPort {
    CountedPort {
        service: ServiceName::new("ns", name),
        port: "http".into(),
    }
}

fn counter(id: u64, name: &str, packets: u64) -> Reading {
    Reading {
        id,
        port: port(name),
        counts: Counts::Connections,
        packets,
    }
}

fn tally(most: usize) -> Tally {
    Tally::new(NonZeroUsize::new(most).expect("more than none"))
}

fn read(tally: &mut Tally, readings: &[Reading], ticks: u32) {
    tally.take(Family::V4, readings.to_vec(), TICK * ticks);
    tally.settle();
}

fn connections(tally: &Tally, name: &str) -> Option<u64> {
    let mut found = tally.shown().filter(|(_, of, _)| **of == port(name));
    found.next().map(|(_, _, sums)| sums.connections)
}

#[test]
fn a_sum_never_goes_down_whatever_becomes_of_the_rules() {
    let mut tally = tally(10);
    // (what is read, what the sum is then)
    let story: [(&[Reading], u64); 8] = [
        // What the kernel counted before this process began is counted too.
        (&[counter(1, "a", 5)], 5),
        (&[counter(1, "a", 7)], 7),
        // Written anew: another rule.
        (&[counter(2, "a", 1)], 8),
        // Two rules of one port.
        (&[counter(2, "a", 1), counter(3, "a", 4)], 12),
        // Set back to zero by somebody.
        (&[counter(2, "a", 0), counter(3, "a", 2)], 14),
        // The table is flushed, and comes back; on legacy the rule is known by its words.
        (&[], 14),
        (&[counter(2, "a", 3)], 17),
        (&[counter(2, "a", 3)], 17),
    ];
    for (tick, (readings, sum)) in (1..).zip(story) {
        read(&mut tally, readings, tick);
        assert_eq!(connections(&tally, "a"), Some(sum), "at reading {tick}");
    }
}

#[test]
fn equal_rules_are_one_counter() {
    let mut tally = tally(10);
    read(&mut tally, &[counter(1, "a", 5), counter(1, "a", 5)], 1);
    read(&mut tally, &[counter(1, "a", 6), counter(1, "a", 5)], 2);
    assert_eq!(connections(&tally, "a"), Some(11));
}

#[test]
fn what_is_counted_is_told_apart() {
    let mut tally = tally(10);
    let all = Counts::ALL.into_iter().zip(1..).map(|(counts, id)| Reading {
        counts,
        ..counter(id, "a", id)
    });
    tally.take(Family::V4, all.collect(), TICK);
    tally.take(Family::V6, vec![counter(1, "a", 9)], TICK);
    tally.settle();
    let shown: Vec<_> = tally.shown().map(|(family, _, sums)| (family, sums)).collect();
    let sums = |connections, rejected, dropped| Sums {
        connections,
        rejected,
        dropped,
    };
    assert_eq!(shown, [(Family::V4, sums(1, 2, 3)), (Family::V6, sums(9, 0, 0))]);
}

#[test]
fn those_with_most_traffic_have_series_and_keep_them() {
    let mut tally = tally(2);
    let names = |tally: &Tally| {
        let names = tally.shown().map(|(_, port, _)| port.service.name.to_string());
        names.collect::<Vec<_>>()
    };
    let mut at = |counts: [u64; 4], ticks| {
        let all = ["a", "b", "c", "d"].into_iter().zip(counts).zip(1..);
        let all: Vec<Reading> = all
            .map(|((name, packets), id)| counter(id, name, packets))
            .collect();
        read(&mut tally, &all, ticks);
        (names(&tally), tally.left_out())
    };
    // Without traffic nobody needs one, and nobody is left out.
    assert_eq!(at([0, 0, 0, 0], 1), (vec![], 0));
    assert_eq!(at([0, 0, 1, 0], 2), (vec!["c".to_owned()], 0));
    // Of two equal ones the first by name.
    assert_eq!(at([5, 0, 1, 5], 3), (vec!["a".to_owned(), "c".to_owned()], 1));
    // Much traffic elsewhere takes nobody's series away.
    assert_eq!(at([5, 900, 1, 900], 4), (vec!["a".to_owned(), "c".to_owned()], 2));
}

#[test]
fn a_service_that_is_gone_for_long_makes_room() {
    let mut tally = tally(1);
    read(&mut tally, &[counter(1, "a", 5), counter(2, "b", 3)], 1);
    assert_eq!((connections(&tally, "a"), tally.left_out()), (Some(5), 1));
    let long = u32::try_from(GONE_AFTER.as_secs() / TICK.as_secs()).expect("a small number");
    for ticks in 2..long {
        read(&mut tally, &[counter(2, "b", 3)], ticks);
        assert_eq!(connections(&tally, "a"), Some(5));
    }
    read(&mut tally, &[counter(2, "b", 4)], long + 1);
    assert_eq!(
        (connections(&tally, "a"), connections(&tally, "b")),
        (None, Some(4))
    );
    assert_eq!(tally.left_out(), 0);
}

#[test]
fn one_services_ports_are_found_with_and_without_series() {
    let mut tally = tally(1);
    let other = Reading {
        port: CountedPort {
            service: ServiceName::new("ns", "b"),
            port: "admin".into(),
        },
        ..counter(3, "b", 2)
    };
    read(
        &mut tally,
        &[counter(1, "a", 9), counter(2, "b", 3), other, counter(4, "bb", 1)],
        1,
    );
    let found: Vec<_> = tally
        .of_service(&ServiceName::new("ns", "b"))
        .map(|(_, port, sums)| (&*port.port, sums.connections))
        .collect();
    assert_eq!(found, [("admin", 2), ("http", 3)]);
}
