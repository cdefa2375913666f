//! The memory on disk, with a source that says what the test wants and a real folder.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use cluster::state::{Identity, Keeper, KernelRules, StateOptions, StateTiming};
use cluster::{Health, Kind, Remembered, SourceEvent};
use model::object::{Object, decode};
use model::snapshot::{Change, Snapshot};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn quick() -> StateTiming {
    StateTiming {
        after_failure: Duration::from_millis(10),
        silent: Duration::from_millis(500),
        slow: Duration::from_secs(2),
        look_again: (Duration::from_millis(20), Duration::from_millis(20)),
        settle: Duration::ZERO,
        interval: Duration::from_millis(5),
        retry: Duration::from_millis(5),
    }
}

/// A process with a memory: what its server says, and what comes out.
struct Process {
    server: Sender<SourceEvent>,
    out: Receiver<SourceEvent>,
}

impl Process {
    fn start(folder: &Path, rules: impl Fn() -> KernelRules + Send + Sync + 'static) -> Process {
        Process::timed(folder, quick(), rules)
    }

    fn timed(
        folder: &Path,
        timing: StateTiming,
        rules: impl Fn() -> KernelRules + Send + Sync + 'static,
    ) -> Process {
        let options = StateOptions {
            folder: folder.to_owned(),
            max_age: Duration::from_hours(24),
            node_name: "node-a".into(),
            identity: Identity::new("https://192.0.2.1:6443", &[b"ca".to_vec()]),
            timing,
        };
        let (server, said) = channel(16);
        let (listened, out) = channel(16);
        tokio::spawn(Keeper::new(options, rules).run(said, listened));
        Process { server, out }
    }

    fn dark(folder: &Path) -> Process {
        Process::start(folder, || KernelRules::Absent)
    }

    async fn says(&self, event: SourceEvent) {
        self.server.send(event).await.unwrap();
    }

    async fn refused(&self) {
        let health = Health::Failing {
            error: "connection refused".to_owned(),
            failures: 1,
            since: Duration::ZERO,
        };
        self.says(SourceEvent::Health(Kind::Service, health)).await;
    }

    async fn lists(&self, objects: &[Object]) {
        // What nobody waits for comes first, so that it is there when the rest is.
        for kind in [Kind::ServiceCidr, Kind::Service, Kind::Slice, Kind::Node] {
            for object in objects.iter().filter(|object| object.kind() == kind) {
                self.says(SourceEvent::Change(Change::Apply(object.clone())))
                    .await;
            }
            self.says(SourceEvent::Synced(kind)).await;
        }
    }

    /// The next thing told of the memory; everything until then goes into `snapshot`.
    async fn told(&mut self, snapshot: &mut Snapshot) -> Remembered {
        loop {
            let event = timeout(PATIENCE, self.out.recv())
                .await
                .expect("something is told");
            let changes = match event.unwrap() {
                SourceEvent::Change(change) => vec![change],
                SourceEvent::Together(changes) => changes,
                SourceEvent::Remembered(what) => return what,
                _ => vec![],
            };
            for change in changes {
                snapshot.apply(change);
            }
        }
    }
}

fn objects(count: usize) -> Vec<Object> {
    let mut documents = vec![
        json!({"kind": "Node", "metadata": {"name": "node-a"}, "status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.7"}]}}),
        json!({"kind": "ServiceCIDR", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.96.0.0/12"]}}),
    ];
    for index in 0..count {
        let (name, ip) = (
            format!("web-{index}"),
            format!("10.96.{}.{}", index / 250, index % 250 + 1),
        );
        documents.push(json!({"kind": "Service", "metadata": {"namespace": "default", "name": name}, "spec": {"clusterIP": ip, "ports": [{"port": 80}]}}));
        let labels = json!({"kubernetes.io/service-name": name});
        documents.push(json!({
            "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"namespace": "default", "name": name, "labels": labels}, "addressType": "IPv4",
            "ports": [{"port": 8080}], "endpoints": [{"addresses": ["10.244.1.3"], "nodeName": "node-a"}],
        }));
    }
    documents
        .into_iter()
        .flat_map(|document| decode(document).objects)
        .collect()
}

