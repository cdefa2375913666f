//! The servers in the pods: they say who they are and which client address they saw.
//!
//! TCP and SCTP: one line `NAME CLIENT-IP:PORT`, then close; a request that starts like HTTP gets it as the body of an
//! HTTP/1.0 answer. UDP: the same line. One thread serves all sockets of all namespaces: a socket stays in the
//! namespace it was made in.
//!
//! They run as threads of the lab's process ([`Serving`]), or as a process of their own ([`run`]), so that a lab can
//! outlive the command that made it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use serde::{Deserialize, Serialize};

use crate::LabError;
use crate::netns;
use crate::probe::answer_line;
use crate::sink::{SeenLog, SeenPacket, SinkSpec};
use crate::topology::Proto;

/// How long a server waits for a client that says nothing (`nc`) before it answers anyway.
const SILENCE: Duration = Duration::from_millis(100);

/// How long it waits for a client's last byte after its answer. Closing earlier could reset the answer away.
const LINGER: Duration = Duration::from_secs(2);

/// The stop pipe's token; sockets count from 1.
const STOP: u64 = 0;

/// One socket to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listen {
    /// The file of the namespace.
    pub namespace: PathBuf,
    /// What the server calls itself.
    pub answers_as: String,
    /// The protocol.
    pub proto: Proto,
    /// Where.
    pub address: SocketAddr,
}

/// Everything one server process serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The sockets, sorted by namespace for speed.
    pub listens: Vec<Listen>,
    /// The sinks.
    pub sinks: Vec<SinkSpec>,
}

/// Servers on threads of this process; dropping it closes their sockets.
pub struct Serving {
    stop: Option<PipeWriter>,
    threads: Vec<JoinHandle<()>>,
    seen: SeenLog,
}

impl Serving {
    /// Binds everything, then serves in the background.
    ///
    /// # Errors
    /// When a namespace or an address is not to be had.
    pub fn start(spec: &Spec) -> Result<Self, LabError> {
        let (stopped, stop) = io::pipe().map_err(|source| LabError::system("make a pipe", source))?;
        let mut serving = Self {
            stop: Some(stop),
            threads: vec![],
            seen: SeenLog::default(),
        };
        let sockets = bind_all(&spec.listens)?;
        let clone = |pipe: &PipeReader| pipe.try_clone().map_err(|e| LabError::system("copy a pipe", e));
        for sink in &spec.sinks {
            let sink = sink.open(serving.seen.clone())?;
            let stopped = clone(&stopped)?;
            serving
                .threads
                .push(start_thread("lab-sink", move || sink.run(&stopped))?);
        }
        let desk =
            Desk::open(sockets, &stopped).map_err(|source| LabError::system("set up epoll", source))?;
        serving
            .threads
            .push(start_thread("lab-servers", move || desk.run(&stopped))?);
        Ok(serving)
    }

    /// What the sinks have seen since the last call.
    pub fn take_seen(&self) -> Vec<SeenPacket> {
        self.seen.take()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A panic of a server has been printed; its clients have seen it.
            let _panicked = thread.join();
        }
    }
}

fn start_thread(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, LabError> {
    let builder = thread::Builder::new().name(name.to_owned());
    builder
        .spawn(work)
        .map_err(|source| LabError::system(format!("start the thread {name}"), source))
}

/// The hidden subcommand `kube-proxy lab serve --spec FILE --ready FILE`: serves until it is killed.
///
/// # Errors
/// Wrong arguments, an unreadable file, or what [`Serving::start`] says.
pub fn run(args: &[String]) -> Result<(), LabError> {
    let value = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1).map(PathBuf::from)
    };
    let (Some(spec), Some(ready)) = (value("--spec"), value("--ready")) else {
        return Err(LabError::Servers(
            "usage: serve --spec FILE --ready FILE".to_owned(),
        ));
    };
    let text = fs::read(&spec).map_err(|e| LabError::system(format!("read {}", spec.display()), e))?;
    let spec: Spec = serde_json::from_slice(&text).map_err(|e| LabError::Servers(e.to_string()))?;
    let _serving = Serving::start(&spec)?;
    fs::write(&ready, "ready\n").map_err(|e| LabError::system(format!("write {}", ready.display()), e))?;
    loop {
        thread::park();
    }
}

