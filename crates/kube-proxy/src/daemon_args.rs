//! The daemon's flags: kube-proxy's own (a table in [`config::flags`]), and ours beside them.

mod file;
mod help;
mod own;
mod values;

pub use file::load_config;
pub use help::add_to;

use file::first_few;
use own::{CUT_GONE_TCP, EXPLORER, OWN, SERVICE_METRICS};

use crate::external_ips;
use crate::state_args::{self, STATE_DIR, STATE_MAX_AGE};
use crate::version::{self, Version};
use anyhow::{Context, Result, anyhow, bail};
use config::KubeProxyConfiguration;
use config::flags::{Effect, FLAGS, Flag, FlagKind, WithConfig};
use config::words::{self, WordError};
use proxy::{ExplorerPage, StateFolder, TcpOption};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// What the daemon is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Serve until killed.
    Serve,
    /// `--write-config-to`: write the configuration in effect, and end.
    WriteConfig(PathBuf),
    /// `--cleanup`: remove what is ours, and end.
    CleanUp,
    /// `--init-only`: prepare the host, and end.
    InitOnly,
}

/// What the command line asks the daemon to do.
pub struct DaemonArgs {
    /// The configuration, from file or flags, defaulted and valid.
    pub config: KubeProxyConfiguration,
    /// What to do.
    pub act: Act,
    /// `--config`: the file to watch.
    pub config_file: Option<PathBuf>,
    /// `--master`, which counts beside `--config`.
    pub master: Option<String>,
    /// `--manifests`: objects come from here and not from an API server.
    pub manifests: Option<PathBuf>,
    /// `--conntrack-cut-gone-tcp`, which counts beside `--config`.
    pub tcp: TcpOption,
    /// `--explorer`, which counts beside `--config`.
    pub explorer: ExplorerPage,
    /// `--service-metrics`, which counts beside `--config`.
    pub service_metrics: Option<NonZeroUsize>,
    /// `--state-dir` and `--state-max-age`, which count beside `--config`.
    pub state: Option<StateFolder>,
    /// What was odd and goes to the log: unknown fields, flags that a file replaces.
    pub warnings: Vec<String>,
    /// What is accepted and does nothing.
    pub without_effect: Vec<String>,
    /// Every flag and its value, by name.
    pub flags: Vec<(String, String)>,
    /// What is wrong with a flag that cannot be told from the configuration.
    refused: Option<&'static str>,
}

