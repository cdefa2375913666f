//! The vocabulary of the proxy, and what a Service means.
//!
//! * What it is: the words every other crate shares, and the one place where Kubernetes objects are given meaning.
//! * In and out: API objects go in as [`object`] values, a [`snapshot::Snapshot`] keeps them, and
//!   [`resolve`] turns snapshot, [`node::NodeFacts`] and [`settings::Settings`] into [`desired`] values,
//!   one service at a time. [`oracle`] answers what should happen to a packet.
//! * What it deliberately does not know: iptables, the kernel, the API server, time, files.
//! * Where to start reading: [`desired`], then [`resolve`].

pub mod address;
pub mod balance;
pub mod crossing;
pub mod desired;
pub mod family;
pub mod name;
pub mod node;
pub mod note;
pub mod object;
pub mod oracle;
pub mod outcome;
pub mod packet;
pub mod resolve;
pub mod settings;
pub mod snapshot;
pub mod text;

pub use desired::{
    Admission, Affinity, Balancing, DesiredNode, DesiredPort, DesiredService, Frontend, FrontendKind, Reason,
    Route, Routes,
};
pub use desired::{Desired, List, NodePortTargets, Policy};
pub use family::{Family, PerFamily, Protocol};
pub use name::{NamespacedName, ServiceName, ServicePortName, SliceName};
pub use node::NodeFacts;
pub use note::{BalancingIgnored, Note, NoteKind, Severity};
pub use outcome::{Delivery, Outcome};
pub use packet::ConnState;
pub use packet::{Origin, Packet};
pub use settings::ExternalIps;
pub use settings::{ClientHashing, LocalDetector, Mark, NodePortAddresses, Settings};
