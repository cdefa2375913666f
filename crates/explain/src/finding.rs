//! What there is to report, as values: `explain`, `doctor` and `verify` share them.

use model::note::Subject;
use std::fmt;

/// How much a finding matters. The order is the order of weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know; nothing is wrong. No reason for an exit status.
    Remark,
    /// Something is not as somebody meant it, or will fail another time.
    Warning,
    /// This is why what was asked about fails.
    Fault,
}

impl Severity {
    /// The word that programs read.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Remark => "remark",
            Severity::Warning => "warning",
            Severity::Fault => "fault",
        }
    }
}

/// One thing to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind. Stable: programs compare its word.
    pub cause: Cause,
    /// How much it matters.
    pub severity: Severity,
    /// What is the matter, in one sentence that names the objects.
    pub what: String,
    /// How that leads to what the user sees; may be empty.
    pub why: String,
    /// What to do, the best first.
    pub advice: Vec<Advice>,
    /// The objects concerned, the one to look at first.
    pub objects: Vec<Subject>,
}

/// One thing that can be done about a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// The object to change; `None` for a host, or for something to look at.
    pub object: Option<Subject>,
    /// The field to change, as the API or the configuration spells it.
    pub field: Option<String>,
    /// What to do, as an instruction.
    pub action: String,
}

impl Advice {
    /// An instruction that changes no field of an object.
    pub fn act(action: impl Into<String>) -> Advice {
        Advice {
            object: None,
            field: None,
            action: action.into(),
        }
    }

    /// An instruction about a field of an object.
    pub fn change(object: Subject, field: impl Into<String>, action: impl Into<String>) -> Advice {
        Advice {
            object: Some(object),
            field: Some(field.into()),
            action: action.into(),
        }
    }
}

/// `Service default/web: set spec.ports[0].name to "http"`.
impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Some(object) => write!(f, "{object}: {}", self.action),
            None => f.write_str(&self.action),
        }
    }
}

impl Finding {
    /// A finding without explanation, advice and objects.
    pub fn new(cause: Cause, severity: Severity, what: impl Into<String>) -> Finding {
        Finding {
            cause,
            severity,
            what: what.into(),
            why: String::new(),
            advice: Vec::new(),
            objects: Vec::new(),
        }
    }

    /// Something that makes what was asked about fail.
    pub fn fault(cause: Cause, what: impl Into<String>) -> Finding {
        Finding::new(cause, Severity::Fault, what)
    }

    /// Something that is not as it was meant.
    pub fn warning(cause: Cause, what: impl Into<String>) -> Finding {
        Finding::new(cause, Severity::Warning, what)
    }

    /// Something good to know.
    pub fn remark(cause: Cause, what: impl Into<String>) -> Finding {
        Finding::new(cause, Severity::Remark, what)
    }

    /// With an explanation.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Finding {
        self.why = why.into();
        self
    }

    /// With something to do.
    #[must_use]
    pub fn advise(mut self, advice: Advice) -> Finding {
        self.advice.push(advice);
        self
    }

    /// With several things to do.
    #[must_use]
    pub fn advise_all(mut self, advice: impl IntoIterator<Item = Advice>) -> Finding {
        self.advice.extend(advice);
        self
    }

    /// With an object.
    #[must_use]
    pub fn about(mut self, object: Subject) -> Finding {
        if !self.objects.contains(&object) {
            self.objects.push(object);
        }
        self
    }
}

/// An object by kind, namespace (empty for cluster-wide kinds) and name.
pub fn subject(kind: &'static str, namespace: &str, name: &str) -> Subject {
    Subject {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    }
}

/// Which objects show what a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The slices of the Service: they or the pods behind them are the matter, or where they are.
    Slices,
    /// Those that the finding names.
    Named,
}

macro_rules! causes {
    (@shown) => { Shown::Named };
    (@shown $shown:ident) => { Shown::$shown };
    ($(#[doc = $doc:literal] $name:ident => $word:literal $(in $shown:ident)?,)*) => {
        /// Kinds of finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause { $(#[doc = $doc] $name,)* }

        impl Cause {
            /// All of them.
            pub const ALL: &'static [Cause] = &[$(Cause::$name,)*];

            /// The word that programs read. Stable: words are added, never changed.
            pub fn as_str(self) -> &'static str {
                match self { $(Cause::$name => $word,)* }
            }

            /// What it means, in a sentence: docs/explain.md lists them.
            pub fn meaning(self) -> &'static str {
                match self { $(Cause::$name => $doc.trim_ascii_start(),)* }
            }

            /// Which objects show it.
            pub fn shown(self) -> Shown {
                match self { $(Cause::$name => causes!(@shown $($shown)?),)* }
            }
        }
    };
}

