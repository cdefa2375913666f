//! What is read at the moment of a scrape: this process, the connection table, the rules' counters.

use super::families::{Mode, name, own};
use super::registry::{Registry, as_f64};
use config::KubeProxyConfiguration;
use kernel::conntrack as stats;
use kernel::{ClientSets, NftTable};
use model::{Family, PerFamily};
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// `USER_HZ`, which Linux shows to programs on every architecture kube-proxy runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Gates that change what kube-proxy does in 1.36, their stage and default.
const GATES: [(&str, &str, bool); 14] = [
    ("AllowServiceExternalIPs", "", true),
    ("MultiCIDRServiceAllocator", "", true),
    ("PreferSameTrafficDistribution", "", true),
    ("NFTablesProxyMode", "", true),
    ("ComponentFlagz", "BETA", true),
    ("ComponentStatusz", "BETA", true),
    ("NativeHistograms", "ALPHA", false),
    ("ContextualLogging", "BETA", true),
    ("LoggingAlphaOptions", "ALPHA", false),
    ("LoggingBetaOptions", "BETA", true),
    ("WatchListClient", "BETA", true),
    ("InOrderInformers", "", true),
    ("AllAlpha", "ALPHA", false),
    ("AllBeta", "BETA", false),
];

/// What does not change while the process lives.
pub(super) fn constants(metrics: &mut Registry, config: &KubeProxyConfiguration) {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    // Go's names for the common two.
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let platform = format!("linux/{architecture}");
    // Major and minor say which Kubernetes this behaves like.
    let labels = ["", "rustc", "", "", version, "", "1", "36", &platform];
    metrics.set(name::BUILD, &labels, 1.0);
    for (gate, stage, default) in GATES {
        let on = config.feature_gates.get(gate).copied().unwrap_or(default);
        metrics.set(name::FEATURE, &[gate, stage], f64::from(u8::from(on)));
    }
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    metrics.set("process_start_time_seconds", &[], started.as_secs_f64());
    for (prefix, level) in [("[ALPHA] ", "ALPHA"), ("[BETA] ", "BETA")] {
        let registered = super::families::all(Mode::of(config)).into_iter();
        let count = registered
            .filter(|metric| metric.help.starts_with(prefix))
            .count();
        metrics.set("registered_metrics_total", &["", level], as_f64(count as u64));
    }
}

/// What was read. Missing numbers were not to be had.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    numbers: Vec<(&'static str, Option<f64>)>,
    drops: Option<stats::Counters>,
    clients: PerFamily<Option<ClientSets>>,
}

/// Reads all of it; takes a few files and two answers of the kernel.
pub(super) fn read() -> Readings {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let network = fs::read_to_string("/proc/self/net/netstat").unwrap_or_default();
    let open = fs::read_dir("/proc/self/fd").map(|entries| as_f64(entries.count() as u64));
    let fill = stats::fill().ok();
    let counter = |of: &str| {
        let counted = kernel::nfacct::read_counter(of).ok().flatten();
        counted.map(|counted| as_f64(counted.packets))
    };
    let [invalid, localhost] = kernel::NFACCT_COUNTERS;
    Readings {
        numbers: vec![
            ("process_cpu_seconds_total", cpu_seconds(&stat)),
            ("process_max_fds", limit(&limits, "Max open files")),
            (
                "process_network_receive_bytes_total",
                octets(&network, "InOctets"),
            ),
            (
                "process_network_transmit_bytes_total",
                octets(&network, "OutOctets"),
            ),
            ("process_open_fds", open.ok()),
            ("process_resident_memory_bytes", kilobytes(&status, "VmRSS:")),
            ("process_virtual_memory_bytes", kilobytes(&status, "VmSize:")),
            (
                "process_virtual_memory_max_bytes",
                limit(&limits, "Max address space"),
            ),
            (own::CT_ENTRIES, fill.map(|fill| as_f64(fill.entries))),
            (own::CT_LIMIT, fill.map(|fill| as_f64(fill.limit))),
            (name::CT_INVALID, counter(invalid)),
            (name::LOCALHOST, counter(localhost)),
        ],
        drops: stats::counters().ok(),
        clients: PerFamily::from_fn(clients),
    }
}

