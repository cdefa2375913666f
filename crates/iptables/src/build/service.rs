//! One service's rules: what it writes into the shared chains, and its own chains.

use super::terms::{comment, commented, host, if_local, if_not_local, jump, network, port_rule};
use super::terms::{probability, protocol_module};
use super::{BuildContext, Dispatch, EndpointComments, Nfacct, ServiceRules};
use crate::ast::{AddrType, ChainName, Is, Match, Proto, Recent, RecentAction, Rule, TableName, Target};
use crate::family::reject_with;
use crate::names::{NFACCT_LOCALHOST_NODE_PORTS, PortChains, StaticChain, endpoint_chain};
use ipnet::IpNet;
use model::{
    Admission, DesiredNode, DesiredPort, DesiredService, Family, Frontend, FrontendKind, List, Policy,
    Protocol, Reason, Route,
};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// One service's rules.
///
/// Invariant: every jump lands, in a chain of this service or in a static one (`every_jump_lands`).
pub fn service(service: &DesiredService, node: &DesiredNode, context: &BuildContext) -> ServiceRules {
    let mut rules = ServiceRules::default();
    for port in &service.ports {
        PortRules::new(port, node, context, &mut rules).build();
    }
    rules
}

/// The rules of one service port while they are made.
struct PortRules<'a> {
    port: &'a DesiredPort,
    node: &'a DesiredNode,
    context: &'a BuildContext,
    /// The printed name of the port, as it stands in comments.
    title: String,
    protocol: Protocol,
    names: PortChains,
    endpoints: BTreeMap<SocketAddr, ChainName>,
    out: &'a mut ServiceRules,
}

impl<'a> PortRules<'a> {
    fn new(
        port: &'a DesiredPort,
        node: &'a DesiredNode,
        context: &'a BuildContext,
        out: &'a mut ServiceRules,
    ) -> Self {
        let title = port.name.to_string();
        let protocol = port.name.protocol;
        // Only reachable endpoints have chains; the lists lie within them, and are named here so that no jump can miss.
        let all = port.reachable.iter().chain(&port.cluster).chain(&port.local);
        let endpoints = all
            .map(|ep| (*ep, endpoint_chain(&title, protocol, *ep)))
            .collect();
        PortRules {
            port,
            node,
            context,
            title,
            protocol,
            names: PortChains::of(&port.name),
            endpoints,
            out,
        }
    }

    fn build(mut self) {
        let port = self.port;
        for frontend in &port.frontends {
            match frontend.kind {
                FrontendKind::ClusterIp(ip) => self.cluster_ip(frontend, ip),
                FrontendKind::ExternalIp(ip) => self.external_ip(frontend, ip),
                FrontendKind::LoadBalancerIp(ip) => self.load_balancer_ip(frontend, ip),
                FrontendKind::NodePort => self.node_port(frontend),
            }
        }
        if let Some(health) = port.health_check_node_port {
            self.health_check(health);
        }
        self.external_chain();
        self.firewall_chain();
        self.list_chain(List::Cluster);
        self.list_chain(List::Local);
        self.endpoint_chains();
    }

    fn cluster_ip(&mut self, frontend: &Frontend, ip: IpAddr) {
        let to_endpoints = match frontend.routes.outside {
            Route::Endpoints { list, .. } => list,
            refused @ (Route::Reject(_) | Route::Drop(_)) => {
                let rule = self.refusal(frontend, refused);
                self.refuse(StaticChain::Services, to(rule, ip));
                return;
            }
        };
        let chain = self.list_name(to_endpoints);
        let text = format!("{} cluster IP", self.title);
        let jump_in = port_rule(self.protocol, frontend.port, &text, Target::Jump(chain.clone()));
        self.dispatch(TableName::Nat, StaticChain::Services, to(jump_in, ip));

        let mark = to(
            port_rule(self.protocol, frontend.port, &text, jump(StaticChain::MarkMasq)),
            ip,
        );
        let masquerade = if masquerades(frontend.routes.pod) {
            Some(mark)
        } else if masquerades(frontend.routes.outside) {
            // Without a detector pods are told from nobody, and then all three routes are the same.
            self.node.detector.as_ref().and_then(|d| if_not_local(mark, d))
        } else {
            None
        };
        self.chain(&chain).extend(masquerade);
    }

