//! A server that is asked: the double or a real one.

use apiserver::{Access, Options, Right, Rights, Server, Transport, User};
use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use http::{HeaderMap, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const SERVICES: &str = "/api/v1/namespaces/default/services";
pub const ALL_SERVICES: &str = "/api/v1/services";
pub const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
pub const ALL_SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
pub const NODES: &str = "/api/v1/nodes";
pub const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";

const ADMIN: &str = "admin-token";

/// A server, asked as somebody.
pub struct Subject {
    client: Client,
    kubeconfig: Kubeconfig,
    double: Option<Arc<Double>>,
}

struct Double {
    server: Server,
    tokens: Mutex<BTreeMap<String, User>>,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
    /// The text as JSON; null if it is none.
    pub body: Value,
}

impl Answer {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// A Status object with this code, reason and message.
    #[track_caller]
    pub fn is_status(&self, code: u16, reason: &str, message: &str) {
        assert_eq!(self.status, code, "{self:#?}");
        assert!(
            self.header("content-type").starts_with("application/json"),
            "{self:#?}"
        );
        assert_eq!(self.body["kind"], "Status", "{self:#?}");
        assert_eq!(self.body["apiVersion"], "v1", "{self:#?}");
        assert!(self.body["metadata"].is_object(), "{self:#?}");
        assert_eq!(self.body["status"], "Failure", "{self:#?}");
        assert_eq!(self.body["code"], code, "{self:#?}");
        assert_eq!(self.body["reason"], reason, "{self:#?}");
        assert_eq!(self.body["message"], message, "{self:#?}");
    }

    /// The version of a list or an object.
    pub fn version(&self) -> u64 {
        version(&self.body)
    }

    /// The names of a list's items.
    pub fn names(&self) -> Vec<&str> {
        let items = self.body["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap())
            .collect()
    }
}

pub fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version
        .unwrap_or_else(|| panic!("no version: {object}"))
        .parse()
        .unwrap()
}

/// The lines of a watch.
pub struct Lines(Pin<Box<dyn futures::AsyncBufRead>>);

impl Lines {
    /// The next line; `None` at the proper end.
    pub async fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = tokio::time::timeout(Duration::from_mins(1), self.0.read_line(&mut line));
        match read.await.expect("a line or the end within a minute").unwrap() {
            0 => None,
            _ => Some(serde_json::from_str(&line).unwrap()),
        }
    }

    /// The next one, which must be of this type.
    pub async fn expect(&mut self, kind: &str) -> Value {
        let event = self.next().await.expect("an event");
        assert_eq!(event["type"], kind, "{event}");
        event["object"].clone()
    }
}

