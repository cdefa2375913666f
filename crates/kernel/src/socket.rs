//! A netlink socket: questions with their answers, batches, and notifications.

use crate::{FailureKind, shortage};
use netlink::dump::{Dump, DumpError, Progress};
use netlink::message::{Message, Messages, Reply};
use netlink::nfnl::{Batch, BatchBytes};
use netlink::{DecodeError, EncodeError, Errno, KernelError};
use rustix::io::Errno as SystemErrno;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force, set_socket_timeout, socket_send_buffer_size,
};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recv, send,
    socket_with,
};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// The kernel fills dump buffers of up to 32 KiB when it sees a larger one (`netlink_recvmsg`).
const RECEIVE_BYTES: usize = 64 * 1024;
/// Wanted socket buffers: many answers may wait, and a batch is sent whole.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Monitors overflow when nobody reads for a while.
const MONITOR_BYTES: usize = 16 * 1024 * 1024;
/// How long the kernel may take to answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How often a dump that was interrupted by a commit is asked for again, at least.
const ATTEMPTS: u32 = 10;
/// And how long, where only a whole one will do: who commits without a pause leaves few moments, but a short dump fits into
/// one of them.
const PATIENCE: Duration = Duration::from_secs(1);

/// What went wrong between us and the kernel.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The socket could not be made.
    #[error("no netlink socket{}", shortage::advice(.0).map_or(String::new(), |advice| format!(" ({advice})")))]
    Open(#[source] io::Error),
    /// Nothing could be sent.
    #[error("could not send to the kernel")]
    Send(#[source] io::Error),
    /// Nothing could be received.
    #[error("could not receive from the kernel")]
    Receive(#[source] io::Error),
    /// The kernel said no.
    #[error(transparent)]
    Refused(KernelError),
    /// The answer makes no sense.
    #[error(transparent)]
    Garbled(#[from] DecodeError),
    /// The question cannot be put.
    #[error(transparent)]
    Unsayable(#[from] EncodeError),
    /// Messages were lost because we read too slowly: what was known must be read again.
    #[error("messages of the kernel were lost")]
    Lost,
    /// Somebody kept committing while we read.
    #[error("the rules changed under every reading, {ATTEMPTS} and more in {PATIENCE:?}")]
    Restless,
    /// The kernel took too long.
    #[error("no answer within {ANSWER:?}")]
    Silent,
}

impl From<DumpError> for SocketError {
    fn from(error: DumpError) -> Self {
        match error {
            DumpError::Refused(error) => SocketError::Refused(error),
            DumpError::Garbled(error) => SocketError::Garbled(error),
            DumpError::Overrun => SocketError::Lost,
        }
    }
}

impl SocketError {
    /// What the kernel refused with, if it did.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            SocketError::Refused(error) => Some(error.errno),
            _ => None,
        }
    }

    /// The kind of failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            SocketError::Refused(error) => match error.errno {
                Errno::EPERM | Errno(13) => FailureKind::Denied,
                Errno::ERESTART | Errno::EINTR | Errno::EAGAIN | Errno::EBUSY => FailureKind::Busy,
                Errno::ENOENT | Errno::EINVAL | Errno::EEXIST | Errno::EOPNOTSUPP => FailureKind::Refused,
                Errno::ENOMEM => FailureKind::System,
                _ => FailureKind::Other,
            },
            SocketError::Garbled(_) => FailureKind::Garbled,
            SocketError::Unsayable(_) => FailureKind::Refused,
            SocketError::Restless => FailureKind::Busy,
            SocketError::Silent => FailureKind::TimedOut,
            SocketError::Send(error) if error.raw_os_error() == Some(SystemErrno::MSGSIZE.raw_os_error()) => {
                FailureKind::TooLarge
            }
            SocketError::Open(error) | SocketError::Send(error) | SocketError::Receive(error)
                if error.kind() == io::ErrorKind::PermissionDenied =>
            {
                FailureKind::Denied
            }
            // Nothing has been said to the kernel yet: there is no memory, or there are no more files.
            SocketError::Open(_) | SocketError::Send(_) => FailureKind::System,
            SocketError::Receive(_) | SocketError::Lost => FailureKind::Other,
        }
    }

    /// The error and its causes in one line.
    pub(crate) fn words(&self) -> String {
        let mut words = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            words = format!("{words}: {error}");
            cause = error.source();
        }
        words
    }
}

