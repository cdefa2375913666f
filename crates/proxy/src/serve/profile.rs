//! `/debug/pprof`: where the time of the processor goes, as `go tool pprof` reads it or as a flame graph.
//!
//! A sample is a stack of the running thread each hundredth of a second of processor time. Heap, locks and the like are what
//! Go's runtime counts for itself; there is nothing of the kind here, and their pages say so.

use super::pages::{answer_of, not_found, text};
use super::{flame, pprof_format};
use axum::body::{Body, Bytes};
use axum::extract;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::response::Response;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;

/// How long a profile takes when nobody says.
const USUAL: Duration = Duration::from_secs(30);
/// The longest one.
const LONGEST: Duration = Duration::from_mins(5);
/// Samples in a second of processor time.
const FREQUENCY: i32 = 100;

/// The signal cannot serve two.
pub(super) static RUNNING: Mutex<()> = Mutex::const_new(());

/// Its shared objects are skipped: a stack cannot safely be walked from within the allocator or the loader.
const SKIPPED: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// Where samples spill to when the usual folder for such files is read-only, as in a container.
const SPILL: &str = "/dev/shm";

/// What upstream has and we have not, and why.
const ABSENT: [(&str, &str); 8] = [
    ("allocs", "no allocation is sampled"),
    ("block", "no wait is sampled"),
    ("goroutine", "there are no goroutines; see /proc/PID/task"),
    (
        "heap",
        "no allocation is sampled; kube-proxy's memory is process_resident_memory_bytes of /metrics",
    ),
    ("mutex", "no lock is sampled"),
    ("symbol", "profiles come with their symbols"),
    ("threadcreate", "no thread's start is sampled"),
    ("trace", "there is no execution trace"),
];

/// One place in a stack: a function, and the line of it that runs or calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) function: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// What was seen.
#[derive(Debug)]
pub(super) struct Samples {
    /// How often each stack was seen: its thread, and its places, the one that runs first.
    pub(super) stacks: BTreeMap<(String, Vec<Place>), u64>,
    pub(super) started: SystemTime,
    pub(super) took: Duration,
}

impl Samples {
    /// Processor time that one sample stands for.
    pub(super) fn period() -> Duration {
        Duration::from_secs(1) / FREQUENCY.unsigned_abs()
    }
}

/// The page that names the others.
pub(super) fn index() -> String {
    let absent = ABSENT
        .map(|(what, why)| format!("<li>{what}: {why}</li>\n"))
        .concat();
    format!(
        "<html><head><title>/debug/pprof/</title></head><body>\n/debug/pprof/<ul>\n\
         <li><a href=\"profile?seconds=30\">profile?seconds=N</a>: processor time, for <code>go tool pprof</code></li>\n\
         <li><a href=\"flamegraph?seconds=30\">flamegraph?seconds=N</a>: the same as a picture</li>\n</ul>\n\
         At most {} seconds, one at a time. Not there (501):<ul>\n{absent}</ul></body></html>\n",
        LONGEST.as_secs()
    )
}

/// A page below `/debug/pprof/`.
pub(super) async fn page(extract::Path(what): extract::Path<String>, uri: Uri) -> Response {
    let render: fn(&Samples) -> Response = match what.as_str() {
        "profile" => as_profile,
        "flamegraph" => as_picture,
        _ => return absent(&what),
    };
    let time = match seconds(uri.query()) {
        Ok(time) => time,
        Err(wrong) => return text(StatusCode::BAD_REQUEST, wrong),
    };
    match sample(time).await {
        // Printing takes processor time of its own, which is not the watches'.
        Ok(samples) => tokio::task::spawn_blocking(move || render(&samples))
            .await
            .unwrap_or_else(|_| {
                text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "the profile cannot be written\n",
                )
            }),
        Err(wrong) => text(StatusCode::INTERNAL_SERVER_ERROR, wrong),
    }
}

