//! Causes in how Service and slice are joined: by the port's name and protocol, not by its number.

use super::endpoints::{Looked, of_slice};
use super::{count, declared, keeper, listed, of_service};
use crate::finding::{Advice, Cause, Finding};
use crate::objects::Target;
use model::object::Slice;

impl Looked<'_> {
    /// Slices with endpoints, and none of their ports is the Service's.
    pub(super) fn other_port(&self, slices: &[&Slice]) -> Finding {
        let name = self.service;
        if let Some(finding) = self.named_target(slices) {
            return finding;
        }
        let slice = slices.first().expect("the caller has some");
        let same_name = slice.ports.iter().find(|port| *port.name == *self.port_name);
        if let Some(port) = same_name {
            let what = format!(
                "slice {} lists its {} addresses for {}, and the Service's port is {}",
                slice.name.name,
                slice.endpoints.len(),
                port.protocol,
                self.protocol
            );
            return Finding::fault(Cause::PortProtocolMismatch, what)
                .because("Service and slice are joined by port name and protocol, not by number.")
                .about(of_slice(slice))
                .about(of_service(name))
                .advise(Advice::change(
                    of_service(name),
                    "spec.ports[].protocol",
                    format!("set it to {}", port.protocol),
                ))
                .advise_all(keeper::change(
                    self.world,
                    slice,
                    "ports[].protocol",
                    &format!("set it to {}", self.protocol),
                    keeper::see_controller(),
                ));
        }
        self.other_name(slice)
    }

    /// The slice's port has another name.
    fn other_name(&self, slice: &Slice) -> Finding {
        let name = self.service;
        let usable = slice
            .endpoints
            .iter()
            .filter(|e| e.conditions.is_usable())
            .count();
        let names: Vec<String> = slice
            .ports
            .iter()
            .map(|port| format!("{:?}/{}", &*port.name, port.protocol))
            .collect();
        let theirs = match slice.ports.first() {
            Some(port) => port.name.to_string(),
            None => String::new(),
        };
        let what = match names.as_slice() {
            [] => format!("slice {} of Service {name} lists no port at all", slice.name.name),
            names => format!(
                "the port name differs: Service {name} calls its port {:?}, slice {} calls it {}",
                self.port_name,
                slice.name.name,
                listed(names, 4)
            ),
        };
        Finding::fault(Cause::PortNameMismatch, what)
            .because(format!(
                "Service and slice are joined by port name and protocol, not by number. The slice belongs to the \
                 Service and has {}, for another port.",
                count(usable, "usable endpoint")
            ))
            .about(of_service(name))
            .about(of_slice(slice))
            .advise(Advice::change(
                of_service(name),
                "spec.ports[].name",
                match theirs.as_str() {
                    "" => "remove the name from the Service's port".to_owned(),
                    theirs => format!("set it to {theirs:?}"),
                },
            ))
            .advise_all(keeper::change(
                self.world,
                slice,
                "ports[].name",
                &match self.port_name {
                    "" => "remove it there (set it to \"\")".to_owned(),
                    ours => format!("set it to {ours:?}"),
                },
                keeper::see_controller(),
            ))
    }

    /// The target port is a name that no container has: the controller leaves the port out of the slices.
    fn named_target(&self, slices: &[&Slice]) -> Option<Finding> {
        let details = self.world.objects.services.get(self.service)?;
        if details.selector.is_empty() {
            return None;
        }
        let port = details
            .ports
            .iter()
            .find(|port| (port.name.as_str(), port.protocol) == (self.port_name, self.protocol))?;
        let Target::Name(target) = &port.target else {
            return None;
        };
        Some(declared::target_port(
            self.world,
            self.service,
            port,
            target,
            slices,
        ))
    }
}
