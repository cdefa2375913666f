//! The daemon's flags in `--help`: in groups, with their defaults, and our own apart from upstream's.

use super::OWN;
use clap::{Arg, ArgAction, Command};
use config::KubeProxyConfiguration;
use config::flags::{Effect, FLAGS, FlagKind};

/// Upstream's flags that fill no field of the configuration. What else is in [`OWN`] is ours.
const UPSTREAMS: [&str; 10] = [
    "boot-id-file",
    "cleanup",
    "config",
    "help",
    "hostname-override",
    "init-only",
    "machine-id-file",
    "master",
    "version",
    "write-config-to",
];

/// What does nothing.
const IDLE: &str = "Accepted, without effect";

/// Groups, in order, and the flags in each: names, or beginnings of names.
const GROUPS: [(&str, &[&str]); 8] = [
    (
        "Process and node",
        &[
            "config",
            "hostname-override",
            "bind-address",
            "feature-gates",
            "oom-score-adj",
        ],
    ),
    (
        "Instead of serving",
        &["cleanup", "init-only", "version", "write-config-to"],
    ),
    ("API server", &["master", "kubeconfig", "kube-api-"]),
    (
        "Traffic and rules",
        &[
            "proxy-mode",
            "cluster-cidr",
            "detect-local-mode",
            "pod-",
            "masquerade-all",
            "nodeport-addresses",
            "iptables-",
        ],
    ),
    ("Connection tracking", &["conntrack-"]),
    (
        "Health, metrics and profiling",
        &["bind-address-hard-fail", "healthz-", "metrics-", "profiling"],
    ),
    ("Logging", &["v", "vmodule", "log-", "logging-format"]),
    (OURS, &[]),
];

/// What upstream does not know.
const OURS: &str = "Not in upstream's kube-proxy";

/// One flag, for the help.
struct Shown {
    name: &'static str,
    kind: FlagKind,
    value_name: &'static str,
    help: String,
    group: &'static str,
    hidden: bool,
}

/// Adds the daemon's flags to the command, for its help.
pub fn add_to(command: Command) -> Command {
    let own = OWN
        .iter()
        .filter(|(name, ..)| *name != "help")
        .map(|(name, kind, value_name, help)| Shown {
            name,
            kind: *kind,
            value_name,
            help: (*help).to_owned(),
            group: group(name, UPSTREAMS.contains(name), help.starts_with("Accepted")),
            hidden: false,
        });
    let usual = KubeProxyConfiguration::before_flags();
    let of_table = FLAGS.iter().map(|flag| Shown {
        name: flag.name,
        kind: flag.kind,
        value_name: flag.value_name,
        help: match config::flag_value(flag.name, &usual).as_deref() {
            None | Some("" | "[]" | "false") => flag.help.to_owned(),
            Some(value) => format!("{} [{value}]", flag.help),
        },
        group: group(flag.name, true, flag.effect == Effect::NotYet),
        hidden: flag.deprecated.is_some(),
    });
    let mut flags: Vec<Shown> = own.chain(of_table).collect();
    let place = |flag: &Shown| {
        GROUPS
            .iter()
            .position(|(name, _)| *name == flag.group)
            .unwrap_or(GROUPS.len())
    };
    flags.sort_by_key(|flag| (place(flag), flag.name));
    command.args(flags.into_iter().map(arg))
}

fn group(name: &str, is_upstreams: bool, is_idle: bool) -> &'static str {
    if !is_upstreams {
        return OURS;
    }
    if is_idle {
        return IDLE;
    }
    let fits = |known: &&str| *known == name || (known.ends_with('-') && name.starts_with(*known));
    let found = GROUPS.iter().find(|(_, names)| names.iter().any(&fits));
    found.map_or(GROUPS[0].0, |(group, _)| group)
}

fn arg(flag: Shown) -> Arg {
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value_name)
        .help(flag.help)
        .help_heading(flag.group)
        .hide(flag.hidden)
        .action(ArgAction::Append);
    let arg = if flag.kind == FlagKind::Bool {
        arg.num_args(0..=1).require_equals(true)
    } else {
        arg
    };
    if flag.name == "v" { arg.short('v') } else { arg }
}
