//! The way from a namespace to the API server.
//!
//! A socket stays in the namespace it was made in, so threads of this process can accept in one and connect in another.

use lab::{Lab, Namespace};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Listens on a port of loopback in a place of a lab, and leads to the same port of loopback here.
pub struct Relay {
    namespace: Namespace,
    port: u16,
    open: Option<Open>,
}

struct Open {
    ends: Arc<AtomicBool>,
    carried: Arc<Mutex<Vec<TcpStream>>>,
    acceptor: JoinHandle<()>,
}

impl Relay {
    /// Opens one.
    ///
    /// # Panics
    /// When the port is taken there.
    pub fn open(lab: &Lab, place: &str, port: u16) -> Relay {
        let namespace = lab
            .namespace(place)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        let mut relay = Relay {
            namespace,
            port,
            open: None,
        };
        relay.restore();
        relay
    }

    /// Cuts all connections, and refuses new ones.
    pub fn cut(&mut self) {
        let Some(open) = self.open.take() else { return };
        open.ends.store(true, Ordering::Relaxed);
        open.acceptor.join().expect("the acceptor ends");
        for stream in open
            .carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Accepts again.
    ///
    /// # Panics
    /// When the port is taken there.
    pub fn restore(&mut self) {
        let address = (Ipv4Addr::LOCALHOST, self.port);
        let listener = self
            .namespace
            .run(|| TcpListener::bind(address))
            .unwrap_or_else(|error| panic!("{}", error.chain()))
            .expect("the port is free");
        listener.set_nonblocking(true).expect("a socket may not block");
        let ends = Arc::new(AtomicBool::new(false));
        let carried = Arc::new(Mutex::new(Vec::new()));
        let acceptor = thread::spawn({
            let (ends, carried, port) = (ends.clone(), carried.clone(), self.port);
            move || {
                while !ends.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((near, _)) => carry(&near, port, &carried),
                        Err(_) => thread::sleep(Duration::from_millis(1)),
                    }
                }
            }
        });
        self.open = Some(Open {
            ends,
            carried,
            acceptor,
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Carries both ways, on threads. When the server is away the near end just closes.
fn carry(near: &TcpStream, port: u16, carried: &Mutex<Vec<TcpStream>>) {
    let Ok(far) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
        return;
    };
    let clone = |stream: &TcpStream| stream.try_clone().expect("a socket can be cloned");
    near.set_nonblocking(false).expect("a socket may block");
    for stream in [near, &far] {
        stream.set_nodelay(true).expect("a socket need not wait");
        carried
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(clone(stream));
    }
    for (from, to) in [(clone(near), clone(&far)), (clone(&far), clone(near))] {
        thread::spawn(move || {
            // However it ends, the other end is told.
            let _ = copy(&from, &to);
            let _ = from.shutdown(Shutdown::Both);
            let _ = to.shutdown(Shutdown::Both);
        });
    }
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(()),
            count => to.write_all(&buffer[..count])?,
        }
    }
}
