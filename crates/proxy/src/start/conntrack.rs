//! Conntrack's limits and timeouts: read first, written only where they fall short, and no reason to stop
//! (upstream ends when it may not write).

use config::types::ConntrackConfiguration;
use config::{GoDuration, KubeProxyConfiguration};
use kernel::sysctl;
use std::fs;
use std::io;

/// The most entries that a number of cores asks for.
const CAP: i64 = 1_048_576;
const LIMIT: &str = "net/netfilter/nf_conntrack_max";
const HASH_SIZE: &str = "/sys/module/nf_conntrack/parameters/hashsize";

/// What a setting has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// This much or more.
    AtLeast(i64),
    /// This.
    Exactly(i64),
}

impl Want {
    fn is_met(self, now: i64) -> bool {
        match self {
            Want::AtLeast(least) => now >= least,
            Want::Exactly(value) => now == value,
        }
    }

    fn value(self) -> i64 {
        let (Want::AtLeast(value) | Want::Exactly(value)) = self;
        value
    }
}

/// The number of entries to allow; `None` leaves the limit alone (upstream `getConntrackMax`).
fn limit(cores: i64, per_core: i64, min: i64) -> Option<i64> {
    if per_core <= 0 {
        return None;
    }
    let scaled = per_core.saturating_mul(cores);
    Some(if scaled > CAP { CAP } else { scaled.max(min) }).filter(|limit| *limit > 0)
}

/// The settings below `/proc/sys`, in the order in which they are written.
fn wanted(config: &ConntrackConfiguration, cores: i64) -> Vec<(&'static str, Want)> {
    let per_core = i64::from(config.max_per_core.unwrap_or(0));
    let limit = limit(cores, per_core, i64::from(config.min.unwrap_or(0)));
    let seconds = |span: GoDuration| Some(span.nanos() / 1_000_000_000).filter(|_| span.nanos() > 0);
    let timeout = |span: GoDuration| seconds(span).map(Want::Exactly);
    [
        (LIMIT, limit.map(Want::AtLeast)),
        (
            "net/netfilter/nf_conntrack_tcp_timeout_established",
            config.tcp_established_timeout.and_then(timeout),
        ),
        (
            "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
            config.tcp_close_wait_timeout.and_then(timeout),
        ),
        (
            sysctl::TCP_BE_LIBERAL,
            config.tcp_be_liberal.then_some(Want::Exactly(1)),
        ),
        (
            "net/netfilter/nf_conntrack_udp_timeout",
            timeout(config.udp_timeout),
        ),
        (
            "net/netfilter/nf_conntrack_udp_timeout_stream",
            timeout(config.udp_stream_timeout),
        ),
    ]
    .into_iter()
    .filter_map(|(name, want)| Some((name, want?)))
    .collect()
}

/// Where settings are read and written; another one in tests.
trait Settings {
    fn read(&self, name: &str) -> io::Result<String>;
    fn write(&mut self, name: &str, value: &str) -> io::Result<()>;
}

struct Host;

impl Settings for Host {
    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(path(name))
    }

    fn write(&mut self, name: &str, value: &str) -> io::Result<()> {
        fs::write(path(name), value)
    }
}

fn path(name: &str) -> String {
    if name.starts_with('/') {
        name.to_owned()
    } else {
        format!("/proc/sys/{name}")
    }
}

/// Sees to all settings; what cannot be done is told.
pub(super) fn apply(config: &KubeProxyConfiguration) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = i64::try_from(cores_of_machine().unwrap_or(cores)).unwrap_or(1);
    for told in settle(&mut Host, &wanted(&config.conntrack, cores)) {
        match told {
            Told::Changed { name, from, to } => {
                tracing::info!(setting = %name, from, to, "conntrack setting changed");
            }
            Told::Stays { name, want, reason } => {
                tracing::warn!(setting = %name, want, %reason, "conntrack setting stays as it is; set it on the host, or let the configuration leave it alone (0)");
            }
        }
    }
}

/// Logical processors, also those that this process may not use: the table is the whole machine's.
fn cores_of_machine() -> Option<usize> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").ok()?;
    let is_cpu = |name: &str| {
        name.strip_prefix("cpu")
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let count = cpus
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_cpu))
        .count();
    Some(count).filter(|count| *count > 0)
}

/// What became of a setting that was not as it should be.
#[derive(Debug, PartialEq, Eq)]
enum Told {
    Changed { name: String, from: i64, to: i64 },
    Stays { name: String, want: i64, reason: String },
}

