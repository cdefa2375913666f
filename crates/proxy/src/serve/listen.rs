//! Opening ports: again and again while another has them, such as the old instance during a rolling update.

use super::Serving;
use super::families::own;
use crate::ProxyError;
use axum::Router;
use model::Family;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::Sender;

/// How long to wait before the next try, as long as upstream's.
pub(super) const RETRY: Duration = Duration::from_secs(5);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// Which families a wildcard address takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wildcard {
    /// Both, where the host has IPv6.
    Both,
    /// Its own.
    One,
}

/// Serves for ever. An empty address means no server.
pub(super) async fn serve(
    serving: Serving,
    server: &'static str,
    address: String,
    router: Router,
    failed: Option<Sender<ProxyError>>,
) {
    if address.is_empty() {
        tracing::info!(server, "no address to serve on");
        return;
    }
    loop {
        let opened = match address.parse() {
            Ok(address) => open(address, Wildcard::Both),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "is no address and port",
            )),
        };
        let error = match opened {
            Ok(listener) => {
                tracing::info!(server, address, "serving");
                match axum::serve(serving.0.connections.bound(listener), router.clone()).await {
                    Ok(()) => return,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        serving.record().metrics.add(own::LISTEN_FAILURES, &[server], 1.0);
        tracing::error!(server, address, %error, "cannot serve; trying again");
        if let Some(failed) = &failed {
            let error = ProxyError::Listen {
                server,
                address,
                error,
            };
            // With nobody to hear it, the process is on its way out already.
            let _ = failed.send(error).await;
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Opens one port. Like upstream, `0.0.0.0` of the daemon's own servers takes IPv6 as well where the host has it.
pub(super) fn open(address: SocketAddr, wildcard: Wildcard) -> io::Result<TcpListener> {
    if address.ip().is_unspecified() && wildcard == Wildcard::Both {
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        match open_one(both, Wildcard::Both) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
                ) || error.raw_os_error() == Some(libc_eafnosupport()) => {}
            opened => return opened,
        }
    }
    open_one(address, wildcard)
}

/// "Address family not supported by protocol": a host without IPv6.
fn libc_eafnosupport() -> i32 {
    rustix::io::Errno::AFNOSUPPORT.raw_os_error()
}

fn open_one(address: SocketAddr, wildcard: Wildcard) -> io::Result<TcpListener> {
    let family = match Family::of(address.ip()) {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, wildcard == Wildcard::One)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    TcpListener::from_std(std::net::TcpListener::from(socket))
}
