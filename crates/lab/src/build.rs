//! Putting a plan into effect, and the process that undoes it when its owner crashes.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::LabError;
use crate::netns::{self, Namespace};
use crate::plan::{self, Need, Setup, Sysctl};
use crate::topology::Topology;

/// How long links may take to carry packets.
const LINKS_READY: Duration = Duration::from_secs(10);

/// Removes an owned lab when its owner has gone, however it went: the kernel closes the pipe. `$1` is the prefix,
/// `$2` the lab's folder.
const REAPER: &str = r#"while read -r _; do :; done
for f in /run/netns/"$1"-*; do
  [ -e "$f" ] || continue
  n=${f##*/}
  for p in $(ip netns pids "$n"); do kill -9 "$p"; done
  ip netns del "$n"
done
rm -rf "$2""#;

/// Makes the namespaces and what is in them, and tells what the kernel lacks, sorted.
pub fn namespaces(topology: &Topology) -> Result<Vec<String>, LabError> {
    let setups = plan::plan(topology);
    let places: Vec<Place> = setups.iter().map(|setup| Place::of(topology, setup)).collect();
    let names: Vec<String> = places
        .iter()
        .map(|place| place.namespace.name().to_owned())
        .collect();
    netns::create(&names)?;
    let notes = in_each(&places, |place| {
        place.namespace.run(|| write_sysctls(&place.setup.sysctls))?
    })?;
    in_each(&places, |place| place.namespace.batch(&place.setup.links))?;
    in_each(&places, |place| place.namespace.batch(&place.setup.addresses))?;
    in_each(&places, |place| {
        place.namespace.run(|| wait_for_links(place.setup))?
    })?;
    let mut notes: Vec<String> = notes.into_iter().flatten().collect();
    notes.sort();
    notes.dedup();
    Ok(notes)
}

/// A namespace and what is to be made in it.
struct Place<'a> {
    namespace: Namespace,
    setup: &'a Setup,
}

impl<'a> Place<'a> {
    fn of(topology: &Topology, setup: &'a Setup) -> Self {
        Self {
            namespace: Namespace::named(topology.namespace_name(&setup.place)),
            setup,
        }
    }
}

/// The same work in every namespace, all at once.
fn in_each<T: Send>(
    places: &[Place<'_>],
    work: impl Fn(&Place<'_>) -> Result<T, LabError> + Sync,
) -> Result<Vec<T>, LabError> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = places
            .iter()
            .map(|place| scope.spawn(move || work(place)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        // Join all before the first error is told.
        threads
            .into_iter()
            .map(join)
            .collect::<Vec<_>>()
            .into_iter()
            .collect()
    })
}

/// Writes settings in the calling thread's namespace and tells which of the optional ones are missing.
fn write_sysctls(sysctls: &[Sysctl]) -> Result<Vec<String>, LabError> {
    let mut notes = vec![];
    for Sysctl { path, value, need } in sysctls {
        match (fs::write(Path::new("/proc/sys").join(path), value), need) {
            (Ok(()), _) => {}
            (Err(error), Need::Noted) => notes.push(format!("{path}={value} could not be set: {error}")),
            (Err(source), Need::Must) => return Err(LabError::system(format!("set {path}={value}"), source)),
        }
    }
    Ok(notes)
}

/// Waits in the calling thread's namespace until links carry packets.
///
/// The kernel finds out that a veth has a carrier in a work queue, up to a second late on a busy machine; until then
/// a bridge drops what comes from it and IPv6 loses its first neighbour solicitation, which is repeated after a second.
/// A link gets its link-local address at that moment. (`/proc/net` would be that of the process, not of the thread.)
fn wait_for_links(setup: &Setup) -> Result<(), LabError> {
    let deadline = Instant::now() + LINKS_READY;
    // A kernel without IPv6 has no such file, and nothing to wait for that could be seen.
    while let Ok(text) = fs::read_to_string("/proc/thread-self/net/if_inet6") {
        let ready = |link: &str| {
            text.lines()
                .any(|line| line.starts_with("fe80") && line.ends_with(&format!(" {link}")))
        };
        let Some(late) = setup.links_up().find(|link| !ready(link)) else {
            break;
        };
        if Instant::now() > deadline {
            let attempt = format!("see a carrier on {late} at {}", setup.place);
            return Err(LabError::system(
                attempt,
                io::Error::from(io::ErrorKind::TimedOut),
            ));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// In a process group of its own: what a terminal sends its owner must not end it before its owner.
pub fn start_reaper(prefix: &str, folder: &Path) -> Result<Child, LabError> {
    let attempt = |source: io::Error| LabError::system("start the lab's reaper", source);
    let child = Command::new("sh")
        .args(["-c", REAPER, netns::REAPER_NAME, prefix])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(attempt)?;
    fs::write(folder.join(netns::REAPER_PID), child.id().to_string()).map_err(attempt)?;
    Ok(child)
}
