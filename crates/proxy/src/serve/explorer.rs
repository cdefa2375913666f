//! The explorer's pages on the metrics port, when they were asked for.
//!
//! The last changes are kept here, told by the control loop. Everything else is answered out of a copy of the engine's
//! objects, which the loop makes when somebody looks and something changed: no more often than [`AT_MOST_EVERY`], and
//! what is made of it is forgotten when nobody looks any more.

use super::{Moment, Serving};
use crate::explore;
use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::response::Response;
use axum::routing::any;
use engine::{About, Effect, Engine, Report};
use explain::assemble_running;
use explorer::changes::{Changes, Now};
use explorer::{AboutWorld, Answer, Asked, Explored, Liveness, Names};
use model::snapshot::{Change, Snapshot};
use model::{Family, NodeFacts, Settings};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// Copies of the objects are this far apart at least, however often somebody looks.
const AT_MOST_EVERY: Duration = Duration::from_secs(2);
/// How long nobody has to look for the copy to be forgotten.
const IDLE: Duration = Duration::from_mins(1);
/// How long the control loop may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the control loop knows, copied.
pub(crate) struct Seen {
    /// The objects.
    pub(crate) snapshot: Snapshot,
    /// The node.
    pub(crate) facts: NodeFacts,
    /// The operator's decisions.
    pub(crate) settings: Settings,
}

/// Somebody who wants to know what the control loop knows.
pub(crate) type Look = oneshot::Sender<Seen>;

/// Those who look, for the control loop. Nobody ever does when there is no explorer.
pub(crate) struct Looks(Option<mpsc::Receiver<Look>>);

impl Looks {
    /// The next one.
    pub(crate) async fn next(&mut self) -> Look {
        match &mut self.0 {
            Some(looks) => match looks.recv().await {
                Some(look) => look,
                None => std::future::pending().await,
            },
            None => std::future::pending().await,
        }
    }
}

/// What the pages are answered out of.
pub(super) struct Explorer {
    changes: Mutex<Changes>,
    looks: mpsc::Sender<Look>,
    receiver: Mutex<Option<mpsc::Receiver<Look>>>,
    /// How many changes of objects and of the node were heard.
    heard: AtomicU64,
    copy: tokio::sync::Mutex<Option<Copied>>,
    names: Names,
    mode: String,
}

struct Copied {
    explored: Arc<Explored>,
    /// [`Explorer::heard`] when it was made.
    heard: u64,
    made: Instant,
    used: Instant,
}

impl Explorer {
    pub(super) fn new(mode: &str, node: &str) -> Explorer {
        let (looks, receiver) = mpsc::channel(1);
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        Explorer {
            changes: Mutex::default(),
            looks,
            receiver: Mutex::new(Some(receiver)),
            heard: AtomicU64::new(0),
            copy: tokio::sync::Mutex::default(),
            names: Names::new([node, &*host]),
            mode: mode.to_owned(),
        }
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first lists are told as one.
    fn given(&self, change: &Change, engine: &Engine, now: Now) {
        self.heard.fetch_add(1, Ordering::Relaxed);
        if engine.is_synced() {
            self.changes().heard(change, engine.snapshot(), now);
        }
    }

    fn report(&self, report: &Report, now: Now) {
        let mut changes = self.changes();
        match report {
            Report::Applied { family, services, .. } => changes.written(*family, services, now),
            Report::AsItIs { family, services } => changes.as_it_was(*family, services, now),
            Report::Failed {
                family,
                about,
                failure,
                ..
            } => {
                let service = match about {
                    About::Service(service) => Some(service),
                    About::Reading | About::Step => None,
                };
                changes.failed(*family, service, &failure.text);
            }
            Report::Damaged { family, what, by, .. } => {
                let by = by.as_deref().unwrap_or("somebody unknown");
                changes.damaged(*family, &format!("changed by {by}: {what}"), now);
            }
            _ => {}
        }
    }

    /// The world as it is now, or was a moment ago.
    async fn explored(&self, started_at: u64) -> Result<Arc<Explored>, Answer> {
        let mut copy = self.copy.lock().await;
        let heard = self.heard.load(Ordering::Relaxed);
        if let Some(copy) = &mut *copy
            && (copy.heard == heard || copy.made.elapsed() < AT_MOST_EVERY)
        {
            copy.used = Instant::now();
            return Ok(copy.explored.clone());
        }
        // One world at a time.
        *copy = None;
        let (look, seen) = oneshot::channel();
        let ask = async {
            self.looks.send(look).await.ok()?;
            seen.await.ok()
        };
        let Ok(Some(seen)) = tokio::time::timeout(PATIENCE, ask).await else {
            return Err(Answer::refused(
                503,
                "there is nothing to show yet: the proxy still waits for its Node or its objects",
            ));
        };
        let mode = self.mode.clone();
        let looked_through = tokio::task::spawn_blocking(move || {
            let world = assemble_running(seen.snapshot, seen.facts, &seen.settings, &mode);
            Explored::new(world, explore::about(Liveness::Live, started_at))
        });
        let Ok(explored) = looked_through.await else {
            return Err(Answer::refused(
                500,
                "the objects could not be looked through; the log says why",
            ));
        };
        let explored = Arc::new(explored);
        *copy = Some(Copied {
            explored: explored.clone(),
            heard,
            made: Instant::now(),
            used: Instant::now(),
        });
        Ok(explored)
    }

    async fn forget_when_idle(&self) {
        let mut copy = self.copy.lock().await;
        if copy.as_ref().is_some_and(|copy| copy.used.elapsed() >= IDLE) {
            *copy = None;
        }
    }
}

impl Serving {
    /// Those who want to know what the control loop knows. To be taken once.
    pub(crate) fn looks(&self) -> Looks {
        let explorer = self.0.explorer.as_ref();
        Looks(explorer.and_then(|it| it.receiver.lock().unwrap_or_else(PoisonError::into_inner).take()))
    }

