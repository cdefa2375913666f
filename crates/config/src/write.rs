//! The configuration in effect, as text: what `--write-config-to` writes.
//!
//! The form is that of upstream's file: keys sorted, no indentation of lists, quotes only where YAML needs them.

use crate::GoDuration;
use crate::types::KubeProxyConfiguration;
use serde_json::{Map, Number, Value};
use std::fmt::Write;

/// The configuration as YAML.
///
/// As upstream's, it says nothing of modes that are not in use: their periods are zero, and `masqueradeAll` is that of the
/// mode in use.
pub fn to_yaml(config: &KubeProxyConfiguration) -> String {
    let mut config = config.clone();
    forget_other_modes(&mut config);
    config.port_range.clear();
    let qps = config.client_connection.qps;
    let mut value = serde_json::to_value(&config).expect("invariant: every field is a JSON value");
    // Through the shortest text: 0.1 in 32 bits is not 0.1 in 64.
    let qps = qps.to_string().parse().ok().and_then(Number::from_f64);
    value["clientConnection"]["qps"] = qps.map_or(Value::Null, Value::Number);
    let mut text = String::new();
    if let Value::Object(fields) = &value {
        write_fields(&mut text, fields, 0);
    }
    text
}

fn forget_other_modes(config: &mut KubeProxyConfiguration) {
    let (sync, min) = config.sync_periods();
    let masquerade_all = match config.mode.as_str() {
        "nftables" => config.nftables.masquerade_all,
        _ => config.iptables.masquerade_all,
    };
    let zero = GoDuration::default();
    config.iptables.masquerade_all = false;
    config.nftables.masquerade_all = false;
    (config.iptables.sync_period, config.iptables.min_sync_period) = (zero, zero);
    (config.nftables.sync_period, config.nftables.min_sync_period) = (zero, zero);
    (config.ipvs.sync_period, config.ipvs.min_sync_period) = (zero, zero);
    match config.mode.as_str() {
        "nftables" => {
            (config.nftables.sync_period, config.nftables.min_sync_period) = (sync, min);
            config.nftables.masquerade_all = masquerade_all;
        }
        "ipvs" => {
            (config.ipvs.sync_period, config.ipvs.min_sync_period) = (sync, min);
            config.iptables.masquerade_all = masquerade_all;
        }
        _ => {
            (config.iptables.sync_period, config.iptables.min_sync_period) = (sync, min);
            config.iptables.masquerade_all = masquerade_all;
        }
    }
}

fn write_fields(out: &mut String, fields: &Map<String, Value>, depth: usize) {
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort_unstable();
    for name in names {
        let indent = "  ".repeat(depth);
        let _ = write!(out, "{indent}{}:", scalar(name, depth));
        write_value(out, &fields[name], depth);
    }
}

fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if fields.is_empty() => out.push_str(" {}\n"),
        Value::Object(fields) => {
            out.push('\n');
            write_fields(out, fields, depth + 1);
        }
        Value::Array(items) if items.is_empty() => out.push_str(" []\n"),
        Value::Array(items) => {
            out.push('\n');
            for item in items {
                write_item(out, item, depth);
            }
        }
        other => {
            out.push(' ');
            out.push_str(&plain(other, depth));
            out.push('\n');
        }
    }
}

/// A list's item stands under the list's name, without indentation.
fn write_item(out: &mut String, item: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match item {
        Value::Object(fields) => {
            let mut text = String::new();
            write_fields(&mut text, fields, depth + 1);
            let first = text.trim_start();
            let _ = write!(out, "{indent}- {first}");
        }
        other => {
            let _ = writeln!(out, "{indent}- {}", plain(other, depth));
        }
    }
}

