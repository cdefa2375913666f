//! The daemon as a process on a node of a lab.

use crate::manifests::Manifests;
use crate::rules::{differences_in_words, saved_by};
use crate::within_or;
use kernel::Backend;
use lab::{Lab, LabProcess, Signal};
use model::{Family, PerFamily};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a sync may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The binary: `KUBE_PROXY_BIN`, or the debug build of this workspace, which is built if it is missing.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("KUBE_PROXY_BIN") {
            return given.into();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let file = target.join("debug/kube-proxy");
        if !file.exists() {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            let status = cargo
                .args(["build", "-p", "kube-proxy"])
                .current_dir(&root)
                .status();
            assert!(
                status.is_ok_and(|status| status.success()),
                "kube-proxy cannot be built"
            );
        }
        file
    })
}

/// A configuration that reacts at once and repairs within a second, with these parts in place of the default's.
pub fn configuration(parts: &Value) -> Value {
    let mut whole = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clusterCIDR": "10.244.0.0/16",
        "iptables": {"minSyncPeriod": "50ms", "syncPeriod": "1s"},
    });
    for (field, value) in parts.as_object().expect("parts are an object") {
        whole[field] = value.clone();
    }
    whole
}

/// How a daemon is started.
pub struct Setup<'a> {
    /// The lab.
    pub lab: &'a Lab,
    /// The node it serves.
    pub node: &'a str,
    /// Words that say where its objects come from.
    pub source: [String; 2],
    /// Its configuration.
    pub config: Value,
    /// Added to its environment.
    pub environment: Vec<(&'a str, String)>,
    /// Words before the binary: a command that starts it.
    pub before: Vec<String>,
    /// Words after all others.
    pub flags: Vec<String>,
}

impl<'a> Setup<'a> {
    /// On this node, with the configuration of [`configuration`].
    pub fn new(lab: &'a Lab, node: &'a str, manifests: &'a Manifests) -> Setup<'a> {
        Setup::of_folder(lab, node, manifests.path())
    }

    /// On this node, with the objects of a file or folder.
    pub fn of_folder(lab: &'a Lab, node: &'a str, manifests: &Path) -> Setup<'a> {
        Setup::with(lab, node, ["--manifests", &manifests.to_string_lossy()])
    }

    /// On this node, with objects from the API server at `url`.
    pub fn of_server(lab: &'a Lab, node: &'a str, url: &str) -> Setup<'a> {
        Setup::with(lab, node, ["--master", url])
    }

    fn with(lab: &'a Lab, node: &'a str, source: [&str; 2]) -> Setup<'a> {
        Setup {
            lab,
            node,
            source: source.map(str::to_owned),
            config: configuration(&json!({})),
            environment: vec![],
            before: vec![],
            flags: vec![],
        }
    }

    /// Starts it.
    pub fn start(&self) -> Daemon {
        self.start_as(self.node)
    }

    /// Starts it, and tells it that the node is called this.
    pub fn start_as(&self, called: &str) -> Daemon {
        let config = tempfile::tempdir().expect("a scratch folder can be made");
        let file = config.path().join("config.json");
        fs::write(&file, self.config.to_string()).expect("the scratch folder can be written to");
        let mut argv = vec!["env".to_owned(), "NO_COLOR=1".to_owned()];
        argv.extend(
            self.environment
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        let path = |path: &Path| path.to_string_lossy().into_owned();
        argv.extend(self.before.iter().cloned());
        argv.push(path(binary()));
        argv.extend(self.source.iter().cloned());
        argv.extend([
            "--config".into(),
            path(&file),
            "--hostname-override".into(),
            called.into(),
        ]);
        argv.extend(self.flags.iter().cloned());
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let name = format!("proxy-{}-{}", self.node, next_number());
        let process = self.lab.spawn(self.node, &argv, &name);
        Daemon {
            process: process.unwrap_or_else(|error| panic!("{}", error.chain())),
            _config: config,
        }
    }
}

fn next_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A running daemon, killed when dropped.
pub struct Daemon {
    process: LabProcess,
    _config: tempfile::TempDir,
}

impl Daemon {
    /// What it has printed.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until the log has this ([`crate::told`]).
    #[track_caller]
    pub fn says(&self, text: &str) {
        crate::told(PATIENCE, || self.log(), text);
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills it without warning.
    pub fn kill(mut self) {
        self.process
            .kill()
            .unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.process
            .signal(signal)
            .unwrap_or_else(|error| panic!("{}", error.chain()));
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        self.process
            .wait(patience)
            .unwrap_or_else(|error| panic!("{}", error.chain()))
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.process.ended().is_ok_and(|ended| ended.is_none())
    }
}

/// What the rules of a node should be, by an independent witness.
pub struct Want {
    /// As `iptables-save` prints them.
    pub saved: PerFamily<String>,
    /// Where they should be.
    pub backend: Backend,
}

impl Want {
    /// Waits until the node has them; how long it took.
    ///
    /// # Panics
    /// When it has not in time, with all differences and the daemon's log.
    pub fn reached(&self, lab: &Lab, node: &str, families: &[Family], log: &dyn Fn() -> String) -> Duration {
        let look = || {
            for &family in families {
                let have = saved_by(lab, node, family, self.backend);
                let differences = differences_in_words(self.saved.get(family), &have, family);
                if !differences.is_empty() {
                    return Err(format!("{family} on {node}:\n{differences}"));
                }
            }
            Ok(())
        };
        within_or(PATIENCE, look).unwrap_or_else(|wrong| panic!("{wrong}\nlog of the daemon:\n{}", log()))
    }
}
