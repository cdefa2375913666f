//! What the rules are known by that `trace --live` puts into legacy's table raw, whoever finds them (ADR 64).

use crate::ast::{ChainName, Match, Rule, Target};
use model::Family;

/// Their chain.
pub const CHAIN: &str = "KUBE-PROXY-RS-TRACE";

/// What the comment says in front of a setting's value.
const WAS: &str = " was ";

/// The setting that says where the kernel hands traces.
pub fn setting(family: Family) -> &'static str {
    match family {
        Family::V4 => "net.netfilter.nf_log.2",
        Family::V6 => "net.netfilter.nf_log.10",
    }
}

/// A rule that leads there, with a comment that tells what the setting was before.
pub fn jump(family: Family, before: &str) -> Rule {
    let setting = setting(family);
    let chain = ChainName::new(CHAIN).expect("invariant: our chain has a legal name");
    let comment = format!("kube-proxy-rs trace --live; {setting}{WAS}{before}");
    let mut rule = Rule::new(Target::Jump(chain));
    rule.matches.push(Match::Comment(comment.into()));
    rule
}

/// Whether a rule leads there.
pub fn leads_there(rule: &Rule) -> bool {
    matches!(&rule.target, Target::Jump(to) | Target::Goto(to) if to.as_str() == CHAIN)
}

/// The value in the comment of such a rule: `NONE`, or the name of a module. Nothing else is believed.
pub fn before(comment: &str) -> Option<&str> {
    let (_, word) = comment.rsplit_once(WAS)?;
    is_value(word).then_some(word)
}

/// Whether a word can be the value of a setting that names a way to log.
pub fn is_value(word: &str) -> bool {
    (1..=32).contains(&word.len())
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_tells_what_was_before_and_nothing_that_could_not_be() {
        let rule = jump(Family::V4, "nf_log_ipv4");
        assert_eq!(before(rule.comment().unwrap()), Some("nf_log_ipv4"));
        for word in ["../../x", "", "a\tb", "a b", &"x".repeat(99)] {
            assert_eq!(before(&format!("nf_log.2 was {word}")), None, "{word}");
        }
        assert_eq!(before("NONE"), None);
    }
}
