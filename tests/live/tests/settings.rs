//! Settings of the host that rules depend on.

use lab::live::available;
use live::cluster::{self, NODE, web};
use live::daemon::{Setup, configuration};
use live::manifests::Manifests;
use live::rules;
use live::traffic::{rules_say, web_answers};
use model::Family;
use serde_json::json;

#[test]
fn a_conntrack_that_is_made_liberal_at_start_gets_no_rule_for_invalid_packets() {
    if !available(&["iptables"]) {
        return;
    }
    let (lab, manifests) = (cluster::up("liberal"), Manifests::new());
    manifests.put("web.json", &web(4));
    for (is_liberal, rules_drop) in [(false, true), (true, false)] {
        let mut setup = Setup::new(&lab, NODE, &manifests);
        setup.config = configuration(&json!({"conntrack": {"tcpBeLiberal": is_liberal}}));
        let daemon = setup.start();
        web_answers(&lab, &daemon);
        rules_say(&lab, "KUBE-POSTROUTING", &daemon);
        let saved = rules::saved(&lab, NODE, Family::V4);
        assert_eq!(
            saved.contains("--ctstate INVALID"),
            rules_drop,
            "{saved}\n{}",
            daemon.log()
        );
        daemon.kill();
        lab.must_exec(NODE, &["nft", "flush", "ruleset"])
            .unwrap_or_else(|error| panic!("{}", error.chain()));
    }
}
