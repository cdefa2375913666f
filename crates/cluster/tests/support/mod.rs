//! A tiny API server that says what a test tells it to, over plain HTTP.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(
    clippy::unwrap_used,
    reason = "this is test code, which clippy cannot tell here"
)]

use cluster::api::{Address, ApiOptions, Source, Timing};
use cluster::{Kind, SourceEvent};
use model::object::{Object, ObjectRef};
use model::snapshot::Change;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What the server does with a request.
pub enum Reply {
    /// A whole answer.
    Whole(u16, String),
    /// The head of an answer with status 200, and then these parts.
    Stream(Vec<Part>),
    /// Nothing, ever.
    Nothing,
}

/// A part of a streamed answer.
pub enum Part {
    /// A line.
    Line(String),
    /// A part of a line.
    Text(String),
    /// The proper end of the answer.
    End,
    /// The connection goes away.
    Cut,
    /// Nothing more, with the connection open.
    Hang,
    /// A wait.
    Wait(Duration),
    /// This line again and again; counts the bytes that the connection took.
    Forever(String, Arc<AtomicUsize>),
}

/// What a test decides by: the resource's plural, the path with query, and how many requests for the resource came before.
pub struct Asked {
    pub resource: String,
    pub uri: String,
    pub count: usize,
}

impl Asked {
    pub fn has(&self, parameter: &str) -> bool {
        self.uri.split(['?', '&']).skip(1).any(|pair| pair == parameter)
    }
}

type Script = dyn Fn(&Asked) -> Option<Reply> + Send + Sync;

/// What a source says once a streaming list is followed.
pub const CONNECTED_STREAMING: &str = "Connected { delivery: StreamingList }";

/// A script for requests about Services alone.
pub fn services(
    answer: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
) -> impl Fn(&Asked) -> Option<Reply> {
    move |asked| {
        if asked.resource == "services" {
            answer(asked)
        } else {
            None
        }
    }
}

/// The server. Requests for which the script has no answer get an empty streaming list that stays open.
pub struct Server {
    pub url: String,
    /// The heads of all requests, in order.
    pub heads: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub async fn start(script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Self::start_at("127.0.0.1:0", script).await
    }

    pub async fn start_at(
        address: &str,
        script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::new(Mutex::new(Vec::new()));
        let script: Arc<Script> = Arc::new(script);
        let task = tokio::spawn({
            let heads = heads.clone();
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(stream, heads.clone(), script.clone()));
                }
            }
        });
        Server { url, heads, task }
    }

    /// The request lines for a resource, in order.
    pub fn requests(&self, resource: &str) -> Vec<String> {
        self.heads
            .lock()
            .unwrap()
            .iter()
            .filter_map(|head| head.lines().next())
            .filter(|line| line.contains(&format!("/{resource}?")))
            .map(str::to_owned)
            .collect()
    }
}

async fn serve(mut stream: TcpStream, heads: Arc<Mutex<Vec<String>>>, script: Arc<Script>) {
    while let Some(head) = read_head(&mut stream).await {
        let uri = head.split(' ').nth(1).unwrap().to_owned();
        let path = uri.split('?').next().unwrap();
        let resource = path.rsplit('/').next().unwrap().to_owned();
        let count = {
            let mut heads = heads.lock().unwrap();
            let count = heads
                .iter()
                .filter(|head| head.contains(&format!("/{resource}?")))
                .count();
            heads.push(head);
            count
        };
        let reply = script(&Asked { resource, uri, count })
            .unwrap_or_else(|| Reply::Stream(vec![Part::Line(end_of_initial_events("1")), Part::Hang]));
        if answer(&mut stream, reply).await.is_none() {
            return;
        }
    }
}

async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

/// `None` when the connection is of no use any more.
async fn answer(stream: &mut TcpStream, reply: Reply) -> Option<()> {
    match reply {
        Reply::Nothing => std::future::pending().await,
        Reply::Whole(status, body) => {
            let head = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.ok()?;
            stream.write_all(body.as_bytes()).await.ok()
        }
        Reply::Stream(parts) => {
            let head =
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.ok()?;
            for part in parts {
                match part {
                    Part::Line(line) => chunk(stream, &format!("{line}\n")).await?,
                    Part::Text(text) => chunk(stream, &text).await?,
                    Part::End => return stream.write_all(b"0\r\n\r\n").await.ok(),
                    Part::Cut => return None,
                    Part::Hang => std::future::pending().await,
                    Part::Wait(time) => tokio::time::sleep(time).await,
                    Part::Forever(line, count) => loop {
                        chunk(stream, &format!("{line}\n")).await?;
                        count.fetch_add(line.len(), Ordering::Relaxed);
                    },
                }
            }
            None
        }
    }
}