/// Why the command line was not understood; upstream says these without a log line.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    /// The words themselves.
    #[error(transparent)]
    Words(#[from] WordError),
    /// A flag's value.
    #[error("invalid argument {value:?} for \"{flag}\" flag: {reason}")]
    Value {
        /// The flag, as usage shows it.
        flag: String,
        /// The value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Flags as given, each read on its own.
pub struct Flags {
    /// The configuration that flags alone make, before defaults that depend on what else is set.
    config: KubeProxyConfiguration,
    /// The last value of each flag, by name.
    given: BTreeMap<String, String>,
    /// Every value of a logging flag, in order: these count beside a file.
    over_file: Vec<(&'static Flag, String)>,
    /// `--version`.
    pub version: Option<Version>,
}

impl Flags {
    /// Reads the words after the program's name.
    ///
    /// # Errors
    /// The first one that is wrong.
    pub fn read(words: &[String]) -> Result<Flags, UsageError> {
        let mut flags = Flags {
            config: KubeProxyConfiguration::before_flags(),
            given: BTreeMap::new(),
            over_file: Vec::new(),
            version: None,
        };
        words::split(words, kind, |(name, value)| flags.take(name, value))?;
        Ok(flags)
    }

    fn take(&mut self, name: String, value: String) -> Result<(), UsageError> {
        let applied = match FLAGS.iter().find(|flag| flag.name == name) {
            Some(flag) => {
                if flag.with_config == WithConfig::FlagWins {
                    self.over_file.push((flag, value.clone()));
                }
                (flag.apply)(&mut self.config, &value)
            }
            None => self.take_own(&name, &value),
        };
        if let Err(reason) = applied {
            let flag = if name == "v" {
                "-v, --v".to_owned()
            } else {
                format!("--{name}")
            };
            return Err(UsageError::Value { flag, value, reason });
        }
        self.given.insert(name, value);
        Ok(())
    }

    fn take_own(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            STATE_MAX_AGE => drop(state_args::max_age(value)?),
            "version" => self.version = version::asked(value)?,
            "cleanup" | "init-only" | "help" | CUT_GONE_TCP | EXPLORER => {
                config::flags::parse_bool(value)?;
            }
            SERVICE_METRICS => drop(values::service_metrics(value)?),
            external_ips::FLAG => external_ips::allow(&mut self.config, value)?,
            _ => {}
        }
        Ok(())
    }

    /// A flag that was given and is not empty.
    fn text(&self, name: &str) -> Option<&str> {
        self.given
            .get(name)
            .map(String::as_str)
            .filter(|text| !text.is_empty())
    }

    fn is_on(&self, name: &str) -> bool {
        self.given
            .get(name)
            .is_some_and(|value| config::flags::parse_bool(value) == Ok(true))
    }

    /// Notices for flags that upstream means to remove.
    pub fn deprecations(&self) -> impl Iterator<Item = String> {
        let given = |flag: &&Flag| self.given.contains_key(flag.name);
        FLAGS.iter().filter(given).filter_map(|flag| {
            let why = flag.deprecated?;
            Some(format!("Flag --{} has been deprecated, {why}", flag.name))
        })
    }

    fn act(&self) -> Act {
        match self.text("write-config-to") {
            Some(path) => Act::WriteConfig(path.into()),
            None if self.is_on("cleanup") => Act::CleanUp,
            None if self.is_on("init-only") => Act::InitOnly,
            None => Act::Serve,
        }
    }

    /// Fills in file and defaults, and checks everything.
    ///
    /// # Errors
    /// An unreadable or malformed file, or everything that is invalid at once.
    pub fn complete(self) -> Result<DaemonArgs> {
        let mut warnings = Vec::new();
        let mut without_effect = Vec::new();
        let file = self.text("config").map(PathBuf::from);
        let config = self
            .configuration(file.as_deref(), &mut warnings)
            .context("failed complete")?;
        gates(&config, &mut warnings, &mut without_effect).context("failed complete")?;
        without_effect.extend(self.idle_flags(file.is_some()));
        // Flags that do nothing are named as flags; whether one of logging does depends on the others.
        let fields = config::without_effect(&config).into_iter();
        let fields = fields.filter(|field| file.is_some() || field.starts_with("logging."));
        without_effect.extend(fields.map(str::to_owned));
        Ok(DaemonArgs {
            // With a file these variables are what nobody reads, as upstream has it.
            flags: self.values(if file.is_some() { &self.config } else { &config }),
            refused: self.empty_cidr(&config).filter(|_| file.is_none()),
            act: self.act(),
            tcp: if self.is_on(CUT_GONE_TCP) {
                TcpOption::CutGone
            } else {
                TcpOption::Never
            },
            explorer: if self.is_on(EXPLORER) {
                ExplorerPage::On
            } else {
                ExplorerPage::Off
            },
            service_metrics: self.service_metrics(),
            state: self.state(),
            master: self.text("master").map(str::to_owned),
            manifests: self.text("manifests").map(PathBuf::from),
            config_file: file,
            config,
            warnings,
            without_effect,
        })
    }

    fn service_metrics(&self) -> Option<NonZeroUsize> {
        let given = self.given.get(SERVICE_METRICS)?;
        values::service_metrics(given).ok().flatten()
    }

    fn state(&self) -> Option<StateFolder> {
        state_args::folder(
            self.text("manifests"),
            self.text(STATE_DIR),
            self.text(STATE_MAX_AGE),
        )
    }

    /// Flags that were given, count, and do nothing here.
    fn idle_flags(&self, with_file: bool) -> impl Iterator<Item = String> {
        let counts = move |flag: &&Flag| !with_file || flag.with_config == WithConfig::FlagWins;
        let of_table = FLAGS.iter().filter(|flag| flag.effect == Effect::NotYet);
        let names = ["boot-id-file", "machine-id-file"]
            .into_iter()
            .chain(of_table.filter(counts).map(|flag| flag.name));
        let no_state = self.state().is_none();
        let names = names.chain([STATE_DIR, STATE_MAX_AGE].into_iter().filter(move |_| no_state));
        names
            .filter(|name| self.given.contains_key(*name))
            .map(|name| format!("--{name}"))
    }

    fn configuration(
        &self,
        file: Option<&Path>,
        warnings: &mut Vec<String>,
    ) -> Result<KubeProxyConfiguration> {
        let mut config = match file {
            Some(path) => {
                let mut config = load_config(path, warnings)?;
                // The flags' entries come before the file's.
                let of_file = std::mem::take(&mut config.logging.vmodule);
                for (flag, value) in &self.over_file {
                    (flag.apply)(&mut config, value)
                        .map_err(|reason| anyhow!("--{}: {reason}", flag.name))?;
                }
                config.logging.vmodule.extend(of_file);
                config
                    .allowed_external_ips
                    .clone_from(&self.config.allowed_external_ips);
                warnings.extend(self.replaced());
                config
            }
            None => self.without_file(),
        };
        config.fill_linux_defaults();
        if let Some(name) = self.text("hostname-override") {
            config.hostname_override = name.trim().to_lowercase();
            if config.hostname_override.is_empty() {
                bail!("empty hostname-override is invalid");
            }
        }
        Ok(config)
    }

    /// The deprecated ports complete an address without one, or switch its server off.
    fn without_file(&self) -> KubeProxyConfiguration {
        let mut config = self.config.clone();
        if self.text("write-config-to").is_none() {
            let port = |name: &str| {
                self.text(name)
                    .and_then(|text| config::flags::parse_int(text).ok())
            };
            let (healthz, metrics) = (port("healthz-port"), port("metrics-port"));
            complete_address(&mut config.healthz_bind_address, healthz.unwrap_or(10256));
            complete_address(&mut config.metrics_bind_address, metrics.unwrap_or(10249));
        }
        config
    }

    fn replaced(&self) -> impl Iterator<Item = String> {
        let ignored =
            |flag: &&Flag| flag.with_config == WithConfig::FileWins && self.given.contains_key(flag.name);
        FLAGS
            .iter()
            .filter(ignored)
            .map(|flag| format!("flag --{} is ignored, since --config is given", flag.name))
    }

    /// An empty `--cluster-cidr` is one CIDR that is none; an empty field of a file is no CIDR at all.
    fn empty_cidr(&self, config: &KubeProxyConfiguration) -> Option<&'static str> {
        let empty = self.given.get("cluster-cidr").is_some_and(String::is_empty);
        (empty && config.detect_local_mode == "ClusterCIDR").then_some(
            "failed validate: KubeProxyConfiguration.DetectLocalConfiguration.ClusterCIDRs[0]: Invalid value: \"\": must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)",
        )
    }
}

impl DaemonArgs {
    /// What is wrong with the configuration, all at once.
    ///
    /// # Errors
    /// One error with all faults.
    pub fn check(&self) -> Result<()> {
        check_all("failed validate", &config::validate(&self.config))?;
        match self.refused {
            Some(words) => bail!(words),
            None => Ok(()),
        }
    }
}

fn kind(name: &str) -> Option<FlagKind> {
    let own = OWN
        .iter()
        .find(|(own, ..)| *own == name)
        .map(|(_, kind, ..)| *kind);
    own.or_else(|| FLAGS.iter().find(|flag| flag.name == name).map(|flag| flag.kind))
}

fn complete_address(address: &mut String, port: i32) {
    if port == 0 {
        address.clear();
    } else if let Ok(ip) = address.parse::<std::net::IpAddr>() {
        *address = if ip.is_ipv6() {
            format!("[{ip}]:{port}")
        } else {
            format!("{ip}:{port}")
        };
    }
}

/// Gates that cannot be set end it; others are spoken of.
fn gates(
    config: &KubeProxyConfiguration,
    warnings: &mut Vec<String>,
    without_effect: &mut Vec<String>,
) -> Result<()> {
    let notes = config::check_gates(&config.feature_gates).map_err(|locked| anyhow!("{locked}"))?;
    warnings.extend(first_few(
        &notes.unknown,
        |name| format!("unrecognized feature gate: {name}"),
        |more| format!("unrecognized feature gates: {more} more"),
    ));
    without_effect.extend(
        notes
            .without_effect
            .iter()
            .map(|name| format!("featureGates.{name}")),
    );
    Ok(())
}

/// Everything that is invalid, at once; logging first, as upstream has it.
///
/// # Errors
/// One error with all faults.
pub fn check(config: &KubeProxyConfiguration) -> Result<()> {
    check_logging(config)?;
    check_all("failed validate", &config::validate(config))
}

/// What is wrong with how to log, which must be known before anything is.
///
/// # Errors
/// One error with all faults.
pub fn check_logging(config: &KubeProxyConfiguration) -> Result<()> {
    check_all("initialize logging", &config::validate_logging(config))
}

fn check_all(stage: &str, faults: &[config::FieldError]) -> Result<()> {
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    match faults.as_slice() {
        [] => Ok(()),
        [one] => bail!("{stage}: {one}"),
        many => bail!("{stage}: [{}]", many.join(", ")),
    }
}

/// The Node's name as upstream finds it: trimmed, in lower case.
///
/// # Errors
/// When the host has none to tell.
pub fn node_name(config: &KubeProxyConfiguration) -> Result<String> {
    let name = if config.hostname_override.is_empty() {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
        name.context("cannot read the host's name; give --hostname-override")?
    } else {
        config.hostname_override.clone()
    };
    let name = name.trim().to_lowercase();
    if name.is_empty() {
        bail!("empty hostname-override is invalid");
    }
    if let Some(reason) = config::why_no_node_name(&name) {
        bail!("the host's name {name:?} {reason}; give --hostname-override");
    }
    Ok(name)
}
