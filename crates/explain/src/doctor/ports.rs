//! Sockets of programs on ports that are Services'.

use super::Patient;
use crate::causes::of_service;
use crate::finding::{Advice, Cause, Finding};
use crate::known::Kind;
use model::Family;
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) fn findings(patient: &Patient) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for family in Family::ALL {
        for known in patient
            .known(family)
            .iter()
            .filter(|known| known.kind == Kind::NodePort)
        {
            if seen.insert((known.port, known.protocol)) {
                found.extend(shadowed(patient, family, known));
            }
        }
    }
    found
}

/// Older proxies hold their node ports open themselves.
const PROXIES: [&str; 2] = ["kube-proxy", "kube-router"];

fn shadowed(patient: &Patient, family: Family, known: &crate::known::Known) -> Option<Finding> {
    let sockets = patient.world.host_facts.listening.iter().flatten();
    let serves = |ip: IpAddr| {
        (ip.is_unspecified() && (ip.is_ipv6() || family == Family::V4)) || Family::of(ip) == family
    };
    let mut others = sockets.filter(|of| {
        let at = of.socket.address;
        let is_same = of.socket.protocol == known.protocol && at.port() == known.port;
        let is_proxy = of.process.as_deref().is_some_and(|name| PROXIES.contains(&name));
        is_same && !is_proxy && !at.ip().is_loopback() && serves(at.ip())
    });
    let other = others.next()?;
    let (port, protocol, name) = (known.port, known.protocol, &known.service);
    let program = other.process.clone().unwrap_or_else(|| "a program".to_owned());
    let what = format!(
        "{program} listens on {}/{protocol}, which is the node port of Service {name}",
        other.socket.address
    );
    Some(
        Finding::warning(Cause::SocketShadowed, what)
            .because(
                "What comes to the node port is translated before sockets are asked: that program hears nothing from outside any more. If \
                 it is the API server or sshd, this host is lost to whoever needs it.",
            )
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "spec.ports[].nodePort",
                format!("take another number (kubectl edit), or have {program} listen on another port than {port}"),
            )),
    )
}
