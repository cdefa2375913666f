//! The daemon's flags: kube-proxy's own (a table in [`config::flags`]), and ours beside them.

use anyhow::{Context, Result, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::KubeProxyConfiguration;
use config::flags::{Effect, FLAGS, Flag, FlagKind, WithConfig};
use proxy::TcpOption;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Ours: upstream never cuts TCP connections.
const CUT_GONE_TCP: &str = "conntrack-cut-gone-tcp";

/// What the command line asks the daemon to do.
pub struct DaemonArgs {
    /// The configuration, from file or flags, defaulted and valid.
    pub config: KubeProxyConfiguration,
    /// `--master`, which counts beside `--config`.
    pub master: Option<String>,
    /// `--manifests`: objects come from here and not from an API server.
    pub manifests: Option<PathBuf>,
    /// The Node's name: `--hostname-override`, else the file's, else the host's; trimmed, lower case.
    pub node_name: String,
    /// `--conntrack-cut-gone-tcp`, which counts beside `--config`.
    pub tcp: TcpOption,
    /// What was odd and goes to the log: unknown fields, flags that a file replaces.
    pub warnings: Vec<String>,
}

/// Adds the daemon's flags to the command.
pub fn add_to(command: Command) -> Command {
    let own = [
        value(
            "config",
            "path",
            "Configuration file (KubeProxyConfiguration, YAML or JSON); replaces all flags but these: --manifests, --master, --conntrack-cut-gone-tcp, --hostname-override and the logging flags",
        ),
        value(
            "hostname-override",
            "name",
            "The Node's name, if it is not the host's",
        ),
        value(
            "master",
            "url",
            "The API server's URL, in place of the kubeconfig's",
        ),
        value(
            "manifests",
            "path",
            "A file or folder of manifests to take objects from, watched, in place of an API server",
        ),
    ];
    let cut = Arg::new(CUT_GONE_TCP)
        .long(CUT_GONE_TCP)
        .action(ArgAction::SetTrue)
        .help("Cut TCP connections to an endpoint that no slice of its service lists any more, so that clients need not wait for a timeout; never done without it");
    command.args(own).arg(cut).args(FLAGS.iter().map(arg))
}

fn value(name: &'static str, value_name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value_name).help(help)
}

fn arg(flag: &'static Flag) -> Arg {
    let arg = value(flag.name, flag.value_name, flag.help)
        .hide(flag.deprecated.is_some())
        .action(ArgAction::Append)
        .allow_hyphen_values(true);
    let arg = if flag.name == "v" { arg.short('v') } else { arg };
    let arg = match flag.effect {
        Effect::AsSaid => arg,
        Effect::NotYet => arg.help_heading("Accepted, without effect so far"),
    };
    match flag.kind {
        FlagKind::Bool => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        FlagKind::Value | FlagKind::List => arg.num_args(1),
    }
}

/// `--some_flag` is `--some-flag`, as pflag has it; values keep their underscores.
pub fn with_dashes(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    words
        .map(
            |word| match word.to_str().and_then(|text| text.strip_prefix("--")) {
                Some(flag) => {
                    let (name, rest) = flag.split_at(flag.find('=').unwrap_or(flag.len()));
                    format!("--{}{rest}", name.replace('_', "-")).into()
                }
                None => word,
            },
        )
        .collect()
}

impl DaemonArgs {
    /// Reads flags and configuration file.
    ///
    /// # Errors
    /// A bad flag, an unreadable or malformed file, or everything that is invalid at once.
    pub fn from_matches(matches: &ArgMatches) -> Result<DaemonArgs> {
        let mut warnings = Vec::new();
        let mut config = match matches.get_one::<String>("config") {
            Some(path) => load_config(Path::new(path), &mut warnings)?,
            None => KubeProxyConfiguration::defaults(),
        };
        apply_flags(&mut config, matches, &mut warnings)?;
        if let Some(name) = matches.get_one::<String>("hostname-override") {
            config.hostname_override.clone_from(name);
        }
        check(&config)?;
        Ok(DaemonArgs {
            node_name: node_name(&config)?,
            config,
            tcp: if matches.get_flag(CUT_GONE_TCP) {
                TcpOption::CutGone
            } else {
                TcpOption::Never
            },
            master: matches.get_one("master").cloned(),
            manifests: matches.get_one::<String>("manifests").map(PathBuf::from),
            warnings,
        })
    }
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
    let decoded = config::decode(&text).map_err(|err| anyhow!("{}: {err}", path.display()))?;
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
    if meta.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    if !meta.is_file() {
        return Err(std::io::Error::other("is no regular file"));
    }
    if meta.len() > LARGEST_CONFIG {
        return Err(std::io::Error::other("is larger than a configuration can be"));
    }
    std::fs::read_to_string(path)
}

/// Everything that is invalid, at once.
///
/// # Errors
/// One error with all faults.
pub fn check(config: &KubeProxyConfiguration) -> Result<()> {
    let faults: Vec<String> = config::validate(config).iter().map(ToString::to_string).collect();
    match faults.as_slice() {
        [] => Ok(()),
        [one] => bail!("failed validate: {one}"),
        many => bail!("failed validate: [{}]", many.join(", ")),
    }
}

fn apply_flags(
    config: &mut KubeProxyConfiguration,
    matches: &ArgMatches,
    warnings: &mut Vec<String>,
) -> Result<()> {
    let file = matches.contains_id("config") && matches.get_one::<String>("config").is_some();
    for flag in FLAGS {
        let Some(values) = matches.get_many::<String>(flag.name) else {
            continue;
        };
        if let Some(why) = flag.deprecated {
            warnings.push(format!("flag --{} is deprecated: {why}", flag.name));
        }
        if file && flag.with_config == WithConfig::FileWins {
            warnings.push(format!(
                "flag --{} is ignored, since --config is given",
                flag.name
            ));
            continue;
        }
        if flag.effect == Effect::NotYet {
            warnings.push(format!("flag --{} has no effect so far", flag.name));
        }
        for value in values {
            (flag.apply)(config, value).map_err(|reason| {
                anyhow!(
                    "invalid argument {value:?} for \"--{}\" flag: {reason}",
                    flag.name
                )
            })?;
        }
    }
    Ok(())
}

/// The Node's name as upstream finds it (control.md 3.1 row 4).
fn node_name(config: &KubeProxyConfiguration) -> Result<String> {
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
