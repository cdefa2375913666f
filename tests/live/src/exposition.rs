//! Metrics as two proxies expose them, read and compared.

mod compare;

pub use compare::{Pair, differences};

use std::collections::BTreeMap;

/// Everything of one scrape, by family.
pub type Scrape = BTreeMap<String, Family>;

/// One family.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// `counter`, `gauge`, `histogram` or `summary`.
    pub kind: String,
    /// The help text.
    pub help: String,
    /// Its series by labels, as text in the order of their names, without a histogram's `le`.
    pub series: BTreeMap<String, Series>,
}

/// One series: a value, or a histogram's values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The value; of a histogram, the count of all.
    pub value: f64,
    /// Of a histogram: upper bounds and counts.
    pub buckets: Vec<(String, f64)>,
    /// Of a histogram: the sum.
    pub sum: Option<f64>,
}

impl Family {
    /// The names of labels that any of its series has.
    pub fn label_names(&self) -> Vec<String> {
        let first = self.series.keys().next().cloned().unwrap_or_default();
        pairs(&first).into_iter().map(|(name, _)| name).collect()
    }

    /// The upper bounds of its buckets.
    pub fn bounds(&self) -> Vec<String> {
        let first = self.series.values().next();
        let buckets = first.into_iter().flat_map(|series| &series.buckets);
        buckets.map(|(bound, _)| bound.clone()).collect()
    }
}

/// Reads the Prometheus text format.
///
/// # Panics
/// When a line is none of it: a scrape that cannot be read is a finding.
pub fn parse(text: &str) -> Scrape {
    let mut scrape = Scrape::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap_or((rest, ""));
            scrape.entry(name.to_owned()).or_default().help += help;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            scrape.entry(name.to_owned()).or_default().kind += kind;
        } else {
            sample(&mut scrape, line);
        }
    }
    scrape
}

fn sample(scrape: &mut Scrape, line: &str) {
    let (series, value) = line
        .rsplit_once(' ')
        .unwrap_or_else(|| panic!("no sample: {line}"));
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.trim_end_matches('}')),
        None => (series, ""),
    };
    let part = |ending: &str| {
        let stem = name.strip_suffix(ending)?;
        let family = scrape.get(stem)?;
        ["histogram", "summary"]
            .contains(&family.kind.as_str())
            .then(|| stem.to_owned())
    };
    let mut labels = pairs(labels);
    if let Some(family) = part("_bucket") {
        let at = labels.iter().position(|(name, _)| name == "le").expect("a bound");
        let (_, bound) = labels.remove(at);
        of(scrape, &family, &labels).buckets.push((bound, value));
    } else if let Some(family) = part("_sum") {
        of(scrape, &family, &labels).sum = Some(value);
    } else if let Some(family) = part("_count") {
        of(scrape, &family, &labels).value = value;
    } else {
        assert!(scrape.contains_key(name), "no family is told of {line}");
        of(scrape, name, &labels).value = value;
    }
}

fn of<'s>(scrape: &'s mut Scrape, family: &str, labels: &[(String, String)]) -> &'s mut Series {
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    let series = &mut scrape
        .get_mut(family)
        .expect("invariant: it was just seen")
        .series;
    series.entry(labels.join(",")).or_default()
}

/// `a="b",c="d"`, with what is escaped in it.
fn pairs(labels: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = labels;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => break after.len(),
                },
                Some((at, '"')) => break at + 1,
                Some((_, other)) => value.push(other),
                None => break after.len(),
            }
        };
        found.push((name.trim_start_matches(',').trim().to_owned(), value));
        rest = &after[end..];
    }
    found
}

#[cfg(test)]
mod tests;
