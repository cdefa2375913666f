//! Where random clusters live: a node under test, another one, pods on both, two clients outside, and a sink for what
//! nobody translates.

use lab::{Interface, Lab, LabError, Node, Outside, Pod, PodNetwork, Port, Route, Sink, Topology};
use model::{Family, PerFamily};
use std::net::IpAddr;

/// The node under test.
pub const NODE: &str = "node-a";
/// The other one.
pub const OTHER: &str = "node-b";
/// Where pods serve TCP.
pub const TCP: u16 = 8080;
/// Where pods serve UDP.
pub const UDP: u16 = 5353;

/// A place and its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its name.
    pub name: &'static str,
    /// The node it runs on; a client's is empty.
    pub node: &'static str,
    /// One of each family.
    pub addresses: PerFamily<&'static str>,
}

const fn place(name: &'static str, node: &'static str, v4: &'static str, v6: &'static str) -> Place {
    Place {
        name,
        node,
        addresses: PerFamily { v4, v6 },
    }
}

/// The pods; the last one is on the node's own network.
pub const PODS: [Place; 6] = [
    place("pod-a1", NODE, "10.244.1.11", "fd00:244:1::11"),
    place("pod-a2", NODE, "10.244.1.12", "fd00:244:1::12"),
    place("pod-a3", NODE, "10.244.1.13", "fd00:244:1::13"),
    place("pod-b1", OTHER, "10.244.2.11", "fd00:244:2::11"),
    place("pod-b2", OTHER, "10.244.2.12", "fd00:244:2::12"),
    HOST_POD,
];
/// A pod on the network of [`NODE`].
pub const HOST_POD: Place = place("host-a", NODE, "192.168.70.1", "fd70::1");
/// Within the source ranges of [`RANGES`].
pub const CLIENT: Place = place("client", "", "192.168.70.9", "fd70::9");
/// Outside of them.
pub const STRANGER: Place = place("stranger", "", "192.168.70.77", "fd70::77");
/// Source ranges of load balancers.
pub const RANGES: [&str; 2] = ["192.168.70.8/30", "fd70::8/126"];
/// Further addresses of the node under test.
pub const FURTHER: PerFamily<&str> = PerFamily {
    v4: "198.51.100.1",
    v6: "2001:db8:51::1",
};
/// The networks of cluster IPs.
pub const SERVICES: PerFamily<&str> = PerFamily {
    v4: "10.96.0.0/16",
    v6: "fd00:96::/112",
};
/// The networks of external and load-balancer addresses.
const EXTERNAL: PerFamily<&str> = PerFamily {
    v4: "203.0.113.0/24",
    v6: "2001:db8:203::/64",
};
/// The networks of pods, as `clusterCIDR` has them.
pub const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:244::/32";

impl Place {
    /// Its address of a family.
    ///
    /// # Panics
    /// When that is no address.
    pub fn address(&self, family: Family) -> IpAddr {
        parsed(self.addresses.get(family))
    }
}

/// A text as what it stands for.
///
/// # Panics
/// When it does not.
pub fn parsed<T: std::str::FromStr>(text: &str) -> T {
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is not what it should be"))
}

fn all<T: std::str::FromStr>(texts: &[&str]) -> Vec<T> {
    texts.iter().map(|text| parsed(text)).collect()
}

/// Builds it.
///
/// # Panics
/// When it cannot be built.
pub fn up(stem: &str) -> Lab {
    let build = || {
        let lab = Lab::up(&topology(stem))?;
        answers_come_back_through_the_node(&lab)?;
        Ok::<Lab, LabError>(lab)
    };
    build().unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn topology(stem: &str) -> Topology {
    let node = |name: &str, number: u8, interfaces| Node {
        name: name.to_owned(),
        addresses: all(&[&format!("192.168.70.{number}/24"), &format!("fd70::{number}/64")]),
        pod_cidrs: all(&[
            &format!("10.244.{number}.0/24"),
            &format!("fd00:244:{number}::/64"),
        ]),
        interfaces,
    };
    let further = Interface {
        name: "vip0".to_owned(),
        addresses: all(&[&format!("{}/24", FURTHER.v4), &format!("{}/64", FURTHER.v6)]),
    };
    let pod = |place: &Place| Pod {
        name: place.name.to_owned(),
        node: place.node.to_owned(),
        addresses: Family::ALL.map(|family| place.address(family)).into(),
        network: if place.name == HOST_POD.name {
            PodNetwork::Host
        } else {
            PodNetwork::Own
        },
        ports: vec![Port::tcp(TCP), Port::udp(UDP)],
        answers_as: None,
    };
    let through = [SERVICES.v4, SERVICES.v6, EXTERNAL.v4, EXTERNAL.v6];
    let routes = all(&through).into_iter().map(|to| Route {
        to,
        via: NODE.to_owned(),
    });
    let outside = |place: &Place| Outside {
        name: place.name.to_owned(),
        addresses: all(&[
            &format!("{}/24", place.addresses.v4),
            &format!("{}/64", place.addresses.v6),
        ]),
        routes: routes.clone().collect(),
        ports: vec![],
    };
    Topology {
        nodes: vec![node(NODE, 1, vec![further]), node(OTHER, 2, vec![])],
        pods: PODS.iter().map(pod).collect(),
        outside: vec![outside(&CLIENT), outside(&STRANGER)],
        sink: Some(Sink::default()),
        ..Topology::new(&lab::live::prefix(stem))
    }
}

/// Connection tracking must see both directions, also where nothing is masqueraded.
fn answers_come_back_through_the_node(lab: &Lab) -> Result<(), LabError> {
    for place in [OTHER, "sink"] {
        for (family, client) in Family::ALL
            .map(|family| [(family, CLIENT), (family, STRANGER)])
            .concat()
        {
            let (to, via) = (client.address(family), HOST_POD.address(family));
            let words = format!("ip route replace {to} via {via} dev eth0 onlink");
            lab.must_exec(place, &words.split(' ').collect::<Vec<_>>())?;
        }
    }
    Ok(())
}
