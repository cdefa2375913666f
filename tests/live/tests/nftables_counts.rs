//! The number of a service's endpoints changes over and over in nftables mode, and no new connection notices.

use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{PATIENCE, Setup, configuration};
use live::manifests::Manifests;
use live::traffic::{all_answered, on_web, settled, watch, web_answers};
use serde_json::json;

/// Counts that follow one another: across each power of two, by one and by more, up and down.
const COUNTS: [usize; 12] = [2, 3, 2, 1, 2, 4, 3, 1, 3, 4, 1, 4];

/// How many changes are made; `KPRS_COUNT_CHANGES` asks for more.
fn changes() -> usize {
    let wanted = std::env::var("KPRS_COUNT_CHANGES").ok();
    wanted.map_or(60, |count| count.parse().expect("a number of changes"))
}

#[test]
fn no_new_connection_is_lost_while_the_number_of_endpoints_changes() {
    if !available(&["nft"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("nftcount"), Manifests::new());
    manifests.put("web.json", &web(4));
    let mut setup = Setup::new(&lab, NODE, &manifests);
    setup.config = configuration(&json!({"mode": "nftables", "nftables": {"minSyncPeriod": "1ms"}}));
    let daemon = setup.start();
    web_answers(&lab, &daemon);
    let mut generations = watch(&lab);
    settled(&mut generations);
    let prober = on_web(&lab);
    for round in 0..changes() {
        manifests.put("web.json", &web(COUNTS[round % COUNTS.len()]));
        let seen = generations
            .wait(PATIENCE)
            .expect("few commits fit into the socket");
        assert!(
            !seen.is_empty(),
            "change {round} was not written:\n{}",
            daemon.log()
        );
    }
    all_answered(prober, changes());
}
