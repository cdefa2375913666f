//! Drawings: what is in common is there once, and whatever is in a rule stays text.

use super::stops::{Line, Stop, What};
use super::tree::{Branch, branch};
use super::{Drawing, dot, layout, mermaid, svg};
use iptables::trace::LocalAddresses;
use model::{Family, Origin, Packet, Protocol};
use path::{Detail, Host};
use traced::Hook;

fn stop(words: &str) -> Stop {
    Stop {
        labels: Vec::new(),
        what: What::Routing(words.to_owned()),
    }
}

fn row(words: &str) -> Vec<Stop> {
    words.split(' ').map(stop).collect()
}

/// A branch as `begin(fork|fork)then`.
fn shown(branch: &Branch<'_>) -> String {
    let words: Vec<&str> = branch
        .row
        .iter()
        .map(|stop| match &stop.what {
            What::Routing(words) => words.as_str(),
            _ => "?",
        })
        .collect();
    let mut text = words.join(" ");
    if !branch.forks.is_empty() {
        let forks: Vec<String> = branch.forks.iter().map(shown).collect();
        text = [text, "(".to_owned(), forks.join("|"), ")".to_owned()].concat();
    }
    if let Some(then) = &branch.then {
        text += &shown(then);
    }
    text
}

fn together(rows: &[&str]) -> String {
    let rows: Vec<Vec<Stop>> = rows.iter().map(|words| row(words)).collect();
    let rows: Vec<&[Stop]> = rows.iter().map(Vec::as_slice).collect();
    shown(&branch(&rows))
}

#[test]
fn what_ways_have_in_common_is_there_once() {
    assert_eq!(together(&["a b c"]), "a b c");
    assert_eq!(together(&["a b c d", "a x c d"]), "a(b|x)c d");
    assert_eq!(together(&["a b c", "a b d"]), "a b(c|d)");
    assert_eq!(together(&["a b x z", "a b y z", "a c z"]), "a(b(x|y)|c)z");
    // A way that leaves out what others come by is a branch without a stop.
    assert_eq!(together(&["a z", "a b z"]), "a(|b)z");
    // The same stop twice in one way is not both its beginning and its end.
    assert_eq!(together(&["a a", "a"]), "a(a|)");
}

/// Rules with everything in them that could mean something to a reader of drawings.
const HOSTILE: &str = r#"*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:X-<b>"&] - [0:0]
-A PREROUTING -m comment --comment "</text><script>alert(1)</script> \"]; end %% `x` #quot; &amp; \\N" -j DNAT --to-destination 10.0.0.9:80
COMMIT
"#;

fn hostile() -> Drawing {
    let comment = "</text><script>alert(1)</script> \"]; end\n %% `x` #quot; &amp; \\N \u{202e}\u{1b}[31m";
    let line = Line {
        number: Some(1),
        words: comment.to_owned(),
        comment: Some(comment.to_owned()),
        notes: vec![comment.to_owned()],
        changes: vec![comment.to_owned()],
    };
    let mut drawing = Drawing {
        heading: vec![comment.to_owned()],
        ..Drawing::default()
    };
    let what = What::Rule {
        hook: Hook::Forward,
        table: comment.into(),
        chain: comment.into(),
        line,
    };
    let labels = vec![comment.to_owned()];
    let rows = [
        Stop {
            labels: labels.clone(),
            what,
        },
        Stop {
            labels,
            what: What::Routing(comment.to_owned()),
        },
    ];
    let mut loose = Vec::new();
    let row: &[Stop] = &rows;
    drawing.shape = drawing.lay(&branch(&[row]), &mut loose, &mut 0);
    drawing
}

fn written(
    write: impl FnOnce(&mut dyn std::io::Write, &Drawing) -> std::io::Result<()>,
    drawing: &Drawing,
) -> String {
    let mut out = Vec::new();
    write(&mut out, drawing).expect("memory can be written");
    String::from_utf8(out).expect("a drawing is text")
}

#[test]
fn whatever_is_in_a_rule_is_text_in_a_picture() {
    let text = written(svg::write, &hostile());
    assert!(!text.contains("<script") && !text.contains("</text><"), "{text}");
    assert!(text.contains("&lt;/text&gt;&lt;script&gt;"), "{text}");
    for c in ['\u{1b}', '\u{202e}'] {
        assert!(!text.contains(c));
    }
    // Nothing but elements of ours, each closed.
    let tags = text.split('<').skip(1).map(|tag| {
        let name = tag.trim_start_matches('/');
        name.split(|c: char| !c.is_ascii_alphanumeric())
            .next()
            .unwrap_or_default()
    });
    for tag in tags {
        assert!(
            ["svg", "title", "desc", "style", "rect", "text", "line", "path"].contains(&tag),
            "{tag}"
        );
    }
}

