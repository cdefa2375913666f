//! The properties of nftables mode's loop, on tables in memory. Each takes a seed and says what is wrong.

use super::cluster::{Cluster, Coverage, Heard};
use super::own_table::OwnTableRig;
use super::properties::{Property, unbroken};
use super::rng::Rng;
use engine::fault::Seeded;
use kernel::fake::{FakeChain, FakeTable, FakeTables};
use model::Family;
use model::object::ObjectRef;
use model::snapshot::Change;
use nftables::ast::{Base, BaseKind, Data, Flags, Hook, Match, Name, Rule, Set};
use nftables::names;
use std::time::Duration;

/// All of them.
pub const ALL: [Property; 8] = [
    Property {
        name: "nft_incremental_equals_from_scratch",
        check: incremental_equals_from_scratch,
    },
    Property {
        name: "nft_a_restart_with_the_same_state_writes_nothing",
        check: a_restart_with_the_same_state_writes_nothing,
    },
    Property {
        name: "nft_a_restart_in_the_middle_of_changes_ends_as_from_scratch",
        check: a_restart_in_the_middle_ends_as_from_scratch,
    },
    Property {
        name: "nft_failures_are_overcome",
        check: failures_are_overcome,
    },
    Property {
        name: "nft_lost_answers_are_overcome",
        check: lost_answers_are_overcome,
    },
    Property {
        name: "nft_silent_damage_is_found_by_the_full_sync",
        check: silent_damage_is_found,
    },
    Property {
        name: "nft_what_strangers_do_is_put_right_within_a_second",
        check: what_strangers_do_is_put_right,
    },
    Property {
        name: "nft_anothers_table_serves_until_ours_does",
        check: anothers_table_serves_until_ours_does,
    },
];

/// Tables that take steps whole, or every third time in parts if they are longer than something small.
fn tables(seed: u64) -> FakeTables {
    let mut tables = FakeTables::default();
    tables.room = seed
        .is_multiple_of(3)
        .then_some(usize::try_from(seed % 41).unwrap());
    tables
}

fn rig(seed: u64, cluster: &Cluster, seeded: Seeded) -> OwnTableRig {
    OwnTableRig::seeded(tables(seed), cluster, 10_000, seeded)
}

/// Settled, compared, and served at every moment.
fn settled(rig: &mut OwnTableRig, cluster: &Cluster) -> Result<(), String> {
    rig.settle()?;
    unbroken(&rig.take_broken())?;
    rig.compare(cluster)?;
    rig.watch_only(cluster);
    Ok(())
}

fn some_changes(rig: &mut OwnTableRig, cluster: &mut Cluster, rng: &mut Rng) {
    for _ in 0..=rng.below(4) {
        for heard in cluster.change() {
            // It may be there again in a moment, but not in between.
            if let Heard::Objects(Change::Delete(ObjectRef::Service(name))) = &heard {
                let mut without = cluster.clone();
                without.services.remove(name);
                rig.watch_also(&without);
            }
            rig.hear(heard);
        }
        rig.watch_also(cluster);
        if rng.percent(30) {
            rig.work();
        }
    }
}

fn incremental_equals_from_scratch(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = rig(seed, &cluster, seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..8 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
        nothing_was_refused(&rig)?;
    }
    Ok(cluster.coverage)
}

/// What is asked of the kernel fits what is there.
fn nothing_was_refused(rig: &OwnTableRig) -> Result<(), String> {
    match rig.reports.iter().find(|report| is_refusal(report)) {
        None => Ok(()),
        Some(refusal) => Err(format!("refused: {refusal:?}")),
    }
}

fn a_restart_with_the_same_state_writes_nothing(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = rig(seed, &cluster, seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..3 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
    }
    let before = rig.tables.committed.len();
    let mut rig = rig.restart(&cluster);
    rig.watch_only(&cluster);
    settled(&mut rig, &cluster)?;
    match rig.tables.committed.get(before) {
        None => Ok(cluster.coverage),
        Some(written) => Err(format!("a restart in sync wrote {written:?}")),
    }
}

