//! The one group to which the kernel logs the traces of legacy, and its one listener.

use super::LegacyTraceError;
use crate::FailureKind;
use crate::socket::{Socket, SocketError};
use crate::watch::readable;
use netlink::nflog::{DEFAULT_GROUP, Listen, Logged};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// So much of each packet is wanted: headers, and a little of what is in them.
const BYTES: u32 = 128;

/// Listens to the group, as the only one of this network namespace: whoever holds it may change what traces share.
pub(super) struct LogGroup(Socket);

impl LogGroup {
    pub(super) fn listen() -> Result<LogGroup, LegacyTraceError> {
        let mut socket = Socket::netfilter().map_err(LegacyTraceError::Listen)?;
        let listen = Listen {
            group: DEFAULT_GROUP,
            bytes: BYTES,
        };
        match socket.ask(|sequence, bytes| listen.encode(sequence, bytes), |_| Ok(())) {
            Ok(_) => {
                socket.make_wide();
                Ok(LogGroup(socket))
            }
            Err(error) => Err(refused(error)),
        }
    }

    pub(super) fn another_fd(&self) -> io::Result<OwnedFd> {
        self.0.another_fd()
    }

    /// Hands over what has come, without waiting.
    pub(super) fn take(&mut self, each: &mut dyn FnMut(&Logged<'_>)) -> Result<(), SocketError> {
        while let Some(messages) = self.0.notifications()? {
            for message in messages {
                if let Some(logged) = Logged::read(message?)? {
                    each(&logged);
                }
            }
        }
        Ok(())
    }

    /// Waits until something has come.
    pub(super) fn readable(&self, until: Instant) -> Result<bool, SocketError> {
        readable(&self.0, until)
    }
}

/// The kernel refuses a second listener as it refuses one without rights.
fn refused(error: SocketError) -> LegacyTraceError {
    let table = fs::read_to_string("/proc/net/netfilter/nfnetlink_log").unwrap_or_default();
    match listener(&table) {
        Some(port) if error.kind() == FailureKind::Denied => LegacyTraceError::Taken { port },
        _ => LegacyTraceError::Listen(error),
    }
}

/// The netlink port of the group's listener, which is a process's id as a rule.
fn listener(table: &str) -> Option<u32> {
    let mut rows = table.lines().map(|line| line.split_whitespace());
    rows.find_map(|mut row| {
        let group: u16 = row.next()?.parse().ok()?;
        let port = row.next()?.parse().ok()?;
        (group == DEFAULT_GROUP).then_some(port)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_the_group_is_found_among_others() {
        let table = "    5  77     0 2   128    100  1\n    0  13022     0 2   128    100  1\n";
        assert_eq!(listener(table), Some(13022));
        assert_eq!(listener("    5  77     0 2   128    100  1\n"), None);
        assert_eq!(listener("nonsense\n\n"), None);
    }
}
