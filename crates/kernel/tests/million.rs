//! A dump of a million entries, generated, goes through the real decoder, the real decision and the real batches. This
//! is the only test of its program, since it looks at the program's memory.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use conntrack::{Flow, decide};
use kernel::conntrack::{Fate, Held, Sieve, SweepOptions, SweepReport};
use model::Protocol;
use netlink::dump::{Dump, DumpError, Progress};
use std::time::{Duration, Instant};
use support::entries::{busy, done, dumped, expectation, resident};

const ENTRIES: u32 = 1_000_000;
/// As the kernel fills buffers of a dump.
const BUFFER: usize = 32 * 1024;
const SEQUENCE: u32 = 7;

#[test]
fn a_million_entries_are_swept_in_the_memory_of_a_batch() {
    let expectation = expectation();
    let options = SweepOptions::default();
    let mut report = SweepReport::default();
    let mut verdict = |flow: &Flow| decide(&expectation, flow);
    let mut sieve = Sieve::new(Protocol::Udp, options.batch, &mut verdict, &mut report);
    let mut dump = Dump::new(SEQUENCE);
    let mut buffer = Vec::with_capacity(BUFFER + 1024);
    let (before, _) = resident();
    let (mut most, mut batches, mut spent) = (0, 0, Duration::ZERO);
    let mut next = 0;
    loop {
        buffer.clear();
        while next < ENTRIES && buffer.len() < BUFFER {
            dumped(&mut buffer, SEQUENCE, busy(next), next);
            next += 1;
        }
        if next == ENTRIES {
            done(&mut buffer, SEQUENCE);
        }
        let began = Instant::now();
        let progress = dump.read(&buffer, |message| {
            if sieve.look_at(message)? == Held::Full {
                batches += 1;
                let stale = sieve.take();
                most = most.max(stale.capacity());
                for (_, why) in &stale {
                    sieve.settle(*why, Fate::Deleted);
                }
                sieve.give_back(stale);
            }
            Ok::<(), DumpError>(())
        });
        spent += began.elapsed();
        if progress.expect("the dump is well-formed") == Progress::Complete {
            break;
        }
    }
    assert!(sieve.take().is_empty(), "125,000 stale entries are whole batches");
    // One eighth is TCP; one eighth is stale.
    assert_eq!(report.seen, 875_000);
    assert_eq!(report.deleted(), 125_000);
    assert_eq!(batches, 125);
    assert!(most <= 2 * options.batch, "room for {most} entries");
    let (after, _) = resident();
    let grown = after.saturating_sub(before);
    println!("1,000,000 entries: {spent:?} of reading and deciding; memory grew by {grown} KiB");
    // Held whole, the entries would take 200 MiB.
    assert!(grown < 16 * 1024, "memory grew by {grown} KiB");
}
