//! A refusal's offset leads back to the element that it is about.

use netlink::message::Messages;
use netlink::nfnl::{Batch, Family};
use netlink::nft::{self, Counters, Element, ElementData, SetChange};
use proptest::prelude::*;

proptest! {
    #[test]
    fn every_byte_of_an_element_leads_to_it(
        keys in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..20),
        data in prop::option::of(prop::collection::vec(any::<u8>(), 1..20)),
        userdata in prop::collection::vec(any::<u8>(), 0..40),
        counts in prop::option::of((any::<u64>(), any::<u64>())),
        goes in any::<bool>(),
    ) {
        let elements: Vec<Element<'_>> = keys
            .iter()
            .map(|key| Element {
                data: data.as_deref().map(ElementData::Value),
                userdata: &userdata,
                counter: counts.map(|(packets, bytes)| Counters { packets, bytes }),
                ..Element::of(key)
            })
            .collect();
        let (family, table, set) = (Family::Ipv4, "kube-proxy", "service-slot-0");
        let mut batch = Batch::new(1, None);
        let sequence = if goes {
            batch.push(&SetChange::Remove { family, table, set, elements: &elements })
        } else {
            batch.push(&SetChange::Add { family, table, set, id: None, elements: &elements })
        };
        let batch = batch.finish().unwrap();
        let message = batch.message(sequence.unwrap()).unwrap();
        let mut met: Vec<Element<'_>> = Vec::new();
        for offset in 0..message.header.length + 8 {
            if let Some((of, element)) = nft::element_at(message, offset).unwrap() {
                prop_assert_eq!(of, set);
                if met.last() != Some(&element) {
                    met.push(element);
                }
            }
        }
        let mut want = elements.clone();
        want.dedup();
        prop_assert_eq!(met, want);
        // Nothing of the kind in what begins and ends the batch.
        for other in Messages::new(&batch.bytes).map(Result::unwrap) {
            if other.header.sequence != message.header.sequence {
                prop_assert!(!matches!(nft::element_at(other, 30), Ok(Some(_))));
            }
        }
    }
}