enum Socket {
    /// TCP, or SCTP, whose associations are streams as well.
    Tcp(TcpListener, String),
    Udp(UdpSocket, String),
}

/// Binds one namespace after the other, each on a thread that entered it.
fn bind_all(listens: &[Listen]) -> Result<Vec<Socket>, LabError> {
    let mut by_namespace: BTreeMap<&Path, Vec<&Listen>> = BTreeMap::new();
    for listen in listens {
        by_namespace.entry(&listen.namespace).or_default().push(listen);
    }
    let mut sockets = vec![];
    for (namespace, listens) in by_namespace {
        let bound = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                netns::enter(namespace)?;
                listens
                    .into_iter()
                    .map(bind)
                    .collect::<Result<Vec<_>, LabError>>()
            });
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        sockets.extend(bound);
    }
    Ok(sockets)
}

fn bind(listen: &Listen) -> Result<Socket, LabError> {
    let bound = || -> io::Result<Socket> {
        let name = listen.answers_as.clone();
        Ok(match listen.proto {
            Proto::Tcp => {
                let socket = TcpListener::bind(listen.address)?;
                socket.set_nonblocking(true)?;
                Socket::Tcp(socket, name)
            }
            Proto::Sctp => {
                let socket = listen_for_associations(listen.address)?;
                Socket::Tcp(socket, name)
            }
            Proto::Udp => {
                let socket = UdpSocket::bind(listen.address)?;
                socket.set_nonblocking(true)?;
                Socket::Udp(socket, name)
            }
        })
    };
    let Listen {
        answers_as,
        proto,
        address,
        ..
    } = listen;
    bound().map_err(|source| LabError::system(format!("serve {answers_as} on {proto} {address}"), source))
}

/// `std` makes no SCTP sockets, but handles them as what they behave like.
fn listen_for_associations(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::SCTP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 128)?;
    Ok(TcpListener::from(socket))
}

/// A client that is being served.
struct Conversation {
    stream: TcpStream,
    client: SocketAddr,
    name: String,
    deadline: Instant,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For a request, or for silence.
    Waiting,
    /// Answered; until the client closes.
    Draining,
}

/// What to do with a conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Keep,
    Close,
}

/// The loop over all sockets.
struct Desk {
    epoll: std::os::fd::OwnedFd,
    sockets: Vec<Socket>,
    conversations: BTreeMap<u64, Conversation>,
    next_token: u64,
}

