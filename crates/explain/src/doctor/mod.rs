//! What is wrong with a host, whoever sends: a [`Patient`] in, a [`Report`] out.
//!
//! Each file looks at one part and returns findings. Nothing is guessed: what is not known is no finding. Whatever can be
//! asked of a packet is asked by sending one through the host's rules ([`crate::fate`]), so that a firewall counts by what
//! it does and not by its name.

mod backends;
mod bridge;
mod connections;
mod elsewhere;
mod forwarding;
pub(crate) mod jumps;
mod leftovers;
mod marks;
mod node;
mod pods;
mod policy_routes;
mod ports;
mod redirected;
mod replies;
mod reverse_path;
mod routes;
pub mod screen;
mod setters;
mod sysctls;
mod tools;
mod unseen;

use crate::finding::{Finding, Severity};
use crate::known::Known;
use crate::world::World;
use iptables::ast::{Chain, Ruleset, TableName};
use model::{Family, PerFamily};
use nftables::listed::{Table, TableFamily};

pub use unseen::NATIVE_TABLES;

/// A host that is examined.
#[derive(Clone, Debug)]
pub struct Patient {
    /// Its facts, its rules as far as a packet meets them, and the objects, if there are any.
    world: World,
    /// Its rules of iptables, each backend and family for itself.
    saved: Vec<Saved>,
    /// What could not be looked at.
    not_seen: Vec<NotSeen>,
    /// The addresses and ports of Services, by objects and by rules.
    known: PerFamily<Vec<Known>>,
    /// The mode of its kube-proxy, if somebody said.
    said_mode: Option<String>,
}

/// The rules of one backend and family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The backend.
    pub backend: Backend,
    /// The family.
    pub family: Family,
    /// The rules.
    pub rules: Ruleset,
    /// How many rules the tool could not read itself (`[unsupported revision]`).
    pub unsupported: usize,
}

/// A backend of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backend {
    /// `nf_tables`; also what nobody said.
    NfTables,
    /// `legacy`.
    Legacy,
}

impl Backend {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Backend::NfTables => "nf_tables",
            Backend::Legacy => "legacy",
        }
    }

    /// The name of its tool: `iptables-nft`, `ip6tables-legacy`.
    pub fn tool(self, family: Family) -> String {
        let plain = plain_tool(family);
        let word = match self {
            Backend::NfTables => "nft",
            Backend::Legacy => "legacy",
        };
        format!("{plain}-{word}")
    }
}

/// The tool's name where its backend does not matter.
pub(crate) fn plain_tool(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
}

/// So many Services are tried where something may concern some of them only: each is a packet through all rules.
const MOST_TRIED: usize = 96;

/// Something that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotSeen {
    /// What: `iptables-legacy-save`, `sysctls`.
    pub what: String,
    /// Why not, and what would help.
    pub why: String,
    /// Whether an answer without it is no answer.
    pub weight: Weight,
}

/// How much it matters that something could not be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// Most of what is looked for would be there.
    Essential,
    /// Some findings may be missing.
    Part,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The host, in words.
    pub host: String,
    /// Everything to report, what matters most first.
    pub findings: Vec<Finding>,
    /// What was looked at, in words.
    pub looked_at: Vec<String>,
    /// What could not be looked at.
    pub not_seen: Vec<NotSeen>,
}

impl Report {
    /// Whether there is something to report: more than remarks.
    pub fn has_findings(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity > Severity::Remark)
    }

    /// Whether so little could be looked at that no finding does not mean that all is well.
    pub fn is_blind(&self) -> bool {
        self.looked_at.is_empty()
            || self
                .not_seen
                .iter()
                .any(|missing| missing.weight == Weight::Essential)
    }
}

/// Examines a host.
pub fn examine(patient: &Patient) -> Report {
    let parts: [fn(&Patient) -> Vec<Finding>; 15] = [
        backends::findings,
        leftovers::findings,
        tools::findings,
        node::findings,
        routes::findings,
        policy_routes::findings,
        redirected::findings,
        forwarding::findings,
        elsewhere::findings,
        replies::findings,
        sysctls::findings,
        bridge::findings,
        marks::findings,
        connections::findings,
        ports::findings,
    ];
    let mut findings: Vec<Finding> = parts.iter().flat_map(|part| part(patient)).collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Report {
        host: patient.words(),
        findings,
        looked_at: patient.looked_at(),
        not_seen: [patient.not_seen.clone(), unseen::gaps(patient)].concat(),
    }
}

impl Patient {
    /// A host to examine: `world` has its facts and objects, and [`main_rules`] of `saved` for its rules.
    pub fn new(world: World, saved: Vec<Saved>, not_seen: Vec<NotSeen>) -> Patient {
        let known = PerFamily::from_fn(|family| world.known(family));
        let in_facts = world.host_facts.config.get("mode");
        let said_mode = in_facts.and_then(|mode| mode.as_str()).map(str::to_owned);
        Patient {
            world,
            saved,
            not_seen,
            known,
            said_mode,
        }
    }

