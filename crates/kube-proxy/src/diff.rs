//! `kube-proxy diff`: what becomes otherwise of traffic between two clusters, two nodes, or two hosts' rules.
//!
//! Exit status: 0 when nothing becomes otherwise, 1 when something does, 2 when the two could not be compared.

pub mod json;
mod side;

use crate::failure::Answer;
use crate::input::{AddressArgs, ClusterArgs, Form, ServerArgs, SettingsArgs, ShownArgs, Which};
use anyhow::{Result, bail};
use difference::drift::Difference;
use difference::screen::{self, Extent};
use difference::traffic::{Changes, changes};
use side::Side;
use std::io::Write as _;
use std::path::PathBuf;

/// Say what becomes otherwise of traffic between two clusters, two nodes or two hosts' rules.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "BEFORE and AFTER are manifests (a file or a folder) or a host's rules (iptables-save, nft list ruleset), of
any two kinds. Without them, two nodes are compared on the same objects.

Examples:
  kube-proxy diff ./cluster ./cluster-new --node node-a
  kubectl get svc,endpointslices,nodes -A -o yaml | kube-proxy diff before.yaml - --node node-a
  kube-proxy diff --manifests ./cluster --node node-a --node node-b
  kube-proxy diff --kubeconfig ~/.kube/config --node node-a --node node-b
  kube-proxy diff yesterday.txt today.txt --rules       # two dumps of iptables-save, with the rules that differ

Exit status: 0 nothing becomes otherwise, 1 something does, 2 the two could not be compared."
)]
pub struct Args {
    /// What was: manifests, or a dump of rules.
    #[arg(requires = "after", conflicts_with_all = ["manifests", "kubeconfig", "master"])]
    before: Option<PathBuf>,
    /// What is.
    after: Option<PathBuf>,
    /// Manifests of Services, `EndpointSlices` and Nodes, to compare two nodes on.
    #[arg(long, value_name = "PATH|-", help_heading = "Cluster and node")]
    manifests: Option<PathBuf>,
    /// The node that is meant; given twice, the first is the node before and the second the node after.
    #[arg(long, value_name = "NAME", help_heading = "Cluster and node")]
    node: Vec<String>,
    /// Which family is compared.
    #[arg(long, value_enum, default_value_t = Which::Both)]
    family: Which,
    /// Lists the rules that differ as well.
    #[arg(long)]
    rules: bool,
    /// Prints all changes, however many there are.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    addresses: AddressArgs,
    #[command(flatten)]
    shown: ShownArgs,
}

/// What came out.
struct Outcome {
    about: String,
    changes: Vec<Changes>,
    /// The rules that differ, where they were asked for.
    rules: Option<Vec<Difference>>,
}

/// Compares and prints.
///
/// # Errors
/// When there are no two things to compare, or one cannot be read.
pub fn run(args: &Args) -> Result<Answer> {
    let outcome = args.compare()?;
    let mut out = anstream::stdout().lock();
    match args.shown.output {
        Form::Json => json::write(&mut out, &outcome)?,
        Form::Text => write!(out, "{}", args.text(&outcome))?,
    }
    out.flush()?;
    Ok(if outcome.is_same() {
        Answer::Clean
    } else {
        Answer::Findings
    })
}

impl Outcome {
    fn is_same(&self) -> bool {
        self.changes.iter().all(|changes| changes.changes.is_empty())
    }
}

impl Args {
    fn compare(&self) -> Result<Outcome> {
        if self.node.len() > 2 {
            bail!(
                "two nodes can be compared, and --node is given {} times",
                self.node.len()
            );
        }
        let (before, after) = self.sides()?;
        let mut outcome = Outcome {
            about: format!("from {} to {}", before.title, after.title),
            changes: Vec::new(),
            rules: self.rules.then(Vec::new),
        };
        for family in self.family.families().iter().copied() {
            let (Some(old), Some(new)) = (before.behaviour(family), after.behaviour(family)) else {
                continue;
            };
            // Rules do not always say what kind of address one is.
            let by_address = before.is_rules() || after.is_rules();
            let (old, new) = if by_address {
                (old.by_address(), new.by_address())
            } else {
                (old, new)
            };
            outcome.changes.push(changes(&old, &new));
            if let Some(rules) = &mut outcome.rules {
                rules.extend(side::rules(&before, &after, family));
            }
        }
        if outcome.changes.is_empty() {
            bail!(
                "{} and {} have no family in common in which kube-proxy serves anything",
                before.title,
                after.title
            );
        }
        Ok(outcome)
    }

    fn sides(&self) -> Result<(Side, Side)> {
        let addresses = self.addresses.addresses()?;
        let nodes = [self.node.first(), self.node.get(1).or(self.node.first())];
        let cluster =
            |manifests: Option<&PathBuf>, node: Option<&String>, about: Option<String>| ClusterArgs {
                manifests: manifests.cloned(),
                node: node.cloned(),
                settings: self.settings.clone(),
                about,
            };
        if let (Some(before), Some(after)) = (&self.before, &self.after) {
            if before == after && before.as_os_str() == "-" {
                bail!("standard input can be read once: give a file for one of the two");
            }
            let side = |word: &str, path: &PathBuf, node| {
                let about = format!("{word}: {}", path.display());
                let cluster = cluster(Some(path), node, Some(about));
                Side::of_path(path, &cluster, &self.addresses, &addresses)
            };
            return Ok((side("before", before, nodes[0])?, side("after", after, nodes[1])?));
        }
        if self.manifests.is_none() && !self.server.is_given() {
            bail!(
                "nothing to compare: give BEFORE and AFTER, or objects and two nodes (--manifests PATH --node A --node B)"
            );
        }
        if self.node.len() != 2 {
            bail!("the same objects differ by node alone: give --node twice");
        }
        // What is odd about the objects is so on both.
        let objects = cluster(self.manifests.as_ref(), None, None).snapshot(&self.server)?;
        let side = |word: &str, node: Option<&String>| {
            let about = node.map(|name| format!("{word}: node {name}"));
            let world = cluster(None, node, about).of_snapshot(objects.clone(), &addresses)?;
            anyhow::Ok(Side::of_world(world, "node "))
        };
        Ok((side("before", nodes[0])?, side("after", nodes[1])?))
    }

    fn text(&self, outcome: &Outcome) -> String {
        let extent = if self.all {
            Extent::Everything
        } else {
            Extent::Some
        };
        let width = self.shown.columns();
        let mut text = screen::changes(&outcome.changes, &outcome.about, width, extent);
        if let Some(rules) = &outcome.rules {
            text.push_str(&screen::rules(rules, width, extent));
        }
        text
    }
}
