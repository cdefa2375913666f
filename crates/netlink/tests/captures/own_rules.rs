//! Rules that this crate writes come back from the kernel as they were written.

#[path = "../../examples/own_table.rs"]
mod own_table;
use super::{data, messages};
use netlink::message::{Messages, Reply};
use netlink::nfnl::Family;
use netlink::nft;

#[test]
fn the_kernel_gives_back_the_rules_that_were_written() {
    let bytes = data("own-table.bin");
    let rules: Vec<_> = messages(&bytes)
        .into_iter()
        .map(|message| match nft::Message::read(message).unwrap() {
            nft::Message::NewRule(rule) => rule,
            other => panic!("not a rule: {other:?}"),
        })
        .collect();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0].expressions, own_table::TO_SERVICE);
    assert_eq!(rules[0].userdata, b"\0\x08service\0");
    assert_eq!(rules[1].expressions, own_table::MARKED);
    for rule in &rules {
        assert_eq!(rule.family, Family::Inet);
        assert_eq!((rule.table, rule.chain), (own_table::TABLE, own_table::CHAIN));
    }
    assert_eq!(
        (rules[0].position, rules[1].position),
        (None, Some(rules[0].handle))
    );
}

#[test]
fn the_acknowledgement_of_a_batch_carries_its_last_operations_sequence() {
    let batch = own_table::batch().unwrap();
    let bytes = data("own-table.ack.bin");
    let replies: Vec<_> = Messages::new(&bytes)
        .map(|message| Reply::read(message.unwrap()).unwrap())
        .collect();
    let [Reply::Ack(header)] = replies.as_slice() else {
        panic!("{replies:?}")
    };
    assert_eq!(header.sequence, batch.last_operation);
    assert_eq!(batch.operation(header.sequence), Some(3));
    assert_eq!(batch.operation(batch.begin_sequence), None);
    assert_eq!(batch.operation(batch.next_sequence()), None);
}
