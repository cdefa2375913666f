//! Objects from the API server.
//!
//! One [`watch`] per kind, each with its own connection (HTTP/1.1), sharing a client-side rate limit. Start reading
//! there.

mod answer;
mod ask;
mod client;
mod connect;
mod frame;
mod keep_alive;
mod lines;
mod outage;
mod pace;
mod reach;
mod resource;
mod tally;
mod trouble;
mod watch;
mod write;

pub use ask::AskError;
pub use connect::{Address, ConnectError};
pub(crate) use frame::decode_object;
pub use keep_alive::KeepAlive;
pub use tally::{Asked, Tally, What};
pub(crate) use trouble::one_line;
pub use watch::Timing;
pub use write::{EventWriter, WriteError};

use crate::SourceEvent;
use crate::state::Identity;
use connect::Connection;
use model::object::Kind;
use pace::Throttle;
use reach::Reach;
use resource::Resource;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use watch::Watch;

/// All that the API source wants to know.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Where the server is.
    pub address: Address,
    /// This node's name: of all Nodes, only this one is watched.
    pub node_name: Arc<str>,
    /// Requests a second, on average; zero or less means no limit (`--kube-api-qps`).
    pub qps: f32,
    /// Requests at once (`--kube-api-burst`).
    pub burst: u32,
    /// What the server's logs call us.
    pub user_agent: String,
    /// Waits and limits.
    pub timing: Timing,
    /// Is told of all requests, for metrics.
    pub tally: Tally,
}

impl ApiOptions {
    /// Upstream's defaults.
    pub fn new(address: Address, node_name: impl Into<Arc<str>>) -> Self {
        ApiOptions {
            address,
            node_name: node_name.into(),
            qps: 5.0,
            burst: 10,
            user_agent: format!("kube-proxy-rs/{}", env!("CARGO_PKG_VERSION")),
            timing: Timing::default(),
            tally: Tally::default(),
        }
    }
}

/// The API server as a source of objects.
pub struct Source {
    connection: Connection,
    throttle: Throttle,
    options: ApiOptions,
}

impl Source {
    /// Reads kubeconfig or service account. Does not talk to the server yet, so a server that is away is no error.
    ///
    /// # Errors
    /// When there is no usable configuration.
    pub async fn new(options: ApiOptions) -> Result<Self, ConnectError> {
        let connection = Connection::open(
            options.address.clone(),
            options.user_agent.clone(),
            options.timing.keep_alive.clone(),
            options.tally.clone(),
        )
        .await?;
        Ok(Source {
            connection,
            throttle: Throttle::new(options.qps, options.burst),
            options,
        })
    }

    /// Writes Events at the same server.
    pub fn event_writer(&self) -> EventWriter {
        let (connection, throttle) = (self.connection.clone(), self.throttle.clone());
        EventWriter::new(connection, throttle, self.options.timing.answer)
    }

    /// A client for the same server.
    pub async fn client(&self) -> kube::Client {
        self.connection.lease().await.client
    }

    /// What tells this server's cluster from others, as the configuration has it now.
    pub async fn identity(&self) -> Identity {
        self.connection.lease().await.identity.as_ref().clone()
    }

    /// Watches everything until the receiver is dropped.
    ///
    /// # Panics
    /// When a watch panics: a proxy that goes on with what it knew then would be wrong for days and look well
    /// (upstream issue 28674).
    pub async fn run(self, out: Sender<SourceEvent>) {
        let mut watches = JoinSet::new();
        let reach = Reach::new(self.options.timing.remind);
        for kind in [Kind::Service, Kind::Slice, Kind::Node, Kind::ServiceCidr] {
            let watch = Watch::new(
                Resource::new(kind, &self.options.node_name),
                self.options.node_name.clone(),
                (self.connection.clone(), self.throttle.clone(), reach.clone()),
                self.options.timing.clone(),
                out.clone(),
            );
            watches.spawn(watch.run());
        }
        loop {
            tokio::select! {
                () = out.closed() => return,
                Some(ended) = watches.join_next() => {
                    if let Err(error) = ended {
                        std::panic::resume_unwind(error.into_panic());
                    }
                }
            }
        }
    }
}
