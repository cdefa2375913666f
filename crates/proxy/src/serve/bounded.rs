//! So many connections at once on all ports together, and no more. Anyone who reaches a port can open connections and say
//! nothing on them; each takes a file descriptor, without which no tool can be run and no rule written.
//!
//! The oldest connection makes room for the newest: whoever asks now is answered now, and what is closed has mostly been
//! idle. To refuse the newest would let a few idle ones keep the kubelet's probes out.

use axum::serve::Listener;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Connections at once. A process may usually have 1,024 files open, and scrapers and probes are a handful.
const MOST: usize = 256;

/// The connections there are, oldest first. Copies are the same ones.
#[derive(Clone)]
pub(super) struct Connections {
    open: Arc<Mutex<VecDeque<oneshot::Sender<()>>>>,
    most: usize,
}

impl Default for Connections {
    fn default() -> Self {
        Connections::at_most(MOST)
    }
}

impl Connections {
    fn at_most(most: usize) -> Self {
        Connections {
            open: Arc::default(),
            most,
        }
    }

    /// A listener whose connections count among these.
    pub(super) fn bound(&self, inner: TcpListener) -> Bounded {
        Bounded {
            inner,
            connections: self.clone(),
        }
    }

    fn admit(&self, stream: TcpStream) -> Connection {
        let (close, closed) = oneshot::channel();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| !other.is_closed());
        while open.len() >= self.most {
            // Dropping it tells the connection.
            open.pop_front();
        }
        open.push_back(close);
        Connection {
            stream,
            closed: Some(closed),
        }
    }
}

/// A listener of bounded connections.
pub(super) struct Bounded {
    inner: TcpListener,
    connections: Connections,
}

impl Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        // Of a plain listener this tells of failures, and waits.
        let (stream, address) = Listener::accept(&mut self.inner).await;
        (self.connections.admit(stream), address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }
}

/// A connection that ends when a newer one needs its place.
pub(super) struct Connection {
    stream: TcpStream,
    /// `None` once it has ended.
    closed: Option<oneshot::Receiver<()>>,
}

impl Connection {
    /// The stream, unless it has to end. The same task reads and writes, so one of them waiting is enough.
    fn stream(&mut self, cx: &mut Context<'_>) -> io::Result<Pin<&mut TcpStream>> {
        if let Some(closed) = &mut self.closed
            && Pin::new(closed).poll(cx).is_ready()
        {
            self.closed = None;
        }
        match self.closed {
            Some(_) => Ok(Pin::new(&mut self.stream)),
            None => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.stream(cx) {
            Ok(stream) => stream.poll_read(cx, buffer),
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.stream(cx) {
            Ok(stream) => stream.poll_write(cx, bytes),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.stream(cx) {
            Ok(stream) => stream.poll_write_vectored(cx, slices),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    const PATIENCE: Duration = Duration::from_mins(1);

    /// A port whose answer is too long for a connection that nobody reads.
    async fn port(connections: &Connections) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(|| async { "x".repeat(64 << 20) });
        let listener = connections.bound(listener);
        tokio::spawn(async move { axum::serve(listener, router).await });
        address
    }

    async fn say(to: SocketAddr, words: &str) -> TcpStream {
        let mut stream = TcpStream::connect(to).await.unwrap();
        stream.write_all(words.as_bytes()).await.unwrap();
        stream
    }

    #[tokio::test]
    async fn idle_connections_on_any_port_neither_pile_up_nor_keep_the_newest_out() {
        let connections = Connections::at_most(8);
        let ports = [port(&connections).await, port(&connections).await];
        // Nothing said, half a request, an answer that is not read, half a body.
        let sorts = [
            "",
            "GET /healthz HTTP/1.1\r\nX: ",
            "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
        ];
        let mut hostile = Vec::new();
        for i in 0..40 {
            hostile.push(say(ports[i % 2], sorts[i / 2 % 4]).await);
        }
        for to in ports {
            let mut asking = say(to, "GET / HTTP/1.0\r\n\r\n").await;
            let mut answer = [0; 12];
            timeout(PATIENCE, asking.read_exact(&mut answer))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(&answer, b"HTTP/1.0 200");
        }
        // What made room is closed at this end too, whatever it waited for.
        for stream in &mut hostile[..32] {
            let ended = timeout(PATIENCE, tokio::io::copy(stream, &mut tokio::io::sink())).await;
            assert!(ended.is_ok(), "a connection beyond the limit is still open");
        }
        let open = connections.open.lock().unwrap();
        assert!(open.len() <= 8, "{}", open.len());
    }
}
