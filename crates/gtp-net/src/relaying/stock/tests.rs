//! When a sink shows a block, and that a file which goes off takes all its blocks with it, whatever
//! the order in which things are said.

#![allow(clippy::single_range_in_vec_init)] // Lists of ranges of which one has one.

use super::*;

const VALUE: Value = [7; 32];

#[test]
fn a_block_is_shown_once_it_is_here_and_known_in_either_order() {
    let mut stock = Stock::new(4, RangeSet::from_iter([3..4]));
    let mut told = 0;
    assert_eq!(stock.note_here(0), Noted::Waits);
    assert!(stock.news(&mut told).is_empty() && stock.value(0).is_none());
    stock.note_values(0, &[VALUE; 9]);
    assert_eq!(stock.note_here(1), Noted::Shown);
    assert_eq!(stock.note_here(1), Noted::Waits, "it was here");
    let news: Vec<_> = stock.news(&mut told).iter().collect();
    assert_eq!(news, [0..2, 3..4]);
    assert!(stock.news(&mut told).is_empty());
    stock.note_values(1, &[[8; 32]]);
    assert_eq!(stock.value(1), Some(VALUE), "the first value counts");
}

#[test]
fn a_file_that_is_off_is_neither_shown_nor_given_and_its_later_blocks_are_not_either() {
    let mut stock = Stock::new(6, RangeSet::new());
    stock.note_values(0, &[VALUE; 6]);
    for number in 0..4 {
        stock.note_here(number);
    }
    let mut told = 0;
    stock.take_off(2..6);
    assert_eq!(stock.news(&mut told).iter().collect::<Vec<_>>(), [0..2]);
    assert_eq!((stock.value(1), stock.value(2)), (Some(VALUE), None));
    assert_eq!(stock.taken_off().iter().collect::<Vec<_>>(), [2..4], "the rest was not here");
    assert!(stock.taken_off().is_empty(), "it is told once");
    assert_eq!(stock.note_here(5), Noted::Off);
    assert!(stock.news(&mut told).is_empty());
}
