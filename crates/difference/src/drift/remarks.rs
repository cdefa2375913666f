//! What others' rules do to Services without touching ours: no drift, and worth knowing.

use iptables::ast::{Is, Match, PortRange, Proto, Rule, Ruleset, TableName, Target};
use iptables::render::RuleText;
use model::{Desired, DesiredPort, Family, Frontend, FrontendKind};
use std::net::IpAddr;

/// Rules of the raw table that take packets to Services out of connection tracking: such packets never meet nat.
pub fn remarks(want: &Desired, found: &Ruleset) -> Vec<String> {
    let Some(raw) = found.tables.get(&TableName::Raw) else {
        return Vec::new();
    };
    let mut remarks = Vec::new();
    for (chain, content) in &raw.chains {
        for (number, rule) in (1..).zip(&content.rules).filter(|(_, rule)| is_notrack(rule)) {
            let place = format!("raw {chain} rule {number}");
            let taken = services(want).filter(|of| takes(rule, of));
            remarks.extend(taken.map(|of| words(want.node.family, &place, rule, &of)));
        }
    }
    remarks
}

fn is_notrack(rule: &Rule) -> bool {
    match &rule.target {
        Target::Other { name, words } => {
            &**name == "NOTRACK" || (&**name == "CT" && words.iter().any(|word| &**word == "--notrack"))
        }
        _ => false,
    }
}

/// An address of a Service.
struct Service<'a> {
    port: &'a DesiredPort,
    frontend: &'a Frontend,
    ip: IpAddr,
}

fn services(want: &Desired) -> impl Iterator<Item = Service<'_>> {
    let ports = want.services.values().flat_map(|service| &service.ports);
    ports.flat_map(|port| {
        port.frontends
            .iter()
            .filter_map(move |frontend| match frontend.kind {
                FrontendKind::ClusterIp(ip)
                | FrontendKind::ExternalIp(ip)
                | FrontendKind::LoadBalancerIp(ip) => Some(Service { port, frontend, ip }),
                FrontendKind::NodePort => None,
            })
    })
}

/// Whether the rule is about this very address: one that names no destination is somebody's own affair (all traffic of a
/// pod, of an interface).
fn takes(rule: &Rule, Service { port, frontend, ip }: &Service<'_>) -> bool {
    let is_of_address = matches!(&rule.dst, Some(Is::Equal(net)) if net.contains(ip));
    let is_of_protocol = rule
        .protocol
        .as_ref()
        .is_none_or(|is| is.holds(|has| *has == Proto::from(port.name.protocol)));
    let is_of_port = rule.matches.iter().all(|one| match one {
        Match::Ports { dst: Some(is), .. } => {
            is.holds(|PortRange { first, last }| (*first..=*last).contains(&frontend.port))
        }
        _ => true,
    });
    is_of_address && is_of_protocol && is_of_port
}

fn words(family: Family, place: &str, rule: &Rule, of: &Service<'_>) -> String {
    let address = std::net::SocketAddr::new(of.ip, of.frontend.port);
    format!(
        "{}: {place} ({}) takes {address}/{} out of connection tracking (notrack), so such packets never meet nat and \
         kube-proxy's rules do not translate them",
        of.port.name,
        RuleText { rule, family },
        of.port.name.protocol.as_lower(),
    )
}
