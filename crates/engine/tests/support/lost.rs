//! What a packet finds while a commit comes.

use super::own_table::Frontend;
use kernel::fake::FakeTable;
use model::balance::BUCKETS;
use nftables::ast::{Action, ElementKey, Match, Name};
use nftables::names::{self, Role};

/// Whether some packet to a frontend finds no endpoint while the kernel goes from one state to the next: it looks into
/// one set after the other, in the order of the rules, and the commit may come between any two looks.
pub fn lost(before: &FakeTable, after: &FakeTable, frontend: &Frontend) -> Option<String> {
    // Rules are only added, behind the others.
    let rules = &after.chains.get(&frontend.0.endpoints())?.rules;
    let sets = rules.iter().filter_map(looked_into).collect();
    let looks = Looks {
        before,
        after,
        frontend,
        sets,
    };
    looks.misses(0, Committed::No).then(|| {
        format!(
            "{frontend:?} is looked for in vain while a commit comes: {}",
            looks.said()
        )
    })
}

/// Whether the commit has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Committed {
    No,
    Yes,
}

/// What a packet to a frontend looks for.
struct Looks<'a> {
    before: &'a FakeTable,
    after: &'a FakeTable,
    frontend: &'a Frontend,
    sets: Vec<Name>,
}

impl Looks<'_> {
    /// What the frontend was in, and is in.
    fn said(&self) -> String {
        let [before, after] = [self.before, self.after].map(|table| {
            let under = table.elements.keys().filter(|key| key.key == self.frontend.1);
            under.map(|key| key.set.to_string()).collect::<Vec<_>>().join(" ")
        });
        let rules: Vec<&str> = self.sets.iter().map(Name::as_str).collect();
        format!("before {before}; after {after}; rules {}", rules.join(" "))
    }

    /// Whether a packet may come to the end of the rules from the one with this number on.
    fn misses(&self, at: usize, committed: Committed) -> bool {
        let Some(set) = self.sets.get(at) else {
            return true;
        };
        let from_here = match committed {
            Committed::No => &[Committed::No, Committed::Yes][..],
            Committed::Yes => &[Committed::Yes],
        };
        from_here.iter().any(|committed| {
            if self.has(*committed, set) {
                self.comes_back(set, *committed)
                    .into_iter()
                    .any(|then| self.misses(at + 1, then))
            } else {
                self.misses(at + 1, *committed)
            }
        })
    }

    /// How things may be when a packet comes back from a list whose set has its frontend: not at all if it finds an endpoint
    /// whenever the commit comes.
    fn comes_back(&self, set: &Name, committed: Committed) -> Vec<Committed> {
        let kind = self.frontend.0;
        let is_before = |place: &Name| self.has(Committed::No, place);
        let is_after = |place: &Name| self.has(Committed::Yes, place);
        let always = |place: &Name| is_after(place) && (committed == Committed::Yes || is_before(place));
        let places: Vec<Name> = match names::form_of(set.as_str()).map(|form| form.role) {
            // Any packet looks into one bucket, and it may be any.
            Some(Role::Hashed) => {
                let buckets: Vec<Name> = (0..BUCKETS).map(|bucket| kind.bucket(bucket)).collect();
                if buckets.iter().all(always) {
                    return Vec::new();
                }
                return vec![committed, Committed::Yes];
            }
            Some(Role::Within(bound, _)) => (0..bound.get()).map(|slot| kind.slot(slot)).collect(),
            _ => return Vec::new(),
        };
        // The worst is every slot when it is empty.
        if places.iter().any(always) {
            Vec::new()
        } else if committed == Committed::No && places.iter().any(is_before) {
            // Who finds such a slot empty looks after the commit.
            vec![Committed::Yes]
        } else {
            vec![committed, Committed::Yes]
        }
    }

    fn has(&self, committed: Committed, set: &Name) -> bool {
        let table = match committed {
            Committed::No => self.before,
            Committed::Yes => self.after,
        };
        table.elements.contains_key(&ElementKey {
            set: set.clone(),
            key: self.frontend.1.clone(),
        })
    }
}

fn looked_into(rule: &nftables::ast::Rule) -> Option<Name> {
    match (rule.matches.as_slice(), rule.actions.as_slice()) {
        ([Match::In(_, set)], [Action::Jump(_)]) => Some(set.clone()),
        _ => None,
    }
}