impl Desk {
    fn open(sockets: Vec<Socket>, stopped: &PipeReader) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut desk = Self {
            epoll,
            sockets: vec![],
            conversations: BTreeMap::new(),
            next_token: STOP + 1,
        };
        desk.watch(stopped, STOP)?;
        for socket in sockets {
            match &socket {
                Socket::Tcp(listener, _) => desk.watch(listener, desk.next_token)?,
                Socket::Udp(udp, _) => desk.watch(udp, desk.next_token)?,
            }
            desk.next_token += 1;
            desk.sockets.push(socket);
        }
        Ok(desk)
    }

    fn watch(&self, source: impl AsFd, token: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, source, data, epoll::EventFlags::IN)?)
    }

    /// Until the writing end of the pipe is closed.
    fn run(mut self, _stopped: &PipeReader) {
        let mut events = Vec::with_capacity(256);
        loop {
            events.clear();
            let timeout = self.until_next_deadline();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => panic!("invariant: a live epoll can be waited for: {errno}"),
            }
            for event in &events {
                match event.data.u64() {
                    STOP => return,
                    token => self.ready(token),
                }
            }
            self.enforce_deadlines();
        }
    }

    fn until_next_deadline(&self) -> Option<Timespec> {
        let first = self.conversations.values().map(|one| one.deadline).min()?;
        Timespec::try_from(first.saturating_duration_since(Instant::now())).ok()
    }

    fn ready(&mut self, token: u64) {
        if self.conversations.contains_key(&token) {
            self.hear(token);
            return;
        }
        let socket = usize::try_from(token - 1)
            .ok()
            .and_then(|index| self.sockets.get(index));
        let accepted = match socket {
            Some(Socket::Tcp(listener, name)) => accept(listener, name),
            Some(Socket::Udp(udp, name)) => {
                answer_datagrams(udp, name);
                vec![]
            }
            None => vec![],
        };
        for conversation in accepted {
            let token = self.next_token;
            self.next_token += 1;
            if self.watch(&conversation.stream, token).is_ok() {
                self.conversations.insert(token, conversation);
                // Its question has often arrived with it.
                self.hear(token);
            }
        }
    }

    fn hear(&mut self, token: u64) {
        let Some(conversation) = self.conversations.get_mut(&token) else {
            return;
        };
        if conversation.hear() == Next::Close {
            self.conversations.remove(&token);
        }
    }

    fn enforce_deadlines(&mut self) {
        let now = Instant::now();
        self.conversations
            .retain(|_, one| now < one.deadline || one.lose_patience() == Next::Keep);
    }
}

impl Conversation {
    fn hear(&mut self) -> Next {
        let mut buffer = [0_u8; 2048];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) if self.phase == Phase::Waiting => {
                    // `nc </dev/null` says nothing and closes its half; it still wants to read.
                    self.answer(&[]);
                    return Next::Close;
                }
                Ok(0) => return Next::Close,
                Ok(length) if self.phase == Phase::Waiting => {
                    self.answer(buffer.get(..length).unwrap_or_default());
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Keep,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Next::Close,
            }
        }
    }

    fn lose_patience(&mut self) -> Next {
        match self.phase {
            Phase::Waiting => {
                self.answer(&[]);
                Next::Keep
            }
            Phase::Draining => Next::Close,
        }
    }

    fn answer(&mut self, request: &[u8]) {
        let text = answer_to(request, &answer_line(&self.name, self.client, None));
        // The client may have gone; then there is nobody to tell.
        let _client_gone = self.stream.write_all(text.as_bytes());
        let _client_gone = self.stream.shutdown(Shutdown::Write);
        self.phase = Phase::Draining;
        self.deadline = Instant::now() + LINGER;
    }
}

/// The line, as an HTTP answer if the request looks like HTTP.
pub(crate) fn answer_to(request: &[u8], line: &str) -> String {
    let is_http = [b"GET ".as_slice(), b"HEAD ", b"POST ", b"PUT "]
        .iter()
        .any(|verb| request.starts_with(verb));
    if !is_http {
        return line.to_owned();
    }
    let length = line.len();
    let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n";
    format!("{head}Content-Length: {length}\r\n\r\n{line}")
}

fn accept(listener: &TcpListener, name: &str) -> Vec<Conversation> {
    let mut accepted = vec![];
    // Stops at "would block"; a client that went away meanwhile ends the round too, and epoll tells again.
    while let Ok((stream, client)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok() {
            let deadline = Instant::now() + SILENCE;
            let name = name.to_owned();
            accepted.push(Conversation {
                stream,
                client,
                name,
                deadline,
                phase: Phase::Waiting,
            });
        }
    }
    accepted
}

fn answer_datagrams(udp: &UdpSocket, name: &str) {
    let mut buffer = [0_u8; 2048];
    while let Ok((_, client)) = udp.recv_from(&mut buffer) {
        // No way back is the client's timeout.
        let _no_way_back = udp.send_to(answer_line(name, client, None).as_bytes(), client);
    }
}
