//! Whole tables, line by line.

use super::rule::from_words;
use super::words::words;
use crate::ast::{Chain, ChainName, Policy, Ruleset, TableName};
use model::Family;
use std::collections::BTreeMap;

/// A line that is neither a rule nor a chain of a table we know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opaque {
    /// Its number in the input, from 1.
    pub line: usize,
    /// The table it stands in, if it stands in one we know.
    pub table: Option<TableName>,
    /// The line.
    pub text: String,
}

/// The table that a line of `iptables-save` says is left out: `iptables-nft-save` prints nothing of a table with rules that it
/// has no words for but a comment that it is incompatible, and ends well.
pub fn left_out(line: &str) -> Option<TableName> {
    let (name, rest) = line.trim_start().strip_prefix("# Table `")?.split_once('\'')?;
    rest.starts_with(" is incompatible")
        .then(|| TableName::from_word(name))
        .flatten()
}

/// What a text of `iptables-save` holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Save {
    /// The tables.
    pub ruleset: Ruleset,
    /// What was not understood, in order.
    pub opaque: Vec<Opaque>,
}

/// Something that [`SaveParser`] has read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A table begins.
    Table(TableName),
    /// A chain with its rules. `iptables-save` prints a chain's rules together, so each chain comes once; of a restore
    /// that mixes chains come several pieces, whose rules follow each other.
    Chain(TableName, ChainName, Chain),
    /// A line that was not understood.
    Opaque(Opaque),
}

/// Reads a whole text.
pub fn save(text: &str, family: Family) -> Save {
    let mut save = Save::default();
    let mut sink = |piece| save.put(piece);
    let mut parser = SaveParser::new(family, &mut sink);
    for line in text.lines() {
        parser.line(line);
    }
    parser.finish();
    save
}

impl Save {
    /// Takes in one piece after the other.
    pub fn put(&mut self, piece: Piece) {
        match piece {
            Piece::Opaque(opaque) => self.opaque.push(opaque),
            Piece::Table(table) => {
                self.ruleset.tables.entry(table).or_default();
            }
            Piece::Chain(table, name, chain) => {
                let table = self.ruleset.tables.entry(table).or_default();
                let known = table.chains.entry(name).or_default();
                known.policy = known.policy.or(chain.policy);
                known.rules.extend(chain.rules);
            }
        }
    }
}

/// Reads a text line by line and hands on each chain as soon as it is whole, so that a large table is never held.
///
/// What it remembers is the names of the chains of the table it is in. The forms of `iptables -S` are understood as
/// well, after [`SaveParser::enter`].
pub struct SaveParser<'a> {
    family: Family,
    sink: &'a mut dyn FnMut(Piece),
    line: usize,
    table: Option<OpenTable>,
}

struct OpenTable {
    name: TableName,
    /// The chains of which no rule has been seen yet.
    waiting: BTreeMap<ChainName, Option<Policy>>,
    current: Option<(ChainName, Chain)>,
}

impl<'a> SaveParser<'a> {
    /// A parser that has read nothing yet.
    pub fn new(family: Family, sink: &'a mut dyn FnMut(Piece)) -> Self {
        SaveParser {
            family,
            sink,
            line: 0,
            table: None,
        }
    }

    /// Takes the next line, with or without its end.
    pub fn line(&mut self, line: &str) {
        self.line += 1;
        let line = line.trim_end_matches(['\n', '\r']);
        let words = line.trim_start();
        if left_out(words).is_some() {
            let opaque = Opaque {
                line: self.line,
                table: None,
                text: line.to_owned(),
            };
            (self.sink)(Piece::Opaque(opaque));
            return;
        }
        if words.is_empty() || words.starts_with('#') {
            return;
        }
        if self.understood(words).is_none() {
            let opaque = Opaque {
                line: self.line,
                table: self.table.as_ref().map(|t| t.name),
                text: line.to_owned(),
            };
            (self.sink)(Piece::Opaque(opaque));
        }
    }

    /// Begins a table, as the line `*table` does; the one before is whole now.
    pub fn enter(&mut self, name: TableName) {
        self.leave();
        (self.sink)(Piece::Table(name));
        self.table = Some(OpenTable {
            name,
            waiting: BTreeMap::new(),
            current: None,
        });
    }

    /// There are no more lines.
    pub fn finish(mut self) {
        self.leave();
    }

    fn leave(&mut self) {
        let Some(mut table) = self.table.take() else {
            return;
        };
        table.hand_on(self.sink);
        for (name, policy) in table.waiting {
            let chain = Chain {
                policy,
                rules: Vec::new(),
            };
            (self.sink)(Piece::Chain(table.name, name, chain));
        }
    }

