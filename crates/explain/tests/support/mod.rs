//! Case folders: what is asked of which files, and what has to be answered (`scenarios/README.md`, cases/).

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod small;
pub mod words;

use explain::{HostFacts, Parts, Question, World, assemble};
use iptables::parse;
use model::{Family, PerFamily};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// One question of a case's `expect.yaml`.
#[derive(Clone, Debug, Deserialize)]
pub struct Entry {
    pub command: String,
    pub on: String,
    pub ask: Value,
    pub expect: Value,
}

/// A case's folder.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub folder: PathBuf,
    pub entries: Vec<Entry>,
}

/// Every case that has an `expect.yaml`, by name, in one folder of scenarios.
pub fn cases(under: &str) -> Vec<Case> {
    let root = scenario::root().join(under);
    let found = fs::read_dir(&root).unwrap_or_else(|err| panic!("{}: {err}", root.display()));
    let mut folders: Vec<PathBuf> = found
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    folders.sort();
    folders
        .into_iter()
        .filter_map(|folder| read_case(&folder))
        .collect()
}

fn read_case(folder: &Path) -> Option<Case> {
    let path = folder.join("expect.yaml");
    let text = fs::read_to_string(&path).ok()?;
    let entries = serde_saphyr::from_str(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    Some(Case {
        name: folder.file_name()?.to_string_lossy().into_owned(),
        folder: folder.to_owned(),
        entries,
    })
}

/// The node of cases that say nothing of theirs.
const NODE: &str = "node-a";
const NODE_ADDRESS: &str = "192.0.2.11/24";
/// The pods' networks where a case does not say.
const PODS: &str = "10.244.0.0/16,2001:db8:244::/48";

/// The files that an entry is about, and the mode.
#[derive(Clone, Debug, Default)]
pub struct On {
    pub objects: Vec<PathBuf>,
    pub facts: Option<PathBuf>,
    pub saved: PerFamily<Option<PathBuf>>,
    /// Tables of `nf_tables` that are not iptables'.
    pub native: Vec<PathBuf>,
    pub mode: Option<String>,
}

impl Case {
    /// What an entry's `on` names: `objects.yaml + node.yaml`, `objects.yaml (mode nftables)`.
    pub fn on(&self, entry: &Entry) -> On {
        let mut on = On::default();
        for part in entry.on.split('+') {
            let (file, remark) = part.split_once('(').unwrap_or((part, ""));
            let file = file.trim();
            let remark = remark.trim_end_matches([')', ' ']);
            on.mode = remark.strip_prefix("mode ").map(str::to_owned).or(on.mode);
            let path = self.folder.join(file);
            match file {
                _ if file.starts_with("objects") => on.objects.push(path),
                _ if file.starts_with("node") => on.facts = Some(path),
                _ if file.starts_with("iptables-save") => on.saved.v4 = Some(path),
                _ if file.starts_with("ip6tables-save") => on.saved.v6 = Some(path),
                _ if file.starts_with("nft") => on.native.push(path),
                _ => panic!("{}: what is {file:?}?", self.name),
            }
        }
        // Dumps are of the node that the folder describes, whether the entry says so or not.
        let described = self.folder.join("node.yaml");
        if on.facts.is_none() && on.objects.is_empty() && described.exists() {
            on.facts = Some(described);
        }
        on
    }
}

pub fn yaml(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

/// The host of cases that say nothing of theirs: a pod bridge, and a route to the other node's pods.
fn usual_host(has_rules: bool) -> Value {
    if !has_rules {
        return json!({"hostname": NODE, "addresses": [NODE_ADDRESS]});
    }
    json!({
        "hostname": NODE,
        "addresses": [NODE_ADDRESS],
        "interfaces": [{"name": "cni0", "addresses": ["10.244.1.1/24"]}],
        "routes": ["default via 192.0.2.1 dev eth0", "10.244.2.0/24 via 192.0.2.12 dev eth0"],
    })
}

/// What an entry is about, put together as the tool does it.
pub fn world(on: &On, question: &Question) -> World {
    let has_rules = on.saved.v4.is_some() || on.saved.v6.is_some();
    let mut host = match &on.facts {
        Some(path) => yaml(path).remove(0),
        None => usual_host(has_rules),
    };
    if host.get("config").is_none() {
        host["config"] = json!({});
    }
    if host["config"].get("clusterCIDR").is_none() {
        host["config"]["clusterCIDR"] = PODS.into();
    }
    if let Some(mode) = &on.mode {
        host["config"]["mode"] = mode.as_str().into();
    }
    let saved = PerFamily::from_fn(|family: Family| {
        let path = on.saved.get(family).as_ref()?;
        let text = fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let saved = parse::save(&text, family);
        assert_eq!(saved.opaque, [], "{}", path.display());
        Some(saved.ruleset)
    });
    let mut native: Option<nftables::listed::Ruleset> = None;
    for path in &on.native {
        let text = fs::read_to_string(path).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        let read = nftables::parse::ruleset(&text).unwrap_or_else(|err| panic!("{}: {err}", path.display()));
        native.get_or_insert_default().tables.extend(read.tables);
    }
    let parts = Parts {
        documents: on.objects.iter().flat_map(|path| yaml(path)).collect(),
        facts: HostFacts::read(&host).unwrap_or_else(|err| panic!("{err}")),
        saved,
        native,
        ..Parts::default()
    };
    assemble(parts, question).unwrap_or_else(|err| panic!("{err}"))
}
