//! A rule of iptables-nft in the words of iptables-save, from its decoded expressions alone.

use std::collections::BTreeMap;

use netlink::nfnl::Family;
use netlink::nft::{BitwiseOp, CmpOp, Expr, MetaKey, PayloadBase, RangeOp, Rule, Value, Verdict};

use crate::render_match::{match_text, target_text};

/// What register 1 holds.
#[derive(Clone, Copy)]
enum Loaded {
    Nothing,
    Payload {
        base: PayloadBase,
        offset: u32,
        len: u32,
    },
    Meta(MetaKey),
}

struct Line {
    family: Family,
    out: String,
    /// iptables-save writes these in this order before the matches; in the rule `-p` comes before addresses.
    head: BTreeMap<&'static str, String>,
    loaded: Loaded,
    mask: Option<Vec<u8>>,
    protocol: &'static str,
    /// Name of the native match that was written last, which the next condition may belong to.
    open: &'static str,
}

/// `-A CHAIN ...`
pub fn line(rule: &Rule<'_>) -> String {
    let mut line = Line {
        family: rule.family,
        out: String::new(),
        head: BTreeMap::new(),
        loaded: Loaded::Nothing,
        mask: None,
        protocol: "",
        open: "",
    };
    for expression in &rule.expressions {
        line.expression(expression);
    }
    let mut text = format!("-A {}", rule.chain);
    for flag in ["-s", "-d", "-i", "-o", "-p"] {
        if let Some(word) = line.head.get(flag) {
            text += &format!(" {word}");
        }
    }
    text + &line.out
}

fn not(inverted: bool) -> &'static str {
    if inverted { "! " } else { "" }
}

impl Line {
    fn word(&mut self, word: &str) {
        self.out.push(' ');
        self.out.push_str(word);
    }

    fn expression(&mut self, expression: &Expr<'_>) {
        match *expression {
            Expr::Payload {
                base, offset, len, ..
            } => self.load(Loaded::Payload { base, offset, len }),
            Expr::Meta { key, .. } => self.load(Loaded::Meta(key)),
            Expr::Bitwise {
                op: BitwiseOp::MaskXor { mask, .. },
                ..
            } => self.mask = Some(mask.to_vec()),
            Expr::Cmp { op, data, .. } => self.compare(op, data),
            Expr::Range { op, from, to, .. } => {
                let text = format!("{}:{}", port(from), port(to));
                self.port(op == RangeOp::Neq, &text);
            }
            Expr::Counter(_)
            | Expr::Immediate {
                value: Value::Data(_),
                ..
            } => {}
            Expr::MetaSet {
                key: MetaKey::NfTrace,
                ..
            } => self.word("-j TRACE"),
            Expr::Immediate {
                value: Value::Verdict(verdict),
                ..
            } => self.verdict(verdict),
            Expr::Limit { rate, unit: 60, .. } => self.word(&format!("-m limit --limit {rate}/min")),
            Expr::XtMatch { name, revision, info } => {
                self.open = "";
                self.word(&match_text(self.family, name, revision, info));
            }
            Expr::XtTarget { name, revision, info } => {
                self.word(&target_text(self.family, name, revision, info));
            }
            ref other => panic!("iptables-nft does not write {other:?}"),
        }
    }

    fn load(&mut self, loaded: Loaded) {
        self.loaded = loaded;
        self.mask = None;
    }

    fn verdict(&mut self, verdict: Verdict<'_>) {
        let word = match verdict {
            Verdict::Accept => "-j ACCEPT".to_owned(),
            Verdict::Drop => "-j DROP".to_owned(),
            Verdict::Return => "-j RETURN".to_owned(),
            Verdict::Jump(chain) => format!("-j {chain}"),
            Verdict::Goto(chain) => format!("-g {chain}"),
            other => panic!("iptables-nft does not write {other:?}"),
        };
        self.word(&word);
    }

