//! Which API server to ask, and as whom: kubeconfig, the pod's service account, or `--master`.

use super::client::client;
use super::keep_alive::KeepAlive;
use super::tally::{Counter, Tally};
use crate::state::Identity;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;
use tokio::sync::Mutex;

/// Where to find the API server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The kubeconfig file (`--kubeconfig`).
    pub kubeconfig: Option<PathBuf>,
    /// The server's URL (`--master`), which wins over the file's.
    pub master: Option<String>,
}

/// Why no client for the API server could be made. Nothing has been sent yet.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error(
        "kubeconfig {path} cannot be used; check that the file is there, readable and names a current context with a server"
    )]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<KubeconfigError>,
    },
    /// Neither kubeconfig nor master given, and no service account to be found.
    #[error(
        "no kubeconfig and no master given, and this is no pod with a service account; give --kubeconfig, --master or --manifests"
    )]
    InCluster {
        /// What is missing.
        source: Box<InClusterError>,
    },
    /// The master is no URL.
    #[error("master {url:?} is no URL such as https://192.0.2.1:6443")]
    Master {
        /// The text given.
        url: String,
    },
    /// TLS or authentication data cannot be used.
    #[error(
        "the credentials for {server} cannot be used; check certificates and keys in the kubeconfig or service account"
    )]
    Credentials {
        /// The server's URL.
        server: String,
        /// What is wrong with them.
        source: Box<kube::Error>,
    },
}

/// The client in use. Watches that find their connection dead ask for a new one, so that no dead pooled connection is
/// used again, and so that renewed certificates and a changed kubeconfig count.
#[derive(Clone)]
pub(crate) struct Connection {
    address: Arc<Address>,
    user_agent: Arc<str>,
    keep_alive: KeepAlive,
    tally: Tally,
    current: Arc<Mutex<Current>>,
}

struct Current {
    generation: u64,
    built: Built,
}

/// A client, and what the configuration says of its server.
struct Built {
    client: Client,
    server: Arc<str>,
    counter: Counter,
    identity: Arc<Identity>,
}

/// A client, and how old it is.
#[derive(Clone)]
pub(crate) struct Lease {
    pub(crate) client: Client,
    /// The server's URL, for messages.
    pub(crate) server: Arc<str>,
    /// Tells what is asked through it.
    pub(crate) counter: Counter,
    /// What tells its cluster from others.
    pub(crate) identity: Arc<Identity>,
    generation: u64,
}

impl Connection {
    /// Reads the configuration and makes the first client. Does not talk to the server.
    pub(crate) async fn open(
        address: Address,
        user_agent: String,
        keep_alive: KeepAlive,
        tally: Tally,
    ) -> Result<Self, ConnectError> {
        let built = build(&address, &user_agent, &keep_alive, &tally).await?;
        Ok(Connection {
            address: Arc::new(address),
            user_agent: user_agent.into(),
            keep_alive,
            tally,
            current: Arc::new(Mutex::new(Current { generation: 0, built })),
        })
    }

    /// The client in use.
    pub(crate) async fn lease(&self) -> Lease {
        let current = self.current.lock().await;
        Lease {
            client: current.built.client.clone(),
            server: current.built.server.clone(),
            identity: current.built.identity.clone(),
            counter: current.built.counter.clone(),
            generation: current.generation,
        }
    }

    /// Replaces the client, unless another watch has done so since this lease. A configuration that has become
    /// unusable leaves the old client in place: its error comes out when that one fails too.
    pub(crate) async fn renew(&self, lease: &Lease) {
        let mut current = self.current.lock().await;
        if current.generation != lease.generation {
            return;
        }
        match build(&self.address, &self.user_agent, &self.keep_alive, &self.tally).await {
            Ok(built) => {
                *current = Current {
                    generation: lease.generation + 1,
                    built,
                };
            }
            Err(error) => {
                tracing::warn!(
                    "{}; the configuration read before stays in use",
                    crate::chain(&error)
                );
            }
        }
    }
}

async fn build(
    address: &Address,
    user_agent: &str,
    keep_alive: &KeepAlive,
    tally: &Tally,
) -> Result<Built, ConnectError> {
    let mut config = load(address).await?;
    let agent = user_agent
        .parse()
        .expect("invariant: a version makes a valid header");
    config.headers.push((
        "user-agent".parse().expect("invariant: a valid header name"),
        agent,
    ));
    let server: Arc<str> = config.cluster_url.to_string().trim_end_matches('/').into();
    let counter = Counter::new(tally.clone(), &config.cluster_url);
    let identity = Identity::new(&server, config.root_cert.as_deref().unwrap_or_default());
    let builder = client(config, keep_alive).map_err(|source| ConnectError::Credentials {
        server: server.to_string(),
        source: Box::new(source),
    })?;
    Ok(Built {
        client: builder.with_layer(&counter).build(),
        server,
        counter,
        identity: Arc::new(identity),
    })
}

async fn load(address: &Address) -> Result<Config, ConnectError> {
    let master = match &address.master {
        None => None,
        Some(url) => Some(
            url.parse()
                .map_err(|_| ConnectError::Master { url: url.clone() })?,
        ),
    };
    match (&address.kubeconfig, master) {
        (Some(path), master) => {
            let mut config = from_file(path).await?;
            config.cluster_url = master.unwrap_or(config.cluster_url);
            Ok(config)
        }
        (None, Some(url)) => Ok(Config::new(url)),
        (None, None) => Config::incluster().map_err(|source| ConnectError::InCluster {
            source: Box::new(source),
        }),
    }
}

async fn from_file(path: &Path) -> Result<Config, ConnectError> {
    let wrong = |source| ConnectError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(wrong)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(address: Address) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        match runtime.block_on(Connection::open(
            address,
            "kube-proxy-rs/test".to_owned(),
            KeepAlive::default(),
            Tally::default(),
        )) {
            Ok(_) => panic!("opened"),
            Err(error) => crate::chain(&error),
        }
    }

    #[test]
    fn a_missing_kubeconfig_is_named_on_one_line() {
        let text = error_text(Address {
            kubeconfig: Some("/nonexistent/kubeconfig".into()),
            master: None,
        });
        assert!(text.contains("kubeconfig /nonexistent/kubeconfig"), "{text}");
        assert!(text.contains("No such file"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn a_master_that_is_no_url_is_named() {
        let text = error_text(Address {
            kubeconfig: None,
            master: Some("not a url".to_owned()),
        });
        assert!(text.contains("\"not a url\""), "{text}");
    }

    #[tokio::test]
    async fn the_master_wins_over_the_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(
            &path,
            "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"http://192.0.2.1:1\"}}]\n\
             users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n\
             current-context: x\n",
        )
        .unwrap();
        let mut address = Address {
            kubeconfig: Some(path),
            master: None,
        };
        assert_eq!(
            load(&address).await.unwrap().cluster_url.to_string(),
            "http://192.0.2.1:1/"
        );
        address.master = Some("http://192.0.2.2:2".to_owned());
        assert_eq!(
            load(&address).await.unwrap().cluster_url.to_string(),
            "http://192.0.2.2:2/"
        );
    }
}
