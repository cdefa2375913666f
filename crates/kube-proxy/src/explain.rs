//! `kube-proxy explain`: why a Service can or cannot be reached, in the words of the user's objects.
//!
//! Reads objects, a host's saved rules and facts, hands them to [`explain::explain`], and prints one screen or JSON. Exit
//! status: 0 when there is nothing to report, 1 for a finding, 2 when there is no answer.

pub(crate) mod gather;
mod json;

use crate::failure::Answer;
use crate::input::{ClusterArgs, Form, ServerArgs, ShownArgs};
use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;
use explain::{Explanation, From, Question, Reach, To, World, assemble, screen};
use std::io::Write as _;
use std::path::PathBuf;

/// Say why a Service can or cannot be reached, in the words of its objects.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Objects come from --manifests, or from the API server (--kubeconfig, --master); a host's own rules from
--dump. Any of them alone is enough, and together they tell more. Pods are looked at when they are there.

Examples:
  kube-proxy explain --kubeconfig ~/.kube/config --from shop/web-7c9f --to cart.shop:80
  kubectl get svc,endpointslices,pods,nodes -A -o yaml | kube-proxy explain --manifests - --from pod --to shop/cart
  kube-proxy explain --manifests ./cluster --node node-a --from outside --to 192.0.2.11:30080
  iptables-save | kube-proxy explain --dump - --facts node.yaml --from pod:10.244.1.5 --to 10.96.0.10:53 --proto udp

Exit status: 0 reachable and nothing to report, 1 a finding, 2 no answer: what to give is told."
)]
pub struct Args {
    /// Who sends: NAMESPACE/POD, an IP address, pod (any pod of the node), pod:IP, node, a Node's name, or outside.
    #[arg(long, value_name = "WHO", default_value = "pod")]
    from: From,
    /// Where to: NAMESPACE/SERVICE[:PORT], SERVICE.NAMESPACE.svc[:PORT], SERVICE[:PORT] as the sender's DNS has it, IP:PORT,
    /// NODE:NODEPORT by a Node's name, node:NODEPORT, or the URL a client has.
    #[arg(long, value_name = "WHAT")]
    to: To,
    /// Transport protocol. Without it, the Service's.
    #[arg(long)]
    proto: Option<Proto>,
    /// The interface the packet comes in through, where facts do not say.
    #[arg(long, value_name = "IF")]
    in_interface: Option<String>,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    shown: ShownArgs,
}

/// Where a world comes from.
#[derive(clap::Args, Debug)]
pub struct Sources {
    #[command(flatten)]
    server: ServerArgs,
    /// The host's rules as `iptables-save` or `ip6tables-save` (once a family) or `nft list ruleset` prints them; `-` for
    /// standard input.
    #[arg(long, value_name = "FILE|-", help_heading = "Cluster and node")]
    dump: Vec<String>,
    /// Facts of the host, in YAML: addresses, interfaces, routes, sysctl, listening, config (docs/explain.md).
    #[arg(long, value_name = "FILE", help_heading = "Cluster and node")]
    facts: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Proto {
    /// TCP.
    #[value(alias = "TCP")]
    Tcp,
    /// UDP.
    #[value(alias = "UDP")]
    Udp,
    /// SCTP.
    #[value(alias = "SCTP")]
    Sctp,
}

/// Answers one question on standard output.
///
/// # Errors
/// When there is nothing to look at, or something cannot be read.
pub fn run(args: &Args) -> Result<Answer> {
    let question = args.question();
    let parts = gather::parts(&args.sources, &question)?;
    let world = assemble(parts, &question)
        .map_err(anyhow::Error::msg)
        .context("cannot answer")?;
    let answer = explain::explain(&world, &question);
    print(args, &answer)?;
    Ok(match answer.reach {
        Reach::Unknown => Answer::Blind,
        _ if answer.has_findings() => Answer::Findings,
        _ => Answer::Clean,
    })
}

/// All that these sources say, as the node sees it that they name.
///
/// # Errors
/// When there is nothing to look at, or something cannot be read.
pub fn world_of(sources: &Sources) -> Result<World> {
    // Of no Service: nothing is read for its sake.
    let question = Question {
        from: From::Pod,
        to: To::NodePort(1),
        protocol: None,
        in_interface: None,
    };
    let parts = gather::parts(sources, &question)?;
    assemble(parts, &question).map_err(anyhow::Error::msg)
}

fn print(args: &Args, answer: &Explanation) -> Result<()> {
    let mut out = anstream::stdout().lock();
    match args.shown.output {
        Form::Text => write!(out, "{}", screen::text(answer, args.shown.columns()))?,
        Form::Json => json::write(&mut out, answer)?,
    }
    out.flush()?;
    Ok(())
}

impl Args {
    fn question(&self) -> Question {
        Question {
            from: self.from.clone(),
            to: self.to.clone(),
            protocol: self.proto.map(|proto| match proto {
                Proto::Tcp => model::Protocol::Tcp,
                Proto::Udp => model::Protocol::Udp,
                Proto::Sctp => model::Protocol::Sctp,
            }),
            in_interface: self.in_interface.as_deref().map(Into::into),
        }
    }
}

impl Sources {
    /// Whether nothing was named to look at.
    pub fn are_none(&self) -> bool {
        self.cluster.manifests.is_none() && !self.server.is_given() && self.dump.is_empty()
    }

    /// There has to be something to look at.
    fn check(&self) -> Result<()> {
        if self.are_none() {
            bail!(
                "nothing to look at: give objects (--manifests PATH, or --kubeconfig FILE for the API server) or a host's rules \
                 (iptables-save | kube-proxy explain --dump - ...)"
            );
        }
        let inputs = self
            .dump
            .iter()
            .map(String::as_str)
            .chain(self.cluster.manifests.as_ref().and_then(|path| path.to_str()));
        if inputs.filter(|input| *input == "-").count() > 1 {
            bail!("standard input can be read once: give files for --manifests and --dump");
        }
        Ok(())
    }
}
