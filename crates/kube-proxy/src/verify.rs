//! `kube-proxy verify`: whether a host's rules are what the objects ask for, and what the daemon would repair.
//!
//! Reads objects and rules, has the engine rehearse the repair ([`difference::drift`]), and prints it. Exit status: 0 when
//! nothing differs, 1 when something does, 2 when the two could not be compared.

mod behaviour;
mod host;
pub mod json;

use crate::failure::Answer;
use crate::input::{AddressArgs, ClusterArgs, Form, Mode, ServerArgs, ShownArgs, Which, World, dumps};
use anyhow::{Context as _, Result, bail};
use difference::drift::{self, Drift, Layout};
use difference::screen::{self, Extent};
use difference::traffic::Changes;
use engine::rehearsal::{Found, rehearse};
use host::{Chains, Held, Host};
use iptables::build::InvalidPackets;
use model::Family;
use nftables::listed;
use nftables::step::Seen;
use std::collections::BTreeSet;
use std::io::Write as _;

/// Say whether a host's rules are what the objects ask for, and what differs.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Rules are this host's own (as root), or come from --dump. Nothing is written.

Examples:
  kube-proxy verify --kubeconfig /etc/kubernetes/kube-proxy.conf --config /var/lib/kube-proxy/config.conf
  kube-proxy verify --manifests ./cluster --node node-a --dump iptables.txt --dump ip6tables.txt
  nft list ruleset | kube-proxy verify --manifests ./cluster --node node-a --dump -
  iptables-save | kube-proxy verify --dump -        # without objects: the rules against what they say themselves
  kube-proxy verify --kubeconfig FILE --output json | jq '.families[].differences[].owner'

Exit status: 0 nothing differs, 1 something does, 2 the two could not be compared."
)]
pub struct Args {
    /// Rules as iptables-save, ip6tables-save, nft list ruleset or nft -j list ruleset prints them; `-` for standard input.
    /// Repeat for both families. Without it, this host's.
    #[arg(long, value_name = "FILE|-")]
    dump: Vec<String>,
    /// Which family is compared.
    #[arg(long, value_enum, default_value_t = Which::Both)]
    family: Which,
    /// Prints all differences, however many there are.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    addresses: AddressArgs,
    #[command(flatten)]
    shown: ShownArgs,
}

/// What came out for all families.
struct Verdict {
    drifts: Vec<Drift>,
    /// Of families whose table is another program's: what it does otherwise than the objects ask for.
    behaviour: Vec<Changes>,
    about: String,
}

impl Verdict {
    fn new() -> Verdict {
        Verdict {
            drifts: Vec::new(),
            behaviour: Vec::new(),
            about: String::new(),
        }
    }

    /// Compares what is held of a family.
    fn add(&mut self, compared: &Compared<'_>, held: Held) -> Result<()> {
        match held {
            Held::Iptables(chains) => self.drifts.push(compared.chains(*chains)),
            Held::OwnTable { listed } => {
                let seen = compared
                    .host
                    .table(compared.world, compared.family, listed.as_ref())?;
                if Layout::of(seen.as_ref()) == Layout::Another {
                    self.behaviour.push(compared.another(listed)?);
                } else {
                    self.drifts.push(compared.table(seen.as_ref(), listed));
                }
            }
        }
        Ok(())
    }

    fn is_same(&self) -> bool {
        self.drifts.iter().all(Drift::is_none)
            && self.behaviour.iter().all(|changes| changes.changes.is_empty())
    }
}

/// One family of a host and what is wanted there.
struct Compared<'a> {
    world: &'a World,
    host: &'a Host,
    family: Family,
}

impl Compared<'_> {
    /// Chains of iptables.
    fn chains(&self, held: Chains) -> Drift {
        let desired = self.world.desired.get(self.family);
        let engine = self.world.engine(self.family, held.capabilities, held.invalid);
        let found = Found::Iptables(held.observation);
        let steps = rehearse(engine, self.family, &self.world.snapshot, found);
        let mut drift = drift::rules(desired, &held.rules, &steps);
        drift.remarks.extend(drift::remarks(desired, &held.rules));
        drift.remarks.extend(held.remarks);
        drift
    }

    /// A table of our layout, or none.
    fn table(&self, seen: Option<&Seen>, listed: Option<listed::Table>) -> Drift {
        let engine = self
            .world
            .engine(self.family, host::NFT_CAPABILITIES, InvalidPackets::Passed);
        let found = Found::OwnTable(seen.cloned());
        let steps = rehearse(engine, self.family, &self.world.snapshot, found);
        let words = match listed {
            Some(listed) => Some(listed),
            None if steps.is_empty() => None,
            None => host::listed(self.family),
        };
        let desired = self.world.desired.get(self.family);
        drift::own_table(desired, seen, words.as_ref(), &steps)
    }

    /// A table of upstream's layout: what it does.
    fn another(&self, listed: Option<listed::Table>) -> Result<Changes> {
        let listed = listed.or_else(|| host::listed(self.family));
        let table = listed
            .context("the table is upstream kube-proxy's, and nft is not installed to list what it does")?;
        Ok(behaviour::compared(self.world, self.family, table))
    }
}

/// Compares and prints.
///
/// # Errors
/// When there is nothing to compare, or one of the two cannot be read.
pub fn run(args: &Args) -> Result<Answer> {
    let verdict = args.compare()?;
    let mut out = anstream::stdout().lock();
    match args.shown.output {
        Form::Json => json::write(&mut out, &verdict)?,
        Form::Text => write!(out, "{}", args.text(&verdict))?,
    }
    out.flush()?;
    Ok(if verdict.is_same() {
        Answer::Clean
    } else {
        Answer::Findings
    })
}