fn plain(value: &Value, depth: usize) -> String {
    match value {
        Value::String(text) => scalar(text, depth),
        Value::Number(number) => match number.as_f64() {
            Some(whole) if number.is_f64() && whole.fract() == 0.0 && whole.abs() < 1e21 => {
                format!("{whole:.0}")
            }
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// A text, with the quotes it needs.
fn scalar(text: &str, depth: usize) -> String {
    let special = |c: char| c.is_control() || c == '\u{feff}' || ('\u{80}'..'\u{a0}').contains(&c);
    if text.contains('\n') && !text.chars().any(|c| c != '\n' && special(c)) {
        return block(text, depth);
    }
    if text.is_empty() || is_other_type(text) || text.chars().any(special) {
        return double_quoted(text);
    }
    if needs_quotes(text) {
        return format!("'{}'", text.replace('\'', "''"));
    }
    text.to_owned()
}

fn block(text: &str, depth: usize) -> String {
    let indent = "  ".repeat(depth + 1);
    let body = text.trim_end_matches('\n');
    let mark = match text.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    };
    let mut out = mark.to_owned();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&indent);
            out.push_str(line);
        }
    }
    out
}

fn double_quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() && (c as u32) < 0x100 => {
                let _ = write!(out, "\\x{:02X}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether a reader would take it for something that is no text: YAML 1.1's words, numbers and dates.
fn is_other_type(text: &str) -> bool {
    const WORDS: [&str; 11] = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ".nan",
    ];
    let lower = text.to_ascii_lowercase();
    if WORDS.contains(&lower.as_str()) || ["<<", ".inf", "-.inf", "+.inf"].contains(&lower.as_str()) {
        return true;
    }
    is_number(&lower.replace('_', "")) || is_sexagesimal(text) || is_date(text)
}

fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['+', '-']);
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return false;
    }
    let of_base = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(prefix, base)| Some((digits.strip_prefix(prefix)?, base)));
    match of_base {
        Some((digits, base)) => u64::from_str_radix(digits, base).is_ok(),
        None => digits.parse::<f64>().is_ok(),
    }
}

/// `1:20`, which YAML 1.1 takes for 80.
fn is_sexagesimal(text: &str) -> bool {
    let mut parts = text.trim_start_matches(['+', '-']).split(':');
    let first = parts.next().unwrap_or_default();
    let is_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    let mut rest = parts.peekable();
    rest.peek().is_some()
        && is_digits(first)
        && rest.all(|part| {
            let whole = part.split_once('.').map_or(part, |(whole, _)| whole);
            is_digits(whole) && whole.len() <= 2 && whole.as_bytes()[0] < b'6'
                || whole.len() == 1 && is_digits(whole)
        })
}

fn is_date(text: &str) -> bool {
    let mut parts = text.get(..10).unwrap_or(text).split('-');
    let mut digits = |len: std::ops::RangeInclusive<usize>| {
        parts
            .next()
            .is_some_and(|part| len.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit()))
    };
    digits(4..=4) && digits(1..=2) && digits(1..=2) && parts.next().is_none()
}

fn needs_quotes(text: &str) -> bool {
    let first = text.chars().next().unwrap_or(' ');
    let second = text.chars().nth(1);
    let indicator = "#,[]{}&*!|>'\"%@`".contains(first)
        || ("-?:".contains(first) && second.is_none_or(char::is_whitespace))
        || text.starts_with("---")
        || text.starts_with("...");
    indicator
        || text.starts_with(' ')
        || text.ends_with([' ', ':'])
        || text.contains(": ")
        || text.contains(" #")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_where_yaml_needs_them() {
        for (text, written) in [
            ("x", "x"),
            ("", "\"\""),
            ("yes", "\"yes\""),
            ("7", "\"7\""),
            ("a: b", "'a: b'"),
            ("'", "''''"),
            ("1:20", "\"1:20\""),
            ("0.0.0.0:10256", "0.0.0.0:10256"),
            ("::1", "::1"),
            ("a\tb", "\"a\\tb\""),
            ("2001-01-01", "\"2001-01-01\""),
            ("[::]:10256", "'[::]:10256'"),
            ("30s", "30s"),
        ] {
            assert_eq!(scalar(text, 0), written, "{text}");
        }
    }

    #[test]
    fn periods_of_modes_not_in_use_are_zero() {
        let text = to_yaml(&KubeProxyConfiguration::defaults());
        assert!(
            text.contains("  minSyncPeriod: 1s\n  syncPeriod: 30s\nipvs:"),
            "{text}"
        );
        assert!(
            text.contains("nftables:\n  masqueradeAll: false\n  masqueradeBit: 14\n  minSyncPeriod: 0s\n")
        );
    }
}
