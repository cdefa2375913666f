//! Which Pod has an address, and which addresses a Pod has.

use super::{Objects, Pod, PodName};
use model::object::SliceName;
use std::net::IpAddr;

impl Objects {
    /// The Pod that has an address: of the Pods themselves, else of the slices. Pods with the node's network share its
    /// address with each other and with programs of the node: it tells of none of them.
    pub fn pod_of(&self, ip: IpAddr) -> Option<PodName> {
        self.pod_with(ip).cloned().or_else(|| {
            let mut by_slices = self.slices.values().filter_map(|slice| slice.pods.get(&ip));
            let first = by_slices.next()?;
            let is_on_node = self.pod(first).is_some_and(|pod| pod.host_network);
            let is_the_one = !is_on_node && by_slices.all(|other| other == first);
            is_the_one.then(|| first.clone())
        })
    }

    /// The Pod behind an endpoint of a slice: the one that has its address for itself, else the one that the slice names.
    pub fn pod_behind(&self, slice: &SliceName, ip: IpAddr) -> Option<PodName> {
        let by_slice = || self.slices.get(slice)?.pods.get(&ip);
        let known = self.pod_with(ip).or_else(by_slice).cloned();
        known.or_else(|| self.pod_of(ip))
    }

    /// The Pod that has an address for itself.
    fn pod_with(&self, ip: IpAddr) -> Option<&PodName> {
        let mut all = self.pods.iter().flatten();
        let found = all.find(|(_, pod)| !pod.host_network && pod.ips.contains(&ip));
        found.map(|(name, _)| name)
    }

    /// A Pod.
    pub fn pod(&self, name: &PodName) -> Option<&Pod> {
        self.pods.as_ref()?.get(name)
    }

    /// The addresses of a Pod: of the Pod itself, else of the slices that name it.
    pub fn addresses_of(&self, name: &PodName) -> Vec<IpAddr> {
        if let Some(pod) = self.pod(name).filter(|pod| !pod.ips.is_empty()) {
            return pod.ips.clone();
        }
        let of = self.slices.values().flat_map(|slice| &slice.pods);
        let mut found: Vec<IpAddr> = of.filter(|(_, pod)| *pod == name).map(|(ip, _)| *ip).collect();
        found.sort();
        found.dedup();
        found
    }
}
