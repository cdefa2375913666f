//! Around the engine: where objects come from, who carries steps out, what time it is, and what is told of it.
//!
//! * What it is: [`run`], which wires [`engine::Engine`] to a source of [`cluster`] and to the kernel.
//! * In and out: a configuration and a source go in; rules come out in the kernel, and lines in the log.
//! * What it deliberately does not know: what traffic should do, and what rules look like.
//! * Where to start reading: `control`.

mod carry_out;
mod control;
mod drift;
mod flows;
mod host;
mod node;
mod serve;
mod tell;

pub use conntrack::TcpOption;
pub use host::HostError;

use config::KubeProxyConfiguration;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

/// Where objects come from.
#[derive(Clone, Debug)]
pub enum From {
    /// The API server that the configuration and `--master` name.
    Api {
        /// `--master`.
        master: Option<String>,
    },
    /// A file or folder of manifests.
    Manifests(PathBuf),
}

/// All that a running proxy needs to be told.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// The configuration, valid.
    pub config: KubeProxyConfiguration,
    /// This node's name.
    pub node_name: Arc<str>,
    /// Where objects come from.
    pub from: From,
    /// Whether TCP connections may be cut whose endpoint no slice lists any more.
    pub tcp: TcpOption,
}

/// Why the proxy cannot serve. Rules that are there stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The host lacks something.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The API server cannot even be asked.
    #[error("cannot ask the API server")]
    Api(#[source] cluster::api::ConnectError),
    /// The manifests cannot be read at all.
    #[error("cannot read --manifests")]
    Manifests(#[source] cluster::manifests::ManifestError),
    /// A mode that is not there yet.
    #[error("mode {0:?} is not there yet; set mode: iptables, or --proxy-mode iptables")]
    Mode(String),
    /// There will be no pod CIDR to tell local traffic by.
    #[error("timeout waiting for {0}; detectLocalMode NodeCIDR needs it")]
    NoPodCidr(String),
    /// A port could not be opened, and the configuration wants that to be fatal.
    #[error("cannot serve {server} on {address}; free the port, or set bindAddressHardFail: false")]
    Listen {
        /// `healthz` or `metrics`.
        server: &'static str,
        /// Where.
        address: String,
        /// Why not.
        #[source]
        error: std::io::Error,
    },
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Out = Sender<cluster::SourceEvent>;

/// Serves until the process is killed. Rules stay in place then.
///
/// # Errors
/// What makes serving impossible from the start; later failures are retried and told.
pub async fn run(options: ProxyOptions) -> Result<(), ProxyError> {
    if options.config.mode != "iptables" {
        return Err(ProxyError::Mode(options.config.mode));
    }
    // Before anything that can take long or fail: during a rolling update the ports are probed from the first second.
    let (serving, failure) = serve::Serving::start(&options.config, options.node_name.clone());
    let serve = async {
        // The host is touched (a sysctl) only when there is something to serve.
        let source = source(&options).await?;
        let host = host::find(&options.config)?;
        control::serve(options, host, source, serving).await
    };
    tokio::select! {
        ended = serve => ended,
        error = failure.wait() => Err(error),
    }
}

/// A task that sends what a source says, not yet running.
async fn source(options: &ProxyOptions) -> Result<Box<dyn FnOnce(Out) -> Task + Send>, ProxyError> {
    match &options.from {
        From::Manifests(path) => {
            let manifests = cluster::manifests::ManifestOptions::new(path, options.node_name.clone());
            let source = cluster::manifests::Source::new(manifests).map_err(ProxyError::Manifests)?;
            Ok(Box::new(move |out| Box::pin(source.run(out))))
        }
        From::Api { master } => {
            let client = &options.config.client_connection;
            let address = cluster::api::Address {
                kubeconfig: Some(&client.kubeconfig)
                    .filter(|path| !path.is_empty())
                    .map(PathBuf::from),
                master: master.clone(),
            };
            let mut api = cluster::api::ApiOptions::new(address, options.node_name.clone());
            api.qps = client.qps;
            api.burst = u32::try_from(client.burst).unwrap_or(0);
            let source = cluster::api::Source::new(api).await.map_err(ProxyError::Api)?;
            Ok(Box::new(move |out| Box::pin(source.run(out))))
        }
    }
}
