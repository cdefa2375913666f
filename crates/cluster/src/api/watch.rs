//! The watch of one kind: list, follow, and whatever it takes to go on.
//!
//! ```text
//!            +--> streaming list ---- end of initial events --+
//!   List ----+                                                +--> follow events --+
//!    ^       +--> plain list ---> watch after its version ----+                    |
//!    |                                                                             |
//!    |  410 Gone, server behind                  cut, silent, ended by the server  |
//!    +-----------------------------+------------------------------+----------------+
//!                                  |  Resume: watch after the last version  |
//! ```
//!
//! * A streaming list that the server refuses turns into plain lists for the rest of this process.
//! * Invariant: what was told stays told until a complete list lacks it or a delete event names it. No failure deletes.

use super::answer::body_of;
use super::connect::{Connection, Lease};
use super::frame::{Frame, Item, decode_frame, decode_item, list_version};
use super::keep_alive::KeepAlive;
use super::lines::Body;
use super::outage::Outage;
use super::pace::{Throttle, between};
use super::reach::Reach;
use super::resource::{Resource, Start};
use super::tally::What;
use super::trouble::{Place, Trouble};
use crate::known::Known;
use crate::scan::ItemScanner;
use crate::{Delivery, Health, SourceEvent};
use model::object::{Converted, Kind, Object};
use model::snapshot::Change;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep, timeout};

/// So many events in a row that cannot be read mean that the other end is no API server.
const UNREADABLE: u32 = 10;

/// So many accepted watches in a row without any byte, not even a bookmark, mean that the version asked for may lie ahead
/// of the server, as after a restored backup: it then says nothing until its own versions get there. A list tells.
const SILENT: u32 = 2;

/// Times of a watch. The defaults are for real clusters; tests have shorter ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How a connection whose packets go nowhere is found.
    pub keep_alive: KeepAlive,
    /// Longest time without any byte from the server. Bookmarks come about every minute.
    pub silence: Duration,
    /// Longest time until the server begins to answer.
    pub answer: Duration,
    /// The server is asked to end each watch after a random time between these two, so that watches spread over
    /// several servers again after one was away.
    pub watch: (Duration, Duration),
    /// First and longest wait after failures.
    pub backoff: (Duration, Duration),
    /// How long a failure lasts until it is said again; after that, for each doubling.
    pub remind: Duration,
    /// A watch that lived this long was a good one: its end is no failure.
    pub stable: Duration,
    /// Time until a resource that the server does not have is asked for again.
    pub absent: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Timing {
            keep_alive: KeepAlive::default(),
            silence: Duration::from_mins(2),
            answer: Duration::from_mins(1),
            watch: (Duration::from_mins(5), Duration::from_mins(10)),
            backoff: (Duration::from_millis(800), Duration::from_secs(30)),
            remind: Duration::from_secs(10),
            stable: Duration::from_secs(5),
            absent: Duration::from_mins(5),
        }
    }
}

/// Why a round ended.
#[derive(Debug)]
enum Stop {
    /// Nobody listens any more.
    Unheard,
    /// Something went wrong.
    Trouble(Trouble),
}

impl<T: Into<Trouble>> From<T> for Stop {
    fn from(trouble: T) -> Self {
        Stop::Trouble(trouble.into())
    }
}

/// What the next request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    List,
    Resume,
}

/// How a round ended without trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The next request can follow at once.
    Goal,
    /// The server ended the watch, as it does every few minutes.
    Watch,
}

/// How far a followed stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    InitialEvents,
    Live,
}

/// The watch of one kind.
pub(crate) struct Watch {
    pub(crate) resource: Resource,
    pub(crate) node: Arc<str>,
    pub(crate) connection: Connection,
    pub(crate) throttle: Throttle,
    pub(crate) reach: Reach,
    pub(crate) timing: Timing,
    pub(crate) out: Sender<SourceEvent>,
    state: State,
}

struct State {
    known: Known,
    next: Next,
    lists: Delivery,
    /// The last version heard of. After it a watch resumes, and a new list may not be older.
    version: Option<String>,
    outage: Outage,
    /// Since when this round's watch is open with complete state behind it.
    live_since: Option<Instant>,
    /// Events in a row that could not be read.
    unreadable: u32,
    /// Watches in a row that were accepted and brought nothing at all.
    silent: u32,
}

