//! Patterns of `vmodule`: `*` any letters, `?` one letter, `[a-c]` one of some, `[^a-c]` none of them, `\` takes the next
//! letter as it is. A malformed pattern matches nothing.

/// Whether a pattern fits a whole name.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    fits(&pattern, &name)
}

fn fits(pattern: &[char], name: &[char]) -> bool {
    match pattern {
        [] => name.is_empty(),
        ['*', rest @ ..] => (0..=name.len()).any(|skipped| fits(rest, &name[skipped..])),
        ['[', rest @ ..] => match (class(rest), name) {
            (Some((chars, not, rest)), [first, others @ ..]) => {
                chars.iter().any(|(low, high)| (low..=high).contains(&first)) != not && fits(rest, others)
            }
            _ => false,
        },
        [wanted, rest @ ..] => {
            let (wanted, rest) = match (wanted, rest) {
                ('\\', [escaped, rest @ ..]) => (Some(escaped), rest),
                ('\\', []) => return false,
                ('?', _) => (None, rest),
                _ => (Some(wanted), rest),
            };
            match name {
                [first, others @ ..] => wanted.is_none_or(|wanted| wanted == first) && fits(rest, others),
                [] => false,
            }
        }
    }
}

/// The ranges of a class, whether it is turned round, and what follows its bracket.
type Class<'a> = (Vec<(char, char)>, bool, &'a [char]);

fn class(mut pattern: &[char]) -> Option<Class<'_>> {
    let not = pattern.first() == Some(&'^');
    if not {
        pattern = &pattern[1..];
    }
    let mut ranges = Vec::new();
    loop {
        match pattern {
            [']', rest @ ..] if !ranges.is_empty() => return Some((ranges, not, rest)),
            [low, '-', high, rest @ ..] if *high != ']' => {
                ranges.push((*low, *high));
                pattern = rest;
            }
            [']' | '-', ..] | [] => return None,
            [one, rest @ ..] => {
                ranges.push((*one, *one));
                pattern = rest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_fit_whole_names() {
        for (pattern, name) in [
            ("tell", "tell"),
            ("t*", "tell"),
            ("*", ""),
            ("*e*l", "tell"),
            ("?ell", "tell"),
            ("[a-t]ell", "tell"),
            ("[xt]ell", "tell"),
            ("[^x]ell", "tell"),
            ("\\*", "*"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("tell", "teller"),
            ("ell", "tell"),
            ("?tell", "tell"),
            ("[a-s]ell", "tell"),
            ("[^t]ell", "tell"),
            ("[tell", "tell"),
            ("[]tell", "tell"),
            ("\\", "\\"),
            ("", "tell"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
