//! An explanation as one screen of text: the cause first.
//!
//! Styles are ANSI sequences; whoever prints to something else than a terminal strips them (`anstream` does).

use crate::explanation::{Delivery, Explanation, Reach};
use crate::finding::{Finding, Severity};
use crate::page::{MARGIN, Page, shortened, wrapped};
use crate::world::Rules;
use anstyle::{AnsiColor, Style};
use std::net::IpAddr;

/// Endpoints that are listed at most.
const ENDPOINTS: usize = 8;
/// Rules that are listed at most.
const RULES: usize = 6;

/// One screen, fitted into so many columns (40 at least).
pub fn text(explanation: &Explanation, width: usize) -> String {
    let mut page = Page::new(width);
    page.headline(explanation);
    page.question(explanation);
    let (faults, rest): (Vec<&Finding>, Vec<&Finding>) = explanation
        .findings
        .iter()
        .partition(|finding| finding.severity > Severity::Remark);
    for (number, finding) in faults.iter().enumerate() {
        page.finding(finding, number);
    }
    for remark in rest {
        page.remark(remark);
    }
    page.deliveries(&explanation.deliveries);
    page.addresses(explanation);
    page.rules(explanation);
    for command in &explanation.next {
        page.field("next", command);
    }
    page.out
}

/// The first line: whether it works, and the cause.
pub fn headline(explanation: &Explanation) -> String {
    let first = explanation
        .findings
        .iter()
        .find(|finding| finding.severity > Severity::Remark);
    let cause = first.map(|finding| finding.what.as_str());
    match (explanation.reach, cause) {
        (Reach::No, Some(cause)) => format!("NOT REACHABLE: {cause}"),
        (Reach::No, None) => format!("NOT REACHABLE: the client {}", explanation.client),
        (Reach::Fails(share), Some(cause)) => format!("FAILS {}: {cause}", share_words(share)),
        (Reach::Fails(share), None) => format!("FAILS {}", share_words(share)),
        (Reach::Yes, Some(cause)) => format!("REACHABLE, but {cause}"),
        (Reach::Yes, None) => "REACHABLE: nothing to report".to_owned(),
        (Reach::Unknown, Some(cause)) => format!("NO ANSWER: {cause}"),
        (Reach::Unknown, None) => format!("NO ANSWER: the client {}", explanation.client),
        (Reach::NotOurs, Some(cause)) => format!("NOT SERVED BY KUBE-PROXY: {cause}"),
        (Reach::NotOurs, None) => match explanation.findings.first() {
            Some(remark) => format!("NOT SERVED BY KUBE-PROXY: {}", remark.what),
            None => format!("NOT SERVED BY KUBE-PROXY: the client {}", explanation.client),
        },
    }
}

/// How often it fails: as a fraction when it is a plain one.
fn share_words(share: f64) -> String {
    for of in 2..=10_u32 {
        for part in 1..of {
            if (share - f64::from(part) / f64::from(of)).abs() < 1e-4 {
                return format!("FOR {part} OF {of} CONNECTIONS");
            }
        }
    }
    format!("FOR {:.0}% OF CONNECTIONS", share * 100.0)
}

impl Page {
    fn headline(&mut self, explanation: &Explanation) {
        let colour = match explanation.reach {
            Reach::Yes if explanation.has_findings() => AnsiColor::Yellow,
            Reach::Yes => AnsiColor::Green,
            Reach::NotOurs | Reach::Fails(_) | Reach::Unknown => AnsiColor::Yellow,
            Reach::No => AnsiColor::Red,
        };
        let style = Style::new().bold().fg_color(Some(colour.into()));
        for line in wrapped(&headline(explanation), self.width) {
            self.styled(&line, style);
        }
        self.out.push('\n');
    }

    fn question(&mut self, explanation: &Explanation) {
        self.field("from", &explanation.from);
        self.field("to", &explanation.to);
        let rules = match explanation.rules_are {
            Rules::Observed => "its saved rules",
            Rules::Rendered => "the rules that these objects ask for",
            Rules::None => "what these objects ask for",
        };
        self.field(
            "on",
            &format!("{}, {} mode, {rules}", explanation.node, explanation.mode),
        );
        self.field("client", &explanation.client);
        self.out.push('\n');
    }

    fn finding(&mut self, finding: &Finding, number: usize) {
        // The first one's sentence stands in the headline.
        if number > 0 {
            self.field("also", &finding.what);
        }
        self.reasons(finding);
        self.out.push('\n');
    }

    fn deliveries(&mut self, deliveries: &[Delivery]) {
        let dim = Style::new().dimmed();
        for (number, delivery) in deliveries.iter().take(ENDPOINTS).enumerate() {
            let mut words = vec![delivery.endpoint.to_string()];
            words.extend(delivery.pod.as_ref().map(|pod| format!("pod {pod}")));
            words.extend(delivery.node.as_ref().map(|node| format!("on {node}")));
            words.extend(delivery.state.map(str::to_owned));
            words.push(match (delivery.is_masqueraded, delivery.source) {
                (false, _) => "source kept".to_owned(),
                (true, Some(ip)) => format!("sees {ip}"),
                (true, None) => "sees the node".to_owned(),
            });
            if !delivery.works {
                words.push("does not work".to_owned());
            }
            let name = if number == 0 { "goes to" } else { "" };
            self.styled_field(name, &words.join(", "), dim);
        }
        if deliveries.len() > ENDPOINTS {
            self.field("", &format!("and {} more", deliveries.len() - ENDPOINTS));
        }
    }

    fn addresses(&mut self, explanation: &Explanation) {
        if explanation.addresses.is_empty() {
            return;
        }
        let words = |ip: &IpAddr| {
            let whose = if ip.is_loopback() {
                " (for the node itself)"
            } else {
                ""
            };
            format!("{ip}{whose}")
        };
        let all: Vec<String> = explanation.addresses.iter().map(words).collect();
        self.field("answers", &format!("on {}", all.join(", ")));
    }

    fn rules(&mut self, explanation: &Explanation) {
        for (number, rule) in explanation.rules.iter().take(RULES).enumerate() {
            let name = if number == 0 { "rules" } else { "" };
            let comment = rule
                .comment
                .as_ref()
                .map_or_else(String::new, |comment| format!(" # {comment}"));
            let line = match rule.number {
                Some(of) => format!("{} {} {of}: {}{comment}", rule.table, rule.chain, rule.target()),
                None => format!("{} {}: {}", rule.table, rule.chain, rule.text),
            };
            self.styled_field(
                name,
                &shortened(&line, self.width - MARGIN),
                Style::new().dimmed(),
            );
        }
        if explanation.rules.len() > RULES {
            let more = format!(
                "{} more; kube-proxy trace has them all",
                explanation.rules.len() - RULES
            );
            self.field("", &more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_shares_are_said_as_fractions() {
        assert_eq!(share_words(0.5), "FOR 1 OF 2 CONNECTIONS");
        assert_eq!(share_words(2.0 / 3.0), "FOR 2 OF 3 CONNECTIONS");
        assert_eq!(share_words(0.123), "FOR 12% OF CONNECTIONS");
    }
}
