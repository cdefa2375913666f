use super::{DesiredText, SnapshotText};
use crate::object::decode;
use crate::snapshot::{Change, Snapshot};
use crate::{Desired, Family, NodeFacts, PerFamily, Settings};
use serde_json::json;

fn snapshot(backwards: bool) -> Snapshot {
    let slice = |name: &str, ip: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"namespace": "ns", "name": name, "labels": {"kubernetes.io/service-name": "web"}},
            "ports": [{"name": "http", "port": 8080}],
            "endpoints": [{"addresses": [ip], "nodeName": "node-a", "conditions": {"ready": true},
                "hints": {"forZones": [{"name": "z1"}, {"name": "z2"}]}}]})
    };
    let mut documents = vec![
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.2"}]}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ns", "name": "web"},
            "spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.9", "externalTrafficPolicy": "Local",
                "healthCheckNodePort": 31000, "loadBalancerSourceRanges": ["203.0.113.0/24"],
                "ports": [{"name": "http", "port": 80, "nodePort": 30080}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}),
        slice("web-b", "10.244.1.9"),
        slice("web-a", "10.244.1.10"),
    ];
    if backwards {
        documents.reverse();
    }
    let mut snapshot = Snapshot::new();
    for object in documents
        .into_iter()
        .flat_map(|document| decode(document).objects)
    {
        snapshot.apply(Change::Apply(object));
    }
    snapshot
}

fn desired(snapshot: &Snapshot) -> Desired {
    let facts = NodeFacts {
        name: "node-a".into(),
        node_ips: PerFamily {
            v4: "192.168.0.2".parse().ok(),
            v6: None,
        },
        ..NodeFacts::default()
    };
    Desired::from_snapshot(snapshot, Family::V4, &facts, &Settings::default()).0
}

#[test]
fn objects_print_one_fact_a_line() {
    assert_eq!(
        SnapshotText(&snapshot(false)).to_string(),
        "\
Node node-a
  address 192.168.0.2
Service ns/web LoadBalancer
  policy internal Cluster, external Local
  cluster IP 10.96.0.9
  load-balancer IP 1.2.3.4
  source range 203.0.113.0/24
  health check node port 31000
  port http TCP 80, node port 30080
EndpointSlice ns/web-a of ns/web IPv4
  port http TCP 8080
  endpoint 10.244.1.10 ready serving, on node-a, for zones z1,z2
EndpointSlice ns/web-b of ns/web IPv4
  port http TCP 8080
  endpoint 10.244.1.9 ready serving, on node-a, for zones z1,z2
"
    );
}

#[test]
fn intent_prints_lists_routes_reasons_and_admissions() {
    assert_eq!(
        DesiredText(&desired(&snapshot(false))).to_string(),
        "\
IPv4
mark 0x4000
pods cannot be told from others
node ports on every local address, loopback not

ns/web:http TCP
  policy internal Cluster, external Local
  health check node port 31000
  listed endpoints 2
  endpoint 10.244.1.10:8080 in cluster,local,reachable
  endpoint 10.244.1.9:8080 in cluster,local,reachable
  cluster IP 10.96.0.9:80 from pod: cluster list, source kept (ClusterIpUndetected)
  cluster IP 10.96.0.9:80 from node: cluster list, source kept (ClusterIpUndetected)
  cluster IP 10.96.0.9:80 from outside: cluster list, source kept (ClusterIpUndetected)
  load-balancer IP 1.2.3.4:80 from pod: local list, source kept (ExternalLocal)
  load-balancer IP 1.2.3.4:80 from node: cluster list, masqueraded (ShortCircuitNode)
  load-balancer IP 1.2.3.4:80 from outside: local list, source kept (ExternalLocal)
  load-balancer IP 1.2.3.4:80 admits 203.0.113.0/24
  node port 30080 from pod: local list, source kept (ExternalLocal)
  node port 30080 from node: cluster list, masqueraded (ShortCircuitNode)
  node port 30080 from outside: local list, source kept (ExternalLocal)
"
    );
}

#[test]
fn the_order_in_which_objects_came_does_not_show() {
    let (one, other) = (snapshot(false), snapshot(true));
    assert_eq!(SnapshotText(&one).to_string(), SnapshotText(&other).to_string());
    assert_eq!(
        DesiredText(&desired(&one)).to_string(),
        DesiredText(&desired(&other)).to_string()
    );
}
