//! The addresses at which a node port is answered.

use crate::asked::Asked;
use crate::causes::node_address;
use crate::fate::{self, Fate};
use crate::known::Kind;
use crate::world::Rules;
use model::{Family, Origin, Packet};
use std::net::{IpAddr, SocketAddr};

impl Asked<'_> {
    /// Where the node port that is asked for answers; nothing where it is none, or where nothing is sent on.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let is_node_port = self
            .target
            .known
            .as_ref()
            .is_some_and(|known| known.kind == Kind::NodePort);
        // Where nothing is sent on, it answers nowhere.
        let is_served = self.fates.iter().any(Fate::is_translated);
        if !is_node_port || !is_served || self.world.addresses_are_unknown() {
            return Vec::new();
        }
        match self.world.rules {
            Rules::Observed => self.addresses_by_rules(),
            _ => node_address::node_port_addresses(self.world, self.family()),
        }
    }

    /// The host's addresses at which its rules translate the node port.
    fn addresses_by_rules(&self) -> Vec<IpAddr> {
        let mut own = self.world.host_facts.addresses();
        let loopback: IpAddr = match self.family() {
            Family::V4 => [127, 0, 0, 1].into(),
            Family::V6 => std::net::Ipv6Addr::LOCALHOST.into(),
        };
        own.insert(loopback);
        let translates = |ip: &IpAddr| {
            let at = SocketAddr::new(*ip, self.target.at.port());
            let (src, origin) = if ip.is_loopback() {
                (*ip, Origin::Host)
            } else {
                (self.sender.ip, self.sender.origin.clone())
            };
            let packet = Packet::new(src, at, self.target.protocol, origin);
            fate::fates(self.world, &packet).iter().any(Fate::is_translated)
        };
        let of_family = own.into_iter().filter(|ip| Family::of(*ip) == self.family());
        let mut served: Vec<IpAddr> = of_family.filter(translates).collect();
        served.sort_by_key(|ip| (ip.is_loopback(), *ip));
        served
    }
}
