//! The answer to one question.

use crate::asked::Asked;
use crate::causes::odd::endpoints_object;
use crate::fate::RuleLine;
use crate::finding::{Cause, Finding, Severity};
use crate::question::Question;
use crate::sender::sender;
use crate::target::{Aim, aim};
use crate::world::{Mode, Rules, World};
use model::{Packet, ServiceName};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// What becomes of the packet, in the words of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is sent to an endpoint and gets through.
    Dnat,
    /// It is accepted for the node itself: the health check of a load balancer.
    Accept,
    /// It is refused: the client is told.
    Reject,
    /// It vanishes.
    Drop,
    /// No rule sends it anywhere: it keeps its destination.
    Untouched,
    /// The node has no route for it.
    Unreachable,
    /// It never comes to the node's rules.
    NotRoutedThroughNode,
    /// It arrives, and the client cannot use the reply.
    ReplyNotTranslated,
    /// There is no packet that could be sent: the Service has no address for it.
    NotServed,
    /// Different ones of these, by chance or by what is not known.
    Mixed,
}

impl Verdict {
    /// The word that programs read. Stable.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Dnat => "DNAT",
            Verdict::Accept => "ACCEPT",
            Verdict::Reject => "REJECT",
            Verdict::Drop => "DROP",
            Verdict::Untouched => "UNTOUCHED",
            Verdict::Unreachable => "UNREACHABLE",
            Verdict::NotRoutedThroughNode => "NOT_ROUTED_THROUGH_NODE",
            Verdict::ReplyNotTranslated => "REPLY_NOT_TRANSLATED",
            Verdict::NotServed => "NOT_SERVED",
            Verdict::Mixed => "MIXED",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether the sender reaches what it asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// Always.
    Yes,
    /// This share of connections fails, between 0 and 1.
    Fails(f64),
    /// Never.
    No,
    /// The packet goes where it is sent to without kube-proxy; whether it arrives is not for kube-proxy to say.
    NotOurs,
}

/// One endpoint that the packet may be sent to.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The endpoint.
    pub endpoint: SocketAddr,
    /// How likely it is.
    pub chance: f64,
    /// Whether it sees another source than the client's address.
    pub is_masqueraded: bool,
    /// The source it sees, when that is known.
    pub source: Option<IpAddr>,
    /// The Pod behind it, when it is known.
    pub pod: Option<String>,
    /// The Node it is on, when it is known.
    pub node: Option<String>,
    /// Its state in the slices, when it is known.
    pub state: Option<&'static str>,
    /// Whether the connection works.
    pub works: bool,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Who sends, in words.
    pub from: String,
    /// Where to, in words.
    pub to: String,
    /// The node whose rules were asked, in words.
    pub node: String,
    /// The proxy's mode.
    pub mode: Mode,
    /// Where the rules come from.
    pub rules_are: Rules,
    /// The packet, when there is one.
    pub packet: Option<Packet>,
    /// The Service, when there is one.
    pub service: Option<ServiceName>,
    /// What becomes of the packet.
    pub verdict: Verdict,
    /// Whether the sender reaches what it asked for.
    pub reach: Reach,
    /// What the client sees: goes on after "the client ".
    pub client: String,
    /// The endpoints, in the order of the rules.
    pub deliveries: Vec<Delivery>,
    /// Everything to report, what matters most first.
    pub findings: Vec<Finding>,
    /// The rules concerned.
    pub rules: Vec<RuleLine>,
    /// For node ports: the addresses on which this one answers.
    pub addresses: Vec<IpAddr>,
    /// What to run next.
    pub next: Vec<String>,
}

impl Explanation {
    /// Whether there is something to report: more than remarks.
    pub fn has_findings(&self) -> bool {
        self.findings
            .iter()
            .any(|finding| finding.severity > Severity::Remark)
    }
}

/// Answers a question.
pub fn explain(world: &World, question: &Question) -> Explanation {
    match aim(world, question) {
        Aim::Nowhere { service, why } => nowhere(world, question, service, *why),
        Aim::Packet(target) => match sender(world, question, target.at.ip()) {
            Err(why) => nowhere(world, question, target.service, *why),
            Ok(sender) => Asked::new(world, &sender, &target).answer(),
        },
    }
}

fn asked_words(question: &Question) -> (String, String) {
    use crate::question::{From, Port, To};
    let from = match &question.from {
        From::Name(name) => name.to_string(),
        From::PodAddress(ip) => format!("pod {ip}"),
        From::Pod => "a pod of the node".to_owned(),
        From::Address(ip) => ip.to_string(),
        From::Node => "a process on the node".to_owned(),
        From::NamedNode(name) => format!("node {name}"),
        From::Outside => "a client outside of the cluster".to_owned(),
    };
    let to = match &question.to {
        To::Service(name, None) => name.to_string(),
        To::Service(name, Some(Port::Number(number))) => format!("{name} port {number}"),
        To::Service(name, Some(Port::Name(port))) => format!("{name} port {port}"),
        To::Address(ip, None) => ip.to_string(),
        To::Address(ip, Some(port)) => SocketAddr::new(*ip, *port).to_string(),
        To::NodePort(port) => format!("node port {port}"),
    };
    (from, to)
}

/// Whether what matters most is that somebody else serves it: DNS, another proxy, a load balancer.
pub(crate) fn is_others(findings: &[Finding]) -> bool {
    const OTHERS: [Cause; 4] = [
        Cause::Headless,
        Cause::ExternalName,
        Cause::OtherProxy,
        Cause::IpModeProxy,
    ];
    findings
        .first()
        .is_some_and(|first| OTHERS.contains(&first.cause))
}

/// There is nothing that a packet could be sent to, or nobody who could send it.
fn nowhere(world: &World, question: &Question, service: Option<ServiceName>, why: Finding) -> Explanation {
    let (from, to) = asked_words(question);
    let client = match why.cause {
        Cause::Headless => "connects to the pods' own addresses, which it gets from DNS".to_owned(),
        Cause::ExternalName => "connects to what DNS answers for that name".to_owned(),
        Cause::NoSuchService => "finds no name in DNS, and nobody at any address".to_owned(),
        Cause::OtherProxy => "is served by that other proxy, or by nobody".to_owned(),
        _ => "has no address to connect to".to_owned(),
    };
    let mut findings = vec![why];
    findings.extend(service.as_ref().and_then(|name| endpoints_object(world, name)));
    let next = service
        .as_ref()
        .map(|name| format!("kubectl get service -n {} {} -o yaml", name.namespace, name.name));
    Explanation {
        from,
        to,
        node: world.node_words(),
        mode: world.mode,
        rules_are: world.rules,
        packet: None,
        service,
        verdict: Verdict::NotServed,
        reach: if is_others(&findings) {
            Reach::NotOurs
        } else {
            Reach::No
        },
        client,
        deliveries: Vec::new(),
        findings,
        rules: Vec::new(),
        addresses: Vec::new(),
        next: next.into_iter().collect(),
    }
}
