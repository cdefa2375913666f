//! The API's objects as they travel, trimmed to what is read. Unknown fields are skipped.
//!
//! Any JSON or YAML deserializer fills these; a field of a wrong type does not fail the object (see [`Field`]).
//! Field names are the API's.

use super::field::{Field, Shape};
use serde::Deserialize;
use serde::de::MapAccess;
use serde::de::value::MapAccessDeserializer;
use std::collections::BTreeMap;

/// A list field.
pub type List<T> = Field<Vec<Field<T>>>;
/// Labels or annotations.
pub type StringMap = Field<BTreeMap<String, Field<String>>>;

macro_rules! part {
    ($($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl Shape for $name {
            const EXPECTED: &'static str = "an object";

            fn from_map<'de, A: MapAccess<'de>>(map: A) -> Result<Option<Self>, A::Error> {
                Self::deserialize(MapAccessDeserializer::new(map)).map(Some)
            }
        }
    )*};
}

part! {
    /// `metadata`.
    Meta {
        /// Name.
        name: Field<String>,
        /// Namespace; absent for cluster-wide kinds.
        namespace: Field<String>,
        /// Version for watches.
        resource_version: Field<String>,
        /// When it was created, RFC 3339.
        creation_timestamp: Field<String>,
        /// Set while it is being deleted, RFC 3339.
        deletion_timestamp: Field<String>,
        /// Labels.
        labels: StringMap,
        /// Annotations.
        annotations: StringMap,
    }

    /// `v1` Service.
    Service {
        /// Metadata.
        metadata: Field<Meta>,
        /// What is wanted.
        spec: Field<ServiceSpec>,
        /// What load balancers say.
        status: Field<ServiceStatus>,
    }

    /// `spec` of a Service.
    ServiceSpec {
        /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
        #[serde(rename = "type")]
        kind: Field<String>,
        /// The first cluster IP, or `None`.
        #[serde(rename = "clusterIP")]
        cluster_ip: Field<String>,
        /// The cluster IPs.
        #[serde(rename = "clusterIPs")]
        cluster_ips: List<String>,
        /// The families of the cluster IPs, by position.
        ip_families: List<String>,
        /// External IPs.
        #[serde(rename = "externalIPs")]
        external_ips: List<String>,
        /// Ports.
        ports: List<ServicePort>,
        /// `None` or `ClientIP`.
        session_affinity: Field<String>,
        /// Its terms.
        session_affinity_config: Field<SessionAffinityConfig>,
        /// `Cluster` or `Local`.
        internal_traffic_policy: Field<String>,
        /// `Cluster` or `Local`.
        external_traffic_policy: Field<String>,
        /// The port on which load balancers ask for local endpoints.
        health_check_node_port: Field<i64>,
        /// CIDRs that may use the load balancer.
        load_balancer_source_ranges: List<String>,
        /// Whether unready addresses are published as ready.
        publish_not_ready_addresses: Field<bool>,
    }

    /// `spec.ports[]` of a Service.
    ServicePort {
        /// Name.
        name: Field<String>,
        /// Protocol.
        protocol: Field<String>,
        /// Port.
        port: Field<i64>,
        /// Node port.
        node_port: Field<i64>,
    }

    /// `spec.sessionAffinityConfig`.
    SessionAffinityConfig {
        /// Client-IP terms.
        #[serde(rename = "clientIP")]
        client_ip: Field<ClientIpConfig>,
    }

    /// `spec.sessionAffinityConfig.clientIP`.
    ClientIpConfig {
        /// Seconds.
        timeout_seconds: Field<i64>,
    }

    /// `status` of a Service.
    ServiceStatus {
        /// Load balancer.
        load_balancer: Field<LoadBalancerStatus>,
    }

    /// `status.loadBalancer`.
    LoadBalancerStatus {
        /// Points of entry.
        ingress: List<Ingress>,
    }

    /// `status.loadBalancer.ingress[]`.
    Ingress {
        /// Address.
        ip: Field<String>,
        /// `VIP` or `Proxy`.
        ip_mode: Field<String>,
    }

    /// `discovery.k8s.io/v1` `EndpointSlice`.
    EndpointSlice {
        /// Metadata.
        metadata: Field<Meta>,
        /// `IPv4`, `IPv6` or `FQDN`.
        address_type: Field<String>,
        /// Endpoints.
        endpoints: List<Endpoint>,
        /// Ports, the same for all endpoints.
        ports: List<EndpointPort>,
    }

    /// `ports[]` of an `EndpointSlice`.
    EndpointPort {
        /// Name.
        name: Field<String>,
        /// Protocol.
        protocol: Field<String>,
        /// Port.
        port: Field<i64>,
    }

    /// `endpoints[]` of an `EndpointSlice`.
    Endpoint {
        /// Addresses, of which only the first counts.
        addresses: List<String>,
        /// State.
        conditions: Field<Conditions>,
        /// The Node it is on.
        node_name: Field<String>,
        /// For whom it is meant.
        hints: Field<Hints>,
    }

    /// `endpoints[].conditions`.
    Conditions {
        /// Absent means true.
        ready: Field<bool>,
        /// Absent means true.
        serving: Field<bool>,
        /// Absent means false.
        terminating: Field<bool>,
    }

    /// `endpoints[].hints`.
    Hints {
        /// Zones.
        for_zones: List<Hint>,
        /// Nodes.
        for_nodes: List<Hint>,
    }

    /// `forZones[]` or `forNodes[]`.
    Hint {
        /// The zone's or node's name.
        name: Field<String>,
    }

    /// `v1` Node.
    Node {
        /// Metadata.
        metadata: Field<Meta>,
        /// Spec.
        spec: Field<NodeSpec>,
        /// Status.
        status: Field<NodeStatus>,
    }

    /// `spec` of a Node.
    NodeSpec {
        /// The first pod CIDR.
        #[serde(rename = "podCIDR")]
        pod_cidr: Field<String>,
        /// Pod CIDRs.
        #[serde(rename = "podCIDRs")]
        pod_cidrs: List<String>,
        /// Taints.
        taints: List<Taint>,
    }

    /// `spec.taints[]`.
    Taint {
        /// Key.
        key: Field<String>,
    }

    /// `status` of a Node.
    NodeStatus {
        /// Addresses.
        addresses: List<NodeAddress>,
    }

    /// `status.addresses[]`.
    NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname`, ...
        #[serde(rename = "type")]
        kind: Field<String>,
        /// Address.
        address: Field<String>,
    }

    /// `networking.k8s.io/v1` `ServiceCIDR`.
    ServiceCidr {
        /// Metadata.
        metadata: Field<Meta>,
        /// Spec.
        spec: Field<ServiceCidrSpec>,
    }

    /// `spec` of a `ServiceCIDR`.
    ServiceCidrSpec {
        /// Networks.
        cidrs: List<String>,
    }
}