/// A netlink socket of this network namespace.
pub(crate) struct Socket {
    fd: OwnedFd,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// A socket for questions to netfilter.
    pub(crate) fn netfilter() -> Result<Socket, SocketError> {
        let socket = Self::open(Some(NETFILTER), &[])?;
        let _ = set_socket_send_buffer_size_force(&socket.fd, BUFFER_BYTES)
            .or_else(|_| set_socket_send_buffer_size(&socket.fd, BUFFER_BYTES));
        socket.widen(BUFFER_BYTES);
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(ANSWER))
            .map_err(|error| SocketError::Open(error.into()))?;
        Ok(socket)
    }

    /// A socket whose refusals say which part of a message is refused, and do not repeat the message.
    fn explaining(protocol: Protocol) -> Result<OwnedFd, SocketError> {
        let number =
            isize::try_from(protocol.as_raw().get()).expect("invariant: protocols have small numbers");
        let socket = netlink_sys::Socket::new(number).map_err(SocketError::Open)?;
        // Kernels before 4.12 have neither; a refusal is then of the whole message.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        fcntl_dupfd_cloexec(&socket, 0).map_err(|error| SocketError::Open(error.into()))
    }

    /// The largest batch that the socket takes, in bytes: what was granted of the wanted buffer, less what the kernel
    /// keeps for itself (`netlink_sendmsg`).
    pub(crate) fn room(&self) -> usize {
        socket_send_buffer_size(&self.fd).map_or(0, |granted| granted.saturating_sub(32))
    }

    /// Has the socket take so many bytes at most.
    pub(crate) fn narrow(&self, bytes: usize) -> Result<(), SocketError> {
        // The kernel doubles it.
        set_socket_send_buffer_size(&self.fd, bytes / 2).map_err(|error| SocketError::Open(error.into()))
    }

    /// A socket for questions to rtnetlink.
    pub(crate) fn route() -> Result<Socket, SocketError> {
        let socket = Self::open(None, &[])?;
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(ANSWER))
            .map_err(|error| SocketError::Open(error.into()))?;
        Ok(socket)
    }

    /// A socket for questions about sockets.
    pub(crate) fn sockets() -> Result<Socket, SocketError> {
        let socket = Self::open(Some(rustix::net::netlink::SOCK_DIAG), &[])?;
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(ANSWER))
            .map_err(|error| SocketError::Open(error.into()))?;
        Ok(socket)
    }

    /// A socket for questions to generic netlink.
    pub(crate) fn generic() -> Result<Socket, SocketError> {
        let socket = Self::open(Some(rustix::net::netlink::GENERIC), &[])?;
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(ANSWER))
            .map_err(|error| SocketError::Open(error.into()))?;
        Ok(socket)
    }

    /// A socket that receives the notifications of these rtnetlink groups.
    pub(crate) fn route_monitor(groups: &[u32]) -> Result<Socket, SocketError> {
        Self::open(None, groups)
    }

    /// A socket that receives the notifications of these netfilter groups ([`netlink::nfnl::groups`]).
    pub(crate) fn monitor(groups: &[u32]) -> Result<Socket, SocketError> {
        let socket = Self::open(Some(NETFILTER), groups)?;
        socket.widen(MONITOR_BYTES);
        Ok(socket)
    }

    /// Membership by the address' bit mask reaches groups 1 to 32 and needs no socket option.
    fn open(protocol: Option<Protocol>, groups: &[u32]) -> Result<Socket, SocketError> {
        let failed = |error: SystemErrno| SocketError::Open(error.into());
        let fd = match protocol {
            Some(NETFILTER) => Self::explaining(NETFILTER)?,
            other => socket_with(
                AddressFamily::NETLINK,
                SocketType::RAW,
                SocketFlags::CLOEXEC,
                other,
            )
            .map_err(failed)?,
        };
        let mask = groups.iter().fold(0, |mask, group| mask | 1 << (group - 1));
        bind(&fd, &SocketAddrNetlink::new(0, mask)).map_err(failed)?;
        let address = getsockname(&fd).map_err(failed)?;
        let port = SocketAddrNetlink::try_from(address).map_err(failed)?.pid();
        Ok(Socket {
            fd,
            port,
            sequence: 1,
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    /// In a user namespace the forced size is refused and the ordinary limit holds; then losses are told by the
    /// kernel and read again.
    fn widen(&self, bytes: usize) {
        let _ = set_socket_recv_buffer_size_force(&self.fd, bytes)
            .or_else(|_| set_socket_recv_buffer_size(&self.fd, bytes));
    }

    /// Has it hold as much as a monitor does.
    pub(crate) fn make_wide(&self) {
        self.widen(MONITOR_BYTES);
    }

    /// The socket's port: notifications about its own changes carry it.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// The same socket under another number: what it was bound to stays bound until all of them are closed.
    pub(crate) fn another_fd(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    fn send(&self, bytes: &[u8]) -> Result<(), SocketError> {
        loop {
            match send(&self.fd, bytes, SendFlags::empty()) {
                Ok(_) => return Ok(()),
                Err(SystemErrno::INTR) => {}
                Err(error) => return Err(SocketError::Send(error.into())),
            }
        }
    }

    /// Receives into the buffer.
    fn receive(&mut self, flags: RecvFlags) -> Result<usize, SocketError> {
        loop {
            match recv(&self.fd, &mut self.buffer[..], flags) {
                Ok((count, _)) => return Ok(count),
                Err(SystemErrno::INTR) => {}
                Err(SystemErrno::NOBUFS) => return Err(SocketError::Lost),
                Err(SystemErrno::AGAIN) => return Err(SocketError::Silent),
                Err(error) => return Err(SocketError::Receive(error.into())),
            }
        }
    }

    /// Asks for a dump and hands over each of its messages. After [`Progress::Interrupted`] they are not one state.
    pub(crate) fn dump_once<E: From<SocketError> + From<DumpError>>(
        &mut self,
        question: impl FnOnce(u32, &mut Vec<u8>) -> Result<(), EncodeError>,
        mut each: impl FnMut(Message<'_>) -> Result<(), E>,
    ) -> Result<Progress, E> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::with_capacity(256);
        question(sequence, &mut bytes).map_err(SocketError::from)?;
        self.send(&bytes)?;
        let mut dump = Dump::new(sequence);
        loop {
            let count = self.receive(RecvFlags::empty())?;
            match dump.read(&self.buffer[..count], &mut each) {
                Ok(Progress::More) => {}
                Ok(ended) => return Ok(ended),
                Err(error) => return Err(error),
            }
        }
    }

    /// Dumps until nothing was committed meanwhile, and returns what `read` made of the messages.
    pub(crate) fn dump<T>(
        &mut self,
        question: impl Fn(u32, &mut Vec<u8>) -> Result<(), EncodeError>,
        mut read: impl FnMut(Message<'_>) -> Result<Option<T>, SocketError>,
    ) -> Result<Vec<T>, SocketError> {
        match self.attempts(question, &mut read, PATIENCE)? {
            Dumped::Whole(found) => Ok(found),
            Dumped::Torn(_) => Err(SocketError::Restless),
        }
    }

    /// The same, and says so when somebody committed during every attempt.
    pub(crate) fn dump_of<T>(
        &mut self,
        question: impl Fn(u32, &mut Vec<u8>) -> Result<(), EncodeError>,
        read: impl FnMut(Message<'_>) -> Result<Option<T>, SocketError>,
    ) -> Result<Dumped<T>, SocketError> {
        self.attempts(question, read, Duration::ZERO)
    }

    fn attempts<T>(
        &mut self,
        question: impl Fn(u32, &mut Vec<u8>) -> Result<(), EncodeError>,
        mut read: impl FnMut(Message<'_>) -> Result<Option<T>, SocketError>,
        patience: Duration,
    ) -> Result<Dumped<T>, SocketError> {
        let begun = Instant::now();
        let mut torn = Vec::new();
        let mut attempts = 0;
        while attempts < ATTEMPTS || begun.elapsed() < patience {
            attempts += 1;
            let mut found = Vec::new();
            let each = |message: Message<'_>| {
                found.extend(read(message)?);
                Ok::<(), SocketError>(())
            };
            match self.dump_once(&question, each) {
                Ok(Progress::Interrupted) => torn = found,
                Err(error) if error.errno() == Some(Errno::EINTR) => {}
                Ok(_) => return Ok(Dumped::Whole(found)),
                Err(error) => return Err(error),
            }
        }
        Ok(Dumped::Torn(torn))
    }

    /// Asks a question that has one answer, or an acknowledgement; `None` for the latter.
    pub(crate) fn ask<T>(
        &mut self,
        question: impl FnOnce(u32, &mut Vec<u8>) -> Result<(), EncodeError>,
        read: impl FnOnce(Message<'_>) -> Result<T, SocketError>,
    ) -> Result<Option<T>, SocketError> {
        let sequence = self.next_sequence();
        let mut bytes = Vec::with_capacity(256);
        question(sequence, &mut bytes)?;
        self.send(&bytes)?;
        loop {
            let count = self.receive(RecvFlags::empty())?;
            for message in Messages::new(&self.buffer[..count]) {
                let message = message?;
                if message.header.sequence != sequence {
                    continue;
                }
                match Reply::read(message)? {
                    Reply::Data(message) => return read(message).map(Some),
                    Reply::Ack(_) | Reply::Done(None) => return Ok(None),
                    Reply::Refused(error) | Reply::Done(Some(error)) => {
                        return Err(SocketError::Refused(error));
                    }
                    Reply::Noop => {}
                    Reply::Overrun => return Err(SocketError::Lost),
                }
            }
        }
    }

    /// Puts many questions with one system call, each answered by an acknowledgement, and hands over each answer with
    /// the question's index. The answers wait in the receive buffer: ask no more at once than it holds.
    pub(crate) fn ask_many<Q: FnOnce(u32, &mut Vec<u8>) -> Result<(), EncodeError>>(
        &mut self,
        questions: impl Iterator<Item = Q>,
        mut answered: impl FnMut(usize, Result<(), KernelError>),
    ) -> Result<(), SocketError> {
        let mut bytes = Vec::new();
        let mut sequences = Vec::new();
        for question in questions {
            let sequence = self.next_sequence();
            question(sequence, &mut bytes)?;
            sequences.push(sequence);
        }
        self.send(&bytes)?;
        let mut open = sequences.len();
        while open > 0 {
            let count = self.receive(RecvFlags::empty())?;
            for message in Messages::new(&self.buffer[..count]) {
                let message = message?;
                let Some(index) = sequences
                    .iter()
                    .position(|asked| *asked == message.header.sequence)
                else {
                    continue;
                };
                match Reply::read(message)? {
                    Reply::Ack(_) | Reply::Done(None) => answered(index, Ok(())),
                    Reply::Refused(error) | Reply::Done(Some(error)) => answered(index, Err(error)),
                    Reply::Overrun => return Err(SocketError::Lost),
                    Reply::Data(_) | Reply::Noop => continue,
                }
                open -= 1;
            }
        }
        Ok(())
    }

    /// Starts a batch; with a generation it is refused (`ERESTART`) when anybody has committed since.
    pub(crate) fn batch(&mut self, generation: Option<u32>) -> Batch {
        Batch::new(self.next_sequence(), generation)
    }

    /// Commits a batch; an empty one is none.
    pub(crate) fn commit(&mut self, batch: Batch) -> Result<(), SocketError> {
        match batch.finish() {
            Some(batch) => self.carry_out(&batch),
            None => Ok(()),
        }
    }

    /// Commits a batch that the caller keeps, to see what was refused of it.
    pub(crate) fn carry_out(&mut self, batch: &BatchBytes) -> Result<(), SocketError> {
        crate::ours::remember(self.port);
        self.answered(batch)
    }

    /// Asks whether a batch would be taken, without committing it.
    pub(crate) fn rehearse(&mut self, batch: Batch) -> Result<(), SocketError> {
        batch.rehearsal().map_or(Ok(()), |batch| self.answered(&batch))
    }

    fn answered(&mut self, batch: &BatchBytes) -> Result<(), SocketError> {
        self.sequence = batch.next_sequence();
        self.send(&batch.bytes)?;
        loop {
            let count = self.receive(RecvFlags::empty())?;
            if read_verdict(&self.buffer[..count], batch)? == Verdict::Committed {
                return Ok(());
            }
        }
    }

    /// Receives one buffer of notifications without waiting; `None` when there is none.
    pub(crate) fn notifications(&mut self) -> Result<Option<Messages<'_>>, SocketError> {
        match self.receive(RecvFlags::DONTWAIT) {
            Ok(count) => Ok(Some(Messages::new(&self.buffer[..count]))),
            Err(SocketError::Silent) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What a dump gave.
#[derive(Debug)]
pub(crate) enum Dumped<T> {
    /// One state.
    Whole(Vec<T>),
    /// The last attempt, with a commit in the middle of it: of what nobody touched it has everything.
    Torn(Vec<T>),
}

/// How far the answers to a batch have come.
#[derive(PartialEq, Eq)]
enum Verdict {
    Open,
    Committed,
}

fn read_verdict(buffer: &[u8], batch: &BatchBytes) -> Result<Verdict, SocketError> {
    for message in Messages::new(buffer) {
        let message = message?;
        let sequence = message.header.sequence;
        if sequence != batch.begin_sequence && batch.operation(sequence).is_none() {
            continue;
        }
        match Reply::read(message)? {
            Reply::Ack(header) if header.sequence == batch.last_operation => return Ok(Verdict::Committed),
            Reply::Refused(error) => return Err(SocketError::Refused(error)),
            Reply::Overrun => return Err(SocketError::Lost),
            _ => {}
        }
    }
    Ok(Verdict::Open)
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