    /// A host of which somebody said in which mode its kube-proxy is.
    #[must_use]
    pub fn in_mode(mut self, mode: impl Into<String>) -> Patient {
        self.said_mode = Some(mode.into());
        self
    }

    /// The mode of its kube-proxy, as somebody said, or as its rules show.
    fn mode(&self) -> Option<String> {
        self.said_mode.clone().or_else(|| leftovers::only_mode(self))
    }

    /// The addresses and ports of Services.
    fn known(&self, family: Family) -> &[Known] {
        self.known.get(family)
    }

    /// The families of which something is here: rules, Services, or addresses that others can reach.
    fn families(&self) -> Vec<Family> {
        let is_here = |family: &Family| {
            let is_saved = self.saved.iter().any(|saved| saved.family == *family);
            is_saved || self.has_services(*family) || self.pod_network(*family).is_some()
        };
        Family::ALL.into_iter().filter(is_here).collect()
    }

    /// Whether there are Services of a family.
    fn has_services(&self, family: Family) -> bool {
        !self.known(family).is_empty()
    }

    /// A chain of any backend.
    fn chains<'a>(&'a self, table: TableName, name: &'a str) -> impl Iterator<Item = (&'a Saved, &'a Chain)> {
        let chain = move |saved: &'a Saved| Some((saved, saved.rules.chain(table, name)?));
        self.saved.iter().filter_map(chain)
    }

    fn words(&self) -> String {
        let facts = &self.world.host_facts;
        let mut words = vec![self.world.node_words()];
        words.extend(facts.kernel.as_ref().map(|kernel| format!("kernel {kernel}")));
        let version = self.main_tool().and_then(|tool| facts.tools.get(&tool));
        words.extend(version.map(|version| format!("iptables {}", version.trim_start_matches("iptables "))));
        words.join(", ")
    }

    /// The tables of nftables, but for those that iptables made and that were read by its own tool.
    fn native_tables(&self) -> impl Iterator<Item = &Table> {
        let is_saved = self.saved.iter().any(|saved| saved.backend == Backend::NfTables);
        let of_iptables = move |table: &&Table| {
            let is_named = TableName::from_word(&table.name).is_some();
            is_named && is_saved && [TableFamily::Ip, TableFamily::Ip6].contains(&table.family)
        };
        let all = self.world.host.native.tables.iter();
        all.filter(move |table| !of_iptables(table))
    }

    /// The tool that reads the rules that packets meet.
    fn main_tool(&self) -> Option<String> {
        let most = |saved: &&Saved| backends::kube_chains(&saved.rules);
        let v4 = self.saved.iter().filter(|saved| saved.family == Family::V4);
        v4.max_by_key(most).map(|saved| saved.backend.tool(Family::V4))
    }

    fn looked_at(&self) -> Vec<String> {
        let facts = &self.world.host_facts;
        let count = crate::causes::count;
        let mut all = Vec::new();
        let mut saved: Vec<&Saved> = self.saved.iter().collect();
        saved.sort_by_key(|saved| (saved.backend, saved.family));
        all.extend(saved.iter().map(|saved| {
            let rules = count(rules_of(&saved.rules).count(), "rule");
            format!("{rules} of {} ({})", saved.family, saved.backend.as_str())
        }));
        let tables = self.native_tables().count();
        all.extend((tables > 0).then(|| format!("{} of nftables", count(tables, "table"))));
        let counted = [
            (facts.interfaces.len(), "interface"),
            (facts.routes.as_ref().map_or(0, Vec::len), "route"),
            (facts.sysctl.len(), "sysctl"),
            (facts.listening.as_ref().map_or(0, Vec::len), "socket"),
            (facts.modules.len(), "module"),
            (self.world.snapshot.services().count(), "Service"),
            (self.world.snapshot.nodes().count(), "Node"),
        ];
        all.extend(
            counted
                .iter()
                .filter(|(number, _)| *number > 0)
                .map(|(number, thing)| count(*number, thing)),
        );
        all.extend(facts.conntrack.map(|_| "the connection table".to_owned()));
        all
    }
}

/// Every rule with its table and chain.
fn rules_of(rules: &Ruleset) -> impl Iterator<Item = (TableName, &str, &iptables::ast::Rule)> {
    rules.tables.iter().flat_map(|(table, chains)| {
        chains
            .chains
            .iter()
            .flat_map(move |(name, chain)| chain.rules.iter().map(move |rule| (*table, name.as_str(), rule)))
    })
}

/// The rules that packets meet, of all that were saved: of each family those of the backend with more of kube-proxy's
/// chains.
pub fn main_rules(saved: &[Saved]) -> PerFamily<Option<Ruleset>> {
    PerFamily::from_fn(|family| {
        let of_family = saved.iter().filter(|saved| saved.family == family);
        // Of equals the last one wins: nf_tables is asked last.
        let mut all: Vec<&Saved> = of_family.collect();
        all.sort_by_key(|saved| std::cmp::Reverse(saved.backend));
        let best = all.into_iter().max_by_key(|saved| {
            (
                backends::kube_chains(&saved.rules),
                rules_of(&saved.rules).count(),
            )
        });
        best.map(|saved| saved.rules.clone())
    })
}