fn snapshot_of(objects: &[Object]) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for object in objects {
        snapshot.apply(Change::Apply(object.clone()));
    }
    snapshot
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn file(&self) -> PathBuf {
        self.path().join("objects")
    }

    /// Lets one process live until it has written.
    async fn filled(&self, objects: &[Object]) {
        let mut process = Process::dark(&self.path());
        process.lists(objects).await;
        let told = process.told(&mut Snapshot::new()).await;
        assert!(matches!(told, Remembered::Written(_)), "{told:?}");
    }
}

/// What a process comes to whose server does not answer, on a kernel without rules.
async fn remembers(folder: &Folder) -> Snapshot {
    let mut process = Process::dark(&folder.path());
    process.refused().await;
    let told = process.told(&mut Snapshot::new()).await;
    let Remembered::InUse { changes, kinds, .. } = told else {
        panic!("{told:?}");
    };
    assert_eq!(kinds.len(), 4);
    let mut snapshot = Snapshot::new();
    for change in changes {
        snapshot.apply(change);
    }
    snapshot
}

#[tokio::test]
async fn what_one_process_was_told_serves_the_next_until_the_server_answers() {
    let folder = Folder::new();
    folder.filled(&objects(3)).await;
    assert_eq!(remembers(&folder).await, snapshot_of(&objects(3)));

    let mut process = Process::dark(&folder.path());
    process.refused().await;
    let mut snapshot = Snapshot::new();
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::InUse { objects: 8, .. }), "{told:?}");
    process.lists(&objects(5)).await;
    assert_eq!(process.told(&mut snapshot).await, Remembered::Over);
    assert_eq!(snapshot, snapshot_of(&objects(5)));
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::Written(_)), "{told:?}");
    assert_eq!(remembers(&folder).await, snapshot_of(&objects(5)));
}

#[tokio::test]
async fn a_server_that_says_nothing_at_all_is_not_waited_for_for_ever() {
    let folder = Folder::new();
    folder.filled(&objects(1)).await;
    let mut process = Process::dark(&folder.path());
    let told = process.told(&mut Snapshot::new()).await;
    assert!(matches!(told, Remembered::InUse { .. }), "{told:?}");
}

#[tokio::test]
async fn a_server_that_answers_is_believed_and_the_file_is_not_even_looked_at() {
    let folder = Folder::new();
    folder.filled(&objects(1)).await;
    let looked = Arc::new(AtomicBool::new(false));
    let timing = StateTiming {
        silent: PATIENCE,
        slow: PATIENCE,
        after_failure: PATIENCE,
        ..quick()
    };
    let mut process = Process::timed(&folder.path(), timing, {
        let looked = looked.clone();
        move || {
            looked.store(true, Ordering::Relaxed);
            KernelRules::Absent
        }
    });
    process.refused().await;
    process.lists(&objects(2)).await;
    let mut snapshot = Snapshot::new();
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::Written(_)), "{told:?}");
    assert_eq!(snapshot, snapshot_of(&objects(2)));
    assert!(!looked.load(Ordering::Relaxed));
}

#[tokio::test]
async fn rules_that_are_there_stay_and_the_file_counts_once_they_are_gone() {
    let folder = Folder::new();
    folder.filled(&objects(2)).await;
    let dark = Arc::new(AtomicBool::new(false));
    let mut process = Process::start(&folder.path(), {
        let dark = dark.clone();
        move || {
            if dark.load(Ordering::Relaxed) {
                KernelRules::Absent
            } else {
                KernelRules::Present
            }
        }
    });
    process.refused().await;
    let mut snapshot = Snapshot::new();
    assert_eq!(process.told(&mut snapshot).await, Remembered::RulesAreThere);
    assert_eq!(snapshot, Snapshot::new());
    dark.store(true, Ordering::Relaxed);
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::InUse { .. }), "{told:?}");
}

#[tokio::test]
async fn rules_made_of_the_file_in_this_boot_go_on_being_made_of_it_and_not_of_a_later_one() {
    let folder = Folder::new();
    folder.filled(&objects(2)).await;
    remembers(&folder).await;
    // It was killed, perhaps half way.
    let mut process = Process::start(&folder.path(), || KernelRules::Present);
    process.refused().await;
    let mut snapshot = Snapshot::new();
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::InUse { .. }), "{told:?}");
    // The server answered, and the file is another one: rules may be newer than it.
    folder.filled(&objects(3)).await;
    let mut process = Process::start(&folder.path(), || KernelRules::Present);
    process.refused().await;
    assert_eq!(process.told(&mut snapshot).await, Remembered::RulesAreThere);
}