fn absent(what: &str) -> Response {
    match ABSENT.iter().find(|(name, _)| *name == what) {
        Some((name, why)) => text(
            StatusCode::NOT_IMPLEMENTED,
            format!("/debug/pprof/{name} is not there: {why}. See /debug/pprof/ for what is.\n"),
        ),
        None => not_found(),
    }
}

fn seconds(query: Option<&str>) -> Result<Duration, String> {
    let mut pairs = query.unwrap_or_default().split('&');
    let Some(given) = pairs.find_map(|pair| pair.strip_prefix("seconds=")) else {
        return Ok(USUAL);
    };
    match given.parse() {
        Ok(0) => Ok(USUAL),
        Ok(seconds) if seconds <= LONGEST.as_secs() => Ok(Duration::from_secs(seconds)),
        _ => Err(format!(
            "seconds={given}: give a whole number from 1 to {}\n",
            LONGEST.as_secs()
        )),
    }
}

/// Samples for a while. A client that goes ends it early.
async fn sample(time: Duration) -> Result<Samples, String> {
    let _only = RUNNING.try_lock().map_err(
        |_| "Could not enable CPU profiling: another profile is being taken; try again when it is done\n",
    )?;
    let started = SystemTime::now();
    if tempfile::tempfile().is_err() {
        // Set once and for all; a second setting is refused, and changes nothing.
        let _ = tempfile::env::override_temp_dir(Path::new(SPILL));
    }
    let sampling = pprof::ProfilerGuardBuilder::default()
        .frequency(FREQUENCY)
        .blocklist(&SKIPPED)
        .build()
        .map_err(|error| {
            format!("Could not enable CPU profiling: {error}; it needs a folder for temporary files\n")
        })?;
    tracing::info!(seconds = time.as_secs(), "a processor profile is taken");
    tokio::time::sleep(time).await;
    // Names of functions are looked up in the program's file, which takes a while.
    let read = move || {
        let report = sampling.report().build();
        report.map(|report| stacks(&report))
    };
    let stacks = tokio::task::spawn_blocking(read).await;
    match stacks {
        Ok(Ok(stacks)) => Ok(Samples {
            stacks,
            started,
            took: time,
        }),
        Ok(Err(error)) => Err(format!("the samples cannot be read: {error}\n")),
        Err(_) => Err("the samples cannot be read\n".to_owned()),
    }
}

fn stacks(report: &pprof::Report) -> BTreeMap<(String, Vec<Place>), u64> {
    let mut stacks = BTreeMap::new();
    for (frames, count) in &report.data {
        let places = frames.frames.iter().flatten().map(|symbol| Place {
            function: symbol.name(),
            file: symbol.filename().into_owned(),
            line: symbol.lineno(),
        });
        let stack = (frames.thread_name_or_id(), places.collect());
        *stacks.entry(stack).or_default() += u64::try_from(*count).unwrap_or(0);
    }
    stacks
}

fn as_profile(samples: &Samples) -> Response {
    let mut response = Response::new(Body::from(Bytes::from(pprof_format::encode(samples))));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(
        CONTENT_DISPOSITION,
        HeaderValue::from_static("attachment; filename=\"profile\""),
    );
    response
}

fn as_picture(samples: &Samples) -> Response {
    answer_of(StatusCode::OK, "image/svg+xml", flame::draw(samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_bounded() {
        for (query, expected) in [
            (None, Ok(30)),
            (Some("debug=1"), Ok(30)),
            (Some("seconds=0"), Ok(30)),
            (Some("a=b&seconds=5"), Ok(5)),
            (Some("seconds=300"), Ok(300)),
            (Some("seconds=301"), Err(())),
            (Some("seconds=-1"), Err(())),
            (Some("seconds=x"), Err(())),
        ] {
            let found = seconds(query).map(|time| time.as_secs()).map_err(drop);
            assert_eq!(found, expected, "{query:?}");
        }
    }
}
