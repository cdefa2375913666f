use super::*;

const BEFORE: &str = "\
# HELP kubeproxy_sync_proxy_rules_service_changes_total [ALPHA] Changes
# TYPE kubeproxy_sync_proxy_rules_service_changes_total counter
kubeproxy_sync_proxy_rules_service_changes_total 2
# HELP a_seconds How \"long\"
# TYPE a_seconds histogram
a_seconds_bucket{x=\"1,\\\"=\",le=\"0.1\"} 0
a_seconds_bucket{x=\"1,\\\"=\",le=\"+Inf\"} 1
a_seconds_sum{x=\"1,\\\"=\"} 2e-01
a_seconds_count{x=\"1,\\\"=\"} 1
";

#[test]
fn labels_may_hold_what_separates_them() {
    let scrape = parse(BEFORE);
    let series = &scrape["a_seconds"].series["x=\"1,\\\"=\""];
    assert_eq!((series.value, series.sum), (1.0, Some(0.2)));
    assert_eq!(scrape["a_seconds"].bounds(), ["0.1", "+Inf"]);
    assert_eq!(scrape["a_seconds"].label_names(), ["x"]);
}

fn pair(after: &str) -> Pair {
    Pair {
        before: parse(BEFORE),
        after: parse(after),
    }
}

#[test]
fn the_same_is_no_difference() {
    assert_eq!(differences(&pair(BEFORE), &pair(BEFORE)), [""; 0]);
}

/// Each change of the text is a difference of its own kind.
#[test]
fn whatever_is_other_is_found() {
    for (from, to, says) in [
        ("# HELP a_seconds How", "# HELP a_seconds Why", "help"),
        ("x=\"1", "y=\"1", "list of labels"),
        ("le=\"0.1\"", "le=\"0.2\"", "list of bounds"),
        ("x=\"1", "x=\"2", "not there"),
        ("changes_total 2", "changes_total 3", "ours alone has moved"),
        (
            "changes_total 2",
            "changes_total 3",
            "from 2 to 3, upstream's from 2 to 2",
        ),
        (
            "_sum{x=\"1,\\\"=\"} 2e-01",
            "_sum{x=\"1,\\\"=\"} 3e-01",
            "ours alone has moved",
        ),
        ("counter", "gauge", "type"),
        ("a_seconds", "b_seconds", "no such family"),
    ] {
        let found = differences(&pair(BEFORE), &pair(&BEFORE.replace(from, to)));
        assert!(found.iter().any(|line| line.contains(says)), "{from}: {found:?}");
    }
}