fn a_restart_in_the_middle_ends_as_from_scratch(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = rig(seed, &cluster, seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..4 {
        some_changes(&mut rig, &mut cluster, &mut rng);
        if rng.percent(50) {
            rig.work();
        }
        rig.watch_nothing();
        rig.take_broken();
        rig = rig.restart(&cluster);
        settled(&mut rig, &cluster)?;
    }
    Ok(cluster.coverage)
}

fn failures_are_overcome(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = rig(seed, &cluster, seeded);
    rig.names_elements = rng.percent(50);
    settled(&mut rig, &cluster)?;
    for _ in 0..6 {
        rig.tables.refuse_next = u32::try_from(rng.below(4)).unwrap();
        let lost = rng.percent(50);
        if lost {
            // Behind our back, so that what we write next is refused for what is there.
            let family = *rng.pick(&Family::ALL);
            if let Some(table) = rig.tables.table_mut(family) {
                lose_some(table, &mut rng);
            }
            rig.watch_nothing();
        }
        some_changes(&mut rig, &mut cluster, &mut rng);
        rig.settle()?;
        rig.compare_what_is_too_much(&cluster)?;
        if lost {
            // Whether a service has an endpoint cannot be known before it is known what was lost.
            rig.take_broken();
        }
        // What nothing was written over is found by the hourly reading.
        rig.now += Duration::from_secs(3700);
        settled(&mut rig, &cluster)?;
        let failures = Family::ALL.map(|family| rig.engine.status(family).unwrap().failures_in_a_row);
        if failures != [0, 0] {
            return Err(format!("traces of failures after a success: {failures:?}"));
        }
    }
    Ok(cluster.coverage)
}

fn lose_some(table: &mut FakeTable, rng: &mut Rng) {
    table.elements.retain(|_, _| rng.percent(80));
}

/// A step is carried out and nobody says so: the socket overflowed, or the kernel took too long.
fn lost_answers_are_overcome(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut tables = tables(seed);
    tables.lose_answers = u32::try_from(rng.below(3)).unwrap();
    let mut rig = OwnTableRig::seeded(tables, &cluster, 10_000, seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..6 {
        rig.tables.lose_answers = 1 + u32::try_from(rng.below(3)).unwrap();
        let before = rig.tables.committed.len();
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
        let refused = rig.reports.iter().filter(|report| is_refusal(report)).count();
        rig.reports.clear();
        // What was carried out is not asked for again, and so is not refused.
        if refused > 0 {
            let written = &rig.tables.committed[before..];
            return Err(format!("refused {refused} times; written {written:?}"));
        }
    }
    Ok(cluster.coverage)
}

fn is_refusal(report: &engine::Report) -> bool {
    matches!(
        report,
        engine::Report::Failed { failure, .. } if failure.cause == engine::Cause::Content
    )
}

/// Somebody deletes elements, rules and chains without our knowing of it; the hourly reading finds all of it.
fn silent_damage_is_found(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::new(seed);
    let mut rig = rig(seed, &cluster, seeded);
    settled(&mut rig, &cluster)?;
    rig.watch_nothing();
    for family in Family::ALL {
        damage(rig.tables.table_mut(family), &mut rng);
    }
    rig.now += Duration::from_secs(3700);
    settled(&mut rig, &cluster)?;
    Ok(cluster.coverage)
}

fn damage(table: &mut Option<FakeTable>, rng: &mut Rng) {
    let Some(inner) = table else { return };
    match rng.below(8) {
        0 => *table = None,
        1 => lose_some(inner, rng),
        2 => inner.elements.clear(),
        3 => {
            for chain in inner.chains.values_mut() {
                chain.rules.retain(|_| rng.percent(80));
            }
        }
        4 => {
            let Some(set) = inner.elements.keys().next().map(|key| key.set.clone()) else {
                return;
            };
            inner.elements.retain(|key, _| key.set != set);
        }
        5 => {
            // A set with all that uses it, as the kernel wants it.
            let Some(set) = inner.elements.keys().next().map(|key| key.set.clone()) else {
                return;
            };
            inner.elements.retain(|key, _| key.set != set);
            inner.sets.remove(&set);
            for chain in inner.chains.values_mut() {
                chain
                    .rules
                    .retain(|rule| !format!("{rule:?}").contains(set.as_str()));
            }
        }
        6 => {
            // Another endpoint under a key.
            let endpoint = inner.elements.values().find_map(|element| element.endpoint);
            for element in inner.elements.values_mut() {
                if element.endpoint.is_some() && rng.percent(20) {
                    element.endpoint = endpoint;
                }
            }
        }
        _ => {
            for chain in inner.chains.values_mut() {
                if rng.percent(20) {
                    chain.rules.clear();
                }
            }
        }
    }
}

/// Whatever others do that the kernel tells of, all is as it should be a second later, and what comes then is done right.
fn what_strangers_do_is_put_right(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let mut cluster = Cluster::new(seed);
    let mut rig = rig(seed, &cluster, seeded);
    settled(&mut rig, &cluster)?;
    for _ in 0..4 {
        // Whoever does more harm in a short time is taken for a rival.
        rig.pass(Duration::from_mins(3));
        rig.watch_nothing();
        let family = *rng.pick(&Family::ALL);
        let mut of_damage = Rng::new(rng.below(1 << 30).try_into().unwrap());
        rig.stranger(family, |table| damage(table, &mut of_damage));
        rig.pass(Duration::from_secs(1));
        rig.compare(&cluster)?;
        rig.take_broken();
        rig.watch_only(&cluster);
        some_changes(&mut rig, &mut cluster, &mut rng);
        settled(&mut rig, &cluster)?;
    }
    Ok(cluster.coverage)
}

/// Upstream's table: chains that packets enter by, and names of its own.
fn anothers() -> FakeTable {
    let mut table = FakeTable::default();
    let base = Base {
        kind: BaseKind::Nat,
        hook: Hook::Prerouting,
        priority: -100,
    };
    for (name, base) in [("nat-prerouting", Some(base)), ("service-ABC-default/web", None)] {
        let chain = FakeChain {
            base,
            rules: Vec::new(),
        };
        table.chains.insert(Name::new(name), chain);
    }
    // What a rule uses cannot be deleted before it.
    let set = Set {
        name: Name::new("service-ips"),
        key: names::SERVICE_KEY,
        data: Data::None,
        flags: Flags::Plain,
        comment: "",
    };
    let rule = Rule {
        matches: vec![Match::In(names::SERVICE_KEY, set.name.clone())],
        actions: Vec::new(),
        comment: None,
    };
    table.sets.insert(set.name.clone(), set);
    let chain = FakeChain {
        base: None,
        rules: vec![rule],
    };
    table
        .chains
        .insert(Name::new("service-endpoints-of-another"), chain);
    table
}

/// Packets enter ours in the step after which all services are there, or later; whatever fails or restarts meanwhile.
fn anothers_table_serves_until_ours_does(seed: u64, seeded: Seeded) -> Result<Coverage, String> {
    let mut rng = Rng::new(seed);
    let cluster = Cluster::new(seed);
    let mut tables = tables(seed);
    for family in Family::ALL {
        *tables.table_mut(family) = Some(anothers());
    }
    tables.refuse_next = u32::try_from(rng.below(3)).unwrap();
    let mut rig = OwnTableRig::seeded(tables, &cluster, 10_000, seeded);
    rig.must_be_whole_when_entered(&cluster);
    if rng.percent(50) {
        rig.effects(1 + rng.below(8));
        rig = rig.restart(&cluster);
        rig.must_be_whole_when_entered(&cluster);
    }
    rig.settle()?;
    unbroken(&rig.take_broken())?;
    rig.compare(&cluster)?;
    for family in Family::ALL {
        let table = rig.tables.table(family).ok_or("no table")?;
        let left = ["service-ABC-default/web", "service-endpoints-of-another"].map(Name::new);
        let set = Name::new("service-ips");
        if left.iter().any(|name| table.chains.contains_key(name)) || table.sets.contains_key(&set) {
            return Err(format!("{family}: what was another's is left"));
        }
    }
    Ok(cluster.coverage)
}
