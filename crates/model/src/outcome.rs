//! What becomes of a packet: the shared language of oracle, tracers and probes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

/// One endpoint a packet may be delivered to, and whether its source is rewritten on the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Delivery {
    /// The endpoint.
    pub endpoint: SocketAddr,
    /// Whether the endpoint sees the node's address in place of the client's.
    pub masquerade: bool,
}

/// What becomes of a packet sent to a service address, as far as the proxy decides it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It goes to one of these, never empty, each with equal chance unless affinity says otherwise.
    Delivered(BTreeSet<Delivery>),
    /// The client is told at once (ICMP port unreachable).
    Rejected,
    /// It vanishes; the client waits.
    Dropped,
    /// A filter rule of ours accepts it for this node itself (health-check node ports).
    Accepted,
    /// No rule of ours changes it.
    Untouched,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Delivered(to) => {
                for (i, d) in to.iter().enumerate() {
                    let sep = if i == 0 { "" } else { ", " };
                    write!(
                        f,
                        "{sep}{}{}",
                        d.endpoint,
                        if d.masquerade { " (masqueraded)" } else { "" }
                    )?;
                }
                Ok(())
            }
            Outcome::Rejected => f.write_str("REJECT"),
            Outcome::Dropped => f.write_str("DROP"),
            Outcome::Accepted => f.write_str("ACCEPT"),
            Outcome::Untouched => f.write_str("untouched"),
        }
    }
}
