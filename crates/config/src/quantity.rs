//! Quantities such as `64Ki` or `1500m`, read and written as Kubernetes does. Only log buffers have one.

use std::fmt;

/// The suffixes of powers of 1000, from 10⁻⁹ up.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// The suffixes of powers of 1024, from 1024 up.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const NANO: i128 = 1_000_000_000;

/// How a quantity was written, and is written again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
}

/// An amount in billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    form: Form,
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// The rule for quantities, in upstream's words.
    pub(crate) fn parse(text: &str) -> Result<Quantity, String> {
        read(text).ok_or_else(|| {
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned()
        })
    }

    /// As a whole number, rounded up; what is negative is zero.
    pub(crate) fn whole(self) -> u64 {
        let nanos = self.nanos.max(0);
        u64::try_from((nanos + NANO - 1) / NANO).unwrap_or(u64::MAX)
    }
}

fn read(text: &str) -> Option<Quantity> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let (scale, form) = scale(suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let mut nanos = if whole.is_empty() {
        0
    } else {
        whole.parse::<i128>().ok()?
    }
    .checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(i128::from(digit - b'0') * place)?;
    }
    Some(Quantity {
        nanos: sign * nanos,
        form,
    })
}

/// Billionths for one of a suffix.
fn scale(suffix: &str) -> Option<(i128, Form)> {
    if let Some(exponent) = suffix
        .strip_prefix(['e', 'E'])
        .filter(|digits| !digits.is_empty())
    {
        let exponent: i32 = exponent.parse().ok()?;
        let exponent = u32::try_from(exponent + 9)
            .ok()
            .filter(|exponent| *exponent <= 27)?;
        return Some((10_i128.pow(exponent), Form::Decimal));
    }
    if let Some(power) = BINARY.iter().position(|known| *known == suffix) {
        return Some((NANO << (10 * (power + 1)), Form::Binary));
    }
    let power = DECIMAL.iter().position(|known| *known == suffix)?;
    Some((1000_i128.pow(u32::try_from(power).ok()?), Form::Decimal))
}

/// With the largest suffix that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let (mut amount, step, mut suffixes) = match self.form {
            Form::Binary if self.nanos % NANO == 0 => (self.nanos / NANO, 1024, [""].iter().chain(&BINARY)),
            _ => (self.nanos, 1000, [].iter().chain(&DECIMAL)),
        };
        let mut suffix = suffixes.next().copied().unwrap_or_default();
        while amount % step == 0 {
            let Some(next) = suffixes.next() else { break };
            amount /= step;
            suffix = next;
        }
        write!(f, "{amount}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn the_largest_whole_suffix_is_written() {
        for (text, written) in [
            ("0", "0"),
            ("1Ki", "1Ki"),
            ("1024Ki", "1Mi"),
            ("1024", "1024"),
            ("1000", "1k"),
            ("1.5", "1500m"),
            ("1.5Ki", "1536"),
            ("-1", "-1"),
            ("1e3", "1k"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), written, "{text}");
        }
    }

    #[test]
    fn words_are_no_quantity() {
        for text in ["", "x", "1x", "1.2.3", ".", "Ki"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
    }
}
