//! Rows of truth tables by real packets.
//!
//! A situation becomes one or more [`rounds::Round`]s (rows that one lab can hold), each a [`site::Site`] with its
//! places and servers; [`judge`] sends the packets and says what differs from the table.

pub mod judge;
pub mod rounds;
pub mod site;
