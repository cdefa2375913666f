//! Samples in the form that `go tool pprof` reads: the message `perftools.profiles.Profile` of pprof's `profile.proto`, in
//! protobuf's wire format.

use super::profile::{Place, Samples};
use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

/// Fields of `Profile`.
mod profile {
    pub(super) const SAMPLE_TYPE: u32 = 1;
    pub(super) const SAMPLE: u32 = 2;
    pub(super) const LOCATION: u32 = 4;
    pub(super) const FUNCTION: u32 = 5;
    pub(super) const STRING_TABLE: u32 = 6;
    pub(super) const TIME_NANOS: u32 = 9;
    pub(super) const DURATION_NANOS: u32 = 10;
    pub(super) const PERIOD_TYPE: u32 = 11;
    pub(super) const PERIOD: u32 = 12;
}

/// A message in the making.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0
                .push(u8::try_from(value & 0x7f).expect("seven bits") | 0x80);
            value >>= 7;
        }
        self.0.push(u8::try_from(value).expect("less than 0x80"));
    }

    /// Wire type 0.
    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    /// Wire type 2.
    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn packed(&mut self, field: u32, values: impl IntoIterator<Item = u64>) {
        let mut inner = Message::default();
        values.into_iter().for_each(|value| inner.varint(value));
        self.bytes(field, &inner.0);
    }

    fn message(&mut self, field: u32, fields: &[(u32, u64)]) {
        let mut inner = Message::default();
        for (field, value) in fields {
            inner.number(*field, *value);
        }
        self.bytes(field, &inner.0);
    }
}

/// Words by their number; the first one is empty.
struct Words(BTreeMap<String, u64>);

impl Words {
    fn number(&mut self, word: &str) -> u64 {
        if let Some(number) = self.0.get(word) {
            return *number;
        }
        let next = self.0.len() as u64;
        self.0.insert(word.to_owned(), next);
        next
    }
}

/// The whole message.
pub(super) fn encode(samples: &Samples) -> Vec<u8> {
    let mut words = Words(BTreeMap::from([(String::new(), 0)]));
    let mut out = Message::default();
    let (count, cpu) = (
        [(1, words.number("samples")), (2, words.number("count"))],
        [(1, words.number("cpu")), (2, words.number("nanoseconds"))],
    );
    out.message(profile::SAMPLE_TYPE, &count);
    out.message(profile::SAMPLE_TYPE, &cpu);
    let period = nanos(Samples::period().as_nanos());
    let thread_key = words.number("thread");
    let mut locations: BTreeMap<&Place, u64> = BTreeMap::new();
    for ((thread, places), times) in &samples.stacks {
        let ids: Vec<u64> = places
            .iter()
            .map(|place| {
                let next = locations.len() as u64 + 1;
                *locations.entry(place).or_insert(next)
            })
            .collect();
        let mut sample = Message::default();
        sample.packed(1, ids);
        sample.packed(2, [*times, *times * period]);
        sample.message(3, &[(1, thread_key), (2, words.number(thread))]);
        out.bytes(profile::SAMPLE, &sample.0);
    }
    places(&mut out, &mut words, &locations);
    out.number(profile::TIME_NANOS, nanos(since_epoch(samples)));
    out.number(profile::DURATION_NANOS, nanos(samples.took.as_nanos()));
    out.message(profile::PERIOD_TYPE, &cpu);
    out.number(profile::PERIOD, period);
    let mut table: Vec<(&String, &u64)> = words.0.iter().collect();
    table.sort_by_key(|(_, number)| **number);
    for (word, _) in table {
        out.bytes(profile::STRING_TABLE, word.as_bytes());
    }
    out.0
}

/// Every place is a location with one line, in a function by its name and file.
fn places(out: &mut Message, words: &mut Words, locations: &BTreeMap<&Place, u64>) {
    let mut functions: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for (place, id) in locations {
        let next = functions.len() as u64 + 1;
        let function = *functions.entry((&*place.function, &*place.file)).or_insert(next);
        let mut line = Message::default();
        line.number(1, function);
        line.number(2, u64::from(place.line));
        let mut location = Message::default();
        location.number(1, *id);
        location.bytes(4, &line.0);
        out.bytes(profile::LOCATION, &location.0);
    }
    for ((name, file), id) in functions {
        let (name, file) = (words.number(name), words.number(file));
        out.message(profile::FUNCTION, &[(1, id), (2, name), (3, name), (4, file)]);
    }
}

fn since_epoch(samples: &Samples) -> u128 {
    let since = samples.started.duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_nanos()
}

