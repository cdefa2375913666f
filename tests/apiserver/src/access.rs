//! Who may do what.

use crate::resource::{Place, Resource};
use crate::status::Status;
use serde_json::Value;
use std::collections::BTreeMap;

/// One line of a role: these verbs on this resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Right {
    /// `list` and so on.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural.
    pub resource: String,
}

impl Right {
    /// The rights that the `rules` of a Role or `ClusterRole` give, one by one.
    pub fn of_rules(rules: &Value) -> Vec<Right> {
        let words = |list: &Value| -> Vec<String> {
            let words = list.as_array().into_iter().flatten();
            words.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut rights = Vec::new();
        for rule in rules.as_array().into_iter().flatten() {
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    rights.extend(words(&rule["verbs"]).into_iter().map(|verb| Right {
                        verb,
                        group: group.clone(),
                        resource: resource.clone(),
                    }));
                }
            }
        }
        rights
    }

    fn covers(&self, verb: &str, resource: Resource) -> bool {
        let is = |said: &str, wanted: &str| said == "*" || said == wanted;
        is(&self.verb, verb) && is(&self.group, resource.group()) && is(&self.resource, resource.plural())
    }
}

/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    All,
    /// These things.
    Only(Vec<Right>),
}

/// Somebody whom the server knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, as messages have it.
    pub name: String,
    /// What they may do.
    pub rights: Rights,
}

/// Whom the server lets in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, for everything.
    Open,
    /// Who brings one of these tokens.
    Tokens(BTreeMap<String, User>),
}

impl Access {
    /// Who brings this Authorization header.
    pub(crate) fn user(&self, authorization: &str) -> Result<User, Status> {
        let tokens = match self {
            Access::Open => {
                return Ok(User {
                    name: "system:admin".to_owned(),
                    rights: Rights::All,
                });
            }
            Access::Tokens(tokens) => tokens,
        };
        if authorization.is_empty() {
            return Ok(User {
                name: "system:anonymous".to_owned(),
                rights: Rights::Only(Vec::new()),
            });
        }
        let token = authorization.strip_prefix("Bearer ").unwrap_or_default();
        tokens.get(token).cloned().ok_or_else(Status::unauthorized)
    }
}

impl User {
    /// Whether they may. A request for one object by name is refused under that name.
    pub(crate) fn may(&self, verb: &str, place: &Place, name: Option<&str>) -> Result<(), Status> {
        let allowed = match &self.rights {
            Rights::All => true,
            Rights::Only(rights) => rights.iter().any(|right| right.covers(verb, place.resource)),
        };
        if allowed {
            return Ok(());
        }
        Err(Status::forbidden(&self.name, verb, place, name))
    }
}
