//! `KubeProxyConfiguration`: decoding, defaults, validation, and what of it decides what traffic should do.
//!
//! * What it is: the configuration file's types ([`types`]) with upstream's defaults, read by [`decode()`],
//!   checked by [`validate()`], turned into [`model::Settings`] by [`settings()`].
//! * In and out: text in; a [`KubeProxyConfiguration`], or errors that name field and reason, out.
//! * What it deliberately does not know: files, flags, the API server.
//! * Source of the facts: upstream 1.36's `pkg/proxy/apis/config`, and its answers to `scenarios/config/table.json`.

mod checks;
mod decode;
mod duration;
pub mod flags;
mod gates;
mod go;
mod idle;
mod logging;
mod quantity;
mod settings;
mod shown;
pub mod types;
mod validate;
pub mod words;
mod write;

pub use checks::{Checks, NodeFamilies, checks};
pub use decode::{DecodeError, Decoded, decode};
pub use duration::GoDuration;
pub use gates::{GateNotes, Locked, check_gates};
pub use idle::without_effect;
pub use logging::{info_buffer_bytes, stream_options, validate_logging};
pub use settings::{facts, node_ips, settings};
pub use shown::flag_value;
pub use types::KubeProxyConfiguration;
pub use validate::{FieldError, validate, why_no_node_name};
pub use write::to_yaml;
