//! The table of nftables mode, written, read and watched by netlink from this process.

mod clients;
mod counters;
mod decode;
mod encode;
mod expressions;
mod feature;
mod observe;
mod refused;
mod table;
mod watch;

pub use clients::ClientSets;
pub use counters::CounterTable;
pub use feature::{Feature, Lack};
pub use refused::{NftCommitError, Refused};
pub use table::NftTable;
pub use watch::{TableTouched, TableWatch, TouchedExtent};
