//! Requests to the API server, by `curl`.

use super::offered;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// A server that answers.
pub struct Server {
    /// The kubeconfig file.
    pub kubeconfig: String,
    url: String,
    token: String,
}

/// What it answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// HTTP status; 0 when there was no answer.
    pub code: u16,
    /// The object.
    pub body: Value,
}

impl Server {
    /// The one in the environment; `None` after saying so if there is none.
    ///
    /// # Panics
    /// When there is one that these tests cannot use.
    pub fn offered() -> Option<Server> {
        let kubeconfig = offered("KPRS_APISERVER_KUBECONFIG")?;
        let text = fs::read_to_string(&kubeconfig).expect("the kubeconfig can be read");
        let server = Server {
            url: word_after(&text, "server:").expect("the kubeconfig names a server"),
            token: word_after(&text, "token:").expect("the kubeconfig has a token"),
            kubeconfig,
        };
        assert!(
            server.url.starts_with("https://127.0.0.1:"),
            "{} is not on loopback",
            server.url
        );
        let answer = server.ask("GET", "/readyz", None);
        assert_eq!(answer.code, 200, "{} is not ready: {}", server.url, answer.body);
        Some(server)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        let port = self.url.rsplit(':').next();
        port.and_then(|port| port.trim_end_matches('/').parse().ok())
            .expect("a port")
    }

    /// A kubeconfig for the same server with another token.
    pub fn kubeconfig_with(&self, token: &str) -> String {
        let text = fs::read_to_string(&self.kubeconfig).expect("the kubeconfig can be read");
        text.replace(&self.token, token)
    }

    /// Sends one request.
    pub fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let kind = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let text = body.map(Value::to_string).unwrap_or_default();
        self.send(method, path, kind, &text)
    }

    fn send(&self, method: &str, path: &str, kind: &str, text: &str) -> Answer {
        let kind = format!("Content-Type: {kind}");
        let authorization = format!("Authorization: Bearer {}", self.token);
        let mut child = Command::new("curl")
            .args([
                "-sk",
                "-m",
                "20",
                "-w",
                "\n%{http_code}",
                "-X",
                method,
                "-H",
                &kind,
            ])
            .args([
                "-H",
                &authorization,
                "--data-binary",
                "@-",
                &format!("{}{path}", self.url),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl runs");
        let mut stdin = child.stdin.take().expect("invariant: stdin is piped");
        stdin.write_all(text.as_bytes()).expect("curl reads");
        drop(stdin);
        let output = child.wait_with_output().expect("curl ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, code) = text.rsplit_once('\n').unwrap_or(("", "0"));
        Answer {
            code: code.trim().parse().unwrap_or(0),
            body: serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned())),
        }
    }

    /// As [`Server::ask`], and the answer must be a good one.
    ///
    /// # Panics
    /// When it is not.
    #[track_caller]
    pub fn must(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let answer = self.ask(method, path, body);
        let is_good = (200..300).contains(&answer.code);
        assert!(
            is_good,
            "{method} {path}: {} {}\nof {body:?}",
            answer.code, answer.body
        );
        answer.body
    }

    /// Creates an object.
    #[track_caller]
    pub fn create(&self, object: &Value) -> Value {
        self.must("POST", collection(object), Some(object))
    }

    /// Makes sure of the objects of a file of manifests, one after another.
    ///
    /// # Panics
    /// When the server does not take one.
    pub fn apply_yaml(&self, text: &str) {
        for document in text.split("\n---\n") {
            let kind = word_after(document, "\nkind:").expect("a kind");
            let name = word_after(document, "\n  name:").expect("a name");
            let path = format!("{}/{name}?fieldManager=live&force=true", path_of(&kind));
            let answer = self.send("PATCH", &path, "application/apply-patch+yaml", document);
            assert!(
                (200..300).contains(&answer.code),
                "{kind} {name}: {} {}",
                answer.code,
                answer.body
            );
        }
    }

    /// Merges a change into an object of this kind and name.
    #[track_caller]
    pub fn patch(&self, kind: &str, name: &str, change: &Value) -> Value {
        self.must("PATCH", &format!("{}/{name}", path_of(kind)), Some(change))
    }

    /// Deletes an object.
    #[track_caller]
    pub fn delete(&self, kind: &str, name: &str) {
        self.must("DELETE", &format!("{}/{name}", path_of(kind)), None);
    }

    /// Deletes what these tests make, so that each begins with nothing.
    pub fn sweep(&self) {
        let services = self.must("GET", path_of("Service"), None);
        for service in services["items"].as_array().into_iter().flatten() {
            let name = service["metadata"]["name"].as_str().unwrap_or_default();
            if name != "kubernetes" {
                self.delete("Service", name);
            }
        }
        self.must("DELETE", path_of("EndpointSlice"), None);
        self.must("DELETE", path_of("Node"), None);
    }
}

fn collection(object: &Value) -> &'static str {
    path_of(object["kind"].as_str().unwrap_or_default())
}

fn path_of(kind: &str) -> &'static str {
    match kind {
        "Service" => "/api/v1/namespaces/default/services",
        "EndpointSlice" => "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
        "Node" => "/api/v1/nodes",
        "ServiceAccount" => "/api/v1/namespaces/kube-system/serviceaccounts",
        "ClusterRole" => "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding" => "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        other => panic!("these tests know no {other}"),
    }
}

/// The word after a key, wherever it stands: the file may be in any style of YAML.
fn word_after(text: &str, key: &str) -> Option<String> {
    let rest = text.split(key).nth(1)?;
    let is_end = |c: char| c.is_whitespace() || c == ',' || c == '}';
    let word = rest.trim_start().split(is_end).next()?;
    Some(word.trim_matches(['"', '\'']).to_owned())
}