causes! {
    /// There is no such Service.
    NoSuchService => "no-such-service",
    /// The client asks its node's DNS servers, which know no Services.
    NodeDns => "node-dns",
    /// There is no such Pod.
    NoSuchPod => "no-such-pod",
    /// Another proxy has the Service (`service.kubernetes.io/service-proxy-name`).
    OtherProxy => "other-proxy",
    /// The Service is headless.
    Headless => "headless",
    /// The Service is a name in DNS.
    ExternalName => "external-name",
    /// The Service has no cluster IP yet.
    NoClusterIp => "no-cluster-ip",
    /// The Service has no address of this family.
    NoAddressOfFamily => "no-address-of-family",
    /// The Service has no such port.
    NoSuchPort => "no-such-port",
    /// The port number is there, for another protocol.
    OtherProtocol => "other-protocol",
    /// What was asked for is a target port, or a node port where a port is meant, or the other way round.
    PortMixedUp => "port-mixed-up",
    /// The Service has no ports.
    NoPorts => "no-ports",
    /// The Service has no selector and nobody wrote slices for it.
    NoSelector => "no-selector" in Slices,
    /// No pod has the labels that the Service selects.
    NothingSelected => "nothing-selected" in Slices,
    /// There is no slice for the Service.
    NoSlices => "no-slices" in Slices,
    /// A slice has the Service's name, and not the label that says so.
    SliceWithoutOwner => "slice-without-owner",
    /// All slices carry the headless label, so proxies do not see them.
    HeadlessSlices => "headless-slices",
    /// All slices are of another family, or of type FQDN, or the pods have no address of the family.
    SlicesOfOtherFamily => "slices-of-other-family",
    /// Slices name the port otherwise than the Service.
    PortNameMismatch => "port-name-mismatch" in Slices,
    /// Slices have the port name for another protocol.
    PortProtocolMismatch => "port-protocol-mismatch" in Slices,
    /// The Service's target port names no port of its pods.
    TargetPortName => "target-port-name" in Slices,
    /// No container of the pods declares the target port.
    TargetPortUndeclared => "target-port-undeclared" in Slices,
    /// The selector takes pods of another kind as well.
    SelectorTooWide => "selector-too-wide" in Slices,
    /// Slices list no endpoint.
    EmptySlices => "empty-slices" in Slices,
    /// Addresses of slices cannot be used.
    BadAddresses => "bad-addresses",
    /// No endpoint is ready.
    NotReady => "not-ready" in Slices,
    /// The node that an endpoint is on does not answer.
    NodeNotReady => "node-not-ready" in Slices,
    /// Policy Local, and no endpoint on this node.
    NoLocalEndpoints => "no-local-endpoints" in Slices,
    /// Policy Local limits the endpoints that traffic may have.
    PolicyLocal => "policy-local",
    /// The node's name is spelled otherwise in slices.
    NodeName => "node-name" in Slices,
    /// The client is in no source range.
    SourceRange => "source-range",
    /// Only terminating endpoints are left.
    OnlyTerminating => "only-terminating" in Slices,
    /// Unready endpoints get traffic because the Service publishes them.
    UnreadyPublished => "unready-published" in Slices,
    /// Hints limit the endpoints.
    Hints => "hints",
    /// There are hints, and they are ignored.
    HintsIgnored => "hints-ignored",
    /// An Endpoints object says otherwise than the slices.
    EndpointsObject => "endpoints-object" in Slices,
    /// Pods that are selected are missing in the slices, or the other way round.
    StaleSlices => "stale-slices" in Slices,
    /// Another Service has the address and port.
    Claimed => "claimed",
    /// The external IP is not allowed.
    ExternalIpNotAllowed => "external-ip-not-allowed",
    /// The load balancer's address is not served here (ipMode Proxy, or a host name).
    IpModeProxy => "ip-mode-proxy",
    /// The load balancer's address was asked for, and nobody assigned it.
    LoadBalancerPending => "load-balancer-pending",
    /// Node ports are not served on this address.
    NodePortAddress => "node-port-address",
    /// The address is not one of those that the node is known to have.
    NotTheNodesAddress => "not-the-nodes-address",
    /// Loopback is the sender itself: the packet never leaves it.
    OwnLoopback => "own-loopback",
    /// The Service has no address for clients outside of the cluster.
    NotExposed => "not-exposed",
    /// The Service has no node port.
    NoNodePort => "no-node-port",
    /// No Service has this address.
    NobodysAddress => "nobodys-address",
    /// The destination is an endpoint itself.
    DirectToEndpoint => "direct-to-endpoint",
    /// A part of the object cannot be used.
    BadField => "bad-field",
    /// The destination is on the client's own link.
    OnLink => "on-link",
    /// The host has no route there.
    NoRoute => "no-route",
    /// Rules of others refuse or drop the packet.
    ForeignRule => "foreign-rule",
    /// Rules of ours refuse or drop it, without an object that says why.
    OwnRule => "own-rule",
    /// The packet is not tracked, so nat never sees it.
    Untracked => "untracked",
    /// The endpoint is another Service's address, and nat is asked once.
    TranslatedOnce => "translated-once",
    /// Nothing listens at the endpoint, which is this host.
    NoListener => "no-listener",
    /// The reply is bridged past netfilter.
    ReplyNotTranslated => "reply-not-translated",
    /// The host does not forward.
    NotForwarding => "not-forwarding",
    /// Loopback's packets are not let out.
    RouteLocalnet => "route-localnet",
    /// A foreign rule rewrites the source.
    ForeignMasquerade => "foreign-masquerade",
    /// The host's rules are not what the objects ask for.
    RulesDiffer => "rules-differ",
    /// A program of the node listens on a node port, or on a Service's port at an address of the node.
    SocketShadowed => "socket-shadowed",
    /// A pod's address is not among those that kube-proxy takes for pods'.
    PodNotDetected => "pod-not-detected",
    /// The pod reaches itself.
    Hairpin => "hairpin",
    /// The source is rewritten, and why.
    SourceRewritten => "source-rewritten",
    /// Clients stay with one endpoint.
    Affinity => "affinity",
    /// Legacy and `nf_tables` both hold rules of kube-proxy.
    BothBackends => "both-backends",
    /// Rules of several modes of kube-proxy are there at once.
    OtherMode => "other-mode",
    /// A tool cannot read rules that a newer one wrote.
    UnsupportedRules => "unsupported-rules",
    /// The same jump stands several times in a built-in chain.
    DoubledRules => "doubled-rules",
    /// Host ports are asked before Services.
    HostPortsFirst => "host-ports-first",
    /// A version of a tool that is known for trouble.
    ToolVersion => "tool-version",
    /// A kernel that is known for trouble.
    KernelVersion => "kernel-version",
    /// A tool does not work here.
    ToolBroken => "tool-broken",
    /// The kernel lacks a module.
    ModuleMissing => "module-missing",
    /// `/run/xtables.lock` is a folder.
    LockIsFolder => "lock-is-folder",
    /// Packets are dropped for the interface they came in by.
    RpFilter => "rp-filter",
    /// Neighbours can reach services on this host's loopback.
    LocalnetExposed => "localnet-exposed",
    /// Connections of the host may take a node port for their source.
    LocalPortRange => "local-port-range",
    /// A bridge that carries pods passes frames around netfilter.
    BridgeNotFiltered => "bridge-not-filtered",
    /// Pods on a bridge cannot reach themselves.
    HairpinOff => "hairpin-off",
    /// Others use the bits of kube-proxy's mark.
    MarkOverlap => "mark-overlap",
    /// The connection table is full, or nearly.
    ConntrackFull => "conntrack-full",
    /// The connection table is small.
    ConntrackSmall => "conntrack-small",
    /// The connection table lost packets or connections.
    ConntrackLoss => "conntrack-loss",
    /// Pods' traffic to Services is dropped or refused on its way through the host.
    PodTrafficDropped => "pod-traffic-dropped",
    /// Pods' traffic to each other is dropped or refused on its way through the host.
    PodTrafficRejected => "pod-traffic-rejected",
    /// The host's own traffic to Services is dropped or refused.
    HostTrafficDropped => "host-traffic-dropped",
    /// Node ports are dropped before kube-proxy's rules see them.
    NodePortDropped => "node-port-dropped",
    /// What other nodes send for pods, wrapped up, is dropped or refused.
    OverlayDropped => "overlay-dropped",
    /// A built-in chain lacks its jump into kube-proxy's chains.
    JumpMissing => "jump-missing",
    /// A rule of others sends packets for Services elsewhere.
    ForeignDnat => "foreign-dnat",
    /// Policy routing takes packets for pods away.
    PolicyRoute => "policy-route",
    /// The pods' bridge is of another range than the Node's.
    BridgeOfOtherRange => "bridge-of-other-range",
    /// A firewall is at work that is known to take rules away.
    HostFirewall => "host-firewall",
    /// Packets are traced that nobody looks at.
    TraceLeft => "trace-left",
    /// The clock is wrong.
    Clock => "clock",
    /// No Node has the host's name.
    NoSuchNode => "no-such-node",
    /// The Node object has another address than the host.
    NodeAddress => "node-address",
    /// The service range overlaps a network of the host.
    RangeOverlap => "range-overlap",
    /// The host has a family off that Services have.
    FamilyOff => "family-off",
    /// The default route will go, since a forwarding host does not listen to routers.
    RouterAdvertisements => "router-advertisements",
    /// Which node was looked from.
    SeenFrom => "seen-from",
    /// A `NetworkPolicy` is about the client or the endpoints' pods.
    NetworkPolicy => "network-policy",
    /// What a name was taken for that does not say what it is the name of.
    NameTaken => "name-taken",
    /// Something that could not be found out.
    NotKnown => "not-known",
}