async fn chunk(stream: &mut TcpStream, text: &str) -> Option<()> {
    let text = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(text.as_bytes()).await.ok()
}

/// A Service as the API server prints it.
pub fn service(name: &str, version: u64) -> String {
    format!(
        r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"default","resourceVersion":"{version}"}},"spec":{{"clusterIP":"10.96.0.{}","clusterIPs":["10.96.0.{0}"],"ipFamilies":["IPv4"],"type":"ClusterIP","ports":[{{"port":80,"protocol":"TCP","targetPort":80}}]}}}}"#,
        version % 250 + 1
    )
}

pub fn event(kind: &str, object: &str) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

pub fn bookmark(version: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null}},"spec":{{}}}}"#
        ),
    )
}

pub fn end_of_initial_events(version: &str) -> String {
    event(
        "BOOKMARK",
        &format!(
            r#"{{"kind":"Service","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}},"spec":{{}}}}"#
        ),
    )
}

pub fn status(code: u16, reason: &str, message: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"{message}","reason":"{reason}","code":{code}}}"#
    )
}

pub fn list(version: &str, items: &[String]) -> String {
    format!(
        r#"{{"kind":"ServiceList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}},"items":[{}]}}"#,
        items.join(",")
    )
}

/// An event line that a Service of this name was added.
pub fn added(name: &str, version: u64) -> Part {
    Part::Line(event("ADDED", &service(name, version)))
}

/// Times short enough for tests.
pub fn quick() -> Timing {
    Timing {
        silence: Duration::from_millis(300),
        answer: Duration::from_millis(300),
        watch: (Duration::from_mins(5), Duration::from_mins(10)),
        backoff: (Duration::from_millis(5), Duration::from_millis(40)),
        remind: Duration::from_millis(30),
        stable: Duration::from_millis(50),
        absent: Duration::from_millis(50),
    }
}

/// A source that runs against `url`.
pub async fn listen(url: &str, timing: Timing) -> Listener {
    let mut options = ApiOptions::new(
        Address {
            kubeconfig: None,
            master: Some(url.to_owned()),
        },
        "node-a",
    );
    options.timing = timing;
    options.qps = 0.0;
    let (out, events) = mpsc::channel(1);
    let task = tokio::spawn(Source::new(options).await.unwrap().run(out));
    Listener {
        events,
        task,
        said: String::new(),
    }
}

/// What the source said.
pub struct Listener {
    pub events: mpsc::Receiver<SourceEvent>,
    task: JoinHandle<()>,
    /// Everything, for failures.
    said: String,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listener {
    /// The next event about Services, in short form.
    pub async fn next(&mut self) -> String {
        loop {
            let event = tokio::time::timeout(Duration::from_secs(10), self.events.recv()).await;
            let Ok(Some(event)) = event else {
                panic!("no further event; until then:\n{}", self.said);
            };
            if let Some(text) = short(&event) {
                writeln!(self.said, "{text}").unwrap();
                return text;
            }
        }
    }

    /// The next event that begins so; others are skipped.
    pub async fn until(&mut self, start: &str) -> String {
        loop {
            let text = self.next().await;
            if text.starts_with(start) {
                return text;
            }
        }
    }

    /// Expects exactly these next.
    pub async fn expect(&mut self, texts: &[&str]) {
        for text in texts {
            assert_eq!(self.next().await, *text, "said so far:\n{}", self.said);
        }
    }
}

/// One line per event about Services; `None` for other kinds.
pub fn short(event: &SourceEvent) -> Option<String> {
    match event {
        SourceEvent::Change(Change::Apply(Object::Service(service))) => {
            Some(format!("apply {}", service.name))
        }
        SourceEvent::Change(Change::Delete(ObjectRef::Service(name))) => Some(format!("delete {name}")),
        SourceEvent::Synced(Kind::Service) => Some("synced".to_owned()),
        SourceEvent::Health(Kind::Service, health) => Some(format!("{health:?}")),
        SourceEvent::Change(_)
        | SourceEvent::Synced(_)
        | SourceEvent::Health(..)
        | SourceEvent::NotRead(_) => None,
        SourceEvent::Notes(notes) => Some(format!("notes {notes:?}")),
        SourceEvent::LeftOut(text) => Some(format!("unreadable {text}")),
    }
}