impl Args {
    fn compare(&self) -> Result<Verdict> {
        self.check()?;
        let mut cluster = self.cluster.clone();
        let host = if self.dump.is_empty() {
            Host::Live
        } else {
            Host::Dumped(dumps::read(&self.dump, dumps::Wanted::Both)?)
        };
        if cluster.settings.proxy_mode.is_none() && cluster.settings.config.is_none() {
            cluster.settings.proxy_mode = host.likely_mode().map(str::to_owned);
        }
        let addresses = match self.addresses.addresses()? {
            none if none.is_empty() => host.addresses()?,
            given => given,
        };
        let has_objects = cluster.manifests.is_some() || self.server.is_given();
        if let (false, Host::Dumped(dumps)) = (has_objects, &host) {
            return self.by_themselves(&cluster, dumps, &host);
        }
        let world = cluster.load_from(&self.server, &addresses, host.own_name().as_deref())?;
        self.verdict(&world, &host)
    }

    /// Without objects: rules of a dump against what they say themselves.
    fn by_themselves(&self, cluster: &ClusterArgs, dumps: &dumps::Dumps, host: &Host) -> Result<Verdict> {
        if dumps.native.is_some() {
            bail!(
                "a table of nftables cannot be held against itself: give objects with --manifests or --kubeconfig"
            );
        }
        let mut verdict = Verdict::new();
        let mut services = BTreeSet::new();
        for family in self.family.families().iter().copied() {
            let Some(rules) = dumps.saved.get(family) else {
                continue;
            };
            let node = cluster.node.as_deref().unwrap_or("this-node");
            let recovered = drift::recovered(rules, family, node).with_context(|| {
                format!("the {family} dump has no nat KUBE-SERVICES: kube-proxy's rules are not in it")
            })?;
            let named = ClusterArgs {
                node: Some(node.to_owned()),
                ..cluster.clone()
            };
            let world = named.of_snapshot(recovered.objects, &recovered.addresses)?;
            let world = world.with_settings(recovered.settings);
            services.extend(world.desired.get(family).services.keys().cloned());
            if let Some(held) = host.held(&world, family)? {
                let compared = Compared {
                    world: &world,
                    host,
                    family,
                };
                verdict.add(&compared, held)?;
            }
            if let Some(drift) = verdict.drifts.pop() {
                verdict.drifts.push(drift::spared(drift, rules));
            }
        }
        if verdict.drifts.is_empty() {
            bail!("there are no rules of {} in the dump", self.family_words());
        }
        verdict.about = format!(
            "no objects were given: the dump's rules against what they say themselves of {} (iptables mode); a Service that \
             is missing altogether does not show",
            count(services.len())
        );
        Ok(verdict)
    }

    fn check(&self) -> Result<()> {
        let inputs = self.dump.iter().map(String::as_str);
        let manifests = self.cluster.manifests.as_ref().and_then(|path| path.to_str());
        if inputs.chain(manifests).filter(|input| *input == "-").count() > 1 {
            bail!("standard input can be read once: give files for --manifests and --dump");
        }
        Ok(())
    }

    fn verdict(&self, world: &World, host: &Host) -> Result<Verdict> {
        let mut verdict = Verdict::new();
        for family in self.family.families().iter().copied() {
            let Some(held) = host.held(world, family)? else {
                continue;
            };
            verdict.add(&Compared { world, host, family }, held)?;
        }
        if verdict.drifts.is_empty() && verdict.behaviour.is_empty() {
            bail!("there are no rules of {} to compare", self.family_words());
        }
        verdict.about = about(world, host, &verdict);
        Ok(verdict)
    }

    fn family_words(&self) -> &'static str {
        match self.family {
            Which::Ipv4 => "IPv4",
            Which::Ipv6 => "IPv6",
            Which::Both => "either family",
        }
    }

    fn text(&self, verdict: &Verdict) -> String {
        let extent = if self.all {
            Extent::Everything
        } else {
            Extent::Some
        };
        let width = self.shown.columns();
        if verdict.behaviour.is_empty() {
            return screen::drift(&verdict.drifts, &verdict.about, width, extent);
        }
        screen::changes(&verdict.behaviour, &verdict.about, width, extent)
    }
}

/// What was compared with what.
fn about(world: &World, host: &Host, verdict: &Verdict) -> String {
    let services: BTreeSet<_> = Family::ALL
        .into_iter()
        .flat_map(|family| world.desired.get(family).services.keys())
        .collect();
    let services = count(services.len());
    let mode = match world.mode {
        Mode::Iptables => "iptables",
        Mode::Nftables => "nftables",
    };
    let rules = match host {
        Host::Live => "this host's rules",
        Host::Dumped(_) => "the dump's rules",
    };
    let about = format!(
        "{rules} against the objects ({services}) on {} ({mode} mode)",
        world.facts.name
    );
    if verdict.behaviour.is_empty() {
        return about;
    }
    format!(
        "{about}. The table is upstream kube-proxy's, whose chains and sets are laid out otherwise: compared is what it does \
         with packets, not its rules"
    )
}

fn count(services: usize) -> String {
    match services {
        1 => "1 Service".to_owned(),
        many => format!("{many} Services"),
    }
}
