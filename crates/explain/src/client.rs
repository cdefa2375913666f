//! What the client sees, and what to run next.

use crate::asked::Asked;
use crate::explanation::{Reach, Verdict};
use crate::fate::{Ended, Fate, answer_words};
use crate::finding::{Cause, Finding, Severity, Shown};
use crate::sender::{SenderKind, Whose};
use crate::stand_in;
use crate::world::{Mode, Rules};
use model::note::Subject;
use model::{Family, Protocol, ServiceName};

impl Asked<'_> {
    /// What the client sees; goes on after "the client ".
    pub(crate) fn client(&self, verdict: Verdict, reach: Reach) -> String {
        let protocol = self.target.protocol;
        let refused = self.fates.iter().find_map(|fate| match &fate.end {
            Ended::Refused(with) => Some(with.clone()),
            _ => None,
        });
        match verdict {
            Verdict::Dnat if reach == Reach::Yes => match self.endpoints().len() {
                1 => "is connected to the only endpoint".to_owned(),
                all => format!("is connected to one of {all} endpoints, by chance"),
            },
            Verdict::Dnat if matches!(reach, Reach::Fails(_)) => {
                "is connected, or gets no answer and waits until its time-out: that depends on the endpoint, by chance".to_owned()
            }
            Verdict::Accept => {
                "reaches the health check of the load balancer, which kube-proxy answers".to_owned()
            }
            Verdict::Reject => {
                answer_words(&refused.unwrap_or_else(|| "tcp-reset".into()), protocol).to_owned()
            }
            Verdict::Dnat if self.fates.iter().all(Fate::is_translated_by_others) => {
                "is connected to somebody else than it asked for, or to nobody".to_owned()
            }
            Verdict::Dnat | Verdict::Drop => "gets no answer: it waits until its time-out".to_owned(),
            Verdict::Unreachable => "fails at once (\"Network is unreachable\", ENETUNREACH)".to_owned(),
            Verdict::NotRoutedThroughNode => {
                "fails after about three seconds (\"No route to host\")".to_owned()
            }
            Verdict::ReplyNotTranslated if protocol == Protocol::Tcp => {
                "hangs, or sees resets: it does not know the address that answers".to_owned()
            }
            Verdict::ReplyNotTranslated => {
                "gets no answer: what answers is an address it does not know".to_owned()
            }
            Verdict::Untouched => self.untouched_words(reach),
            Verdict::NotServed => "has no address to connect to".to_owned(),
            Verdict::Mixed => self.mixed_words(reach),
        }
    }

    fn untouched_words(&self, reach: Reach) -> String {
        let at = self.target.at;
        let here = self.world.is_local(at.ip()) || stand_in::is_nodes(self.world, at.ip());
        match (here, reach) {
            (true, _) => format!("is refused, unless a program of the node listens on port {}", at.port()),
            (false, Reach::NotOurs) => "is not served by kube-proxy: the packet goes where it is addressed to".to_owned(),
            (false, _) => {
                "gets no answer, or \"No route to host\" from a router: the packet leaves with its destination unchanged".to_owned()
            }
        }
    }

    fn mixed_words(&self, reach: Reach) -> String {
        let undecided = self.fates.iter().find_map(|fate| match &fate.end {
            Ended::Undecided(why) => Some(why.clone()),
            _ => None,
        });
        match (undecided, reach) {
            (Some(why), _) => format!("may or may not get through: {why}"),
            (None, Reach::Fails(share)) => format!(
                "fails in about {:.0} of 100 connections, by chance",
                share * 100.0
            ),
            (None, _) => "sees one thing or another, by chance".to_owned(),
        }
    }

    /// What to run next.
    pub(crate) fn next(&self, findings: &[Finding], reach: Reach) -> Vec<String> {
        let mut next = Vec::new();
        let ip = self.sender.ip;
        if findings
            .first()
            .is_some_and(|first| first.cause == Cause::ForeignRule)
            && let Some(rule) = self.rules().last()
        {
            // Tables of nftables have their family before their name.
            next.push(if rule.table.contains(' ') {
                format!("nft -a list chain {} {}", rule.table, rule.chain)
            } else {
                format!("iptables-save -t {} | grep -e '{}'", rule.table, rule.chain)
            });
        }
        next.extend(findings.first().and_then(|first| self.look_at(first)));
        let from = match (self.sender.kind, self.sender.whose) {
            (SenderKind::Node, _) => "node".to_owned(),
            (SenderKind::Pod, Whose::Given) => format!("pod:{ip}"),
            (SenderKind::Pod, _) => "pod".to_owned(),
            (SenderKind::Outside, Whose::Given) => ip.to_string(),
            (SenderKind::Outside, _) => "outside".to_owned(),
        };
        let protocol = self.target.protocol.as_lower();
        let at = match self.target.at {
            at if stand_in::is_nodes(self.world, at.ip()) => format!("node:{}", at.port()),
            at => at.to_string(),
        };
        let list = match (self.world.mode, Family::of(ip)) {
            (Mode::Nftables, _) => "nft list ruleset",
            (Mode::Iptables, Family::V4) => "iptables-save",
            (Mode::Iptables, Family::V6) => "ip6tables-save",
        };
        match self.world.rules {
            Rules::Observed => {
                // An address that was made up is nobody's to ask for.
                let from = match (self.sender.kind, self.sender.whose) {
                    (_, Whose::MadeUp) | (SenderKind::Outside, Whose::Taken) => "IP".to_owned(),
                    _ => ip.to_string(),
                };
                next.push(format!("kube-proxy trace --dump FILE --from {from} --to {at} --proto {protocol}"));
            }
            _ if reach == Reach::Yes => next.push(format!(
                "if it fails all the same, on {}: {list} | kube-proxy explain --dump - --from {from} --to {at} --proto {protocol}",
                self.world.node_words()
            )),
            _ => {}
        }
        next
    }

    /// The command that shows what a finding is about.
    fn look_at(&self, finding: &Finding) -> Option<String> {
        if finding.severity == Severity::Remark || !self.world.has_objects() {
            return None;
        }
        let service = self
            .target
            .service
            .clone()
            .or_else(|| finding.objects.iter().find_map(service_of));
        let of = |what: &str, how: &str| {
            let name = service.as_ref()?;
            Some(format!(
                "kubectl get {what} -n {} {}{how}",
                name.namespace, name.name
            ))
        };
        match finding.cause {
            Cause::NodePortAddress => {
                let config = "kubectl get configmap -n kube-system kube-proxy -o yaml";
                Some(format!(
                    "{config} | grep -iA3 -e nodePortAddresses -e localhostNodePorts"
                ))
            }
            Cause::NotTheNodesAddress | Cause::SeenFrom => Some("kubectl get nodes -o wide".to_owned()),
            Cause::SourceRange => of("service", " -o jsonpath='{.spec.loadBalancerSourceRanges}'"),
            _ if is_of_slices(finding) => {
                let name = service.as_ref()?;
                let label = format!("kubernetes.io/service-name={}", name.name);
                Some(format!(
                    "kubectl get endpointslices -n {} -l {label} -o yaml",
                    name.namespace
                ))
            }
            _ if finding.objects.iter().any(|object| object.kind == "Service") => of("service", " -o yaml"),
            _ => None,
        }
    }
}

fn service_of(object: &Subject) -> Option<ServiceName> {
    (object.kind == "Service").then(|| ServiceName::new(object.namespace.clone(), object.name.clone()))
}

/// Whether slices or pods are the matter, or where they are: by the kind of finding, or since it names some.
fn is_of_slices(finding: &Finding) -> bool {
    let mut objects = finding.objects.iter();
    finding.cause.shown() == Shown::Slices
        || objects.any(|object| ["EndpointSlice", "Pod"].contains(&object.kind))
}
