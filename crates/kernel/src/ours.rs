//! Which netlink ports have committed rules for this process lately: its own sockets', and its tools'.
//!
//! A tool's socket is bound to the tool's process id unless that port is taken, so a tool is known by its id. One that
//! was given another port counts as somebody else, and what it wrote is looked at once more, which harms nobody.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Enough for every tool that can have run while a notification was on its way.
const REMEMBERED: usize = 64;

static RECENT: Mutex<VecDeque<u32>> = Mutex::new(VecDeque::new());

/// Remembers a port that commits, or is about to.
pub(crate) fn remember(port: u32) {
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    if recent.contains(&port) {
        return;
    }
    if recent.len() == REMEMBERED {
        recent.pop_front();
    }
    recent.push_back(port);
}

/// Whether a port committed for this process.
pub(crate) fn is_ours(port: u32) -> bool {
    RECENT
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .contains(&port)
}
