//! Upstream's layout: a chain for each service, verdict maps that lead there, written as upstream writes them
//! (`syncProxyRules` of its nftables proxier), but for the hashes in the names.

use ipnet::IpNet;
use model::desired::Policy;
use model::{Desired, DesiredPort, Family, Frontend, FrontendKind, LocalDetector, NodePortTargets, Route};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Commands for `nft -f`.
pub fn file(desired: &Desired, cidrs: &[IpNet], masquerade_all: bool) -> String {
    let node = &desired.node;
    let ip = if node.family == Family::V4 { "ip" } else { "ip6" };
    let mut file = File {
        ip,
        text: String::new(),
    };
    file.frame();
    file.checks(desired, cidrs);
    file.services(desired, masquerade_all);
    for service in desired.services.values() {
        for port in &service.ports {
            file.port(desired, port);
        }
    }
    file.text
}

struct File {
    ip: &'static str,
    text: String,
}

const BASES: [(&str, &str, &str, i32); 8] = [
    ("filter-prerouting-pre-dnat", "filter", "prerouting", -110),
    ("filter-output-pre-dnat", "filter", "output", -110),
    ("filter-input", "filter", "input", 0),
    ("filter-forward", "filter", "forward", 0),
    ("filter-output", "filter", "output", 0),
    ("nat-prerouting", "nat", "prerouting", -100),
    ("nat-output", "nat", "output", -100),
    ("nat-postrouting", "nat", "postrouting", 100),
];

const JUMPS: [(&str, &str); 11] = [
    ("filter-input", "ct state new jump nodeport-endpoints-check"),
    ("filter-input", "ct state new jump service-endpoints-check"),
    ("filter-forward", "ct state new jump service-endpoints-check"),
    ("filter-output", "ct state new jump service-endpoints-check"),
    ("filter-prerouting-pre-dnat", "ct state new jump firewall-check"),
    ("filter-output-pre-dnat", "ct state new jump firewall-check"),
    ("nat-output", "jump services"),
    ("nat-prerouting", "jump services"),
    ("nat-postrouting", "jump masquerading"),
    ("filter-forward", "ct state new jump cluster-ips-check"),
    ("filter-output", "ct state new jump cluster-ips-check"),
];

impl File {
    fn add(&mut self, what: &str, rest: &str) {
        let ip = self.ip;
        writeln!(self.text, "add {what} {ip} kube-proxy {rest}").expect("a string takes all text");
    }

    fn chain(&mut self, name: &str) {
        self.add("chain", name);
    }

    fn rule(&mut self, chain: &str, rule: &str) {
        self.add("rule", &format!("{chain} {rule}"));
    }

    fn element(&mut self, set: &str, element: &str) {
        self.add("element", &format!("{set} {{ {element} }}"));
    }

