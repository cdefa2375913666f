//! Around the engine: where objects come from, who carries steps out, what time it is, and what is told of it.
//!
//! * What it is: [`run`], which wires [`engine::Engine`] to a source of [`cluster`] and to the kernel.
//! * In and out: a configuration and a source go in; rules come out in the kernel, and lines in the log.
//! * What it deliberately does not know: what traffic should do, and what rules look like.
//! * Where to start reading: `control`.

mod carry_out;
mod control;
mod counting;
mod drift;
mod events;
mod explore;
mod flows;
mod host;
mod host_firewall;
mod leftovers;
mod memory;
mod node;
mod own_table;
mod port_conflicts;
mod serve;
mod start;
mod tell;
mod thread;
mod verbosity;

pub use conntrack::TcpOption;
pub use counting::MOST_SERVICE_METRICS;
pub use explore::Explorer;
pub use host::HostError;
pub use leftovers::LeftoverError;
pub use memory::StateFolder;
pub use serve::{ExplorerPage, PageOptions};
pub use start::{CleanupError, clean_up, file_changes, prepare, read_config, set_oom_score};
pub use thread::{ThreadError, TooFewThreads, can_have_threads};
pub use verbosity::Verbosity;

use config::KubeProxyConfiguration;
use model::Family;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
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
    /// What the pages for operators need to know.
    pub pages: PageOptions,
    /// Where to remember what the API server said, if at all.
    pub state: Option<StateFolder>,
}

/// Why the proxy cannot serve. Rules that are there stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// The host lacks something.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The system gives no more threads.
    #[error(transparent)]
    Thread(#[from] ThreadError),
    /// The API server cannot even be asked.
    #[error("cannot ask the API server")]
    Api(#[source] cluster::api::ConnectError),
    /// The manifests cannot be read at all.
    #[error("--manifests")]
    Manifests(#[source] cluster::manifests::ManifestError),
    /// A mode that is not there yet.
    #[error("mode {0:?} is not there yet; set mode: iptables or nftables, or the same with --proxy-mode")]
    Mode(String),
    /// There will be no pod CIDR to tell local traffic by.
    #[error("timeout waiting for {0}; detectLocalMode NodeCIDR needs it")]
    NoPodCidr(String),
    /// Local traffic is told by the Node's pod CIDRs, and these changed.
    #[error(
        "the pod CIDRs of node {node:?} changed from {from} to {to}, and detectLocalMode NodeCIDR tells local traffic by them; start again"
    )]
    PodCidrChanged {
        /// The Node.
        node: String,
        /// As they were at start.
        from: String,
        /// As they are now.
        to: String,
    },
    /// The family of the node's own address cannot be served.
    #[error("no support for primary IP family \"{family}\": {reason}")]
    PrimaryFamily {
        /// The family.
        family: Family,
        /// What the host lacks.
        reason: String,
    },
    /// What is configured belongs to the other family.
    #[error("kube-proxy configuration is incorrect: {}", .0.join("; "))]
    WrongFamily(Vec<String>),
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

/// How long the end of the process waits for its Event.
const LAST_WORDS: Duration = Duration::from_secs(3);

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;
type Out = Sender<cluster::SourceEvent>;

/// Serves until the process is killed. Rules stay in place then.
///
/// # Errors
/// What makes serving impossible from the start; later failures are retried and told.
pub async fn run(mut options: ProxyOptions) -> Result<(), ProxyError> {
    if !["iptables", "nftables"].contains(&options.config.mode.as_str()) {
        return Err(ProxyError::Mode(options.config.mode));
    }
    // Before anything that can take long or fail: during a rolling update the ports are probed from the first second.
    let (serving, failure) =
        serve::Serving::start(&options.config, options.node_name.clone(), &options.pages);
    let source = source(&options, &serving).await?;
    let node = options.node_name.clone();
    let told = serving.clone();
    let serve = async {
        // The host is touched (a sysctl) only when there is something to serve.
        let mut host = host::find(&options.config)?;
        start::set_conntrack(&options.config);
        host.look_again();
        host.restrain(&mut options.config);
        control::serve(options, host, source, serving).await
    };
    tokio::select! {
        ended = serve => ended,
        error = failure.wait() => {
            // Upstream ends before its Event about this is sent.
            if let Some(fact) = events::Fact::of_end(&node, &error) {
                told.event(fact);
                told.flush_events(LAST_WORDS).await;
            }
            Err(error)
        }
    }
}

/// A task that sends what a source says, not yet running. With an API server as source, Events go there from now on.
async fn source(
    options: &ProxyOptions,
    serving: &serve::Serving,
) -> Result<Box<dyn FnOnce(Out) -> Task + Send>, ProxyError> {
    match &options.from {
        From::Manifests(path) => {
            let manifests = cluster::manifests::ManifestOptions::new(path, options.node_name.clone());
            let read = tokio::task::spawn_blocking(|| cluster::manifests::Source::new(manifests));
            let read = read.await.expect("invariant: reading manifests does not panic");
            let source = read
                .map_err(ProxyError::Manifests)?
                .beside(memory::rules_of(&options.config.mode));
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
            api.tally = serving.tally();
            api.qps = client.qps;
            api.burst = u32::try_from(client.burst).unwrap_or(0);
            let source = cluster::api::Source::new(api).await.map_err(ProxyError::Api)?;
            let counting = serving.clone();
            let host = rustix::system::uname();
            serving.tell_api(events::Recorder::start(
                source.event_writer(),
                &host.nodename().to_string_lossy(),
                move |outcome, count| counting.count_events(outcome, count),
            ));
            Ok(memory::of(options, source).await)
        }
    }
}
