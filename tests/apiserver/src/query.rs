//! The options of a list or a watch, and which of them go together.

use crate::asked::Asked;
use crate::resource::Place;
use crate::selector::Selector;
use crate::status::{Status, Wrong};
use std::time::Duration;

/// Which state of the cluster will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The newest there is.
    Newest,
    /// Whatever is at hand.
    Any,
    /// This one, or a newer one.
    NotOlderThan(u64),
    /// Just this one.
    Exact(u64),
}

/// What a list is to have.
#[derive(Clone, Debug)]
pub(crate) struct ListQuery {
    pub(crate) selector: Selector,
    pub(crate) version: Version,
    /// Most items of one answer; zero for no limit.
    pub(crate) limit: usize,
    pub(crate) continue_token: String,
}

/// What a watch is to have.
#[derive(Clone, Debug)]
pub(crate) struct WatchQuery {
    pub(crate) selector: Selector,
    pub(crate) start: Start,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Option<Duration>,
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With everything there is, its end marked.
    InitialEvents(Option<u64>),
    /// With everything there is.
    Everything,
    /// With what came after a version.
    After(u64),
}

/// Whether the server does streaming lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamingLists {
    /// As servers do since 1.32.
    Offered,
    /// As before, or with the feature gate off: the wish is refused.
    Refused,
}

pub(crate) fn selector(asked: &Asked, place: &Place) -> Result<Selector, Status> {
    Selector::read(
        place.resource,
        place.namespace.clone(),
        &asked.parameter("labelSelector"),
        &asked.parameter("fieldSelector"),
    )
}

impl ListQuery {
    pub(crate) fn read(asked: &Asked, place: &Place) -> Result<Self, Status> {
        let selector = selector(asked, place)?;
        let (text, how) = (
            asked.parameter("resourceVersion"),
            asked.parameter("resourceVersionMatch"),
        );
        let continue_token = asked.parameter("continue");
        let limit = number(&asked.parameter("limit"))?.unwrap_or(0);
        let mut wrong = Vec::new();
        if !asked.parameter("sendInitialEvents").is_empty() {
            let why = "sendInitialEvents is forbidden for list";
            wrong.push(Wrong::forbidden("sendInitialEvents", why));
        }
        if !how.is_empty() {
            if text.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                wrong.push(Wrong::forbidden("resourceVersionMatch", why));
            }
            if !continue_token.is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                wrong.push(Wrong::forbidden("resourceVersionMatch", why));
            }
            if how == "Exact" && text == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                wrong.push(Wrong::forbidden("resourceVersionMatch", why));
            }
        }
        refuse(&wrong)?;
        if !continue_token.is_empty() && !matches!(text.as_str(), "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let version = match (
            version(&text).map_err(|why| unusable_for_list(&why))?,
            how.as_str(),
        ) {
            (None, _) => Version::Newest,
            (Some(0), _) => Version::Any,
            (Some(version), "Exact") => Version::Exact(version),
            // With a limit the version is taken to be meant exactly.
            (Some(version), "") if limit > 0 => Version::Exact(version),
            (Some(version), _) => Version::NotOlderThan(version),
        };
        Ok(ListQuery {
            selector,
            version,
            limit,
            continue_token,
        })
    }
}

impl WatchQuery {
    pub(crate) fn read(asked: &Asked, place: &Place, streaming: StreamingLists) -> Result<Self, Status> {
        let selector = selector(asked, place)?;
        let (text, how) = (
            asked.parameter("resourceVersion"),
            asked.parameter("resourceVersionMatch"),
        );
        let initial = asked.parameter("sendInitialEvents");
        refuse(&wrong_together(&initial, &how, streaming))?;
        let version = version(&text).map_err(unusable_for_watch)?;
        let bookmarks = matches!(asked.parameter("allowWatchBookmarks").as_str(), "true" | "1");
        let start = match (initial.as_str(), version) {
            ("true" | "1", version) => Start::InitialEvents(version.filter(|version| *version > 0)),
            // Old clients that take bookmarks get a streaming list without asking for one.
            ("", None | Some(0)) if bookmarks && streaming == StreamingLists::Offered => {
                Start::InitialEvents(None)
            }
            (_, None | Some(0)) => Start::Everything,
            (_, Some(version)) => Start::After(version),
        };
        let timeout = number(&asked.parameter("timeoutSeconds"))?;
        Ok(WatchQuery {
            selector,
            start,
            bookmarks,
            timeout: timeout.filter(|seconds| *seconds > 0).map(Duration::from_secs),
        })
    }
}

fn wrong_together(initial: &str, how: &str, streaming: StreamingLists) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    match (initial, how) {
        ("", "") => {}
        ("", _) => {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            wrong.push(Wrong::forbidden("resourceVersionMatch", why));
        }
        (_, how) => {
            if how != "NotOlderThan" {
                let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
                wrong.push(Wrong::forbidden("resourceVersionMatch", why));
            }
            if streaming == StreamingLists::Refused {
                let why =
                    "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
                wrong.push(Wrong::forbidden("sendInitialEvents", why));
            }
        }
    }
    wrong
}

fn refuse(wrong: &[Wrong]) -> Result<(), Status> {
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", "ListOptions", "", wrong))
}

/// `None` for no version; what is wrong with it otherwise.
fn version(text: &str) -> Result<Option<u64>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| {
        format!(
            "resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
        )
    })
}

fn unusable_for_list(why: &str) -> Status {
    Status::bad_request(format!("invalid resource version: {why}"))
}

fn unusable_for_watch(why: String) -> Status {
    Status::new(500, "", why)
}

fn number(text: &str) -> Result<Option<u64>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    text.parse()
        .map(Some)
        .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
}
