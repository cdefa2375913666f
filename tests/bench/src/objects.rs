//! A cluster of any size as JSON: services with a cluster IP, each with one slice of endpoints.

use serde_json::{Value, json};
use std::net::Ipv4Addr;

/// The Node the daemon runs as.
pub const NODE: &str = "node-a";

/// A cluster that can be changed, object by object.
pub struct Objects {
    version: u64,
    endpoints: usize,
    /// Per service, the suffix of each of its endpoints.
    slices: Vec<Vec<u32>>,
    /// Per service, the suffix that came last.
    newest: Vec<u32>,
}

impl Objects {
    /// So many services with so many endpoints each.
    pub fn new(services: usize, endpoints: usize) -> Objects {
        let first = u32::try_from(endpoints).expect("a small number");
        Objects {
            version: 10,
            endpoints,
            slices: vec![(0..first).collect(); services],
            newest: vec![first.saturating_sub(1); services],
        }
    }

    /// How many services there are.
    pub fn count(&self) -> usize {
        self.slices.len()
    }

    fn next_version(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Service number `i`.
    pub fn service(&self, i: usize) -> Value {
        service(&name(i), cluster_ip(i), self.version)
    }

    /// The slice of service number `i`.
    pub fn slice(&self, i: usize) -> Value {
        let suffixes = self.slices.get(i).map_or(&[][..], Vec::as_slice);
        let addresses: Vec<Ipv4Addr> = suffixes.iter().map(|k| address(i, *k)).collect();
        slice(&name(i), "x7k2p", &addresses, self.version)
    }

    /// The newest endpoint of service number `i`.
    pub fn newest(&self, i: usize) -> Ipv4Addr {
        address(i, self.newest[i])
    }

    /// The Node.
    pub fn node() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": NODE, "resourceVersion": "5", "labels": {"kubernetes.io/hostname": NODE}},
            "spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}
        })
    }

    /// Puts another endpoint in the place of one of service `i`'s.
    pub fn replace_endpoint(&mut self, i: usize) -> Value {
        let next = self.fresh(i);
        let slot = usize::try_from(next).expect("small") % self.slices[i].len();
        self.slices[i][slot] = next;
        self.changed_slice(i)
    }

    /// Gives service `i` one more endpoint.
    pub fn add_endpoint(&mut self, i: usize) -> Value {
        let next = self.fresh(i);
        self.slices[i].push(next);
        self.changed_slice(i)
    }

    /// Takes one of service `i`'s endpoints away.
    pub fn remove_endpoint(&mut self, i: usize) -> Value {
        self.slices[i].pop();
        self.changed_slice(i)
    }

    /// One more service at the end: the slice and the service.
    pub fn add_service(&mut self) -> (Value, Value) {
        self.slices
            .push((0..u32::try_from(self.endpoints).expect("small")).collect());
        self.newest.push(0);
        self.next_version();
        (self.slice(self.count() - 1), self.service(self.count() - 1))
    }

    /// Takes the last service away: as they were, the service and the slice.
    pub fn remove_service(&mut self) -> (Value, Value) {
        self.next_version();
        let gone = (self.service(self.count() - 1), self.slice(self.count() - 1));
        self.slices.pop();
        self.newest.pop();
        gone
    }

    fn fresh(&mut self, i: usize) -> u32 {
        // 200 suffixes per service, walked round and round.
        let fresh = (0..200)
            .map(|step| (self.newest[i] + 1 + step) % 200)
            .find(|k| !self.slices[i].contains(k))
            .expect("few endpoints");
        self.newest[i] = fresh;
        fresh
    }

    fn changed_slice(&mut self, i: usize) -> Value {
        self.next_version();
        self.slice(i)
    }
}

fn name(i: usize) -> String {
    format!("svc-{i:06}")
}

/// The cluster IP of service number `i`.
pub fn cluster_ip(i: usize) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 1, 0)) + u32::try_from(i).expect("few services"))
}

/// Service number and suffix make the address, no two alike, from 11.0.0.0 up.
fn address(i: usize, k: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 0)) + u32::try_from(i).expect("few") * 200 + k)
}

/// A Service with one port and a cluster IP.
pub fn service(name: &str, ip: Ipv4Addr, version: u64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": name, "namespace": "bench", "resourceVersion": version.to_string(),
            "uid": format!("00000000-0000-0000-0000-{:012}", u32::from(ip)), "creationTimestamp": "2026-01-01T00:00:00Z"
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": ip.to_string(), "clusterIPs": [ip.to_string()],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster", "selector": {"app": name},
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]
        },
        "status": {"loadBalancer": {}}
    })
}

/// A slice of a Service.
pub fn slice(service: &str, suffix: &str, addresses: &[Ipv4Addr], version: u64) -> Value {
    let endpoints: Vec<Value> = addresses.iter().map(|ip| endpoint(service, *ip)).collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{service}-{suffix}"), "namespace": "bench",
            "resourceVersion": version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/service-name": service,
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"
            }
        },
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": endpoints
    })
}

fn endpoint(service: &str, ip: Ipv4Addr) -> Value {
    json!({
        "addresses": [ip.to_string()],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": "node-b", "zone": "zone-a",
        "targetRef": {"kind": "Pod", "namespace": "bench", "name": format!("{service}-{}", u32::from(ip)), "uid": format!("{:012}", u32::from(ip))}
    })
}
