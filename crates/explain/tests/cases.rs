//! Every case that asks `explain` or `trace` is answered as its `expect.yaml` says: verdict, endpoints, masquerade, and the
//! objects that have to be named. A new folder in `scenarios/cases` needs nothing here.

mod support;

use explain::{Explanation, Question, Reach, Verdict, World, explain};
use model::{Origin, Packet};
use path::{Answer, Detail, End, Listener, Source, Way};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use support::{Case, Entry, On, cases, words};

/// What is wrong with an answer, a line each.
type Wrong = Vec<String>;

fn strings(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array);
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    items
        .map(|items| items.iter().map(word).collect())
        .unwrap_or_default()
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words.dedup();
    words
}

fn is_verdict(word: &str, answer: &Explanation) -> bool {
    match word {
        // Cases call it by what the last rule does, or by what the packet does.
        "ACCEPT" => answer.verdict == Verdict::Accept || answer.reach == Reach::Yes,
        "FORWARDED_UNCHANGED" | "LOCAL_INPUT" => answer.verdict == Verdict::Untouched,
        word => answer.verdict.as_str() == word,
    }
}

fn check_explain(expect: &Value, answer: &Explanation) -> Wrong {
    let mut wrong = Wrong::new();
    let screen = explain::screen::text(answer, 80);
    if let Some(word) = expect.get("verdict").and_then(Value::as_str)
        && !is_verdict(word, answer)
    {
        wrong.push(format!("verdict {} and not {word}", answer.verdict));
    }
    if expect.get("endpoints").is_some() {
        let has: Vec<String> = answer
            .deliveries
            .iter()
            .map(|to| to.endpoint.to_string())
            .collect();
        let wants = strings(expect.get("endpoints"));
        if sorted(has.clone()) != sorted(wants.clone()) {
            wrong.push(format!("endpoints {has:?} and not {wants:?}"));
        }
    }
    if let Some(wants) = expect.get("masquerade").and_then(Value::as_bool)
        && answer.deliveries.iter().any(|to| to.is_masqueraded != wants)
    {
        wrong.push(format!("masquerade is not {wants}"));
    }
    if expect.get("addresses").is_some() {
        let has: Vec<String> = answer.addresses.iter().map(ToString::to_string).collect();
        let wants = strings(expect.get("addresses"));
        if sorted(has.clone()) != sorted(wants.clone()) {
            wrong.push(format!("answers on {has:?} and not {wants:?}"));
        }
    }
    wrong.extend(check_findings(expect, answer));
    // Lines are broken between words.
    let flat = screen.split_whitespace().collect::<Vec<_>>().join(" ");
    for name in strings(expect.get("must_name")) {
        if !flat.contains(&name) {
            wrong.push(format!("{name:?} is not named"));
        }
    }
    wrong
}

/// Whether it works, the first finding, and that there is none.
fn check_findings(expect: &Value, answer: &Explanation) -> Wrong {
    let mut wrong = Wrong::new();
    let reach = match answer.reach {
        Reach::Yes => "yes",
        Reach::No => "no",
        Reach::Fails(_) => "sometimes",
        Reach::NotOurs => "not-ours",
        Reach::Unknown => "unknown",
    };
    if let Some(wants) = expect.get("reachable").and_then(Value::as_str)
        && reach != wants
    {
        wrong.push(format!("reachable {reach:?} and not {wants:?}"));
    }
    let first = answer.findings.first().map(|finding| finding.cause.as_str());
    if let Some(wants) = expect.get("first").and_then(Value::as_str)
        && first != Some(wants)
    {
        wrong.push(format!("first finding {first:?} and not {wants}"));
    }
    let none_wanted = expect
        .get("findings")
        .and_then(Value::as_array)
        .is_some_and(Vec::is_empty);
    if none_wanted && answer.has_findings() {
        let findings: Vec<&str> = answer
            .findings
            .iter()
            .map(|finding| finding.what.as_str())
            .collect();
        wrong.push(format!("there are findings: {findings:?}"));
    }
    wrong
}

