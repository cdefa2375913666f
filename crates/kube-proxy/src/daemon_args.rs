//! The daemon's flags: kube-proxy's own (a table in [`config::flags`]), and ours beside them.

use crate::version::{self, Version};
use anyhow::{Context, Result, anyhow, bail};
use clap::{Arg, ArgAction, Command};
use config::KubeProxyConfiguration;
use config::flags::{Effect, FLAGS, Flag, FlagKind, WithConfig};
use config::words::{self, WordError};
use proxy::TcpOption;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Ours: upstream never cuts TCP connections.
const CUT_GONE_TCP: &str = "conntrack-cut-gone-tcp";

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
    /// What was odd and goes to the log: unknown fields, flags that a file replaces.
    pub warnings: Vec<String>,
    /// What is accepted and does nothing.
    pub without_effect: Vec<String>,
}

/// Flags that fill no field of the configuration.
const OWN: [(&str, FlagKind, &str, &str); 12] = [
    (
        "boot-id-file",
        FlagKind::Value,
        "path",
        "Accepted, without effect",
    ),
    (
        "cleanup",
        FlagKind::Bool,
        "true|false",
        "Remove the rules that kube-proxy wrote, and end",
    ),
    (
        "config",
        FlagKind::Value,
        "path",
        "Configuration file (KubeProxyConfiguration, YAML or JSON); replaces all flags but these: --manifests, --master, --conntrack-cut-gone-tcp, --hostname-override and the logging flags",
    ),
    (
        CUT_GONE_TCP,
        FlagKind::Bool,
        "true|false",
        "Cut TCP connections to an endpoint that no slice of its service lists any more, so that clients need not wait for a timeout; never done without it",
    ),
    (
        "hostname-override",
        FlagKind::Value,
        "name",
        "The Node's name, if it is not the host's",
    ),
    (
        "init-only",
        FlagKind::Bool,
        "true|false",
        "Prepare the host as root, and end",
    ),
    (
        "machine-id-file",
        FlagKind::Value,
        "path",
        "Accepted, without effect",
    ),
    (
        "manifests",
        FlagKind::Value,
        "path",
        "A file or folder of manifests to take objects from, watched, in place of an API server",
    ),
    (
        "master",
        FlagKind::Value,
        "url",
        "The API server's URL, in place of the kubeconfig's",
    ),
    (
        "version",
        FlagKind::Bool,
        "true|raw|vX.Y.Z",
        "Print the version, and end",
    ),
    (
        "write-config-to",
        FlagKind::Value,
        "path",
        "Write the configuration in effect to this file, and end",
    ),
    ("help", FlagKind::Bool, "true|false", "Print help"),
];

/// Adds the daemon's flags to the command, for its help.
pub fn add_to(command: Command) -> Command {
    let own = OWN
        .iter()
        .filter(|(name, ..)| *name != "help")
        .map(|(name, _, value_name, help)| Arg::new(*name).long(*name).value_name(*value_name).help(*help));
    command.args(own).args(FLAGS.iter().map(arg))
}