    pub(super) fn explorer_serves(&self, family: Family) {
        if let Some(explorer) = &self.0.explorer {
            explorer.changes().serves(family);
        }
    }

    pub(super) fn explorer_given(&self, change: &Change, engine: &Engine) {
        if let Some(explorer) = &self.0.explorer {
            explorer.given(change, engine, self.now().into());
        }
    }

    pub(super) fn explorer_began(&self, family: Family, effect: &Effect) {
        let is_step = matches!(effect, Effect::Commit(_) | Effect::NftCommit(_));
        if let Some(explorer) = self.0.explorer.as_ref().filter(|_| is_step) {
            explorer.changes().step(family, self.now().into());
        }
    }

    pub(super) fn explorer_report(&self, report: &Report) {
        if let Some(explorer) = &self.0.explorer {
            explorer.report(report, self.now().into());
        }
    }

    /// What needed no write is not pending for ever.
    pub(super) fn explorer_look(&self, engine: &Engine) {
        let Some(explorer) = self.0.explorer.as_ref().filter(|_| engine.is_synced()) else {
            return;
        };
        for family in Family::ALL {
            let is_idle = engine.status(family).is_some_and(|status| status.queued == 0);
            if is_idle && !self.record().is_working(family) {
                explorer.changes().idle(family, self.now().into());
            }
        }
    }

    /// The node is another, or its settings are.
    pub(super) fn explorer_addresses(&self) {
        if let Some(explorer) = &self.0.explorer {
            explorer.heard.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl From<Moment> for Now {
    fn from(moment: Moment) -> Now {
        Now {
            running: moment.since_start,
            since_1970: Duration::from_secs_f64(moment.wall.max(0.0)),
        }
    }
}

/// The pages; none without the explorer.
pub(super) fn router(serving: &Serving) -> Router {
    if serving.0.explorer.is_none() {
        return Router::new();
    }
    let forgetting = serving.clone();
    tokio::spawn(async move {
        while let Some(explorer) = &forgetting.0.explorer {
            tokio::time::sleep(IDLE).await;
            explorer.forget_when_idle().await;
        }
    });
    let serving = serving.clone();
    explore::routes(any(move |request: Request<Body>| {
        answer(serving.clone(), request)
    }))
}

async fn answer(serving: Serving, request: Request<Body>) -> Response {
    let Some(explorer) = &serving.0.explorer else {
        return super::pages::not_found();
    };
    let answer = match explore::asked(&request, &explorer.names) {
        Asked::Known(answer) => answer,
        Asked::Changes(asked) => {
            // The control loop does not wait while an answer is written.
            let changes = explorer.changes().clone();
            changes.answer(&asked)
        }
        Asked::World(asked) => of_world(&serving, explorer, asked).await,
    };
    explore::response(answer)
}

async fn of_world(serving: &Serving, explorer: &Explorer, asked: AboutWorld) -> Answer {
    let now = Duration::from_secs_f64(serving.now().wall.max(0.0));
    let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
    match explorer.explored(now).await {
        Ok(world) => {
            let counted = match &asked {
                AboutWorld::Service(name) => serving.counted_of(name),
                _ => None,
            };
            explore::answer(world, asked, counted).await
        }
        Err(answer) => answer,
    }
}
