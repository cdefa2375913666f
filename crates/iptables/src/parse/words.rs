//! A line's words, as `iptables-restore` splits them (`add_param_to_argv` of its sources).

/// The words of a line; `None` when a quote stays open.
///
/// Double quotes may open anywhere in a word; within them a backslash takes the next character as it is.
pub(super) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        if c == '"' {
            quoted(&mut chars, word.get_or_insert_default())?;
        } else if c.is_ascii_whitespace() {
            words.extend(word.take());
        } else {
            word.get_or_insert_default().push(c);
        }
    }
    words.extend(word);
    Some(words)
}

/// Reads up to the closing quote.
fn quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Option<()> {
    loop {
        match chars.next()? {
            '"' => return Some(()),
            '\\' => word.push(chars.next()?),
            c => word.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_hold_words_together() {
        let split = words(r#"-A X  -m comment --comment "a \"b\" \\ c" -j "" "#).unwrap();
        assert_eq!(
            split,
            ["-A", "X", "-m", "comment", "--comment", r#"a "b" \ c"#, "-j", ""]
        );
    }

    #[test]
    fn an_open_quote_is_no_line() {
        assert_eq!(words("-A X \"open"), None);
    }
}
