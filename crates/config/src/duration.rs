//! Durations in Go's spelling: `1h2m3.5s`, `500ms`, `0`.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::time::Duration;

/// A span of time in nanoseconds, which may be negative, written as Go's `time.Duration` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(i64);

const SECOND: i64 = 1_000_000_000;

/// Units, longest word first where one is the beginning of another.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

impl GoDuration {
    /// So many seconds.
    pub const fn from_secs(seconds: i64) -> Self {
        GoDuration(seconds * SECOND)
    }

    /// So many nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        GoDuration(nanos)
    }

    /// In nanoseconds.
    pub fn nanos(self) -> i64 {
        self.0
    }

    /// As a std duration; negative ones are zero.
    pub fn to_std(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    /// Reads Go's spelling. `None` when it is not one, or out of range.
    pub fn parse(text: &str) -> Option<GoDuration> {
        GoDuration::read(text).ok()
    }

    /// Reads Go's spelling.
    ///
    /// # Errors
    /// Go's words for what is wrong: no duration, no unit, an unknown one.
    pub fn read(text: &str) -> Result<GoDuration, String> {
        let invalid = || format!("time: invalid duration {}", quoted(text));
        let (sign, mut rest) = match text.strip_prefix('-') {
            Some(rest) => (-1, rest),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        if rest == "0" {
            return Ok(GoDuration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: i64 = 0;
        while !rest.is_empty() {
            let term = split_term(rest).ok_or_else(invalid)?;
            if term.unit.is_empty() {
                return Err(format!("time: missing unit in duration {}", quoted(text)));
            }
            let unit = UNITS.into_iter().find(|(name, _)| *name == term.unit);
            let Some((_, unit)) = unit else {
                let unit = quoted(term.unit);
                return Err(format!("time: unknown unit {unit} in duration {}", quoted(text)));
            };
            let nanos = nanoseconds(&term, unit).ok_or_else(invalid)?;
            total = total.checked_add(nanos).ok_or_else(invalid)?;
            rest = term.rest;
        }
        Ok(GoDuration(sign * total))
    }
}

/// Go quotes what it did not understand.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// One number with its unit, such as `1.5h`.
struct Term<'a> {
    whole: &'a str,
    fraction: &'a str,
    unit: &'a str,
    rest: &'a str,
}

/// The first term of a duration; `None` when it does not begin with a number.
fn split_term(text: &str) -> Option<Term<'_>> {
    let (whole, rest) = split_digits(text);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let unit_len = rest
        .bytes()
        .take_while(|b| !b.is_ascii_digit() && *b != b'.')
        .count();
    let (unit, rest) = rest.split_at(unit_len);
    Some(Term {
        whole,
        fraction,
        unit,
        rest,
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// `None` when it is out of range.
fn nanoseconds(term: &Term<'_>, unit: i64) -> Option<i64> {
    let whole: i64 = if term.whole.is_empty() {
        0
    } else {
        term.whole.parse().ok()?
    };
    let mut nanos = whole.checked_mul(unit)?;
    let mut scale = unit;
    for digit in term.fraction.bytes() {
        scale /= 10;
        nanos = nanos.checked_add(i64::from(digit - b'0') * scale)?;
    }
    Some(nanos)
}

/// Go's printing: `1h0m0s`, `1m30s`, `1.5s`, `500ms`, `0s`.
impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let nanos = self.0.unsigned_abs();
        let second = SECOND.unsigned_abs();
        match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => return write!(f, "{nanos}ns"),
            1_000..1_000_000 => return decimal(f, nanos, 1_000, "µs"),
            _ if nanos < second => return decimal(f, nanos, 1_000_000, "ms"),
            _ => {}
        }
        let (hours, minutes) = (nanos / (3_600 * second), nanos / (60 * second) % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        decimal(f, nanos % (60 * second), second, "s")
    }
}

/// `nanos / unit` with as many decimals as it needs.
fn decimal(f: &mut fmt::Formatter<'_>, nanos: u64, unit: u64, word: &str) -> fmt::Result {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", nanos % unit);
    match fraction.trim_end_matches('0') {
        "" => write!(f, "{}{word}", nanos / unit),
        fraction => write!(f, "{}.{fraction}{word}", nanos / unit),
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = GoDuration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"30s\" or \"1h30m\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
                GoDuration::read(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::GoDuration;

    #[test]
    fn go_spellings_are_read() {
        for (text, nanos) in [
            ("0", 0),
            ("1s", 1_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("1h2m3s", 3_723_000_000_000),
            ("500ms", 500_000_000),
            ("-1m", -60_000_000_000),
            (".5s", 500_000_000),
            ("1µs", 1_000),
        ] {
            assert_eq!(
                GoDuration::parse(text).map(GoDuration::nanos),
                Some(nanos),
                "{text}"
            );
        }
    }

    #[test]
    fn other_spellings_are_refused() {
        for text in ["", "1", "s", "1x", "1s ", "1.2.3s", "--1s", "99999999999h", "1d"] {
            assert_eq!(GoDuration::parse(text), None, "{text}");
        }
    }

    #[test]
    fn printing_is_go_s() {
        for text in [
            "0s", "15m0s", "1h0m0s", "1.5s", "500ms", "24h0m0s", "1m30s", "-10s", "1.5µs", "7ns",
        ] {
            assert_eq!(GoDuration::parse(text).unwrap().to_string(), text);
        }
    }
}