fn trace(world: &World, ask: &Value) -> Answer {
    let from = words::from(ask.get("from").and_then(Value::as_str).unwrap_or_default());
    let to = words::to(ask).expect("a packet has a destination");
    let to: SocketAddr = to.parse().expect("an address and a port");
    let protocol = words::protocol(ask).unwrap_or(model::Protocol::Tcp);
    let question = Question {
        from: from.sender(),
        to: explain::To::Address(to.ip(), Some(to.port())),
        protocol: Some(protocol),
        in_interface: from.interface.as_deref().map(Into::into),
    };
    let sender = explain::sender::sender(world, &question, to.ip()).expect("somebody sends");
    let mut packet = Packet::new(sender.ip, to, protocol, sender.origin);
    if from.is_node {
        packet.origin = Origin::Host;
    }
    packet.src_port = from.port.unwrap_or(packet.src_port);
    packet.mark = from.mark;
    path::trace(&world.host, &packet, Detail::Met)
}

fn trace_verdict(way: &Way) -> &'static [&'static str] {
    match (&way.end, way.translated) {
        (End::Dropped, _) => &["DROP"],
        (End::Rejected(_), _) => &["REJECT"],
        (End::NoRoute, _) => &["UNREACHABLE"],
        (End::Local(Listener::Absent), _) => &["REJECT", "LOCAL_INPUT"],
        (End::Local(_) | End::Left { .. }, Some(_)) => &["DNAT", "ACCEPT"],
        (End::Local(_), None) => &["LOCAL_INPUT", "ACCEPT", "UNTOUCHED"],
        (End::Left { .. }, None) => &["FORWARDED_UNCHANGED", "ACCEPT", "UNTOUCHED"],
        (End::Undecided(_), _) => &[],
    }
}

fn destinations(value: Option<&Value>) -> Option<Vec<String>> {
    match value? {
        Value::Null => Some(Vec::new()),
        Value::String(one) => Some(vec![one.clone()]),
        many => Some(strings(Some(many))),
    }
}

fn check_trace(world: &World, expect: &Value, answer: &Answer) -> Wrong {
    let mut wrong = Wrong::new();
    let ways = &answer.ways;
    if let Some(word) = expect.get("verdict").and_then(Value::as_str)
        && !ways.iter().all(|way| trace_verdict(way).contains(&word))
    {
        let has: Vec<_> = ways.iter().map(|way| &way.end).collect();
        wrong.push(format!("{has:?} and not {word}"));
    }
    let to = sorted(
        ways.iter()
            .filter_map(|way| Some(way.translated?.to_string()))
            .collect(),
    );
    let wanted = destinations(expect.get("dnat")).or_else(|| destinations(expect.get("endpoints")));
    if let Some(wanted) = wanted
        && to != sorted(wanted.clone())
    {
        wrong.push(format!("to {to:?} and not {wanted:?}"));
    }
    if let Some(wants) = expect.get("masquerade").and_then(Value::as_bool)
        && ways.iter().any(|way| (way.source != Source::Kept) != wants)
    {
        wrong.push(format!("masquerade is not {wants}"));
    }
    for fate in explain::fate::fates(world, &answer.packet) {
        wrong.extend(check_fate(expect, &fate));
    }
    for outcome in expect
        .get("outcomes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        wrong.extend(check_outcome(outcome, ways));
    }
    wrong
}

/// Who decided, whether it is tracked, whether it has our mark.
fn check_fate(expect: &Value, fate: &explain::fate::Fate) -> Wrong {
    let mut wrong = Wrong::new();
    let by = [&fate.by, &fate.source_by, &fate.untracked];
    let rules: Vec<String> = by
        .into_iter()
        .flatten()
        .map(|rule| format!("{} {} {}", rule.place(), rule.chain, rule.text))
        .collect();
    if let Some(by) = expect.get("by").and_then(Value::as_str)
        && !rules
            .iter()
            .any(|rule| by.split(' ').all(|word| rule.contains(word)))
    {
        wrong.push(format!("decided by {rules:?} and not by {by:?}"));
    }
    if let Some(wants) = expect.get("untracked").and_then(Value::as_bool)
        && fate.untracked.is_some() != wants
    {
        wrong.push(format!("untracked is not {wants}"));
    }
    if let Some(wants) = expect.get("kube_mark").and_then(Value::as_bool)
        && fate.rules.iter().any(|rule| rule.chain == "KUBE-MARK-MASQ") != wants
    {
        wrong.push(format!("kube_mark is not {wants}"));
    }
    for name in strings(expect.get("must_name")) {
        let all = rules.join("; ").to_lowercase();
        if !all.contains(&name.to_lowercase()) {
            wrong.push(format!("{name:?} is not in {all}"));
        }
    }
    wrong
}

