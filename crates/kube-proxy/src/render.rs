//! `kube-proxy render`: what a cluster's objects become on a node, stage by stage.

mod first_load;
pub mod own_table;

use crate::failure::Answer;
use crate::input::{AddressArgs, ClusterArgs, EVERY_CAPABILITY, Mode, Which, World};
use anyhow::{Context, Result};
use first_load::first_load;
use iptables::ast::Ports;
use iptables::build::{Capabilities, Nfacct};
use iptables::plan::Plan;
use iptables::render::{PlanText, RestoreText, SaveText};
use model::Family;
use model::text::{DesiredText, SnapshotText};
use std::io::Write;

/// Show what a cluster's objects become on a node, stage by stage, without root and without touching anything.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  kubectl get svc,endpointslices,nodes -A -o yaml | kube-proxy render --manifests - --node node-a
  kube-proxy render --manifests ./cluster --node node-a --form restore --family ipv4 | iptables-restore --test --noflush
  kube-proxy render --manifests ./cluster --node node-a | grep KUBE-SVC
  kube-proxy render --manifests ./cluster --node node-a --proxy-mode nftables | nft --check -f -
  kube-proxy render --manifests ./cluster --node node-a --stage snapshot            # what was read
  kube-proxy render --manifests ./cluster --node node-a --stage desired             # which route traffic takes, and why
  kube-proxy render --manifests ./cluster --node node-a --stage plan --family ipv4  # steps of a first load")]
pub struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    addresses: AddressArgs,
    /// Which stage: objects as they were read, what traffic should do, rules, or the steps of a first load.
    #[arg(long, value_enum, default_value_t = Stage::Rules)]
    stage: Stage,
    /// Which family's part. Objects are of both.
    #[arg(long, value_enum, default_value_t = Which::Both)]
    family: Which,
    /// Rules of iptables mode as `iptables-save` would print them, or as input for `iptables-restore --noflush`. Those of
    /// nftables mode are a file for `nft -f` always.
    #[arg(long, value_enum, default_value_t = Form::Save)]
    form: Form,
    /// For hosts whose iptables is older than 1.6.2: MASQUERADE without --random-fully.
    #[arg(long)]
    without_random_fully: bool,
    /// For hosts whose kernel has no nfacct objects.
    #[arg(long)]
    without_nfacct: bool,
}

/// Stages on the way from objects to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Stage {
    /// The objects as they were read and checked.
    Snapshot,
    /// What traffic should do: endpoints, routes and reasons.
    Desired,
    /// The rules.
    Rules,
    /// The steps with which an empty kernel gets the rules.
    Plan,
}

/// Forms of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Form {
    /// As `iptables-save` prints.
    Save,
    /// As `iptables-restore --noflush` reads.
    Restore,
}

/// Prints a stage.
///
/// # Errors
/// When objects, node or configuration can't be read, or stdout is closed.
pub fn run(args: &Args) -> Result<Answer> {
    if args.form == Form::Restore && args.stage != Stage::Rules {
        anyhow::bail!("--form restore is a form of rules: leave --stage out");
    }
    if args.form == Form::Restore && args.family == Which::Both {
        anyhow::bail!("restore input is for one family's tool: add --family ipv4 or --family ipv6");
    }
    let world = args.cluster.load(&args.addresses.addresses()?)?;
    if args.form == Form::Restore && world.mode != Mode::Iptables {
        anyhow::bail!(
            "--form restore is for rules of iptables: leave it out, and give what is printed to nft -f"
        );
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    print(args, &world, &mut out).context("cannot write to stdout")?;
    Ok(Answer::Clean)
}

fn print(args: &Args, world: &World, out: &mut impl Write) -> std::io::Result<()> {
    if args.stage == Stage::Snapshot {
        write!(out, "{}", SnapshotText(&world.snapshot))?;
        return out.flush();
    }
    for family in args.family.families().iter().copied() {
        writeln!(out, "# {}", heading(world.mode, family))?;
        match world.mode {
            Mode::Iptables => print_family(args, world, family, out)?,
            Mode::Nftables => print_own_table(args, world, family, out)?,
        }
    }
    out.flush()
}

fn heading(mode: Mode, family: Family) -> &'static str {
    match (mode, family) {
        (Mode::Iptables, Family::V4) => "iptables",
        (Mode::Iptables, Family::V6) => "ip6tables",
        (Mode::Nftables, Family::V4) => "table ip kube-proxy",
        (Mode::Nftables, Family::V6) => "table ip6 kube-proxy",
    }
}

fn print_own_table(args: &Args, world: &World, family: Family, out: &mut impl Write) -> std::io::Result<()> {
    match args.stage {
        Stage::Snapshot => Ok(()),
        Stage::Desired => write!(out, "{}", DesiredText(world.desired.get(family))),
        Stage::Rules => write!(out, "{}", own_table::file(world, family)),
        Stage::Plan => first_load(world, family, args.capabilities())
            .iter()
            .zip(1..)
            .try_for_each(|(step, number)| own_table::print(step, number, family, out)),
    }
}

fn print_family(args: &Args, world: &World, family: Family, out: &mut impl Write) -> std::io::Result<()> {
    let capabilities = args.capabilities();
    match (args.stage, args.form) {
        (Stage::Snapshot, _) => Ok(()),
        (Stage::Desired, _) => write!(out, "{}", DesiredText(world.desired.get(family))),
        (Stage::Plan, _) => {
            let steps = first_load(world, family, capabilities).into_iter();
            let plan = &Plan {
                steps: steps.filter_map(first_load::of_iptables).collect(),
            };
            write!(out, "{}", PlanText { plan, family })
        }
        (Stage::Rules, Form::Save) => {
            let ruleset = world.ruleset(family, capabilities);
            write!(out, "{}", SaveText::new(&ruleset, family))
        }
        (Stage::Rules, Form::Restore) => {
            let ruleset = &world.ruleset(family, capabilities);
            write!(out, "{}", RestoreText { ruleset, family })
        }
    }
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
