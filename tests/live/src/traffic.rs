//! Traffic that goes on while things happen, and the node's commits that nobody should make.

use crate::cluster::{CLIENT, NODE, PODS, WEB, tcp};
use crate::daemon::{Daemon, PATIENCE};
use crate::{rules, within};
use kernel::{Committed, GenerationWatch};
use lab::{Lab, ProbeOutcome, Prober};
use model::Family;
use std::time::Duration;

/// New connections a second.
pub const RATE: u32 = 200;

/// New connections from the client to service `web`, from now on.
pub fn on_web(lab: &Lab) -> Prober {
    on(lab, WEB)
}

/// New connections from the client to an address, from now on.
pub fn on(lab: &Lab, to: &str) -> Prober {
    // One lost packet is repeated after a second; a busy machine must not look like a refusal.
    let probe = tcp(to).within(Duration::from_secs(3));
    lab.prober(CLIENT, probe, RATE)
        .unwrap_or_else(|error| panic!("{}", error.chain()))
}

/// A pod answered. The sink answers for service addresses that no rule translates.
pub fn by_a_pod(outcome: &ProbeOutcome) -> bool {
    outcome
        .answered_by()
        .is_some_and(|name| PODS.iter().any(|(pod, _, _)| *pod == name))
}

/// Ends the traffic; every connection must have been answered by a pod.
///
/// # Panics
/// With every miss and its time.
pub fn all_answered(prober: Prober, at_least: usize) {
    let report = prober.stop();
    println!("{}", report.describe());
    let lost = report
        .samples
        .iter()
        .filter(|sample| !by_a_pod(&sample.outcome))
        .count();
    assert_eq!(lost, 0, "{}", report.describe());
    assert!(report.total() >= at_least, "only {} connections", report.total());
}

/// Waits until `web` answers the client.
///
/// # Panics
/// When it does not in time, with the daemon's log.
pub fn web_answers(lab: &Lab, daemon: &Daemon) {
    let answered = within(PATIENCE, || {
        let outcome = lab.probe(CLIENT, tcp(WEB).within(Duration::from_millis(500)));
        outcome.is_ok_and(|outcome| by_a_pod(&outcome))
    });
    assert!(
        answered.is_some(),
        "web does not answer; log of the daemon:\n{}",
        daemon.log()
    );
}

/// Waits until the node's rules mention a text; how long it took.
///
/// # Panics
/// When they do not in time, with the daemon's log.
pub fn rules_say(lab: &Lab, text: &str, daemon: &Daemon) -> Duration {
    let found = within(PATIENCE, || rules::saved(lab, NODE, Family::V4).contains(text));
    found.unwrap_or_else(|| panic!("no rule says {text}; log of the daemon:\n{}", daemon.log()))
}

/// Tells of commits to `nf_tables` at the node, by anyone, from now on.
pub fn watch(lab: &Lab) -> GenerationWatch {
    let namespace = lab
        .namespace(NODE)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    let watch = namespace
        .run(GenerationWatch::new)
        .unwrap_or_else(|error| panic!("{}", error.chain()));
    watch.expect("root may listen")
}

/// The commits since the last call.
pub fn commits(watch: &mut GenerationWatch) -> Vec<Committed> {
    watch.take().expect("few commits fit into the socket")
}

/// Waits until nobody has committed for a second.
pub fn settled(watch: &mut GenerationWatch) {
    let quiet = Duration::from_secs(1);
    let mut rounds = 0;
    while !watch
        .wait(quiet)
        .expect("few commits fit into the socket")
        .is_empty()
    {
        rounds += 1;
        assert!(rounds < 200, "the node's rules never settle");
    }
}
