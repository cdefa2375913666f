//! What the client sees, and what to run next.

use crate::asked::Asked;
use crate::explanation::{Reach, Verdict};
use crate::fate::{Ended, answer_words};
use crate::finding::{Cause, Finding, Severity};
use crate::sender::SenderKind;
use crate::world::Rules;
use model::Protocol;

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
            Verdict::Accept => {
                "reaches the health check of the load balancer, which kube-proxy answers".to_owned()
            }
            Verdict::Reject => {
                answer_words(&refused.unwrap_or_else(|| "tcp-reset".into()), protocol).to_owned()
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
        let here = self.world.is_local(at.ip());
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
        let at = self.target.at;
        let ip = self.sender.ip;
        if findings
            .first()
            .is_some_and(|first| first.cause == Cause::ForeignRule)
            && let Some(rule) = self.rules().last()
        {
            next.push(format!(
                "iptables-save -t {} | grep -e '{}'",
                rule.table, rule.chain
            ));
        }
        let is_of_objects = |finding: &Finding| {
            let concerned = finding
                .objects
                .iter()
                .any(|object| ["Service", "EndpointSlice", "Pod"].contains(&object.kind));
            concerned && finding.severity > Severity::Remark
        };
        let in_objects = findings.first().is_some_and(is_of_objects) && self.world.has_objects();
        let service = self.target.service.as_ref().filter(|_| in_objects);
        if let Some(name) = service {
            next.push(format!(
                "kubectl get endpointslices -n {} -l kubernetes.io/service-name={} -o yaml",
                name.namespace, name.name
            ));
        }
        let from = match self.sender.kind {
            SenderKind::Pod => format!("pod:{ip}"),
            SenderKind::Node => "node".to_owned(),
            SenderKind::Outside => ip.to_string(),
        };
        let protocol = self.target.protocol.as_lower();
        match self.world.rules {
            Rules::Observed => next.push(format!("kube-proxy trace --dump FILE --from {ip} --to {at} --proto {protocol}")),
            _ if reach == Reach::Yes => next.push(format!(
                "if it fails all the same, on {}: iptables-save | kube-proxy explain --dump - --from {from} --to {at} --proto {protocol}",
                self.world.node_words()
            )),
            _ => {}
        }
        next
    }
}
