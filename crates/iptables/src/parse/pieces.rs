//! A rule's words, sorted by what they belong to.
//!
//! `iptables-save` prints addresses, then matches, then the target. The input of a restore may mix them: an option
//! belongs to the last match or target that was opened, whatever stands between.

use crate::ast::Is;
use crate::render::takes_text;

/// A rule's words, sorted.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// `-s`
    pub src: Option<Is<String>>,
    /// `-d`
    pub dst: Option<Is<String>>,
    /// `-i`
    pub in_interface: Option<Is<String>>,
    /// `-o`
    pub out_interface: Option<Is<String>>,
    /// `-p`
    pub protocol: Option<Is<String>>,
    /// Words that belong to nothing of these.
    pub loose: Vec<String>,
    /// `-m MODULE` with its words.
    pub matches: Vec<(String, Vec<String>)>,
    /// `-j` or `-g` with its words.
    pub target: Option<TargetPiece>,
}

/// `-j NAME` or `-g NAME` with its words.
#[derive(Debug)]
pub(super) struct TargetPiece {
    pub verb: Verb,
    pub name: String,
    pub words: Vec<String>,
}

/// How a target is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Jump,
    Goto,
}

/// What the next option belongs to.
#[derive(Clone, Copy)]
enum Open {
    Nothing,
    Match(usize),
    Target,
}

/// Options that belong to the rule itself.
#[derive(Clone, Copy)]
enum Own {
    Src,
    Dst,
    In,
    Out,
    Protocol,
    Match,
    Target(Verb),
    Counters,
}

impl Own {
    fn of(word: &str) -> Option<Own> {
        Some(match word {
            "-s" | "--source" | "--src" => Own::Src,
            "-d" | "--destination" | "--dst" => Own::Dst,
            "-i" | "--in-interface" => Own::In,
            "-o" | "--out-interface" => Own::Out,
            "-p" | "--protocol" => Own::Protocol,
            "-m" | "--match" => Own::Match,
            "-j" | "--jump" => Own::Target(Verb::Jump),
            "-g" | "--goto" => Own::Target(Verb::Goto),
            "-c" | "--set-counters" => Own::Counters,
            _ => return None,
        })
    }
}

/// Sorts a rule's words; `None` when an option stands twice or without its value, or a `!` without its option.
pub(super) fn sort(words: Vec<String>) -> Option<Pieces> {
    let mut sorting = Sorting {
        pieces: Pieces::default(),
        open: Open::Nothing,
        not: false,
        ports_module: ports_module(&words),
    };
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        sorting.word(word, &mut words)?;
    }
    (!sorting.not).then_some(sorting.pieces)
}

struct Sorting {
    pieces: Pieces,
    open: Open,
    /// Whether a `!` waits for the option that it turns around.
    not: bool,
    /// The module that iptables opens by itself for options of ports.
    ports_module: Option<String>,
}

/// Modules that know `--dport`.
const PORTS_MODULES: [&str; 5] = ["tcp", "udp", "sctp", "dccp", "udplite"];

/// The protocol that the words ask for, wherever they do, if its module knows ports.
fn ports_module(words: &[String]) -> Option<String> {
    let at = words
        .iter()
        .position(|word| word == "-p" || word == "--protocol")?;
    let asked_not = at > 0 && words[at - 1] == "!";
    let protocol = super::rule::protocol_word(words.get(at + 1)?);
    (!asked_not && PORTS_MODULES.contains(&protocol)).then(|| protocol.to_owned())
}

impl Sorting {
    fn word(&mut self, word: String, rest: &mut impl Iterator<Item = String>) -> Option<()> {
        if let Some(own) = Own::of(&word) {
            return self.own(own, rest);
        }
        if word == "!" && !self.not {
            self.not = true;
            return Some(());
        }
        self.implied_module(&word);
        let takes_text = takes_text(&word);
        let not = std::mem::take(&mut self.not);
        let opened = self.opened();
        if not {
            opened.push("!".to_owned());
        }
        opened.push(word);
        if takes_text {
            // A text may look like an option.
            opened.push(rest.next()?);
        }
        Some(())
    }

    fn own(&mut self, own: Own, rest: &mut impl Iterator<Item = String>) -> Option<()> {
        let mut value = rest.next()?;
        let mut not = std::mem::take(&mut self.not);
        if value == "!" && !not {
            // The old place of the exclamation mark.
            not = true;
            value = rest.next()?;
        }
        if value.starts_with(['-', '!']) {
            return None;
        }
        let slot = match own {
            Own::Src => &mut self.pieces.src,
            Own::Dst => &mut self.pieces.dst,
            Own::In => &mut self.pieces.in_interface,
            Own::Out => &mut self.pieces.out_interface,
            Own::Protocol => &mut self.pieces.protocol,
            Own::Match | Own::Target(_) | Own::Counters if not => return None,
            // A module without a name has another meaning in our types.
            Own::Match if value.is_empty() => return None,
            Own::Match => {
                self.open = Open::Match(self.pieces.matches.len());
                self.pieces.matches.push((value, Vec::new()));
                return Some(());
            }
            Own::Target(verb) => return self.target(verb, value),
            Own::Counters => return rest.next().map(drop),
        };
        let twice = slot
            .replace(if not { Is::Not(value) } else { Is::Equal(value) })
            .is_some();
        (!twice).then_some(())
    }

    fn target(&mut self, verb: Verb, name: String) -> Option<()> {
        self.open = Open::Target;
        let twice = self.pieces.target.replace(TargetPiece {
            verb,
            name,
            words: Vec::new(),
        });
        twice.is_none().then_some(())
    }

    /// `-p tcp --dport 80` without `-m tcp`: iptables opens the protocol's module by itself.
    fn implied_module(&mut self, word: &str) {
        const OPTIONS: [&str; 4] = ["--sport", "--dport", "--source-port", "--destination-port"];
        if let Open::Match(at) = self.open
            && PORTS_MODULES.contains(&&*self.pieces.matches[at].0)
        {
            return;
        }
        let Some(module) = self.ports_module.as_ref().filter(|_| OPTIONS.contains(&word)) else {
            return;
        };
        let matches = &mut self.pieces.matches;
        let at = matches.iter().rposition(|(name, _)| name == module);
        self.open = Open::Match(at.unwrap_or_else(|| {
            matches.push((module.clone(), Vec::new()));
            matches.len() - 1
        }));
    }

    fn opened(&mut self) -> &mut Vec<String> {
        let pieces = &mut self.pieces;
        match (self.open, &mut pieces.target) {
            (Open::Match(at), _) => &mut pieces.matches[at].1,
            (Open::Target, Some(target)) => &mut target.words,
            (Open::Target | Open::Nothing, _) => &mut pieces.loose,
        }
    }
}
