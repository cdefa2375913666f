//! Values in the spellings that Go's flag parsing takes, refused in its words.

use std::num::IntErrorKind;

/// `true`, `F`, `1` and their like.
///
/// # Errors
/// Go's words.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err(refused("ParseBool", text, "invalid syntax")),
    }
}

/// A signed number of 32 bits, also `0x10`, `0b1`, `0o7`, `017` and `1_000`.
///
/// # Errors
/// Go's words.
pub(crate) fn int32(text: &str) -> Result<i32, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0b", 2), ("0o", 8)];
    let prefix = prefixes.into_iter().find(|(prefix, _)| lower.starts_with(prefix));
    let (digits, base) = match prefix {
        Some((prefix, base)) => (&lower[prefix.len()..], base),
        None if lower.len() > 1 && lower.starts_with('0') => (&lower[1..], 8),
        None => (lower.as_str(), 10),
    };
    let plain = digits.replace('_', "");
    let bad_lines = digits.ends_with('_') || digits.contains("__") || (digits.starts_with('_') && base == 10);
    if bad_lines || plain.starts_with(['+', '-']) {
        return Err(refused("ParseInt", text, "invalid syntax"));
    }
    i64::from_str_radix(&format!("{sign}{plain}"), base)
        .map_err(|err| *err.kind())
        .and_then(|number| i32::try_from(number).map_err(|_| IntErrorKind::PosOverflow))
        .map_err(|kind| refused("ParseInt", text, why(kind)))
}

/// A level of the log.
///
/// # Errors
/// Go's words.
pub(crate) fn level(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix('+').map_or(text, |_| "");
    let level: u32 = digits
        .parse()
        .map_err(|err: std::num::ParseIntError| refused("ParseUint", text, why(*err.kind())))?;
    // Go reads 31 bits here.
    if i32::try_from(level).is_err() {
        return Err(refused("ParseUint", text, "value out of range"));
    }
    Ok(level)
}

/// A number of 32 bits with a fraction.
///
/// # Errors
/// Go's words.
pub(crate) fn float32(text: &str) -> Result<f32, String> {
    let number: f32 = text
        .parse()
        .map_err(|_| refused("ParseFloat", text, "invalid syntax"))?;
    let spelled_out = text.to_ascii_lowercase().contains("inf");
    if number.is_infinite() && !spelled_out {
        return Err(refused("ParseFloat", text, "value out of range"));
    }
    Ok(number)
}

/// Values between commas, quoted where they have commas.
///
/// # Errors
/// Go's words for quotes in the wrong place.
pub(crate) fn comma_separated(text: &str) -> Result<Vec<String>, String> {
    let mut items = Vec::new();
    let mut rest = text;
    if text.is_empty() {
        return Ok(items);
    }
    loop {
        let column = text.len() - rest.len() + 1;
        let (item, after) = if let Some(quoted) = rest.strip_prefix('"') {
            let end = text.len() + 1;
            let unclosed =
                || format!("parse error on line 1, column {end}: extraneous or missing \" in quoted-field");
            quoted_item(quoted).ok_or_else(unclosed)?
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            if let Some(at) = rest[..end].find('"') {
                let column = column + at;
                return Err(format!(
                    "parse error on line 1, column {column}: bare \" in non-quoted-field"
                ));
            }
            (rest[..end].to_owned(), &rest[end..])
        };
        items.push(item);
        match after.strip_prefix(',') {
            Some(after) => rest = after,
            None => return Ok(items),
        }
    }
}

/// What is in quotes, and what follows: a comma or nothing.
fn quoted_item(text: &str) -> Option<(String, &str)> {
    let mut item = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"')?;
        item.push_str(part);
        match after.strip_prefix('"') {
            Some(after) => {
                item.push('"');
                rest = after;
            }
            None if after.is_empty() || after.starts_with(',') => return Some((item, after)),
            None => return None,
        }
    }
}

fn why(kind: IntErrorKind) -> &'static str {
    match kind {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
        _ => "invalid syntax",
    }
}

fn refused(parser: &str, text: &str, why: &str) -> String {
    format!("strconv.{parser}: parsing {text:?}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_every_base() {
        for (text, number) in [
            ("7", 7),
            ("-1", -1),
            ("0x10", 16),
            ("010", 8),
            ("0b11", 3),
            ("1_000", 1000),
            ("+5", 5),
        ] {
            assert_eq!(int32(text), Ok(number), "{text}");
        }
        for (text, why) in [
            ("", "invalid syntax"),
            ("3.5", "invalid syntax"),
            ("1__0", "invalid syntax"),
            ("99999999999", "value out of range"),
        ] {
            assert!(int32(text).is_err_and(|err| err.ends_with(why)), "{text}");
        }
    }

    #[test]
    fn commas_in_quotes_do_not_separate() {
        assert_eq!(comma_separated("a,\"b,c\",d\"").map_err(|_| ()), Err(()));
        assert_eq!(comma_separated("a,\"b,c\",d").unwrap(), ["a", "b,c", "d"]);
        assert_eq!(comma_separated("").unwrap(), [""; 0]);
        assert_eq!(comma_separated(",").unwrap(), ["", ""]);
    }
}
