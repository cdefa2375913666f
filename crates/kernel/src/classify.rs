//! From what a tool or the kernel answered to a [`FailureKind`]. The only place that reads such words.

use crate::process::{Finished, RunError};
use crate::{FailureKind, shortage};
use std::io::ErrorKind;

/// Exit status of the tools for "resource problem": the lock is held, or the kernel said no (iptables(8)).
const RESOURCE_PROBLEM: i32 = 4;

/// Words of iptables 1.8.9 and what they mean, in the order in which they are looked for.
///
/// Seen with both backends on kernel 6.18, except where a line says otherwise.
const WORDS: [(&str, FailureKind); 18] = [
    // Legacy alone takes the lock; exit status 4 after `-w` seconds.
    ("holding the xtables lock", FailureKind::Busy),
    ("Resource temporarily unavailable", FailureKind::Busy),
    ("you must be root", FailureKind::Denied),
    ("Permission denied", FailureKind::Denied),
    ("Operation not permitted", FailureKind::Denied),
    // A chain that holds rules or is jumped to will not become free by waiting.
    ("CHAIN_DEL failed (Device or resource busy)", FailureKind::Refused),
    (
        "CHAIN_USER_DEL failed (Device or resource busy)",
        FailureKind::Refused,
    ),
    ("Device or resource busy", FailureKind::Busy),
    ("Interrupted system call", FailureKind::Busy),
    ("Message too long", FailureKind::TooLarge),
    ("Too many open files", FailureKind::System),
    ("Cannot allocate memory", FailureKind::Other),
    ("No buffer space available", FailureKind::Other),
    ("Table does not exist", FailureKind::Other),
    ("Protocol not supported", FailureKind::Other),
    ("Error occurred at line", FailureKind::Refused),
    ("No chain/target/match by that name", FailureKind::Refused),
    (" failed", FailureKind::Refused),
];

/// What kind of failure a tool's end was. Not to be asked about a success.
pub(crate) fn tool_failure(finished: &Finished) -> FailureKind {
    if finished.signal.is_some() {
        return FailureKind::Other;
    }
    let known = WORDS.iter().find(|(words, _)| finished.stderr.contains(words));
    match (known, finished.code) {
        (Some((_, kind)), _) => *kind,
        (None, Some(RESOURCE_PROBLEM)) => FailureKind::Busy,
        (None, Some(1 | 2)) => FailureKind::Refused,
        (None, _) => FailureKind::Other,
    }
}

/// What `iptables-nft` 1.8.9 says of a chain with a rule of nftables that it has no words for.
const NO_WORDS: [&str; 2] = ["is incompatible, use 'nft' tool", "Parsing nftables rule failed"];

/// Whether a tool's words ([`detail`]) say that it has none for rules that are there, and will have none as long as they are.
pub(crate) fn has_no_words(detail: &str) -> bool {
    NO_WORDS.iter().any(|words| detail.contains(words))
}

/// What kind of failure it is when a tool could not be run to its end.
pub(crate) fn run_failure(error: &RunError) -> FailureKind {
    match error {
        RunError::Start(error) => match error.kind() {
            ErrorKind::NotFound => FailureKind::ToolMissing,
            ErrorKind::PermissionDenied => FailureKind::Denied,
            // The tool has seen nothing of what it was to do: no more files, processes or memory, no program of this kind.
            _ => FailureKind::System,
        },
        RunError::TimedOut(_) => FailureKind::TimedOut,
        RunError::TooMuch(_) | RunError::Talk(_) => FailureKind::System,
    }
}

