//! A folder of manifests, and objects to put there.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A folder that the daemon watches.
pub struct Manifests {
    folder: tempfile::TempDir,
}

impl Manifests {
    /// An empty folder.
    pub fn new() -> Manifests {
        Manifests {
            folder: tempfile::tempdir().expect("a scratch folder can be made"),
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// Puts objects into a file at once: under another name first, then renamed.
    pub fn put(&self, name: &str, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let hidden = self.file(&format!(".{name}.new"));
        fs::write(&hidden, list.to_string()).expect("the scratch folder can be written to");
        fs::rename(hidden, self.file(name)).expect("the scratch folder can be written to");
    }

    /// Writes a file's bytes in place, as a careless writer does.
    pub fn scribble(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).expect("the scratch folder can be written to");
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) {
        fs::remove_file(self.file(name)).expect("the file was put there");
    }
}

impl Default for Manifests {
    fn default() -> Self {
        Manifests::new()
    }
}

/// A Node with these addresses.
pub fn node(name: &str, addresses: &[&str]) -> Value {
    let addresses: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"type": "InternalIP", "address": address}))
        .collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": addresses}})
}

/// A service of namespace `default` with one TCP port, `port` at the cluster IP to `target` at the pods.
pub fn service(name: &str, cluster_ip: &str, port: u16, target: u16) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "default", "name": name},
        "spec": {"clusterIP": cluster_ip, "ports": [{"name": "p", "protocol": "TCP", "port": port, "targetPort": target}]},
    })
}

/// As [`service`], on a node port as well.
pub fn node_port_service(name: &str, cluster_ip: &str, port: u16, target: u16, node_port: u16) -> Value {
    let mut object = service(name, cluster_ip, port, target);
    object["spec"]["type"] = json!("NodePort");
    object["spec"]["ports"][0]["nodePort"] = json!(node_port);
    object
}

/// The slice of a service: its pods' addresses, each with its node.
pub fn slice(service: &str, target: u16, endpoints: &[(&str, &str)]) -> Value {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|(address, node)| json!({"addresses": [address], "nodeName": node}))
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"namespace": "default", "name": format!("{service}-1"),
                     "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "ports": [{"name": "p", "protocol": "TCP", "port": target}],
        "endpoints": endpoints,
    })
}
