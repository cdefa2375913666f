//! Tools and kernels with known traps, what does not work, what is missing.

use super::{Backend, Patient};
use crate::causes::listed;
use crate::facts::{Lock, Module};
use crate::finding::{Advice, Cause, Finding};
use model::Family;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(iptables_versions(patient));
    found.extend(nft_version(patient));
    found.extend(kernel(patient));
    found.extend(broken(patient));
    found.extend(modules(patient));
    found.extend(lock(patient));
    found
}

/// Numbers of a version: of `iptables v1.8.9 (nf_tables)`, `nftables v1.0.6 (Lester Gooch #5)`, `6.1.0-13-amd64`.
pub(super) fn numbers(text: &str) -> Vec<u32> {
    let word = text
        .split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    let digits = |part: &str| {
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..end].parse().ok()
    };
    let parts = word.into_iter().flat_map(|word| word.split(['.', '-']));
    parts.map_while(digits).collect()
}

/// Versions from the first to the last, both included, by their first three numbers.
fn is_within(version: &[u32], first: [u32; 3], last: [u32; 3]) -> bool {
    let at = |i: usize| version.get(i).copied().unwrap_or(0);
    let version = [at(0), at(1), at(2)];
    first <= version && version <= last
}

/// Whether kube-proxy's rules are of this backend here, or nobody can say.
fn is_in_use(patient: &Patient, name: &str) -> bool {
    let of = |backend: Backend| {
        let mut all = patient.saved.iter().filter(move |saved| saved.backend == backend);
        all.any(|saved| super::backends::kube_chains(&saved.rules) > 0)
    };
    match name {
        _ if patient.saved.is_empty() => true,
        name if name.ends_with("-legacy") => of(Backend::Legacy),
        _ => of(Backend::NfTables) || of(Backend::Legacy),
    }
}

/// iptables with a trap: from, to, on `nf_tables` alone, what happens.
const IPTABLES: [([u32; 3], [u32; 3], bool, &str); 2] = [
    (
        [1, 8, 0],
        [1, 8, 2],
        true,
        "On nf_tables these do not find rules that are there (iptables -C), so kube-proxy and the kubelet add theirs again at each sync, \
         without end.",
    ),
    (
        [0, 0, 0],
        [1, 6, 1],
        false,
        "These have no iptables-restore -w, so a restore fails when somebody holds the lock; and no --random-fully, so connections of \
         different pods meet at one source port and are lost.",
    ),
];

fn iptables_versions(patient: &Patient) -> Option<Finding> {
    let tools = patient.world.host_facts.tools.iter();
    let mut iptables = tools.filter(|(name, _)| name.contains("tables") && is_in_use(patient, name));
    iptables.find_map(|(name, text)| {
        let version = numbers(text);
        let is_nf_tables = text.contains("nf_tables") || name.ends_with("-nft");
        let (_, _, _, why) = IPTABLES.iter().find(|(first, last, nf_tables, _)| {
            is_within(&version, *first, *last) && (!nf_tables || is_nf_tables)
        })?;
        if version.is_empty() {
            return None;
        }
        let shown: Vec<String> = version.iter().map(ToString::to_string).collect();
        let what = format!(
            "{name} is of version {}, which is known for trouble",
            shown.join(".")
        );
        Some(
            Finding::warning(Cause::ToolVersion, what)
                .because(*why)
                .advise(Advice::act(
                    "update iptables to 1.8.4 or later, on the host and in images that write rules",
                )),
        )
    })
}

fn nft_version(patient: &Patient) -> Option<Finding> {
    let facts = &patient.world.host_facts;
    let version = numbers(facts.tools.get("nft")?);
    let is_ours = patient
        .world
        .host
        .native
        .tables
        .iter()
        .any(|table| &*table.name == nftables::names::TABLE);
    let is_old = !version.is_empty() && is_within(&version, [0, 0, 0], [1, 0, 0]);
    (is_old && (is_ours || patient.mode().as_deref() == Some("nftables"))).then(|| {
        let shown: Vec<String> = version.iter().map(ToString::to_string).collect();
        let what = format!("nft is of version {}, too old for a table in nftables mode", shown.join("."));
        Finding::warning(Cause::ToolVersion, what)
            .because(
                "It crashes on sets that newer programs write (0.9.8 with a segmentation fault), and upstream's nftables mode needs 1.0.1. \
                 kube-proxy-rs writes by netlink and needs no nft, but nobody can list its table here.",
            )
            .advise(Advice::act("update nftables to 1.0.6 or later"))
    })
}

