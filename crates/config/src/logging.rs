//! The checks of `logging` and its feature gates, made before all others (upstream `component-base/logs/api/v1`).

use crate::quantity::Quantity;
use crate::types::{FlushFrequency, KubeProxyConfiguration, Logging, StreamOptions};
use crate::validate::FieldError;
use serde_json::{Value, json};

/// The largest verbosity.
const MOST: u32 = i32::MAX as u32;

/// The most that a buffer of lines may hold.
const LARGEST_BUFFER: u64 = 2 << 30;

/// The options of the format that is written.
pub fn stream_options(logging: &Logging) -> &StreamOptions {
    match logging.format.as_str() {
        "json" => &logging.options.json,
        _ => &logging.options.text,
    }
}

/// How many bytes of information lines may be held back.
pub fn info_buffer_bytes(options: &StreamOptions) -> u64 {
    let size = Quantity::parse(&options.info_buffer_size);
    size.map_or(0, Quantity::whole).min(LARGEST_BUFFER)
}

/// Everything wrong with `logging`. Empty when it can be used.
pub fn validate_logging(config: &KubeProxyConfiguration) -> Vec<FieldError> {
    let logging = &config.logging;
    let mut errors = Vec::new();
    if !["text", "json"].contains(&logging.format.as_str()) {
        errors.push(invalid("format", json!(logging.format), "Unsupported log format"));
    } else if logging.format == "json" && !is_on(config, "LoggingBetaOptions", true) {
        let reason = "Log format json is disabled, see LoggingBetaOptions feature";
        errors.push(forbidden("format", reason));
    }
    let (nanos, shown) = match logging.flush_frequency {
        FlushFrequency::Nanoseconds(nanos) => (nanos, json!(nanos)),
        FlushFrequency::Duration(duration) => (duration.nanos(), json!(duration.to_string())),
    };
    if nanos <= 0 {
        errors.push(invalid("flushFrequency", shown, "Must be greater than zero"));
    }
    verbosities(config, &mut errors);
    for (name, options) in [("text", &logging.options.text), ("json", &logging.options.json)] {
        alpha_options(config, name, options, &mut errors);
    }
    errors
}

fn verbosities(config: &KubeProxyConfiguration, errors: &mut Vec<FieldError>) {
    let logging = &config.logging;
    let too_high = "Must be <= 2147483647";
    if logging.verbosity > MOST {
        errors.push(invalid("verbosity", json!(logging.verbosity), too_high));
    }
    if !logging.vmodule.is_empty() && logging.format != "text" {
        errors.push(forbidden("vmodule", "Only supported for text log format"));
    }
    for (i, entry) in logging.vmodule.iter().enumerate() {
        let path = format!("vmodule[{i}]");
        if entry.file_pattern.is_empty() {
            errors.push(FieldError::Required {
                path: format!("logging.{path}"),
                reason: "File pattern must not be empty".to_owned(),
            });
        }
        if entry.file_pattern.contains(['=', ',']) {
            let reason = "File pattern must not contain equal sign or comma";
            errors.push(invalid(&path, json!(entry.file_pattern), reason));
        }
        if entry.verbosity > MOST {
            errors.push(invalid(&path, json!(entry.verbosity), too_high));
        }
    }
}

fn alpha_options(
    config: &KubeProxyConfiguration,
    name: &str,
    options: &StreamOptions,
    errors: &mut Vec<FieldError>,
) {
    if is_on(config, "LoggingAlphaOptions", false) {
        return;
    }
    let set = [
        ("splitStream", options.split_stream),
        ("infoBufferSize", options.info_buffer_size != "0"),
    ];
    for (field, _) in set.into_iter().filter(|(_, set)| *set) {
        let path = format!("options.{name}.{field}");
        errors.push(forbidden(&path, "Feature LoggingAlphaOptions is disabled"));
    }
}

fn is_on(config: &KubeProxyConfiguration, gate: &str, default: bool) -> bool {
    config.feature_gates.get(gate).copied().unwrap_or(default)
}

fn invalid(path: &str, value: Value, reason: &str) -> FieldError {
    FieldError::Invalid {
        path: format!("logging.{path}"),
        value,
        reason: reason.to_owned(),
    }
}

fn forbidden(path: &str, reason: &str) -> FieldError {
    FieldError::Forbidden {
        path: format!("logging.{path}"),
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_has_the_size_of_its_quantity_and_at_most_two_gigabytes() {
        for (quantity, bytes) in [
            ("0", 0),
            ("64Ki", 65_536),
            ("1500m", 2),
            ("-1", 0),
            ("1Ti", 2 << 30),
        ] {
            let options = StreamOptions {
                info_buffer_size: quantity.to_owned(),
                ..StreamOptions::default()
            };
            assert_eq!(info_buffer_bytes(&options), bytes, "{quantity}");
        }
    }
}