    fn external_ip(&mut self, frontend: &Frontend, ip: IpAddr) {
        if has_endpoints(frontend) {
            let text = format!("{} external IP", self.title);
            let rule = port_rule(self.protocol, frontend.port, &text, self.to_external());
            self.dispatch(TableName::Nat, StaticChain::Services, to(rule, ip));
        }
        self.refuse_outside(frontend, |rule| to(rule, ip));
    }

    fn load_balancer_ip(&mut self, frontend: &Frontend, ip: IpAddr) {
        if has_endpoints(frontend) {
            let target = match frontend.admission {
                Some(_) => Target::Jump(self.names.fw.clone()),
                None => self.to_external(),
            };
            let text = format!("{} loadbalancer IP", self.title);
            let rule = port_rule(self.protocol, frontend.port, &text, target);
            self.dispatch(TableName::Nat, StaticChain::Services, to(rule, ip));
            if frontend.admission.is_some() {
                let text = format!("{} traffic not accepted by {}", self.title, self.names.fw);
                let rule = port_rule(self.protocol, frontend.port, &text, Target::Drop);
                self.dispatch(TableName::Filter, StaticChain::ProxyFirewall, to(rule, ip));
            }
        }
        self.refuse_outside(frontend, |rule| to(rule, ip));
    }

    /// The node port's rules name no address: the caller of `KUBE-NODEPORTS` looked at it. The refusal, which is met
    /// elsewhere, asks for any address of this host, whatever nodePortAddresses says.
    fn node_port(&mut self, frontend: &Frontend) {
        if has_endpoints(frontend) {
            let rule = port_rule(self.protocol, frontend.port, &self.title, self.to_external());
            if let Some(counting) = self.counting_loopback(&rule) {
                self.dispatch(TableName::Nat, StaticChain::NodePorts, counting);
            }
            self.dispatch(TableName::Nat, StaticChain::NodePorts, rule);
        }
        self.refuse_outside(frontend, |mut rule| {
            let local = Match::AddrType {
                src: None,
                dst: Some(Is::Equal(AddrType::Local)),
            };
            rule.matches.insert(1, local);
            rule
        });
    }

    /// The same rule for loopback only, counting packets, where such are served and can be counted.
    fn counting_loopback(&self, rule: &Rule) -> Option<Rule> {
        let counts = self.node.family == Family::V4
            && self.node.localhost_node_ports
            && self.context.capabilities.nfacct == Nfacct::Present;
        counts.then(|| {
            let mut rule = Rule {
                dst: network(super::node::loopback_v4()),
                ..rule.clone()
            };
            rule.matches
                .push(Match::Nfacct(NFACCT_LOCALHOST_NODE_PORTS.into()));
            rule
        })
    }

    /// Health checks of load balancers are TCP, whatever the service's protocol is.
    fn health_check(&mut self, port: u16) {
        let text = format!("{} health check node port", self.title);
        let rule = port_rule(Protocol::Tcp, port, &text, Target::Accept);
        self.dispatch(TableName::Filter, StaticChain::NodePorts, rule);
    }

    /// The refusal of outside traffic that finds no endpoint, narrowed to the frontend.
    fn refuse_outside(&mut self, frontend: &Frontend, narrow: impl FnOnce(Rule) -> Rule) {
        let outside = frontend.routes.outside;
        if !matches!(outside, Route::Endpoints { .. }) {
            let rule = narrow(self.refusal(frontend, outside));
            self.refuse(StaticChain::ExternalServices, rule);
        }
    }

