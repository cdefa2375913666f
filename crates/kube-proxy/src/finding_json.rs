//! Findings for programs. The field names are an interface: add, do not rename.

use explain::Finding;
use model::note::Subject;
use serde::Serialize;
use std::fmt::Write as _;
use std::io;

/// Writes JSON in which every control character is an escape, those too that JSON would let stand: people look at it in terminals.
pub(crate) fn write_pretty(out: &mut dyn io::Write, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        // Ends of lines are the form's own, and all others stand within strings.
        if c == '\n' || explain::page::harmless(c.encode_utf8(&mut [0; 4])).starts_with(c) {
            plain.push(c);
        } else {
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        }
    }
    out.write_all(plain.as_bytes())
}

/// A finding.
#[derive(Serialize)]
pub(crate) struct FindingJson<'a> {
    id: &'static str,
    severity: &'static str,
    what: &'a str,
    why: &'a str,
    advice: Vec<AdviceJson<'a>>,
    objects: Vec<ObjectJson<'a>>,
}

#[derive(Serialize)]
struct AdviceJson<'a> {
    object: Option<ObjectJson<'a>>,
    field: Option<&'a str>,
    action: &'a str,
}

#[derive(Serialize)]
struct ObjectJson<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    name: &'a str,
}

/// A finding for programs.
pub(crate) fn finding(of: &Finding) -> FindingJson<'_> {
    let advice = of.advice.iter().map(|advice| AdviceJson {
        object: advice.object.as_ref().map(object),
        field: advice.field.as_deref(),
        action: &advice.action,
    });
    FindingJson {
        id: of.cause.as_str(),
        severity: of.severity.as_str(),
        what: &of.what,
        why: &of.why,
        advice: advice.collect(),
        objects: of.objects.iter().map(object).collect(),
    }
}

fn object(of: &Subject) -> ObjectJson<'_> {
    ObjectJson {
        kind: of.kind,
        namespace: &of.namespace,
        name: &of.name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_says_the_same_and_has_no_control_characters() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}\u{202e}\u{2028}\u{fffd}é\n";
        let mut out = Vec::new();
        write_pretty(&mut out, &[text]).expect("written");
        let written = String::from_utf8(out).expect("UTF-8");
        assert_eq!(
            serde_json::from_str::<Vec<String>>(&written).expect("JSON"),
            [text]
        );
        let is_odd = |c: char| c != '\n' && explain::page::harmless(&c.to_string()) != c.to_string();
        assert!(!written.contains(is_odd), "{written:?}");
    }
}
