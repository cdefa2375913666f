//! nfacct objects, without which rules that name them are refused.

use super::namespace::Namespace;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

/// `NFNL_SUBSYS_ACCT << 8 | NFNL_MSG_ACCT_NEW` (`linux/netfilter/nfnetlink.h`, `nfnetlink_acct.h`).
const ACCT_NEW: u16 = 7 << 8;
/// `NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE` (`linux/netlink.h`).
const FLAGS: u16 = 0x1 | 0x4 | 0x400;
/// `NFACCT_NAME`.
const NAME: u16 = 1;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;

/// Makes an object of this name in the namespace.
pub fn create(namespace: &Namespace, name: &str) {
    let message = message(name);
    let asked = namespace.0.namespace().run(|| {
        let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::NETFILTER))?;
        send(&socket, &message, SendFlags::empty())?;
        let mut answer = vec![0; 4096];
        let (_, read) = recv(&socket, answer.as_mut_slice(), RecvFlags::empty())?;
        answer.truncate(read);
        Ok::<_, rustix::io::Errno>(answer)
    });
    let answer = asked
        .expect("the namespace can be entered")
        .expect("nfnetlink answers");
    let code: [u8; 4] = answer[HEADER..HEADER + 4]
        .try_into()
        .expect("an acknowledgement has a code");
    assert_eq!(i32::from_ne_bytes(code), 0, "nfacct object {name} was refused");
}

fn message(name: &str) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0]; // struct nfgenmsg: AF_UNSPEC, version 0, resource 0
    let attribute = u16::try_from(4 + name.len() + 1).expect("names are short");
    body.extend(attribute.to_ne_bytes());
    body.extend(NAME.to_ne_bytes());
    body.extend(name.as_bytes());
    body.push(0);
    body.resize(body.len().next_multiple_of(4), 0);
    let length = u32::try_from(HEADER + body.len()).expect("names are short");
    let mut message = Vec::new();
    message.extend(length.to_ne_bytes());
    message.extend(ACCT_NEW.to_ne_bytes());
    message.extend(FLAGS.to_ne_bytes());
    message.extend([0; 8]); // sequence and port
    message.extend(body);
    message
}
