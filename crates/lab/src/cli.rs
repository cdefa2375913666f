//! `kube-proxy lab ...`: labs for people.
//!
//! Exit statuses: 0 done, 1 a probe was not answered, 2 it could not be done; of `run`, the command's own, and 128 and
//! the signal's number if one ended it.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use crate::topology::{Outside, Pod, Port, Topology};
use crate::{Lab, LabError, LabProcess, Life, Options, Probe, ProbeOutcome, Servers};
use crate::{cluster, netns, rootless, seed, serve};

/// The prefix of a lab whose maker named none.
const PREFIX: &str = "kp";

/// How long a proxy may take to end by itself.
const PROXY_ENDS: Duration = Duration::from_secs(5);

/// What `kube-proxy lab --help` prints, and what it adds when it does not understand.
pub const USAGE: &str = "\
usage: kube-proxy lab COMMAND [--prefix P]
  demo    [--output FORM] [--tamper COMMAND]     three requests through a Service, every rule predicted and observed
          [--proxy-mode MODE]                    (`kube-proxy lab demo --help` tells more)
  tour    [--pause] [--drawings DIR] [--output FORM]  what Services are, step by step, with what to look at
          [--proxy-mode MODE]                    (`kube-proxy lab tour --help` tells more)
  up      [--topology FILE | --cluster FILE]     build a lab that stays until `lab down` (needs root)
          [--proxy-mode MODE]
  run     [--topology FILE | --cluster FILE] [--manifests DIR] [--config FILE | --proxy-mode MODE] [-- COMMAND ...]
          build a lab for one command (a shell if none is given), with this binary running as the proxy on each
          node if there are manifests; works without root where user namespaces are allowed
  down    remove everything of a lab
  show    say what a running lab consists of
  probe   FROM tcp|udp|sctp ADDRESS:PORT [COUNT]      connect from a node, a pod or a client of a running lab
  exec    PLACE -- COMMAND ...                   run a command there; in a pod with its resolver, if the lab has DNS
MODE is iptables or nftables: how the proxies run, and what `up` names to look into a node with.
FILE is JSON: a topology of the lab, or a List of a cluster's objects. Without one the lab is the demonstration
cluster: node-a at 192.168.50.238, node-b at .239, spring-test and sender behind node ports, kube-dns, a client.";

/// Runs `kube-proxy lab` with these arguments (without `lab`) and says how the process should exit.
///
/// `ourselves` is the command whose last word is `lab`, with which the lab starts its servers and proxies: usually
/// the program's path and `lab`.
pub fn run(args: &[String], ourselves: &[String]) -> u8 {
    if asks_for_help(args) {
        print(USAGE);
        return 0;
    }
    let result = match args.split_first() {
        Some((command, rest)) if command == "serve" => serve::run(rest).map(|()| 0),
        Some((command, rest)) => Request::parse(rest).and_then(|request| request.run(command, ourselves)),
        None => Err(usage("no command")),
    };
    result.unwrap_or_else(|error| {
        complain(&error.chain());
        2
    })
}

/// Whether our own words ask for help; those behind `--` are another command's.
fn asks_for_help(args: &[String]) -> bool {
    let mut ours = args.iter().take_while(|arg| *arg != "--");
    ours.any(|arg| arg == "--help" || arg == "-h") || args == ["help"]
}

/// How proxies run in a lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As the configuration says, which is iptables without one.
    #[default]
    AsConfigured,
    /// `--proxy-mode iptables`.
    Iptables,
    /// `--proxy-mode nftables`.
    Nftables,
}

impl Mode {
    fn parse(word: &str) -> Result<Mode, LabError> {
        match word {
            "iptables" => Ok(Mode::Iptables),
            "nftables" => Ok(Mode::Nftables),
            other => Err(usage(&format!("--proxy-mode {other}: iptables or nftables"))),
        }
    }