impl Watch {
    /// A watch that has not begun.
    pub(crate) fn new(
        resource: Resource,
        node: Arc<str>,
        connection: (Connection, Throttle, Reach),
        timing: Timing,
        out: Sender<SourceEvent>,
    ) -> Self {
        let state = State {
            known: Known::default(),
            next: Next::List,
            lists: Delivery::StreamingList,
            version: None,
            outage: Outage::new(timing.backoff, timing.remind),
            live_since: None,
            unreadable: 0,
            silent: 0,
        };
        let (connection, throttle, reach) = connection;
        Watch {
            resource,
            node,
            connection,
            throttle,
            reach,
            timing,
            out,
            state,
        }
    }

    /// Watches until nobody listens any more.
    pub(crate) async fn run(mut self) {
        loop {
            let waited = self.throttle.take().await;
            let lease = self.connection.lease().await;
            lease.counter.tell("GET", What::Waited(waited));
            self.state.live_since = None;
            let round = match (self.state.next, self.state.lists) {
                (Next::List, Delivery::StreamingList) => self.streaming_list(&lease).await,
                (Next::List, _) => self.plain_list(&lease).await,
                (Next::Resume, _) => self.resume(&lease).await,
            };
            let heard = match round {
                Ok(end) => self.after_end(end, &lease).await,
                Err(Stop::Trouble(trouble)) => self.after_trouble(trouble, &lease).await,
                Err(Stop::Unheard) => Err(Stop::Unheard),
            };
            if heard.is_err() {
                return;
            }
        }
    }

    fn kind(&self) -> Kind {
        self.resource.kind
    }

    /// Opens a watch that begins with all objects, and follows it.
    async fn streaming_list(&mut self, lease: &Lease) -> Result<End, Stop> {
        let start = Start::InitialEvents(self.state.version.as_deref());
        let uri = self.resource.watch(start, self.watch_seconds());
        let body = match self.open(lease, &uri).await {
            Ok(body) => body,
            Err(trouble) => return Err(trouble.while_streaming(Place::Response).into()),
        };
        self.state.known.begin_list();
        self.follow(body, Phase::InitialEvents).await
    }

    /// Opens a watch after the last version, and follows it.
    async fn resume(&mut self, lease: &Lease) -> Result<End, Stop> {
        let Some(version) = self.state.version.as_deref() else {
            self.state.next = Next::List;
            return Ok(End::Goal);
        };
        let uri = self.resource.watch(Start::After(version), self.watch_seconds());
        let body = self.open(lease, &uri).await?;
        self.connected().await?;
        self.follow(body, Phase::Live).await
    }

    /// Lists, item by item.
    async fn plain_list(&mut self, lease: &Lease) -> Result<End, Stop> {
        let uri = self.resource.list(self.state.version.as_deref());
        let mut body = self.open(lease, &uri).await?;
        self.state.known.begin_list();
        let mut scanner = ItemScanner::new();
        let mut items = Vec::new();
        while let Some(scanned) = body.piece(|bytes| scanner.push(bytes, &mut items)).await? {
            scanned.map_err(Trouble::from)?;
            for item in items.drain(..) {
                match decode_item(self.kind(), &item) {
                    Ok(item) => self.applied(item.converted).await?,
                    Err(trouble) => self.unreadable(&trouble, &item).await?,
                }
            }
        }
        let envelope = scanner.finish().map_err(Trouble::from)?;
        let version = list_version(&envelope)?;
        self.list_complete(version, Delivery::List).await?;
        Ok(End::Goal)
    }

    fn watch_seconds(&self) -> u64 {
        between(self.timing.watch.0, self.timing.watch.1).as_secs().max(1)
    }

    async fn open(&self, lease: &Lease, uri: &str) -> Result<Body, Trouble> {
        tracing::debug!(v = 4, uri, "request");
        let answer = timeout(self.timing.answer, body_of(&lease.client, uri));
        match answer.await {
            Err(_) => Err(Trouble::Silent(self.timing.answer)),
            Ok(stream) => Ok(Body::new(stream?, self.timing.silence)),
        }
    }