/// Kernels with a trap: how the release begins, and what happens.
const KERNELS: [(&str, &str); 3] = [
    (
        "5.15.0-127",
        "This kernel of Ubuntu lost the target MARK of IPv6: ip6tables-restore fails, and with it a kube-proxy that serves both families.",
    ),
    (
        "6.8.0-57",
        "This kernel of Ubuntu lost the target MARK of IPv6: ip6tables-restore fails, and with it a kube-proxy that serves both families.",
    ),
    (
        "5.15.168",
        "This kernel of Bottlerocket lost the target MARK of IPv6: ip6tables-restore fails, and with it a kube-proxy that serves both families.",
    ),
];

fn kernel(patient: &Patient) -> Vec<Finding> {
    let world = &patient.world;
    let Some(release) = &world.host_facts.kernel else {
        return Vec::new();
    };
    let begins = |prefix: &&str| {
        let rest = release.strip_prefix(*prefix);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut found = Vec::new();
    if let Some((_, why)) = KERNELS.iter().find(|(prefix, _)| begins(prefix)) {
        found.push(
            Finding::warning(
                Cause::KernelVersion,
                format!("kernel {release} is known for trouble with IPv6"),
            )
            .because(*why)
            .advise(Advice::act(
                "update the kernel, or install linux-modules-extra of this release",
            )),
        );
    }
    let version = numbers(release);
    let is_before = |major: u32, minor: u32| !version.is_empty() && version < vec![major, minor];
    let mode = patient.mode().unwrap_or_default();
    let has_interface = |name: &str| world.host_facts.interfaces.iter().any(|of| &*of.name == name);
    if mode == "nftables" && is_before(5, 13) {
        found.push(
            Finding::warning(Cause::KernelVersion, format!("kernel {release} is older than upstream's nftables mode asks for (5.13)"))
                .because("Expressions that upstream's rules need are missing. kube-proxy-rs says at start what it misses, if anything.")
                .advise(Advice::act("update the kernel, or use mode iptables")),
        );
    }
    if (mode == "ipvs" || has_interface("kube-ipvs0")) && is_before(5, 9) {
        found.push(
            Finding::warning(Cause::KernelVersion, format!("kernel {release} has ipvs with a delay for reused ports (fixed in 5.9)"))
                .because(
                    "With net.ipv4.vs.conn_reuse_mode=1 a connection that reuses a source port waits for a second, with 0 it goes to \
                     endpoints that have gone.",
                )
                .advise(Advice::act("update the kernel to 5.9 or later, or leave mode ipvs, which upstream ends")),
        );
    }
    found
}

fn broken(patient: &Patient) -> Vec<Finding> {
    let broken = patient.world.host_facts.broken.iter();
    let told = broken.filter(|(name, _)| is_of_use(patient, name));
    told.map(|(name, detail)| {
        let family = if name.starts_with("ip6") { Family::V6 } else { Family::V4 };
        Finding::fault(Cause::ToolBroken, format!("{name} does not work on this host"))
            .because(format!(
                "It says: {detail}. Rules of {family} cannot be written by it; the other family should be served all the same."
            ))
            .advise(Advice::act(
                "look at the kernel's modules (modprobe ip_tables, ip6_tables, nf_tables, nft_compat), and whether tool and kernel fit",
            ))
    })
    .collect()
}

/// IPv6 that nobody uses may be as broken as it likes.
fn is_of_use(patient: &Patient, tool: &str) -> bool {
    let family = if tool.starts_with("ip6") {
        Family::V6
    } else {
        Family::V4
    };
    family == Family::V4 || patient.has_services(family) || patient.pod_network(family).is_some()
}

/// Modules, and what needs them.
const MODULES: [(&str, Needs, &str); 11] = [
    (
        "nf_conntrack",
        Needs::Always,
        "no connection is tracked, so nothing is translated",
    ),
    ("nf_nat", Needs::Always, "nothing is translated"),
    (
        "xt_comment",
        Needs::Iptables,
        "every rule of kube-proxy has a comment",
    ),
    ("xt_conntrack", Needs::Iptables, "replies are told by it"),
    ("xt_mark", Needs::Iptables, "what is to be masqueraded is marked"),
    ("xt_addrtype", Needs::Iptables, "node ports are told by it"),
    ("xt_nat", Needs::Iptables, "destinations are rewritten by it"),
    ("xt_MASQUERADE", Needs::Iptables, "sources are rewritten by it"),
    ("xt_statistic", Needs::Iptables, "endpoints are chosen by it"),
    (
        "xt_recent",
        Needs::Affinity,
        "sessionAffinity: ClientIP remembers clients with it",
    ),
    ("ip_vs", Needs::Ipvs, "mode ipvs is made of it"),
];

/// Who needs a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Always,
    Iptables,
    Affinity,
    Ipvs,
}

