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
}

impl Objects {
    /// So many services with so many endpoints each.
    pub fn new(services: usize, endpoints: usize) -> Objects {
        let first = u32::try_from(endpoints).expect("a small number");
        Objects {
            version: 10,
            endpoints,
            slices: vec![(0..first).collect(); services],
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
        let ip =
            Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 96, 1, 0)) + u32::try_from(i).expect("few services"));
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": name(i), "namespace": "bench", "resourceVersion": self.version.to_string(),
                "uid": format!("00000000-0000-0000-0000-{i:012}"), "creationTimestamp": "2026-01-01T00:00:00Z"
            },
            "spec": {
                "type": "ClusterIP", "clusterIP": ip.to_string(), "clusterIPs": [ip.to_string()],
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
                "internalTrafficPolicy": "Cluster", "selector": {"app": name(i)},
                "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]
            },
            "status": {"loadBalancer": {}}
        })
    }

    /// The slice of service number `i`.
    pub fn slice(&self, i: usize) -> Value {
        let endpoints: Vec<Value> = self
            .slices
            .get(i)
            .map_or(&[][..], Vec::as_slice)
            .iter()
            .map(|k| endpoint(i, *k))
            .collect();
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {
                "name": format!("{}-x7k2p", name(i)), "namespace": "bench",
                "resourceVersion": self.version.to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {
                    "kubernetes.io/service-name": name(i),
                    "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"
                }
            },
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
            "endpoints": endpoints
        })
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
        self.next_version();
        (self.slice(self.count() - 1), self.service(self.count() - 1))
    }

    /// Takes the last service away: as they were, the service and the slice.
    pub fn remove_service(&mut self) -> (Value, Value) {
        self.next_version();
        let gone = (self.service(self.count() - 1), self.slice(self.count() - 1));
        self.slices.pop();
        gone
    }

    fn fresh(&self, i: usize) -> u32 {
        let newest = self.slices[i].iter().max().copied().unwrap_or_default();
        // 200 suffixes per service, walked round and round.
        (0..200)
            .map(|step| (newest + 1 + step) % 200)
            .find(|k| !self.slices[i].contains(k))
            .expect("few endpoints")
    }

    fn changed_slice(&mut self, i: usize) -> Value {
        self.next_version();
        self.slice(i)
    }
}

fn name(i: usize) -> String {
    format!("svc-{i:06}")
}

fn endpoint(i: usize, k: u32) -> Value {
    // 11.0.0.0/8 and up: service number and suffix make the address, no two alike.
    let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 0)) + u32::try_from(i).expect("few") * 200 + k);
    json!({
        "addresses": [ip.to_string()],
        "conditions": {"ready": true, "serving": true, "terminating": false},
        "nodeName": "node-b", "zone": "zone-a",
        "targetRef": {"kind": "Pod", "namespace": "bench", "name": format!("{}-{k}", name(i)), "uid": format!("{i:08}-{k:04}")}
    })
}
