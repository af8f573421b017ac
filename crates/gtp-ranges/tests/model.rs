//! Range sets against a set that holds every number on its own.

use std::collections::BTreeSet;

use gtp_ranges::RangeSet;
use proptest::prelude::*;

const END: u64 = 200;

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Remove(u64, u64),
    InsertOne(u64),
    RemoveOne(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Starts beyond ends are empty ranges, and must do nothing.
    prop_oneof![
        (0..END, 0..END).prop_map(|(a, b)| Step::Insert(a, b)),
        (0..END, 0..12_u64).prop_map(|(a, n)| Step::Insert(a, (a + n).min(END))),
        (0..END, 0..END).prop_map(|(a, b)| Step::Remove(a, b)),
        (0..END, 0..12_u64).prop_map(|(a, n)| Step::Remove(a, (a + n).min(END))),
        (0..END).prop_map(Step::InsertOne),
        (0..END).prop_map(Step::RemoveOne),
    ]
}

fn numbers(set: &RangeSet) -> Vec<u64> {
    set.iter().flatten().collect()
}

proptest! {
    #[test]
    fn a_range_set_holds_what_a_plain_set_holds(
        steps in proptest::collection::vec(step(), 0..60),
        window in (0..END, 0..END),
    ) {
        let (mut ranges, mut plain) = (RangeSet::new(), BTreeSet::new());
        for step in steps {
            let before = plain.len() as u64;
            match step {
                Step::Insert(a, b) => {
                    plain.extend(a..b);
                    prop_assert_eq!(ranges.insert(a..b), plain.len() as u64 - before);
                }
                Step::Remove(a, b) => {
                    plain.retain(|x| !(a..b).contains(x));
                    prop_assert_eq!(ranges.remove(a..b), before - plain.len() as u64);
                }
                Step::InsertOne(x) => prop_assert_eq!(ranges.insert_one(x), plain.insert(x)),
                Step::RemoveOne(x) => prop_assert_eq!(ranges.remove_one(x), plain.remove(&x)),
            }
            prop_assert_eq!(ranges.len(), plain.len() as u64);
            prop_assert_eq!(ranges.is_empty(), plain.is_empty());
            prop_assert_eq!(ranges.first(), plain.first().copied());
        }
        prop_assert_eq!(numbers(&ranges), plain.iter().copied().collect::<Vec<_>>());
        let pieces: Vec<_> = ranges.iter().collect();
        prop_assert_eq!(pieces.len(), ranges.pieces());
        for pair in pieces.windows(2) {
            prop_assert!(pair[0].end < pair[1].start, "neighbours are joined");
        }
        for x in 0..END {
            prop_assert_eq!(ranges.contains(x), plain.contains(&x));
        }
        let inside: Vec<u64> = ranges.within(window.0..window.1).flatten().collect();
        let expected: Vec<u64> =
            plain.iter().copied().filter(|x| (window.0..window.1).contains(x)).collect();
        prop_assert_eq!(inside, expected);
        prop_assert_eq!(ranges.iter().collect::<RangeSet>(), ranges);
    }
}

#[test]
fn the_ends_of_the_number_line_are_ordinary_numbers() {
    let mut set = RangeSet::new();
    set.insert(u64::MAX - 1..u64::MAX);
    set.insert(0..1);
    assert!(set.contains(u64::MAX - 1) && !set.contains(u64::MAX) && set.contains(0));
    assert_eq!(set.remove(0..u64::MAX), 2);
    assert!(!set.insert_one(u64::MAX) && !set.remove_one(u64::MAX), "it has no successor");
    assert!(set.is_empty());
}
