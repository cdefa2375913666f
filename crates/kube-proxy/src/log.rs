//! Log lines in klog's two forms (control.md 11.1): `I0102 15:04:05.000000 1234567 file.rs:10] "message" key="value"`,
//! or one JSON object. Times are UTC.

use config::types::Logging;
use serde_json::{Map, Value, json};
use std::fmt::{Debug, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Which form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// Lines go to stderr, as upstream's do.
pub fn start(logging: &Logging) {
    let level = match logging.verbosity {
        0..=1 => Level::INFO,
        2..=4 => Level::DEBUG,
        _ => Level::TRACE,
    };
    let form = if logging.format == "json" {
        Form::Json
    } else {
        Form::Text
    };
    // Once is enough: a second start would be a bug of the caller, and no reason to end.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .event_format(form);
    let mut filter = Targets::new().with_default(level);
    if level <= Level::INFO {
        // The client library logs every failed request; the watches say it once, with the next step.
        filter = filter.with_target("kube_client", LevelFilter::OFF);
    }
    let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
}

/// One line in text form, for what is said before logging has started.
pub fn early_line(level: Level, file: &str, line: u32, message: &str, fields: &[(&str, &str)]) -> String {
    let values = fields
        .iter()
        .map(|(name, text)| ((*name).to_owned(), json!(text)));
    let record = Record {
        message: message.to_owned(),
        values: values.collect(),
    };
    text_line(since_epoch(), level, file, line, &record)
}

/// An event's message and values.
#[derive(Default)]
struct Record {
    message: String,
    values: Vec<(String, Value)>,
}

impl Record {
    fn put(&mut self, field: &Field, value: Value) {
        self.values.push((field.name().to_owned(), value));
    }
}

impl Visit for Record {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, Value::String(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, json!(value));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut cause = value.source();
        while let Some(next) = cause {
            let _ = write!(text, ": {next}");
            cause = next.source();
        }
        self.put(field, json!(text));
    }
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut record = Record::default();
        event.record(&mut record);
        let meta = event.metadata();
        let (file, line) = (meta.file().unwrap_or("unknown"), meta.line().unwrap_or(0));
        let now = since_epoch();
        let text = match self {
            Form::Text => text_line(now, *meta.level(), file, line, &record),
            Form::Json => json_line(now, *meta.level(), file, line, record),
        };
        writeln!(out, "{text}")
    }
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn text_line(now: Duration, level: Level, file: &str, line: u32, record: &Record) -> String {
    let letter = match level {
        Level::ERROR => 'E',
        Level::WARN => 'W',
        _ => 'I',
    };
    let file = file.rsplit('/').next().unwrap_or(file);
    let mut text = format!(
        "{letter}{} {:7} {file}:{line}] {:?}",
        clock(now),
        std::process::id(),
        record.message
    );
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

fn json_line(now: Duration, level: Level, file: &str, line: u32, record: Record) -> String {
    let mut fields = Map::new();
    let millis = now.as_secs_f64() * 1000.0;
    fields.insert("ts".to_owned(), json!(millis));
    let mut parts: Vec<&str> = file.rsplit('/').take(2).collect();
    parts.reverse();
    fields.insert("caller".to_owned(), json!(format!("{}:{line}", parts.join("/"))));
    fields.insert("msg".to_owned(), json!(record.message));
    let verbosity = match level {
        Level::ERROR => None,
        Level::WARN | Level::INFO => Some(0),
        Level::DEBUG => Some(2),
        Level::TRACE => Some(5),
    };
    if let Some(verbosity) = verbosity {
        fields.insert("v".to_owned(), json!(verbosity));
    }
    for (name, value) in record.values {
        let name = if level == Level::ERROR && (name == "error" || name == "reason") {
            "err".to_owned()
        } else {
            name
        };
        fields.insert(name, value);
    }
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            message: "rules are in sync".to_owned(),
            values: vec![
                ("service".to_owned(), json!("ns/name")),
                ("took_ms".to_owned(), json!(7)),
                ("error".to_owned(), json!("a\nb")),
            ],
        }
    }

    #[test]
    fn text_lines_have_klogs_form() {
        // 29 February 2024, 12:34:56.000789 UTC.
        let now = Duration::new(1_709_210_096, 789_000);
        let line = text_line(now, Level::WARN, "crates/proxy/src/tell.rs", 9, &record());
        let pid = format!("{:7}", std::process::id());
        assert_eq!(
            line,
            format!(
                "W0229 12:34:56.000789 {pid} tell.rs:9] \"rules are in sync\" service=\"ns/name\" took_ms=7 error=<\n\ta\n\tb\n >"
            )
        );
    }

    #[test]
    fn json_errors_have_err_and_no_verbosity() {
        let now = Duration::from_millis(1_709_210_096_001);
        let error = json_line(now, Level::ERROR, "crates/proxy/src/tell.rs", 9, record());
        let error: Value = serde_json::from_str(&error).unwrap();
        assert_eq!(error["err"], "a\nb");
        assert_eq!(error.get("v"), None);
        assert_eq!(error["caller"], "src/tell.rs:9");
        let info = json_line(now, Level::INFO, "a.rs", 1, record());
        let info: Value = serde_json::from_str(&info).unwrap();
        assert_eq!(
            (&info["v"], &info["msg"]),
            (&json!(0), &json!("rules are in sync"))
        );
        assert_eq!(info["ts"], json!(1_709_210_096_001.0));
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
