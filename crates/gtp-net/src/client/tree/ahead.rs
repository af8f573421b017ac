//! What is asked of small files while the survey that shows them still comes.
//!
//! A file that differs from this end's will probably be written anew, and then sums of the pieces
//! of its older version are of use. To ask for them at once saves a round trip. What is asked in
//! vain costs little, since there is a bound on it. This module sends nothing.

use std::collections::{HashMap, VecDeque};

use gtp_store::RelPath;
use gtp_store::replica::{Node, NodeKind, Seen};

use crate::control::ControlError;
use crate::flows::Failure;
use crate::flows::tree::{
    OwnTree, Question, SENT_AT_ONCE, SMALL_TOGETHER_MAX, SmallAsked, question_bytes, questions,
};
use crate::messages::{Contents, ContentsWanted, SMALL_MAX};

/// Whether sums of the pieces of small files are asked for while a survey comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// They are: this end means to write new versions of files that differ.
    Asked,
    /// They are not.
    Unasked,
}

/// Questions that were asked ahead, and their answers.
pub(super) struct Ahead {
    key: [u8; 32],
    /// Files that are not asked for yet.
    waiting: Vec<SmallAsked>,
    /// Bytes of content of all files so far, in this end's versions.
    content: u64,
    /// Bytes of questions that may still be asked.
    room: usize,
    /// The pages that are not answered yet.
    asked: VecDeque<Vec<SmallAsked>>,
    told: HashMap<RelPath, (Seen, Vec<u8>)>,
}

impl Ahead {
    /// Nothing has been asked yet.
    pub fn new() -> Ahead {
        Ahead {
            key: OwnTree::draw_key(),
            waiting: Vec::new(),
            content: 0,
            room: QUESTIONS_BYTES_MAX,
            asked: VecDeque::new(),
            told: HashMap::new(),
        }
    }

    /// The key of the sums.
    pub fn key(&self) -> &[u8; 32] {
        &self.key
    }

    /// Looks at a file that the other end has told, whether it differs from this end's.
    pub fn look_at(&mut self, node: &Node, own: &OwnTree) {
        let (Some(path), Some(seen)) = (&node.path, Seen::of(node)) else { return };
        let Some(new) = own.get(node.name()).filter(|new| may_replace(new, node)) else { return };
        let asked = SmallAsked { path: path.clone(), seen, old: None };
        let bytes = question_bytes(&asked);
        let content = self.content + new.size;
        if bytes <= self.room && content <= SMALL_TOGETHER_MAX {
            self.room -= bytes;
            self.content = content;
            self.waiting.push(asked);
        }
    }

    /// What is to be asked now. Nothing is if all content fits into what a connection sends at
    /// once.
    pub fn questions(&mut self) -> Vec<ContentsWanted> {
        if self.content <= SENT_AT_ONCE as u64 {
            return Vec::new();
        }
        let mut files = std::mem::take(&mut self.waiting);
        let pages = questions(&files, Question::Sums(self.key));
        for page in &pages {
            let rest = files.split_off(page.files.len());
            self.asked.push_back(std::mem::replace(&mut files, rest));
        }
        pages
    }

    /// Whether a question has no answer yet.
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes the answer to the oldest question.
    ///
    /// # Errors
    /// A [`Failure`] if it does not fit.
    pub fn take(&mut self, told: Contents) -> Result<(), Failure> {
        let asked = self.asked.pop_front().filter(|asked| asked.len() == told.files.len());
        let asked = asked.ok_or_else(|| {
            let text = "an answer about small files that does not fit the question".into();
            ControlError::Unexpected(text)
        })?;
        let told = asked.into_iter().zip(told.files);
        self.told.extend(
            told.filter_map(|(SmallAsked { path, seen, .. }, told)| {
                Some((path, (seen, told.sums?)))
            }),
        );
        Ok(())
    }

    /// The sums of the pieces of a file that were told, if it is still the version seen.
    pub fn sums(&self, path: &RelPath, seen: Seen) -> Option<&[u8]> {
        let (told, sums) = self.told.get(path)?;
        (*told == seen).then_some(sums)
    }
}

/// Whether one file may get the place of another one that is there.
fn may_replace(new: &Node, old: &Node) -> bool {
    let are_files = new.kind == NodeKind::File && old.kind == NodeKind::File;
    let differ = (new.size, new.mtime, new.hash) != (old.size, old.mtime, old.hash);
    are_files && differ && new.size <= SMALL_MAX as u64
}