    /// The flag's word.
    fn word(self) -> Option<&'static str> {
        match self {
            Mode::AsConfigured => None,
            Mode::Iptables => Some("iptables"),
            Mode::Nftables => Some("nftables"),
        }
    }

    /// What shows a node's rules.
    fn look(self) -> &'static str {
        match self {
            Mode::AsConfigured | Mode::Iptables => "iptables-save",
            Mode::Nftables => "nft list table ip kube-proxy",
        }
    }
}

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    prefix: Option<String>,
    topology: Option<PathBuf>,
    cluster: Option<PathBuf>,
    manifests: Option<PathBuf>,
    config: Option<PathBuf>,
    mode: Mode,
    words: Vec<String>,
    command: Vec<String>,
}

impl Request {
    fn parse(args: &[String]) -> Result<Self, LabError> {
        let mut request = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| usage(&format!("{arg} needs a value")));
            match arg.as_str() {
                "--prefix" => request.prefix = Some(value()?.clone()),
                "--topology" => request.topology = Some(value()?.into()),
                "--cluster" => request.cluster = Some(value()?.into()),
                "--manifests" => request.manifests = Some(value()?.into()),
                "--config" => request.config = Some(value()?.into()),
                "--proxy-mode" => request.mode = Mode::parse(value()?)?,
                "--" => request.command = args.by_ref().cloned().collect(),
                flag if flag.starts_with('-') => return Err(usage(&format!("unknown flag {flag}"))),
                word => request.words.push(word.to_owned()),
            }
        }
        if request.config.is_some() && request.mode != Mode::AsConfigured {
            // A configuration's values count, and the flags beside it do not.
            return Err(usage(
                "--proxy-mode beside --config says nothing: write mode into the file",
            ));
        }
        Ok(request)
    }

    fn run(&self, command: &str, ourselves: &[String]) -> Result<u8, LabError> {
        match command {
            "up" => self.up(ourselves),
            "run" => self.run_command(ourselves),
            "down" => self.down(),
            "show" => {
                print(&describe(Lab::attach(self.prefix())?.topology(), self.mode));
                Ok(0)
            }
            "probe" => self.probe(),
            "exec" => self.exec(),
            other => Err(usage(&format!("unknown command {other}"))),
        }
    }

    fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or(PREFIX)
    }

    fn topology(&self) -> Result<Topology, LabError> {
        match (&self.topology, &self.cluster) {
            (Some(_), Some(_)) => Err(usage("--topology and --cluster exclude each other")),
            (Some(path), None) => {
                let mut topology: Topology = read_json(path)?;
                if let Some(prefix) = &self.prefix {
                    topology.prefix.clone_from(prefix);
                }
                Ok(topology)
            }
            (None, Some(path)) => Ok(cluster::topology(
                self.prefix(),
                &cluster::read(&read_json(path)?),
            )),
            (None, None) => Ok(seed::topology(self.prefix())),
        }
    }

    fn up(&self, ourselves: &[String]) -> Result<u8, LabError> {
        if !rustix::process::geteuid().is_root() {
            let why = "a lab without root ends with its process: use `lab run`";
            return Err(LabError::Rootless(why.to_owned()));
        }
        let servers = Servers::Process([ourselves, &["serve".to_owned()]].concat());
        let lab = Lab::up_with(
            &self.topology()?,
            &Options {
                servers,
                life: Life::Detached,
            },
        )?;
        print(&describe(lab.topology(), self.mode));
        lab.notes().iter().for_each(|note| complain(note));
        Ok(0)
    }

    fn down(&self) -> Result<u8, LabError> {
        let count = netns::sweep(self.prefix())?;
        print(&format!("{count} namespaces removed"));
        Ok(0)
    }

    fn run_command(&self, ourselves: &[String]) -> Result<u8, LabError> {
        rootless::reexec_rootless()?;
        let lab = Lab::up(&self.topology()?)?;
        lab.notes().iter().for_each(|note| complain(note));
        let proxies = self.start_proxies(&lab, ourselves)?;
        let shell = || vec![env::var("SHELL").unwrap_or_else(|_| "sh".to_owned())];
        let argv = if self.command.is_empty() {
            shell()
        } else {
            self.command.clone()
        };
        if self.command.is_empty() {
            print(&describe(lab.topology(), self.mode));
        }
        let (program, rest) = argv
            .split_first()
            .expect("invariant: a shell or a command that is not empty");
        let status = Command::new(program)
            .args(rest)
            .env("LAB_PREFIX", &lab.topology().prefix)
            .env("LAB_FOLDER", lab.folder())
            .status()
            .map_err(|source| LabError::system(format!("run {program}"), source));
        for proxy in proxies {
            proxy.stop(PROXY_ENDS)?;
        }
        lab.down()?;
        Ok(passed_on(status?))
    }

    fn start_proxies(&self, lab: &Lab, ourselves: &[String]) -> Result<Vec<LabProcess>, LabError> {
        let Some(manifests) = &self.manifests else {
            return Ok(vec![]);
        };
        let binary = ourselves
            .first()
            .ok_or_else(|| usage("no program to run as the proxy"))?;
        let manifests = manifests.to_string_lossy();
        let config = self.config.as_ref().map(|config| config.to_string_lossy());
        let mut proxies = vec![];
        for node in &lab.topology().nodes {
            let mut argv = vec![
                binary.as_str(),
                "--manifests",
                &manifests,
                "--hostname-override",
                &node.name,
            ];
            if let Some(config) = &config {
                argv.extend(["--config", config]);
            }
            if let Some(mode) = self.mode.word() {
                argv.extend(["--proxy-mode", mode]);
            }
            proxies.push(lab.spawn(&node.name, &argv, &format!("proxy-{}", node.name))?);
        }
        Ok(proxies)
    }

    fn exec(&self) -> Result<u8, LabError> {
        let ([place], false) = (self.words.as_slice(), self.command.is_empty()) else {
            return Err(usage("exec wants PLACE -- COMMAND ..."));
        };
        let lab = Lab::attach(self.prefix())?;
        let argv: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let argv = lab.as_at(place, &argv);
        let (program, rest) = argv.split_first().expect("invariant: checked above");
        let run = || Command::new(program).args(rest).status();
        let status = lab.namespace(place)?.run(run)?;
        let status =
            status.map_err(|source| LabError::system(format!("run {program} at {place}"), source))?;
        Ok(passed_on(status))
    }

    fn probe(&self) -> Result<u8, LabError> {
        let (from, proto, dst, count) = match self.words.as_slice() {
            [from, proto, dst] => (from, proto, dst, Ok(1)),
            [from, proto, dst, count] => (from, proto, dst, count.parse::<usize>()),
            _ => return Err(usage("probe wants FROM tcp|udp|sctp ADDRESS:PORT [COUNT]")),
        };
        let count = count.map_err(|error| usage(&format!("COUNT: {error}")))?;
        let dst: SocketAddr = dst.parse().map_err(|error| usage(&format!("{dst}: {error}")))?;
        let probe = match proto.as_str() {
            "tcp" => Probe::tcp(dst),
            "udp" => Probe::udp(dst),
            "sctp" => Probe::sctp(dst),
            other => return Err(usage(&format!("{other} is neither tcp nor udp nor sctp"))),
        };
        let outcomes = Lab::attach(self.prefix())?.probe_many(from, probe, count)?;
        for outcome in &outcomes {
            print(&outcome_text(outcome));
        }
        Ok(u8::from(
            outcomes.iter().any(|outcome| outcome.answered_by().is_none()),
        ))
    }
}

