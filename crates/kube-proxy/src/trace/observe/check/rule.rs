//! A rule by its place and its words, which a file and a list may have in other forms.

use traced::Name;

/// A rule that is met, by what it is known by.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) table: Name,
    pub(super) chain: Name,
    pub(super) text: String,
}

impl PartialEq for Rule {
    /// A file that was written for `nft` has `0` where its list has `0x00000000`, and `10800s` for its `3h`.
    fn eq(&self, other: &Rule) -> bool {
        let same_words = self.text == other.text || {
            let [one, other] = [&self.text, &other.text].map(|text| text.split_whitespace().map(Word::of));
            one.eq(other)
        };
        same_words && self.table == other.table && self.chain == other.chain
    }
}

/// A word of a rule; numbers and times are what they amount to.
#[derive(Debug, PartialEq)]
enum Word<'a> {
    Number(u64),
    Seconds(u64),
    Other(&'a str),
}

impl Word<'_> {
    fn of(word: &str) -> Word<'_> {
        let number = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => word.parse(),
        };
        match (number, seconds(word)) {
            (Ok(number), _) => Word::Number(number),
            (_, Some(seconds)) => Word::Seconds(seconds),
            _ => Word::Other(word),
        }
    }
}

/// What a time such as `1d2h30m` amounts to.
fn seconds(word: &str) -> Option<u64> {
    let mut rest = word;
    let mut sum = 0_u64;
    while !rest.is_empty() {
        let unit = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, behind) = rest.split_at(unit);
        let times = match behind.as_bytes().first()? {
            b'd' => 86_400,
            b'h' => 3_600,
            b'm' => 60,
            b's' => 1,
            _ => return None,
        };
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(times)?)?;
        rest = &behind[1..];
    }
    (!word.is_empty()).then_some(sum)
}
