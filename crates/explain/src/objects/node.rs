//! Nodes, as far as the proxy does not read them: whether they answer.

use super::{list, text};
use serde_json::Value;

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeDetails {
    /// What its condition Ready says, where it is not True; `None` where it is, or where nobody says.
    pub not_ready: Option<String>,
}

/// Reads one.
pub(super) fn read(object: &Value) -> NodeDetails {
    let mut conditions = list(object, "/status/conditions").iter();
    let ready = conditions.find(|condition| text(condition, "/type") == "Ready");
    let not_ready = ready.filter(|ready| text(ready, "/status") != "True");
    NodeDetails {
        not_ready: not_ready.map(|ready| match text(ready, "/message") {
            "" => text(ready, "/reason").to_owned(),
            message => message.to_owned(),
        }),
    }
}
