//! The resources that the server has.

/// Whether objects live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// One name each in the whole cluster.
    Cluster,
    /// One name each in a namespace.
    Namespaced,
}

/// A resource that the server has: what kube-proxy reads, and the Events that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// `services`
    Services,
    /// `nodes`
    Nodes,
    /// `endpointslices.discovery.k8s.io`
    EndpointSlices,
    /// `servicecidrs.networking.k8s.io`
    ServiceCidrs,
    /// `events.events.k8s.io`
    Events,
}

impl Resource {
    /// All there are.
    pub const ALL: [Resource; 5] = [
        Resource::Services,
        Resource::Nodes,
        Resource::EndpointSlices,
        Resource::ServiceCidrs,
        Resource::Events,
    ];

    /// The API group; empty for the core group.
    pub fn group(self) -> &'static str {
        match self {
            Resource::Services | Resource::Nodes => "",
            Resource::EndpointSlices => "discovery.k8s.io",
            Resource::ServiceCidrs => "networking.k8s.io",
            Resource::Events => "events.k8s.io",
        }
    }

    /// The plural, as paths and RBAC rules spell it.
    pub fn plural(self) -> &'static str {
        match self {
            Resource::Services => "services",
            Resource::Nodes => "nodes",
            Resource::EndpointSlices => "endpointslices",
            Resource::ServiceCidrs => "servicecidrs",
            Resource::Events => "events",
        }
    }

    /// The kind of its objects.
    pub fn kind(self) -> &'static str {
        match self {
            Resource::Services => "Service",
            Resource::Nodes => "Node",
            Resource::EndpointSlices => "EndpointSlice",
            Resource::ServiceCidrs => "ServiceCIDR",
            Resource::Events => "Event",
        }
    }

    /// The resource of a kind of objects.
    pub fn of_kind(kind: &str) -> Option<Resource> {
        Resource::ALL.into_iter().find(|resource| resource.kind() == kind)
    }

    pub(crate) fn scope(self) -> Scope {
        match self {
            Resource::Nodes | Resource::ServiceCidrs => Scope::Cluster,
            Resource::Services | Resource::EndpointSlices | Resource::Events => Scope::Namespaced,
        }
    }

    /// `apiVersion` of its objects.
    pub(crate) fn api_version(self) -> String {
        match self.group() {
            "" => "v1".to_owned(),
            group => format!("{group}/v1"),
        }
    }

    /// The name that messages use: the plural, with the group if there is one.
    pub(crate) fn full_name(self) -> String {
        match self.group() {
            "" => self.plural().to_owned(),
            group => format!("{}.{group}", self.plural()),
        }
    }

    /// The fields besides name and namespace that a field selector may name.
    pub(crate) fn selectable_fields(self) -> &'static [&'static str] {
        match self {
            Resource::Services => &["spec.clusterIP", "spec.type"],
            Resource::Nodes => &["spec.unschedulable"],
            Resource::EndpointSlices | Resource::ServiceCidrs | Resource::Events => &[],
        }
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of which resource.
    pub resource: Resource,
    /// In which namespace; `None` for all of them, and for resources that have none.
    pub namespace: Option<String>,
    /// Which object; `None` for all of them.
    pub name: Option<String>,
}

impl Place {
    /// Reads a path; `None` when the server has nothing there.
    pub(crate) fn read(path: &str) -> Option<Place> {
        let mut words = path.strip_prefix('/')?.split('/');
        let group = match words.next()? {
            "api" => "",
            "apis" => words.next()?,
            _ => return None,
        };
        if words.next()? != "v1" {
            return None;
        }
        let rest: Vec<&str> = words.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some((*namespace).to_owned()), rest),
            rest => (None, rest),
        };
        let (plural, name) = match rest {
            [plural] => (plural, None),
            [plural, name] => (plural, Some((*name).to_owned())),
            _ => return None,
        };
        let resource = Resource::ALL
            .into_iter()
            .find(|resource| resource.group() == group && resource.plural() == *plural)?;
        let is_sound = match resource.scope() {
            Scope::Cluster => namespace.is_none(),
            Scope::Namespaced => namespace.is_some() || name.is_none(),
        };
        is_sound.then_some(Place {
            resource,
            namespace,
            name,
        })
    }
}
