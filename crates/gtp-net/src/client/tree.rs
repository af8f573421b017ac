//! Looks at a whole tree at a server, and changes it step by step. No datagram is sent.
//!
//! A session answers one question at a time. Between two of them a transfer may take hours; a
//! session that is to last meanwhile is kept alive. What the server tells is checked before it is
//! used.

mod ahead;

use std::collections::BTreeMap;
use std::time::Duration;

use gtp_proto::Revision;
use gtp_store::replica::{Asked, Deed, Fault, LeftOut, Node, Patch, Seen};
use gtp_store::{RelPath, Value};
use tokio::io::DuplexStream;
use tokio::time::timeout;

use super::connect::{self, Granted, SKIPPED_MAX, Units, ask_at_once, open_message, reach};
use super::{Endpoint, Terms, Url};
use crate::control::{ControlChannel, ControlError, KEEPALIVE_SPAN};
use crate::flows::tree::{
    BadTree, Gathered, Question, page_message, pages, questions, size_of, wanted,
};
use crate::flows::{Failure, FailureKind, When};
use crate::messages::{
    BlocksWanted, DeedFault, DeedsDone, Done, LACKS_MAX, Lacks, Message, Packed, Reason,
    SmallContent, Verb,
};

use ahead::Ahead;
pub use ahead::Pieces;

pub use crate::flows::tree::{OwnTree, SENT_AT_ONCE, SMALL_TOGETHER_MAX, SmallAsked};

/// What came of steps.
#[derive(Clone, Debug, Default)]
pub struct Carried {
    /// Those that failed.
    pub faults: Vec<Fault>,
    /// What the old versions that were kept lack because their place has no such thing, for people,
    /// and how many lack it.
    pub lacks: BTreeMap<String, u64>,
}

/// What a tree holds.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Its nodes, sorted by the bytes of their paths; the first is its own directory.
    pub nodes: Vec<Node>,
    /// What is there and cannot be carried; a bounded number.
    pub left_out: Vec<LeftOut>,
    /// Whether its own directory is there.
    pub is_there: bool,
    /// Whether what is made there can be given to any owner.
    pub may_own: bool,
    /// The longest content, in bytes, of a file that a step can write there; `None` if none can.
    pub small_max: Option<u64>,
    /// Whether a step can make a new version of a small file of the older one.
    pub patches: bool,
    /// The name of what is at the path, if that is a file or link: the tree's own directory is the
    /// one that holds it, and nothing else in it was told.
    pub alone: Option<RelPath>,
}

/// A session about a tree.
pub struct TreeSession {
    channel: ControlChannel,
    terms: Terms,
    shown: String,
    /// What was asked of small files while a survey came.
    ahead: Option<Ahead>,
    /// Whether the server understands packed steps.
    packs: bool,
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The tree is looked at.
    Look,
    /// It is changed.
    Change,
}

impl TreeSession {
    /// Opens a session about the tree at an address.
    ///
    /// # Errors
    /// A [`Failure`] if the server refuses, or does not know of trees.
    pub async fn open(
        endpoint: &Endpoint,
        url: &Url,
        terms: &Terms,
        purpose: Purpose,
    ) -> Result<TreeSession, Failure> {
        TreeSession::open_and_ask(endpoint, url, terms, purpose, None).await
    }

    /// Opens a session and surveys the tree, or one name in its own directory, which is asked for
    /// together with the session.
    ///
    /// # Errors
    /// As [`TreeSession::open`] and [`TreeSession::survey`].
    pub async fn open_and_survey(
        endpoint: &Endpoint,
        url: &Url,
        terms: &Terms,
        purpose: Purpose,
        (asked, only): (Asked, Option<&RelPath>),
    ) -> Result<(TreeSession, Survey), Failure> {
        let question = Some(Message::TreeWanted(wanted(asked, None, only)));
        let mut session =
            TreeSession::open_and_ask(endpoint, url, terms, purpose, question).await?;
        let survey = session.take_survey(None).await?;
        Ok((session, survey))
    }

