//! The rules in the host's table raw that have packets traced: put in, found again, taken out.

use crate::probe::{FamilyTools, Probe, SMALL_CALL, Tool, legacy_tables};
use crate::process::LITTLE;
use crate::trace_table::{Share, Traced};
use crate::{CommitError, FailureKind, classify};
use ipnet::IpNet;
use iptables::ast::{Is, Match, PortRange, Proto, Rule, TableName, Target};
use iptables::live_trace::{self, CHAIN};
use iptables::render::RuleText;
use model::{Family, Protocol};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

/// The chains that lead there.
const ENTRIES: [&str; 2] = ["PREROUTING", "OUTPUT"];

/// The text that has `iptables-restore --noflush` put our rules in, all of them or none. `interface` is the name of
/// [`Traced::in_interface`]; `before` the value of the setting that says where traces go, for whoever finds these rules.
pub(super) fn to_put_in(
    family: Family,
    (traced, interface): (&[Traced], Option<&str>),
    share: Share,
    before: &str,
) -> String {
    let jump = live_trace::jump(family, before);
    let jump = RuleText { rule: &jump, family };
    let mut text = format!("*raw\n:{CHAIN} - [0:0]\n");
    for chain in ENTRIES {
        _ = writeln!(text, "-I {chain} 1 {jump}");
    }
    for one in traced {
        let rule = rule(one, interface, share);
        _ = writeln!(text, "-A {CHAIN} {}", RuleText { rule: &rule, family });
    }
    text + "COMMIT\n"
}

fn rule(traced: &Traced, interface: Option<&str>, share: Share) -> Rule {
    let net = |ip: Option<IpAddr>| ip.map(|ip| Is::Equal(IpNet::from(ip)));
    let port = |port: Option<u16>| {
        port.map(|port| {
            Is::Equal(PortRange {
                first: port,
                last: port,
            })
        })
    };
    let protocol = Protocol::ALL
        .into_iter()
        .find(|protocol| Some(protocol.number()) == traced.protocol);
    let mut rule = Rule::new(Target::Other {
        name: "TRACE".into(),
        words: Vec::new(),
    });
    rule.src = net(traced.source);
    rule.dst = net(traced.destination);
    rule.in_interface = interface.map(|name| Is::Equal(name.into()));
    rule.protocol = match (protocol, traced.protocol) {
        (Some(protocol), _) => Some(Is::Equal(protocol.into())),
        (None, Some(number)) => Some(Is::Equal(Proto::Other(number.to_string().into()))),
        (None, None) => None,
    };
    if let Some(module) = protocol.filter(|_| traced.source_port.is_some() || traced.port.is_some()) {
        let (src, dst) = (port(traced.source_port), port(traced.port));
        rule.matches.push(Match::Ports { module, src, dst });
    }
    if let Share::PerSecond(rate) = share {
        let words = [
            "--limit".into(),
            format!("{rate}/sec"),
            "--limit-burst".into(),
            rate.to_string(),
        ];
        rule.matches.push(Match::Other {
            module: "limit".into(),
            words: words.map(Arc::from).to_vec(),
        });
    }
    rule
}

/// Rules of ours that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The lines of `iptables-save` that lead to our chain.
    jumps: Vec<String>,
    /// What the setting was before, where the jumps tell it.
    pub(super) before: Option<String>,
}

impl Found {
    /// Looks for our chain in what `iptables-save -t raw` prints.
    pub(super) fn read(saved: &str) -> Option<Found> {
        let head = format!(":{CHAIN} ");
        if !saved.lines().any(|line| line.starts_with(&head)) {
            return None;
        }
        let (jump, goto) = (format!(" -j {CHAIN}"), format!(" -g {CHAIN}"));
        let jumps: Vec<String> = saved
            .lines()
            .filter_map(|line| line.trim_end().strip_prefix("-A "))
            .filter(|line| line.ends_with(&jump) || line.ends_with(&goto))
            .map(str::to_owned)
            .collect();
        let before = jumps
            .iter()
            .find_map(|line| live_trace::before(line.split('"').nth(1)?));
        let before = before.map(str::to_owned);
        Some(Found { jumps, before })
    }

    /// The text that takes them out, all of them or none.
    fn to_take_out(&self) -> String {
        let mut text = "*raw\n".to_owned();
        for jump in &self.jumps {
            _ = writeln!(text, "-D {jump}");
        }
        _ = write!(text, "-F {CHAIN}\n-X {CHAIN}\nCOMMIT\n");
        text
    }
}

/// The tools of legacy for one family.
pub(super) struct Hand<'a> {
    probe: &'a Probe,
    tools: &'a FamilyTools,
    family: Family,
}