    fn refusal(&self, frontend: &Frontend, route: Route) -> Rule {
        let (target, reason) = match route {
            Route::Drop(reason) => (Target::Drop, reason),
            Route::Reject(reason) | Route::Endpoints { reason, .. } => {
                (Target::Reject(reject_with(self.node.family).into()), reason)
            }
        };
        let why = match reason {
            Reason::NoLocalEndpoints => "has no local endpoints",
            _ => "has no endpoints",
        };
        let text = format!("{} {why}", self.title);
        port_rule(self.protocol, frontend.port, &text, target)
    }

    fn refuse(&mut self, chain: StaticChain, rule: Rule) {
        self.dispatch(TableName::Filter, chain, rule);
    }

    fn dispatch(&mut self, table: TableName, chain: StaticChain, rule: Rule) {
        let chain = chain.name();
        self.out.dispatch.push(Dispatch { table, chain, rule });
    }

    /// The rules of one of the service's own chains, which exists from now on.
    fn chain(&mut self, name: &ChainName) -> &mut Vec<Rule> {
        self.out.chains.entry(name.clone()).or_default()
    }

    fn to_external(&self) -> Target {
        Target::Jump(self.names.ext.clone())
    }

    fn list_name(&self, list: List) -> ChainName {
        match list {
            List::Cluster => self.names.svc.clone(),
            List::Local => self.names.svl.clone(),
        }
    }

    /// `KUBE-EXT-`: what comes to any external address, once admitted.
    fn external_chain(&mut self) {
        let mut external = self.port.frontends.iter().filter(|f| is_external(f.kind));
        let Some(frontend) = external.find(|f| has_endpoints(f)) else {
            return;
        };
        let mut rules = match self.port.external {
            Policy::Cluster => vec![commented(
                &format!("masquerade traffic for {} external destinations", self.title),
                jump(StaticChain::MarkMasq),
            )],
            Policy::Local => self.short_circuits(),
        };
        if let Route::Endpoints { list, .. } = frontend.routes.outside {
            rules.push(Rule::new(Target::Jump(self.list_name(list))));
            self.chain(&self.list_name(list));
        }
        self.chain(&self.names.ext.clone()).extend(rules);
    }

    /// Under policy Local the cluster's own traffic goes to all endpoints all the same.
    fn short_circuits(&mut self) -> Vec<Rule> {
        let svc = self.names.svc.clone();
        self.chain(&svc);
        let title = &self.title;
        let from_host = |text: &str, target| {
            let mut rule = commented(text, target);
            rule.matches.push(Match::AddrType {
                src: Some(Is::Equal(AddrType::Local)),
                dst: None,
            });
            rule
        };
        let pods = self.node.detector.as_ref().map(|detector| {
            let text = format!("pod traffic for {title} external destinations");
            if_local(commented(&text, Target::Jump(svc.clone())), detector)
        });
        let mut rules: Vec<Rule> = pods.into_iter().collect();
        rules.push(from_host(
            &format!("masquerade LOCAL traffic for {title} external destinations"),
            jump(StaticChain::MarkMasq),
        ));
        rules.push(from_host(
            &format!("route LOCAL traffic for {title} external destinations"),
            Target::Jump(svc.clone()),
        ));
        rules
    }

    /// `KUBE-FW-`: who may use the load balancer's addresses. Who may not falls out of it untranslated, and is dropped
    /// by `KUBE-PROXY-FIREWALL`.
    fn firewall_chain(&mut self) {
        let admission = |f: &'a Frontend| f.admission.as_ref().filter(|_| has_endpoints(f));
        let Some(admission) = self.port.frontends.iter().find_map(admission) else {
            return;
        };
        let Admission { ranges, self_sources } = admission;
        let sources = ranges
            .iter()
            .copied()
            .chain(self_sources.iter().map(|ip| IpNet::from(*ip)));
        let text = format!("{} loadbalancer IP", self.title);
        let mut rules: Vec<Rule> = sources
            .map(|source| Rule {
                src: network(source),
                ..commented(&text, self.to_external())
            })
            .collect();
        let text = format!(
            "other traffic to {} will be dropped by KUBE-PROXY-FIREWALL",
            self.title
        );
        rules.push(commented(&text, Target::None));
        self.chain(&self.names.fw.clone()).extend(rules);
    }

