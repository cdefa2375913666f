//! A small API server at a place of a lab: streaming lists of a few objects, and nothing else.

use lab::{Lab, Namespace};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The server. It can go away and come back; its objects stay.
pub struct SmallServer {
    namespace: Namespace,
    port: u16,
    objects: Arc<Mutex<Vec<Value>>>,
    open: Option<Open>,
}

struct Open {
    ends: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    acceptor: thread::JoinHandle<()>,
}

impl SmallServer {
    /// One that is away, with these objects, for a port of loopback at this place.
    ///
    /// # Panics
    /// When there is no such place.
    pub fn away(lab: &Lab, place: &str, port: u16, objects: &[Value]) -> SmallServer {
        SmallServer {
            namespace: lab
                .namespace(place)
                .unwrap_or_else(|error| panic!("{}", error.chain())),
            port,
            objects: Arc::new(Mutex::new(objects.to_vec())),
            open: None,
        }
    }

    /// Its URL, from the place it is at.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// From the next list on it has these objects.
    pub fn has(&self, objects: &[Value]) {
        *self.objects.lock().unwrap_or_else(PoisonError::into_inner) = objects.to_vec();
    }

    /// It answers from now on.
    ///
    /// # Panics
    /// When the port is taken.
    pub fn comes(&mut self) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = self
            .namespace
            .run(|| TcpListener::bind(address))
            .unwrap_or_else(|error| panic!("{}", error.chain()))
            .expect("the port is free");
        listener.set_nonblocking(true).expect("a socket may not block");
        let ends = Arc::new(AtomicBool::new(false));
        let streams = Arc::new(Mutex::new(Vec::new()));
        let acceptor = thread::spawn({
            let (ends, streams, objects) = (ends.clone(), streams.clone(), self.objects.clone());
            move || {
                while !ends.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((stream, _)) => answer_on(stream, &streams, objects.clone()),
                        Err(_) => thread::sleep(Duration::from_millis(2)),
                    }
                }
            }
        });
        self.open = Some(Open {
            ends,
            streams,
            acceptor,
        });
    }

    /// It refuses connections from now on, and cuts those there are.
    pub fn goes(&mut self) {
        let Some(open) = self.open.take() else { return };
        open.ends.store(true, Ordering::Relaxed);
        open.acceptor.join().expect("the acceptor ends");
        for stream in open
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // It may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for SmallServer {
    fn drop(&mut self) {
        self.goes();
    }
}

fn answer_on(stream: TcpStream, streams: &Mutex<Vec<TcpStream>>, objects: Arc<Mutex<Vec<Value>>>) {
    stream.set_nonblocking(false).expect("a socket may block");
    let copy = stream.try_clone().expect("a socket can be cloned");
    streams.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
    // Ends with the connection.
    thread::spawn(move || answer(stream, &objects));
}

/// Answers requests until the client or the test has had enough.
fn answer(mut stream: TcpStream, objects: &Mutex<Vec<Value>>) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
    let request = lines.next()?.ok()?;
    while !lines.next()?.ok()?.is_empty() {}
    let uri = request.split(' ').nth(1)?;
    let resource = uri.split('?').next()?.rsplit('/').next()?;
    if !uri.contains("sendInitialEvents=true") {
        // Whatever was seen before is too old.
        let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410});
        let body = body.to_string();
        let length = body.len();
        return write!(
            stream,
            "HTTP/1.1 410 Gone\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .ok();
    }
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .ok()?;
    let all = objects.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for mut object in all.into_iter().filter(|object| plural(object) == resource) {
        object["metadata"]["resourceVersion"] = "7".into();
        event(&mut stream, &json!({"type": "ADDED", "object": object}))?;
    }
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let end = json!({"metadata": {"resourceVersion": "7", "annotations": annotations}});
    event(&mut stream, &json!({"type": "BOOKMARK", "object": end}))?;
    // Open until one of both ends goes.
    lines.next();
    None
}

fn event(stream: &mut TcpStream, event: &Value) -> Option<()> {
    let line = format!("{event}\n");
    write!(stream, "{:x}\r\n{line}\r\n", line.len()).ok()
}

fn plural(object: &Value) -> &'static str {
    match object["kind"].as_str() {
        Some("Service") => "services",
        Some("EndpointSlice") => "endpointslices",
        Some("Node") => "nodes",
        _ => "servicecidrs",
    }
}