impl Subject {
    /// The double, with one administrator.
    pub async fn double() -> Subject {
        let admin = User {
            name: "admin".to_owned(),
            rights: Rights::All,
        };
        let tokens = BTreeMap::from([(ADMIN.to_owned(), admin)]);
        let server = Server::start(Options {
            transport: Transport::Tls,
            access: Access::Tokens(tokens.clone()),
            ..Options::default()
        });
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig(Some(ADMIN))).unwrap();
        Subject {
            client: client(&kubeconfig).await,
            kubeconfig,
            double: Some(Arc::new(Double {
                server,
                tokens: Mutex::new(tokens),
            })),
        }
    }

    /// A real one, if there is one.
    pub async fn real() -> Option<Subject> {
        let path = std::env::var("KPRS_APISERVER_KUBECONFIG").ok()?;
        let kubeconfig = Kubeconfig::read_from(&path).unwrap();
        Some(Subject {
            client: client(&kubeconfig).await,
            kubeconfig,
            double: None,
        })
    }

    /// The same server with another token, or with none.
    pub async fn with_token(&self, token: Option<&str>) -> Subject {
        let mut kubeconfig = self.kubeconfig.clone();
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(serde_json::from_value(json!({"token": token})).unwrap());
        }
        Subject {
            client: client(&kubeconfig).await,
            kubeconfig,
            double: self.double.clone(),
        }
    }

    /// The same server, asked by a service account `conf-NAME` with these rules alone. Its name, too.
    pub async fn with_rules(&self, name: &str, rules: Value) -> (Subject, String) {
        let name = format!("conf-{name}");
        let user = format!("system:serviceaccount:default:{name}");
        let token = match &self.double {
            Some(double) => {
                let mut tokens = double.tokens.lock().unwrap();
                let rights = Rights::Only(Right::of_rules(&rules));
                tokens.insert(
                    name.clone(),
                    User {
                        name: user.clone(),
                        rights,
                    },
                );
                double.server.set_access(Access::Tokens(tokens.clone()));
                name
            }
            None => self.account(&name, rules).await,
        };
        let subject = self.with_token(Some(&token)).await;
        (subject, user)
    }

    async fn account(&self, name: &str, rules: Value) -> String {
        const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
        const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
        const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
        for path in [ROLES, BINDINGS, ACCOUNTS] {
            self.ask("DELETE", &format!("{path}/{name}"), &Value::Null).await;
        }
        self.create(ACCOUNTS, &json!({"metadata": {"name": name}})).await;
        self.create(ROLES, &json!({"metadata": {"name": name}, "rules": rules}))
            .await;
        let binding = json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        });
        self.create(BINDINGS, &binding).await;
        let token = self
            .create(&format!("{ACCOUNTS}/{name}/token"), &json!({"spec": {}}))
            .await;
        // The authorizer reads roles through a watch of its own.
        tokio::time::sleep(Duration::from_secs(2)).await;
        token["status"]["token"].as_str().unwrap().to_owned()
    }

    /// Sends a request, with JSON unless the body is null.
    pub async fn ask(&self, method: &str, uri: &str, body: &Value) -> Answer {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        self.send(
            method,
            uri,
            &[("content-type", kind), ("accept", "application/json")],
            body,
        )
        .await
    }

    pub async fn get(&self, uri: &str) -> Answer {
        self.ask("GET", uri, &Value::Null).await
    }

    pub async fn send(&self, method: &str, uri: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = request.body(Body::from(body)).unwrap();
        let response = self.client.send(request).await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Answer {
            status,
            headers,
            body: serde_json::from_str(&text).unwrap_or(Value::Null),
            text,
        }
    }

    /// Creates an object, which must go well.
    pub async fn create(&self, path: &str, object: &Value) -> Value {
        let answer = self.ask("POST", path, object).await;
        assert_eq!(answer.status, 201, "{answer:#?}");
        answer.body
    }

    /// Creates an object in place of what an earlier run may have left.
    pub async fn make(&self, path: &str, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.delete(path, name).await;
        self.create(path, object).await
    }

    pub async fn patch(&self, path: &str, name: &str, change: &Value) -> Value {
        let answer = self.ask("PATCH", &format!("{path}/{name}"), change).await;
        assert_eq!(answer.status, 200, "{answer:#?}");
        answer.body
    }

    /// Deletes an object if it is there.
    pub async fn delete(&self, path: &str, name: &str) {
        let answer = self.ask("DELETE", &format!("{path}/{name}"), &Value::Null).await;
        assert!(matches!(answer.status, 200 | 404), "{answer:#?}");
    }

    /// Opens a watch, which must be accepted.
    pub async fn watch(&self, uri: &str) -> Lines {
        let request = Request::get(uri)
            .header("accept", "application/json")
            .body(Body::empty())
            .unwrap();
        let response = self.client.send(request).await.unwrap();
        assert_eq!(response.status(), 200, "{uri}");
        let body = response.into_body().into_data_stream();
        let body = body.map_err(std::io::Error::other).into_async_read();
        Lines(Box::pin(body))
    }
}

async fn client(kubeconfig: &Kubeconfig) -> Client {
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options)
        .await
        .unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// A Service with a label to select it by.
pub fn service(name: &str, label: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": name, "labels": {"conf": label}},
        "spec": {"ports": [{"name": "p", "port": 80}]},
    })
}