#[test]
fn whatever_is_in_a_rule_is_text_in_a_flow_chart_and_in_a_graph() {
    let chart = written(mermaid::write, &hostile());
    for line in chart.lines().filter(|line| !line.trim_start().starts_with("%%")) {
        let signs = line.replace("<br/>", "").replace("<i>", "").replace("</i>", "");
        let signs = signs.replace("<b>", "").replace("</b>", "");
        assert!(!signs.contains(['<', '`', '&', '\\', '%']), "{line}");
        assert!(signs.matches('"').count() % 2 == 0, "{line}");
    }
    let graph = written(dot::write, &hostile());
    for line in graph.lines() {
        let bare = line.replace("\\\\", "").replace("\\\"", "").replace("\\l", "");
        assert!(!bare.contains('\\'), "{line}");
        assert!(bare.matches('"').count() % 2 == 0, "{line}");
    }
}

#[test]
fn a_chain_with_a_strange_name_is_drawn() {
    let saved = iptables::parse::save(HOSTILE, Family::V4);
    let mut host = Host {
        addresses: LocalAddresses::Unknown,
        ..Host::default()
    };
    *host.rules.get_mut(Family::V4) = saved.ruleset;
    let to = "10.96.0.1:80".parse().expect("an address");
    let from = "10.0.0.2".parse().expect("an address");
    let packet = Packet::new(from, to, Protocol::Tcp, Origin::Interface("eth0".into()));
    let answer = path::trace(&host, &packet, Detail::Met);
    let drawing = Drawing::new(&host, &answer, 10);
    let text = written(svg::write, &drawing);
    assert!(text.contains("to 10.96.0.1:80 → 10.0.0.9:80"), "{text}");
    assert!(!text.contains("<script"), "{text}");
}

/// The drawing of a packet's ways over the rules of a golden cluster.
fn drawn(case: &str, from: &str, to: &str) -> Drawing {
    let file = scenario::root().join("golden").join(case).join("iptables.txt");
    let text = std::fs::read_to_string(file).expect("a golden cluster has rules");
    let mut host = Host {
        addresses: LocalAddresses::Known(["192.168.50.238".parse().expect("an address")].into()),
        ..Host::default()
    };
    *host.rules.get_mut(Family::V4) = iptables::parse::save(&text, Family::V4).ruleset;
    let origin = Origin::Interface("eth0".into());
    let to = to.parse().expect("an address");
    let packet = Packet::new(from.parse().expect("an address"), to, Protocol::Tcp, origin);
    Drawing::new(&host, &path::trace(&host, &packet, Detail::Met), 0)
}

/// Left, top, right, bottom.
type Box = [f64; 4];

fn overlap(one: &Box, other: &Box) -> bool {
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
}

#[test]
fn nothing_in_a_picture_lies_over_anything_else() {
    for (case, from, to) in [
        ("clusterip", "10.244.1.7", "10.96.10.5:80"),
        ("clusterip", "10.244.1.7", "10.96.10.3:80"),
        ("policy", "192.168.1.5", "192.168.50.238:30283"),
        ("seed-nodeport", "203.0.113.9", "192.168.50.238:31081"),
    ] {
        let drawing = drawn(case, from, to);
        let layout = layout::of(&drawing);
        let cards = layout.cards.iter().map(|card| {
            let half = card.width / 2.0;
            [card.x - half, card.y, card.x + half, card.y + card.height]
        });
        let cards: Vec<Box> = cards.collect();
        let frames = layout.frames.iter();
        let frames: Vec<Box> = frames
            .map(|frame| [frame.x, frame.y, frame.x + frame.width, frame.y + frame.height])
            .collect();
        assert!(cards.len() > 3 && !frames.is_empty(), "{case}");
        for boxes in [&cards, &frames] {
            for (index, one) in boxes.iter().enumerate() {
                assert!(one[0] >= 0.0 && one[1] >= 0.0, "{case}: {one:?}");
                assert!(
                    one[2] <= layout.width && one[3] <= layout.height,
                    "{case}: {one:?}"
                );
                let over = boxes[index + 1..].iter().find(|other| overlap(one, other));
                assert_eq!(over, None, "{case}: over {one:?}");
            }
        }
        // An arrow goes down, in a lane that no card is in.
        for course in &layout.lines {
            let lane = [
                course.lane,
                course.from.1 + layout::GAP,
                course.lane,
                course.to.1 - layout::GAP,
            ];
            assert!(course.from.1 < course.to.1, "{case}: {course:?}");
            let over = cards.iter().find(|card| overlap(&lane, card));
            assert_eq!(over, None, "{case}: {course:?}");
        }
    }
}