fn check_outcome(outcome: &Value, ways: &[Way]) -> Wrong {
    let to = outcome.get("dnat").and_then(Value::as_str).unwrap_or_default();
    let Some(way) = ways
        .iter()
        .find(|way| way.translated.is_some_and(|has| has.to_string() == to))
    else {
        return vec![format!("no way to {to}")];
    };
    let then = outcome.get("then").and_then(Value::as_str).unwrap_or_default();
    let is_so = match then {
        "" => true,
        then if then.contains("no listener") => way.end == End::Local(Listener::Absent),
        then if then.contains("default gateway") => {
            let gateway: IpAddr = [192, 0, 2, 1].into();
            matches!(way.end, End::Left { next_hop: Some(hop), .. } if hop == gateway)
        }
        then if then.starts_with("forwarded") => matches!(way.end, End::Left { .. }),
        other => return vec![format!("what is {other:?}?")],
    };
    let masquerade = outcome.get("masquerade").and_then(Value::as_bool);
    let is_source = masquerade.is_none_or(|wants| (way.source != Source::Kept) == wants);
    if is_so && is_source {
        return Wrong::new();
    }
    vec![format!(
        "{to}: {:?}, {:?}, and not {outcome}",
        way.end, way.source
    )]
}

fn check(case: &Case, entry: &Entry, on: &On, earlier: &[Value]) -> Wrong {
    match entry.command.as_str() {
        "explain" => {
            let question = words::question(&entry.ask, earlier);
            let world = support::world(on, &question);
            let answer = explain(&world, &question);
            // Shown with a failure, and to whoever asks for it: `cargo test -p explain --test cases -- --nocapture`.
            println!(
                "--- {} {}\n{}",
                case.name,
                entry.ask,
                explain::screen::text(&answer, 80)
            );
            check_explain(&entry.expect, &answer)
        }
        "trace" => {
            let anybody = words::question(&entry.ask, &[]);
            let world = support::world(on, &anybody);
            check_trace(&world, &entry.expect, &trace(&world, &entry.ask))
        }
        other => panic!("{other} is not asked here"),
    }
}

/// Checks the entries that are asked of us; returns how many there were, and what is wrong.
fn check_all(under: &str) -> (usize, Wrong) {
    let mut checked = 0;
    let mut wrong = Wrong::new();
    for case in cases(under) {
        let mut earlier = Vec::new();
        for (number, entry) in case.entries.iter().enumerate() {
            let is_ours = ["explain", "trace"].contains(&entry.command.as_str());
            if !is_ours {
                continue;
            }
            let on = case.on(entry);
            checked += 1;
            for what in check(&case, entry, &on, &earlier) {
                wrong.push(format!("{}, entry {}: {what}", case.name, number + 1));
            }
            earlier.push(entry.ask.clone());
        }
    }
    (checked, wrong)
}

#[test]
fn every_case_that_asks_explain_or_trace_is_answered_as_it_says() {
    let (checked, wrong) = check_all("cases");
    assert!(checked >= 30, "only {checked} questions were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Setups after the complaints that users have had for years, each with its twin where the fault is mended.
#[test]
fn every_fault_of_our_own_is_named_first_and_mended_it_is_reachable() {
    let (checked, wrong) = check_all("explain");
    assert!(checked >= 40, "only {checked} questions were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for case in cases("explain") {
        let is_healthy = |entry: &&Entry| {
            let expect = &entry.expect;
            expect["reachable"] == "yes" && expect["findings"] == serde_json::json!([])
        };
        assert!(
            case.entries.iter().any(|entry| is_healthy(&entry)),
            "{} has no healthy twin",
            case.name
        );
    }
}
