//! What is configured in each namespace: lines for `ip -batch` and sysctls, as values.
//!
//! ```text
//!  wire:    br0 ── w0 ── eth0 of node-a          node-a: eth0, cni0 (hairpin on each port) ── veth0 ── eth0 of a pod
//!               ── w1 ── eth0 of node-b          pods:   default route through cni0
//!               ── w2 ── eth0 of client          client: routes of its own through nodes
//!               ── w3 ── eth0 of sink            sink:   default route of nodes and clients
//! ```
//!
//! Nothing needs an address on the wire itself: members reach each other by on-link host routes, so node addresses
//! may lie in different networks.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::topology::{Node, Outside, Pod, PodNetwork, Sink, Topology, WIRE};

/// The hardware address of the sink: it takes only frames that were sent to it.
pub const SINK_MAC: [u8; 6] = [0x02, 0x6b, 0x70, 0xff, 0xff, 0xfe];

/// A setting under `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysctl {
    /// The path below `/proc/sys`.
    pub path: &'static str,
    /// The value written.
    pub value: &'static str,
    /// Whether a kernel may lack it.
    pub need: Need,
}

/// Whether the lab can do without a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it the lab is wrong.
    Must,
    /// Its absence is noted in [`crate::Lab::notes`].
    Noted,
}

/// What is configured in one namespace. Links first in all namespaces, then addresses: a peer may be made by another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The name of the place.
    pub place: String,
    /// Written before any link exists, because new links take the defaults.
    pub sysctls: Vec<Sysctl>,
    /// `ip -batch` lines that make links.
    pub links: Vec<String>,
    /// `ip -batch` lines that bring links up and give addresses and routes.
    pub addresses: Vec<String>,
}

impl Setup {
    /// The links that are brought up and will have a carrier: not the loopback, and no bridge without ports.
    pub fn links_up(&self) -> impl Iterator<Item = &str> {
        let has_ports = self.links.iter().any(|line| line.ends_with(" master cni0"));
        let lines = self.links.iter().chain(&self.addresses);
        let up = lines.filter_map(|line| line.strip_prefix("link set ")?.strip_suffix(" up"));
        up.filter(move |link| *link != "lo" && (has_ports || *link != "cni0"))
    }
}

/// The setup of every place of a valid topology.
pub fn plan(topology: &Topology) -> Vec<Setup> {
    let mut setups = vec![wire(topology)];
    setups.extend(
        topology
            .nodes
            .iter()
            .enumerate()
            .map(|(index, node)| node_setup(topology, index, node)),
    );
    let own = topology.pods.iter().filter(|pod| pod.network == PodNetwork::Own);
    setups.extend(own.map(|pod| pod_setup(topology, pod)));
    setups.extend(
        topology
            .outside
            .iter()
            .map(|outside| outside_setup(topology, outside)),
    );
    setups.extend(topology.sink.iter().map(|sink| sink_setup(topology, sink)));
    setups
}

fn must(path: &'static str, value: &'static str) -> Sysctl {
    Sysctl {
        path,
        value,
        need: Need::Must,
    }
}

fn noted(path: &'static str, value: &'static str) -> Sysctl {
    Sysctl {
        path,
        value,
        need: Need::Noted,
    }
}

/// For every namespace: addresses usable at once (no duplicate address detection), no ICMP message or router may
/// change routes behind a test's back, and every refusal is said, not one per second and client.
fn common_sysctls() -> Vec<Sysctl> {
    vec![
        must("net/ipv4/conf/all/rp_filter", "2"),
        must("net/ipv4/conf/default/rp_filter", "2"),
        must("net/ipv4/conf/all/accept_redirects", "0"),
        must("net/ipv4/conf/default/accept_redirects", "0"),
        noted("net/ipv6/conf/all/disable_ipv6", "0"),
        noted("net/ipv6/conf/default/disable_ipv6", "0"),
        noted("net/ipv6/conf/default/accept_dad", "0"),
        noted("net/ipv6/conf/default/accept_ra", "0"),
        noted("net/ipv6/conf/default/accept_redirects", "0"),
        must("net/ipv4/icmp_ratelimit", "0"),
        noted("net/ipv4/icmp_msgs_per_sec", "1000000"),
        noted("net/ipv4/icmp_msgs_burst", "1000000"),
        noted("net/ipv6/icmp/ratelimit", "0"),
    ]
}

fn node_sysctls() -> Vec<Sysctl> {
    // Turning forwarding on resets other settings, so it goes first.
    let mut sysctls = vec![
        must("net/ipv4/ip_forward", "1"),
        noted("net/ipv6/conf/all/forwarding", "1"),
    ];
    sysctls.extend(common_sysctls());
    sysctls.extend([
        // A node sends packets back out of eth0, which is when a kernel tells the sender about a shorter way.
        must("net/ipv4/conf/all/send_redirects", "0"),
        must("net/ipv4/conf/default/send_redirects", "0"),
        // Without these a pod's packet to a neighbour is bridged past iptables, and so are answers that need un-NAT.
        noted("net/bridge/bridge-nf-call-iptables", "1"),
        noted("net/bridge/bridge-nf-call-ip6tables", "1"),
    ]);
    sysctls
}

