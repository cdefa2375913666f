//! A world with an index, which answers what is asked about Services.

use crate::answer::Answer;
use crate::counted::Counted;
use crate::difference;
use crate::notes::{Noted, by_service, name_of};
use crate::request::AboutWorld;
use crate::state::{State, amounts};
use crate::{service, way};
use explain::World;
use model::object::{Service, ServiceSkip};
use model::{Family, ServiceName, Severity};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Where a world comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// From a daemon: it changes, and there are last changes to ask for.
    Live,
    /// From files or lists that were read once.
    Once,
}

/// What the page says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The program's version.
    pub version: &'static str,
    /// Where the world comes from.
    pub liveness: Liveness,
    /// When it was read, in milliseconds since 1970.
    pub read_ms: u64,
}

/// A world with an index.
#[derive(Debug)]
pub struct Explored {
    pub(crate) world: World,
    about: About,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: ServiceName,
    state: State,
    ready: usize,
    endpoints: usize,
    notes: Noted,
    /// What searching looks through, in lower case.
    text: String,
}

impl Row {
    /// The state, and whether something is to be looked at though all are ready.
    fn kind(&self) -> &'static str {
        match self.state {
            State::Ready if self.notes.warnings > 0 => "ready-with-notes",
            state => state.word(),
        }
    }
}

impl Explored {
    /// Looks through a world once.
    pub fn new(world: World, about: About) -> Explored {
        let notes = by_service(&world.snapshot, &world.notes);
        let rows = world
            .snapshot
            .services()
            .map(|service| row(&world, service, &notes))
            .collect();
        Explored { world, about, rows }
    }

    /// Answers what is asked. `counted` is of the Service that is asked about, where somebody keeps counters.
    pub fn answer(&self, asked: &AboutWorld, counted: Option<&[Counted]>) -> Answer {
        match asked {
            AboutWorld::Summary => Answer::json(&self.summary()),
            AboutWorld::Services {
                words,
                state,
                offset,
                limit,
            } => Answer::json(&self.services(words, state.as_deref(), *offset, *limit)),
            AboutWorld::Service(name) => match service::json(&self.world, name, counted) {
                Some(found) => Answer::json(&found),
                None => Answer::refused(404, &format!("there is no Service {name}")),
            },
            AboutWorld::Notes { words, limit } => Answer::json(&self.notes(words, *limit)),
            AboutWorld::Path(question) => Answer::json(&way::of_question(&self.world, question)),
        }
    }

    fn summary(&self) -> Value {
        let count = |state: State| self.rows.iter().filter(|row| row.state == state).count();
        let states: BTreeMap<&str, usize> = State::ALL
            .into_iter()
            .map(|one| (one.word(), count(one)))
            .collect();
        json!({
            "version": self.about.version,
            "live": self.about.liveness == Liveness::Live,
            "read_ms": self.about.read_ms,
            "node": self.world.node_words(),
            "node_words": self.node_words(),
            "is_one_of_several": self.world.node_choice == explain::world::NodeChoice::OneOfSeveral,
            "mode": self.world.mode.to_string(),
            "rules": way::rules_word(self.world.rules),
            "services": self.rows.len(),
            "endpoints": self.rows.iter().map(|row| row.endpoints).sum::<usize>(),
            "states": states,
            "noted": self.rows.iter().filter(|row| row.notes.all > 0).count(),
            "warned": self.rows.iter().filter(|row| row.notes.warnings > 0).count(),
            "notes": self.world.notes.len(),
            "nodes": self.world.snapshot.nodes().take(200).map(|node| node.name.to_string()).collect::<Vec<_>>(),
        })
    }

    fn node_words(&self) -> String {
        let world = &self.world;
        let is_named = !world.facts.name.is_empty() || world.host_facts.hostname.is_some();
        if is_named {
            format!("node {}", world.node_words())
        } else {
            "no Node is known".to_owned()
        }
    }

