//! Why it is so: each file looks at one layer and returns findings, the most likely cause first.

pub(crate) mod address;
pub(crate) mod declared;
pub(crate) mod endpoints;
pub(crate) mod foreign;
pub(crate) mod gone;
pub(crate) mod host;
mod joined;
pub(crate) mod keeper;
pub(crate) mod network_policy;
pub(crate) mod node_address;
pub(crate) mod odd;
pub(crate) mod pods;
pub(crate) mod policy;
pub(crate) mod reply;
pub(crate) mod service;
mod slices;
mod workloads;

pub(crate) use crate::finding::subject;
use model::note::Subject;
use model::{Protocol, ServiceName};
use std::fmt::Display;

pub(crate) fn of_service(name: &ServiceName) -> Subject {
    subject("Service", &name.namespace, &name.name)
}

/// A list in words: at most so many, and how many more there are.
pub(crate) fn listed<T: Display>(all: &[T], most: usize) -> String {
    let mut words: Vec<String> = all.iter().take(most).map(ToString::to_string).collect();
    if all.len() > most {
        words.push(format!("{} more", all.len() - most));
    }
    words.join(", ")
}

/// A port as people say it: `53/UDP`, with its name when it has one.
pub(crate) fn port_words(name: &str, port: u16, protocol: Protocol) -> String {
    match name {
        "" => format!("{port}/{protocol}"),
        name => format!("{port}/{protocol} ({name})"),
    }
}

/// `1 endpoint`, `3 endpoints`.
pub(crate) fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        number if thing.ends_with('s') => format!("{number} {thing}es"),
        number => format!("{number} {thing}s"),
    }
}
