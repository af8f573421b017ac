//! Asks the questions for roots at the end that wants them: a bounded number at a time.
//!
//! A tree whose files are asked for one by one needs as many questions as files. Whoever writes
//! them all before it reads meets a peer that writes answers and reads no more: both then wait for
//! the other. So a question goes out for each answer that comes in.

use std::collections::VecDeque;

use crate::messages::{Message, RootsWanted};

/// Questions without an answer. Twice as many may wait at the other end before it stops reading,
/// and as frames of TLS they have 20 KB, for which any connection has room.
pub(crate) const QUESTIONS_OPEN: usize = 512;

/// Questions to one peer, in order: first file, and how many.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: VecDeque<(u64, u32)>,
    waiting: VecDeque<(u64, u32)>,
}

impl Questions {
    /// Puts questions behind those that are there.
    pub fn add(&mut self, runs: impl IntoIterator<Item = (u64, u32)>) {
        self.waiting.extend(runs);
    }

    /// The questions that may leave now; what is taken from here counts as asked.
    pub fn due(&mut self) -> impl Iterator<Item = Message> + '_ {
        std::iter::from_fn(|| {
            if self.open.len() >= QUESTIONS_OPEN {
                return None;
            }
            let (first_file, files) = self.waiting.pop_front()?;
            self.open.push_back((first_file, files));
            Some(Message::RootsWanted(RootsWanted { first_file, files }))
        })
    }

    /// Takes an answer of so many roots; whether it is one to the question whose turn it is.
    pub fn answered(&mut self, first_file: u64, roots: usize) -> bool {
        let says = |&(first, files): &(u64, u32)| first == first_file && files as usize == roots;
        let is_next = self.open.front().is_some_and(says);
        if is_next {
            self.open.pop_front();
        }
        is_next
    }

    /// Whether all are answered.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::super::answer::QUESTIONS_MAX;
    use super::*;

    fn asked(questions: &mut Questions) -> Vec<(u64, u32)> {
        let run = |message| match message {
            Message::RootsWanted(wanted) => (wanted.first_file, wanted.files),
            other => panic!("{other:?}"),
        };
        questions.due().map(run).collect()
    }

    #[test]
    fn the_next_question_is_asked_for_an_answer_and_never_more_than_the_other_end_holds() {
        const { assert!(QUESTIONS_OPEN < QUESTIONS_MAX) };
        let all: Vec<(u64, u32)> = (0..100_000).map(|n| (2 * n, 1)).collect();
        let mut questions = Questions::default();
        questions.add(all.iter().copied());
        let mut said = asked(&mut questions);
        assert_eq!(said.len(), QUESTIONS_OPEN);
        for &(first, _) in &all {
            assert!(questions.answered(first, 1));
            let next = asked(&mut questions);
            assert!(next.len() <= 1);
            said.extend(next);
        }
        assert_eq!(said, all);
        assert!(questions.is_empty());
    }

    #[test]
    fn an_answer_counts_once_and_only_to_the_question_whose_turn_it_is() {
        let mut questions = Questions::default();
        assert!(!questions.answered(0, 1), "nobody asked");
        questions.add([(0, 2), (2, 1)]);
        assert!(!questions.answered(0, 2), "it has not been asked yet");
        assert_eq!(asked(&mut questions), [(0, 2), (2, 1)]);
        assert!(!questions.answered(0, 3) && !questions.answered(2, 1));
        assert!(questions.answered(0, 2) && !questions.answered(0, 2));
        assert!(questions.answered(2, 1) && questions.is_empty());
    }
}
