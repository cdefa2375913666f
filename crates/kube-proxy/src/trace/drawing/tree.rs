//! What ways have in common: their beginning, and what they come together to again.

use super::stops::Stop;

/// Rows of stops, each stop once: a row that all begin with, then those that differ, then a row that all end with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Branch<'a> {
    pub(super) row: &'a [Stop],
    pub(super) forks: Vec<Branch<'a>>,
    pub(super) then: Option<Box<Branch<'a>>>,
}

impl Branch<'_> {
    /// Whether there is no stop on it: a way that goes straight to where its fellows come together.
    pub(super) fn is_empty(&self) -> bool {
        self.row.is_empty() && self.forks.is_empty() && self.then.is_none()
    }
}

/// Puts rows together, in their order.
pub(super) fn branch<'a>(rows: &[&'a [Stop]]) -> Branch<'a> {
    let Some(first) = rows.first() else {
        return Branch::default();
    };
    let begin = common(rows, |row, at| row.get(at));
    let rests: Vec<&'a [Stop]> = rows.iter().map(|row| &row[begin..]).collect();
    let row = &first[..begin];
    if rests.iter().all(|rest| rest.is_empty()) {
        return Branch {
            row,
            ..Branch::default()
        };
    }
    let end = common(&rests, |row, at| row.get(row.len().checked_sub(at + 1)?));
    let middles: Vec<&'a [Stop]> = rests.iter().map(|rest| &rest[..rest.len() - end]).collect();
    let tail = &rests[0][rests[0].len() - end..];
    Branch {
        row,
        forks: by_first_stop(&middles).iter().map(|rows| branch(rows)).collect(),
        then: (end > 0).then(|| {
            Box::new(Branch {
                row: tail,
                ..Branch::default()
            })
        }),
    }
}

/// How many stops all rows have in common, counted from where `at` counts.
fn common<'a>(rows: &[&'a [Stop]], at: impl Fn(&'a [Stop], usize) -> Option<&'a Stop>) -> usize {
    let Some(first) = rows.first() else { return 0 };
    let is_common = |index: &usize| {
        let own = at(first, *index);
        own.is_some() && rows.iter().all(|row| at(row, *index) == own)
    };
    (0..first.len()).take_while(is_common).count()
}

/// Rows that begin alike, together.
fn by_first_stop<'a>(rows: &[&'a [Stop]]) -> Vec<Vec<&'a [Stop]>> {
    let mut groups: Vec<Vec<&'a [Stop]>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| group[0].first() == row.first()) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}
