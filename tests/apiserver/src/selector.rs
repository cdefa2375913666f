//! Label and field selectors.

use crate::resource::Resource;
use crate::status::Status;
use serde_json::Value;

/// Which objects a request is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    namespace: Option<String>,
    labels: Vec<(String, Test)>,
    fields: Vec<(String, Test)>,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Lacks,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Test {
    fn holds(&self, value: Option<&str>) -> bool {
        let among = |values: &[String]| value.is_some_and(|value| values.iter().any(|one| one == value));
        match self {
            Test::Exists => value.is_some(),
            Test::Lacks => value.is_none(),
            Test::In(values) => among(values),
            Test::NotIn(values) => !among(values),
        }
    }
}

impl Selector {
    pub(crate) fn read(
        resource: Resource,
        namespace: Option<String>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Status> {
        Ok(Selector {
            namespace,
            labels: requirements(labels)
                .into_iter()
                .map(label)
                .collect::<Result<_, _>>()?,
            fields: requirements(fields)
                .into_iter()
                .map(|text| field(resource, text))
                .collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let namespace = object["metadata"]["namespace"].as_str();
        self.namespace
            .as_deref()
            .is_none_or(|wanted| namespace == Some(wanted))
            && self
                .labels
                .iter()
                .all(|(key, test)| test.holds(object["metadata"]["labels"][key].as_str()))
            && self
                .fields
                .iter()
                .all(|(path, test)| test.holds(Some(&at(object, path))))
    }

    /// Whether it asks for everything.
    pub(crate) fn is_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The one name that it asks for, if it asks for one. Such a request is authorized under that name.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.iter().find_map(|(path, test)| match test {
            Test::In(values) if path == "metadata.name" => values.first().map(String::as_str),
            _ => None,
        })
    }
}

/// A field's value as selectors see it: absent is empty.
fn at(object: &Value, path: &str) -> String {
    let value = path.split('.').fold(object, |value, word| &value[word]);
    match value {
        Value::String(text) => text.clone(),
        Value::Null if path == "spec.unschedulable" => "false".to_owned(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Splits at commas that are not in brackets.
fn requirements(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let split = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    });
    split.map(str::trim).filter(|text| !text.is_empty()).collect()
}

fn label(requirement: &str) -> Result<(String, Test), Status> {
    let is_key = |key: &str| {
        !key.is_empty()
            && key
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "./-_".contains(c))
    };
    let (key, test) = if let Some(key) = requirement.strip_prefix('!') {
        (key.trim(), Test::Lacks)
    } else if let Some((key, value)) = requirement.split_once("!=") {
        (key.trim(), Test::NotIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = requirement.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        (key.trim(), Test::In(vec![value.trim().to_owned()]))
    } else if let Some((key, values)) = requirement.split_once(" notin ") {
        (key.trim(), Test::NotIn(values_of(values)))
    } else if let Some((key, values)) = requirement.split_once(" in ") {
        (key.trim(), Test::In(values_of(values)))
    } else {
        (requirement, Test::Exists)
    };
    if !is_key(key) {
        return Err(Status::bad_request(format!(
            "unable to parse requirement: found '{key}', expected: !, identifier"
        )));
    }
    Ok((key.to_owned(), test))
}

fn values_of(text: &str) -> Vec<String> {
    let inner = text.trim().trim_start_matches('(').trim_end_matches(')');
    inner.split(',').map(|value| value.trim().to_owned()).collect()
}

fn field(resource: Resource, requirement: &str) -> Result<(String, Test), Status> {
    let (path, test) = if let Some((path, value)) = requirement.split_once("!=") {
        (path, Test::NotIn(vec![value.to_owned()]))
    } else if let Some((path, value)) = requirement.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        (path, Test::In(vec![value.to_owned()]))
    } else {
        return Err(Status::bad_request(format!(
            "invalid selector: '{requirement}'; can't understand '{requirement}'"
        )));
    };
    let known = ["metadata.name", "metadata.namespace"]
        .iter()
        .chain(resource.selectable_fields())
        .any(|known| *known == path);
    if !known {
        return Err(Status::bad_request(format!("field label not supported: {path}")));
    }
    Ok((path.to_owned(), test))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn matches(labels: &str, fields: &str) -> bool {
        let service = json!({
            "metadata": {"name": "a", "namespace": "default", "labels": {"app": "a", "example.com/tier": "web"}},
            "spec": {"clusterIP": "10.96.0.1"},
        });
        Selector::read(Resource::Services, None, labels, fields)
            .expect("sound")
            .matches(&service)
    }

    #[test]
    fn labels_select_as_documented() {
        for yes in [
            "",
            "app",
            "app=a",
            "app==a",
            "app!=b",
            "other!=b",
            "!other",
            "app in (a,b),example.com/tier",
            "app notin (b, c)",
        ] {
            assert!(matches(yes, ""), "{yes}");
        }
        for no in [
            "!app",
            "app=b",
            "other",
            "app in (b,c)",
            "app notin (a)",
            "app,other",
        ] {
            assert!(!matches(no, ""), "{no}");
        }
    }

    #[test]
    fn fields_select_as_documented() {
        for yes in [
            "spec.clusterIP!=None",
            "metadata.name=a,metadata.namespace==default",
        ] {
            assert!(matches("", yes), "{yes}");
        }
        for no in ["spec.clusterIP=None", "metadata.name!=a"] {
            assert!(!matches("", no), "{no}");
        }
        assert!(Selector::read(Resource::Services, None, "", "spec.ports=1").is_err());
    }
}
