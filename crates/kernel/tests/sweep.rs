//! Sweeping the kernel's own table, in a network namespace.
//!
//! `KPRS_SWEEP_ENTRIES` says how many entries the large tests make: 200,000 unless set, which is about what a busy node of a
//! large cluster has, and less where the kernel does not allow so many.

#![allow(clippy::unwrap_used, reason = "what cannot be had fails the test")]

mod support;

use conntrack::{Flow, Stale, Verdict, decide};
use kernel::conntrack::{Reach, SweepOptions, SweepReport, connections, fill, sweep};
use kernel::{Backend, RuleKernel};
use model::Family;
use netlink::conntrack::Filter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::entries::{Table, Zoned, busy, expectation, resident};
use support::{Ends, in_namespace, live};

fn entries() -> u32 {
    let number = std::env::var("KPRS_SWEEP_ENTRIES").ok();
    let wanted = number.map_or(200_000, |number| number.parse().expect("a number"));
    match fill().expect("the kernel tells").limit {
        0 => wanted,
        limit => wanted.min(u32::try_from(limit / 8 * 7).unwrap_or(u32::MAX)),
    }
}

fn count(family: Family) -> usize {
    connections(family, Filter::default(), |_| true)
        .expect("a dump")
        .len()
}

fn sweep_all(family: Family, reach: Reach) -> SweepReport {
    let options = SweepOptions {
        reach,
        ..SweepOptions::default()
    };
    sweep(family, &options, &mut |_| Verdict::Delete(Stale::EndpointGone)).expect("a sweep")
}

fn flow(protocol: &str, client: &str, destination: &str) -> Flow {
    let protocol = model::Protocol::ALL
        .into_iter()
        .find(|each| each.as_lower() == protocol)
        .unwrap();
    let (client, destination) = (client.parse().unwrap(), destination.parse().unwrap());
    Flow {
        protocol,
        client,
        destination,
        answerer: destination,
    }
}

/// Fills the table in slices, so that the test itself needs little memory.
fn make_busy(table: &Table, entries: u32) {
    for first in (0..entries).step_by(1000) {
        let last = (first + 1000).min(entries);
        let slice: Vec<Zoned> = (first..last).map(|n| (busy(n), 0)).collect();
        table.make(&slice);
    }
}

#[test]
fn a_sweep_deletes_all_stale_entries_and_no_others() {
    in_namespace("a_sweep_deletes_all_stale_entries_and_no_others", || {
        let entries = entries();
        make_busy(&Table::open(), entries);
        let whole = usize::try_from(entries).unwrap();
        assert_eq!(fill().unwrap().entries, u64::from(entries));
        let expectation = expectation();
        let (before, _) = resident();
        let began = Instant::now();
        let report = sweep(Family::V4, &SweepOptions::default(), &mut |flow| {
            decide(&expectation, flow)
        });
        let took = began.elapsed();
        let (after, most) = resident();
        let report = report.expect("a sweep");
        println!(
            "{entries} entries: swept in {took:?}, {} deleted; memory {before} KiB before, {after} after, {most} at most",
            report.deleted()
        );
        assert!(report.is_complete(), "{report:?}");
        assert_eq!(report.deleted, [(Stale::EndpointGone, whole / 8)].into());
        assert_eq!(report.gone_already, 0);
        assert!(report.seen >= whole * 7 / 8, "{report:?}");
        assert!(most - before < 16 * 1024, "memory grew by {} KiB", most - before);
        let left = connections(Family::V4, Filter::default(), |_| true).unwrap();
        assert_eq!(left.len(), whole * 7 / 8);
        let began = Instant::now();
        let again = sweep(Family::V4, &SweepOptions::default(), &mut |flow| {
            decide(&expectation, flow)
        })
        .unwrap();
        println!("again, with nothing to delete: {:?}", began.elapsed());
        assert_eq!((again.deleted(), again.is_complete()), (0, true));
        assert_eq!(count(Family::V4), whole * 7 / 8);
    });
}

#[test]
fn a_sweep_reads_one_family_and_the_protocols_asked_for() {
    in_namespace("a_sweep_reads_one_family_and_the_protocols_asked_for", || {
        let table = Table::open();
        let udp = flow("udp", "10.0.0.1:1", "10.96.0.1:53");
        let tcp = flow("tcp", "10.0.0.1:1", "10.96.0.1:53");
        let six = flow("udp", "[fd00::1]:1", "[fd00:96::1]:53");
        table.make(&[(udp, 0), (tcp, 0), (six, 0)]);
        let report = sweep_all(Family::V4, Reach::Udp);
        assert_eq!((report.seen, report.deleted()), (1, 1));
        assert_eq!((count(Family::V4), count(Family::V6)), (1, 1));
        let report = sweep_all(Family::V4, Reach::UdpAndTcp);
        assert_eq!((report.seen, report.deleted()), (1, 1));
        assert_eq!((count(Family::V4), count(Family::V6)), (0, 1));
        assert_eq!(sweep_all(Family::V6, Reach::Udp).deleted(), 1);
        assert_eq!(count(Family::V6), 0);
    });
}

