//! The rule explorer: what a browser asks, and what it is answered.
//!
//! * What it is: [`read`] makes a [`Asked`] of a request, or refuses it; an [`Explored`] world answers what is asked about
//!   Services, packets and notes, and [`Changes`] what is asked about the last changes. The page itself is three files of
//!   `page`, compiled in.
//! * In and out: requests, a world of [`explain`], changes and times go in; status, type and body come out.
//! * What it deliberately does not know: sockets, HTTP servers, clocks, the engine. Nothing can be changed by a request.
//! * Where to start reading: `request`, then `explored`.

mod answer;
pub mod changes;
mod counted;
mod difference;
mod explored;
mod notes;
mod request;
mod rules;
mod service;
mod state;
mod table;
mod way;

pub use answer::{Answer, HEADERS};
pub use changes::{Changes, Now};
pub use counted::{COUNTED_EVERY_SECONDS, Counted};
pub use explored::{About, Explored, Liveness};
pub use request::{AboutChanges, AboutWorld, Asked, Names, Request, read};
