//! What is read at the moment of a scrape: this process, the connection table, the rules' counters.

use super::families::{name, own};
use super::registry::{Registry, as_f64};
use config::KubeProxyConfiguration;
use kernel::conntrack as stats;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// `USER_HZ`, which Linux shows to programs on every architecture kube-proxy runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Gates that change what kube-proxy does in 1.36, their stage and default (control.md 11.4).
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
}

/// What was read. Missing numbers were not to be had.
#[derive(Clone, Debug, Default)]
pub(super) struct Readings {
    numbers: Vec<(&'static str, Option<f64>)>,
    drops: Option<stats::Counters>,
}

/// Reads all of it; takes a few files and two answers of the kernel.
pub(super) fn read() -> Readings {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
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
            ("process_max_fds", max_fds(&limits)),
            ("process_open_fds", open.ok()),
            ("process_resident_memory_bytes", kilobytes(&status, "VmRSS:")),
            ("process_virtual_memory_bytes", kilobytes(&status, "VmSize:")),
            (own::CT_ENTRIES, fill.map(|fill| as_f64(fill.entries))),
            (own::CT_LIMIT, fill.map(|fill| as_f64(fill.limit))),
            (name::CT_INVALID, counter(invalid)),
            (name::LOCALHOST, counter(localhost)),
        ],
        drops: stats::counters().ok(),
    }
}

impl Readings {
    /// Puts what was read into the registry; what was not is not printed.
    pub(super) fn put(self, metrics: &mut Registry) {
        for (name, number) in self.numbers {
            match number {
                Some(number) => metrics.set(name, &[], number),
                None => metrics.clear(name),
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

fn max_fds(limits: &str) -> Option<f64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
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
        assert_eq!(max_fds(limits), Some(1024.0));
    }

    #[test]
    fn what_cannot_be_read_is_not_printed() {
        let mut metrics = Registry::new(&super::super::families::all());
        let readings = Readings {
            numbers: vec![(name::CT_INVALID, None), (name::LOCALHOST, Some(4.0))],
            drops: None,
        };
        readings.put(&mut metrics);
        let text = metrics.text();
        assert!(!text.contains(name::CT_INVALID));
        assert!(text.contains(&format!("{} 4\n", name::LOCALHOST)));
    }
}