#[test]
fn an_entry_of_another_zone_is_deleted_there_and_its_twin_stays() {
    in_namespace(
        "an_entry_of_another_zone_is_deleted_there_and_its_twin_stays",
        || {
            let twin = flow("udp", "10.0.0.1:1", "10.96.0.1:53");
            let stale = Flow {
                answerer: "10.9.9.9:53".parse().unwrap(),
                ..twin
            };
            Table::open().make(&[(twin, 0), (stale, 5)]);
            let mut verdict = |flow: &Flow| {
                if flow.is_translated() {
                    Verdict::Delete(Stale::EndpointGone)
                } else {
                    Verdict::Keep(conntrack::Keep::NoFrontend)
                }
            };
            let report = sweep(Family::V4, &SweepOptions::default(), &mut verdict).unwrap();
            assert_eq!((report.seen, report.deleted()), (2, 1));
            let left = connections(Family::V4, Filter::default(), |_| true).unwrap();
            assert_eq!(left.iter().map(|entry| entry.zone).collect::<Vec<_>>(), [None]);
        },
    );
}

#[test]
fn what_goes_by_itself_is_no_failure_and_a_younger_flow_with_its_tuple_is_safe() {
    let name = "what_goes_by_itself_is_no_failure_and_a_younger_flow_with_its_tuple_is_safe";
    in_namespace(name, || {
        let table = Table::open();
        let expired = flow("udp", "10.0.0.1:1", "10.96.0.1:53");
        let replaced = flow("udp", "10.0.0.1:2", "10.96.0.1:53");
        table.make(&[(expired, 0), (replaced, 0)]);
        let mut verdict = |flow: &Flow| {
            if *flow != expired && *flow != replaced {
                return Verdict::Keep(conntrack::Keep::NoFrontend);
            }
            table.remove(&[(*flow, 0)]);
            if *flow == replaced {
                let younger = Flow {
                    answerer: "10.9.9.9:53".parse().unwrap(),
                    ..replaced
                };
                // The kernel derives ids from addresses of memory: let others take the old one's place first.
                let others = (1000..1200)
                    .map(|port| (self::flow("udp", &format!("10.0.0.2:{port}"), "10.96.0.1:53"), 9));
                table.make(&others.collect::<Vec<_>>());
                table.make(&[(younger, 0)]);
            }
            Verdict::Delete(Stale::EndpointGone)
        };
        let report = sweep(
            Family::V4,
            &SweepOptions {
                batch: 2,
                ..SweepOptions::default()
            },
            &mut verdict,
        )
        .unwrap();
        assert_eq!((report.deleted(), report.gone_already), (0, 2), "{report:?}");
        assert!(report.is_complete());
        let left = connections(Family::V4, Filter::default(), |_| true).unwrap();
        assert!(
            left.iter()
                .any(|entry| entry.reply.source.to_string() == "10.9.9.9")
        );
    });
}

#[test]
fn an_empty_table_is_swept() {
    in_namespace("an_empty_table_is_swept", || {
        assert_eq!(sweep_all(Family::V4, Reach::UdpAndTcp), SweepReport::default());
    });
}

/// Rules are written while the table is swept without a break. Times are printed and not judged.
#[test]
fn rules_are_written_while_the_table_is_swept() {
    in_namespace("rules_are_written_while_the_table_is_swept", || {
        make_busy(&Table::open(), entries());
        let expectation = expectation();
        let mut kernel = live(Backend::NfTables);
        let alone = write_rules(&mut kernel);
        let spinning = beside_a_busy_thread(&mut kernel);
        let over = AtomicBool::new(false);
        let (beside, sweeps) = std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| {
                let mut sweeps = 0;
                while !over.load(Ordering::Relaxed) {
                    let report = sweep(Family::V4, &SweepOptions::default(), &mut |flow| {
                        decide(&expectation, flow)
                    });
                    assert!(report.expect("a sweep").seen > 0);
                    sweeps += 1;
                }
                sweeps
            });
            let ends = Ends(&over);
            let beside = write_rules(&mut kernel);
            drop(ends);
            (beside, sweeping.join().expect("the sweeps work"))
        });
        println!(
            "20 commits: {:?} median and {:?} at most alone, {:?} and {:?} beside a thread that spins, \
             {:?} and {:?} beside {sweeps} sweeps of {} entries",
            alone[10],
            alone[19],
            spinning[10],
            spinning[19],
            beside[10],
            beside[19],
            entries()
        );
        assert!(sweeps > 0);
    });
}

/// A commit waits for all processors to pass a quiescent state, and busy ones pass it late, whatever they do.
fn beside_a_busy_thread(kernel: &mut dyn RuleKernel) -> Vec<Duration> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let _ends = Ends(&over);
        write_rules(kernel)
    })
}

/// How long each of 20 commits takes, sorted.
fn write_rules(kernel: &mut dyn RuleKernel) -> Vec<Duration> {
    use iptables::ast::{ChainName, Rule, TableName, Target};
    use iptables::plan::{Step, TableWrite};
    let mut times = Vec::new();
    for number in 0..20 {
        let chain = ChainName::new(&format!("KUBE-SVC-{number}")).unwrap();
        let write = TableWrite {
            chains: [(chain, vec![Rule::new(Target::Return)])].into(),
            ..TableWrite::default()
        };
        let step = Step {
            write: [(TableName::Nat, write)].into(),
            ..Step::default()
        };
        let began = Instant::now();
        kernel.commit(Family::V4, &step).expect("a commit");
        times.push(began.elapsed());
    }
    times.sort();
    times
}
