//! Metrics as values, and the Prometheus text format 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What a family of metrics is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Goes up.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts observations by upper bound, sorted; `+Inf` comes by itself.
    Histogram(Bounds),
}

/// The bounds of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// 0.001 s and 14 doublings.
    Sync,
    /// Of upstream's network programming latency: 0, and 0.25 s to 300 s.
    Programming,
    /// Of requests to the API server: 5 ms to a minute.
    Request,
    /// Of their bodies: 64 bytes to 16 MiB.
    Bytes,
}

impl Bounds {
    /// The upper bounds, in seconds or bytes.
    pub(crate) fn upper(self) -> Vec<f64> {
        match self {
            Bounds::Sync => (0..15).map(|k| 0.001 * f64::from(1 << k)).collect(),
            Bounds::Programming => {
                let seconds = (1..60)
                    .chain((60..=115).step_by(5))
                    .chain((120..=300).step_by(30));
                // Upstream's list begins with a zero too.
                [0.0, 0.25, 0.5]
                    .into_iter()
                    .chain(seconds.map(f64::from))
                    .collect()
            }
            Bounds::Request => vec![0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0],
            Bounds::Bytes => [6, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24]
                .into_iter()
                .map(|power| f64::from(1 << power))
                .collect(),
        }
    }
}

/// A family of metrics: name, help, shape, label names in order of the alphabet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Metric {
    /// The whole name.
    pub(crate) name: &'static str,
    /// One line.
    pub(crate) help: &'static str,
    /// What it is.
    pub(crate) shape: Shape,
    /// Names of its labels, sorted.
    pub(crate) labels: &'static [&'static str],
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Histogram { counts: Vec<u64>, sum: f64 },
}

/// The values of metrics. A series without labels is there from the start, one with labels once it is touched, as
/// Prometheus clients have it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    metrics: BTreeMap<&'static str, Metric>,
    series: BTreeMap<(&'static str, Vec<String>), Value>,
}

impl Registry {
    /// A registry of these.
    pub(crate) fn new(metrics: &[Metric]) -> Registry {
        let mut registry = Registry::default();
        for metric in metrics {
            let twice = registry.metrics.insert(metric.name, *metric);
            debug_assert!(twice.is_none(), "{} is registered twice", metric.name);
            if metric.labels.is_empty() {
                registry.value(metric.name, &[]);
            }
        }
        registry
    }

    /// Adds to a counter or a gauge.
    pub(crate) fn add(&mut self, name: &'static str, labels: &[&str], amount: f64) {
        if let Value::Number(number) = self.value(name, labels) {
            *number += amount;
        }
    }

    /// Sets a gauge, or a counter that is counted elsewhere.
    pub(crate) fn set(&mut self, name: &'static str, labels: &[&str], to: f64) {
        *self.value(name, labels) = Value::Number(to);
    }

    /// Observes a time in seconds, or a number of bytes.
    pub(crate) fn observe(&mut self, name: &'static str, labels: &[&str], amount: f64) {
        let bounds = self.bounds(name);
        if let Value::Histogram { counts, sum } = self.value(name, labels) {
            *sum += amount;
            let at = bounds
                .iter()
                .position(|bound| amount <= *bound)
                .unwrap_or(bounds.len());
            counts[at] += 1;
        }
    }

    /// Takes a family's series out; without any it is not printed.
    pub(crate) fn clear(&mut self, name: &'static str) {
        self.series.retain(|(of, _), _| *of != name);
    }

    /// Whether there is such a family.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.metrics.contains_key(name)
    }

    /// The value of one series, for tests.
    #[cfg(test)]
    pub(crate) fn number(&self, name: &'static str, labels: &[&str]) -> Option<f64> {
        match self.series.get(&(name, owned(labels)))? {
            Value::Number(number) => Some(*number),
            Value::Histogram { .. } => None,
        }
    }

    fn bounds(&self, name: &'static str) -> Vec<f64> {
        match self.metric(name).shape {
            Shape::Histogram(bounds) => bounds.upper(),
            Shape::Counter | Shape::Gauge => Vec::new(),
        }
    }

    fn metric(&self, name: &'static str) -> Metric {
        *self
            .metrics
            .get(name)
            .expect("invariant: only metrics of the table are touched")
    }

    fn value(&mut self, name: &'static str, labels: &[&str]) -> &mut Value {
        let metric = self.metric(name);
        debug_assert_eq!(metric.labels.len(), labels.len(), "labels of {name}");
        let bounds = self.bounds(name).len();
        self.series
            .entry((name, owned(labels)))
            .or_insert_with(|| match metric.shape {
                Shape::Counter | Shape::Gauge => Value::Number(0.0),
                Shape::Histogram(_) => Value::Histogram {
                    counts: vec![0; bounds + 1],
                    sum: 0.0,
                },
            })
    }

    /// Everything as text, families by name, series by label values.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut last = "";
        for ((name, values), value) in &self.series {
            let metric = self.metric(name);
            if *name != last {
                header(&mut out, &metric);
                last = name;
            }
            let labels: Vec<(&str, &str)> = metric
                .labels
                .iter()
                .copied()
                .zip(values.iter().map(String::as_str))
                .collect();
            match value {
                Value::Number(number) => line(&mut out, name, &labels, None, *number),
                Value::Histogram { counts, sum } => {
                    histogram(&mut out, &metric, &labels, counts, *sum);
                }
            }
        }
        out
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|label| (*label).to_owned()).collect()
}