    fn services(&self, words: &[String], state: Option<&str>, offset: usize, limit: usize) -> Value {
        let fits = |row: &&Row| {
            let has_state = match state {
                None => true,
                Some("noted") => row.notes.all > 0,
                Some(state) => row.state.word() == state,
            };
            has_state && words.iter().all(|word| row.text.contains(word.as_str()))
        };
        let matched: Vec<&Row> = self.rows.iter().filter(fits).collect();
        let rows: Vec<Value> = in_order(&matched, words)
            .into_iter()
            .skip(offset)
            .take(limit)
            .filter_map(|row| self.row_json(row))
            .collect();
        json!({ "total": self.rows.len(), "matched": matched.len(), "offset": offset, "services": rows })
    }

    fn row_json(&self, row: &Row) -> Option<Value> {
        let service = self.world.snapshot.service(&row.name)?;
        Some(json!({
            "name": row.name.to_string(),
            "type": difference::kind(service.kind),
            "addresses": addresses(service).iter().map(ToString::to_string).collect::<Vec<_>>(),
            "ports": difference::ports(service),
            "state": row.state.word(),
            "kind": row.kind(),
            "ready": row.ready,
            "endpoints": row.endpoints,
            "notes": row.notes.all,
            "warnings": row.notes.warnings,
        }))
    }

    fn notes(&self, words: &[String], limit: usize) -> Value {
        let text = |note: &&model::Note| {
            let text = note.to_string().to_lowercase();
            words.iter().all(|word| text.contains(word.as_str()))
        };
        let matched: Vec<&model::Note> = self.world.notes.iter().filter(text).collect();
        let rows: Vec<Value> = matched.iter().take(limit).map(|note| note_json(note)).collect();
        json!({ "total": self.world.notes.len(), "matched": matched.len(), "notes": rows })
    }
}

/// Names that begin with, or are, what is searched for come first: who types a whole name means that one.
fn in_order<'a>(rows: &[&'a Row], words: &[String]) -> Vec<&'a Row> {
    let [word] = words else {
        return rows.to_vec();
    };
    let rank = |row: &&Row| {
        let full = row.name.to_string();
        match () {
            () if full == *word || *row.name.name == **word => 0,
            () if full.starts_with(word.as_str()) || row.name.name.starts_with(word.as_str()) => 1,
            () => 2,
        }
    };
    let mut rows = rows.to_vec();
    rows.sort_by_key(rank);
    rows
}

pub(crate) fn note_json(note: &model::Note) -> Value {
    let is_service = note.subject.kind == "Service";
    json!({
        "severity": match note.severity {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        },
        "object": note.subject.to_string(),
        "service": is_service.then(|| name_of(&note.subject).to_string()),
        "what": note.kind.to_string(),
    })
}

/// Every address that clients use, cluster IPs first.
pub(crate) fn addresses(service: &Service) -> Vec<IpAddr> {
    let own = Family::ALL
        .into_iter()
        .filter_map(|family| *service.cluster_ips.get(family));
    own.chain(service.external_ips.iter().copied())
        .chain(service.load_balancer_ips.iter().copied())
        .collect()
}

/// Why no proxy serves a Service.
pub(crate) fn skip_words(skip: ServiceSkip) -> &'static str {
    match skip {
        ServiceSkip::OtherProxy => "left to another proxy by its label",
        ServiceSkip::Headless => "headless: clients get the pods' addresses from DNS",
        ServiceSkip::ExternalName => "ExternalName: an alias in DNS",
        ServiceSkip::NoClusterIp => "has no cluster IP",
    }
}

fn row(world: &World, service: &Service, notes: &BTreeMap<ServiceName, Noted>) -> Row {
    let slices = world.snapshot.slices_of(&service.name);
    let worst = amounts(world, service, &slices);
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    Row {
        state: worst.state,
        ready: worst.ready,
        endpoints: worst.endpoints,
        notes: notes.get(&service.name).copied().unwrap_or_default(),
        text: text(service, &endpoints.map(|endpoint| endpoint.ip).collect()),
        name: service.name.clone(),
    }
}

fn text(service: &Service, endpoints: &BTreeSet<IpAddr>) -> String {
    let mut text = format!(
        "{} {} {}",
        service.name,
        difference::kind(service.kind),
        difference::ports(service)
    );
    // An endpoint's address leads to its Service; of very many, the first are enough.
    for ip in addresses(service).iter().chain(endpoints.iter().take(64)) {
        text.push(' ');
        text.push_str(&ip.to_string());
    }
    text.to_lowercase()
}
