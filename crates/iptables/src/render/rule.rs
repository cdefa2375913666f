//! One rule.

use super::Written;
use crate::ast::{AddrType, CtState, Is, Match, PortRange, Ports, Recent, RecentAction, Rule, Target};
use crate::family::full_mask;
use ipnet::IpNet;
use model::Family;
use std::fmt::{self, Write};
use std::sync::Arc;

/// A rule's words as `iptables-save` prints them, from `-s` to the target, without the `-A CHAIN`.
#[derive(Clone, Copy, Debug)]
pub struct RuleText<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The family, on which the mask of `-m recent` depends.
    pub family: Family,
}

/// The words, parted by single spaces; empty for a rule that asks for nothing and does nothing.
impl fmt::Display for RuleText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> Written {
        let mut out = Parted { out: f, begun: false };
        words(&mut out, self.rule, self.family)
    }
}

/// Writes ` -s ... -j ...`: the rule's words with a space before each.
pub(super) fn write_words(out: &mut dyn Write, rule: &Rule, family: Family) -> Written {
    words(out, rule, family)
}

/// Leaves out the space at the very beginning.
struct Parted<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    begun: bool,
}

impl Write for Parted<'_, '_> {
    fn write_str(&mut self, text: &str) -> Written {
        if self.begun || text.is_empty() {
            return self.out.write_str(text);
        }
        self.begun = true;
        self.out.write_str(text.strip_prefix(' ').unwrap_or(text))
    }
}

fn words(out: &mut dyn Write, rule: &Rule, family: Family) -> Written {
    let masked = masked_addresses(&rule.matches);
    address(out, "-s", rule.src.as_ref())?;
    other_words(out, masked.of("-s"))?;
    address(out, "-d", rule.dst.as_ref())?;
    other_words(out, masked.of("-d"))?;
    interface(out, "-i", rule.in_interface.as_ref())?;
    interface(out, "-o", rule.out_interface.as_ref())?;
    if let Some(protocol) = &rule.protocol {
        not(out, protocol)?;
        out.write_str(" -p")?;
        bare(out, protocol.value().as_str())?;
    }
    other_words(out, masked.rest)?;
    for m in &rule.matches[usize::from(masked.is_a_match)..] {
        one_match(out, m, family)?;
    }
    target(out, &rule.target)
}

/// The words of a rule's first match that has no module: addresses under masks that are no prefix are printed with the
/// other addresses.
#[derive(Default)]
struct Masked<'a> {
    src: &'a [Arc<str>],
    dst: &'a [Arc<str>],
    rest: &'a [Arc<str>],
    is_a_match: bool,
}

impl<'a> Masked<'a> {
    fn of(&self, option: &str) -> &'a [Arc<str>] {
        if option == "-s" { self.src } else { self.dst }
    }
}

fn masked_addresses(matches: &[Match]) -> Masked<'_> {
    let Some(Match::Other { module, words }) = matches.first() else {
        return Masked::default();
    };
    if !module.is_empty() {
        return Masked::default();
    }
    let (src, rest) = off_the_front(words, "-s");
    let (dst, rest) = off_the_front(rest, "-d");
    Masked {
        src,
        dst,
        rest,
        is_a_match: true,
    }
}

/// `[!] OPTION VALUE`, if the words begin so, and the others.
fn off_the_front<'a>(words: &'a [Arc<str>], option: &str) -> (&'a [Arc<str>], &'a [Arc<str>]) {
    let count = match words {
        [not, name, _, ..] if &**not == "!" && &**name == option => 3,
        [name, _, ..] if &**name == option => 2,
        _ => 0,
    };
    words.split_at(count)
}

/// The ` !` before the option.
fn not<T>(out: &mut dyn Write, is: &Is<T>) -> Written {
    match is {
        Is::Equal(_) => Ok(()),
        Is::Not(_) => out.write_str(" !"),
    }
}

fn address(out: &mut dyn Write, option: &str, is: Option<&Is<IpNet>>) -> Written {
    let Some(is) = is else { return Ok(()) };
    not(out, is)?;
    write!(out, " {option} {}", is.value())
}

