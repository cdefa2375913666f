//! The server: a thread that listens, and the handle that a test holds.

use crate::access::Access;
use crate::asked::Asked;
use crate::fault::{Fault, Faults};
use crate::query::StreamingLists;
use crate::reply::Reply;
use crate::resource::{Place, Resource};
use crate::serve::connection;
use crate::store::{Key, Store};
use crate::tls::Authority;
use crate::write;
use data_encoding::BASE64;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// Answers requests before the server does; `None` leaves them to it.
pub type Script = dyn Fn(&Asked) -> Option<Reply> + Send + Sync;

/// What kind of server it is.
pub struct Options {
    /// Where it listens.
    pub address: String,
    /// Plain HTTP, or TLS with an authority of its own.
    pub transport: Transport,
    /// Whom it lets in.
    pub access: Access,
    /// Whether it does streaming lists.
    pub streaming_lists: StreamingLists,
    /// Resources that it does not have.
    pub absent: Vec<Resource>,
    /// Answers that a test gives itself.
    pub script: Option<Box<Script>>,
}

/// How it is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// HTTP.
    Plain,
    /// HTTPS.
    Tls,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            address: "127.0.0.1:0".to_owned(),
            transport: Transport::Plain,
            access: Access::Open,
            streaming_lists: StreamingLists::Offered,
            absent: Vec::new(),
            script: None,
        }
    }
}

/// What connections share.
pub(crate) struct Shared {
    pub(crate) store: Arc<Mutex<Store>>,
    pub(crate) grown: watch::Sender<()>,
    pub(crate) asked: Mutex<Vec<Asked>>,
    pub(crate) faults: Mutex<Faults>,
    pub(crate) access: Mutex<Access>,
    pub(crate) tls: Mutex<Option<TlsAcceptor>>,
    pub(crate) connections: AtomicU64,
    pub(crate) streaming_lists: StreamingLists,
    pub(crate) absent: Vec<Resource>,
    pub(crate) script: Option<Box<Script>>,
}

/// A mutex whose holder panicked is as good as before: a test fails anyway.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Command {
    /// No connection is taken any more, and those there are go away.
    Close(blocking::Sender<()>),
    /// Listens again.
    Open(blocking::Sender<()>),
    /// The connections there are go away.
    CutAll(blocking::Sender<()>),
}

