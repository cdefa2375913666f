//! One of the two that are compared: objects as a node sees them, or a host's rules.

use crate::input::dumps::{self, Dumps};
use crate::input::{AddressArgs, ClusterArgs, EVERY_CAPABILITY, Mode, World};
use crate::render::own_table;
use anyhow::{Result, bail};
use difference::drift::Difference;
use difference::text;
use difference::traffic::{Behaviour, Refusing, of_desired, of_host};
use iptables::ast::Ruleset;
use model::{Family, PerFamily};
use nftables::listed::{self, TableFamily};
use path::{Host, LocalAddresses};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

/// One of the two.
pub(super) struct Side {
    /// In words.
    pub(super) title: String,
    content: Content,
}

enum Content {
    Objects(Box<World>),
    Rules(Box<Host>),
}

/// So much of a file tells what it is, in bytes.
const BEGINNING: u64 = 64 << 10;

impl Side {
    /// A file or a folder: what it is, is told by its content. Standard input is manifests.
    pub(super) fn of_path(
        path: &Path,
        cluster: &ClusterArgs,
        addresses: &AddressArgs,
        own: &[IpAddr],
    ) -> Result<Side> {
        let title = match path.to_str() {
            Some("-") => "standard input".to_owned(),
            _ => path.display().to_string(),
        };
        if !is_dump(path) {
            let world = cluster.load(own)?;
            let title = format!("{title} on {}", world.facts.name);
            return Ok(Side {
                title,
                content: Content::Objects(Box::new(world)),
            });
        }
        let dumps = dumps::read(&[path.display().to_string()], dumps::Wanted::Both)?;
        let host = of_dumps(dumps, addresses, own);
        if Family::ALL
            .into_iter()
            .all(|family| of_host(&host, family).is_err())
        {
            bail!("{title}: no rule of it is about a Service: is it of a node with kube-proxy?");
        }
        Ok(Side {
            title,
            content: Content::Rules(Box::new(host)),
        })
    }

    /// Objects as a node sees them.
    pub(super) fn of_world(world: World, what: &str) -> Side {
        Side {
            title: format!("{what}{}", world.facts.name),
            content: Content::Objects(Box::new(world)),
        }
    }

    /// Whether it is a host's rules.
    pub(super) fn is_rules(&self) -> bool {
        matches!(self.content, Content::Rules(_))
    }

    /// What it does with packets; `None` for rules that serve nothing of the family.
    pub(super) fn behaviour(&self, family: Family) -> Option<Behaviour> {
        match &self.content {
            Content::Objects(world) => {
                let refusing = match world.mode {
                    Mode::Iptables => Refusing::OnMostWays,
                    Mode::Nftables => Refusing::OnAllWays,
                };
                Some(of_desired(world.desired.get(family), refusing))
            }
            Content::Rules(host) => of_host(host, family).ok(),
        }
    }

    /// The rules of one family: of iptables, and tables of nftables.
    fn rules(&self, family: Family) -> (Ruleset, listed::Ruleset) {
        match &self.content {
            Content::Rules(host) => (host.rules.get(family).clone(), of_family(&host.native, family)),
            Content::Objects(world) => match world.mode {
                Mode::Iptables => (
                    world.ruleset(family, EVERY_CAPABILITY),
                    listed::Ruleset::default(),
                ),
                Mode::Nftables => {
                    let (frame, elements) = own_table::table(world, family);
                    let tables = vec![listed::of_frame(&frame, &elements)];
                    (Ruleset::default(), listed::Ruleset { tables })
                }
            },
        }
    }
}

/// Tables that are of both families are told of with IPv4.
fn of_family(all: &listed::Ruleset, family: Family) -> listed::Ruleset {
    let is_of = |table: &&listed::Table| (table.family == TableFamily::Ip6) == (family == Family::V6);
    listed::Ruleset {
        tables: all.tables.iter().filter(is_of).cloned().collect(),
    }
}

/// The rules that differ.
pub(super) fn rules(before: &Side, after: &Side, family: Family) -> Vec<Difference> {
    let (old, old_tables) = before.rules(family);
    let (new, new_tables) = after.rules(family);
    let mut all = text::of_iptables(&old, &new, family);
    all.extend(text::of_tables(&old_tables, &new_tables));
    all
}

/// Dumps begin as no manifest does.
fn is_dump(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(BEGINNING).read_to_end(&mut bytes));
    if path.as_os_str() == "-" || read.is_err() {
        return false;
    }
    let text = String::from_utf8_lossy(&bytes);
    let is_json_list = || text.trim_start().starts_with('{') && text.contains("\"nftables\"");
    match nftables::parse::form_of(&text) {
        Some(nftables::parse::Form::Json) => is_json_list(),
        Some(nftables::parse::Form::Text) => true,
        None => text
            .lines()
            .find(|line| !line.trim().is_empty() && !line.starts_with('#'))
            .is_some_and(|line| line.starts_with('*')),
    }
}

fn of_dumps(dumps: Dumps, addresses: &AddressArgs, own: &[IpAddr]) -> Host {
    let mut host = Host {
        rules: PerFamily::from_fn(|family| dumps.saved.get(family).clone().unwrap_or_default()),
        native: dumps.native.unwrap_or_default(),
        ..Host::default()
    };
    if !(addresses.node_address.is_empty() && addresses.interface.is_empty()) {
        let all: BTreeSet<IpAddr> = own
            .iter()
            .copied()
            .chain([IpAddr::from([127, 0, 0, 1])])
            .collect();
        host.addresses = LocalAddresses::Known(all);
    }
    host
}
