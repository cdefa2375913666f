//! The least API server that the daemon can watch: lists as streams, then whatever is pushed.

use anyhow::Result;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// The resources it serves: path, kind.
const RESOURCES: [(&str, &str); 4] = [
    ("/api/v1/services", "Service"),
    ("/apis/discovery.k8s.io/v1/endpointslices", "EndpointSlice"),
    ("/api/v1/nodes", "Node"),
    ("/apis/networking.k8s.io/v1/servicecidrs", "ServiceCIDR"),
];

type Lists = dyn Fn(&str, &mut dyn FnMut(&Value)) + Send + Sync;

struct Shared {
    lists: Box<Lists>,
    watchers: Mutex<Vec<(&'static str, BufWriter<TcpStream>)>>,
    listed: Mutex<Vec<(&'static str, Instant)>>,
    version: AtomicU64,
}

/// The version of the lists; each event has the next one, since an older one after a newer one is a server's fault.
const LISTED: u64 = 10;

/// A running server. It ends with the process.
pub struct Server {
    shared: Arc<Shared>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Serves on loopback. `lists` calls back with each object of a kind there is at the start.
    pub fn start(lists: impl Fn(&str, &mut dyn FnMut(&Value)) + Send + Sync + 'static) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            lists: Box::new(lists),
            watchers: Mutex::default(),
            listed: Mutex::default(),
            version: AtomicU64::new(LISTED + 1),
        });
        let for_thread = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = for_thread.clone();
                std::thread::spawn(move || {
                    // A daemon that goes away is no failure of the server.
                    let _ = serve(&shared, &stream);
                });
            }
        });
        Ok(Server { shared, address })
    }

    /// When the last of the two large lists had been sent whole; `None` before.
    pub fn lists_sent(&self) -> Option<Instant> {
        let listed = self.shared.listed.lock().expect("no thread panics");
        let at = |kind| listed.iter().find(|(of, _)| *of == kind).map(|(_, at)| *at);
        Some(at("Service")?.max(at("EndpointSlice")?))
    }

    /// Sends an event to every watcher of the object's kind, and gives the time it went out.
    pub fn push(&self, change: &str, object: &Value) -> Instant {
        let kind = object["kind"].as_str().expect("every object has a kind");
        let version = self.shared.version.fetch_add(1, Ordering::Relaxed);
        let mut event = json!({"type": change, "object": object});
        event["object"]["metadata"]["resourceVersion"] = json!(version.to_string());
        let text = event.to_string();
        let mut watchers = self.shared.watchers.lock().expect("no thread panics");
        let at = Instant::now();
        watchers.retain_mut(|(of, out)| *of != kind || (chunk_of(out, &text).is_ok() && out.flush().is_ok()));
        at
    }
}

fn serve(shared: &Shared, stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = String::from("x");
        while !header.trim_end().is_empty() {
            header.clear();
            reader.read_line(&mut header)?;
        }
        let target = request.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut out = BufWriter::new(stream.try_clone()?);
        let Some((_, kind)) = RESOURCES.into_iter().find(|(served, _)| path.starts_with(served)) else {
            write!(out, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            out.flush()?;
            continue;
        };
        write!(
            out,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        )?;
        if query.contains("watch=true") || query.contains("watch=1") {
            return watch(shared, kind, query, out);
        }
        list(shared, kind, &mut out)?;
    }
}

fn watch(
    shared: &Shared,
    kind: &'static str,
    query: &str,
    mut out: BufWriter<TcpStream>,
) -> std::io::Result<()> {
    if query.contains("sendInitialEvents=true") {
        let mut result = Ok(());
        (shared.lists)(kind, &mut |object| {
            if result.is_ok() {
                result = chunk(&mut out, &json!({"type": "ADDED", "object": object}));
            }
        });
        result?;
        let bookmark = json!({"type": "BOOKMARK", "object": {
            "kind": kind, "apiVersion": if kind == "EndpointSlice" { "discovery.k8s.io/v1" } else { "v1" },
            "metadata": {"resourceVersion": LISTED.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}});
        chunk(&mut out, &bookmark)?;
    }
    out.flush()?;
    finish_list(shared, kind, out);
    Ok(())
}

/// From here on the connection belongs to the pushes.
fn finish_list(shared: &Shared, kind: &'static str, out: BufWriter<TcpStream>) {
    shared
        .listed
        .lock()
        .expect("no thread panics")
        .push((kind, Instant::now()));
    shared
        .watchers
        .lock()
        .expect("no thread panics")
        .push((kind, out));
}

fn list(shared: &Shared, kind: &str, out: &mut BufWriter<TcpStream>) -> std::io::Result<()> {
    let mut items = Vec::new();
    (shared.lists)(kind, &mut |object| items.push(object.clone()));
    chunk(
        out,
        &json!({"kind": format!("{kind}List"), "apiVersion": "v1", "metadata": {"resourceVersion": LISTED.to_string()}, "items": items}),
    )?;
    write!(out, "0\r\n\r\n")?;
    out.flush()
}

fn chunk(out: &mut BufWriter<TcpStream>, value: &Value) -> std::io::Result<()> {
    chunk_of(out, &value.to_string())
}

fn chunk_of(out: &mut BufWriter<TcpStream>, text: &str) -> std::io::Result<()> {
    write!(out, "{:x}\r\n{text}\n\r\n", text.len() + 1)
}