impl<'a> Hand<'a> {
    /// `None` where a family has no tools, or, if they were tried, cannot be served: then nothing was put in either.
    pub(super) fn of(probe: &'a Probe, family: Family) -> Option<Hand<'a>> {
        let tools = probe.families.get(family).as_ref().ok()?;
        Some(Hand { probe, tools, family })
    }

    /// Our rules, if they are there. Asking makes no table.
    pub(super) fn look(&self) -> Result<Option<Found>, CommitError> {
        let tables = legacy_tables(self.family).map_err(|error| CommitError {
            attempted: error.attempted,
            kind: error.kind,
            detail: error.detail,
        })?;
        if !tables.contains(&TableName::Raw) {
            return Ok(None);
        }
        let saved = self.run(&self.tools.save, &["-t", "raw"], "")?;
        Ok(Found::read(&saved))
    }

    pub(super) fn put_in(&self, text: &str) -> Result<(), CommitError> {
        let mut args = self.tools.restore_wait_flags().to_vec();
        args.push("--noflush");
        self.run(&self.tools.restore, &args, text).map(drop)
    }

    /// Takes out what [`Self::look`] finds, once.
    pub(super) fn take_out(&self, found: &Found) -> Result<(), CommitError> {
        self.put_in(&found.to_take_out())
    }

    fn run(&self, tool: &Tool, args: &[&str], input: &str) -> Result<String, CommitError> {
        let failed = |kind: FailureKind, detail: String| CommitError {
            attempted: format!("{tool} {}", args.join(" ")),
            kind,
            detail,
        };
        let outcome = tool
            .invocation(args, input.as_bytes(), &self.probe.environment, SMALL_CALL)
            .text(LITTLE);
        match outcome {
            Ok((finished, text)) if finished.succeeded() => Ok(text),
            Ok((finished, _)) => Err(failed(
                classify::tool_failure(&finished),
                classify::detail(&finished, input),
            )),
            Err(error) => Err(failed(classify::run_failure(&error), error.words())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_becomes_rules_and_is_found_again() {
        let one = |protocol| Traced {
            destination: "10.96.0.10".parse().ok(),
            port: Some(53),
            protocol: Some(protocol),
            ..Traced::default()
        };
        let text = to_put_in(
            Family::V4,
            (&[one(17), one(6)], Some("eth0")),
            Share::PerSecond(100),
            "NONE",
        );
        assert_eq!(
            text,
            "*raw\n:KUBE-PROXY-RS-TRACE - [0:0]\n\
             -I PREROUTING 1 -m comment --comment \"kube-proxy-rs trace --live; net.netfilter.nf_log.2 was NONE\" -j KUBE-PROXY-RS-TRACE\n\
             -I OUTPUT 1 -m comment --comment \"kube-proxy-rs trace --live; net.netfilter.nf_log.2 was NONE\" -j KUBE-PROXY-RS-TRACE\n\
             -A KUBE-PROXY-RS-TRACE -d 10.96.0.10/32 -i eth0 -p udp -m udp --dport 53 -m limit --limit 100/sec --limit-burst 100 -j TRACE\n\
             -A KUBE-PROXY-RS-TRACE -d 10.96.0.10/32 -i eth0 -p tcp -m tcp --dport 53 -m limit --limit 100/sec --limit-burst 100 -j TRACE\n\
             COMMIT\n"
        );
        let saved = text
            .replace("-I PREROUTING 1", "-A PREROUTING")
            .replace("-I OUTPUT 1", "-A OUTPUT");
        let found = Found::read(&saved).unwrap();
        assert_eq!((found.jumps.len(), found.before.as_deref()), (2, Some("NONE")));
        assert_eq!(
            found.to_take_out().lines().nth(1),
            Some(
                "-D PREROUTING -m comment --comment \"kube-proxy-rs trace --live; net.netfilter.nf_log.2 was NONE\" -j KUBE-PROXY-RS-TRACE"
            )
        );
    }

    #[test]
    fn others_rules_are_not_ours() {
        let others = "*raw\n:PREROUTING ACCEPT [0:0]\n:KUBE-PROXY-RS-TRACER - [0:0]\n-A PREROUTING -j TRACE\n\
                      -A PREROUTING -j KUBE-PROXY-RS-TRACER\n-A PREROUTING -m comment --comment \"was NONE -j KUBE-PROXY-RS-TRACE\" -j DROP\nCOMMIT\n";
        assert_eq!(Found::read(others), None);
        let beside = format!("{others}*raw\n:KUBE-PROXY-RS-TRACE - [0:0]\n");
        assert_eq!(
            Found::read(&beside),
            Some(Found {
                jumps: vec![],
                before: None
            })
        );
    }
}