fn nanos(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// What protobuf's own decoder makes of a message with no schema: field numbers, and numbers or bytes.
    #[derive(Debug, PartialEq)]
    enum Field {
        Number(u64, u64),
        Bytes(u64, Vec<u8>),
    }

    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a byte");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }

    fn fields(mut bytes: &[u8]) -> Vec<Field> {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            match key & 7 {
                0 => fields.push(Field::Number(key >> 3, value)),
                2 => {
                    let (inner, rest) = bytes.split_at(usize::try_from(value).expect("small"));
                    bytes = rest;
                    fields.push(Field::Bytes(key >> 3, inner.to_vec()));
                }
                other => panic!("wire type {other}"),
            }
        }
        fields
    }

    fn all(message: &[u8], wanted: u64) -> Vec<Vec<u8>> {
        let found = fields(message).into_iter().filter_map(|field| match field {
            Field::Bytes(number, bytes) if number == wanted => Some(bytes),
            _ => None,
        });
        found.collect()
    }

    fn place(function: &str, line: u32) -> Place {
        Place {
            function: function.to_owned(),
            file: "a.rs".to_owned(),
            line,
        }
    }

    /// `main` calls `leaf` at line 300 in three samples, and runs itself in one.
    fn message() -> Vec<u8> {
        let stack = |places| ("worker".to_owned(), places);
        encode(&Samples {
            stacks: BTreeMap::from([
                (stack(vec![place("leaf", 7), place("main", 300)]), 3),
                (stack(vec![place("main", 1)]), 1),
            ]),
            started: UNIX_EPOCH + Duration::from_secs(5),
            took: Duration::from_secs(2),
        })
    }

    /// The words that a message's fields with these numbers stand for.
    fn words(message: &[u8], inner: &[u8], wanted: &[u64]) -> Vec<String> {
        let strings = all(message, 6);
        let word =
            |number: u64| String::from_utf8(strings[usize::try_from(number).unwrap()].clone()).unwrap();
        let found = fields(inner).into_iter().filter_map(|field| match field {
            Field::Number(number, value) if wanted.contains(&number) => Some(word(value)),
            _ => None,
        });
        found.collect()
    }

    #[test]
    fn samples_are_counted_and_timed() {
        let message = message();
        assert_eq!(all(&message, 6)[0], b"", "the first string is empty");
        let types: Vec<Vec<String>> = all(&message, 1)
            .iter()
            .map(|kind| words(&message, kind, &[1, 2]))
            .collect();
        assert_eq!(types, [["samples", "count"], ["cpu", "nanoseconds"]]);
        let values: Vec<Vec<u64>> = all(&message, 2)
            .iter()
            .map(|sample| {
                let packed = all(sample, 2).remove(0);
                let mut packed = &packed[..];
                vec![varint(&mut packed), varint(&mut packed)]
            })
            .collect();
        assert_eq!(values, [[3, 30_000_000], [1, 10_000_000]]);
        let labels: Vec<Vec<String>> = all(&message, 2)
            .iter()
            .map(|sample| words(&message, &all(sample, 3)[0], &[1, 2]))
            .collect();
        assert_eq!(labels, [["thread", "worker"], ["thread", "worker"]]);
        for expected in [
            Field::Number(9, 5_000_000_000),
            Field::Number(10, 2_000_000_000),
            Field::Number(12, 10_000_000),
        ] {
            assert!(fields(&message).contains(&expected), "{expected:?}");
        }
    }

    #[test]
    fn each_place_is_a_location_with_a_line_of_a_function() {
        let message = message();
        let functions: Vec<Vec<String>> = all(&message, 5)
            .iter()
            .map(|function| words(&message, function, &[2, 4]))
            .collect();
        assert_eq!(functions, [["leaf", "a.rs"], ["main", "a.rs"]]);
        // Location: its number, and in a line the function's number and the line's.
        let locations: Vec<(Field, Vec<Field>)> = all(&message, 4)
            .iter()
            .map(|location| (fields(location).remove(0), fields(&all(location, 4)[0])))
            .collect();
        let location = |id, function, line| {
            let line = vec![Field::Number(1, function), Field::Number(2, line)];
            (Field::Number(1, id), line)
        };
        let expected = [location(1, 1, 7), location(3, 2, 1), location(2, 2, 300)];
        assert_eq!(locations, expected);
        // The first sample is in `leaf`, called by `main`.
        assert_eq!(all(&all(&message, 2)[0], 1)[0], [1, 2]);
    }
}
