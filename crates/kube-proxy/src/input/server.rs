//! Objects of an API server, asked for once.

use anyhow::{Context as _, Result, anyhow};
use cluster::api::{Address, ApiOptions, AskError, Source};
use model::object;
use model::snapshot::{Change, Snapshot};
use serde_json::Value;
use std::path::PathBuf;

/// Where the API server is.
#[derive(clap::Args, Clone, Debug)]
pub struct ServerArgs {
    /// The kubeconfig of an API server to read objects from.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "manifests",
        help_heading = "Cluster and node"
    )]
    kubeconfig: Option<PathBuf>,
    /// The URL of an API server to read objects from.
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "manifests",
        help_heading = "Cluster and node"
    )]
    master: Option<String>,
}

/// What an API server said.
pub struct Answers {
    /// The objects.
    pub documents: Vec<Value>,
    /// Seconds that this host's clock is before the server's; `None` when it did not say what time it has.
    pub ahead: Option<i64>,
}

/// The kinds that are read whole: those that the proxy watches, without its selectors, since what these leave out may be
/// the cause.
const LISTS: [(&str, &str); 4] = [
    ("/api/v1/services", "Service"),
    ("/apis/discovery.k8s.io/v1/endpointslices", "EndpointSlice"),
    ("/api/v1/nodes", "Node"),
    ("/apis/networking.k8s.io/v1/servicecidrs", "ServiceCIDR"),
];

/// kubeadm's configuration of all kube-proxies of a cluster.
pub const CONFIG_MAP: &str = "/api/v1/namespaces/kube-system/configmaps/kube-proxy";

impl ServerArgs {
    /// Whether an API server is named.
    pub fn is_given(&self) -> bool {
        self.kubeconfig.is_some() || self.master.is_some()
    }

    /// Reads the objects that the proxy watches, and then what `more` names by path and kind; without these it does when
    /// they are not there or not allowed.
    ///
    /// # Errors
    /// When the server does not answer, or does not let the first be read.
    pub fn ask(&self, more: impl FnOnce(&[Value]) -> Vec<(String, &'static str)>) -> Result<Answers> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let address = Address {
            kubeconfig: self.kubeconfig.clone(),
            master: self.master.clone(),
        };
        runtime.block_on(async {
            let source = Source::new(ApiOptions {
                // A person waits: these few requests go out at once.
                qps: 0.0,
                ..ApiOptions::new(address, "")
            })
            .await?;
            let mut documents = Vec::new();
            for (path, kind) in LISTS {
                match source.ask(path).await {
                    Ok(list) => documents.push(named(list, kind)),
                    Err(AskError::Absent { .. }) if kind == "ServiceCIDR" => {}
                    Err(error) => return Err(anyhow!(error)),
                }
            }
            for (path, kind) in more(&documents) {
                match source.ask(&path).await {
                    Ok(found) => documents.push(named(found, kind)),
                    Err(AskError::Absent { .. }) => {}
                    // The proxy has no right to read these, and neither may whoever asks: what they would tell is left unsaid.
                    Err(AskError::Forbidden { .. }) => {
                        anstream::eprintln!("note: not allowed to read {path}: told without it");
                    }
                    Err(error) => return Err(anyhow!(error)),
                }
            }
            let ahead = source.clock_ahead().await;
            Ok(Answers { documents, ahead })
        })
    }

    /// The objects as the proxy takes them in.
    pub(super) fn snapshot(&self) -> Result<Snapshot> {
        let mut snapshot = Snapshot::new();
        for document in self.ask(|_| Vec::new())?.documents {
            let decoded = object::decode(document);
            super::tell("note", None, &decoded.notes);
            for object in decoded.objects {
                snapshot.apply(Change::Apply(object));
            }
        }
        Ok(snapshot)
    }
}

/// An answer with its kind: items of lists, and objects asked for by name, come without.
fn named(mut answer: Value, kind: &str) -> Value {
    let is_list = answer.get("items").is_some();
    if let Value::Object(fields) = &mut answer {
        let kind = if is_list {
            format!("{kind}List")
        } else {
            kind.to_owned()
        };
        fields.entry("kind").or_insert_with(|| kind.into());
        fields.entry("apiVersion").or_insert_with(|| "".into());
    }
    answer
}
