//! The golden cases load, and say what their files say.

#[test]
fn every_golden_case_loads_with_rules_of_both_families() {
    let cases = scenario::golden_cases();
    assert!(cases.len() >= 21, "{} cases", cases.len());
    for case in &cases {
        assert!(!case.title.is_empty(), "{}: no title", case.name);
        assert!(case.saved.v4.contains("*nat"), "{}: no IPv4 rules", case.name);
        assert!(!case.desired.v4.services.is_empty(), "{}: no services", case.name);
        assert_eq!(case.notes, [], "{}: a real API server's objects need no notes", case.name);
    }
}
