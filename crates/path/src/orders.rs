//! Every order of a few things.

/// How many may have an order that nobody knows: five have 120.
const MOST: usize = 5;

/// Every order of so many, the given one first; `None` when there are too many.
pub(crate) fn orders(count: usize) -> Option<Vec<Vec<usize>>> {
    if count > MOST {
        return None;
    }
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = |begun: Vec<usize>| {
            let rest = (0..count).filter(|at| !begun.contains(at));
            let rest: Vec<usize> = rest.collect();
            let with = move |at| [begun.as_slice(), &[at]].concat();
            rest.into_iter().map(with)
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    Some(all)
}

#[test]
fn all_orders_and_each_once() {
    assert_eq!(orders(0), Some(vec![vec![]]));
    assert_eq!(orders(2), Some(vec![vec![0, 1], vec![1, 0]]));
    let all = orders(5).expect("not too many");
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (120, 120));
    assert_eq!(orders(6), None);
}
