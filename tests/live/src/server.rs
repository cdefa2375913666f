//! A real API server, where one is to be had: `KPRS_APISERVER_KUBECONFIG` names a kubeconfig for it.
//!
//! * It must be one to break things in: objects are made and deleted, and Services of namespace `default` are ours.
//! * The kubeconfig must have a token, and its server must be `https://127.0.0.1:PORT`: daemons in namespaces reach it
//!   at the same address through a [`Relay`], so they take the file as it is.
//! * `KPRS_APISERVER_CONTROL` may name a command that stops and starts it: it is run with `stop` or `start`.
//! * `KPRS_UPSTREAM_KUBE_PROXY` may name upstream's binary, to run beside ours.
//!
//! No server comes with this project, so tests that need one are skipped without it, aloud, and even where
//! `KPRS_REQUIRE_LIVE` is set: that promises root and tools.

mod objects;
mod relay;
mod requests;
mod wander;

pub use objects::{Slice, node, service};
pub use relay::Relay;
pub use requests::{Answer, Server};
pub use wander::Wander;

use std::env;
use std::io::Write as _;

/// What the environment offers for a variable; says `SKIPPED` if nothing.
pub fn offered(variable: &str) -> Option<String> {
    let value = env::var(variable).ok().filter(|value| !value.is_empty());
    if value.is_none() {
        // Past the capture of the test harness: a skip has to be seen.
        _ = writeln!(
            std::io::stderr(),
            "SKIPPED: {variable} is not set, and no API server comes with this project"
        );
    }
    value
}