fn settle(settings: &mut impl Settings, wanted: &[(&'static str, Want)]) -> Vec<Told> {
    let mut told = Vec::new();
    for (name, want) in wanted {
        let outcome = settle_one(settings, name, *want);
        let stays = matches!(outcome, Some(Told::Stays { .. }));
        told.extend(outcome);
        // A longer table as the limit grows. It is the whole machine's: not touched for a limit that could not be had.
        if *name == LIMIT && !stays {
            told.extend(settle_one(settings, HASH_SIZE, Want::AtLeast(want.value() / 4)));
        }
    }
    told
}

fn settle_one(settings: &mut impl Settings, name: &str, want: Want) -> Option<Told> {
    let to = want.value();
    let stays = |error: &dyn std::fmt::Display| {
        Some(Told::Stays {
            name: name.to_owned(),
            want: to,
            reason: error.to_string(),
        })
    };
    let now = match settings.read(name) {
        Ok(text) => text,
        Err(error) => return stays(&error),
    };
    let from: i64 = match now.trim().parse() {
        Ok(from) => from,
        Err(error) => return stays(&error),
    };
    if want.is_met(from) {
        return None;
    }
    match settings.write(name, &to.to_string()) {
        Ok(()) => Some(Told::Changed {
            name: name.to_owned(),
            from,
            to,
        }),
        Err(error) => stays(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn limit_follows_upstreams_formula() {
        for (cores, per_core, min, expected) in [
            (4, 0, 131_072, None),
            (4, -1, 131_072, None),
            (2, 32_768, 131_072, Some(131_072)),
            (8, 32_768, 131_072, Some(262_144)),
            (64, 32_768, 131_072, Some(1_048_576)),
            (64, 32_768, 4_000_000, Some(1_048_576)),
            (1, 32_768, 4_000_000, Some(4_000_000)),
            (4, 32_768, 131_072, Some(131_072)),
        ] {
            assert_eq!(limit(cores, per_core, min), expected, "{cores} {per_core} {min}");
        }
    }

    struct Fake {
        values: BTreeMap<String, String>,
        refuse: Option<i32>,
        writes: usize,
    }

    impl Fake {
        fn of(values: &[(&str, &str)]) -> Fake {
            let values = values
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            Fake {
                values: values.collect(),
                refuse: None,
                writes: 0,
            }
        }
    }

    impl Settings for Fake {
        fn read(&self, name: &str) -> io::Result<String> {
            self.values
                .get(name)
                .cloned()
                .ok_or_else(|| io::Error::from_raw_os_error(2))
        }

        fn write(&mut self, name: &str, value: &str) -> io::Result<()> {
            self.writes += 1;
            if let Some(errno) = self.refuse {
                return Err(io::Error::from_raw_os_error(errno));
            }
            self.values.insert(name.to_owned(), value.to_owned());
            Ok(())
        }
    }

    #[test]
    fn enough_is_left_alone() {
        let mut host = Fake::of(&[(LIMIT, "500000\n"), (HASH_SIZE, "65536")]);
        assert_eq!(settle(&mut host, &[(LIMIT, Want::AtLeast(262_144))]), []);
        assert_eq!(host.writes, 0);
    }

    #[test]
    fn too_little_is_raised_and_the_table_with_it() {
        let mut host = Fake::of(&[(LIMIT, "65536\n"), (HASH_SIZE, "16384\n")]);
        assert_eq!(settle(&mut host, &[(LIMIT, Want::AtLeast(262_144))]).len(), 2);
        assert_eq!(
            (host.values[LIMIT].as_str(), host.values[HASH_SIZE].as_str()),
            ("262144", "65536")
        );
    }

    #[test]
    fn a_setting_that_may_not_be_written_is_told_and_the_next_one_tried() {
        // EPERM, EACCES, EROFS, EOPNOTSUPP.
        for errno in [1, 13, 30, 95] {
            let mut host = Fake::of(&[(LIMIT, "1"), (HASH_SIZE, "1"), (sysctl::TCP_BE_LIBERAL, "0")]);
            host.refuse = Some(errno);
            let told = settle(
                &mut host,
                &[
                    (LIMIT, Want::AtLeast(8)),
                    (sysctl::TCP_BE_LIBERAL, Want::Exactly(1)),
                ],
            );
            assert_eq!((told.len(), host.writes), (2, 2), "{errno}");
            assert!(
                matches!(&told[0], Told::Stays { name, want: 8, .. } if name == LIMIT),
                "{told:?}"
            );
        }
    }

    #[test]
    fn zero_leaves_everything_alone() {
        let config = ConntrackConfiguration {
            max_per_core: Some(0),
            min: Some(131_072),
            tcp_established_timeout: Some(GoDuration::default()),
            tcp_close_wait_timeout: Some(GoDuration::default()),
            ..ConntrackConfiguration::default()
        };
        assert_eq!(wanted(&config, 4), []);
    }

    #[test]
    fn timeouts_are_whole_seconds() {
        let config = ConntrackConfiguration {
            udp_timeout: GoDuration::from_nanos(1_900_000_000),
            tcp_be_liberal: true,
            ..ConntrackConfiguration::default()
        };
        let expected = [
            (sysctl::TCP_BE_LIBERAL, Want::Exactly(1)),
            ("net/netfilter/nf_conntrack_udp_timeout", Want::Exactly(1)),
        ];
        assert_eq!(wanted(&config, 4), expected);
    }
}