fn interface(out: &mut dyn Write, option: &str, is: Option<&Is<Arc<str>>>) -> Written {
    let Some(is) = is else { return Ok(()) };
    not(out, is)?;
    write!(out, " {option}")?;
    bare(out, is.value())
}

fn one_match(out: &mut dyn Write, m: &Match, family: Family) -> Written {
    match m {
        Match::Comment(text) => {
            out.write_str(" -m comment --comment")?;
            text_value(out, text)
        }
        Match::Ports { module, src, dst } => {
            out.write_str(" -m ")?;
            out.write_str(module.as_lower())?;
            ports(out, "--sport", *src)?;
            ports(out, "--dport", *dst)
        }
        Match::CtState(is) => ct_state(out, is),
        Match::AddrType { src, dst } => {
            out.write_str(" -m addrtype")?;
            address_type(out, "--src-type", src.as_ref())?;
            address_type(out, "--dst-type", dst.as_ref())
        }
        Match::Mark { is } => mark(out, is),
        Match::Probability(units) => probability(out, *units),
        Match::Recent(recent) => one_recent(out, recent, family),
        Match::Nfacct(name) => {
            // The module prints a space of its own before the value: `nfacct_save` of `extensions/libxt_nfacct.c`.
            out.write_str(" -m nfacct --nfacct-name ")?;
            text_value(out, name)
        }
        Match::Other { module, words } => {
            if !module.is_empty() {
                out.write_str(" -m")?;
                bare(out, module)?;
            }
            other_words(out, words)
        }
    }
}

fn ports(out: &mut dyn Write, option: &str, is: Option<Is<PortRange>>) -> Written {
    let Some(is) = is else { return Ok(()) };
    not(out, &is)?;
    let PortRange { first, last } = *is.value();
    write!(out, " {option} {first}")?;
    if first == last {
        Ok(())
    } else {
        write!(out, ":{last}")
    }
}

fn ct_state(out: &mut dyn Write, is: &Is<Vec<CtState>>) -> Written {
    out.write_str(" -m conntrack")?;
    not(out, is)?;
    out.write_str(" --ctstate")?;
    for (i, state) in is.value().iter().enumerate() {
        out.write_str(if i == 0 { " " } else { "," })?;
        out.write_str(state.as_str())?;
    }
    Ok(())
}

fn address_type(out: &mut dyn Write, option: &str, is: Option<&Is<AddrType>>) -> Written {
    let Some(is) = is else { return Ok(()) };
    not(out, is)?;
    write!(out, " {option}")?;
    bare(out, is.value().as_str())
}

fn mark(out: &mut dyn Write, is: &Is<(u32, u32)>) -> Written {
    out.write_str(" -m mark")?;
    not(out, is)?;
    match *is.value() {
        (value, u32::MAX) => write!(out, " --mark {value:#x}"),
        (value, mask) => write!(out, " --mark {value:#x}/{mask:#x}"),
    }
}

/// Eleven digits of units/2^31, ties to even as C's printf has it.
fn probability(out: &mut dyn Write, units: u32) -> Written {
    const ELEVEN_DIGITS: u128 = 100_000_000_000;
    let scaled = u128::from(units) * ELEVEN_DIGITS;
    let (digits, rest) = (scaled >> 31, scaled & ((1 << 31) - 1));
    let half = 1 << 30;
    let up = rest > half || (rest == half && digits % 2 == 1);
    let digits = digits + u128::from(up);
    let (whole, fraction) = (digits / ELEVEN_DIGITS, digits % ELEVEN_DIGITS);
    write!(
        out,
        " -m statistic --mode random --probability {whole}.{fraction:011}"
    )
}

fn one_recent(out: &mut dyn Write, recent: &Recent, family: Family) -> Written {
    out.write_str(" -m recent")?;
    match recent.action {
        RecentAction::Set => out.write_str(" --set")?,
        RecentAction::RcheckReap { seconds } => write!(out, " --rcheck --seconds {seconds} --reap")?,
    }
    out.write_str(" --name")?;
    bare(out, &recent.name)?;
    write!(out, " --mask {} --rsource", full_mask(family))
}

