//! Addresses for clients outside that a Service claims and does not get, with why.

use crate::causes::{address, of_service};
use crate::finding::{Advice, Cause, Finding};
use crate::known::Kind;
use crate::world::World;
use model::object::{Service, ServicePort};
use model::{Family, NoteKind};
use std::net::{IpAddr, SocketAddr};

/// What becomes of the addresses of this port that are not served: a fault each.
pub(crate) fn unserved(world: &World, service: &Service, port: &ServicePort) -> Vec<Finding> {
    let external = service.external_ips.iter().map(|ip| (Kind::ExternalIp, *ip));
    let balancers = service
        .load_balancer_ips
        .iter()
        .map(|ip| (Kind::LoadBalancerIp, *ip));
    let asked = Asked { world, service, port };
    let mut found: Vec<Finding> = external
        .chain(balancers)
        .filter_map(|(kind, ip)| asked.address(kind, ip))
        .collect();
    found.extend(asked.node_port());
    found
}

struct Asked<'a> {
    world: &'a World,
    service: &'a Service,
    port: &'a ServicePort,
}

impl Asked<'_> {
    fn address(&self, kind: Kind, ip: IpAddr) -> Option<Finding> {
        let name = &self.service.name;
        let family = Family::of(ip);
        let known = self.world.known(family).into_iter();
        let mut same = known.filter(|known| known.at() == (Some(ip), self.port.port, self.port.protocol));
        if same.any(|known| known.service == *name) {
            return None;
        }
        if self.service.cluster_ips.get(family).is_none() {
            return Some(self.of_other_family(kind, ip));
        }
        let printed = format!("{}/{}", SocketAddr::new(ip, self.port.port), self.port.protocol);
        let is_it = |note: &NoteKind| match note {
            NoteKind::Claimed { frontend, .. } => *frontend == printed,
            NoteKind::ExternalIpNotAllowed { ip: external } => *external == ip,
            _ => false,
        };
        self.noted(is_it)
            .or_else(|| (kind == Kind::ExternalIp).then(|| self.ignored(ip)))
    }

    fn node_port(&self) -> Option<Finding> {
        let printed = format!("node port {}/{}", self.port.node_port?, self.port.protocol);
        self.noted(|note| matches!(note, NoteKind::Claimed { frontend, .. } if *frontend == printed))
    }

    /// What a note about the Service says.
    fn noted(&self, is_it: impl Fn(&NoteKind) -> bool) -> Option<Finding> {
        let subject = of_service(&self.service.name);
        let note = self.world.notes_of(&subject).find(|note| is_it(&note.kind))?;
        address::not_its(note)
    }

    fn of_other_family(&self, kind: Kind, ip: IpAddr) -> Finding {
        let (name, family) = (&self.service.name, Family::of(ip));
        let what = format!(
            "{} {ip} of Service {name} is of {family}, and the Service has no {family} cluster IP",
            kind.words()
        );
        Finding::fault(Cause::NoAddressOfFamily, what)
            .because("kube-proxy serves a Service in the families that it has cluster IPs of.")
            .about(of_service(name))
            .advise(Advice::change(
                of_service(name),
                "spec.ipFamilyPolicy",
                format!(
                    "in a dual-stack cluster set it to PreferDualStack, and add {family} to spec.ipFamilies"
                ),
            ))
    }

    fn ignored(&self, ip: IpAddr) -> Finding {
        let name = &self.service.name;
        let what = format!("external IP {ip} of Service {name} is not served: external IPs are off");
        Finding::fault(Cause::ExternalIpNotAllowed, what)
            .because("Where the feature gate AllowServiceExternalIPs is off, kube-proxy serves none.")
            .about(of_service(name))
            .advise(Advice {
                object: None,
                field: Some("featureGates".to_owned()),
                action: "set AllowServiceExternalIPs to true, if Services may have external IPs".to_owned(),
            })
    }
}