    fn address(&self) -> &'static str {
        if self.ip == "ip" { "ipv4_addr" } else { "ipv6_addr" }
    }

    fn loopback(&self) -> &'static str {
        if self.ip == "ip" { "127.0.0.0/8" } else { "::1" }
    }

    fn frame(&mut self) {
        let (ip, address) = (self.ip, self.address());
        writeln!(
            self.text,
            "add table {ip} kube-proxy {{ comment \"rules for kube-proxy\" ; }}"
        )
        .expect("text");
        for (name, kind, hook, priority) in BASES {
            self.chain(&format!(
                "{name} {{ type {kind} hook {hook} priority {priority} ; }}"
            ));
        }
        for chain in [
            "nodeport-endpoints-check",
            "service-endpoints-check",
            "firewall-check",
            "services",
            "masquerading",
            "cluster-ips-check",
            "reject-chain { comment \"helper for @no-endpoint-services / @no-endpoint-nodeports\" ; }",
        ] {
            self.chain(chain);
        }
        for (chain, rule) in JUMPS {
            self.rule(chain, rule);
        }
        self.add(
            "set",
            &format!("cluster-ips {{ type {address} ; comment \"Active ClusterIPs\" ; }}"),
        );
        self.add(
            "set",
            &format!("nodeport-ips {{ type {address} ; comment \"IPs that accept NodePort traffic\" ; }}"),
        );
        let hairpin =
            format!("hairpin-connections {{ type {address} . {address} . inet_proto . inet_service ; }}");
        self.add("set", &hairpin);
        for (map, key) in [
            ("service-ips", format!("{address} . inet_proto . inet_service")),
            (
                "no-endpoint-services",
                format!("{address} . inet_proto . inet_service"),
            ),
            ("firewall-ips", format!("{address} . inet_proto . inet_service")),
            ("service-nodeports", "inet_proto . inet_service".to_owned()),
            ("no-endpoint-nodeports", "inet_proto . inet_service".to_owned()),
        ] {
            self.add("map", &format!("{map} {{ type {key} : verdict ; }}"));
        }
        self.rule("reject-chain", "reject");
    }

    fn checks(&mut self, desired: &Desired, cidrs: &[IpNet]) {
        let (ip, loopback) = (self.ip, self.loopback());
        let mark = format!("{:#010x}", desired.node.mark.value());
        self.rule(
            "masquerading",
            &format!("mark and {mark} != 0 mark set mark xor {mark} masquerade fully-random"),
        );
        self.rule("masquerading", &format!(
            "ct status dnat {ip} saddr . {ip} daddr . meta l4proto . th dport @hairpin-connections masquerade fully-random"
        ));
        let reject = format!(
            "{ip} daddr @cluster-ips reject comment \"Reject traffic to invalid ports of ClusterIPs\""
        );
        self.rule("cluster-ips-check", &reject);
        let own: Vec<String> = cidrs
            .iter()
            .filter(|net| Family::of(net.addr()) == desired.node.family)
            .map(ToString::to_string)
            .collect();
        if !own.is_empty() {
            let rule = format!(
                "{ip} daddr {{ {} }} drop comment \"Drop traffic to unallocated ClusterIPs\"",
                own.join(", ")
            );
            self.rule("cluster-ips-check", &rule);
        }
        let key = format!("{ip} daddr . meta l4proto . th dport");
        self.rule(
            "service-endpoints-check",
            &format!("{key} vmap @no-endpoint-services"),
        );
        self.rule("firewall-check", &format!("{key} vmap @firewall-ips"));
        let nodeports = match &desired.node.node_ports {
            NodePortTargets::AllLocal => format!("{ip} daddr != {loopback}"),
            NodePortTargets::Only(addresses) => {
                for address in addresses.iter().filter(|address| !address.is_loopback()) {
                    self.element("nodeport-ips", &address.to_string());
                }
                format!("{ip} daddr @nodeport-ips")
            }
        };
        let rule = format!("{nodeports} meta l4proto . th dport vmap @no-endpoint-nodeports");
        self.rule("nodeport-endpoints-check", &rule);
    }

    fn services(&mut self, desired: &Desired, masquerade_all: bool) {
        let (ip, loopback) = (self.ip, self.loopback());
        let mark = format!("{:#010x}", desired.node.mark.value());
        if masquerade_all {
            let rule = format!(
                "{ip} daddr @cluster-ips mark set mark or {mark} comment \"masquerade all clusterIP traffic\""
            );
            self.rule("services", &rule);
        } else if let Some(detector) = &desired.node.detector {
            let not = local(ip, detector, "!= ");
            let rule = format!(
                "{ip} daddr @cluster-ips {not} mark set mark or {mark} comment \"masquerade clusterIP traffic from outside cluster\""
            );
            self.rule("services", &rule);
        }
        self.rule(
            "services",
            &format!("{ip} daddr . meta l4proto . th dport vmap @service-ips"),
        );
        let nodeports = match &desired.node.node_ports {
            NodePortTargets::AllLocal => format!("fib daddr type local {ip} daddr != {loopback}"),
            NodePortTargets::Only(_) => format!("{ip} daddr @nodeport-ips"),
        };
        self.rule(
            "services",
            &format!("{nodeports} meta l4proto . th dport vmap @service-nodeports"),
        );
    }

    fn port(&mut self, desired: &Desired, port: &DesiredPort) {
        let base = base(port);
        let affinity = port.affinity.map(|affinity| affinity.timeout_seconds);
        for endpoint in &port.reachable {
            if let Some(timeout) = affinity {
                self.sticky_endpoint(port, *endpoint, timeout);
            }
        }
        for endpoint in &port.on_node {
            let at = endpoint.ip();
            let proto = port.name.protocol.as_lower();
            self.element(
                "hairpin-connections",
                &format!("{at} . {at} . {proto} . {}", endpoint.port()),
            );
        }
        let lists = [("service", &port.cluster), ("local", &port.local)];
        for (prefix, endpoints) in lists.iter().filter(|(_, endpoints)| !endpoints.is_empty()) {
            let chain = format!("{prefix}-{base}");
            self.chain(&chain);
            self.choose(&chain, port, endpoints);
        }
        let external = port
            .frontends
            .iter()
            .find(|frontend| !matches!(frontend.kind, FrontendKind::ClusterIp(_)));
        if let Some(external) = external.filter(|_| !port.reachable.is_empty()) {
            self.external(desired, port, external);
        }
        let admissions: Vec<&Frontend> = port
            .frontends
            .iter()
            .filter(|frontend| frontend.admission.is_some())
            .collect();
        if let Some(admission) = admissions
            .first()
            .and_then(|frontend| frontend.admission.as_ref())
        {
            let chain = format!("firewall-{base}");
            self.chain(&chain);
            let own = admission.self_sources.iter().map(ToString::to_string);
            let ranges: Vec<String> = admission
                .ranges
                .iter()
                .map(ToString::to_string)
                .chain(own)
                .collect();
            let rule = format!("{} saddr != {{ {} }} drop", self.ip, ranges.join(", "));
            self.rule(&chain, &rule);
        }
        for frontend in &port.frontends {
            self.frontend(port, frontend, &base);
        }
    }

    fn frontend(&mut self, port: &DesiredPort, frontend: &Frontend, base: &str) {
        let proto = port.name.protocol.as_lower();
        let is_cluster = matches!(frontend.kind, FrontendKind::ClusterIp(_));
        let (key, map, nowhere) = match frontend.kind {
            FrontendKind::NodePort => (
                format!("{proto} . {}", frontend.port),
                "service-nodeports",
                "no-endpoint-nodeports",
            ),
            FrontendKind::ClusterIp(at) | FrontendKind::ExternalIp(at) | FrontendKind::LoadBalancerIp(at) => {
                (
                    format!("{at} . {proto} . {}", frontend.port),
                    "service-ips",
                    "no-endpoint-services",
                )
            }
        };
        if let FrontendKind::ClusterIp(at) = frontend.kind {
            self.element("cluster-ips", &at.to_string());
        }
        let verdict = match frontend.routes.outside {
            Route::Reject(_) => Some("goto reject-chain"),
            Route::Drop(_) => Some("drop"),
            Route::Endpoints { .. } => None,
        };
        if let Some(verdict) = verdict {
            self.element(nowhere, &format!("{key} comment \"{}\" : {verdict}", port.name));
        }
        let target = match (is_cluster, port.internal) {
            (true, _) if verdict.is_some() => return,
            (true, Policy::Cluster) => "service",
            (true, Policy::Local) => "local",
            (false, _) if port.reachable.is_empty() => return,
            (false, _) => "external",
        };
        self.element(map, &format!("{key} : goto {target}-{base}"));
        if frontend.admission.is_some() {
            self.element("firewall-ips", &format!("{key} : goto firewall-{base}"));
        }
    }

    fn external(&mut self, desired: &Desired, port: &DesiredPort, frontend: &Frontend) {
        let (ip, base) = (self.ip, base(port));
        let mark = format!("mark set mark or {:#010x}", desired.node.mark.value());
        let chain = format!("external-{base}");
        self.chain(&chain);
        if port.external == Policy::Cluster {
            self.rule(&chain, &format!("{mark} comment \"masquerade\""));
            self.rule(&chain, &format!("goto service-{base}"));
            return;
        }
        if !port.cluster.is_empty() {
            if let Some(detector) = &desired.node.detector {
                let is = local(ip, detector, "");
                self.rule(
                    &chain,
                    &format!("{is} goto service-{base} comment \"short-circuit pod traffic\""),
                );
            }
            self.rule(
                &chain,
                &format!("fib saddr type local {mark} comment \"masquerade local traffic\""),
            );
            let rule =
                format!("fib saddr type local goto service-{base} comment \"short-circuit local traffic\"");
            self.rule(&chain, &rule);
        }
        if matches!(frontend.routes.outside, Route::Endpoints { .. }) {
            self.rule(&chain, &format!("goto local-{base}"));
        }
    }

    fn choose(&mut self, chain: &str, port: &DesiredPort, endpoints: &[SocketAddr]) {
        let (ip, count) = (self.ip, endpoints.len());
        if port.affinity.is_none() {
            let sides: Vec<String> = endpoints
                .iter()
                .enumerate()
                .map(|(side, endpoint)| format!("{side} : {} . {}", endpoint.ip(), endpoint.port()))
                .collect();
            let proto = port.name.protocol.as_lower();
            let rule = format!(
                "meta l4proto {proto} dnat {ip} addr . port to numgen random mod {count} map {{ {} }}",
                sides.join(" , ")
            );
            self.rule(chain, &rule);
            return;
        }
        for endpoint in endpoints {
            let name = of_endpoint(port, *endpoint);
            self.rule(
                chain,
                &format!("{ip} saddr @affinity-{name} goto endpoint-{name}"),
            );
        }
        let sides: Vec<String> = endpoints
            .iter()
            .enumerate()
            .map(|(side, endpoint)| format!("{side} : goto endpoint-{}", of_endpoint(port, *endpoint)))
            .collect();
        self.rule(
            chain,
            &format!("numgen random mod {count} vmap {{ {} }}", sides.join(" , ")),
        );
    }

    fn sticky_endpoint(&mut self, port: &DesiredPort, endpoint: SocketAddr, timeout: u32) {
        let (ip, address) = (self.ip, self.address());
        let name = of_endpoint(port, endpoint);
        self.add(
            "set",
            &format!("affinity-{name} {{ type {address} ; flags dynamic,timeout ; timeout {timeout}s ; }}"),
        );
        let chain = format!("endpoint-{name}");
        self.chain(&chain);
        self.rule(&chain, &format!("update @affinity-{name} {{ {ip} saddr }}"));
        let proto = port.name.protocol.as_lower();
        self.rule(&chain, &format!("meta l4proto {proto} dnat to {endpoint}"));
    }
}

/// A service port's part of names; upstream's begins with a hash.
fn base(port: &DesiredPort) -> String {
    let name = &port.name;
    let service = &name.service;
    format!(
        "AAAAAAAA-{}/{}/{}/{}",
        service.namespace,
        service.name,
        name.protocol.as_lower(),
        name.port
    )
}

fn of_endpoint(port: &DesiredPort, endpoint: SocketAddr) -> String {
    let ip: IpAddr = endpoint.ip();
    format!(
        "{}__{}/{}",
        base(port),
        ip.to_string().replace(':', "."),
        endpoint.port()
    )
}

fn local(ip: &str, detector: &LocalDetector, not: &str) -> String {
    match detector {
        LocalDetector::Cidr(net) => format!("{ip} saddr {not}{net}"),
        LocalDetector::Bridge(name) => format!("iifname {not}\"{name}\""),
        LocalDetector::InterfacePrefix(name) => format!("iifname {not}\"{name}*\""),
    }
}
