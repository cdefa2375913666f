//! The difference of two ordered lists.

/// One line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit<'a, T> {
    /// It should be there, at this place (from 0), and is not.
    Missing(usize, &'a T),
    /// It is there, at this place (from 0), and should not be.
    Extra(usize, &'a T),
}

/// Lists longer than this are compared from both ends only: the table of the longest common part has `n * m` cells.
const LONGEST: usize = 2_000;

/// What has to be put into `have` and taken out of it to have `want`, in order.
pub fn edits<'a, T>(want: &'a [T], have: &'a [T], same: impl Fn(&T, &T) -> bool) -> Vec<Edit<'a, T>> {
    let pairs = || want.iter().zip(have);
    let head = pairs().take_while(|(one, other)| same(one, other)).count();
    let (want_rest, have_rest) = (&want[head..], &have[head..]);
    let tail = want_rest
        .iter()
        .rev()
        .zip(have_rest.iter().rev())
        .take_while(|(one, other)| same(one, other))
        .count();
    let want_rest = &want_rest[..want_rest.len() - tail];
    let have_rest = &have_rest[..have_rest.len() - tail];
    let lengths = if want_rest.len().max(have_rest.len()) > LONGEST {
        None
    } else {
        Some(common_lengths(want_rest, have_rest, &same))
    };
    let mut edits = Vec::new();
    let (mut at_want, mut at_have) = (0, 0);
    while at_want < want_rest.len() || at_have < have_rest.len() {
        let both = want_rest.get(at_want).zip(have_rest.get(at_have));
        if lengths.is_some() && both.is_some_and(|(one, other)| same(one, other)) {
            at_want += 1;
            at_have += 1;
            continue;
        }
        let longer_without_have = lengths.as_ref().is_some_and(|lengths| {
            let columns = have_rest.len() + 1;
            let at = |row: usize, column: usize| lengths[row * columns + column];
            at_want == want_rest.len()
                || (at_have < have_rest.len() && at(at_want, at_have + 1) > at(at_want + 1, at_have))
        });
        if at_want < want_rest.len() && !longer_without_have {
            edits.push(Edit::Missing(head + at_want, &want_rest[at_want]));
            at_want += 1;
        } else {
            edits.push(Edit::Extra(head + at_have, &have_rest[at_have]));
            at_have += 1;
        }
    }
    edits
}

/// The length of the longest common part of what follows each pair of places.
fn common_lengths<T>(want: &[T], have: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<u16> {
    let columns = have.len() + 1;
    let mut lengths = vec![0; (want.len() + 1) * columns];
    for row in (0..want.len()).rev() {
        for column in (0..have.len()).rev() {
            lengths[row * columns + column] = if same(&want[row], &have[column]) {
                lengths[(row + 1) * columns + column + 1] + 1
            } else {
                lengths[(row + 1) * columns + column].max(lengths[row * columns + column + 1])
            };
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(want: &str, have: &str) -> String {
        let (want, have): (Vec<char>, Vec<char>) = (want.chars().collect(), have.chars().collect());
        let words = edits(&want, &have, |one, other| one == other)
            .into_iter()
            .map(|edit| match edit {
                Edit::Missing(at, c) => format!("-{at}{c}"),
                Edit::Extra(at, c) => format!("+{at}{c}"),
            });
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_fewest_edits_are_found() {
        assert_eq!(of("abc", "abc"), "");
        assert_eq!(of("abc", "ac"), "-1b");
        assert_eq!(of("ac", "abc"), "+1b");
        assert_eq!(of("abcd", "bcda"), "-0a +3a");
        assert_eq!(of("abc", ""), "-0a -1b -2c");
        assert_eq!(of("axb", "ayb"), "-1x +1y");
    }

    #[test]
    fn long_lists_take_no_table() {
        let want: Vec<u32> = (0..50_000).collect();
        let mut have = want.clone();
        have.remove(20_000);
        have.push(7);
        let found = edits(&want, &have, |one, other| one == other);
        assert!(found.contains(&Edit::Missing(20_000, &20_000)), "{}", found.len());
    }
}
