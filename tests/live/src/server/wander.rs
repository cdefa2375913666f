//! Random changes to a cluster, the same for the same seed.

use super::objects::{Slice, service};
use super::requests::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// So many services at most.
const SERVICES: u64 = 30;

/// A walk through states of the cluster.
pub struct Wander<'a> {
    server: &'a Server,
    node: &'a str,
    random: u64,
    services: BTreeSet<String>,
    slices: BTreeSet<String>,
    /// What was done, a line each.
    pub steps: Vec<String>,
}

impl<'a> Wander<'a> {
    /// Begins with nothing; endpoints are on `node` or elsewhere.
    pub fn new(server: &'a Server, node: &'a str, seed: u64) -> Wander<'a> {
        Wander {
            server,
            node,
            random: seed.max(1),
            services: BTreeSet::new(),
            slices: BTreeSet::new(),
            steps: vec![],
        }
    }

    /// Addresses of a service alone: which of several claimants gets one is up to the proxy, and upstream leaves it to
    /// chance. `kind` is below 4.
    fn own(name: &str, kind: u64) -> [String; 2] {
        let number: u64 = name[2..].parse().expect("invariant: a number ends the name");
        let last = 1 + kind * SERVICES + number;
        [format!("203.0.113.{last}"), format!("2001:db8:5::{last:x}")]
    }

    /// A number below `count` (xorshift64).
    fn below(&mut self, count: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % count
    }

    fn one_of<T: Clone>(&mut self, choice: &[T]) -> T {
        let index = self.below(choice.len() as u64);
        choice[usize::try_from(index).expect("invariant: below a length")].clone()
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One change.
    pub fn step(&mut self) {
        let name = format!("w-{}", self.below(SERVICES));
        if !self.services.contains(&name) {
            self.create(&name);
            return;
        }
        match self.below(10) {
            0 => {
                self.server.delete("Service", &name);
                self.services.remove(&name);
                self.steps.push(format!("delete {name}"));
                // Sometimes it is back before anybody looks.
                if self.chance(50) {
                    self.create(&name);
                }
            }
            1..=3 => self.change_spec(&name),
            4 => self.change_status(&name),
            _ => self.change_slice(&name),
        }
    }

    fn create(&mut self, name: &str) {
        let parts = self.spec(name);
        let object = service(name, &parts);
        // A random spec may be one that the server refuses; then it counts as no step.
        let answer = self
            .server
            .ask("POST", "/api/v1/namespaces/default/services", Some(&object));
        if answer.code == 201 {
            self.services.insert(name.to_owned());
            self.steps.push(format!("create {name} {parts}"));
        }
    }

    fn spec(&mut self, name: &str) -> Value {
        let kind = self.one_of(&[
            "ClusterIP",
            "ClusterIP",
            "NodePort",
            "LoadBalancer",
            "LoadBalancer",
        ]);
        let mut parts = json!({"type": kind});
        let families = self.one_of(&["PreferDualStack", "PreferDualStack", "SingleStack"]);
        parts["ipFamilyPolicy"] = json!(families);
        if families == "SingleStack" {
            parts["ipFamilies"] = json!([self.one_of(&["IPv4", "IPv6"])]);
        }
        let protocols = [
            ("p", "TCP", 80, 8080),
            ("q", "UDP", 53, 5353),
            ("r", "SCTP", 99, 9999),
        ];
        let count = usize::try_from(1 + self.below(3)).expect("invariant: three at most");
        let named: Vec<Value> = protocols[..count]
            .iter()
            .map(|(name, protocol, port, target)| {
                json!({"name": name, "protocol": protocol, "port": port, "targetPort": target})
            })
            .collect();
        parts["ports"] = json!(named);
        if kind != "ClusterIP" {
            parts["externalTrafficPolicy"] = json!(self.one_of(&["Cluster", "Local"]));
        }
        if self.chance(20) {
            parts["sessionAffinity"] = json!("ClientIP");
        }
        if self.chance(20) {
            parts["internalTrafficPolicy"] = json!("Local");
        }
        if self.chance(20) {
            parts["externalIPs"] = json!(Self::own(name, 0));
        }
        if self.chance(15) {
            parts["publishNotReadyAddresses"] = json!(true);
        }
        if kind == "LoadBalancer" && self.chance(40) {
            parts["loadBalancerSourceRanges"] = json!(["198.51.100.0/24", "2001:db8:99::/64"]);
        }
        if kind == "ClusterIP" && self.chance(8) {
            parts["clusterIP"] = json!("None");
        }
        parts
    }

    fn change_spec(&mut self, name: &str) {
        let timeout = 1 + self.below(86400);
        let changes = [
            json!({"internalTrafficPolicy": "Local"}),
            json!({"internalTrafficPolicy": "Cluster"}),
            json!({"externalTrafficPolicy": "Local"}),
            json!({"externalTrafficPolicy": "Cluster"}),
            json!({"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": timeout}}}),
            json!({"sessionAffinity": "None", "sessionAffinityConfig": null}),
            json!({"externalIPs": [Self::own(name, 1)[0]]}),
            json!({"externalIPs": null}),
            json!({"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.10/32"]}),
            json!({"loadBalancerSourceRanges": null}),
            json!({"type": "LoadBalancer"}),
            json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false}),
            json!({"type": "NodePort"}),
            json!({"type": "ClusterIP", "externalTrafficPolicy": null}),
            json!({"trafficDistribution": "PreferSameNode"}),
            json!({"trafficDistribution": null}),
        ];
        let change = self.one_of(&changes);
        self.try_patch(name, &json!({"spec": change}), "");
    }

    fn change_status(&mut self, name: &str) {
        let kind = self.one_of(&[2, 3]);
        let [four, six] = Self::own(name, kind);
        let ingress = self.one_of(&[
            json!([{"ip": four}]),
            json!([{"ip": four}, {"ip": six}]),
            json!([{"ip": four, "ipMode": "VIP"}, {"ip": six, "ipMode": "Proxy"}]),
            json!([{"ip": six}, {"hostname": "lb.example"}]),
            json!(null),
        ]);
        self.try_patch(
            name,
            &json!({"status": {"loadBalancer": {"ingress": ingress}}}),
            "/status",
        );
    }

    /// The server refuses what does not fit the service's type.
    fn try_patch(&mut self, name: &str, change: &Value, below: &str) {
        let path = format!("/api/v1/namespaces/default/services/{name}{below}");
        if self.server.ask("PATCH", &path, Some(change)).code == 200 {
            self.steps.push(format!("patch {name}{below} {change}"));
        }
    }

    fn change_slice(&mut self, name: &str) {
        let family = self.one_of(&["IPv4", "IPv6"]);
        let count = self.one_of(&[0, 1, 1, 2, 3, 7]);
        let endpoints = (0..count).map(|_| self.endpoint(family)).collect();
        let slice = Slice {
            service: name,
            family,
            ports: json!([
                {"name": "p", "protocol": "TCP", "port": 8080},
                {"name": "q", "protocol": "UDP", "port": 5353},
                {"name": "r", "protocol": "SCTP", "port": 9999},
            ]),
            endpoints,
        };
        let (key, object) = (slice.name(), slice.object());
        if !self.slices.contains(&key) {
            self.server.create(&object);
            self.slices.insert(key.clone());
        } else if self.chance(20) {
            self.server.delete("EndpointSlice", &key);
            self.slices.remove(&key);
        } else {
            let change = json!({"endpoints": object["endpoints"], "ports": object["ports"]});
            self.server.patch("EndpointSlice", &key, &change);
        }
        self.steps.push(format!("slice {key}: {}", object["endpoints"]));
    }

    fn endpoint(&mut self, family: &str) -> Value {
        let number = 1 + self.below(200);
        let address = match family {
            "IPv4" => format!("10.244.1.{number}"),
            _ => format!("fd00:10:244::{number:x}"),
        };
        let mut endpoint = json!({"addresses": [address]});
        if self.chance(85) {
            endpoint["nodeName"] = json!(self.one_of(&[self.node, "elsewhere"]));
        }
        let states = [
            json!({}),
            json!({"ready": true}),
            json!({"ready": true, "serving": true, "terminating": false}),
            json!({"ready": false}),
            json!({"ready": false, "serving": true, "terminating": true}),
            json!({"ready": false, "serving": false, "terminating": true}),
        ];
        endpoint["conditions"] = self.one_of(&states);
        if self.chance(20) {
            endpoint["zone"] = json!("zone-a");
            endpoint["hints"] = json!({"forZones": [{"name": self.one_of(&["zone-a", "zone-b"])}]});
        }
        endpoint
    }
}
