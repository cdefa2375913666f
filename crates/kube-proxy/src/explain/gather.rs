//! What an explanation looks at, read from files and from the API server.

use super::Sources;
use crate::input::{CONFIG_MAP, dumps, read_manifests};
use anyhow::{Context as _, Result, bail};
use explain::{From, HostFacts, Objects, Parts, Question, To};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Everything the sources name, of which Pods only those that the question is about.
pub(super) fn parts(sources: &Sources, question: &Question) -> Result<Parts> {
    sources.check()?;
    let mut facts = match &sources.facts {
        Some(path) => read_facts(path)?,
        None => HostFacts::default(),
    };
    let documents = match &sources.cluster.manifests {
        Some(path) => read_manifests(path)?,
        None if sources.server.is_given() => {
            sources
                .server
                .ask(|read| more_paths(sources, question, read))?
                .documents
        }
        None => Vec::new(),
    };
    // Without a file, facts and the cluster's own ConfigMap have a say.
    let is_said = sources.cluster.settings.config.is_some()
        || sources.cluster.settings.external_ip_allowed_cidrs.is_some();
    let config = if is_said {
        Some(sources.cluster.settings.configuration()?)
    } else {
        None
    };
    let dumps = dumps::read(&sources.dump, dumps::Wanted::Both)?;
    facts.sets = dumps.sets;
    Ok(Parts {
        documents,
        config,
        mode: sources
            .cluster
            .settings
            .proxy_mode
            .as_deref()
            .map(mode)
            .transpose()?,
        cluster_cidr: sources.cluster.settings.cluster_cidr.clone(),
        node: sources.cluster.node.clone(),
        facts,
        addresses: Vec::new(),
        saved: dumps.saved,
        native: dumps.native,
    })
}

/// A mode whose answers are known.
pub(crate) fn mode(name: &str) -> Result<explain::Mode> {
    match name {
        "iptables" => Ok(explain::Mode::Iptables),
        "nftables" => Ok(explain::Mode::Nftables),
        other => bail!("--proxy-mode {other}: it is iptables or nftables that can be explained"),
    }
}

pub(crate) fn read_facts(path: &Path) -> Result<HostFacts> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read --facts {}", path.display()))?;
    let document: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("--facts {} is no YAML", path.display()))?;
    HostFacts::read(&document).with_context(|| format!("--facts {}", path.display()))
}

/// What is read of namespaces alone: their Pods and `NetworkPolicies`, the Endpoints object of the Service, and kube-proxy's
/// configuration.
fn more_paths(sources: &Sources, question: &Question, documents: &[Value]) -> Vec<(String, &'static str)> {
    let mut namespaces = BTreeSet::new();
    let mut more = Vec::new();
    let service = match &question.to {
        To::Address(ip, _) => owner(documents, &ip.to_string()),
        To::Service(..) | To::Name(..) | To::NodePort(_) => {
            let mut objects = Objects::default();
            for document in documents {
                objects.take(document);
            }
            let service = question.service(&objects);
            service.map(|name| (name.namespace.to_string(), name.name.to_string()))
        }
    };
    if let Some((namespace, name)) = service {
        more.push((
            format!("/api/v1/namespaces/{namespace}/endpoints/{name}"),
            "Endpoints",
        ));
        namespaces.insert(namespace);
    }
    if let From::Name(pod) = &question.from {
        namespaces.insert(pod.namespace.to_string());
    }
    for namespace in &namespaces {
        more.push((format!("/api/v1/namespaces/{namespace}/pods"), "Pod"));
        more.push((
            format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"),
            "NetworkPolicy",
        ));
        for (plural, kind) in [("deployments", "Deployment"), ("statefulsets", "StatefulSet")] {
            more.push((format!("/apis/apps/v1/namespaces/{namespace}/{plural}"), kind));
        }
    }
    if sources.cluster.settings.config.is_none() {
        more.push((CONFIG_MAP.to_owned(), "ConfigMap"));
    }
    more
}

/// The Service that has an address, as its object spells it.
fn owner(documents: &[Value], ip: &str) -> Option<(String, String)> {
    let lists = documents
        .iter()
        .filter_map(|list| list.get("items")?.as_array())
        .flatten();
    let mut owners = lists.filter(|object| {
        let has = |value: &Value| value.as_str() == Some(ip);
        let many = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_array)
                .is_some_and(|all| all.iter().any(has))
        };
        object.pointer("/spec/clusterIP").is_some_and(has)
            || many("/spec/clusterIPs")
            || many("/spec/externalIPs")
    });
    let owner = owners.next()?;
    let text = |pointer: &str| owner.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    Some((text("/metadata/namespace")?, text("/metadata/name")?))
}