/// What session affinity remembers in nftables mode; nothing in other modes and where the kernel does not count.
fn clients(family: Family) -> Option<ClientSets> {
    let mut table = NftTable::new(family).ok()?;
    table.client_sets().ok().flatten()
}

impl Readings {
    /// Puts what was read into the registry; what was not is not printed. Nor are counters of rules that this mode has not,
    /// which the kernel may still have of another one.
    pub(super) fn put(self, metrics: &mut Registry) {
        let known = |(name, _): &(&'static str, _)| metrics.has(name);
        let numbers: Vec<_> = self.numbers.into_iter().filter(known).collect();
        for (name, number) in numbers {
            match number {
                Some(number) => metrics.set(name, &[], number),
                None => metrics.clear(name),
            }
        }
        for name in [own::AFFINITY_CLIENTS, own::AFFINITY_FULLEST] {
            metrics.clear(name);
        }
        for family in Family::ALL {
            if let Some(sets) = self.clients.get(family) {
                let label = family.to_string();
                metrics.set(own::AFFINITY_CLIENTS, &[&label], as_f64(sets.clients));
                metrics.set(own::AFFINITY_FULLEST, &[&label], sets.fullest);
            }
        }
        let Some(drops) = self.drops else {
            return metrics.clear(own::CT_DROPS);
        };
        for (reason, count) in [
            ("drop", drops.drop),
            ("early_drop", drops.early_drop),
            ("insert_failed", drops.insert_failed),
            ("invalid", drops.invalid),
        ] {
            metrics.set(own::CT_DROPS, &[reason], as_f64(count));
        }
    }
}

/// User and system time: the 12th and 13th number after the command's name, which may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// A soft limit. What has none is printed as the largest number there is, as by upstream's client library.
fn limit(limits: &str, name: &str) -> Option<f64> {
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(as_f64(u64::MAX)),
        number => number.parse().ok(),
    }
}

/// A number of the network namespace's IP traffic: a line of names, and one of values. Upstream's client library calls
/// it the process's.
fn octets(netstat: &str, name: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter_map(|line| line.strip_prefix("IpExt: "));
    let at = lines.next()?.split(' ').position(|known| known == name)?;
    lines.next()?.split(' ').nth(at)?.parse().ok()
}

fn kilobytes(status: &str, key: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    let number: f64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(number * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_past_a_name_with_blanks_and_brackets() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 3 0 100 1000 10 1";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(cpu_seconds(""), None);
    }

    #[test]
    fn memory_and_limits_are_read_by_their_names() {
        assert_eq!(kilobytes("Name:\tx\nVmRSS:\t    2 kB\n", "VmRSS:"), Some(2048.0));
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(limit(limits, "Max open files"), Some(1024.0));
        let unlimited = "Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(
            limit(unlimited, "Max address space"),
            Some(18_446_744_073_709_551_615.0)
        );
    }

    #[test]
    fn traffic_is_read_by_the_name_of_its_column() {
        let netstat =
            "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 70 80\n";
        assert_eq!(octets(netstat, "InOctets"), Some(70.0));
        assert_eq!(octets(netstat, "OutOctets"), Some(80.0));
        assert_eq!(octets("", "OutOctets"), None);
    }

    #[test]
    fn what_cannot_be_read_is_not_printed() {
        let mut metrics = Registry::new(&super::super::families::all(Mode::Iptables));
        let readings = Readings {
            numbers: vec![(name::CT_INVALID, None), (name::LOCALHOST, Some(4.0))],
            drops: None,
            clients: PerFamily::default(),
        };
        readings.put(&mut metrics);
        let text = metrics.text();
        assert!(!text.contains(name::CT_INVALID));
        assert!(text.contains(&format!("{} 4\n", name::LOCALHOST)));
    }
}
