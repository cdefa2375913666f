//! The daemon dies and comes back, and new connections do not notice.

use lab::Lab;
use lab::live::available;
use live::cluster::{self, NODE, crowd, web};
use live::daemon::Setup;
use live::manifests::{Manifests, service};
use live::stubs::{Misbehaviour, Stubs};
use live::traffic::{all_answered, commits, on_web, rules_say, settled, watch, web_answers};
use live::{rules, within};
use model::Family;
use std::thread;
use std::time::Duration;

/// So many services that their load takes a dozen steps.
const FIRST: usize = 1200;
/// The same for those that come later.
const LATER: usize = 2400;
/// How long the daemon writes nothing, at most, while it has something to write.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer than the daemon's period of repairs: what it wants to write, it has written by then.
const SEVERAL_PERIODS: Duration = Duration::from_secs(3);

#[test]
fn restart_with_the_same_state_writes_nothing_and_no_connection_is_lost() {
    if !available(&["iptables", "nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("same"), Manifests::new());
    manifests.put("web.json", &web(4));
    manifests.put("crowd.json", &crowd(100));
    let setup = Setup::new(&lab, NODE, &manifests);
    let daemon = setup.start();
    rules_say(&lab, "crowd-99", &daemon);
    web_answers(&lab, &daemon);
    let mut watch = watch(&lab);
    settled(&mut watch);
    let before = rules::saved(&lab, NODE, Family::V4);

    let prober = on_web(&lab);
    thread::sleep(Duration::from_secs(1));
    daemon.kill();
    thread::sleep(Duration::from_millis(500));
    let daemon = setup.start();
    thread::sleep(SEVERAL_PERIODS);
    let written = commits(&mut watch);
    assert!(
        written.is_empty(),
        "{written:?}\nlog of the daemon:\n{}",
        daemon.log()
    );
    assert_eq!(
        rules::saved(&lab, NODE, Family::V4).lines().count(),
        before.lines().count()
    );

    // It is awake: it only had nothing to write.
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    rules_say(&lab, "default/more", &daemon);
    assert!(!commits(&mut watch).is_empty(), "the watch sees nothing");
    all_answered(prober, 600);
}

#[test]
fn killed_during_its_first_load_again_and_again_it_gets_there() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("first"), Manifests::new());
    manifests.put("web.json", &web(4));
    manifests.put("crowd.json", &crowd(FIRST));
    let setup = Setup::new(&lab, NODE, &manifests);
    // Steps are of a hundred services, so a kill in the middle leaves some services whole and others not begun.
    let midway = killed_again_and_again(&setup, FIRST);
    assert!(midway > 0, "every kill came before or after the load");
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    all_services_there(&lab, FIRST);

    // The same for a later load, now that there is traffic to lose.
    let prober = on_web(&lab);
    daemon.kill();
    manifests.put("crowd.json", &crowd(LATER));
    let midway = killed_again_and_again(&setup, LATER);
    assert!(midway > 0, "every kill came before or after the load");
    let _daemon = setup.start();
    all_services_there(&lab, LATER);
    all_answered(prober, 200);
}

/// Starts and kills the daemon after ever more commits, until the load is done; how often that left it half done.
fn killed_again_and_again(setup: &Setup<'_>, count: usize) -> usize {
    let (mut midway, mut begun) = (0, 0);
    let mut watch = watch(setup.lab);
    for most in 1..20 {
        let daemon = setup.start();
        let mut seen = 0;
        // A machine that is slow or fast kills it at the same place, more or less.
        while seen < most {
            let more = watch
                .wait(PATIENCE)
                .expect("few commits fit into the socket")
                .len();
            if more == 0 {
                // There was no more to write.
                break;
            }
            seen += more;
        }
        daemon.kill();
        let there = crowd_there(setup.lab);
        println!("killed after {seen} commits: {there} of {count}");
        commits(&mut watch);
        if there == count {
            break;
        }
        midway += usize::from(there > begun);
        begun = there;
    }
    midway
}

/// How many services of the crowd have their dispatch rule.
fn crowd_there(lab: &Lab) -> usize {
    let saved = rules::saved(lab, NODE, Family::V4);
    let is_theirs = |line: &&str| line.starts_with("-A KUBE-SERVICES") && line.contains("default/crowd-");
    saved.lines().filter(is_theirs).count()
}

#[track_caller]
fn all_services_there(lab: &Lab, count: usize) {
    let complete = within(live::daemon::PATIENCE, || crowd_there(lab) == count);
    assert!(complete.is_some(), "{} of {count} services", crowd_there(lab));
}

#[test]
fn killed_during_a_restore_its_successor_ends_the_work_and_no_connection_is_lost() {
    if !available(&["iptables"]) {
        return;
    }
    let tool = "iptables-nft-restore";
    let stubs = Stubs::new(&[tool], Misbehaviour::Dawdles);
    let (lab, manifests) = (cluster::up("midway"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.environment = vec![("PATH", stubs.path())];
    let daemon = setup.start();
    web_answers(&lab, &daemon);

    let prober = on_web(&lab);
    stubs.on(tool);
    manifests.put("crowd.json", &crowd(300));
    let begun = within(live::daemon::PATIENCE, || stubs.calls(tool) > 0);
    assert!(
        begun.is_some(),
        "no restore; log of the daemon:\n{}",
        daemon.log()
    );
    daemon.kill();
    stubs.off(tool);
    // The orphaned tool writes what it has been given two seconds later, over its successor's work.
    let daemon = setup.start();
    rules_say(&lab, "crowd-299", &daemon);
    manifests.put("more.json", &[service("more", "10.1.0.99", 80, 8080)]);
    thread::sleep(SEVERAL_PERIODS);
    rules_say(&lab, "default/more", &daemon);
    all_services_there(&lab, 300);
    all_answered(prober, 400);
}
