//! Stands between a source and the real server, and writes down what passes.

use apiserver::transcript::{End, Exchange, HEADERS, Head, Question, without_timeout, write};
use apiserver::{Answer, Asked, Body, Part, Reply, Server};
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use http::{Request, Response};
use kube::Client;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// The relay: a server whose answers are a real one's.
pub struct Relay {
    pub server: Server,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    log: Mutex<Vec<Exchange>>,
    /// Resources whose next resumption asks for a version that is long gone.
    aged: Mutex<BTreeSet<String>>,
    /// Whether streaming lists are asked for in a way that the server refuses.
    spoiled: AtomicBool,
    /// Whether connections that end now are cut by us.
    cutting: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    pub fn new(client: Client) -> Relay {
        let shared = Arc::new(Shared::default());
        let handle = Handle::current();
        let server = Server::scripted({
            let shared = shared.clone();
            move |asked| Some(pass(asked, &shared, &client, &handle))
        });
        Relay { server, shared }
    }

    /// The next time that this resource's watch is resumed, its version is long gone.
    pub fn age(&self, resource: &str) {
        lock(&self.shared.aged).insert(resource.to_owned());
    }

    /// Streaming lists are refused from now on.
    pub fn spoil(&self) {
        self.shared.spoiled.store(true, Ordering::Relaxed);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.shared.cutting.store(true, Ordering::Relaxed);
        self.server.cut_all();
        // The relay's halves of the connections learn of it on other threads.
        std::thread::sleep(std::time::Duration::from_millis(300));
        self.shared.cutting.store(false, Ordering::Relaxed);
    }

    /// What passed.
    pub fn transcript(&self) -> String {
        write(&lock(&self.shared.log))
    }
}

/// The URI to ask the real server for.
fn spoilt(asked: &Asked, shared: &Shared) -> String {
    let version = asked.parameter("resourceVersion");
    if asked.has("sendInitialEvents=true") {
        if shared.spoiled.load(Ordering::Relaxed) {
            return asked
                .uri
                .replace("resourceVersionMatch=NotOlderThan", "resourceVersionMatch=Exact");
        }
    } else if asked.is_watch() && lock(&shared.aged).remove(&asked.resource) {
        return asked
            .uri
            .replace(&format!("resourceVersion={version}"), "resourceVersion=1");
    }
    asked.uri.clone()
}

fn pass(asked: &Asked, shared: &Arc<Shared>, client: &Client, handle: &Handle) -> Reply {
    let uri = spoilt(asked, shared);
    let mut question = Question::of(asked);
    if uri != asked.uri {
        question.instead = Some(format!("{} {}", asked.method, without_timeout(&uri)));
    }
    let mut request = Request::builder().method(asked.method.as_str()).uri(uri);
    for name in ["accept", "content-type"] {
        if !asked.header(name).is_empty() {
            request = request.header(name, asked.header(name));
        }
    }
    let request = request
        .body(kube::client::Body::from(asked.body.to_vec()))
        .expect("a request that came can go");
    let (heads, head) = blocking::channel();
    let (lines, mut parts) = mpsc::channel(64);
    let client = client.clone();
    let out = Out {
        shared: shared.clone(),
        heads,
        lines,
    };
    handle.spawn(async move {
        let response = client.send(request).await;
        out.carry(question, response.expect("the real server answers"))
            .await;
    });
    let Head { answer, headers, .. } = head.recv().expect("the real server answers");
    Reply::Answer(Answer {
        status: answer,
        headers: headers.into_iter().collect(),
        body: Body::Parts(futures::stream::poll_fn(move |cx| parts.poll_recv(cx)).boxed()),
    })
}

/// Where an answer goes.
struct Out {
    shared: Arc<Shared>,
    heads: blocking::Sender<Head>,
    lines: mpsc::Sender<Part>,
}

impl Out {
    async fn carry(self, question: Question, response: Response<kube::client::Body>) {
        let headers: BTreeMap<String, String> = HEADERS
            .iter()
            .filter_map(|name| {
                let value = response.headers().get(*name)?.to_str().ok()?;
                Some(((*name).to_owned(), value.to_owned()))
            })
            .collect();
        let head = Head {
            answer: response.status().as_u16(),
            headers,
            end: End::Open,
        };
        let index = {
            let mut log = lock(&self.shared.log);
            log.push(Exchange {
                question,
                head: head.clone(),
                lines: Vec::new(),
            });
            log.len() - 1
        };
        self.heads.send(head).expect("the relay waits");
        let body = http_body_util::BodyExt::into_data_stream(response.into_body());
        let mut lines = body.map_err(std::io::Error::other).into_async_read().lines();
        loop {
            tokio::select! {
                line = lines.next() => {
                    let Some(Ok(line)) = line else {
                        lock(&self.shared.log)[index].head.end = End::Ended;
                        return;
                    };
                    lock(&self.shared.log)[index].lines.push(line.clone());
                    // A source that has gone is noticed below.
                    let _ = self.lines.send(Part::Line(line)).await;
                }
                () = self.lines.closed() => {
                    if self.shared.cutting.load(Ordering::Relaxed) {
                        lock(&self.shared.log)[index].head.end = End::Cut;
                    }
                    return;
                }
            }
        }
    }
}
