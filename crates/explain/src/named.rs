//! What a name in a question means: the Service that DNS would answer with, or a Node. Which it was taken for is told.

use crate::causes::{listed, of_service, subject};
use crate::finding::{Advice, Cause, Finding};
use crate::known::Kind;
use crate::objects::{Objects, PodName};
use crate::question::{From, Port, Question, To};
use crate::target::asked_family;
use crate::world::{Rules, World};
use model::object::Node;
use model::{Family, ServiceName};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

/// The namespace of a name that says none, where nobody says which client asks: that of `kubectl`.
const USUAL: &str = "default";

/// A question whose destination says what it is.
pub(crate) struct Meant {
    pub(crate) question: Question,
    /// What the name was taken for, where it could have been another, and that the client may not find it.
    pub(crate) taken: Vec<Finding>,
}

/// What a question means by the name that it asks for.
///
/// # Errors
/// A finding, when the name is of nobody, or of several and nobody says which.
pub(crate) fn meant(world: &World, question: &Question) -> Result<Meant, Box<Finding>> {
    let to = |to: To, taken: Vec<Finding>| Meant {
        question: Question {
            to,
            ..question.clone()
        },
        taken,
    };
    match &question.to {
        To::Name(name, port) => {
            let asked = Asked {
                world,
                question,
                name,
                port: port.as_ref(),
            };
            let (meant, taken) = asked.meant()?;
            let mut found: Vec<Finding> = taken.into_iter().collect();
            if matches!(meant, To::Service(..)) {
                found.extend(asked.nodes_dns());
            }
            Ok(to(meant, found))
        }
        // `worker-2.example` could be both.
        To::Service(name, port) if world.snapshot.service(name).is_none() => {
            let dotted = format!("{}.{}", name.name, name.namespace);
            let asked = Asked {
                world,
                question,
                name: &dotted,
                port: port.as_ref(),
            };
            match world.snapshot.node(&dotted) {
                Some(node) => asked
                    .node(node)
                    .map(|(meant, taken)| to(meant, taken.into_iter().collect())),
                None => Ok(to(question.to.clone(), Vec::new())),
            }
        }
        To::Service(..) | To::Address(..) | To::NodePort(_) => Ok(to(question.to.clone(), Vec::new())),
    }
}

impl Question {
    /// The Service that is asked for by name, as far as these objects tell: without its namespace, that of the sender's.
    pub fn service(&self, objects: &Objects) -> Option<ServiceName> {
        match &self.to {
            To::Service(name, _) => Some(name.clone()),
            To::Name(name, _) => {
                let all = objects.services.keys().filter(|one| *one.name == **name);
                let all: BTreeSet<ServiceName> = all.cloned().collect();
                let own = self.namespace(objects).unwrap_or_else(|| USUAL.into());
                let wanted = ServiceName::new(own, name.clone());
                let only = all.first().filter(|_| all.len() == 1);
                all.get(&wanted).or(only).cloned()
            }
            To::Address(..) | To::NodePort(_) => None,
        }
    }

    /// The namespace that a name without one is looked for in: the sender's, when it is a pod that is known to be one.
    fn namespace(&self, objects: &Objects) -> Option<Arc<str>> {
        let is_pod = |name: &PodName| {
            let may_be = objects.pods.is_none() && *name.namespace != *USUAL;
            may_be || objects.pod(name).is_some() || !objects.addresses_of(name).is_empty()
        };
        match &self.from {
            From::Name(name) => Some(name.namespace.clone()).filter(|_| is_pod(name)),
            From::PodAddress(ip) | From::Address(ip) => objects.pod_of(*ip).map(|pod| pod.namespace),
            From::Pod | From::Node | From::NamedNode(_) | From::Outside => None,
        }
    }
}

/// A name that is asked for.
struct Asked<'a> {
    world: &'a World,
    question: &'a Question,
    name: &'a str,
    port: Option<&'a Port>,
}

type Taken = Result<(To, Option<Finding>), Box<Finding>>;

