//! Words, quoted words and signs.

use super::ParseError;
use std::sync::Arc;

/// One token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// Anything without spaces and signs.
    Word(&'a str),
    /// What stood in quotes.
    Quoted(&'a str),
    /// One of `{ } ( ) ,`.
    Sign(char),
    /// The end of a line, or `;`.
    End,
}

/// The tokens of a text, with a place in them.
#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    all: Arc<[(Token<'a>, u32)]>,
    at: usize,
}

const SIGNS: [char; 6] = ['{', '}', '(', ')', ',', ';'];

/// Whether what begins with a `#` names a module of xtables.
fn is_module(rest: &str) -> bool {
    rest.strip_prefix("# xt_")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Where what stands in quotes ends. `nft` prints quotes within it as they are (`log prefix "a "b": "`), so that only those
/// end it that something else can follow.
fn end_of_quoted(body: &str) -> usize {
    let ends = |at: usize| {
        let mut rest = body[at..].chars();
        match (rest.next(), rest.next()) {
            (Some('\n'), _) | (_, None) => true,
            // JSON that is kept word by word has no spaces there.
            (_, Some(':')) => rest.next().is_some_and(|c| !c.is_whitespace()),
            (_, Some(next)) => next.is_whitespace() || SIGNS.contains(&next) || ['-', ']'].contains(&next),
        }
    };
    let mut candidates = body.match_indices(['"', '\n']).map(|(at, _)| at);
    candidates.find(|at| ends(*at)).unwrap_or(body.len())
}

impl<'a> Tokens<'a> {
    /// Cuts a text into tokens. Comments are left out; a backslash at its end joins a line to the next.
    ///
    /// Versions of `nft` before 1.0.3 print `# xt_tcp` for a module of xtables amid a rule: that is none.
    pub(super) fn of(text: &'a str) -> Tokens<'a> {
        let mut all = Vec::new();
        let (mut rest, mut line) = (text, 1);
        while let Some(first) = rest.chars().next() {
            let used = match first {
                '\n' => {
                    all.push((Token::End, line));
                    line += 1;
                    1
                }
                '\\' if rest[1..].starts_with('\n') => {
                    line += 1;
                    2
                }
                '#' if is_module(rest) => {
                    all.push((Token::Word(&rest[..1]), line));
                    1
                }
                '#' => rest.find('\n').unwrap_or(rest.len()),
                // `(fin|syn|rst|ack)`
                '|' => {
                    all.push((Token::Word(&rest[..1]), line));
                    1
                }
                '"' => {
                    let body = &rest[1..];
                    let end = end_of_quoted(body);
                    all.push((Token::Quoted(&body[..end]), line));
                    1 + end + usize::from(body[end..].starts_with('"'))
                }
                ';' => {
                    all.push((Token::End, line));
                    1
                }
                sign if SIGNS.contains(&sign) => {
                    all.push((Token::Sign(sign), line));
                    1
                }
                space if space.is_whitespace() => space.len_utf8(),
                _ => {
                    let ends = |c: char| c.is_whitespace() || SIGNS.contains(&c) || ['"', '|'].contains(&c);
                    let end = rest.find(ends).unwrap_or(rest.len());
                    all.push((Token::Word(&rest[..end]), line));
                    end
                }
            };
            rest = &rest[used..];
        }
        Tokens {
            all: all.into(),
            at: 0,
        }
    }

    /// The next token, without taking it.
    pub(super) fn peek(&self) -> Option<&Token<'a>> {
        self.all.get(self.at).map(|(token, _)| token)
    }

    /// The next token's word; `None` for a sign or the end.
    pub(super) fn word(&self) -> Option<&'a str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    /// Takes the next token.
    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    /// Takes the next word if it is this one.
    pub(super) fn eat(&mut self, word: &str) -> bool {
        let is = self.word() == Some(word);
        self.at += usize::from(is);
        is
    }

    /// Takes the next sign if it is this one.
    pub(super) fn eat_sign(&mut self, sign: char) -> bool {
        let is = self.peek() == Some(&Token::Sign(sign));
        self.at += usize::from(is);
        is
    }

    /// Takes a word, or what is in quotes.
    pub(super) fn text(&mut self) -> Option<&'a str> {
        match self.peek() {
            Some(Token::Word(word) | Token::Quoted(word)) => {
                let word = *word;
                self.at += 1;
                Some(word)
            }
            _ => None,
        }
    }

    /// Takes ends of lines.
    pub(super) fn skip_ends(&mut self) {
        while self.peek() == Some(&Token::End) {
            self.at += 1;
        }
    }

    /// Whether a statement, or the block it is in, ends here.
    pub(super) fn at_end(&self) -> bool {
        matches!(self.peek(), None | Some(Token::End | Token::Sign('}')))
    }

    /// Takes everything to the end of the line, as text. What stands in braces on more lines belongs to it.
    pub(super) fn line_text(&mut self) -> Arc<str> {
        let from = self.at;
        let mut depth = 0_usize;
        while let Some(token) = self.peek() {
            match token {
                Token::End | Token::Sign('}') if depth == 0 => break,
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        self.text_from(from)
    }

    /// The tokens from a place up to here, as text.
    pub(super) fn text_from(&self, from: usize) -> Arc<str> {
        let mut text = String::new();
        for (token, _) in &self.all[from..self.at] {
            let (word, close) = match token {
                Token::Word(word) => ((*word).to_owned(), false),
                Token::Quoted(word) => (format!("\"{word}\""), false),
                Token::Sign(',') => (",".to_owned(), true),
                Token::Sign(sign) => (sign.to_string(), *sign == ')'),
                Token::End => continue,
            };
            let joined = close || text.is_empty() || text.ends_with(['(']);
            if !joined {
                text.push(' ');
            }
            text.push_str(&word);
        }
        text.into()
    }

    /// The place, to come back to.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Comes back to a place.
    pub(super) fn go_back(&mut self, place: usize) {
        self.at = place;
    }

    /// An error at this place.
    pub(super) fn error(&self, expected: &str) -> ParseError {
        let last = || self.all.last().map_or(1, |(_, line)| *line);
        let line = self.all.get(self.at).map_or_else(last, |(_, line)| *line);
        let found = match self.peek() {
            None => "the end of the text".to_owned(),
            Some(Token::Word(word)) => format!("{word:?}"),
            Some(Token::Quoted(word)) => format!("\"{word}\" in quotes"),
            Some(Token::Sign(sign)) => format!("{sign:?}"),
            Some(Token::End) => "the end of the line".to_owned(),
        };
        ParseError {
            line,
            what: format!("expected {expected}, found {found}"),
        }
    }
}
