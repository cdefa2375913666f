//! Which endpoint a client gets when a service is balanced by the client's address (ADR 56).
//!
//! The kernel hashes the source address into one of [`BUCKETS`] buckets; for each bucket we say which endpoint of a list
//! has it. An endpoint's claim to a bucket is a number made of the two alone, and the highest claim wins (rendezvous
//! hashing). So every node and every version says the same, an endpoint that goes leaves its buckets to others and
//! changes nothing else, and a new one takes its share and nothing else.
//!
//! Invariant: the numbers are part of the contract among nodes. To change one of them moves every client.

use std::cmp::Reverse;
use std::net::{IpAddr, SocketAddr};

/// Buckets of clients. The share of one of N endpoints is 1/N, give or take about `sqrt(N / BUCKETS)` of that.
pub const BUCKETS: u32 = 256;

/// The seed that clients are hashed with: "kprs".
pub const SEED: u32 = 0x6b70_7273;

/// The bucket of a client.
pub fn bucket(client: IpAddr) -> u32 {
    hashed(client, SEED, BUCKETS)
}

/// What `jhash ADDRESS mod BELOW seed SEED` is to the kernel (`nft_jhash_eval`).
pub fn hashed(address: IpAddr, seed: u32, below: u32) -> u32 {
    let hash = match address {
        IpAddr::V4(ip) => jhash(&ip.octets(), seed),
        IpAddr::V6(ip) => jhash(&ip.octets(), seed),
    };
    scaled(hash, below)
}

/// The endpoint of each bucket, in order; nothing without endpoints.
///
/// Ports count only among endpoints of one address, so that a client gets the same pod on all ports of a service.
pub fn endpoints(list: &[SocketAddr]) -> Vec<SocketAddr> {
    let claimants = claimants(list);
    (0..BUCKETS)
        .filter_map(|bucket| holder(bucket, &claimants))
        .collect()
}

/// The endpoint that a client gets; `None` without endpoints.
pub fn endpoint(client: IpAddr, list: &[SocketAddr]) -> Option<SocketAddr> {
    holder(bucket(client), &claimants(list))
}

/// Each endpoint with the number that its address is.
fn claimants(list: &[SocketAddr]) -> Vec<(u64, SocketAddr)> {
    list.iter()
        .map(|endpoint| (of_address(endpoint.ip()), *endpoint))
        .collect()
}

/// Who has the highest claim to a bucket.
fn holder(bucket: u32, claimants: &[(u64, SocketAddr)]) -> Option<SocketAddr> {
    let claim = |(address, endpoint): &&(u64, SocketAddr)| {
        let claim = mixed(address ^ u64::from(bucket));
        let among_ports = mixed(claim ^ u64::from(endpoint.port()));
        // The last part decides between numbers that are equal by chance.
        (claim, among_ports, Reverse(*endpoint))
    };
    claimants.iter().max_by_key(claim).map(|(_, endpoint)| *endpoint)
}

fn of_address(ip: IpAddr) -> u64 {
    let bits = match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let half = |bits: u128| u64::try_from(bits).expect("invariant: 64 bits");
    let (high, low) = (half(bits >> 64), half(bits & u128::from(u64::MAX)));
    mixed(mixed(high) ^ low)
}

/// `SplitMix64` (Steele, Lea, Flood 2014): one step.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `reciprocal_scale` of the kernel's `linux/kernel.h`: 0 up to `below` - 1.
fn scaled(hash: u32, below: u32) -> u32 {
    let scaled = (u64::from(hash) * u64::from(below)) >> 32;
    u32::try_from(scaled).expect("invariant: less than the number it was scaled to")
}

/// `jhash` of the kernel's `linux/jhash.h`, which is Bob Jenkins' lookup3. Whole words are read in the machine's order.
fn jhash(key: &[u8], seed: u32) -> u32 {
    const INITVAL: u32 = 0xdead_beef;
    let length = u32::try_from(key.len()).expect("invariant: an address is short");
    let mut state = [INITVAL.wrapping_add(length).wrapping_add(seed); 3];
    let mut rest = key;
    while rest.len() > 12 {
        let (words, later) = rest.split_at(12);
        for (part, word) in state.iter_mut().zip(words.chunks_exact(4)) {
            let word = word.try_into().expect("invariant: four bytes");
            *part = part.wrapping_add(u32::from_ne_bytes(word));
        }
        mix(&mut state);
        rest = later;
    }
    // What is left is read byte by byte, lowest first, on every machine.
    for (at, byte) in rest.iter().enumerate() {
        let part = &mut state[at / 4];
        *part = part.wrapping_add(u32::from(*byte) << (8 * (at % 4)));
    }
    if !rest.is_empty() {
        finish(&mut state);
    }
    state[2]
}

