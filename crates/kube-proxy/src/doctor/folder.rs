//! A folder of files about one host: what `--save` writes, and what people print by hand and mail.

use super::Seen;
use crate::input::mailed;
use anyhow::{Context as _, Result, bail, ensure};
use explain::HostFacts;
use explain::doctor::{NotSeen, Weight};
use explain::page::harmless;
use path::IpSets;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// The facts.
const FACTS: &str = "facts.yaml";
/// What `ipset save` prints.
const SETS: &str = "ipset-save.txt";
/// Largest file that is read, in bytes; a million rules take 200 MB.
const LARGEST: u64 = 256 << 20;
/// Largest file of facts: of a host with thousands of routes and sockets it has some hundred KB.
const LARGEST_FACTS: u64 = 16 << 20;
/// So many files are looked at.
const MOST: usize = 200;

/// Writes what was seen.
///
/// # Errors
/// Names the file that could not be written.
pub(super) fn write(folder: &Path, seen: &Seen) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make --save {}", folder.display()))?;
    let put = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    let facts = serde_saphyr::to_string(&seen.facts.write()).context("cannot write facts as YAML")?;
    put(FACTS, &facts)?;
    for (name, text) in &seen.dumps {
        put(name, text)?;
    }
    match &seen.sets {
        Some(text) => put(SETS, text),
        None => take_away(&folder.join(SETS)),
    }
}

/// What an earlier look wrote, and this one did not see: rules would be decided by it.
fn take_away(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}, of an earlier --save", path.display()))
        }
        _ => Ok(()),
    }
}

/// What a file is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Facts.
    Facts,
    /// Rules of iptables or nftables.
    Rules,
    /// `ipset save`
    Sets,
    /// Kubernetes objects.
    Objects,
    /// `sysctl -a`
    Sysctl,
    /// `ip route`, `ip -6 route`
    Routes,
    /// `ip rule`
    PolicyRules,
    /// `uname -r`
    Uname,
}

/// How names begin. Longer ones come first.
const KINDS: [(&str, Kind); 13] = [
    ("facts", Kind::Facts),
    ("node", Kind::Facts),
    ("iptables", Kind::Rules),
    ("ip6tables", Kind::Rules),
    ("nft", Kind::Rules),
    ("ipset", Kind::Sets),
    ("objects", Kind::Objects),
    ("sysctl", Kind::Sysctl),
    ("ip-route", Kind::Routes),
    ("ip6-route", Kind::Routes),
    ("ip-rule", Kind::PolicyRules),
    ("ip6-rule", Kind::PolicyRules),
    ("uname", Kind::Uname),
];

fn kind_of(name: &str) -> Option<Kind> {
    let mut found = KINDS.iter().filter(|(prefix, _)| name.starts_with(prefix));
    found.next().map(|(_, kind)| *kind)
}

/// Reads a folder. A file that cannot be read is told and left out.
///
/// # Errors
/// When the folder cannot be read, or nothing in it says anything of a host.
pub(super) fn read(folder: &Path) -> Result<Seen> {
    let context = || format!("cannot read --from {}", folder.display());
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .with_context(context)?
        .take(MOST)
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()
        .with_context(context)?;
    paths.sort();
    let mut seen = Seen::default();
    let mut used = 0;
    for path in paths {
        let name = harmless(&path.file_name().unwrap_or_default().to_string_lossy());
        let Some(kind) = kind_of(&name) else {
            continue;
        };
        match take(&path, &name, kind, &mut seen) {
            Ok(()) => used += 1,
            Err(error) => seen.unseen.push(NotSeen {
                what: name,
                why: cluster::chain(error.as_ref()),
                weight: Weight::Part,
            }),
        }
    }
    if used == 0 {
        let why = seen.unseen.first().map_or_else(String::new, |first| {
            format!(" ({}: {})", first.what, harmless(&first.why))
        });
        bail!(
            "nothing in {} says anything of a host{why}: save a host with kube-proxy doctor --save DIR, or put there what iptables-save \
             prints, as iptables-save.txt",
            folder.display()
        );
    }
    Ok(seen)
}

/// The text of a file that is one: a pipe in its place would be waited for without end.
fn text_of(path: &Path, largest: u64) -> Result<String> {
    let meta = fs::metadata(path).context("cannot be read")?;
    ensure!(meta.is_file(), "it is no file");
    let mut bytes = Vec::new();
    let file = File::open(path).context("cannot be read")?;
    file.take(largest + 1)
        .read_to_end(&mut bytes)
        .context("cannot be read")?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    ensure!(length <= largest, "it is larger than {} MB", largest >> 20);
    Ok(mailed::text_of(bytes))
}

/// Whether it can be the name of a setting: words of it may be names of interfaces, which have no control characters.
fn is_sysctl(name: &str) -> bool {
    name.contains(['.', '/']) && name.chars().all(|c| c.is_ascii_graphic())
}

/// Routes with several next hops have a line for each of these.
fn whole_routes<'t>(lines: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in lines {
        match all.last_mut().filter(|_| line.starts_with("nexthop ")) {
            Some(route) => {
                route.push(' ');
                route.push_str(line);
            }
            None => all.push(line.to_owned()),
        }
    }
    all
}