    fn compare(&mut self, op: CmpOp, data: &[u8]) {
        let inverted = op == CmpOp::Neq;
        let no = not(inverted);
        let address = if self.family == Family::Ipv4 {
            [12, 16]
        } else {
            [8, 24]
        };
        match self.loaded {
            Loaded::Payload {
                base: PayloadBase::Network,
                offset,
                len,
            } if address.contains(&offset) => {
                let flag = if offset == address[0] { "-s" } else { "-d" };
                let prefix = self.mask.as_ref().map_or(len * 8, |mask| ones(mask));
                let text = format!("{no}{flag} {}/{prefix}", address_text(self.family, data));
                self.head.insert(flag, text);
            }
            Loaded::Payload {
                base: PayloadBase::Network,
                offset: 6,
                ..
            } => self.word("-f"),
            Loaded::Payload {
                base: PayloadBase::Transport,
                offset: 13,
                ..
            } => self.tcp_flags(data),
            Loaded::Payload {
                base: PayloadBase::Transport,
                ..
            } => self.port(inverted, &port(data).to_string()),
            Loaded::Meta(MetaKey::IifName) => {
                self.head.insert("-i", format!("{no}-i {}", interface(data)));
            }
            Loaded::Meta(MetaKey::OifName) => {
                self.head.insert("-o", format!("{no}-o {}", interface(data)));
            }
            Loaded::Meta(MetaKey::L4Proto) => {
                self.protocol = protocol_name(data[0]);
                self.head.insert("-p", format!("{no}-p {}", self.protocol));
            }
            Loaded::Meta(MetaKey::Mark) => {
                let mask = self
                    .mask
                    .as_ref()
                    .map_or(String::new(), |mask| format!("/{:#x}", native(mask)));
                self.word(&format!("-m mark {no}--mark {:#x}{mask}", native(data)));
            }
            _ => panic!("iptables-nft does not compare this"),
        }
    }

    fn native_match(&mut self) {
        if self.open != self.protocol {
            self.open = self.protocol;
            self.word(&format!("-m {}", self.protocol));
        }
    }

    fn port(&mut self, inverted: bool, text: &str) {
        let Loaded::Payload { offset, .. } = self.loaded else {
            panic!("no port is loaded")
        };
        let side = if offset == 0 { "sport" } else { "dport" };
        self.native_match();
        self.word(&format!("{}--{side} {text}", not(inverted)));
    }

    fn tcp_flags(&mut self, data: &[u8]) {
        let mask = self.mask.as_ref().map_or(0xff, |mask| mask[0]);
        self.native_match();
        self.word(&format!(
            "--tcp-flags {} {}",
            flag_names(mask),
            flag_names(data[0])
        ));
    }
}

fn flag_names(bits: u8) -> String {
    let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    let set = names.iter().enumerate().filter(|(bit, _)| bits >> bit & 1 != 0);
    set.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

fn ones(mask: &[u8]) -> u32 {
    mask.iter().map(|byte| byte.count_ones()).sum()
}

fn port(data: &[u8]) -> u16 {
    u16::from_be_bytes(data.try_into().unwrap())
}

fn native(data: &[u8]) -> u32 {
    u32::from_ne_bytes(data.try_into().unwrap())
}

/// Short data are the first bytes of an address whose others do not count.
fn address_text(family: Family, data: &[u8]) -> String {
    let mut octets = [0; 16];
    octets[..data.len()].copy_from_slice(data);
    match family {
        Family::Ipv4 => std::net::Ipv4Addr::from(*octets.first_chunk::<4>().unwrap()).to_string(),
        _ => std::net::Ipv6Addr::from(octets).to_string(),
    }
}

/// A comparison that ends before the closing NUL is about a prefix.
fn interface(data: &[u8]) -> String {
    match data.iter().position(|byte| *byte == 0) {
        Some(end) => String::from_utf8(data[..end].to_vec()).unwrap(),
        None => format!("{}+", std::str::from_utf8(data).unwrap()),
    }
}

fn protocol_name(number: u8) -> &'static str {
    match number {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        58 => "ipv6-icmp",
        132 => "sctp",
        other => panic!("protocol {other} is in no capture"),
    }
}