fn mix([a, b, c]: &mut [u32; 3]) {
    for (first, second, third) in [(4, 6, 8), (16, 19, 4)] {
        *a = a.wrapping_sub(*c) ^ c.rotate_left(first);
        *c = c.wrapping_add(*b);
        *b = b.wrapping_sub(*a) ^ a.rotate_left(second);
        *a = a.wrapping_add(*c);
        *c = c.wrapping_sub(*b) ^ b.rotate_left(third);
        *b = b.wrapping_add(*a);
    }
}

fn finish([a, b, c]: &mut [u32; 3]) {
    let step = |to: &mut u32, from: u32, by: u32| *to = (*to ^ from).wrapping_sub(from.rotate_left(by));
    step(c, *b, 14);
    step(a, *c, 11);
    step(b, *a, 25);
    step(c, *b, 16);
    step(a, *c, 4);
    step(b, *a, 14);
    step(c, *b, 24);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn list(numbers: impl IntoIterator<Item = u8>) -> Vec<SocketAddr> {
        let endpoint = |number| SocketAddr::from(([10, 244, 1, number], 8080));
        numbers.into_iter().map(endpoint).collect()
    }

    /// Numbers that other nodes may rely on.
    #[test]
    fn clients_get_what_earlier_versions_gave_them() {
        let buckets: Vec<u32> = ["10.0.0.1", "192.168.50.10", "fd00::1", "2001:db8::10:2"]
            .iter()
            .map(|client| bucket(client.parse().expect("an address")))
            .collect();
        assert_eq!(buckets, [48, 135, 73, 45]);
        let endpoints: Vec<u8> = endpoints(&list(1..=9))
            .iter()
            .take(16)
            .map(|endpoint| match endpoint.ip() {
                IpAddr::V4(ip) => ip.octets()[3],
                IpAddr::V6(_) => 0,
            })
            .collect();
        assert_eq!(endpoints, [6, 4, 5, 2, 4, 1, 4, 8, 2, 2, 2, 1, 9, 3, 8, 3]);
    }

    #[test]
    fn the_order_of_a_list_does_not_matter() {
        let reversed: Vec<SocketAddr> = list((1..=40).rev());
        assert_eq!(endpoints(&list(1..=40)), endpoints(&reversed));
    }

    #[test]
    fn an_endpoint_that_goes_moves_its_buckets_only_and_so_does_one_that_comes() {
        let all = endpoints(&list(1..=20));
        for gone in 1..=20 {
            let rest = list((1..=20).filter(|number| *number != gone));
            let gone = list([gone])[0];
            for (with, without) in all.iter().zip(endpoints(&rest)) {
                assert!(*with == gone || *with == without, "{with} {without}");
                assert_ne!(without, gone);
            }
        }
    }

    #[test]
    fn a_client_gets_the_same_pod_on_each_port() {
        let https: Vec<SocketAddr> = list(1..=7)
            .iter()
            .map(|endpoint| SocketAddr::new(endpoint.ip(), 8443))
            .collect();
        for (http, https) in endpoints(&list(1..=7)).iter().zip(endpoints(&https)) {
            assert_eq!(http.ip(), https.ip());
        }
    }

    #[test]
    fn endpoints_of_one_address_share_what_it_gets() {
        let ports = [1, 2, 3].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
        let mut counts: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for endpoint in endpoints(&ports) {
            *counts.entry(endpoint).or_default() += 1;
        }
        assert_eq!(counts.len(), 3);
        assert!(counts.values().all(|count| *count > BUCKETS / 6), "{counts:?}");
    }

    #[test]
    fn shares_are_even_enough() {
        for count in [2_u8, 3, 5, 10, 20] {
            let mut shares: BTreeMap<SocketAddr, u32> = BTreeMap::new();
            for endpoint in endpoints(&list(1..=count)) {
                *shares.entry(endpoint).or_default() += 1;
            }
            let fair = f64::from(BUCKETS) / f64::from(count);
            // Four times the spread of chance.
            let spread = 4.0 * (fair * (1.0 - 1.0 / f64::from(count))).sqrt();
            assert_eq!(shares.len(), usize::from(count));
            assert!(
                shares
                    .values()
                    .all(|share| (f64::from(*share) - fair).abs() < spread),
                "{shares:?}"
            );
        }
    }

    #[test]
    fn clients_of_both_families_are_in_all_buckets_alike() {
        let v4 = (0..25_600_u32).map(|n| IpAddr::from(Ipv4Addr::from_bits(0x0a00_0000 + n)));
        let v6 = (0..25_600_u128).map(|n| IpAddr::from(Ipv6Addr::from_bits((0xfd_u128 << 120) + n)));
        for clients in [v4.collect::<Vec<_>>(), v6.collect()] {
            let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
            for client in clients {
                *counts.entry(bucket(client)).or_default() += 1;
            }
            assert!(counts.keys().copied().eq(0..BUCKETS));
            assert!(
                counts.values().all(|count| (50..150).contains(count)),
                "{counts:?}"
            );
        }
    }
}
