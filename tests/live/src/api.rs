//! An API server of a few lines, in a node's namespace: it hands out objects once, and keeps what is written to it.

use lab::Lab;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What it does with writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// Takes them.
    Taken,
    /// Says that they are forbidden.
    Refused,
    /// Reads them and never answers.
    Unanswered,
}

/// The server; it serves until the test's process ends.
pub struct Api {
    written: Arc<Mutex<Vec<Value>>>,
    port: u16,
}

impl Api {
    /// Serves these objects at the place's loopback address.
    ///
    /// # Panics
    /// When the place has no free port.
    pub fn start(lab: &Lab, place: &str, objects: &[Value], writes: Writes) -> Api {
        let namespace = lab
            .namespace(place)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
        let listener = namespace
            .run(|| TcpListener::bind("127.0.0.1:0"))
            .unwrap_or_else(|error| panic!("{}", error.chain()))
            .expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (objects, kept) = (objects.to_vec(), written.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (objects, kept) = (objects.clone(), kept.clone());
                // A connection that ends is the daemon's affair.
                thread::spawn(move || drop(serve(stream, &objects, writes, &kept)));
            }
        });
        Api { written, port }
    }

    /// For `--master`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The Events that were posted, with this reason.
    ///
    /// # Panics
    /// Never, as long as no other thread has.
    pub fn events(&self, reason: &str) -> Vec<Value> {
        let written = self.written.lock().expect("nobody panics with it");
        let is_it = |event: &&Value| event["reason"] == reason;
        written.iter().filter(is_it).cloned().collect()
    }
}

/// Answers one request: what is watched stays open.
fn serve(
    stream: TcpStream,
    objects: &[Value],
    writes: Writes,
    written: &Mutex<Vec<Value>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            let value = header
                .split_once(':')
                .filter(|(key, _)| key.eq_ignore_ascii_case("content-length"));
            length = value
                .and_then(|(_, value)| value.trim().parse().ok())
                .unwrap_or(length);
            header.clear();
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        if line.starts_with("GET ") {
            return watch(&mut stream, &line, objects);
        }
        if let Ok(value) = serde_json::from_slice(&body) {
            written.lock().expect("nobody panics with it").push(value);
        }
        match writes {
            Writes::Taken => answer(&mut stream, "201 Created", &json!({}))?,
            Writes::Refused => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                                    "reason": "Forbidden", "code": 403, "message": "events is forbidden"});
                answer(&mut stream, "403 Forbidden", &status)?;
            }
            Writes::Unanswered => loop {
                thread::sleep(Duration::from_secs(1));
            },
        }
    }
}

fn answer(stream: &mut TcpStream, status: &str, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + &body).as_bytes())
}

/// All objects of a kind, the mark that these were all, and then nothing.
fn watch(stream: &mut TcpStream, line: &str, objects: &[Value]) -> std::io::Result<()> {
    let path = line.split([' ', '?']).nth(1).unwrap_or_default();
    let kind = match path.rsplit('/').next() {
        Some("services") => "Service",
        Some("endpointslices") => "EndpointSlice",
        Some("nodes") => "Node",
        _ => "ServiceCIDR",
    };
    let mut text =
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n".to_owned();
    for object in objects.iter().filter(|object| object["kind"] == kind) {
        let mut object = object.clone();
        object["metadata"]["resourceVersion"] = json!("5");
        text += &json!({"type": "ADDED", "object": object}).to_string();
        text.push('\n');
    }
    let end = json!({"resourceVersion": "10", "annotations": {"k8s.io/initial-events-end": "true"}});
    text += &json!({"type": "BOOKMARK", "object": {"kind": kind, "metadata": end}}).to_string();
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}