    /// Opens a session over a pipe that somebody else protects, and surveys the tree at `path`
    /// beneath the place that the other end of the pipe has been told. Both leave at once. What the
    /// tree has in common with this end's `own` need not travel, and of small files that differ
    /// from it pieces are asked for if the caller will write new versions. The other end may be
    /// silent for as long as it likes until `lives` ends, such as while ssh asks for a password.
    ///
    /// # Errors
    /// As [`TreeSession::open_and_survey`].
    pub async fn survey_over(
        endpoint: &Endpoint,
        pipe: DuplexStream,
        path: &str,
        (terms, purpose): (&Terms, Purpose),
        (asked, own, pieces): (Asked, Option<&OwnTree>, Pieces),
        lives: impl Future<Output = ()>,
    ) -> Result<(TreeSession, Survey), Failure> {
        let verb = Verb::Tree { path: path.into(), changes: purpose == Purpose::Change };
        let mut channel = ControlChannel::over_bare(pipe, endpoint.identity().fingerprint());
        let open = open_message(endpoint, verb, terms, endpoint.host().new_session_id());
        let question = Some(Message::TreeWanted(wanted(asked, own, None)));
        channel.ask(&open, question).await?;
        lives.await;
        channel.take_opened(&open, terms.patience, &|| {}).await?;
        let shown = gtp_store::escaped(path);
        let ahead = (pieces == Pieces::Asked && own.is_some()).then(Ahead::new);
        let mut session = TreeSession { channel, terms: terms.clone(), shown, ahead, packs: false };
        let survey = session.take_survey(own).await?;
        Ok((session, survey))
    }

    async fn open_and_ask(
        endpoint: &Endpoint,
        url: &Url,
        terms: &Terms,
        purpose: Purpose,
        question: Option<Message>,
    ) -> Result<TreeSession, Failure> {
        let verb = Verb::Tree { path: url.path().to_vec(), changes: purpose == Purpose::Change };
        let (channel, on) = (reach(endpoint, url, terms).await?, (terms, Units::Ordinary));
        let Granted { channel, .. } =
            ask_at_once(channel, endpoint, url, (verb, question), on, &|| {}).await?;
        if channel.revision() < Revision::Fifth {
            let text = format!("{}: gtp there is too old to keep trees alike", url.host());
            return Err(Failure::new(FailureKind::Authentication, text));
        }
        let (terms, shown) = (terms.clone(), url.to_string());
        Ok(TreeSession { channel, terms, shown, ahead: None, packs: false })
    }

    /// Surveys the tree, or one name in its own directory.
    ///
    /// # Errors
    /// A [`Failure`] if the tree cannot be read, or the server breaks a rule.
    pub async fn survey(
        &mut self,
        asked: Asked,
        only: Option<&RelPath>,
    ) -> Result<Survey, Failure> {
        self.settle().await?;
        self.channel.send(&Message::TreeWanted(wanted(asked, None, only))).await?;
        self.take_survey(None).await
    }

    async fn take_survey(&mut self, own: Option<&OwnTree>) -> Result<Survey, Failure> {
        let mut gathered = Gathered::beside(own);
        let mut left_out = Vec::new();
        loop {
            match self.next().await? {
                Message::TreePage(page) | Message::TreePacked(Packed(page)) => {
                    let mut differing = self.ahead.as_mut().zip(own);
                    let each = |node: &Node| {
                        if let Some((ahead, own)) = &mut differing {
                            ahead.look_at(node, own);
                        }
                    };
                    gathered.page(page, each).map_err(bad)?;
                    self.ask_ahead().await?;
                }
                Message::TreeEnd(end) => {
                    let nodes = gathered.end(end.nodes_total).map_err(bad)?;
                    let is_there = end.is_there && !nodes.is_empty();
                    let (may_own, small_max) = (end.may_own, end.small_max.map(u64::from));
                    let alone = match end.alone {
                        Some(true) => Some(alone(&nodes)?),
                        Some(false) | None => None,
                    };
                    let patches = end.patches == Some(true);
                    self.packs = end.packs == Some(true);
                    let survey =
                        Survey { nodes, left_out, is_there, may_own, small_max, patches, alone };
                    return Ok(survey);
                }
                Message::Fault(fault) => match &fault.path {
                    Some(path) if left_out.len() < SKIPPED_MAX => {
                        let why = connect::left_out(&[], &fault.text).text;
                        let hides =
                            fault.reason != Reason::Other || left_out.len() + 1 == SKIPPED_MAX;
                        left_out.push(LeftOut { path: path.clone(), why, hides });
                    }
                    Some(_) => {}
                    None => return Err(Failure::of_fault(&fault).about(&self.shown)),
                },
                other => return Err(unexpected(&other)),
            }
        }
    }