/// A server that runs. It has a thread of its own, in the network namespace of whoever started it, and ends with this
/// handle.
pub struct Server {
    /// `http://127.0.0.1:PORT`, or with `https`.
    pub url: String,
    shared: Arc<Shared>,
    authority: Mutex<Authority>,
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts one.
    ///
    /// # Panics
    /// When the address cannot be had.
    pub fn start(options: Options) -> Self {
        let listener = TcpListener::bind(&options.address).expect("the address can be had");
        let address = listener.local_addr().expect("a socket has an address");
        let authority = Authority::new("authority of the test server");
        let (scheme, tls) = match options.transport {
            Transport::Plain => ("http", None),
            Transport::Tls => ("https", Some(authority.acceptor())),
        };
        let shared = Arc::new(Shared {
            store: Arc::new(Mutex::new(Store::new())),
            grown: watch::Sender::new(()),
            asked: Mutex::default(),
            faults: Mutex::default(),
            access: Mutex::new(options.access),
            tls: Mutex::new(tls),
            connections: AtomicU64::new(0),
            streaming_lists: options.streaming_lists,
            absent: options.absent,
            script: options.script,
        });
        let (commands, orders) = mpsc::unbounded_channel();
        let thread = thread::spawn({
            let shared = shared.clone();
            move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("a runtime can be made")
                    .block_on(listen(listener, shared, orders));
            }
        });
        Server {
            url: format!("{scheme}://{address}"),
            shared,
            authority: Mutex::new(authority),
            commands: Some(commands),
            thread: Some(thread),
        }
    }

    /// A plain one whose answers a test gives itself; what it leaves is answered from an empty store.
    pub fn scripted(script: impl Fn(&Asked) -> Option<Reply> + Send + Sync + 'static) -> Self {
        Server::start(Options {
            script: Some(Box::new(script)),
            ..Options::default()
        })
    }

    /// A kubeconfig for it, with a token if one is given.
    pub fn kubeconfig(&self, token: Option<&str>) -> String {
        let user = token.map_or_else(|| json!({}), |token| json!({"token": token}));
        self.kubeconfig_of(&user)
    }

    /// A kubeconfig for it with the credentials of this user entry.
    pub fn kubeconfig_of(&self, user: &Value) -> String {
        let mut cluster = json!({"server": self.url});
        if self.url.starts_with("https") {
            cluster["certificate-authority-data"] =
                BASE64.encode(lock(&self.authority).pem.as_bytes()).into();
        }
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        format!("{text:#}\n")
    }

    /// Writes an object as it is, over any that has its name. Its version.
    ///
    /// # Panics
    /// When the server has no such kind.
    pub fn apply(&self, object: Value) -> u64 {
        let version = write::apply(&mut lock(&self.shared.store), object);
        self.grown();
        version
    }

    /// Deletes an object.
    ///
    /// # Panics
    /// When it is not there.
    pub fn delete(&self, resource: Resource, namespace: &str, name: &str) -> u64 {
        let key = Key {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let version = {
            let mut store = lock(&self.shared.store);
            let gone = store.remove(&key);
            assert!(gone.is_some(), "{key:?} is not there");
            store.version()
        };
        self.grown();
        version
    }

    /// An object as it is.
    pub fn get(&self, resource: Resource, namespace: &str, name: &str) -> Option<Value> {
        let place = Place {
            resource,
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
        };
        crate::serve::object(&lock(&self.shared.store), &place)
    }

    /// All objects of a resource, in order of name.
    pub fn all(&self, resource: Resource) -> Vec<Value> {
        let store = lock(&self.shared.store);
        let objects = store.objects().iter();
        let ours = objects.filter(|(key, _)| key.resource == resource);
        ours.map(|(_, object)| Value::clone(object)).collect()
    }

    /// The version of the newest change.
    pub fn version(&self) -> u64 {
        lock(&self.shared.store).version()
    }

    /// Sends a bookmark to every watch.
    pub fn bookmark(&self) {
        lock(&self.shared.store).bookmark();
        self.grown();
    }

    /// Forgets the past: whoever resumes from a version before now is told 410.
    pub fn compact(&self) {
        lock(&self.shared.store).compact();
    }

    /// Forgets the past, and ends the watches of a resource with an ERROR event that says 410.
    pub fn expire(&self, resource: Resource) {
        {
            let mut store = lock(&self.shared.store);
            store.compact();
            store.expire(resource);
        }
        self.grown();
    }

    /// As if an old backup had been restored: nothing is there, versions are smaller, and nobody is told.
    pub fn restore_backup(&self) {
        lock(&self.shared.store).restore_backup();
    }

    /// Adds to the fault script. A request meets the first fault that is for it.
    pub fn fault(&self, fault: Fault) {
        lock(&self.shared.faults).add(fault);
    }

    /// Ends all faults.
    pub fn heal(&self) {
        lock(&self.shared.faults).clear();
    }

    /// Whom it lets in from now on.
    pub fn set_access(&self, access: Access) {
        *lock(&self.shared.access) = access;
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// The request lines for a resource so far, in order.
    pub fn requests(&self, resource: &str) -> Vec<String> {
        let asked = lock(&self.shared.asked);
        let ours = asked.iter().filter(|asked| asked.resource == resource);
        ours.map(|asked| format!("{} {} HTTP/1.1", asked.method, asked.uri))
            .collect()
    }

    /// Refuses connections from now on, and cuts those there are.
    pub fn close(&self) {
        self.command(Command::Close);
    }

    /// Takes connections again, on the same port.
    pub fn open(&self) {
        self.command(Command::Open);
    }

    /// Cuts all connections.
    pub fn cut_all(&self) {
        self.command(Command::CutAll);
    }

    /// New connections get a new certificate: of the same authority, as when one is renewed.
    pub fn renew_certificate(&self) {
        *lock(&self.shared.tls) = Some(lock(&self.authority).acceptor());
    }

    /// New connections get a certificate of another authority. Kubeconfigs made from now on name it.
    pub fn change_authority(&self) {
        let authority = Authority::new("another authority of the test server");
        *lock(&self.shared.tls) = Some(authority.acceptor());
        *lock(&self.authority) = authority;
    }

    fn grown(&self) {
        self.shared.grown.send_replace(());
    }

    fn command(&self, command: impl Fn(blocking::Sender<()>) -> Command) {
        let (done, wait) = blocking::channel();
        let commands = self.commands.as_ref().expect("invariant: taken only at the end");
        commands
            .send(command(done))
            .expect("the server's thread lives as long as its handle");
        wait.recv().expect("the server's thread answers");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.commands.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been printed; this thread may be panicking too.
            let _ = thread.join();
        }
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>, mut orders: mpsc::UnboundedReceiver<Command>) {
    let address = listener.local_addr().expect("a socket has an address");
    let adopt = |listener: TcpListener| {
        listener.set_nonblocking(true).expect("a socket need not block");
        tokio::net::TcpListener::from_std(listener).expect("the runtime takes sockets")
    };
    let mut listener = Some(adopt(listener));
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            order = orders.recv() => {
                // Whoever ordered it may have gone, so that nobody waits for its being done.
                match order {
                    None => return,
                    Some(Command::Open(done)) => {
                        let again = || adopt(TcpListener::bind(address).expect("the port is still free"));
                        listener = Some(listener.take().unwrap_or_else(again));
                        let _ = done.send(());
                    }
                    Some(Command::Close(done)) => {
                        listener = None;
                        connections.shutdown().await;
                        let _ = done.send(());
                    }
                    Some(Command::CutAll(done)) => {
                        connections.shutdown().await;
                        let _ = done.send(());
                    }
                }
            }
            Some(stream) = accept(listener.as_ref()) => {
                connections.spawn(connection(stream, shared.clone()));
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn accept(listener: Option<&tokio::net::TcpListener>) -> Option<tokio::net::TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}
