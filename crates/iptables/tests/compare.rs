//! What counts as a difference.

use iptables::ast::Ruleset;
use iptables::compare::differences;
use iptables::parse;
use model::Family;

fn ruleset(text: &str) -> Ruleset {
    parse::save(text, Family::V4).ruleset
}

fn found(want: &str, have: &str) -> Vec<String> {
    differences(&ruleset(want), &ruleset(have))
        .iter()
        .map(|d| d.text(Family::V4).to_string())
        .collect()
}

#[test]
fn the_order_of_chains_is_free_and_that_of_rules_is_not() {
    let want = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j B\n-A A -j RETURN\nCOMMIT\n";
    let same = "*nat\n:B - [0:0]\n:A - [0:0]\n-A A -j B\n-A A -j RETURN\nCOMMIT\n";
    let turned = "*nat\n:A - [0:0]\n:B - [0:0]\n-A A -j RETURN\n-A A -j B\nCOMMIT\n";
    assert!(found(want, same).is_empty());
    assert_eq!(
        found(want, turned),
        ["nat A: order: found -j RETURN, wanted there -j B"]
    );
}

#[test]
fn in_dispatch_chains_only_one_ports_rules_have_an_order() {
    let a1 = r#"-A KUBE-SERVICES -p tcp -m comment --comment "ns/a:x cluster IP" -j KUBE-SVC-A"#;
    let a2 = r#"-A KUBE-SERVICES -p tcp -m comment --comment "ns/a:x external IP" -j KUBE-EXT-A"#;
    let b = r#"-A KUBE-SERVICES -p tcp -m comment --comment "ns/b cluster IP" -j KUBE-SVC-B"#;
    let last = r#"-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports" -j KUBE-NODEPORTS"#;
    let nat = |rules: [&str; 4]| format!("*nat\n:KUBE-SERVICES - [0:0]\n{}\nCOMMIT\n", rules.join("\n"));
    let want = nat([a1, a2, b, last]);
    assert!(found(&want, &nat([b, a1, a2, last])).is_empty());
    assert!(found(&want, &nat([a1, b, a2, last])).is_empty());
    let turned = found(&want, &nat([a2, a1, b, last]));
    assert!(turned[0].contains("order: found"), "{turned:?}");
    let early = found(&want, &nat([a1, a2, last, b]));
    assert_eq!(early.len(), 1);
    assert!(early[0].contains("not last: "), "{early:?}");
}

#[test]
fn what_is_missing_and_what_is_not_wanted_is_named() {
    let want =
        "*nat\n:A - [0:0]\n:B - [0:0]\n:OUTPUT ACCEPT [0:0]\n-A A -j B\n-A A -j B\nCOMMIT\n*mangle\nCOMMIT\n";
    let have = "*nat\n:A - [0:0]\n:C - [0:0]\n:OUTPUT DROP [0:0]\n-A A -j B\n-A A -j ACCEPT\nCOMMIT\n";
    assert_eq!(
        found(want, have),
        [
            "nat A: missing: -j B",
            "nat A: not wanted: -j ACCEPT",
            "nat B: chain is missing",
            "nat C: chain is not wanted",
            "nat OUTPUT: policy is DROP, wanted ACCEPT",
        ]
    );
}