fn target(out: &mut dyn Write, target: &Target) -> Written {
    match target {
        Target::None => Ok(()),
        Target::Jump(chain) => {
            out.write_str(" -j ")?;
            out.write_str(chain.as_str())
        }
        Target::Goto(chain) => {
            out.write_str(" -g ")?;
            out.write_str(chain.as_str())
        }
        Target::Accept => out.write_str(" -j ACCEPT"),
        Target::Drop => out.write_str(" -j DROP"),
        Target::Return => out.write_str(" -j RETURN"),
        Target::Reject(with) => {
            out.write_str(" -j REJECT --reject-with")?;
            bare(out, with)
        }
        Target::Dnat(to) => write!(out, " -j DNAT --to-destination {to}"),
        Target::Masquerade(Ports::Kept) => out.write_str(" -j MASQUERADE"),
        Target::Masquerade(Ports::RandomFully) => out.write_str(" -j MASQUERADE --random-fully"),
        Target::Mark { value, mask } => write!(out, " -j MARK --set-xmark {value:#x}/{mask:#x}"),
        Target::Other { name, words } => {
            out.write_str(" -j")?;
            bare(out, name)?;
            other_words(out, words)
        }
    }
}

/// Options whose value `iptables-save` prints as text, in quotes unless it is one plain word.
const TEXT_OPTIONS: [&str; 5] = [
    "--comment",
    "--log-prefix",
    "--nflog-prefix",
    "--nfacct-name",
    "--selctx",
];

/// Options whose value it prints in quotes whatever it is: `extensions/libxt_string.c`, `libxt_u32.c`, `libxt_bpf.c`.
const QUOTED_OPTIONS: [&str; 4] = ["--string", "--hex-string", "--u32", "--bytecode"];

/// Whether what follows is a text, which may look like an option.
pub(crate) fn takes_text(option: &str) -> bool {
    TEXT_OPTIONS.contains(&option) || QUOTED_OPTIONS.contains(&option)
}

fn other_words(out: &mut dyn Write, words: &[Arc<str>]) -> Written {
    let mut before = "";
    for word in words {
        if TEXT_OPTIONS.contains(&before) {
            text_value(out, word)?;
        } else if QUOTED_OPTIONS.contains(&before) {
            quoted_but_for(out, word, &['"', '\\'])?;
        } else {
            bare(out, word)?;
        }
        before = word;
    }
    Ok(())
}

/// A word as it is, in quotes only if it would be another word without them.
fn bare(out: &mut dyn Write, word: &str) -> Written {
    if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '\0' || "\"\\'".contains(c)) {
        return quoted(out, word);
    }
    out.write_str(" ")?;
    out.write_str(word)
}

/// A text as the tools' `xtables_save_string` prints it: bare if it has only letters, digits, `_` and `-`.
fn text_value(out: &mut dyn Write, text: &str) -> Written {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !text.is_empty() && text.bytes().all(plain) {
        out.write_str(" ")?;
        return out.write_str(text);
    }
    quoted(out, text)
}

/// Every word that is not plain comes here. The tools read line by line, within quotes too: what follows a newline would
/// be a line of its own, and a zero would be the end.
fn quoted(out: &mut dyn Write, text: &str) -> Written {
    quoted_but_for(out, text, &['"', '\\', '\''])
}

/// The same with a backslash before these characters.
fn quoted_but_for(out: &mut dyn Write, text: &str, escaped: &[char]) -> Written {
    if text.contains(['\n', '\0']) {
        return Err(fmt::Error);
    }
    out.write_str(" \"")?;
    for part in text.split_inclusive(escaped) {
        match part.char_indices().next_back() {
            Some((at, last)) if escaped.contains(&last) => {
                out.write_str(&part[..at])?;
                out.write_char('\\')?;
                out.write_char(last)?;
            }
            _ => out.write_str(part)?,
        }
    }
    out.write_str("\"")
}
