//! `kube-proxy render`: the rules a cluster's objects become on a node.

use crate::failure::Answer;
use crate::input::{AddressArgs, ClusterArgs, EVERY_CAPABILITY};
use anyhow::{Context, Result};
use iptables::ast::Ports;
use iptables::build::{Capabilities, Nfacct};
use iptables::render::{RestoreText, SaveText};
use model::Family;
use std::io::Write;

/// Show the rules a cluster's objects become on a node, without root and without touching anything.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  kubectl get svc,endpointslices,nodes -A -o yaml | kube-proxy render --manifests - --node node-a
  kube-proxy render --manifests ./cluster --node node-a --form restore --family ipv4 | iptables-restore --test --noflush
  kube-proxy render --manifests ./cluster --node node-a | grep KUBE-SVC")]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    addresses: AddressArgs,
    /// Which family's rules.
    #[arg(long, value_enum, default_value_t = Which::Both)]
    family: Which,
    /// As `iptables-save` would print them, or as input for `iptables-restore --noflush`.
    #[arg(long, value_enum, default_value_t = Form::Save)]
    form: Form,
    /// For hosts whose iptables is older than 1.6.2: MASQUERADE without --random-fully.
    #[arg(long)]
    without_random_fully: bool,
    /// For hosts whose kernel has no nfacct objects.
    #[arg(long)]
    without_nfacct: bool,
}

/// Families to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// Only IPv4.
    Ipv4,
    /// Only IPv6.
    Ipv6,
    /// Both, each under a heading.
    Both,
}

/// Forms of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// As `iptables-save` prints.
    Save,
    /// As `iptables-restore --noflush` reads.
    Restore,
}

impl Which {
    fn families(self) -> &'static [Family] {
        match self {
            Which::Ipv4 => &[Family::V4],
            Which::Ipv6 => &[Family::V6],
            Which::Both => &Family::ALL,
        }
    }
}

/// Prints the rules.
///
/// # Errors
/// When objects, node or configuration can't be read, or stdout is closed.
pub fn run(args: &Args) -> Result<Answer> {
    if args.form == Form::Restore && args.family == Which::Both {
        anyhow::bail!("restore input is for one family's tool: add --family ipv4 or --family ipv6");
    }
    let world = args.cluster.load(&args.addresses.addresses()?)?;
    let capabilities = args.capabilities();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for family in args.family.families() {
        let ruleset = world.ruleset(*family, capabilities);
        let heading = if *family == Family::V4 {
            "iptables"
        } else {
            "ip6tables"
        };
        let text = match args.form {
            Form::Save => SaveText::new(&ruleset, *family).to_string(),
            Form::Restore => RestoreText {
                ruleset: &ruleset,
                family: *family,
            }
            .to_string(),
        };
        let printed = write!(out, "# {heading}\n{text}");
        printed.context("cannot write the rules")?;
    }
    out.flush().context("cannot write the rules")?;
    Ok(Answer::Clean)
}

impl Args {
    fn capabilities(&self) -> Capabilities {
        let masquerade_ports = if self.without_random_fully {
            Ports::Kept
        } else {
            EVERY_CAPABILITY.masquerade_ports
        };
        let nfacct = if self.without_nfacct {
            Nfacct::Absent
        } else {
            EVERY_CAPABILITY.nfacct
        };
        Capabilities {
            masquerade_ports,
            nfacct,
        }
    }
}
