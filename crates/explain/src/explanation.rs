//! The answer to one question.

use crate::asked::Asked;
use crate::causes::odd::endpoints_object;
use crate::causes::{network_policy, policy};
use crate::fate::RuleLine;
use crate::finding::{Advice, Cause, Finding, Severity};
use crate::named;
use crate::outside;
use crate::question::{From, Question, To};
use crate::seen_from;
use crate::sender::{Sender, SenderKind, Whose, sender};
use crate::stand_in;
use crate::target::{Aim, Target, aim};
use crate::world::{Mode, NodeChoice, Rules, World};
use model::{Family, Origin, Packet, ServiceName};
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
    /// Nobody can say: something is not known that it depends on. The first finding says what, and what to give.
    Unknown,
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
    let meant = match named::meant(world, question) {
        Ok(meant) => meant,
        Err(why) => return nowhere(world, question, None, *why),
    };
    let question = &meant.question;
    let mut answer = match &question.to {
        To::Service(name, port) if outside::is_outside(world, &question.from) => {
            outside::explain(world, question, name, port.as_ref())
        }
        _ => ask(world, question),
    };
    answer.findings.extend(meant.taken);
    let policies = network_policy::remarks(world, question, &answer);
    answer.findings.extend(policies);
    let other_node = seen_from::other_node(world, question, &answer);
    answer.findings.extend(other_node);
    answer
        .findings
        .sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    answer
}

/// Answers a question about the very address that it names, or about a Service's cluster IP.
pub(crate) fn ask(world: &World, question: &Question) -> Explanation {
    match aim(world, question) {
        Aim::Nowhere { service, why } => nowhere(world, question, service, *why),
        Aim::Packet(target) if let Some(why) = outside::not_routed(world, question, &target) => {
            nowhere(world, question, target.service, why)
        }
        Aim::Packet(target) => match sender(world, question, target.at.ip()) {
            Err(why) => whoever_sends(world, question, &why)
                .unwrap_or_else(|| nowhere(world, question, target.service, *why)),
            Ok(sender) if is_own_loopback(&sender, target.at.ip()) => {
                let why = own_loopback(world, &sender, &target);
                nowhere(world, question, target.service, why)
            }
            Ok(sender) => {
                let as_of = |sender: &Sender| Asked::new(world, sender, &target).answer();
                let answer = match sender.whose {
                    Whose::MadeUp => stand_in::answer(world, &sender, &target, as_of),
                    Whose::Given | Whose::Taken => as_of(&sender),
                };
                if let Some(why) = Asked::hangs_on_pods(world, &sender, &target) {
                    return stand_in::no_answer(answer, why, "what kube-proxy takes it for");
                }
                somewhere(world, question, &target, answer)
            }
        },
    }
}

/// The answer of this node, where it is that of every node that the client may be on.
fn somewhere(world: &World, question: &Question, target: &Target, answer: Explanation) -> Explanation {
    let is_nowhere = match &question.from {
        From::Name(name) => {
            let is_node = world.snapshot.node(&name.name).is_some();
            !is_node && world.objects.pod(name).is_none() && world.objects.addresses_of(name).is_empty()
        }
        _ => false,
    };
    let is_any_node = world.node_choice == NodeChoice::OneOfSeveral || world.facts.name.is_empty();
    if !is_nowhere || !is_any_node || world.rules == Rules::Observed {
        return answer;
    }
    match policy::differs_by_node(world, target, &answer) {
        Some(why) => stand_in::no_answer(answer, why, "the node that it is on"),
        None => answer,
    }
}

fn asked_words(question: &Question) -> (String, String) {
    use crate::question::Port;
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
        To::Name(name, None) => name.to_string(),
        To::Name(name, Some(Port::Number(number))) => format!("{name} port {number}"),
        To::Name(name, Some(Port::Name(port))) => format!("{name} port {port}"),
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

/// What stands whoever sends, where the one that is meant is not known: pods and clients outside fail for the same cause.
fn whoever_sends(world: &World, question: &Question, why: &Finding) -> Option<Explanation> {
    if !is_open(why) {
        return None;
    }
    let as_from = |from: From| {
        let question = Question {
            from,
            ..question.clone()
        };
        ask(world, &question)
    };
    let fails = |answer: &Explanation| {
        let first = answer.findings.first();
        first
            .filter(|_| answer.reach == Reach::No)
            .map(|first| first.cause)
    };
    let mut answer = as_from(From::Pod);
    let cause = fails(&answer)?;
    if fails(&as_from(From::Outside)) != Some(cause) {
        return None;
    }
    let what = format!("{}; it fails whoever sends", why.what);
    answer.findings.push(Finding {
        severity: Severity::Remark,
        what,
        ..why.clone()
    });
    answer.from = asked_words(question).0;
    Some(answer)
}

/// Whether the destination is loopback, and the sender is no process of the node: it is the sender itself, then.
fn is_own_loopback(sender: &Sender, to: IpAddr) -> bool {
    to.is_loopback() && sender.origin != Origin::Host
}

fn own_loopback(world: &World, sender: &Sender, target: &Target) -> Finding {
    let ip = target.at.ip();
    let who = match sender.kind {
        SenderKind::Pod => "the pod",
        SenderKind::Node | SenderKind::Outside => "the client",
    };
    let mut finding = Finding::fault(
        Cause::OwnLoopback,
        format!("{ip} is {who} itself: the packet never leaves it"),
    )
    .because("Loopback is everybody's own, a pod's too. No node sees the packet, so no rule is asked.");
    let own = world.own_addresses(Family::of(ip));
    if let Some(own) = own.first() {
        let at = SocketAddr::new(*own, target.at.port());
        finding = finding.advise(Advice::act(format!(
            "for a node port use the node's own address: {at}"
        )));
    }
    finding.advise(Advice::act("for a process of the node give --from node"))
}

/// Whether it says that the question cannot be answered, and not why something fails.
fn is_open(why: &Finding) -> bool {
    [Cause::NotKnown, Cause::NoSuchPod].contains(&why.cause)
}

/// There is nothing that a packet could be sent to, or nobody who could send it.
pub(crate) fn nowhere(
    world: &World,
    question: &Question,
    service: Option<ServiceName>,
    why: Finding,
) -> Explanation {
    let (from, to) = asked_words(question);
    let client = match why.cause {
        Cause::Headless => "connects to the pods' own addresses, which it gets from DNS".to_owned(),
        Cause::ExternalName => "connects to what DNS answers for that name".to_owned(),
        Cause::NoSuchService => "finds no name in DNS, and nobody at any address".to_owned(),
        Cause::OtherProxy => "is served by that other proxy, or by nobody".to_owned(),
        Cause::NotExposed if matches!(question.to, To::Address(..)) => {
            "gets no answer, unless the network sends that address to a node".to_owned()
        }
        Cause::IpModeProxy => "connects to the load balancer, which serves it or not".to_owned(),
        Cause::Claimed => "is connected to the Service that has the address".to_owned(),
        Cause::OwnLoopback => "is refused, unless a program of its own listens there".to_owned(),
        _ if is_open(&why) => "cannot be told of without that".to_owned(),
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
        reach: match findings.first() {
            _ if is_others(&findings) => Reach::NotOurs,
            Some(first) if is_open(first) => Reach::Unknown,
            _ => Reach::No,
        },
        client,
        deliveries: Vec::new(),
        findings,
        rules: Vec::new(),
        addresses: Vec::new(),
        next: next.into_iter().collect(),
    }
}