fn header(out: &mut String, metric: &Metric) {
    let kind = match metric.shape {
        Shape::Counter => "counter",
        Shape::Gauge => "gauge",
        Shape::Histogram(_) => "histogram",
    };
    let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
    let name = metric.name;
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn histogram(out: &mut String, metric: &Metric, labels: &[(&str, &str)], counts: &[u64], sum: f64) {
    let name = metric.name;
    let bounds = match metric.shape {
        Shape::Histogram(bounds) => bounds.upper(),
        Shape::Counter | Shape::Gauge => Vec::new(),
    };
    let bucket = format!("{name}_bucket");
    let mut total = 0;
    let ends = bounds.iter().map(|bound| number(*bound));
    for (end, count) in ends.chain(["+Inf".to_owned()]).zip(counts) {
        total += count;
        line(out, &bucket, labels, Some(&end), as_f64(total));
    }
    line(out, &format!("{name}_sum"), labels, None, sum);
    line(out, &format!("{name}_count"), labels, None, as_f64(total));
}

fn line(out: &mut String, name: &str, labels: &[(&str, &str)], end: Option<&str>, value: f64) {
    out.push_str(name);
    let end = end.map(|end| ("le", end));
    for (i, (label, value)) in labels.iter().copied().chain(end).enumerate() {
        let opening = if i == 0 { '{' } else { ',' };
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        let _ = write!(out, "{opening}{label}=\"{value}\"");
    }
    if end.is_some() || !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {}", number(value));
}

/// As Go's client library prints a number: least digits, and an exponent of two digits below 1e-4 and from 1e6
/// ("1.7e+09").
fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text
        .split_once('e')
        .expect("invariant: this format has an exponent");
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Counts below 2^52 are exact.
#[allow(clippy::cast_precision_loss, reason = "counts stay below 2^52")]
pub(crate) fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [Metric; 3] = [
        Metric {
            name: "a_total",
            help: "How many.",
            shape: Shape::Counter,
            labels: &[],
        },
        Metric {
            name: "b",
            help: "With labels.",
            shape: Shape::Gauge,
            labels: &["ip_family", "table"],
        },
        Metric {
            name: "c_seconds",
            help: "How long.",
            shape: Shape::Histogram(Bounds::Sync),
            labels: &["ip_family"],
        },
    ];

    #[test]
    fn a_series_without_labels_is_there_from_the_start_and_others_once_touched() {
        let mut registry = Registry::new(&TABLE);
        assert_eq!(
            registry.text(),
            "# HELP a_total How many.\n# TYPE a_total counter\na_total 0\n"
        );
        registry.set("b", &["IPv4", "n\"a\\t\n"], 2.5);
        let text = registry.text();
        assert!(
            text.ends_with("# TYPE b gauge\nb{ip_family=\"IPv4\",table=\"n\\\"a\\\\t\\n\"} 2.5\n"),
            "{text}"
        );
    }

    #[test]
    fn buckets_count_what_is_below_them_too() {
        let mut registry = Registry::new(&TABLE);
        for seconds in [0.001, 0.0015, 100.0] {
            registry.observe("c_seconds", &["IPv6"], seconds);
        }
        let text = registry.text();
        let expected = [
            "c_seconds_bucket{ip_family=\"IPv6\",le=\"0.001\"} 1\n",
            "c_seconds_bucket{ip_family=\"IPv6\",le=\"0.002\"} 2\n",
            "c_seconds_bucket{ip_family=\"IPv6\",le=\"16.384\"} 2\n",
            "c_seconds_bucket{ip_family=\"IPv6\",le=\"+Inf\"} 3\n",
            "c_seconds_sum{ip_family=\"IPv6\"} 100.0025\n",
            "c_seconds_count{ip_family=\"IPv6\"} 3\n",
        ];
        for line in expected {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn upstreams_bounds_are_fifteen_and_eighty_one() {
        assert_eq!(Bounds::Sync.upper().len(), 15);
        let programming = Bounds::Programming.upper();
        assert_eq!(programming.len(), 81);
        assert_eq!(programming[..5], [0.0, 0.25, 0.5, 1.0, 2.0]);
        assert_eq!(
            programming[74..],
            [120.0, 150.0, 180.0, 210.0, 240.0, 270.0, 300.0]
        );
    }

    #[test]
    fn numbers_are_printed_as_by_upstreams_client_library() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.25, "0.25"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (1_796_103_804.5, "1.7961038045e+09"),
            (0.00002, "2e-05"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_cleared_family_is_not_printed() {
        let mut registry = Registry::new(&TABLE);
        registry.clear("a_total");
        assert_eq!(registry.text(), "");
    }
}
