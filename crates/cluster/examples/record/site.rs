//! The real server: changes made to it, and accounts with few rights.

use apiserver::objects;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

pub const SERVICES: &str = "/api/v1/namespaces/default/services";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub const NODES: &str = "/api/v1/nodes";
pub const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

/// A server to break things in.
pub struct Site {
    kubeconfig: Kubeconfig,
    /// Asks with all rights.
    pub admin: Client,
}

impl Site {
    pub async fn new(path: &Path) -> Site {
        let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
        Site {
            admin: client(&kubeconfig).await,
            kubeconfig,
        }
    }

    /// Asks with a token.
    pub async fn client_with(&self, token: &str) -> Client {
        let mut kubeconfig = self.kubeconfig.clone();
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(serde_json::from_value(json!({"token": token})).expect("a user entry"));
        }
        client(&kubeconfig).await
    }

    pub async fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(Body::from(body.to_string().into_bytes()))
            .expect("a request");
        let response = self.admin.send(request).await.expect("the server answers");
        let status = response.status().as_u16();
        let bytes = response
            .into_body()
            .collect()
            .await
            .expect("a whole answer")
            .to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Asks for something that must go well.
    pub async fn must(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.ask(method, path, body).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }

    pub async fn create(&self, path: &str, mut object: Value) {
        let version = if path == SLICES {
            "discovery.k8s.io/v1"
        } else {
            "v1"
        };
        object["apiVersion"] = version.into();
        self.must("POST", path, &object).await;
    }

    pub async fn patch(&self, path: &str, name: &str, change: Value) {
        self.must("PATCH", &format!("{path}/{name}"), &change).await;
    }

    pub async fn delete(&self, path: &str, name: &str) {
        self.must("DELETE", &format!("{path}/{name}"), &Value::Null).await;
    }

    /// Deletes what was made here, and what others may have left.
    pub async fn sweep(&self) {
        for path in [SERVICES, SLICES] {
            let list = self.must("GET", path, &Value::Null).await;
            for object in list["items"].as_array().into_iter().flatten() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                // That one is the server's own.
                if name != "kubernetes" {
                    self.delete(path, name).await;
                }
            }
        }
        self.must("DELETE", NODES, &Value::Null).await;
        self.must("DELETE", EVENTS, &Value::Null).await;
    }

    /// A node, a service with a slice, one that is headless, and one of another proxy.
    pub async fn furnish(&self) {
        self.sweep().await;
        self.create(NODES, objects::node("node-a", "192.0.2.1")).await;
        self.create(NODES, objects::node("node-b", "192.0.2.2")).await;
        self.create(SERVICES, objects::service("a", "10.96.0.11")).await;
        self.create(SLICES, objects::slice("a-1", "a", &["10.244.0.1", "10.244.0.2"]))
            .await;
        self.create(SERVICES, objects::service("headless", "None")).await;
        let mut others = objects::service("others", "10.96.0.12");
        others["metadata"]["labels"]["service.kubernetes.io/service-proxy-name"] = "other".into();
        self.create(SERVICES, others).await;
    }

    /// The token of a service account with these rules alone.
    pub async fn account(&self, name: &str, rules: Value) -> String {
        const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
        for path in [ROLES, BINDINGS, ACCOUNTS] {
            self.ask("DELETE", &format!("{path}/{name}"), &Value::Null).await;
        }
        self.must("POST", ACCOUNTS, &json!({"metadata": {"name": name}}))
            .await;
        self.must(
            "POST",
            ROLES,
            &json!({"metadata": {"name": name}, "rules": rules}),
        )
        .await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        });
        self.must("POST", BINDINGS, &binding).await;
        let path = format!("{ACCOUNTS}/{name}/token");
        let token = self.must("POST", &path, &json!({"spec": {}})).await;
        // The authorizer reads roles through a watch of its own.
        tokio::time::sleep(Duration::from_secs(2)).await;
        token["status"]["token"].as_str().expect("a token").to_owned()
    }
}

async fn client(kubeconfig: &Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
    let mut config = config.expect("a kubeconfig of use");
    config.default_retry = false;
    Client::try_from(config).expect("credentials of use")
}
