//! New connections as fast as one client can make them, while the number of a service's endpoints changes.

use crate::case::{IN_SYNC, PATIENCE, prepare_namespace, serve};
use crate::daemon::Daemon;
use crate::generations::Generations;
use crate::nftables::special::Special;
use crate::packets::Client;
use crate::{Backend, Mode, Options};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most endpoints that the service has.
const MOST: usize = 40;

/// What the client saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FloodResult {
    /// Services beside the one that changes.
    pub services: usize,
    /// Changes of the count, each in the kernel before the next.
    pub changes: usize,
    /// New connections meanwhile.
    pub connections: usize,
    /// Connections that no endpoint accepted.
    pub lost: usize,
    /// How long it took.
    pub seconds: f64,
}

/// Changes the count `--churn` times.
pub fn run(options: &Options) -> Result<FloodResult> {
    let services = *options.services.first().context("a case needs a size")?;
    prepare_namespace()?;
    let client = Client::new()?;
    let server = serve(services, options.endpoints)?;
    let generations = Generations::listen()?;
    let daemon = Daemon::start(&options.binary, server.address, Backend::NfTables, Mode::Nftables)?;
    daemon.log_line(IN_SYNC, 0, PATIENCE)?;
    let mut special = Special::new(0, 1, 0);
    for (change, object) in special.all() {
        server.push(change, &object);
    }
    let to = SocketAddr::new(special.ip().into(), 80);
    client.first_packet(to, None)?;
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    let (connections, lost) = std::thread::scope(|scope| -> Result<(usize, usize)> {
        let flood = scope.spawn(|| until_over(&client, to, &is_over));
        for round in 0..options.churn {
            // 1, 14, 27, 40, 13, 26, ...: every count from 1 to 40 comes, across every power of two.
            let count = 1 + (round + 1) * 13 % MOST;
            generations.forget();
            server.push("MODIFIED", &special.resize(count));
            let seen = generations.first(PATIENCE);
            if seen.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            seen?;
        }
        // What waits for packets on their way goes after two seconds.
        std::thread::sleep(Duration::from_secs(3));
        is_over.store(true, Ordering::Relaxed);
        flood.join().expect("the client does not panic")
    })?;
    Ok(FloodResult {
        services,
        changes: options.churn,
        connections,
        lost,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn until_over(client: &Client, to: SocketAddr, is_over: &AtomicBool) -> Result<(usize, usize)> {
    let (mut connections, mut lost) = (0, 0);
    while !is_over.load(Ordering::Relaxed) {
        connections += 1;
        lost += usize::from(!client.is_answered(to)?);
    }
    Ok((connections, lost))
}
