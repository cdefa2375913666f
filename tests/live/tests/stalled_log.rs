//! Nobody reads what the daemon logs: rules are written all the same, and the gap is told to whoever reads again.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{PATIENCE, Setup};
use live::manifests::{Manifests, service, slice};
use live::traffic::{rules_say, web_answers};
use live::within;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::sync::{Arc, Mutex};

/// How many Services come or go each time, and how often they do: their lines are more than may wait, which is 4 MiB.
const SERVICES: usize = 3_000;
const CHANGES: usize = 10;

/// Services without endpoints, with names that make long lines.
fn many() -> Vec<Value> {
    let named = |index: usize| {
        let name = format!("{index:a>63}");
        service(
            &name,
            &format!("10.2.{}.{}", index / 250, 1 + index % 250),
            80,
            8080,
        )
    };
    (0..SERVICES).map(named).collect()
}

/// Reads to the end of the process that writes, and further.
fn read_on(mut pipe: File) -> Arc<Mutex<Vec<u8>>> {
    let read: Arc<Mutex<Vec<u8>>> = Arc::default();
    let text = read.clone();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok(count) = pipe.read(&mut buffer) {
            text.lock().unwrap().extend_from_slice(&buffer[..count]);
        }
    });
    read
}

#[test]
fn nobody_reads_the_log_and_rules_follow_all_the_same() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("stalled"), Manifests::new());
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("log");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    // Opened for both, so that whoever opens it to write does not wait for a reader.
    let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    rustix::pipe::fcntl_setpipe_size(&reader, 4_096).unwrap();

    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    let stderr_to_pipe = format!("exec \"$@\" 2>{}", pipe.display());
    setup.before = ["sh", "-c", &stderr_to_pipe, "sh"].map(str::to_owned).to_vec();
    setup.flags = vec!["-v=9".to_owned()];
    let daemon = setup.start();
    web_answers(&lab, &daemon);

    for change in 0..CHANGES {
        let name = format!("change-{change}");
        let mut objects = vec![
            service(&name, &format!("10.1.50.{}", change + 1), 80, 8080),
            slice(&name, 8080, &[("10.244.1.3", NODE)]),
        ];
        objects.extend(if change % 2 == 0 { many() } else { vec![] });
        manifests.put("changing.json", &objects);
        rules_say(&lab, &format!("default/{name}:p cluster IP"), &daemon);
    }

    let read = read_on(reader);
    let text = || String::from_utf8_lossy(&read.lock().unwrap()).into_owned();
    let told = within(PATIENCE, || {
        text()
            .lines()
            .any(|line| line.contains("Lines were dropped here"))
    });
    let text = text();
    assert!(
        told.is_some(),
        "no gap is told in {} bytes: {text:.2000}",
        text.len()
    );
    // Nothing of what came before is out of order or in pieces.
    let is_whole = |line: &str| line.starts_with(['I', 'W', 'E']) && line.contains("] ");
    assert!(text.lines().all(is_whole), "{text:.2000}");
}