    /// Takes in events until the stream ends.
    async fn follow(&mut self, mut body: Body, mut phase: Phase) -> Result<End, Stop> {
        loop {
            let line = match body.line().await {
                Ok(Some(line)) => line,
                Ok(None) if phase == Phase::Live => return Ok(End::Watch),
                Ok(None) => {
                    let text = "the server ended the watch before all initial events had come";
                    return Err(Trouble::Broken(text.to_owned()).into());
                }
                Err(Trouble::Silent(quiet)) if phase == Phase::InitialEvents => {
                    let text = format!("the initial events did not end, and nothing came for {quiet:?}");
                    return Err(Trouble::NoStreaming(text).into());
                }
                Err(trouble) => return Err(trouble.into()),
            };
            self.state.silent = 0;
            match decode_frame(self.kind(), line) {
                Ok(frame) => {
                    self.state.unreadable = 0;
                    self.take(frame, &mut phase).await?;
                }
                Err(trouble) => {
                    let line = line.to_vec();
                    self.unreadable(&trouble, &line).await?;
                    self.state.unreadable += 1;
                    if self.state.unreadable >= UNREADABLE {
                        return Err(trouble.into());
                    }
                }
            }
        }
    }

    async fn take(&mut self, frame: Frame, phase: &mut Phase) -> Result<(), Stop> {
        match (frame, *phase) {
            (Frame::Applied(Item { converted, version }), _) => {
                self.heard(version, *phase)?;
                self.applied(converted).await
            }
            (Frame::Deleted(Item { converted, version }), _) => {
                self.heard(version, *phase)?;
                self.deleted(converted).await
            }
            (
                Frame::Bookmark {
                    version,
                    end_of_initial_events: true,
                },
                Phase::InitialEvents,
            ) => {
                *phase = Phase::Live;
                self.list_complete(version, Delivery::StreamingList).await?;
                self.connected().await
            }
            // An old server that ignores what it does not know never marks the end.
            (Frame::Bookmark { .. }, Phase::InitialEvents) => {
                Err(Trouble::NoStreaming("its initial events have no end".to_owned()).into())
            }
            (Frame::Bookmark { version, .. }, Phase::Live) => {
                self.state.version = Some(version);
                self.say(SourceEvent::Health(self.kind(), Health::Bookmark)).await
            }
            (Frame::Error(status), Phase::InitialEvents) => Err(Trouble::of_status(&status)
                .while_streaming(Place::InStream)
                .into()),
            (Frame::Error(status), Phase::Live) => Err(Trouble::of_status(&status).into()),
        }
    }

    /// Remembers where to resume. Initial events come in any order of version, so only their end counts; after them
    /// versions only grow, and the same one twice is the same event.
    fn heard(&mut self, version: Option<String>, phase: Phase) -> Result<(), Trouble> {
        if phase == Phase::InitialEvents || version.is_none() {
            return Ok(());
        }
        let number = |version: &Option<String>| version.as_deref()?.parse::<u64>().ok();
        match (number(&self.state.version), number(&version)) {
            (Some(heard), Some(event)) if event < heard => Err(Trouble::Disordered { heard, event }),
            _ => {
                self.state.version = version;
                Ok(())
            }
        }
    }

    async fn applied(&mut self, converted: Converted) -> Result<(), Stop> {
        if !converted.notes.is_empty() {
            self.say(SourceEvent::Notes(converted.notes)).await?;
        }
        let Some(object) = converted.object else {
            return Ok(());
        };
        if matches!(&object, Object::Node(node) if node.name != self.node) {
            return Ok(());
        }
        self.state.known.seen(object.reference());
        self.say(SourceEvent::Change(Change::Apply(object))).await
    }

    async fn deleted(&mut self, converted: Converted) -> Result<(), Stop> {
        match converted.object.map(|object| object.reference()) {
            Some(name) if self.state.known.gone(&name) => {
                self.say(SourceEvent::Change(Change::Delete(name))).await
            }
            _ => Ok(()),
        }
    }

    async fn unreadable(&self, trouble: &Trouble, text: &[u8]) -> Result<(), Stop> {
        let start = String::from_utf8_lossy(&text[..text.len().min(120)]);
        let start = super::trouble::one_line(&start);
        let plural = Resource::plural(self.kind());
        self.say(SourceEvent::LeftOut(format!(
            "one of {plural} from the API server left out: {trouble}; it begins with {start:?}"
        )))
        .await
    }

    async fn list_complete(&mut self, version: String, delivery: Delivery) -> Result<(), Stop> {
        for name in self.state.known.end_list() {
            self.say(SourceEvent::Change(Change::Delete(name))).await?;
        }
        self.state.version = Some(version);
        self.state.next = Next::Resume;
        self.state.lists = delivery;
        self.say(SourceEvent::Synced(self.kind())).await
    }