fn wire(topology: &Topology) -> Setup {
    let mut links = vec![
        "link add br0 type bridge mcast_snooping 0".to_owned(),
        "link set br0 up".to_owned(),
    ];
    let mut port = 0_usize;
    let mut attach = |place: &str, link: &str, options: &str| {
        let namespace = topology.namespace_name(place);
        links.push(format!(
            "link add w{port} type veth peer name {link} {options}netns {namespace}"
        ));
        links.push(format!("link set w{port} master br0"));
        links.push(format!("link set w{port} alias {place}.{link}"));
        links.push(format!("link set w{port} up"));
        port += 1;
    };
    for node in &topology.nodes {
        attach(&node.name, "eth0", "");
        node.interfaces
            .iter()
            .for_each(|interface| attach(&node.name, &interface.name, ""));
    }
    topology
        .outside
        .iter()
        .for_each(|outside| attach(&outside.name, "eth0", ""));
    if let Some(sink) = &topology.sink {
        attach(&sink.name, "eth0", &format!("address {} ", mac_text(SINK_MAC)));
    }
    let sysctls = vec![
        noted("net/bridge/bridge-nf-call-iptables", "0"),
        noted("net/bridge/bridge-nf-call-ip6tables", "0"),
        noted("net/ipv6/conf/default/accept_dad", "0"),
    ];
    Setup {
        place: WIRE.to_owned(),
        sysctls,
        links,
        addresses: vec!["link set lo up".to_owned()],
    }
}

fn node_setup(topology: &Topology, index: usize, node: &Node) -> Setup {
    // A bridge without an address of its own takes the lowest of its ports' and changes it when ports come and go.
    let mac = mac_text([0x02, 0x6b, 0x70, 0x01, high_byte(index), low_byte(index)]);
    let mut links = vec![format!(
        "link add cni0 address {mac} type bridge mcast_snooping 0"
    )];
    let mut addresses = vec!["link set lo up".to_owned(), "link set eth0 up".to_owned()];
    addresses.extend(node.addresses.iter().map(|net| add_address(*net, "eth0")));
    for interface in &node.interfaces {
        addresses.push(format!("link set {} up", interface.name));
        addresses.extend(
            interface
                .addresses
                .iter()
                .map(|net| add_address(*net, &interface.name)),
        );
    }
    let gateways = node.pod_cidrs.iter().filter_map(|cidr| topology.gateway(*cidr));
    addresses.extend(gateways.map(|gateway| add_address(gateway, "cni0")));
    addresses.push("link set cni0 up".to_owned());
    for (port, pod) in own_pods(topology, node).enumerate() {
        let namespace = topology.namespace_name(&pod.name);
        links.push(format!(
            "link add veth{port} type veth peer name eth0 netns {namespace}"
        ));
        links.push(format!("link set veth{port} master cni0"));
        links.push(format!("link set veth{port} type bridge_slave hairpin on"));
        links.push(format!("link set veth{port} alias {}", pod.name));
        links.push(format!("link set veth{port} up"));
        let strangers = pod
            .addresses
            .iter()
            .filter(|address| node.pod_cidr_of(**address).is_none());
        addresses.extend(strangers.map(|address| format!("route add {} dev cni0", IpNet::from(*address))));
    }
    let own: Vec<IpNet> = node.all_addresses().collect();
    addresses.extend(member_routes(topology, &node.name, &own));
    addresses.extend(pod_routes(topology, &node.name, &own));
    Setup {
        place: node.name.clone(),
        sysctls: node_sysctls(),
        links,
        addresses,
    }
}

fn pod_setup(topology: &Topology, pod: &Pod) -> Setup {
    let node = topology
        .node(&pod.node)
        .expect("invariant: a valid topology has the node of each pod");
    let mut addresses = vec!["link set lo up".to_owned(), "link set eth0 up".to_owned()];
    for &address in &pod.addresses {
        let cidr = node.pod_cidr_of(address);
        let prefix_len = cidr.map_or(IpNet::from(address).prefix_len(), |cidr| cidr.prefix_len());
        let net =
            IpNet::new(address, prefix_len).expect("invariant: the prefix length of a network of its family");
        addresses.push(add_address(net, "eth0"));
    }
    for cidr in &node.pod_cidrs {
        let has_family = pod
            .addresses
            .iter()
            .any(|address| address.is_ipv4() == cidr.addr().is_ipv4());
        if let (true, Some(gateway)) = (has_family, topology.gateway(*cidr)) {
            addresses.push(format!(
                "route add {} via {} dev eth0 onlink",
                any_like(cidr.addr()),
                gateway.addr()
            ));
        }
    }
    Setup {
        place: pod.name.clone(),
        sysctls: common_sysctls(),
        links: vec![],
        addresses,
    }
}

