//! What a source says.

use model::Note;
use model::object::{Kind, NotRead};
use model::snapshot::Change;
use std::time::Duration;

/// One thing a source says. All sources say the same kinds of things, so that the daemon does not ask which one runs.
#[derive(Clone, Debug, PartialEq)]
pub enum SourceEvent {
    /// An object came, changed or went.
    Change(Change),
    /// Several changes that are to be taken in at once: with some of them alone, rules would be wrong for a moment.
    Together(Vec<Change>),
    /// What the memory on disk does.
    Remembered(Remembered),
    /// Everything there is of this kind has been said. Sent after the first complete list, and again after each later
    /// one (for files: each complete reading).
    Synced(Kind),
    /// Parts of objects, or whole objects, were left out.
    Notes(Vec<Note>),
    /// An object, a document or a file was left out: garbage, malformed, or said twice. Everything else goes on. One
    /// line that names the place.
    LeftOut(String),
    /// Objects of kinds the proxy does not read (files only). Worth a debug line.
    NotRead(Vec<NotRead>),
    /// The source for this kind works, or does not.
    Health(Kind, Health),
}

/// How the watch of one kind is doing.
#[derive(Clone, Debug, PartialEq)]
pub enum Health {
    /// The watch is open and the state behind it complete.
    Connected {
        /// How the last complete list came.
        delivery: Delivery,
    },
    /// A bookmark came: nothing has changed, and the connection lives. About every minute.
    Bookmark,
    /// Nothing came for this long, so the watch is opened anew on a new connection. Harmless once in a while on a very
    /// quiet server; [`Health::Failing`] follows when the server does not answer either.
    Silent {
        /// How long nothing came.
        quiet: Duration,
    },
    /// The watch cannot be opened. What was said before stays true. Sent for the first failure, for a new reason,
    /// after ten seconds, and then for each doubling of that time, so that an outage is a few lines and not thousands.
    Failing {
        /// One line: what was tried, what happened, what to do.
        error: String,
        /// Failures in a row.
        failures: u32,
        /// Time since the first of them.
        since: Duration,
    },
    /// The server does not have this kind, and the proxy can do without it. It is asked for again now and then.
    Absent,
}

/// What the memory on disk does, see [`crate::state`].
#[derive(Clone, Debug, PartialEq)]
pub enum Remembered {
    /// The server does not answer, so what it said to an earlier process counts for these kinds. Each of them is complete.
    InUse {
        /// The kinds.
        kinds: Vec<Kind>,
        /// All their objects, to be taken in at once.
        changes: Vec<Change>,
        /// How long ago the server confirmed them.
        age: Duration,
        /// How many objects there are.
        objects: usize,
    },
    /// The server has answered for all kinds; nothing remembered is left.
    Over,
    /// The server does not answer, and the file cannot be used: which, why, and what to do, in one line.
    NotUsed(String),
    /// The server does not answer and no file is there.
    Nothing(String),
    /// The server does not answer, and rules are in the kernel, which are at least as new as the file.
    RulesAreThere,
    /// The objects cannot be written down: which file, why, in one line. Told once until it works again.
    NotWritten(String),
    /// They are written down, for the first time or again after failures.
    Written(String),
}

/// How a complete list came from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// As the first events of the watch.
    StreamingList,
    /// As a list, followed by a watch.
    List,
    /// From files.
    Files,
}