impl Asked<'_> {
    fn meant(&self) -> Taken {
        let all = self.services();
        let node = self.world.snapshot.node(self.name);
        let own = self.question.namespace(&self.world.objects);
        if let Some(node) = node.filter(|_| all.is_empty()) {
            return self.node(node);
        }
        if self.name.contains('.') {
            return Err(Box::new(self.nobody()));
        }
        match own {
            Some(namespace) => self.of_pods(&namespace, &all),
            None => self.of_anybodys(&all),
        }
    }

    /// The client is a pod that asks other DNS servers than the cluster's.
    fn nodes_dns(&self) -> Option<Finding> {
        let objects = &self.world.objects;
        let name = match &self.question.from {
            From::Name(name) => name.clone(),
            From::PodAddress(ip) | From::Address(ip) => objects.pod_of(*ip)?,
            From::Pod | From::Node | From::NamedNode(_) | From::Outside => return None,
        };
        let pod = objects.pod(&name).filter(|pod| pod.asks_nodes_dns())?;
        let what = format!(
            "pod {name} asks its node's DNS servers, which know no Service {}",
            self.name
        );
        let (why, policy) = match pod.dns_policy.as_str() {
            "Default" => ("Its dnsPolicy is Default, which is the node's.", "ClusterFirst"),
            _ => (
                "It uses its node's network (hostNetwork), where dnsPolicy ClusterFirst, which is what pods have that say nothing, counts as \
                 Default.",
                "ClusterFirstWithHostNet",
            ),
        };
        let pod = subject("Pod", &name.namespace, &name.name);
        Some(
            Finding::warning(Cause::NodeDns, what)
                .because(format!("{why} At the cluster IP it reaches the Service."))
                .about(pod.clone())
                .advise(Advice::change(
                    pod,
                    "spec.dnsPolicy",
                    format!("set it to {policy}"),
                )),
        )
    }

    /// The Services of this name, in objects and in rules.
    fn services(&self) -> BTreeSet<ServiceName> {
        let mut all: BTreeSet<ServiceName> =
            self.world.snapshot.services().map(|of| of.name.clone()).collect();
        if self.world.rules == Rules::Observed {
            let known = Family::ALL
                .into_iter()
                .flat_map(|family| self.world.known(family));
            all.extend(known.map(|known| known.service));
        }
        all.retain(|one| *one.name == *self.name);
        all
    }

    fn service(&self, name: ServiceName, taken: Option<Finding>) -> (To, Option<Finding>) {
        (To::Service(name, self.port.cloned()), taken)
    }

    /// A pod's resolver looks in the pod's namespace.
    fn of_pods(&self, namespace: &str, all: &BTreeSet<ServiceName>) -> Taken {
        let wanted = ServiceName::new(namespace, self.name);
        if all.contains(&wanted) || all.is_empty() {
            return Ok(self.service(wanted, None));
        }
        let others: Vec<&ServiceName> = all.iter().collect();
        let names: Vec<String> = others
            .iter()
            .map(|other| format!("{}.{}", other.name, other.namespace))
            .collect();
        let finding = Finding::fault(Cause::NoSuchService, format!("there is no Service {wanted}"))
            .because(format!(
                "A pod that asks for a name without a namespace looks in its own, {namespace}. There is {}.",
                listed(&others, 5)
            ))
            .about(of_service(&wanted))
            .advise(Advice::act(format!(
                "have the client call it by its namespace: {}",
                listed(&names, 3)
            )));
        Err(Box::new(finding))
    }

    /// Nobody says in which namespace the client is.
    fn of_anybodys(&self, all: &BTreeSet<ServiceName>) -> Taken {
        let usual = ServiceName::new(USUAL, self.name);
        let others: Vec<&ServiceName> = all.iter().filter(|other| **other != usual).collect();
        match (all.contains(&usual), others.as_slice()) {
            (_, []) => Ok(self.service(usual, None)),
            (false, [only]) => {
                let taken = taken(format!(
                    "{} was taken for {only}, the only Service of that name; pods of other namespaces have to say {}.{}",
                    self.name, only.name, only.namespace
                ));
                Ok(self.service((*only).clone(), Some(taken)))
            }
            (true, others) => {
                let taken = taken(format!(
                    "{} was taken for {usual}; there is {}, too, which pods of its namespace mean by that name",
                    self.name,
                    listed(others, 5)
                ));
                Ok(self.service(usual.clone(), Some(taken)))
            }
            (false, others) => {
                let what = format!("{} is a Service in {} namespaces", self.name, others.len());
                let finding = Finding::fault(Cause::NotKnown, what).because(format!(
                    "There is {}. A pod means the one of its own namespace.",
                    listed(others, 5)
                ));
                let first = others.first().map_or_else(String::new, ToString::to_string);
                Err(Box::new(finding.advise(Advice::act(format!(
                    "say which: --to {first}; or say which pod asks: --from NAMESPACE/POD"
                )))))
            }
        }
    }

    /// A Node, asked at the address that it goes by.
    fn node(&self, node: &Node) -> Taken {
        let name = &node.name;
        let give = |what: String, advice: String| {
            let finding = Finding::fault(Cause::NotKnown, what).advise(Advice::act(advice));
            Err(Box::new(finding.about(subject("Node", "", name))))
        };
        let Some(Port::Number(port)) = self.port else {
            return give(
                format!("{name} is a Node, so the number of a port is needed"),
                format!("name a node port: --to {name}:PORT"),
            );
        };
        let Some(ip) = self.address(node, *port) else {
            return give(
                format!("Node {name} has no address that the client could ask at"),
                "look at its status.addresses: kubectl get nodes -o wide".to_owned(),
            );
        };
        let taken = taken(format!(
            "{name} is a Node: it is asked at {ip}, of its status.addresses"
        ));
        Ok((
            To::Address(ip, Some(*port)),
            Some(taken.about(subject("Node", "", name))),
        ))
    }

    /// Of the sender's family, else of one that has the node port.
    fn address(&self, node: &Node, port: u16) -> Option<IpAddr> {
        let of = |family: Family| {
            node.addresses
                .iter()
                .copied()
                .find(|ip| Family::of(*ip) == family)
        };
        if let Some(family) = asked_family(self.world, self.question) {
            return of(family);
        }
        let has_it = |family: &Family| {
            let known = self.world.known(*family);
            let mut known = known.iter();
            known.any(|known| known.kind == Kind::NodePort && known.port == port)
        };
        let by_port = Family::ALL.into_iter().filter(has_it).find_map(of);
        by_port.or_else(|| node.addresses.first().copied())
    }

    /// No Service's name in DNS has this form, and no Node has it.
    fn nobody(&self) -> Finding {
        let name = self.name;
        Finding::fault(Cause::NotKnown, format!("{name} is the name of no Node, and has not the form of a Service's"))
            .because("A Service is called NAME.NAMESPACE or NAME.NAMESPACE.svc with the cluster's domain. What else DNS answers, nobody told.")
            .advise(Advice::act("give the address that the name has: --to IP:PORT"))
    }
}

fn taken(what: String) -> Finding {
    Finding::remark(Cause::NameTaken, what)
}