/// Bytes of all questions. They fit into a pipe, so that this end can send them while the other one
/// does not read.
const QUESTIONS_BYTES_MAX: usize = 48 << 10;

#[cfg(test)]
mod tests {
    use gtp_store::Mtime;

    use super::*;
    use crate::messages::SmallContent;

    fn file(name: &str, size: u64, secs: i64) -> Node {
        let (path, mtime) = (Some(RelPath::new(name).unwrap()), Mtime::new(secs, 0).unwrap());
        let (kind, hash, xattrs) = (NodeKind::File, None, Vec::new());
        Node { path, kind, size, mode: 0, mtime, uid: 0, gid: 0, same: None, hash, xattrs }
    }

    /// An own tree in which these files have so many bytes and are newer.
    fn own(names: &[String], size: u64) -> OwnTree {
        let nodes = names.iter().map(|name| file(name, size, 2)).collect();
        OwnTree::new(nodes, [0; 32], Vec::new())
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{number:05}")).collect()
    }

    #[test]
    fn files_that_differ_are_asked_for_once_all_content_is_more_than_goes_out_at_once() {
        let (names, mut ahead) = (names(40), Ahead::new());
        let own = own(&names, 1_000);
        let mut asked = Vec::new();
        for name in &names {
            ahead.look_at(&file(name, 900, 1), &own);
            asked.push(ahead.questions().iter().map(|page| page.files.len()).sum::<usize>());
        }
        assert_eq!(asked[..15], [[0; 14].as_slice(), &[15]].concat());
        assert!(asked[15..].iter().all(|&count| count == 1));
    }

    #[test]
    fn what_is_alike_unknown_long_or_no_file_is_not_asked_for() {
        let long = SMALL_MAX as u64 + 1;
        let mut nodes = vec![file("alike", 20_000, 1), file("link", 20_000, 1)];
        nodes.push(file("long", long, 2));
        let own = OwnTree::new(nodes, [0; 32], Vec::new());
        let mut ahead = Ahead::new();
        ahead.look_at(&file("alike", 20_000, 1), &own);
        ahead.look_at(&file("long", 20_000, 1), &own);
        ahead.look_at(&file("unknown", 20_000, 1), &own);
        ahead.look_at(&Node { kind: NodeKind::Link(b"x".into()), ..file("link", 0, 2) }, &own);
        assert_eq!((ahead.content, ahead.waiting.len()), (0, 0));
    }

    #[test]
    fn questions_and_content_are_bounded_however_many_files_differ() {
        for size in [1, 60_000] {
            let (names, mut ahead) = (names(20_000), Ahead::new());
            let own = own(&names, size);
            names.iter().for_each(|name| ahead.look_at(&file(name, 5, 1), &own));
            let bytes: usize = ahead.waiting.iter().map(question_bytes).sum();
            assert!(ahead.content <= SMALL_TOGETHER_MAX && bytes <= QUESTIONS_BYTES_MAX, "{size}");
            assert!(ahead.waiting.len() > 60, "{size}");
        }
    }

    #[test]
    fn an_answer_belongs_to_the_oldest_question_and_counts_for_the_version_that_was_seen() {
        let (names, mut ahead) = (names(2), Ahead::new());
        let own = own(&names, 20_000);
        for name in &names {
            ahead.look_at(&file(name, 9, 1), &own);
            assert_eq!(ahead.questions().len(), 1);
        }
        let told = |sums: &[u8]| {
            let sums = Some(sums.to_vec());
            Contents { files: vec![SmallContent { sums, ..SmallContent::default() }] }
        };
        ahead.take(told(b"first")).unwrap();
        assert!(ahead.is_waiting());
        ahead.take(told(b"second")).unwrap();
        assert!(!ahead.is_waiting() && ahead.take(told(b"third")).is_err());
        let sums = |name: &str, size| {
            let seen = Seen::of(&file(name, size, 1)).unwrap();
            ahead.sums(&RelPath::new(name).unwrap(), seen)
        };
        assert_eq!(sums(&names[0], 9), Some(&b"first"[..]));
        assert_eq!(sums(&names[1], 9), Some(&b"second"[..]));
        assert_eq!(sums(&names[1], 10), None);
    }

    #[test]
    fn an_answer_about_more_files_than_were_asked_for_is_refused() {
        let (names, mut ahead) = (names(1), Ahead::new());
        ahead.look_at(&file(&names[0], 9, 1), &own(&names, 20_000));
        ahead.questions();
        let files = vec![SmallContent::default(), SmallContent::default()];
        assert!(ahead.take(Contents { files }).is_err());
    }
}