fn arg(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value_name)
        .help(flag.help)
        .hide(flag.deprecated.is_some())
        .action(ArgAction::Append);
    let arg = if flag.name == "v" { arg.short('v') } else { arg };
    match flag.effect {
        Effect::AsSaid => arg,
        Effect::NotYet => arg.help_heading("Accepted, without effect so far"),
    }
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
            "version" => self.version = version::asked(value)?,
            "cleanup" | "init-only" | "help" | CUT_GONE_TCP => drop(config::flags::parse_bool(value)?),
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
        check(&config)?;
        if file.is_none() {
            self.check_empty_cidr(&config)?;
        }
        without_effect.extend(self.idle_flags(file.is_some()));
        if file.is_some() {
            without_effect.extend(config::without_effect(&config).into_iter().map(str::to_owned));
        }
        Ok(DaemonArgs {
            act: self.act(),
            tcp: if self.is_on(CUT_GONE_TCP) {
                TcpOption::CutGone
            } else {
                TcpOption::Never
            },
            master: self.text("master").map(str::to_owned),
            manifests: self.text("manifests").map(PathBuf::from),
            config_file: file,
            config,
            warnings,
            without_effect,
        })
    }

    /// Flags that were given, count, and do nothing here.
    fn idle_flags(&self, with_file: bool) -> impl Iterator<Item = String> {
        let counts = move |flag: &&Flag| !with_file || flag.with_config == WithConfig::FlagWins;
        let of_table = FLAGS.iter().filter(|flag| flag.effect == Effect::NotYet);
        let names = ["boot-id-file", "machine-id-file"]
            .into_iter()
            .chain(of_table.filter(counts).map(|flag| flag.name));
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

    /// An empty `--cluster-cidr` is one CIDR that is none; an empty field of a file is no CIDR at all (control.md 1.4).
    fn check_empty_cidr(&self, config: &KubeProxyConfiguration) -> Result<()> {
        let empty = self.given.get("cluster-cidr").is_some_and(String::is_empty);
        if empty && config.detect_local_mode == "ClusterCIDR" {
            bail!(
                "failed validate: KubeProxyConfiguration.DetectLocalConfiguration.ClusterCIDRs[0]: Invalid value: \"\": must be a valid CIDR block (e.g. 10.100.0.0/16 or fde4:8dba:82e1::/48)"
            );
        }
        Ok(())
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
    warnings.extend(
        notes
            .unknown
            .iter()
            .map(|name| format!("unrecognized feature gate: {name}")),
    );
    without_effect.extend(
        notes
            .without_effect
            .iter()
            .map(|name| format!("featureGates.{name}")),
    );
    Ok(())
}

/// Largest configuration file that is read, in bytes. It comes from a `ConfigMap`, which holds a megabyte.
const LARGEST_CONFIG: u64 = 4 << 20;

/// Reads a configuration file; unknown fields become warnings.
///
/// # Errors
/// Names the file, the field and the reason.
pub fn load_config(path: &Path, warnings: &mut Vec<String>) -> Result<KubeProxyConfiguration> {
    let text = read_config(path).with_context(|| {
        format!(
            "cannot read --config {}; check that it exists and that this process may read it",
            path.display()
        )
    })?;
    let decoded =
        config::decode(&text).map_err(|err| anyhow!("failed to decode: {}: {err}", path.display()))?;
    warnings.extend(decoded.doubled_key.iter().map(|words| {
        format!(
            "{}: {words}; the last value counts, remove the others",
            path.display()
        )
    }));
    warnings.extend(decoded.unknown_fields.iter().map(|field| {
        format!(
            "{}: unknown field {field:?} is ignored; check its spelling",
            path.display()
        )
    }));
    Ok(decoded.config)
}

/// The text of a file. A pipe would make us wait for whoever writes, and a device may never end.
fn read_config(path: &Path) -> std::io::Result<String> {
    let meta = std::fs::metadata(path)?;
    if !meta.is_file() && !meta.is_dir() {
        return Err(std::io::Error::other("is no regular file"));
    }
    if meta.len() > LARGEST_CONFIG {
        return Err(std::io::Error::other("is larger than a configuration can be"));
    }
    std::fs::read_to_string(path)
}

/// Everything that is invalid, at once; logging first, as upstream has it.
///
/// # Errors
/// One error with all faults.
pub fn check(config: &KubeProxyConfiguration) -> Result<()> {
    let stages = [
        ("initialize logging", config::validate_logging(config)),
        ("failed validate", config::validate(config)),
    ];
    for (stage, faults) in stages {
        let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
        match faults.as_slice() {
            [] => {}
            [one] => bail!("{stage}: {one}"),
            many => bail!("{stage}: [{}]", many.join(", ")),
        }
    }
    Ok(())
}

/// The Node's name as upstream finds it (control.md 3.1 row 4).
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
    Ok(name)
}