    /// Asks for pieces of files that the survey has shown so far.
    async fn ask_ahead(&mut self) -> Result<(), Failure> {
        let Some(ahead) = &mut self.ahead else { return Ok(()) };
        let questions = ahead.questions().into_iter().map(Message::ContentsWanted);
        Ok(self.channel.send_all(questions).await?)
    }

    /// Waits for the answers to what was asked ahead.
    async fn settle(&mut self) -> Result<(), Failure> {
        while self.ahead.as_ref().is_some_and(Ahead::is_waiting) {
            let message = self.next().await?;
            self.take_ahead(message)?;
        }
        Ok(())
    }

    /// Takes an answer to what was asked ahead.
    fn take_ahead(&mut self, message: Message) -> Result<(), Failure> {
        match (message, self.ahead.as_mut().filter(|ahead| ahead.is_waiting())) {
            (Message::Contents(told), Some(ahead)) => ahead.take(told),
            (Message::Fault(fault), Some(_)) => Err(Failure::of_fault(&fault)),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Carries steps out, in their order. Returns what came of them.
    ///
    /// # Errors
    /// A [`Failure`] if the session breaks; some steps may have been carried out then.
    pub async fn carry_out(&mut self, deeds: &[Deed]) -> Result<Carried, Failure> {
        self.carry_out_then(deeds, None).await
    }

    /// Carries steps out, in their order, and ends the session, which is said right behind the last
    /// of them. Returns those that failed.
    ///
    /// # Errors
    /// As [`TreeSession::carry_out`].
    pub async fn carry_out_last(mut self, deeds: &[Deed]) -> Result<Vec<Fault>, Failure> {
        let Carried { faults, .. } = self.carry_out_then(deeds, Some(farewell())).await?;
        // Nothing more is to be heard, so nobody waits for the polite end.
        drop(tokio::spawn(self.channel.close()));
        Ok(faults)
    }

    /// Carries steps out, and says this right behind the last page of them. No page waits for the
    /// answer to the one before it.
    async fn carry_out_then(
        &mut self,
        deeds: &[Deed],
        last: Option<Message>,
    ) -> Result<Carried, Failure> {
        self.settle().await?;
        let pages = pages(deeds);
        let mut left = deeds;
        let mut asked = pages.iter().map(|page| page.deeds.len()).collect::<Vec<_>>().into_iter();
        let (mut unsaid, packs) = (deeds, self.packs);
        let said = pages.into_iter().map(|page| {
            let (steps, more) = unsaid.split_at(page.deeds.len().min(unsaid.len()));
            unsaid = more;
            page_message(page, steps, packs)
        });
        let said = said.chain(last);
        let mut carried = Carried::default();
        let answers = asked.len();
        let heard =
            self.channel.converse::<Failure>(said, self.terms.patience, answers, |message| {
                let (done, more) = left.split_at(asked.next().unwrap_or(0).min(left.len()));
                left = more;
                carried.take(message, done)
            });
        heard.await?;
        Ok(carried)
    }

    /// Returns the values of the first blocks of a file of `size` bytes: `most` of them, or fewer
    /// if the server tells no more.
    ///
    /// # Errors
    /// A [`Failure`] if the session breaks, or the server answers what was not asked.
    pub async fn block_values(
        &mut self,
        path: &RelPath,
        size: u64,
        most: u64,
    ) -> Result<Vec<Value>, Failure> {
        self.settle().await?;
        let mut values: Vec<Value> = Vec::new();
        let blocks = size.div_ceil(gtp_store::BLOCK).min(most);
        while (values.len() as u64) < blocks {
            let first = values.len() as u64;
            let path = path.as_str().as_bytes().to_vec();
            let wanted = BlocksWanted { path: path.clone(), size, first };
            self.channel.send(&Message::BlocksWanted(wanted)).await?;
            match self.next().await? {
                Message::BlockValues(came) if came.path != path || came.first != first => {
                    let text = "values of blocks that were not asked for".into();
                    return Err(ControlError::Unexpected(text).into());
                }
                Message::BlockValues(came) if came.values.0.is_empty() => break,
                Message::BlockValues(came) => values.extend(came.values.0),
                Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                other => return Err(unexpected(&other)),
            }
        }
        values.truncate(usize::try_from(blocks).unwrap_or(usize::MAX));
        Ok(values)
    }

    /// Returns the contents of small files, in their order.
    ///
    /// # Errors
    /// As [`TreeSession::block_values`].
    pub async fn contents(
        &mut self,
        files: &[SmallAsked],
        when: When,
    ) -> Result<SmallContents, Failure> {
        let what = match files.iter().any(|file| file.old.is_some()) {
            true => Question::Rests(when, OwnTree::draw_key()),
            false => Question::Contents(when),
        };
        let mut all = SmallContents::default();
        let mut asked = files.iter();
        self.ask_small(files, what, |told| {
            let content = asked.next().map(|asked| all.content(asked, told)).transpose()?;
            all.files.push(content.flatten());
            Ok(())
        })
        .await?;
        Ok(all)
    }

    /// Returns for each small file what makes the new version, whose content is given, of the one
    /// that was seen at the server; `None` if the server does not tell what that holds.
    ///
    /// # Errors
    /// As [`TreeSession::block_values`].
    pub async fn patches(
        &mut self,
        files: &[(RelPath, Seen, &[u8])],
    ) -> Result<Vec<Option<Patch>>, Failure> {
        self.settle().await?;
        let mut patches: Vec<Option<Patch>> =
            files.iter().map(|(path, seen, new)| self.patch_ahead(path, *seen, new)).collect();
        let unknown: Vec<usize> = (0..files.len()).filter(|&at| patches[at].is_none()).collect();
        let key = OwnTree::draw_key();
        let asked = |&at: &usize| {
            let (path, seen, _) = &files[at];
            SmallAsked { path: path.clone(), seen: *seen, old: None }
        };
        let asked: Vec<SmallAsked> = unknown.iter().map(asked).collect();
        let mut places = unknown.into_iter();
        self.ask_small(&asked, Question::Sums(key), |told| {
            if let Some((at, sums)) = places.next().zip(told.sums) {
                let (_, seen, new) = &files[at];
                patches[at] = Some(Patch::of(new, size_of(*seen), sums.as_chunks().0, &key));
            }
            Ok(())
        })
        .await?;
        Ok(patches)
    }

    /// What makes the new version of a file by sums that were told ahead.
    fn patch_ahead(&self, path: &RelPath, seen: Seen, new: &[u8]) -> Option<Patch> {
        let ahead = self.ahead.as_ref()?;
        let sums = ahead.sums(path, seen)?;
        Some(Patch::of(new, size_of(seen), sums.as_chunks().0, ahead.key()))
    }

    /// Asks for something of small files, and hands on what is told of each, in their order.
    async fn ask_small(
        &mut self,
        files: &[SmallAsked],
        what: Question,
        mut take: impl FnMut(SmallContent) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.settle().await?;
        let pages = questions(files, what);
        let mut asked = pages.iter().map(|page| page.files.len()).collect::<Vec<_>>().into_iter();
        let answers = asked.len();
        let said = pages.into_iter().map(Message::ContentsWanted);
        let heard =
            self.channel.converse::<Failure>(said, self.terms.patience, answers, |message| {
                let told = match message {
                    Message::Contents(told) if Some(told.files.len()) == asked.next() => told.files,
                    Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
                    other => return Err(unexpected(&other)),
                };
                told.into_iter().try_for_each(&mut take)
            });
        heard.await
    }

    /// Shows the server that this end lives, until `until` ends.
    ///
    /// # Errors
    /// Why the session is of no more use.
    pub async fn keep(&mut self, until: impl Future<Output = ()>) -> Result<(), Failure> {
        let mut until = std::pin::pin!(until);
        let mut tick = tokio::time::interval(KEEPALIVE_SPAN);
        tick.reset();
        loop {
            tokio::select! {
                () = &mut until => return Ok(()),
                _ = tick.tick() => self.channel.send(&Message::Keepalive).await?,
                said = self.channel.recv() => self.take_ahead(said?)?,
            }
        }
    }

    /// Ends the session.
    pub async fn close(mut self) {
        // What was asked for in vain is heard, so that the server ends in order.
        let _ = timeout(LAST_ANSWERS, self.settle()).await;
        // The server may be gone; nothing is left to say then.
        let _ = self.channel.send(&farewell()).await;
        self.channel.close().await;
    }

    /// The next message that is no sign of life. A server may be at work for as long as it shows
    /// such signs.
    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            let sign = timeout(self.terms.patience, self.channel.sign()).await;
            match sign.map_err(|_| ControlError::TimedOut("the tree"))?? {
                Message::Keepalive => {}
                message => return Ok(message),
            }
        }
    }
}

