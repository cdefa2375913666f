//! The netlink codec: bytes in, values out; values in, bytes out.
//!
//! **What it is.** Messages, attributes, batches, acknowledgements, dumps and notifications of nfnetlink: `nf_tables`
//! (tables, chains, rules, generations, traces), conntrack and accounting objects, and the structures of xtables
//! that iptables-nft stores inside `nf_tables` rules.
//!
//! **In and out.** A request is a value with an `encode`; what a socket received is read with
//! [`message::Messages`] or [`dump::Dump`] and the family's `Message::read`. Decoded values borrow from the buffer,
//! one message at a time, so a dump of any size needs one buffer.
//!
//! **What it does not know.** Sockets, clocks, files, Kubernetes, and what a rule means. Reading is total: any
//! bytes give a value or a [`DecodeError`], never a panic.
//!
//! **Where to start.** [`nft::Request`], [`nft::Message`], [`nfnl::Batch`], [`xt::Match`].
//!
//! ```
//! use netlink::dump::{Dump, DumpError, Progress};
//! use netlink::nfnl::Family;
//! use netlink::nft;
//!
//! let mut request = Vec::new();
//! let question = nft::Request::ChainRules { family: Family::Ipv4, table: "nat", chain: "KUBE-SERVICES" };
//! question.encode(7, &mut request)?;
//! // A socket would send `request` now, and receive into a buffer until the dump ends.
//! # let received: Vec<Vec<u8>> = vec![include_bytes!("../tests/data/done.bin").to_vec()];
//! let mut dump = Dump::new(7);
//! for buffer in &received {
//!     let progress = dump.read(buffer, |message| {
//!         if let nft::Message::NewRule(rule) = nft::Message::read(message)? {
//!             println!("{} {}: {:?}", rule.chain, rule.handle, rule.expressions);
//!         }
//!         Ok::<(), DumpError>(())
//!     })?;
//!     if progress == Progress::Interrupted { /* ask again */ }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Changes go through a batch:
//!
//! ```
//! use netlink::nfnl::{Batch, Family};
//! use netlink::nft::Change;
//!
//! let mut batch = Batch::new(100, Some(41)); // refused with ERESTART unless the generation still is 41
//! batch.push(&Change::DeleteRule { family: Family::Ipv4, table: "nat", chain: "PREROUTING", handle: 12 })?;
//! let batch = batch.finish().expect("one operation was pushed");
//! assert_eq!(batch.last_operation, 101); // its ACK means that the batch is committed
//! # Ok::<(), netlink::EncodeError>(())
//! ```

mod codes;

pub mod attr;
pub mod conntrack;
pub mod dump;
pub mod error;
pub mod ipset;
pub mod ipvs;
pub mod message;
pub mod nfacct;
pub mod nflog;
pub mod nfnl;
pub mod nft;
pub mod packet;
pub mod sock_diag;
pub mod write;
pub mod xt;

pub use error::{DecodeError, DecodeErrorKind, EncodeError, Errno, KernelError};
