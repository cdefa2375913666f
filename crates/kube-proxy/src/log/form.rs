//! The two forms of a line.

use super::record::{Record, in_json};
use super::{PLAIN, since_epoch};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::time::Duration;
use tracing::{Level, Metadata};

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json,
}

/// What a line says of itself, beside what it says.
struct Head<'a> {
    now: Duration,
    level: Level,
    file: &'a str,
    line: u32,
    /// Whether the text is all there is.
    plain: bool,
    /// The verbosity at which it shows.
    verbosity: u32,
}

impl Form {
    pub(super) fn of(format: &str) -> Form {
        if format == "json" { Form::Json } else { Form::Text }
    }

    /// A whole line, with its end.
    pub(super) fn line(self, now: Duration, meta: &Metadata<'_>, mut record: Record) -> String {
        let place = record.place.take();
        let head = Head {
            now,
            level: *meta.level(),
            file: place
                .as_ref()
                .map_or(meta.file().unwrap_or("unknown"), |(file, _)| file),
            line: place.as_ref().map_or(meta.line().unwrap_or(0), |(_, line)| *line),
            plain: meta.target() == PLAIN,
            verbosity: record.verbosity.unwrap_or(0).max(super::level::level_of(meta)),
        };
        if head.level == Level::ERROR {
            // Errors say under `err` what is wrong.
            for (name, _) in record.values.iter_mut().filter(|(name, _)| name == "reason") {
                "err".clone_into(name);
            }
        }
        match self {
            Form::Text => text_line(&head, &record) + "\n",
            Form::Json => json_line(&head, record) + "\n",
        }
    }

    /// The line, with its end, in the place of so many that were dropped.
    pub(super) fn gap(self, lines: u64) -> String {
        let record = Record {
            message:
                "Lines were dropped here, since the log was not read fast enough or could not be written"
                    .to_owned(),
            values: vec![("lines".to_owned(), json!(lines))],
            ..Record::default()
        };
        let head = Head {
            now: since_epoch(),
            level: Level::WARN,
            file: file!(),
            line: line!(),
            plain: false,
            verbosity: 0,
        };
        match self {
            Form::Text => text_line(&head, &record) + "\n",
            Form::Json => json_line(&head, record) + "\n",
        }
    }
}

/// One line in text form, for what is said before logging has started.
pub fn early_line(level: Level, file: &str, line: u32, message: &str, fields: &[(&str, &str)]) -> String {
    let mut record = Record {
        message: message.to_owned(),
        ..Record::default()
    };
    for (name, text) in fields {
        record.put(name, json!(text));
    }
    let head = Head {
        now: since_epoch(),
        level,
        file,
        line,
        plain: false,
        verbosity: 0,
    };
    text_line(&head, &record)
}

fn text_line(head: &Head<'_>, record: &Record) -> String {
    let letter = match head.level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let file = head.file.rsplit('/').next().unwrap_or(head.file);
    let mut text = format!(
        "{letter}{} {:7} {file}:{}] ",
        clock(head.now),
        std::process::id(),
        head.line
    );
    if head.plain {
        text.push_str(&record.message);
    } else {
        let _ = write!(text, "{:?}", record.message);
    }
    for (name, value) in &record.values {
        match value {
            Value::String(value) if value.contains('\n') => {
                let _ = write!(
                    text,
                    " {name}=<\n\t{}\n >",
                    value.trim_end().replace('\n', "\n\t")
                );
            }
            Value::String(value) => drop(write!(text, " {name}={value:?}")),
            value => drop(write!(text, " {name}={value}")),
        }
    }
    text
}

/// `mmdd hh:mm:ss.uuuuuu`.
fn clock(now: Duration) -> String {
    let seconds = now.as_secs();
    let (month, day) = month_and_day(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!(
        "{month:02}{day:02} {hour:02}:{minute:02}:{second:02}.{:06}",
        now.subsec_micros()
    )
}

/// Of the day so many days after 1 January 1970, by eras of 400 years that begin in March.
fn month_and_day(days: u64) -> (u64, u64) {
    let of_era = (days + 719_468) % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    (
        if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        },
        day,
    )
}

/// Errors have no verbosity.
fn json_line(head: &Head<'_>, record: Record) -> String {
    let mut fields = Map::new();
    #[expect(
        clippy::cast_precision_loss,
        reason = "a fraction of a microsecond is lost, as upstream loses it"
    )]
    let millis = head.now.as_nanos() as f64 / 1e6;
    fields.insert("ts".to_owned(), json!(millis));
    let mut parts: Vec<&str> = head.file.rsplit('/').take(2).collect();
    parts.reverse();
    let caller = format!("{}:{}", parts.join("/"), head.line);
    fields.insert("caller".to_owned(), json!(caller));
    fields.insert("msg".to_owned(), json!(record.message));
    if head.level != Level::ERROR {
        fields.insert("v".to_owned(), json!(head.verbosity));
    }
    for (name, value) in record.values {
        let value = in_json(&name, value);
        fields.insert(name, value);
    }
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let mut record = Record {
            message: "rules are in sync".to_owned(),
            ..Record::default()
        };
        record.put("service", json!("ns/name"));
        record.put("took_ms", json!(7));
        record.put("error", json!("a\nb"));
        record
    }

    fn head(level: Level) -> Head<'static> {
        Head {
            // 29 February 2024, 12:34:56.000789 UTC.
            now: Duration::new(1_709_210_096, 789_000),
            level,
            file: "crates/proxy/src/tell.rs",
            line: 9,
            plain: false,
            verbosity: 4,
        }
    }

    #[test]
    fn text_lines_have_klogs_form() {
        let pid = format!("{:7}", std::process::id());
        assert_eq!(
            text_line(&head(Level::WARN), &record()),
            format!(
                "W0229 12:34:56.000789 {pid} tell.rs:9] \"rules are in sync\" service=\"ns/name\" tookMs=7 err=<\n\ta\n\tb\n >"
            )
        );
        let plain = Head {
            plain: true,
            ..head(Level::INFO)
        };
        let flag = Record {
            message: "FLAG: --config=\"\"".to_owned(),
            ..Record::default()
        };
        assert_eq!(
            text_line(&plain, &flag),
            format!("I0229 12:34:56.000789 {pid} tell.rs:9] FLAG: --config=\"\"")
        );
    }

    #[test]
    fn json_errors_have_err_and_no_verbosity_and_objects_are_in_parts() {
        let error: Value = serde_json::from_str(&json_line(&head(Level::ERROR), record())).unwrap();
        assert_eq!(error["err"], "a\nb");
        assert_eq!(error.get("v"), None);
        assert_eq!(error["caller"], "src/tell.rs:9");
        assert_eq!(error["service"], json!({"name": "name", "namespace": "ns"}));
        let info: Value = serde_json::from_str(&json_line(&head(Level::INFO), record())).unwrap();
        assert_eq!(
            (&info["v"], &info["msg"]),
            (&json!(4), &json!("rules are in sync"))
        );
        assert_eq!(info["ts"], json!(1_709_210_096_000.789));
    }

    #[test]
    fn months_end_when_they_end() {
        for (days, date) in [
            (0, (1, 1)),
            (58, (2, 28)),
            (59, (3, 1)),
            (364, (12, 31)),
            (789, (2, 29)),
            (19_782, (2, 29)),
        ] {
            assert_eq!(month_and_day(days), date, "{days}");
        }
    }
}