#[tokio::test]
async fn a_file_of_no_use_is_told_of_once_and_a_good_one_is_found_later() {
    let folder = Folder::new();
    folder.filled(&objects(2)).await;
    let good = fs::read(folder.file()).unwrap();
    fs::write(folder.file(), &good[..good.len() / 2]).unwrap();
    let mut process = Process::dark(&folder.path());
    process.refused().await;
    let mut snapshot = Snapshot::new();
    let told = process.told(&mut snapshot).await;
    let Remembered::NotUsed(line) = &told else {
        panic!("{told:?}");
    };
    let file = folder.file().display().to_string();
    assert!(line.contains(&file) && line.contains("checksum"), "{line}");
    // Looked at many times, and told once.
    tokio::time::sleep(Duration::from_millis(200)).await;
    fs::write(folder.file(), good).unwrap();
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::InUse { .. }), "{told:?}");
}

#[tokio::test]
async fn without_a_file_the_server_is_waited_for() {
    let folder = Folder::new();
    let mut process = Process::dark(&folder.path());
    process.refused().await;
    let mut snapshot = Snapshot::new();
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::Nothing(_)), "{told:?}");
    process.lists(&objects(1)).await;
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::Written(_)), "{told:?}");
    assert_eq!(snapshot, snapshot_of(&objects(1)));
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_told_of_once_and_holds_up_nothing() {
    let folder = Folder::new();
    // A file stands where the folder should be.
    fs::write(folder.path(), "").unwrap();
    let mut process = Process::dark(&folder.path());
    process.lists(&objects(1)).await;
    let mut snapshot = Snapshot::new();
    let told = process.told(&mut snapshot).await;
    assert!(matches!(told, Remembered::NotWritten(_)), "{told:?}");
    // Tried again many times.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let two = objects(2).pop().unwrap();
    process.says(SourceEvent::Change(Change::Apply(two))).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    fs::remove_file(folder.path()).unwrap();
    let told = process.told(&mut snapshot).await;
    assert!(
        matches!(told, Remembered::Written(_)),
        "told once, and again when it works: {told:?}"
    );
    assert_eq!(snapshot.slices().count(), 2, "changes came through meanwhile");
}

/// Says to a copy of this test that it is to write until it is killed.
const WRITER: &str = "KPRS_TEST_STATE_WRITER";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_killed_at_any_moment_leaves_a_whole_file() {
    if let Some(folder) = std::env::var_os(WRITER) {
        return write_until_killed(Path::new(&folder)).await;
    }
    let folder = Folder::new();
    let mut halves = 0;
    for round in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_writer_killed_at_any_moment_leaves_a_whole_file"])
            .env(WRITER, folder.path())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let before = fs::read(folder.file()).ok();
        let begun = std::time::Instant::now();
        while fs::read(folder.file()).ok() == before {
            assert!(begun.elapsed() < PATIENCE, "nothing is written");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(round * 3)).await;
        child.kill().unwrap();
        child.wait().unwrap();
        halves += usize::from(folder.path().join("objects.next").exists());
        let snapshot = remembers(&folder).await;
        assert!(
            snapshot.services().count() >= 500,
            "{}",
            snapshot.services().count()
        );
    }
    println!("{halves} of 12 kills came in the middle of a write");
}

async fn write_until_killed(folder: &Path) {
    let process = Process::dark(folder);
    let Process { server, mut out } = process;
    tokio::spawn(async move { while out.recv().await.is_some() {} });
    let all = objects(500);
    let process = Process {
        server,
        out: channel(1).1,
    };
    process.lists(&all).await;
    for round in 0.. {
        for object in &all {
            let Object::Slice(slice) = object else { continue };
            let mut slice = slice.clone();
            slice.ports[0].port = 1000 + round % 1000;
            let change = Change::Apply(Object::Slice(slice));
            process.says(SourceEvent::Change(change)).await;
        }
    }
}