/// The one name of a survey of what is no directory.
fn alone(nodes: &[Node]) -> Result<RelPath, Failure> {
    match nodes {
        [_, Node { path: Some(path), .. }] if !path.as_str().contains('/') => Ok(path.clone()),
        [_] => Err(Failure::new(FailureKind::Missing, "it is not there any more")),
        _ => {
            let text = "other names than that of a file".into();
            Err(ControlError::Unexpected(text).into())
        }
    }
}

impl Carried {
    /// Takes in the answer to these steps.
    fn take(&mut self, message: Message, done: &[Deed]) -> Result<(), Failure> {
        let DeedsDone { faults, lacks } = match message {
            Message::DeedsDone(done) => done,
            Message::Fault(fault) => return Err(Failure::of_fault(&fault)),
            other => return Err(unexpected(&other)),
        };
        for DeedFault { index, text } in faults {
            let Some(deed) = done.get(index as usize) else {
                let text = "a fault of a step that was not asked for".into();
                return Err(ControlError::Unexpected(text).into());
            };
            let (path, why) = (gtp_store::escaped(deed.name()), text.to_string());
            self.faults.push(Fault { path, why });
        }
        for lack in lacks.into_iter().flat_map(|Lacks { kinds }| kinds) {
            let what = lack.what.to_string();
            // A server must not fill this end's memory with words.
            if self.lacks.len() < LACKS_MAX || self.lacks.contains_key(&what) {
                *self.lacks.entry(what).or_insert(0) += u64::from(lack.number);
            }
        }
        Ok(())
    }
}