/// A command's end as a shell tells it.
fn passed_on(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, LabError> {
    let text = fs::read(path).map_err(|e| LabError::system(format!("read {}", path.display()), e))?;
    serde_json::from_slice(&text).map_err(|e| LabError::Topology(format!("{}: {e}", path.display())))
}

/// A topology in a person's words, one place a line, with the command that looks into a node.
pub fn describe(topology: &Topology, mode: Mode) -> String {
    let mut lines = vec![];
    for node in &topology.nodes {
        let own = join(node.all_addresses());
        let look = format!(
            "ip netns exec {} {}",
            topology.namespace_name(&node.name),
            mode.look()
        );
        lines.push(format!(
            "{:16} {own}, pods {}    {look}",
            node.name,
            join(&node.pod_cidrs)
        ));
        for pod in topology.pods.iter().filter(|pod| pod.node == node.name) {
            lines.push(describe_pod(pod));
        }
    }
    lines.extend(topology.outside.iter().map(describe_outside));
    if let Some(sink) = &topology.sink {
        lines.push(format!("{:16} answers for {}", sink.name, join(&sink.claims)));
    }
    lines.join("\n")
}

fn describe_pod(pod: &Pod) -> String {
    format!(
        "  {:14} {}  {}",
        pod.name,
        join(&pod.addresses),
        describe_ports(&pod.ports)
    )
}

fn describe_outside(outside: &Outside) -> String {
    let routes = outside
        .routes
        .iter()
        .map(|route| format!("; {} via {}", route.to, route.via));
    let routes: String = routes.collect();
    format!("{:16} {}{routes}", outside.name, join(&outside.addresses))
}

fn describe_ports(ports: &[Port]) -> String {
    join(ports.iter().map(|port| format!("{}/{}", port.proto, port.port)))
}

fn join<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .map(|item| item.to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

/// An outcome in a person's words.
pub fn outcome_text(outcome: &ProbeOutcome) -> String {
    match outcome {
        ProbeOutcome::Answered {
            name,
            seen_client,
            seen_destination: None,
        } => {
            format!("answered by {name}, which saw {seen_client}")
        }
        ProbeOutcome::Answered {
            name,
            seen_client,
            seen_destination: Some(destination),
        } => {
            format!("untouched: {name} saw {seen_client} -> {destination}")
        }
        ProbeOutcome::Refused(refusal) => format!("refused: {refusal:?}"),
        ProbeOutcome::Timeout => "no answer".to_owned(),
        ProbeOutcome::Unreachable(why) => format!("unreachable: {why}"),
        ProbeOutcome::Failed(why) => format!("failed: {why}"),
    }
}

fn usage(what: &str) -> LabError {
    LabError::Usage(format!("{what}\n{USAGE}"))
}

/// A closed pipe ends quietly.
fn print(text: &str) {
    let _closed = writeln!(io::stdout(), "{text}");
}

fn complain(text: &str) {
    let _closed = writeln!(io::stderr(), "lab: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags_words_and_the_command_are_told_apart() {
        let request =
            Request::parse(&args("--prefix x node-a --cluster c.json tcp -- ls -l --prefix")).unwrap();
        assert_eq!(request.prefix(), "x");
        assert_eq!(request.cluster, Some("c.json".into()));
        assert_eq!(request.words, ["node-a", "tcp"]);
        assert_eq!(request.command, ["ls", "-l", "--prefix"]);
    }

    #[test]
    fn what_is_not_understood_could_not_be_done() {
        for text in [
            "",
            "frobnicate",
            "up --what",
            "down --prefix",
            "up --proxy-mode ipvs",
            "run --config c.yaml --proxy-mode nftables",
            "probe a sctp 10.0.0.1:1",
            "probe a tcp b",
            "exec a",
            "exec -- true",
            "exec a b -- true",
        ] {
            assert_eq!(run(&args(text), &[]), 2, "{text}");
        }
    }

    #[test]
    fn help_is_an_answer_unless_it_is_the_commands() {
        for text in ["--help", "-h", "help", "up --help", "run --prefix x -h"] {
            assert_eq!(run(&args(text), &[]), 0, "{text}");
        }
        assert!(!asks_for_help(&args("run -- ls --help")));
    }

    #[test]
    fn the_description_names_every_place() {
        let topology = seed::topology("kp");
        let text = describe(&topology, Mode::AsConfigured);
        for place in topology
            .places()
            .into_iter()
            .filter(|place| *place != crate::topology::WIRE)
        {
            assert!(text.contains(place), "{place} is missing in\n{text}");
        }
        assert!(text.contains("ip netns exec kp-node-a iptables-save"), "{text}");
        let text = describe(&topology, Mode::Nftables);
        assert!(
            text.contains("ip netns exec kp-node-a nft list table ip kube-proxy"),
            "{text}"
        );
    }
}
