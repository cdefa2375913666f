//! How large a table of legacy iptables is: one socket option, and nothing else.
//!
//! * What it is: [`table_size`], which asks `IPT_SO_GET_INFO` or `IP6T_SO_GET_INFO`.
//! * In and out: a socket of the family and a table's name go in; how many entries and bytes it has comes out.
//! * What it deliberately does not know: whose sockets those are, and what a changed size means.
//! * Where to start reading: [`table_size`].
//!
//! It is a crate because it has the one unsafe block of the workspace (ADR 39): no crate that is kept well offers a
//! `getsockopt` whose buffer is read as well as written.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Whose tables: each has a socket option of its own, on sockets of its own kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// `ip_tables`, asked on a socket of `AF_INET`.
    Ipv4,
    /// `ip6_tables`, asked on a socket of `AF_INET6`.
    Ipv6,
}

/// The size of a table. Every rule that comes or goes moves both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableSize {
    /// Rules, and two more entries for each chain.
    pub entries: u32,
    /// Bytes of all entries.
    pub bytes: u32,
}

/// `IPT_BASE_CTL`, which is `IPT_SO_GET_INFO`; IPv6 has the same number.
const GET_INFO: libc::c_int = 64;

/// `struct ipt_getinfo`, and `ip6t_getinfo` is the same: the name of 32 bytes, the hooks, five entry points, five
/// underflows, the number of entries, the size in bytes.
const INFO: usize = 84;
/// Where the name ends, with its zero.
const NAME: usize = 32;
/// Where the number of entries begins.
const ENTRIES: usize = 76;
/// Where the size begins.
const BYTES: usize = 80;

/// Asks the kernel for the size of a table of the network namespace that the socket was made in. Any socket of the
/// family does; a datagram one needs no privilege to be made, and asking needs `CAP_NET_ADMIN`.
///
/// A table that nobody has used yet is made by asking, with its hooks.
///
/// # Errors
/// `ENOENT` when the kernel has no such table, `EPERM` without the capability, `ENOPROTOOPT` when it has no such
/// tables at all or the socket is not of the family.
pub fn table_size(socket: impl AsFd, tables: Tables, name: &str) -> io::Result<TableSize> {
    if name.len() >= NAME {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut info = [0; INFO];
    info[..name.len()].copy_from_slice(name.as_bytes());
    let level = match tables {
        Tables::Ipv4 => libc::IPPROTO_IP,
        Tables::Ipv6 => libc::IPPROTO_IPV6,
    };
    get_info(socket.as_fd(), level, &mut info)?;
    let number = |at: usize| {
        let bytes = info[at..at + 4]
            .try_into()
            .expect("invariant: four bytes are four");
        u32::from_ne_bytes(bytes)
    };
    Ok(TableSize {
        entries: number(ENTRIES),
        bytes: number(BYTES),
    })
}

/// The option's buffer goes in with the table's name and comes out filled.
#[expect(unsafe_code, reason = "the one call that no safe function offers")]
fn get_info(socket: BorrowedFd<'_>, level: libc::c_int, info: &mut [u8; INFO]) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(info.len()).expect("invariant: 84 fits");
    // SAFETY: `socket` is borrowed, so the descriptor is open during the call. `info` and `length` are exclusively
    // borrowed, live until after it and are not kept by the kernel, which writes at most `length` bytes to `info`:
    // exactly as many as are there, all initialised, and any bytes are good as bytes.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            GET_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn a_name_that_no_table_can_have_is_not_asked_for() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let long = "a".repeat(NAME);
        let error = table_size(&socket, Tables::Ipv4, &long).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_the_kernel_refuses_is_its_error() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        // Without the capability it is EPERM, without the table ENOENT, without the tables ENOPROTOOPT.
        let error = table_size(&socket, Tables::Ipv4, "no-such-table").expect_err("no such table");
        let expected = [libc::EPERM, libc::ENOENT, libc::ENOPROTOOPT];
        assert!(
            error.raw_os_error().is_some_and(|code| expected.contains(&code)),
            "{error}"
        );
    }
}