    /// `KUBE-SVC-` or `KUBE-SVL-`: first the endpoint that served the client before, then any, each as likely.
    fn list_chain(&mut self, list: List) {
        let endpoints = self.port.list(list);
        if endpoints.is_empty() {
            return;
        }
        let sticky = endpoints.iter().filter_map(|ep| self.sticky_rule(*ep));
        let chances = (1..=endpoints.len()).rev();
        let random = endpoints.iter().zip(chances).map(|(ep, left)| {
            let mut rule = self.endpoint_jump(*ep);
            if left > 1 {
                rule.matches.push(Match::Probability(probability(left)));
            }
            rule
        });
        let rules: Vec<Rule> = sticky.chain(random).collect();
        self.chain(&self.list_name(list)).extend(rules);
    }

    fn sticky_rule(&self, endpoint: SocketAddr) -> Option<Rule> {
        let affinity = self.port.affinity?;
        let mut rule = self.endpoint_jump(endpoint);
        rule.matches.push(Match::Recent(Recent {
            name: self.endpoints[&endpoint].as_str().into(),
            action: RecentAction::RcheckReap {
                seconds: affinity.timeout_seconds,
            },
        }));
        Some(rule)
    }

    fn endpoint_jump(&self, endpoint: SocketAddr) -> Rule {
        let text = format!("{} -> {endpoint}", self.title);
        Rule {
            matches: self.endpoint_comment(&text),
            ..Rule::new(Target::Jump(self.endpoints[&endpoint].clone()))
        }
    }

    fn endpoint_comment(&self, text: &str) -> Vec<Match> {
        match self.context.endpoint_comments {
            EndpointComments::Kept => vec![comment(text)],
            EndpointComments::Omitted => Vec::new(),
        }
    }

    /// `KUBE-SEP-`: translation to one endpoint. An endpoint that talks to itself needs another source, or it would
    /// answer to itself.
    fn endpoint_chains(&mut self) {
        for (endpoint, name) in &self.endpoints {
            let hairpin = Rule {
                src: Some(host(endpoint.ip())),
                matches: self.endpoint_comment(&self.title),
                ..Rule::new(jump(StaticChain::MarkMasq))
            };
            let mut matches = self.endpoint_comment(&self.title);
            if self.port.affinity.is_some() {
                matches.push(Match::Recent(Recent {
                    name: name.as_str().into(),
                    action: RecentAction::Set,
                }));
            }
            matches.push(protocol_module(self.protocol));
            let translate = Rule {
                protocol: Some(Is::Equal(Proto::from(self.protocol))),
                matches,
                ..Rule::new(Target::Dnat(*endpoint))
            };
            self.out.chains.insert(name.clone(), vec![hairpin, translate]);
        }
    }
}

fn to(rule: Rule, ip: IpAddr) -> Rule {
    Rule {
        dst: Some(host(ip)),
        ..rule
    }
}

fn is_external(kind: FrontendKind) -> bool {
    !matches!(kind, FrontendKind::ClusterIp(_))
}

/// Whether any traffic to this external frontend finds endpoints, those of short circuits included. Upstream then
/// makes the frontend's jump, even where outside traffic is dropped.
fn has_endpoints(frontend: &Frontend) -> bool {
    let routes = &frontend.routes;
    [routes.pod, routes.node, routes.outside]
        .iter()
        .any(|route| matches!(route, Route::Endpoints { .. }))
}

fn masquerades(route: Route) -> bool {
    matches!(route, Route::Endpoints { masquerade: true, .. })
}
