//! Texts as people mail them: in other encodings, with fences and prompts around them, or of another command.

/// The text of bytes. Comments of rules may be in any encoding: what is not UTF-8 in them decides nothing. What a shell of
/// Windows wrote into a file is UTF-16.
pub(crate) fn text_of(bytes: Vec<u8>) -> String {
    let units = |of: fn([u8; 2]) -> u16| -> String {
        let pairs = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        String::from_utf16_lossy(&pairs.collect::<Vec<u16>>())
    };
    match bytes.as_slice() {
        [0xff, 0xfe, ..] => units(u16::from_le_bytes),
        [0xfe, 0xff, ..] => units(u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
    }
}

/// Whether the end of what `iptables-save` printed is missing: a table that no COMMIT ends. Other lines may follow, such as
/// the end of a fence, or a prompt.
pub(crate) fn is_cut(saved: &str) -> bool {
    let of_save = |line: &&str| line.starts_with(['*', ':', '-', '[']) || line.starts_with("COMMIT");
    let last = saved.lines().rev().map(str::trim).find(of_save);
    last.is_some_and(|line| line != "COMMIT")
}

/// What a text without tables of `iptables-save` is instead, and what to give.
pub(crate) fn instead(text: &str) -> Option<&'static str> {
    let mut lines = text.lines().map(str::trim);
    let begins = |word: &'static str| move |line: &str| line.starts_with(word);
    if text.starts_with("\u{1f}\u{fffd}") || text.starts_with("\u{28}\u{fffd}/\u{fffd}") {
        return Some("it is compressed: unpack it first");
    }
    if lines
        .clone()
        .any(|line| line.starts_with("Chain ") && line.ends_with(')'))
    {
        return Some(
            "it is what iptables -L prints, which leaves out interfaces and tables: give what iptables-save prints",
        );
    }
    if lines.clone().any(begins("-P ")) || lines.clone().any(begins("-N ")) {
        return Some(
            "it is what iptables -S prints, which has one table and does not name it: give what iptables-save prints",
        );
    }
    lines
        .any(|line| line.ends_with("TCP") && line.contains(" rr"))
        .then_some("it is what ipvsadm prints: give what iptables-save prints")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -s 10.0.0.0/8 -j ACCEPT\nCOMMIT\n";

    #[test]
    fn encodings_of_other_shells_are_read() {
        let of_units = |order: fn(u16) -> [u8; 2]| -> Vec<u8> {
            let text = format!("\u{feff}{SAVED}");
            text.encode_utf16().flat_map(order).collect()
        };
        for bytes in [
            SAVED.as_bytes().to_vec(),
            of_units(u16::to_le_bytes),
            of_units(u16::to_be_bytes),
            [b"\xef\xbb\xbf", SAVED.as_bytes()].concat(),
        ] {
            assert_eq!(text_of(bytes), SAVED);
        }
        assert_eq!(text_of(b"caf\xe9".to_vec()), "caf\u{fffd}");
    }

    #[test]
    fn what_is_around_rules_is_no_missing_end_and_what_is_cut_is() {
        for whole in [
            SAVED.to_owned(),
            format!("```\n{SAVED}```\n"),
            format!("$ sudo iptables-save\n{SAVED}# Completed on Wed\nnode-a $ "),
            String::new(),
        ] {
            assert!(!is_cut(&whole), "{whole}");
        }
        for end in 1..SAVED.len() - "COMMIT\n".len() {
            assert!(is_cut(&SAVED[..end]), "{:?}", &SAVED[..end]);
        }
    }

    #[test]
    fn other_commands_and_packed_files_are_told() {
        let gzip = text_of(vec![0x1f, 0x8b, 8, 0, 0]);
        for (text, words) in [
            (
                "Chain INPUT (policy ACCEPT)\ntarget prot opt source destination\n",
                "iptables -L",
            ),
            ("-P INPUT ACCEPT\n-A INPUT -j DROP\n", "iptables -S"),
            (gzip.as_str(), "compressed"),
        ] {
            assert!(instead(text).is_some_and(|told| told.contains(words)), "{text}");
        }
        assert_eq!(instead(SAVED), None);
    }
}
