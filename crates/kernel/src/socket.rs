//! A netlink socket: questions with their answers, batches, and notifications.

use crate::FailureKind;
use netlink::dump::{Dump, DumpError, Progress};
use netlink::message::{Message, Messages, Reply};
use netlink::nfnl::{Batch, BatchBytes};
use netlink::{DecodeError, EncodeError, Errno, KernelError};
use rustix::io::Errno as SystemErrno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{
    Timeout, set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_send_buffer_size,
    set_socket_send_buffer_size_force, set_socket_timeout,
};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, bind, getsockname, recv, send,
    socket_with,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// The kernel fills dump buffers of up to 32 KiB when it sees a larger one (`netlink_recvmsg`).
const RECEIVE_BYTES: usize = 64 * 1024;
/// Wanted socket buffers: many answers may wait, and a batch is sent whole.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Monitors overflow when nobody reads for a while (kernel-facts.md, `nf_tables` 12).
const MONITOR_BYTES: usize = 16 * 1024 * 1024;
/// How long the kernel may take to answer.
const ANSWER: Duration = Duration::from_secs(30);
/// How often a dump that was interrupted by a commit is asked for again.
const ATTEMPTS: u32 = 10;

/// What went wrong between us and the kernel.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The socket could not be made.
    #[error("no netlink socket")]
    Open(#[source] std::io::Error),
    /// Nothing could be sent.
    #[error("could not send to the kernel")]
    Send(#[source] std::io::Error),
    /// Nothing could be received.
    #[error("could not receive from the kernel")]
    Receive(#[source] std::io::Error),
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
    #[error("the rules changed under every one of {ATTEMPTS} readings")]
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
                if error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                FailureKind::Denied
            }
            SocketError::Open(_) | SocketError::Send(_) | SocketError::Receive(_) | SocketError::Lost => {
                FailureKind::Other
            }
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
        let socket = Self::open(Some(rustix::net::netlink::NETFILTER), &[])?;
        let _ = set_socket_send_buffer_size_force(&socket.fd, BUFFER_BYTES)
            .or_else(|_| set_socket_send_buffer_size(&socket.fd, BUFFER_BYTES));
        socket.widen(BUFFER_BYTES);
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(ANSWER))
            .map_err(|error| SocketError::Open(error.into()))?;
        Ok(socket)
    }

    /// A socket for questions to rtnetlink.
    pub(crate) fn route() -> Result<Socket, SocketError> {
        let socket = Self::open(None, &[])?;
        set_socket_timeout(&socket.fd, Timeout::Recv, Some(ANSWER))
            .map_err(|error| SocketError::Open(error.into()))?;
        Ok(socket)
    }

    /// A socket that receives the notifications of these netfilter groups ([`netlink::nfnl::groups`]).
    pub(crate) fn monitor(groups: &[u32]) -> Result<Socket, SocketError> {
        let socket = Self::open(Some(rustix::net::netlink::NETFILTER), groups)?;
        socket.widen(MONITOR_BYTES);
        Ok(socket)
    }

    /// Membership by the address' bit mask reaches groups 1 to 32 and needs no socket option.
    fn open(protocol: Option<Protocol>, groups: &[u32]) -> Result<Socket, SocketError> {
        let failed = |error: SystemErrno| SocketError::Open(error.into());
        let fd = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )
        .map_err(failed)?;
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

    /// The socket's port: notifications about its own changes carry it.
    pub(crate) fn port(&self) -> u32 {
        self.port
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
        for _ in 0..ATTEMPTS {
            let mut found = Vec::new();
            let each = |message: Message<'_>| {
                found.extend(read(message)?);
                Ok::<(), SocketError>(())
            };
            match self.dump_once(&question, each) {
                Ok(Progress::Interrupted) => {}
                Err(error) if error.errno() == Some(Errno::EINTR) => {}
                Ok(_) => return Ok(found),
                Err(error) => return Err(error),
            }
        }
        Err(SocketError::Restless)
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
        let Some(batch) = batch.finish() else {
            return Ok(());
        };
        self.sequence = batch.next_sequence();
        crate::ours::remember(self.port);
        self.send(&batch.bytes)?;
        loop {
            let count = self.receive(RecvFlags::empty())?;
            if read_verdict(&self.buffer[..count], &batch)? == Verdict::Committed {
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