fn take(path: &Path, name: &str, kind: Kind, seen: &mut Seen) -> Result<()> {
    let largest = match kind {
        Kind::Rules | Kind::Sets | Kind::Objects => LARGEST,
        _ => LARGEST_FACTS,
    };
    let text = text_of(path, largest)?;
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    match kind {
        Kind::Facts => {
            let document: Value = serde_saphyr::from_str(&text).context("it is no YAML")?;
            let mut read = HostFacts::read(&document)?;
            // What other files say is kept.
            read.sysctl.append(&mut seen.facts.sysctl);
            read.routes = read.routes.or(seen.facts.routes.take());
            read.policy_rules = read.policy_rules.or(seen.facts.policy_rules.take());
            read.kernel = read.kernel.or(seen.facts.kernel.take());
            read.sets = std::mem::take(&mut seen.facts.sets);
            seen.facts = read;
        }
        Kind::Sets => {
            let read = IpSets::read(&text).map_err(anyhow::Error::msg)?;
            seen.facts.sets.extend(read);
        }
        Kind::Rules => drop(seen.dumps.insert(name.to_owned(), text)),
        Kind::Objects => {
            let documents: Vec<Value> =
                serde_saphyr::from_multiple(&text).context("it is no YAML of objects")?;
            seen.documents.extend(documents);
        }
        Kind::Sysctl => {
            let pairs = lines().filter_map(|line| line.split_once('='));
            let pairs = pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
            let all: Vec<_> = pairs.filter(|(name, _)| is_sysctl(name)).collect();
            ensure!(
                !all.is_empty() || lines().next().is_none(),
                "no line in it is a setting such as net.ipv4.ip_forward = 1"
            );
            seen.facts.sysctl.extend(all);
        }
        Kind::Routes => {
            let read = HostFacts::read(&json!({"routes": whole_routes(lines())}))?;
            seen.facts
                .routes
                .get_or_insert_default()
                .extend(read.routes.unwrap_or_default());
        }
        Kind::PolicyRules => {
            let read = HostFacts::read(&json!({"rules": lines().collect::<Vec<_>>()}))?;
            seen.facts
                .policy_rules
                .get_or_insert_default()
                .extend(read.policy_rules.unwrap_or_default());
        }
        Kind::Uname => {
            let words = lines().flat_map(str::split_whitespace);
            let release = words
                .into_iter()
                .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
            seen.facts.kernel = release.map(str::to_owned);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::look;

    #[test]
    fn what_is_written_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let facts = json!({"hostname": "node-a", "wireguard": {"wg0": "0xca6c"}, "routes": ["default via 192.0.2.1 dev eth0"],
            "sysctl": {"net.ipv4.ip_forward": "1", "net.ipv4.ip_local_port_range": "32768\t60999"}});
        let mut seen = Seen {
            facts: HostFacts::read(&facts).expect("good facts"),
            ..Seen::default()
        };
        seen.dumps
            .insert(look::NATIVE.to_owned(), "{\"nftables\": []}".to_owned());
        seen.dumps
            .insert("iptables-nft-save.txt".to_owned(), "*nat\nCOMMIT\n".to_owned());
        write(folder.path(), &seen).expect("it is written");
        let again = read(folder.path()).expect("it is read");
        assert_eq!((again.facts, again.dumps), (seen.facts, seen.dumps));
        assert_eq!(again.unseen, []);
    }

    #[test]
    fn what_people_print_by_hand_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        put(
            "sysctl-a.txt",
            "net.ipv4.ip_forward = 0\nnet.ipv4.conf.all.rp_filter = 1\n",
        );
        put(
            "ip-route.txt",
            "default via 192.0.2.1 dev eth0\n10.244.1.0/24 dev cni0\n10.244.3.0/24 proto bird\n\tnexthop via 192.0.2.13 dev eth0 weight \
             1\n\tnexthop via 192.0.2.14 dev eth0 weight 1\nlocal 192.0.2.11 dev eth0 table local proto kernel scope host src \
             192.0.2.11\nbroadcast 192.0.2.255 dev eth0 table local proto kernel scope link\n",
        );
        put(
            "ip-rule.txt",
            "0:\tfrom all lookup local\n32765:\tnot from all fwmark 0xca6c lookup 51820\n",
        );
        put(
            "uname.txt",
            "Linux node-a 5.15.0-127-generic #1 SMP x86_64 GNU/Linux\n",
        );
        put("notes.md", "hello");
        let seen = read(folder.path()).expect("it is read");
        assert_eq!(seen.facts.sysctl("net.ipv4.ip_forward"), Some("0"));
        assert_eq!(seen.facts.routes.map(|routes| routes.len()), Some(5));
        assert_eq!(seen.facts.kernel.as_deref(), Some("5.15.0-127-generic"));
        let marks: Vec<_> = seen
            .facts
            .policy_rules
            .iter()
            .flatten()
            .filter_map(|rule| rule.mark)
            .collect();
        assert_eq!(marks, [(0xca6c, u32::MAX)]);
        assert_eq!(seen.unseen, []);
    }

    #[test]
    fn what_is_no_file_is_told_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("iptables-save.txt")).expect("a folder");
        fs::write(folder.path().join("facts.yaml"), "hostname: node-a\n").expect("written");
        let seen = read(folder.path()).expect("it is read");
        let told: Vec<&str> = seen.unseen.iter().map(|missing| missing.what.as_str()).collect();
        assert_eq!(told, ["iptables-save.txt"]);
        fs::remove_file(folder.path().join("facts.yaml")).expect("removed");
        fs::write(folder.path().join("facts\u{1b}[2J.yaml"), "hostname: [\u{1b}[31m").expect("written");
        let error = read(folder.path()).expect_err("nothing is left").to_string();
        assert!(error.contains("it is no YAML"), "{error}");
        assert!(!error.contains(char::is_control), "{error:?}");
    }
}