    async fn connected(&mut self) -> Result<(), Stop> {
        self.state.live_since = Some(Instant::now());
        self.reach.seen(&mut self.state.outage);
        self.reach.through();
        if !self.state.outage.connected() {
            return Ok(());
        }
        let delivery = self.state.lists;
        self.say(SourceEvent::Health(self.kind(), Health::Connected { delivery }))
            .await
    }

    async fn say(&self, event: SourceEvent) -> Result<(), Stop> {
        self.out.send(event).await.map_err(|_| Stop::Unheard)
    }

    /// Waits as needed after a round that ended without trouble.
    async fn after_end(&mut self, end: End, lease: &Lease) -> Result<(), Stop> {
        match end {
            End::Goal => Ok(()),
            End::Watch => {
                let text = "the server ended the watch right after it began".to_owned();
                self.pause(&Trouble::Broken(text), lease).await
            }
        }
    }

    /// Decides what comes next after trouble, and waits.
    async fn after_trouble(&mut self, trouble: Trouble, lease: &Lease) -> Result<(), Stop> {
        tracing::debug!(v = 3, kind = ?self.kind(), %trouble, "watch ended");
        if trouble.taints_connection() {
            self.connection.renew(lease).await;
        }
        match &trouble {
            Trouble::NoStreaming(_) => {
                self.state.lists = Delivery::List;
                return Ok(());
            }
            Trouble::Absent if self.kind() == Kind::ServiceCidr => return self.do_without().await,
            Trouble::Expired | Trouble::Disordered { .. } => self.state.next = Next::List,
            Trouble::Behind => {
                self.state.next = Next::List;
                self.state.version = None;
            }
            // Without permission streaming lists seem refused too; try both again.
            Trouble::Refused { code: 401 | 403, .. } => self.state.lists = Delivery::StreamingList,
            Trouble::Silent(quiet) if self.state.live_since.is_some() => {
                let event = SourceEvent::Health(self.kind(), Health::Silent { quiet: *quiet });
                self.say(event).await?;
                self.state.silent += 1;
                if self.state.silent >= SILENT {
                    self.state.next = Next::List;
                }
            }
            _ => {}
        }
        self.pause(&trouble, lease).await
    }

    /// Waits after a round. The end of a watch that lived for a while is nothing to talk about: what counts is
    /// whether the next one can be opened.
    async fn pause(&mut self, trouble: &Trouble, lease: &Lease) -> Result<(), Stop> {
        let now = Instant::now();
        let outage = &mut self.state.outage;
        let is_there = !matches!(trouble, Trouble::Unconnected(_));
        if is_there {
            self.reach.seen(outage);
        }
        if let Some(since) = self.state.live_since
            && now - since >= self.timing.stable
        {
            outage.over();
            self.reach.worked(since);
            sleep(between(Duration::ZERO, self.timing.backoff.0)).await;
            return Ok(());
        }
        let line = || trouble.line(&lease.server, self.resource.kind, &self.node);
        let (wait, health) = match trouble {
            Trouble::Expired | Trouble::Behind | Trouble::Disordered { .. } => (outage.before_list(), None),
            _ if trouble.is_of_server() => self.reach.fail(outage, line(), now),
            _ => outage.fail(line(), now),
        };
        if let Some(health) = health {
            self.say(SourceEvent::Health(self.kind(), health)).await?;
        }
        let asked = match trouble {
            Trouble::Refused {
                code,
                retry_after: Some(wait),
                ..
            } => {
                lease.counter.tell("GET", What::Retried(*code));
                *wait
            }
            _ => Duration::ZERO,
        };
        let wait = if is_there {
            wait.max(asked)
        } else {
            self.reach.without_server(&mut self.state.outage, wait)
        };
        if trouble.is_of_server() {
            self.reach.wait(wait, &mut self.state.outage).await;
        } else {
            sleep(wait).await;
        }
        Ok(())
    }

    /// The server lacks a resource that the proxy can do without.
    async fn do_without(&mut self) -> Result<(), Stop> {
        self.say(SourceEvent::Health(self.kind(), Health::Absent)).await?;
        self.say(SourceEvent::Synced(self.kind())).await?;
        sleep(self.timing.absent).await;
        Ok(())
    }
}