    fn understood(&mut self, line: &str) -> Option<()> {
        if let Some(table) = line.strip_prefix('*') {
            // The lines of a table we don't know are not those of the one before.
            self.leave();
            self.enter(TableName::from_word(table.trim_end())?);
            return Some(());
        }
        let table = self.table.as_mut()?;
        if line.trim_end() == "COMMIT" {
            self.leave();
            return Some(());
        }
        if let Some(chain) = line.strip_prefix(':') {
            return table.declare(chain);
        }
        table.command(without_counters(line), self.family, self.sink)
    }
}

impl OpenTable {
    /// `NAME POLICY [packets:bytes]`
    fn declare(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_ascii_whitespace();
        let name = ChainName::new(words.next()?).ok()?;
        let policy = match words.next()? {
            "-" => None,
            word => Some(policy(word)?),
        };
        self.waiting.insert(name, policy);
        Some(())
    }

    fn command(&mut self, line: &str, family: Family, sink: &mut dyn FnMut(Piece)) -> Option<()> {
        let mut words = words(line)?;
        if words.len() < 2 {
            return None;
        }
        let rest = words.split_off(2);
        let [verb, name] = <[String; 2]>::try_from(words).ok()?;
        match (&*verb, &*rest) {
            ("-A" | "--append", _) => {
                let again = || self::words(line).unwrap_or_default().split_off(2);
                let rule = from_words(rest, family, again);
                self.enter(&name, sink)?.rules.push(rule);
            }
            ("-N" | "--new-chain", []) => {
                self.waiting.insert(ChainName::new(&name).ok()?, None);
            }
            ("-P" | "--policy", [word]) => {
                let policy = policy(word)?;
                self.waiting.insert(ChainName::new(&name).ok()?, Some(policy));
            }
            _ => return None,
        }
        Some(())
    }

    /// The chain to which the next rule belongs.
    fn enter(&mut self, name: &str, sink: &mut dyn FnMut(Piece)) -> Option<&mut Chain> {
        if self.current.as_ref().is_none_or(|(n, _)| n.as_str() != name) {
            let (name, policy) = match self.waiting.remove_entry(name) {
                Some(waiting) => waiting,
                None => (ChainName::new(name).ok()?, None),
            };
            self.hand_on(sink);
            let chain = Chain {
                policy,
                rules: Vec::new(),
            };
            self.current = Some((name, chain));
        }
        self.current.as_mut().map(|(_, chain)| chain)
    }

    fn hand_on(&mut self, sink: &mut dyn FnMut(Piece)) {
        if let Some((name, chain)) = self.current.take() {
            sink(Piece::Chain(self.name, name, chain));
        }
    }
}

fn policy(word: &str) -> Option<Policy> {
    [Policy::Accept, Policy::Drop]
        .into_iter()
        .find(|p| p.as_str() == word)
}

/// A rule as `iptables-save -c` prints it, in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedLine<'a> {
    /// Packets that met it.
    pub packets: u64,
    /// Its chain.
    pub chain: &'a str,
    /// The rule's words, which [`super::rule`] reads.
    pub words: &'a str,
}

/// Parts of `[packets:bytes] -A CHAIN WORDS`; `None` for any other line.
pub fn counted_line(line: &str) -> Option<CountedLine<'_>> {
    let (counters, rest) = line.trim_end().strip_prefix('[')?.split_once(']')?;
    let (packets, _) = counters.split_once(':')?;
    let (chain, words) = rest.trim_start().strip_prefix("-A ")?.split_once(' ')?;
    Some(CountedLine {
        packets: packets.parse().ok()?,
        chain,
        words,
    })
}

/// `[packets:bytes] -A ...` without the counters.
fn without_counters(line: &str) -> &str {
    let counted = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    counted.map_or(line, |(_, rest)| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rules_counter_stands_before_it() {
        let line = "[12:720] -A KUBE-SERVICES -d 10.0.0.1/32 -j DROP\n";
        let expected = CountedLine {
            packets: 12,
            chain: "KUBE-SERVICES",
            words: "-d 10.0.0.1/32 -j DROP",
        };
        assert_eq!(counted_line(line), Some(expected));
        for other in [
            "-A KUBE-SERVICES -j DROP",
            ":KUBE-SERVICES - [1:2]",
            "[1:2] -X A",
            "[a:b] -A C -j D",
            "[1",
            "",
        ] {
            assert_eq!(counted_line(other), None, "{other}");
        }
    }
}
