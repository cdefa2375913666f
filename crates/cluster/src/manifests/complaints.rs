//! What was said to be wrong with a file, so that a file that somebody keeps writing to is a few lines and not thousands.

use std::collections::BTreeMap;

/// The same is said again when it was found so often, and then with each doubling.
const AGAIN: u32 = 16;
/// So many reasons of a file are told apart; whatever else comes is one.
const MOST_REASONS: usize = 100;

/// What was found wrong with a file since it was last whole, by its words. Words that differ in lines and columns alone are the same:
/// where a file breaks off moves with each line more.
#[derive(Debug, Default)]
pub(super) struct Complaints(BTreeMap<String, Heard>);

#[derive(Debug, Default)]
struct Heard {
    /// In one reading, at most: documents of a file can be wrong alike.
    at_once: u32,
    /// In so many readings.
    readings: u32,
}

impl Complaints {
    /// What to say of a reading that found this; of a whole file nothing, and then all is news again.
    pub(super) fn heard(&mut self, found: Vec<String>) -> Vec<String> {
        if found.is_empty() {
            self.0.clear();
        }
        let mut in_this: BTreeMap<String, u32> = BTreeMap::new();
        let say = |line: String| {
            let mut reason = without_places(&line);
            if self.0.len() >= MOST_REASONS && !self.0.contains_key(&reason) {
                reason.clear();
            }
            let number = in_this.entry(reason.clone()).or_default();
            *number += 1;
            let heard = self.0.entry(reason).or_default();
            let is_first = *number == 1;
            heard.readings += u32::from(is_first);
            if *number > heard.at_once {
                heard.at_once = *number;
                return Some(line);
            }
            let times = heard.readings;
            let is_time = is_first && times >= AGAIN && times.is_power_of_two();
            is_time.then(|| format!("{line} (found {times} times by now)"))
        };
        found.into_iter().filter_map(say).collect()
    }
}

/// The words without the numbers of lines and columns. Which document it is stays: another one is another matter.
fn without_places(line: &str) -> String {
    let mut reason = String::with_capacity(line.len());
    let mut is_place = false;
    for word in line.split_inclusive(' ') {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_digit());
        reason.push_str(if is_place { digits } else { word });
        is_place = matches!(word.trim_end(), "line" | "column");
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_document_that_breaks_is_news_and_the_same_at_another_line_is_not() {
        let mut complaints = Complaints::default();
        let first = "a.yaml, document 1: no name at line 3 column 4";
        let second = "a.yaml, document 2: no name at line 7 column 4";
        assert_eq!(said(&mut complaints, &[first]), [first]);
        assert_eq!(said(&mut complaints, &[second]), [second]);
        let moved = "a.yaml, document 2: no name at line 12 column 14";
        assert_eq!(said(&mut complaints, &[moved]), Vec::<String>::new());
    }

    fn said(complaints: &mut Complaints, found: &[&str]) -> Vec<String> {
        complaints.heard(found.iter().map(|line| (*line).to_owned()).collect())
    }

    #[test]
    fn the_same_is_said_once_and_then_with_each_doubling() {
        let mut complaints = Complaints::default();
        let all: Vec<String> = (1..=40)
            .flat_map(|line| said(&mut complaints, &[&format!("a.yaml: breaks off in line {line}")]))
            .collect();
        let want = [
            "a.yaml: breaks off in line 1",
            "a.yaml: breaks off in line 16 (found 16 times by now)",
            "a.yaml: breaks off in line 32 (found 32 times by now)",
        ];
        assert_eq!(all, want);
        assert_eq!(
            said(&mut complaints, &["a.yaml: is no UTF-8"]),
            ["a.yaml: is no UTF-8"]
        );
        let nothing: [&str; 0] = [];
        assert_eq!(said(&mut complaints, &["a.yaml: is no UTF-8"]), nothing);
        assert_eq!(said(&mut complaints, &[]), nothing);
        let again = said(&mut complaints, &["a.yaml: breaks off in line 3"]);
        assert_eq!(again, ["a.yaml: breaks off in line 3"], "it was whole in between");
    }

    #[test]
    fn a_document_more_that_is_wrong_alike_is_news_and_words_without_end_are_not() {
        let mut complaints = Complaints::default();
        let two = ["document 1: no name", "document 4: no name"];
        assert_eq!(said(&mut complaints, &two), two);
        let three = [
            "document 1: no name",
            "document 2: no name",
            "document 4: no name",
        ];
        assert_eq!(said(&mut complaints, &three), three[1..2]);
        let letters = |number: usize| "x".repeat(number + 1);
        let many = (0..1000).flat_map(|number| said(&mut complaints, &[&letters(number)]));
        assert!(many.count() <= MOST_REASONS + 10);
    }
}
