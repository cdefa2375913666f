//! Findings for programs. The field names are an interface: add, do not rename.

use explain::Finding;
use model::note::Subject;
use serde::Serialize;

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