fn outside_setup(topology: &Topology, outside: &Outside) -> Setup {
    let mut addresses = vec!["link set lo up".to_owned(), "link set eth0 up".to_owned()];
    addresses.extend(outside.addresses.iter().map(|net| add_address(*net, "eth0")));
    addresses.extend(member_routes(topology, &outside.name, &outside.addresses));
    for route in &outside.routes {
        let node = topology
            .node(&route.via)
            .expect("invariant: a valid topology has the node of each route");
        addresses.extend(via(
            route.to,
            node.address_like(route.to.addr()),
            &outside.addresses,
        ));
    }
    Setup {
        place: outside.name.clone(),
        sysctls: common_sysctls(),
        links: vec![],
        addresses,
    }
}

fn sink_setup(topology: &Topology, sink: &Sink) -> Setup {
    let own: Vec<IpNet> = sink.addresses.iter().copied().map(IpNet::from).collect();
    let mut addresses = vec!["link set lo up".to_owned(), "link set eth0 up".to_owned()];
    addresses.extend(own.iter().map(|net| add_address(*net, "eth0")));
    addresses.extend(member_routes(topology, &sink.name, &own));
    addresses.extend(pod_routes(topology, &sink.name, &own));
    // The kernel must not answer for the destinations that the sink answers for, but IPv6 says "no route".
    let families =
        ["0.0.0.0/0", "::/0"].map(|any| any.parse::<IpNet>().expect("invariant: a literal network"));
    let used = families.iter().filter(|any| has_family(&own, any.addr()));
    addresses.extend(used.map(|any| format!("route add blackhole {any}")));
    Setup {
        place: sink.name.clone(),
        sysctls: common_sysctls(),
        links: vec![],
        addresses,
    }
}

/// Ways from one member of the wire to the addresses of the others, and to the sink for everything it claims.
fn member_routes(topology: &Topology, member: &str, own: &[IpNet]) -> Vec<String> {
    let nodes = topology.nodes.iter().filter(|node| node.name != member);
    let outside = topology.outside.iter().filter(|outside| outside.name != member);
    let sink = topology.sink.iter().filter(|sink| sink.name != member);
    let others = nodes
        .flat_map(|node| node.all_addresses().map(|net| net.addr()))
        .chain(outside.flat_map(|outside| outside.addresses.iter().map(IpNet::addr)))
        .chain(sink.clone().flat_map(|sink| sink.addresses.iter().copied()));
    let mut routes: Vec<String> = others
        .filter(|address| has_family(own, *address) && !own.iter().any(|net| net.contains(address)))
        .map(|address| format!("route add {} dev eth0", IpNet::from(address)))
        .collect();
    for sink in sink {
        for claim in &sink.claims {
            let gateway = sink
                .addresses
                .iter()
                .copied()
                .find(|address| address.is_ipv4() == claim.addr().is_ipv4());
            routes.extend(via(*claim, gateway, own));
        }
    }
    routes
}

/// Ways from one member of the wire to the pods of other nodes.
fn pod_routes(topology: &Topology, member: &str, own: &[IpNet]) -> Vec<String> {
    let mut routes = vec![];
    for node in topology.nodes.iter().filter(|node| node.name != member) {
        let strangers = own_pods(topology, node).flat_map(|pod| &pod.addresses).copied();
        let strangers = strangers
            .filter(|address| node.pod_cidr_of(*address).is_none())
            .map(IpNet::from);
        for net in node.pod_cidrs.iter().copied().chain(strangers) {
            routes.extend(via(net, node.address_like(net.addr()), own));
        }
    }
    routes
}

/// A route through a neighbour, if both ends have the family.
fn via(to: IpNet, gateway: Option<IpAddr>, own: &[IpNet]) -> Option<String> {
    let gateway = gateway.filter(|gateway| has_family(own, *gateway))?;
    Some(format!("route add {} via {gateway} dev eth0 onlink", to.trunc()))
}

fn has_family(own: &[IpNet], like: IpAddr) -> bool {
    own.iter().any(|net| net.addr().is_ipv4() == like.is_ipv4())
}

fn own_pods<'a>(topology: &'a Topology, node: &'a Node) -> impl Iterator<Item = &'a Pod> {
    topology
        .pods
        .iter()
        .filter(|pod| pod.node == node.name && pod.network == PodNetwork::Own)
}

fn add_address(net: IpNet, link: &str) -> String {
    let nodad = if net.addr().is_ipv6() { " nodad" } else { "" };
    format!("addr add {net} dev {link}{nodad}")
}

/// Spelled out, because `default` alone does not tell `ip` the family.
fn any_like(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "0.0.0.0/0" } else { "::/0" }
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn high_byte(index: usize) -> u8 {
    u8::try_from((index >> 8) & 0xff).expect("invariant: masked to a byte")
}

fn low_byte(index: usize) -> u8 {
    u8::try_from(index & 0xff).expect("invariant: masked to a byte")
}