fn modules(patient: &Patient) -> Vec<Finding> {
    let world = &patient.world;
    let mode = patient.mode().unwrap_or_default();
    let families = patient.families();
    let desired = || {
        families
            .iter()
            .flat_map(|family| world.desired.get(*family).services.values())
    };
    let is_needed = |needs: Needs| match needs {
        Needs::Always => true,
        Needs::Iptables => ["", "iptables", "ipvs"].contains(&mode.as_str()),
        Needs::Affinity => {
            mode != "nftables"
                && desired().any(|service| service.ports.iter().any(|port| port.affinity.is_some()))
        }
        Needs::Ipvs => mode == "ipvs",
    };
    let is_absent = |name: &str| world.host_facts.modules.get(name) == Some(&Module::Absent);
    let missing: Vec<(&str, &str)> = MODULES
        .iter()
        .filter(|(name, needs, _)| is_absent(name) && is_needed(*needs))
        .map(|(name, _, why)| (*name, *why))
        .collect();
    if missing.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let why: Vec<String> = missing
        .iter()
        .map(|(name, why)| format!("{name}: {why}"))
        .collect();
    let what = format!("the kernel has no {}", listed(&names, 6));
    vec![
        Finding::fault(Cause::ModuleMissing, what)
            .because(format!("{}.", why.join("; ")))
            .advise(Advice::act(format!(
                "install the rest of the kernel's modules (linux-modules-extra or kernel-modules-extra of this release), then: modprobe {}",
                names.join(" ")
            ))),
    ]
}

fn lock(patient: &Patient) -> Option<Finding> {
    let is_folder = patient.world.host_facts.xtables_lock == Some(Lock::Folder);
    is_folder.then(|| {
        Finding::fault(Cause::LockIsFolder, "/run/xtables.lock is a folder and not a file")
            .because(
                "A container runtime made it for a mount of a file that was not there yet. iptables-legacy cannot take its lock, so rules \
                 are not written.",
            )
            .advise(Advice::act("rmdir /run/xtables.lock && touch /run/xtables.lock; and mount it with type: FileOrCreate"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_out_of_what_tools_and_kernels_say() {
        assert_eq!(numbers("iptables v1.8.9 (nf_tables)"), [1, 8, 9]);
        assert_eq!(numbers("nftables v1.0.6 (Lester Gooch #5)"), [1, 0, 6]);
        assert_eq!(numbers("1.6.1"), [1, 6, 1]);
        assert_eq!(numbers("5.15.0-127-generic"), [5, 15, 0, 127]);
        assert_eq!(numbers("unknown"), [0_u32; 0]);
        assert!(is_within(&[1, 8, 1], [1, 8, 0], [1, 8, 2]));
        assert!(!is_within(&[1, 8, 10], [1, 8, 0], [1, 8, 2]));
    }
}