/// The first input line that a complaint names, counted from 1.
pub(crate) fn named_line(stderr: &str) -> Option<usize> {
    let (_, after) = stderr
        .split_once("line ")
        .or_else(|| stderr.split_once("line: "))?;
    let digits = after.trim_start_matches([':', ' ']);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// How much of a tool's words is shown, in characters.
const WORDS_SHOWN: usize = 1_500;
/// How much of an input line is shown.
const LINE_SHOWN: usize = 500;

/// The tool's words, and the input line that they name; nothing in them that a terminal would obey, and not too much.
pub(crate) fn detail(finished: &Finished, input: &str) -> String {
    let mut words = finished.stderr.clone();
    if words.is_empty() {
        words = match (finished.code, finished.signal) {
            (_, Some(signal)) => format!("ended by signal {signal}"),
            (code, None) => format!("exit status {}, and no word of why", code.unwrap_or(-1)),
        };
    }
    // The advice to read the help is of no use in a log.
    let lines: Vec<&str> = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Try `"))
        .collect();
    let mut shown = shown(&lines.join(" "), WORDS_SHOWN);
    let named = named_line(&finished.stderr).and_then(|number| input.lines().nth(number.checked_sub(1)?));
    if let Some(line) = named {
        shown += &self::shown(&format!(" [input: {line}"), LINE_SHOWN);
        shown.push(']');
    }
    if let Some(advice) = shortage::advice_for_words(&finished.stderr) {
        shown = format!("{shown}; {advice}");
    }
    shown
}

/// A text without control characters, and of what is too long the beginning.
fn shown(text: &str, most: usize) -> String {
    let mut plain = text
        .chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .filter(|c| !c.is_control());
    let shown: String = plain.by_ref().take(most).collect();
    match plain.count() {
        0 => shown,
        more => format!("{shown} ... ({more} more characters)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LiesIn;

    fn ended(code: i32, stderr: &str) -> Finished {
        Finished {
            code: Some(code),
            signal: None,
            stderr: stderr.to_owned(),
        }
    }

    /// What iptables 1.8.9 really said, on kernel 6.18.
    const SEEN: [(i32, &str, FailureKind); 13] = [
        (
            1,
            "sendmsg() failed: Message too long\niptables-nft-restore: line 4751 failed: Message too long.",
            FailureKind::TooLarge,
        ),
        (
            4,
            "Another app is currently holding the xtables lock; still 3s 0us time ahead to have a chance to grab the lock...\nAnother app is currently holding the xtables lock. Perhaps you want to use the -w option?",
            FailureKind::Busy,
        ),
        (
            4,
            "iptables-nft-restore v1.8.9 (nf_tables): \nline 7: CHAIN_DEL failed (Device or resource busy): chain E",
            FailureKind::Refused,
        ),
        (
            4,
            "iptables-nft-restore v1.8.9 (nf_tables): \nline 6: RULE_APPEND failed (Too many links): rule in chain INPUT",
            FailureKind::Refused,
        ),
        (
            4,
            "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: RULE_APPEND failed (Invalid argument): rule in chain M",
            FailureKind::Refused,
        ),
        (
            2,
            "iptables-nft-restore v1.8.9 (nf_tables): Chain 'NOPE' does not exist\nError occurred at line: 7\nTry `iptables-nft-restore -h' or 'iptables-nft-restore --help' for more information.",
            FailureKind::Refused,
        ),
        (
            1,
            "iptables-nft-restore: line 2 failed: No chain/target/match by that name.",
            FailureKind::Refused,
        ),
        (1, "iptables-restore: line 7 failed", FailureKind::Refused),
        (
            1,
            "iptables-nft-restore: COMMIT expected at line 3",
            FailureKind::Refused,
        ),
        (
            4,
            "iptables-nft v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)",
            FailureKind::Denied,
        ),
        (
            3,
            "iptables v1.8.9 (legacy): can't initialize iptables table `filter': Permission denied (you must be root)\nPerhaps iptables or your kernel needs to be upgraded.",
            FailureKind::Denied,
        ),
        (
            4,
            "Fatal: can't open lock file /run/xtables.lock: Permission denied",
            FailureKind::Denied,
        ),
        (
            3,
            "iptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.",
            FailureKind::Other,
        ),
    ];

    #[test]
    fn real_complaints_have_their_kind() {
        for (code, stderr, kind) in SEEN {
            assert_eq!(tool_failure(&ended(code, stderr)), kind, "{stderr}");
        }
    }

    #[test]
    fn what_the_system_has_no_more_of_is_not_what_was_asked() {
        use rustix::io::Errno;
        for (errno, limit) in [
            (Errno::MFILE, "LimitNOFILE"),
            (Errno::NFILE, "fs.file-max"),
            (Errno::AGAIN, "pids.max"),
            (Errno::NOMEM, "memory.max"),
        ] {
            for error in [RunError::Start(errno.into()), RunError::Talk(errno.into())] {
                assert_eq!(run_failure(&error).lies_in(), LiesIn::Host, "{error}");
                assert!(error.words().contains(limit), "{}", error.words());
            }
        }
        for (words, limit) in [
            ("iptables-restore: open: Too many open files", "LimitNOFILE"),
            (
                "Fatal: can't open lock file /run/xtables.lock: Too many open files in system",
                "fs.file-max",
            ),
        ] {
            let finished = ended(4, words);
            assert_eq!(tool_failure(&finished).lies_in(), LiesIn::Host);
            let detail = detail(&finished, "");
            assert!(detail.contains(limit), "{detail}");
        }
    }

    #[test]
    fn detail_quotes_the_line_that_is_named() {
        let input = "*filter\n:E - [0:0]\n-X E\nCOMMIT\n";
        let complaint = "iptables-nft-restore v1.8.9 (nf_tables): \nline 3: CHAIN_DEL failed (Device or resource busy): chain E";
        assert_eq!(
            detail(&ended(4, complaint), input),
            "iptables-nft-restore v1.8.9 (nf_tables): line 3: CHAIN_DEL failed (Device or resource busy): chain E [input: -X E]"
        );
        assert_eq!(named_line("Error occurred at line: 7"), Some(7));
        assert_eq!(named_line("iptables-restore: line 12 failed"), Some(12));
        assert_eq!(named_line("nothing"), None);
    }

    #[test]
    fn no_complaint_reaches_a_terminal_or_fills_a_log() {
        let rude = format!("\u{1b}[31mline 1 failed\u{7}\u{9b}2J\r\n{}", "x".repeat(10_000));
        let input = "y".repeat(10_000);
        let detail = detail(&ended(1, &rude), &input);
        assert!(!detail.chars().any(char::is_control), "{detail:?}");
        assert!(detail.starts_with("[31mline 1 failed2J xxx"), "{detail}");
        assert!(detail.contains("more characters) [input: yyy"), "{detail}");
        assert!(detail.len() < 2_200, "{} bytes", detail.len());
    }

    #[test]
    fn silent_death_is_described() {
        let killed = Finished {
            code: None,
            signal: Some(9),
            stderr: String::new(),
        };
        assert_eq!(tool_failure(&killed), FailureKind::Other);
        assert_eq!(detail(&killed, ""), "ended by signal 9");
    }
}
