//! Captured answers: acknowledgements, errors, chains, tables, generations, conntrack entries, accounting objects.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{data, messages};
use netlink::conntrack::{self, Layer4, Status, Tuple};
use netlink::dump::{Dump, DumpError, Progress};
use netlink::message::{Messages, Reply};
use netlink::nfacct;
use netlink::nfnl::Family;
use netlink::nft::{self, Hook, Policy};
use netlink::{Errno, KernelError, ipset};

fn refusal(name: &str) -> KernelError {
    let bytes = data(name);
    let message = Messages::new(&bytes).next().unwrap().unwrap();
    match Reply::read(message).unwrap() {
        Reply::Refused(error) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_names_the_operation_and_the_attribute() {
    // DELRULE (type 0x0a08) of handle 999999: the handle is the third attribute, 40 bytes from the header.
    let error = refusal("error.bin");
    assert_eq!(
        (error.errno, error.sequence, error.request_type),
        (Errno::ENOENT, 7, 0x0a08)
    );
    assert_eq!((error.offset, error.message), (Some(40), None));
}

#[test]
fn a_refusal_carries_the_kernels_words() {
    let error = refusal("error-text.bin");
    assert_eq!(error.errno, Errno(34), "ERANGE");
    assert_eq!(
        error.message.as_deref(),
        Some("Attribute failed policy validation")
    );
    assert_eq!(
        error.to_string(),
        "the kernel refused message 7 (type 0x0a08): errno 34: Attribute failed policy validation \
         (attribute at byte 40)"
    );
}

#[test]
fn a_batch_for_another_generation_is_refused_at_its_begin_message() {
    let error = refusal("error-generation.bin");
    assert_eq!(
        (error.errno, error.sequence, error.request_type),
        (Errno::ERESTART, 1, 0x10)
    );
}

#[test]
fn only_the_last_operation_is_acknowledged() {
    let bytes = data("ack.bin");
    let replies: Vec<_> = Messages::new(&bytes)
        .map(|message| Reply::read(message.unwrap()).unwrap())
        .collect();
    let [Reply::Ack(header)] = replies.as_slice() else {
        panic!("{replies:?}")
    };
    assert_eq!(header.sequence, 8);
}

#[test]
fn tables_have_their_family_name_and_handle() {
    let bytes = data("tables.bin");
    let mut seen = Vec::new();
    for message in messages(&bytes) {
        let nft::Message::NewTable(table) = nft::Message::read(message).unwrap() else {
            panic!("not a table")
        };
        seen.push((table.family, table.name, table.handle));
    }
    let (v4, v6) = (Family::Ipv4, Family::Ipv6);
    let want = [
        (v4, "mangle", 1),
        (v4, "filter", 2),
        (v4, "nat", 3),
        (v6, "mangle", 4),
        (v6, "filter", 5),
        (v6, "nat", 6),
    ];
    assert_eq!(seen, want);
}

#[test]
fn chains_tell_their_hooks_and_uses() {
    let bytes = data("chains.bin");
    let mut chains = Vec::new();
    for message in messages(&bytes) {
        let nft::Message::NewChain(chain) = nft::Message::read(message).unwrap() else {
            panic!("not a chain")
        };
        chains.push(chain);
    }
    let find = |table, name| {
        *chains
            .iter()
            .find(|chain| chain.table == table && chain.name == name)
            .unwrap()
    };
    let base = find("nat", "POSTROUTING").base.unwrap();
    assert_eq!(Hook::from_code(base.hook), Some(Hook::Postrouting));
    assert_eq!(
        (base.priority, base.kind, base.policy),
        (100, "nat", Policy::Accept)
    );
    assert_eq!(find("mangle", "PREROUTING").base.unwrap().priority, -150);
    assert_eq!(find("mangle", "OUTPUT").base.unwrap().kind, "route");
    let services = find("nat", "KUBE-SERVICES");
    assert_eq!(services.base, None);
    // Six rules in it and two jumps to it.
    assert_eq!(services.use_count, 8);
}

#[test]
fn a_generation_names_the_asking_process() {
    let bytes = data("generation.bin");
    let message = messages(&bytes)[0];
    let nft::Message::Generation(generation) = nft::Message::read(message).unwrap() else {
        panic!()
    };
    // Six tables were written by six commits, and numbering starts at 1.
    assert_eq!((generation.id, generation.process_name), (7, Some("python3")));
}

#[test]
fn a_dump_tells_the_generation_it_was_made_in() {
    let bytes = data("chain-rules.bin");
    let generations: Vec<_> = messages(&bytes)
        .iter()
        .map(|message| nft::dump_generation(*message))
        .collect();
    assert_eq!(generations, [Ok(7), Ok(7), Ok(7)]);
}

#[test]
fn a_dump_is_followed_to_its_end() {
    let bytes = data("chain-rules.bin");
    let mut chains = Vec::new();
    let progress = Dump::new(1).read(&bytes, |message| {
        if let nft::Message::NewRule(rule) = nft::Message::read(message)? {
            chains.push((rule.chain, rule.handle));
        }
        Ok::<(), DumpError>(())
    });
    assert_eq!(progress, Ok(Progress::Complete));
    let chain = "KUBE-POSTROUTING";
    let first = chains[0].1;
    assert_eq!(chains, [(chain, first), (chain, first + 1), (chain, first + 2)]);
}

#[test]
fn a_dump_goes_on_in_the_next_buffer() {
    let bytes = data("chain-rules.bin");
    let (first, rest) = bytes.split_at(316);
    let mut dump = Dump::new(1);
    let mut count = 0;
    let mut each = |_| {
        count += 1;
        Ok::<(), DumpError>(())
    };
    assert_eq!(dump.read(first, &mut each), Ok(Progress::More));
    assert_eq!(dump.read(rest, &mut each), Ok(Progress::Complete));
    assert_eq!(count, 3);
}

#[test]
fn an_answer_of_one_message_ends_with_it() {
    let bytes = data("generation.bin");
    let mut count = 0;
    let progress = Dump::new(1).read(&bytes, |_| {
        count += 1;
        Ok::<(), DumpError>(())
    });
    assert_eq!((progress, count), (Ok(Progress::Complete), 1));
}

#[test]
fn a_refused_request_is_an_error_with_the_kernels_reason() {
    let bytes = data("error.bin");
    let result = Dump::new(7).read(&bytes, |_| Ok::<(), DumpError>(()));
    let Err(DumpError::Refused(error)) = result else {
        panic!("{result:?}")
    };
    assert_eq!(error.errno, Errno::ENOENT);
}

#[test]
fn a_change_during_a_dump_is_told_at_its_end() {
    let mut bytes = data("chain-rules.bin");
    bytes[6] |= 0x10; // NLM_F_DUMP_INTR on the first message only
    let progress = Dump::new(1).read(&bytes, |_| Ok::<(), DumpError>(()));
    assert_eq!(progress, Ok(Progress::Interrupted));
}

#[test]
fn messages_of_another_request_are_passed_over() {
    let bytes = data("chain-rules.bin");
    let progress = Dump::new(2).read(&bytes, |_| -> Result<(), DumpError> { panic!("not asked for") });
    assert_eq!(progress, Ok(Progress::More));
}

#[test]
fn accounting_objects_have_names_and_numbers() {
    let bytes = data("nfacct.bin");
    let objects: Vec<_> = messages(&bytes)
        .into_iter()
        .map(|m| nfacct::Object::read(m).unwrap())
        .collect();
    let names: Vec<_> = objects.iter().map(|object| object.name).collect();
    assert_eq!(
        names,
        [
            "ct_state_invalid_dropped_pkts",
            "localhost_nps_accepted_pkts",
            "nlx_acct"
        ]
    );
    // One rule of each family counts the invalid packets; two of IPv4 those to node ports on loopback.
    let uses: Vec<_> = objects.iter().map(|object| object.use_count).collect();
    assert_eq!(uses, [3, 3, 1]);
    assert!(
        objects
            .iter()
            .all(|object| object.packets == 0 && object.bytes == 0)
    );
}

#[test]
fn a_sets_name_is_told_by_its_number() {
    let bytes = data("ipset-name.bin");
    assert_eq!(ipset::read_name(messages(&bytes)[0]), Ok("NLX-SET6"));
    let mut request = Vec::new();
    ipset::NameRequest { index: 1 }.encode(1, &mut request).unwrap();
    // nfgenmsg; protocol 7 as attribute 1; 1 in network order as attribute 11.
    assert_eq!(
        request[16..],
        [0, 0, 0, 0, 5, 0, 1, 0, 7, 0, 0, 0, 6, 0, 11, 0, 0, 1, 0, 0]
    );
}

/// A line of `conntrack -L -o extended,id` as the fields that are compared.
fn listed(line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let fields = words
        .iter()
        .filter(|word| word.contains('=') && !word.starts_with("use="));
    fields.copied().collect::<Vec<_>>().join(" ")
}

fn tuple_text(tuple: &Tuple) -> String {
    let head = format!("src={} dst={}", tuple.source, tuple.destination);
    match tuple.layer4 {
        Layer4::Ports { source, destination } => format!("{head} sport={source} dport={destination}"),
        Layer4::Icmp { id, kind, code } => format!("{head} type={kind} code={code} id={id}"),
        Layer4::None => head,
    }
}

fn entries() -> Vec<conntrack::Entry> {
    let bytes = data("conntrack.bin");
    let read = messages(&bytes)
        .into_iter()
        .map(|message| match conntrack::Message::read(message).unwrap() {
            conntrack::Message::Entry(entry) => entry,
            other => panic!("{other:?}"),
        });
    read.collect()
}

#[test]
fn conntrack_entries_say_what_the_conntrack_tool_says() {
    let text = String::from_utf8(data("conntrack.txt")).unwrap();
    // The tool lists IPv6 twice: once among all families, and once alone.
    let mut want: Vec<_> = text.lines().map(listed).collect();
    want.sort();
    want.dedup();
    let have = entries().into_iter().map(|entry| {
        let (original, reply) = (tuple_text(&entry.original), tuple_text(&entry.reply));
        format!("{original} {reply} mark={} id={}", entry.mark, entry.id.unwrap())
    });
    let mut have: Vec<_> = have.collect();
    have.sort();
    assert_eq!(have, want);
    assert_eq!(have.len(), 4);
}

#[test]
fn a_translated_connection_shows_service_and_endpoint() {
    let entry = entries()
        .into_iter()
        .find(|entry| entry.original.protocol == 17)
        .unwrap();
    let node = IpAddr::V4(Ipv4Addr::new(10, 244, 9, 1));
    assert_eq!(entry.original.source, node);
    assert_eq!(
        entry.original.destination,
        IpAddr::V4(Ipv4Addr::new(10, 1, 0, 10))
    );
    assert_eq!(entry.reply.destination, node);
    let endpoints = [[10, 244, 1, 2], [10, 244, 1, 4], [10, 244, 2, 2]].map(IpAddr::from);
    assert!(endpoints.contains(&entry.reply.source), "{entry:?}");
    assert!(entry.status.has(Status::DST_NAT | Status::CONFIRMED) && !entry.status.has(Status::SEEN_REPLY));
}

#[test]
fn an_established_connection_shows_its_tcp_state() {
    let states: Vec<_> = entries().iter().filter_map(|entry| entry.tcp_state).collect();
    // 3 is established; 8 is closed.
    assert!(
        states.contains(&3) && states.contains(&8) && states.len() == 2,
        "{states:?}"
    );
    let entry = entries()
        .into_iter()
        .find(|entry| entry.tcp_state == Some(3))
        .unwrap();
    assert_eq!(entry.original.source, IpAddr::V6(Ipv6Addr::LOCALHOST));
    assert!(entry.status.has(Status::ASSURED | Status::SEEN_REPLY));
}
