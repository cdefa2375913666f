//! `kube-proxy doctor`: what is wrong with a host.
//!
//! Looks at this host, or at a folder of files that somebody saved on another one, hands what it saw to
//! [`explain::doctor::examine`], and prints a page or JSON. Nothing on the host is changed. Exit status: 0 when there is
//! nothing to report, 1 for a finding, 2 when too little could be looked at.

mod folder;
mod json;
mod look;
mod read;

use crate::explain::gather;
use crate::failure::Answer;
use crate::input::{CONFIG_MAP, ClusterArgs, Form, ServerArgs, ShownArgs, read_manifests};
use anyhow::{Context as _, Result, ensure};
use explain::doctor::{NotSeen, Patient, Report, Saved, examine, main_rules, screen};
use explain::{HostFacts, Parts, assemble_host};
use nftables::listed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

/// Say what is wrong with a host: tools, kernel, settings, firewalls, what other software does.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Without --from it looks at this host, which needs root for its rules. Nothing is changed, no module is loaded.
With objects (--kubeconfig, --master or --manifests) it also knows Services, Nodes and ranges of addresses.

Examples:
  kube-proxy doctor
  kube-proxy doctor --kubeconfig /etc/kubernetes/kube-proxy.conf
  kube-proxy doctor --save /tmp/node-a          # look, and keep what was seen in files to mail
  kube-proxy doctor --from ./node-a --manifests ./cluster
  kube-proxy doctor --output json | jq '.findings[].id'

Exit status: 0 nothing to report, 1 a finding, 2 too little could be looked at."
)]
pub struct Args {
    /// Look at the files in this folder, and not at this host: what --save wrote, or what iptables-save, ip6tables-save,
    /// nft list ruleset, ipset save, sysctl -a, ip route, ip rule and uname -r print (docs/doctor.md has the names).
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Keep what was seen in this folder, which is made if need be.
    #[arg(long, value_name = "DIR", conflicts_with = "from")]
    save: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    shown: ShownArgs,
}

/// What was seen of a host, before anything is made of it.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// What is known beside rules.
    facts: HostFacts,
    /// Texts of rules, by the name of their file.
    dumps: BTreeMap<String, String>,
    /// What `ipset save` printed of this host, where its rules ask sets.
    sets: Option<String>,
    /// Objects that were among the files.
    documents: Vec<Value>,
    /// What could not be looked at.
    unseen: Vec<NotSeen>,
}

/// What the texts of rules say.
#[derive(Clone, Debug, Default)]
struct Rules {
    saved: Vec<Saved>,
    native: Option<listed::Ruleset>,
}

/// Examines a host on standard output.
///
/// # Errors
/// When there is nothing to look at, or something that was named cannot be read.
pub fn run(args: &Args) -> Result<Answer> {
    let mut seen = match &args.from {
        Some(folder) => folder::read(folder)?,
        None => look::host(),
    };
    if let Some(folder) = &args.save {
        folder::write(folder, &seen)?;
        anstream::eprintln!("note: what was seen is in {}", folder.display());
    }
    add_cluster(args, &mut seen)?;
    let rules = read::rules(&mut seen);
    let patient = patient(args, seen, rules)?;
    let report = examine(&patient);
    print(args, &report)?;
    Ok(match (report.has_findings(), report.is_blind()) {
        (true, _) => Answer::Findings,
        (false, true) => Answer::Blind,
        (false, false) => Answer::Clean,
    })
}

/// Adds the cluster's objects.
fn add_cluster(args: &Args, seen: &mut Seen) -> Result<()> {
    ensure!(
        args.cluster.manifests.is_none() || !args.server.is_given(),
        "give --manifests or an API server, not both"
    );
    if let Some(path) = &args.cluster.manifests {
        seen.documents.extend(read_manifests(path)?);
    } else if args.server.is_given() {
        let more = |_: &[Value]| vec![(CONFIG_MAP.to_owned(), "ConfigMap")];
        let answers = args.server.ask(more)?;
        // Files of another host say nothing about this one's clock.
        if args.from.is_none() {
            seen.facts.clock.ahead = answers.ahead;
        }
        seen.documents.extend(answers.documents);
    }
    Ok(())
}

/// Whether somebody said in which mode the node's kube-proxy is; the default says nothing.
fn says_mode(args: &Args, seen: &Seen) -> bool {
    let is_config_map = |object: &Value| {
        let is = |pointer: &str, word: &str| object.pointer(pointer).and_then(Value::as_str) == Some(word);
        is("/kind", "ConfigMap") && is("/metadata/name", "kube-proxy")
    };
    args.cluster.settings.config.is_some()
        || args.cluster.settings.proxy_mode.is_some()
        || seen.facts.config.get("mode").is_some()
        || seen.documents.iter().any(is_config_map)
}

fn patient(args: &Args, seen: Seen, rules: Rules) -> Result<Patient> {
    let says_mode = says_mode(args, &seen);
    let is_said =
        args.cluster.settings.config.is_some() || args.cluster.settings.external_ip_allowed_cidrs.is_some();
    let config = is_said
        .then(|| args.cluster.settings.configuration())
        .transpose()?;
    let parts = Parts {
        documents: seen.documents,
        config,
        mode: args
            .cluster
            .settings
            .proxy_mode
            .as_deref()
            .map(gather::mode)
            .transpose()?,
        cluster_cidr: args.cluster.settings.cluster_cidr.clone(),
        node: args.cluster.node.clone(),
        facts: seen.facts,
        addresses: Vec::new(),
        saved: main_rules(&rules.saved),
        native: rules.native,
    };
    let world = assemble_host(parts)
        .map_err(anyhow::Error::msg)
        .context("cannot examine")?;
    let configured = world.configured_mode.clone();
    let patient = Patient::new(world, rules.saved, seen.unseen);
    Ok(if says_mode {
        patient.in_mode(configured)
    } else {
        patient
    })
}

fn print(args: &Args, report: &Report) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match args.shown.output {
        Form::Text => write!(out, "{}", screen::text(report, args.shown.columns()))?,
        Form::Json => json::write(&mut out, report)?,
    }
    out.flush()?;
    Ok(())
}