/// Contents of small files.
#[derive(Clone, Debug, Default)]
pub struct SmallContents {
    /// Each; `None` for one that is not what was seen, or that is not told.
    pub files: Vec<Option<Vec<u8>>>,
    /// Bytes of them that have travelled.
    pub travelled: u64,
}

impl SmallContents {
    /// The content of a file, from what was told of it. Together they have no other limit than the
    /// sizes seen.
    fn content(
        &mut self,
        SmallAsked { seen, old, .. }: &SmallAsked,
        told: SmallContent,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some(rest) = told.content else { return Ok(None) };
        self.travelled += rest.len() as u64;
        let size = usize::try_from(size_of(*seen)).unwrap_or(usize::MAX);
        let content = match told.kept {
            None => Some(rest).filter(|content| content.len() == size),
            Some(kept) => Patch { kept, rest }.apply(old.as_deref().unwrap_or_default(), size),
        };
        content.map(Some).ok_or_else(|| {
            let text = "the server sent contents whose lengths differ from the files'".into();
            ControlError::Unexpected(text).into()
        })
    }
}

/// Time for answers that nobody needs any more.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// What ends a session.
fn farewell() -> Message {
    Message::Done(Done::NOTHING)
}

fn unexpected(message: &Message) -> Failure {
    ControlError::Unexpected(format!("message {}", message.name())).into()
}

fn bad(why: BadTree) -> Failure {
    Failure::new(FailureKind::Other, why.to_string())
}
